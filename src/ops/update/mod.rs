//! Updates: what an optimizer is to the plan and to the training loop, and the op that all of them
//! are made of.
//!
//! An [`Update`] is scalar code over the elements of a range of the flat pages: parameters and
//! moments in place, the gradient, and the step's scalars. Where the step's gradient cannot be
//! used, nothing changes. An optimizer whose elements do not depend on each other is an
//! [`Elementwise`] formula, compiled for the CPU as it stands; one that looks at whole tensors is an [`UpdateRule`] of its own, built
//! from updates and other ops.

mod adadelta;
mod adafactor;
mod adagrad;
mod adam;
mod adamax;
mod average;
mod cpu;
mod lamb;
mod lars;
mod lion;
mod muon;
mod nadam;
mod native;
mod radam;
mod rmsprop;
mod scalar;
mod sgd;
mod tensor;
mod wgsl;

use std::fmt::Debug;
use std::sync::Arc;

pub use adadelta::Adadelta;
pub use adafactor::Adafactor;
pub use adagrad::Adagrad;
pub use adam::Adam;
pub use adamax::Adamax;
pub use average::average;
pub use lamb::Lamb;
pub use lars::Lars;
pub use lion::Lion;
pub use muon::Muon;
pub use nadam::NAdam;
pub use radam::RAdam;
pub use rmsprop::RmsProp;
pub use scalar::{Number, Scalars, X};
pub use sgd::Sgd;

use super::map::Code;
use super::{Call, Case, Domain, GpuCall, Grad, GradCall, Launch, Op, Real};
use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType, ValueId};

/// Place of the gradient noise's standard deviation in `Globals::hyper`.
pub const NOISE: usize = 6;
/// Place of the average's weight in `Globals::hyper`.
pub const AVERAGE: usize = 7;

/// How one group of parameters is updated.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// λ.
    pub weight_decay: f64,
    /// Factor on the learning rate.
    pub lr_factor: f64,
    /// Clips each element of the mean gradient.
    pub clip_value: Option<f64>,
    /// First of the two streams of random numbers of the gradient noise.
    pub noise: Option<u32>,
}

/// What is updated at once: a flat range of a group, or one parameter.
#[derive(Clone, Debug)]
pub struct Operands<'a> {
    /// The parameters.
    pub params: ValueId,
    /// Their moments.
    pub moments: Vec<ValueId>,
    /// Sums of their gradients over the window.
    pub grads: ValueId,
    /// What `GradScale` found.
    pub control: ValueId,
    /// The group's settings.
    pub settings: &'a Settings,
}

/// An optimizer.
pub trait UpdateRule: Debug + Send + Sync {
    /// Its name, as configurations have it.
    fn name(&self) -> &'static str;

