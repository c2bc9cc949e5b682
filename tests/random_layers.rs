//! Layers that draw: what is left out is left out whole, the mean stays, the same step draws the
//! same, other steps, micro-batches, seeds and layers draw otherwise, and evaluation changes
//! nothing.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::reference;
use wootz::device::Globals;
use wootz::graph::eval::{self, Tensor};
use wootz::graph::{Leaf, Shape, TensorType};
use wootz::layers::{InputSpec, Mode, Registry};

const START: Globals = Globals { step: 1, micro: 0, seed: [3, 5], hyper: [0.0; 8], pad: [0; 4] };

/// The result of layers for inputs that are all 1.
fn run(layers: &str, dims: &[usize], mode: Mode, globals: &Globals) -> Vec<f32> {
    let (_, model) = reference::load_model(&format!("layers: [{layers}]"));
    let sample = TensorType::f32(Shape::new(&dims[1..]));
    let specs = [InputSpec { name: "x".into(), sample }];
    let body = model.body(&mut Registry::default(), &specs, dims[0], mode).unwrap();
    let ones = |_: &Leaf, ty: &TensorType| Tensor::F(vec![1.0_f32; ty.shape.elements()]);
    let values = eval::run(&body.graph, globals, ones);
    values[body.outputs[0].index()].f().to_vec()
}

/// Each layer, an input, and the elements that are drawn for together.
const LAYERS: [(&str, &[usize], usize); 4] = [
    ("dropout: {p: 0.3}", &[64, 67], 1),
    ("dropout2d: {p: 0.3}", &[64, 67, 3, 5], 15),
    ("dropout2d: {p: 0.3}", &[64, 67, 7], 7),
    ("stochastic_depth: {p: 0.3}", &[4099, 3, 2], 6),
];

#[test]
fn what_is_left_out_is_left_out_whole_and_the_mean_stays() {
    for (layer, dims, together) in LAYERS {
        let y = run(&format!("{{{layer}}}"), dims, Mode::Train, &START);
        let mut kept = 0;
        for group in y.chunks_exact(together) {
            assert!(group.iter().all(|v| v == &group[0]), "{layer}: a group is cut");
            assert!(
                group[0] == 0.0 || (group[0] - 1.0 / 0.7).abs() < 1e-6,
                "{layer}: {}",
                group[0]
            );
            kept += usize::from(group[0] != 0.0);
        }
        let (n, p) = ((y.len() / together) as f64, 0.7);
        // Four standard deviations of the binomial distribution.
        let error = (kept as f64 - n * p).abs();
        assert!(error < 4.0 * (n * p * (1.0 - p)).sqrt(), "{layer}: {kept} of {n} are kept");
    }
}

#[test]
fn a_batch_is_left_out_together() {
    let layer = "{stochastic_depth: {p: 0.5, mode: batch}}";
    let mut kept = 0;
    for step in 1..=100 {
        let y = run(layer, &[5, 3], Mode::Train, &Globals { step, ..START });
        assert!(y.iter().all(|v| v == &y[0]) && (y[0] == 0.0 || y[0] == 2.0));
        kept += u32::from(y[0] != 0.0);
    }
    assert!((30..=70).contains(&kept), "{kept} of 100 are kept");
}

#[test]
fn the_same_step_draws_the_same_and_others_do_not() {
    for (layer, dims, _) in LAYERS {
        let draw = |globals: &Globals| run(&format!("{{{layer}}}"), dims, Mode::Train, globals);
        let first = draw(&START);
        assert_eq!(first, draw(&START), "{layer}");
        for other in [
            Globals { step: 2, ..START },
            Globals { micro: 1, ..START },
            Globals { seed: [3, 6], ..START },
        ] {
            assert_ne!(first, draw(&other), "{layer}");
        }
        let two = run(&format!("{{{layer}}}, {{{layer}}}"), dims, Mode::Train, &START);
        let twice: Vec<f32> = first.iter().map(|v| v * v).collect();
        assert_ne!(two, twice, "two layers of {layer} draw alike");
    }
}

#[test]
fn evaluation_changes_nothing() {
    for (layer, dims, _) in LAYERS {
        let y = run(&format!("{{{layer}}}"), dims, Mode::Eval, &START);
        assert!(y.iter().all(|v| *v == 1.0), "{layer}");
    }
}
