//! Generated samples: for trying things out and for measuring speed.

use super::{channels, number_names, spec};
use crate::config::data::{Normalize, Synthetic, SyntheticKind};
use crate::data::DataError;
use crate::data::dataset::{Content, Samples, Targets, Task};
use crate::graph::{Shape, TensorType};
use crate::ops::philox;

/// Draws of one purpose, by number.
struct Draws {
    key: [u32; 2],
    stream: u32,
}

impl Draws {
    fn new(seed: u64, stream: u32) -> Self {
        Draws { key: [seed as u32, (seed >> 32) as u32], stream }
    }

    fn word(&self, index: usize) -> u32 {
        philox::block([(index / 4) as u32, self.stream, 0, 0], self.key)[index % 4]
    }

    /// Uniform in [−1, 1).
    fn unit(&self, index: usize) -> f32 {
        self.word(index) as f32 / 2_147_483_648.0 - 1.0
    }
}

/// Streams of the purposes.
const CENTRES: u32 = 1;
const NOISE: u32 = 2;
const WEIGHTS: u32 = 3;
const STARTS: u32 = 4;

pub(super) fn open(
    options: &Synthetic,
    normalize: Option<&Normalize>,
) -> Result<Content, DataError> {
    let shape = Shape::new(options.shape.clone());
    if let (Some(normalize), [count, _, _]) = (normalize, shape.dims()) {
        channels(*count, 1.0, Some(normalize))?;
    }
    let classes = options.classes.unwrap_or(0);
    Ok(match options.kind {
        SyntheticKind::Classification => Content {
            inputs: vec![spec("features", TensorType::f32(shape.clone()))],
            target: spec("label", TensorType::i32([])),
            task: Task::Classification { classes, names: number_names(classes) },
            columns: Vec::new(),
            samples: clouds(options, &shape, classes, normalize),
        },
        SyntheticKind::Regression => {
            let outputs = options.outputs.unwrap_or(1);
            Content {
                inputs: vec![spec("features", TensorType::f32(shape.clone()))],
                target: spec("target", TensorType::f32([outputs])),
                task: Task::Regression,
                columns: Vec::new(),
                samples: function(options, &shape, outputs),
            }
        }
        SyntheticKind::Tokens => Content {
            inputs: vec![spec("tokens", TensorType::i32(shape.clone()))],
            target: spec("next tokens", TensorType::i32(shape.clone())),
            task: Task::NextToken { vocab: classes },
            columns: Vec::new(),
            samples: rule(options, shape.elements(), classes),
        },
    })
}

/// A cloud for each class around a centre of its own; labels go round.
fn clouds(
    options: &Synthetic,
    shape: &Shape,
    classes: usize,
    normalize: Option<&Normalize>,
) -> Samples {
    let wide = shape.elements();
    let (centres, noise) = (Draws::new(options.seed, CENTRES), Draws::new(options.seed, NOISE));
    let labels: Vec<i32> = (0..options.samples).map(|sample| (sample % classes) as i32).collect();
    let mut values: Vec<f32> = (0..options.samples * wide)
        .map(|at| {
            let class = at / wide % classes;
            centres.unit(class * wide + at % wide) + noise.unit(at)
        })
        .collect();
    if let (Some(normalize), [count, rows, cols]) = (normalize, shape.dims()) {
        for (at, value) in values.iter_mut().enumerate() {
            let channel = at / (rows * cols) % count;
            *value = (*value - normalize.mean[channel] as f32) / normalize.std[channel] as f32;
        }
    }
    Samples::Rows { values, targets: Targets::Classes(labels) }
}

/// Outputs are fixed random sums of the features.
fn function(options: &Synthetic, shape: &Shape, outputs: usize) -> Samples {
    let wide = shape.elements();
    let (weights, noise) = (Draws::new(options.seed, WEIGHTS), Draws::new(options.seed, NOISE));
    let values: Vec<f32> = (0..options.samples * wide).map(|at| noise.unit(at)).collect();
    let scale = (wide as f32).sqrt().recip();
    let numbers = values
        .chunks_exact(wide)
        .flat_map(|row| {
            let weights = &weights;
            (0..outputs).map(move |out| {
                let terms =
                    row.iter().enumerate().map(|(at, value)| value * weights.unit(out * wide + at));
                scale * terms.sum::<f32>()
            })
        })
        .collect();
    Samples::Rows { values, targets: Targets::Numbers(numbers) }
}

/// Each token follows from the one before by a fixed step, from a random start.
fn rule(options: &Synthetic, context: usize, classes: usize) -> Samples {
    let starts = Draws::new(options.seed, STARTS);
    let mut tokens = Vec::with_capacity(options.samples * (context + 1));
    for sample in 0..options.samples {
        let mut token = starts.word(sample) as usize % classes;
        for _ in 0..=context {
            tokens.push(token as i32);
            token = (5 * token + 3) % classes;
        }
    }
    Samples::Sequences { tokens, context }
}