    /// Names of the moments of a parameter of this shape, as PyTorch calls them, and their shapes.
    fn moments(&self, param: &Shape) -> Vec<(&'static str, Shape)>;

    /// Up to five scalars of step `step` (from 1), which formulas read by [`Scalars::scalar`].
    fn scalars(&self, step: u64) -> Vec<f64>;

    /// λ of the parameters that decay.
    fn weight_decay(&self) -> f64;

    /// Whether it looks at whole parameters: then each is updated by itself.
    fn per_tensor(&self) -> bool;

    /// Adds the update to a graph; gives the new parameters, then the new moments.
    ///
    /// # Errors
    /// Only when the rule itself is wrong.
    fn apply(&self, graph: &mut Graph, target: &Operands<'_>) -> Result<Vec<ValueId>, ShapeError>;

    /// `Globals::hyper` of step `step` (from 1) at learning rate `lr`, without noise and average.
    fn hyper(&self, lr: f64, step: u64) -> [f32; 8] {
        let mut hyper = [0.0; 8];
        hyper[0] = lr as f32;
        for (at, value) in self.scalars(step).into_iter().enumerate() {
            hyper[1 + at] = value as f32;
        }
        hyper
    }
}

/// An optimizer whose elements do not depend on each other.
pub trait Elementwise: Clone + Debug + Send + Sync + 'static {
    /// See [`UpdateRule::name`].
    fn name(&self) -> &'static str;

    /// Names of the moments, three at most.
    fn moments(&self) -> Vec<&'static str>;

    /// See [`UpdateRule::scalars`].
    fn scalars(&self, _step: u64) -> Vec<f64> {
        Vec::new()
    }

    /// See [`UpdateRule::weight_decay`].
    fn weight_decay(&self) -> f64;

    /// Puts the new parameter and moments in the place of the old ones; `g` is the gradient.
    fn formula<N: Number>(&self, s: &Scalars<'_, N>, p: &mut N, g: N, moments: &mut [N]);
}

impl<T: Elementwise> UpdateRule for T {
    fn name(&self) -> &'static str {
        Elementwise::name(self)
    }

    fn moments(&self, param: &Shape) -> Vec<(&'static str, Shape)> {
        Elementwise::moments(self).into_iter().map(|name| (name, param.clone())).collect()
    }

    fn scalars(&self, step: u64) -> Vec<f64> {
        Elementwise::scalars(self, step)
    }

    fn weight_decay(&self) -> f64 {
        Elementwise::weight_decay(self)
    }

    fn per_tensor(&self) -> bool {
        false
    }

    fn apply(&self, graph: &mut Graph, target: &Operands<'_>) -> Result<Vec<ValueId>, ShapeError> {
        let count = target.moments.len();
        let update =
            Update::new(Elementwise::name(self), 1 + count, 2 + count, target.settings, |s| {
                let mut new: Vec<X<'_>> = (0..=count).map(|i| s.operand(i)).collect();
                let [p, moments @ ..] = &mut new[..] else { unreachable!("a parameter") };
                self.formula(s, p, s.gradient(1 + count), moments);
                new
            });
        let mut operands = vec![target.params];
        operands.extend(&target.moments);
        operands.extend([target.grads, target.control]);
        let (rule, settings) = (self.clone(), target.settings.clone());
        graph.apply(Arc::new(native::Native { rule, settings, update }), &operands)
    }
}

/// Scalar code over the elements of a range. Operands: first those that are updated in place, then
/// others, each with the range's elements or one; last the control vector of `GradScale`. Results:
/// the updated operands, then others. Nothing is written where control's scale is 0, the mark of a
/// gradient that cannot be used.
///
/// The code's inputs are the operands, control's scale, and the eight numbers of `Globals::hyper`.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    name: &'static str,
    code: Code,
    operands: usize,
    in_place: usize,
}

impl Update {
    /// An update of `operands` operands, the first `in_place` of them in place.
    pub fn new(
        name: &'static str,
        in_place: usize,
        operands: usize,
        settings: &Settings,
        formula: impl for<'c> FnOnce(&Scalars<'c, X<'c>>) -> Vec<X<'c>>,
    ) -> Self {
        let code = scalar::code(operands, settings, formula);
        Update { name, code, operands, in_place }
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        cpu::eval(self, call);
    }
}

/// Every operand with the result of the same index.
const PAIRS: [(usize, usize); 8] = [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7)];

impl Op for Update {
    fn name(&self) -> &'static str {
        self.name
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let n = ins[0].shape.elements();
        let fits = |ty: &&TensorType| ty.shape.elements() == n || ty.shape.elements() == 1;
        if ins.len() != self.operands + 1 || !ins[..self.operands].iter().all(fits) {
            return Err("parameters, moments and gradients must have one size".into());
        }
        let outs = self.code.outs.len();
        Ok((0..outs).map(|i| ins[if i < self.in_place { i } else { 0 }].clone()).collect())
    }

    fn grad(&self, _graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("an update is not differentiated"); call.ins.len()])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        (self.code.arithmetic() * ins[0].shape.elements()) as u64
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        vec![wgsl::launch(self, call)]
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &PAIRS[..self.in_place]
    }
}

/// Uses that the generic checks run over: every rule, over a flat range or a matrix and a vector.
pub fn cases() -> Vec<Case> {
    let adam = Adam { betas: [0.9, 0.99], eps: 1e-6, weight_decay: 0.1, ..Adam::default() };
    let sgd = Sgd { momentum: 0.9, weight_decay: 0.1, ..Sgd::default() };
    let rms = RmsProp { alpha: 0.9, eps: 1e-3, weight_decay: 0.1, ..RmsProp::default() };
    let muon = Muon { steps: 2, ..Muon::default() };
    let mut cases = Vec::new();
    let mut flat = |name: &str, n: usize, rule: &dyn Fn() -> Box<dyn UpdateRule>| {
        cases.push(rule_case(name, &[n], rule()));
    };
    flat("sgd_plain", 259, &|| Box::new(Sgd { momentum: 0.0, ..sgd.clone() }));
    flat("sgd_momentum", 259, &|| Box::new(Sgd { dampening: 0.2, ..sgd.clone() }));
    flat("sgd_nesterov", 300, &|| Box::new(Sgd { nesterov: true, ..sgd.clone() }));
    flat("adam", 259, &|| Box::new(adam.clone()));
    flat("adam_amsgrad", 17_000, &|| Box::new(Adam { amsgrad: true, ..adam.clone() }));
    flat("adamw", 300, &|| Box::new(Adam { decoupled: true, ..adam.clone() }));
    flat("one", 1, &|| Box::new(Adam { decoupled: true, ..adam.clone() }));
    flat("adamax", 259, &|| Box::new(Adamax { weight_decay: 0.1, ..Adamax::default() }));
    flat("nadam", 259, &|| Box::new(NAdam { weight_decay: 0.1, ..NAdam::default() }));
    flat("radam", 259, &|| Box::new(RAdam { decoupled: true, ..RAdam::default() }));
    flat("adagrad", 259, &|| Box::new(Adagrad { eps: 1e-3, ..Adagrad::default() }));
    flat("adadelta", 259, &|| Box::new(Adadelta { weight_decay: 0.1, ..Adadelta::default() }));
    flat("rmsprop", 259, &|| Box::new(rms.clone()));
    flat("rmsprop_momentum", 259, &|| Box::new(RmsProp { momentum: 0.9, ..rms.clone() }));
    flat("lion", 259, &|| Box::new(Lion { weight_decay: 0.1, ..Lion::default() }));
    for (name, dims) in [("matrix", &[7_usize, 13][..]), ("vector", &[67]), ("kernel", &[3, 5, 2])]
    {
        let mut each = |rule: Box<dyn UpdateRule>| {
            cases.push(rule_case(&format!("{}_{name}", rule.name()), dims, rule));
        };
        each(Box::new(Lamb { weight_decay: 0.1, ..Lamb::default() }));
        each(Box::new(Lars { weight_decay: 0.1, ..Lars::default() }));
        each(Box::new(Adafactor { weight_decay: 0.1, ..Adafactor::default() }));
        if dims.len() == 2 {
            each(Box::new(muon.clone()));
        }
    }
    cases.push(rule_case("muon_tall", &[13, 7], Box::new(muon)));
    let settings =
        Settings { clip_value: Some(0.2), noise: Some(5), lr_factor: 0.5, weight_decay: 0.1 };
    cases.push(case("clipped_noisy", &[259], Box::new(sgd), settings));
    cases.push(average::case());
    cases
}

fn rule_case(name: &str, dims: &[usize], rule: Box<dyn UpdateRule>) -> Case {
    let weight_decay = rule.weight_decay();
    let settings = Settings { weight_decay, lr_factor: 1.0, clip_value: None, noise: None };
    case(name, dims, rule, settings)
}

/// A rule over parameters, moments, gradients and control; the scale is negative so that nothing
/// hangs on its sign.
fn case(name: &str, dims: &[usize], rule: Box<dyn UpdateRule>, settings: Settings) -> Case {
    let shape = Shape::new(dims);
    let mut ins = vec![(TensorType::f32(shape.clone()), Domain::Normal)];
    let moments = rule.moments(&shape);
    for (_, moment) in &moments {
        ins.push((TensorType::f32(moment.clone()), Domain::Uniform(0.5, 2.0)));
    }
    ins.push((TensorType::f32(shape), Domain::Normal));
    ins.push((TensorType::f32([6]), Domain::Uniform(-0.9, -0.1)));
    let count = moments.len();
    let build = move |graph: &mut Graph, ins: &[ValueId]| {
        let target = Operands {
            params: ins[0],
            moments: ins[1..1 + count].to_vec(),
            grads: ins[1 + count],
            control: ins[2 + count],
            settings: &settings,
        };
        rule.apply(graph, &target)
    };
    Case { differentiable: false, ..Case::graph(name, ins, build) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Globals;
    use crate::graph::eval::{Tensor, run_op};

    #[test]
    fn noise_is_standard_normal() {
        let settings =
            Settings { weight_decay: 0.0, lr_factor: 1.0, clip_value: None, noise: Some(9) };
        let op = Update::new("noise", 0, 1, &settings, |s| vec![s.gradient(0)]);
        let n = 40_000;
        let (ty, control) = (TensorType::f32([n]), TensorType::f32([4]));
        let zeros = Tensor::F(vec![0.0_f32; n]);
        let ins = [&zeros, &Tensor::F(vec![1.0; 4])];
        let mut globals = Globals { step: 5, ..Globals::default() };
        globals.hyper[NOISE] = 1.0;
        let noise = &run_op(&op, &ins, &[&ty, &control], &[&ty], &globals)[0];
        let moment =
            |power: i32| noise.iter().map(|x| f64::from(*x).powi(power)).sum::<f64>() / n as f64;
        // Four standard errors of the first four moments of a standard normal.
        for (power, wanted, deviation) in
            [(1, 0.0, 1.0), (2, 1.0, 1.42), (3, 0.0, 3.88), (4, 3.0, 9.8)]
        {
            let error = (moment(power) - wanted).abs();
            assert!(error < 4.0 * deviation / (n as f64).sqrt(), "moment {power} off by {error}");
        }
    }

    #[test]
    fn nothing_changes_where_the_gradient_cannot_be_used() {
        let rule = Adam::default();
        let settings =
            Settings { weight_decay: 0.1, lr_factor: 1.0, clip_value: None, noise: None };
        let mut graph = Graph::new();
        let ty = TensorType::f32([3]);
        let leaf = |graph: &mut Graph, index, ty: TensorType| {
            graph.leaf(crate::graph::Leaf::Input(index), ty)
        };
        let operands = Operands {
            params: leaf(&mut graph, 0, ty.clone()),
            moments: vec![leaf(&mut graph, 1, ty.clone()), leaf(&mut graph, 2, ty.clone())],
            grads: leaf(&mut graph, 3, ty.clone()),
            control: leaf(&mut graph, 4, TensorType::f32([4])),
            settings: &settings,
        };
        rule.apply(&mut graph, &operands).expect("it fits");
        let node = &graph.nodes[0];
        let old = Tensor::F(vec![1.0_f32, 2.0, 3.0]);
        let bad = Tensor::F(vec![f32::NAN; 3]);
        let ins = [&old, &old, &old, &bad, &Tensor::F(vec![0.0; 4])];
        let control = TensorType::f32([4]);
        let types = [&ty, &ty, &ty, &ty, &control];
        let globals = Globals { step: 1, hyper: rule.hyper(0.1, 1), ..Globals::default() };
        let new = run_op(node.op.as_ref(), &ins, &types, &[&ty; 3], &globals);
        assert!(new.iter().all(|values| values == &[1.0, 2.0, 3.0]), "{new:?}");
    }
}
