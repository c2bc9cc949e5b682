//! Cross-entropy where classes have weights or lie along an axis in the middle, as the channels of
//! images do: loss = −(1 − ε)·wₜ·log pₜ − ε/C · Σ wⱼ·log pⱼ (PyTorch's definition), p the softmax
//! of a place. [`super::cross_entropy`] is the faster form for rows whose classes count alike.

use std::sync::Arc;

use crate::cpu_by_eval;
use crate::graph::{DType, Graph, ShapeError, TensorType};
use crate::ops::cpu::{fold_lanes, par_rows};
use crate::ops::{Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Real};

/// Operands: logits `[outer, classes, inner]`, targets i32 `[outer, inner]`, class weights
/// `[classes]`. Results `[outer, inner]`: the loss, the target's class weight (0 where ignored),
/// and 1 where the first largest logit is the target's. A target that is neither a class nor the
/// ignored index gives a loss of NaN.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassCrossEntropy {
    /// ε.
    pub label_smoothing: f32,
    /// Places with this target count for nothing.
    pub ignore_index: i32,
}

/// The gradient of the loss with respect to the logits: operands logits, targets, class weights,
/// and the cotangent of each place's loss.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassCrossEntropyGrad(ClassCrossEntropy);

/// The logits of one place.
struct Place<'a, R> {
    x: &'a [R],
    classes: usize,
    inner: usize,
}

impl<'a, R: Real> Place<'a, R> {
    fn new(x: &'a [R], place: usize, classes: usize, inner: usize) -> Self {
        let start = place / inner * classes * inner + place % inner;
        Place { x: &x[start..], classes, inner }
    }

    fn at(&self, class: usize) -> R {
        self.x[class * self.inner]
    }

    fn log_total(&self) -> R {
        let top = (0..self.classes).map(|c| self.at(c)).fold(R::NEG_INFINITY, R::max);
        top + fold_lanes(self.classes, |c| (self.at(c) - top).exp()).ln()
    }

    /// The first class of the largest logit.
    fn best(&self) -> usize {
        (1..self.classes).fold(0, |best, c| if self.at(c) > self.at(best) { c } else { best })
    }
}

impl ClassCrossEntropy {
    fn dims(&self, ty: &TensorType) -> Vec<u32> {
        let mut words: Vec<u32> = ty.shape.dims().iter().map(|d| *d as u32).collect();
        words.extend([self.ignore_index as u32, self.label_smoothing.to_bits()]);
        words
    }

    fn launch(&self, entry: &'static str, logits: &TensorType, binds: Vec<Bind>) -> Launch {
        let d = logits.shape.dims();
        let kernel = Kernel::file("class_cross_entropy", entry);
        Launch::flat(kernel, self.dims(logits), binds, d[0] * d[2], 64)
    }

    fn infer_rows(&self, ins: &[&TensorType]) -> Result<TensorType, String> {
        if let [outer, classes, inner] = *ins[0].shape.dims()
            && ins[1].dtype == DType::I32
            && ins[1].shape.dims() == [outer, inner]
            && ins[2].shape.dims() == [classes]
        {
            return Ok(TensorType::f32([outer, inner]));
        }
        Err(format!(
            "expected logits [outer, classes, inner], i32 targets [outer, inner] and weights \
             [classes], got {}, {} and {}",
            ins[0], ins[1], ins[2]
        ))
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (x, targets, weights) = (call.f(0), call.i(1), call.f(2));
        let (classes, inner) = (call.in_dims(0)[1], call.in_dims(0)[2]);
        let [loss, weight, correct] = call.outs else { unreachable!("three results") };
        let smooth = R::of(f64::from(self.label_smoothing));
        let rows = (16_384 / classes.max(1)).max(1);
        let class = |target: i32| usize::try_from(target).ok().filter(|t| *t < classes);
        par_rows(loss, 1, rows, |first, out| {
            for (index, out) in out.iter_mut().enumerate() {
                let place = Place::new(x, first + index, classes, inner);
                let target = targets[first + index];
                *out = match class(target) {
                    _ if target == self.ignore_index => R::ZERO,
                    None => R::of(f64::NAN),
                    Some(target) => {
                        let log_total = place.log_total();
                        let hit = weights[target] * (log_total - place.at(target));
                        let spread =
                            fold_lanes(classes, |c| weights[c] * (log_total - place.at(c)));
                        hit + smooth * (spread / R::of(classes as f64) - hit)
                    }
                };
            }
        });
        for (index, (weight, correct)) in weight.iter_mut().zip(correct.iter_mut()).enumerate() {
            let target = class(targets[index]).filter(|_| targets[index] != self.ignore_index);
            *weight = target.map_or(R::ZERO, |target| weights[target]);
            let best = Place::new(x, index, classes, inner).best();
            *correct = if target == Some(best) { R::ONE } else { R::ZERO };
        }
    }
}

impl Op for ClassCrossEntropy {
    fn name(&self) -> &'static str {
        "class_cross_entropy"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![self.infer_rows(ins)?; 3])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let fixed = [
            Grad::Stops("targets are class indices"),
            Grad::Stops("weights of classes are constants"),
        ];
        let logits = match call.d_outs[0] {
            Some(d_loss) => {
                let op = Arc::new(ClassCrossEntropyGrad(self.clone()));
                Grad::Flows(graph.apply(op, &[call.ins[0], call.ins[1], call.ins[2], d_loss])?[0])
            }
            None => Grad::Stops("weights and hits do not depend on the logits smoothly"),
        };
        Ok(vec![logits, fixed[0], fixed[1]])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        6 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let mut binds: Vec<Bind> = (0..3).map(Bind::In).collect();
        binds.extend((0..3).map(Bind::Out));
        vec![self.launch("class_cross_entropy", call.ins[0], binds)]
    }
}

impl ClassCrossEntropyGrad {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (x, targets, weights, d_loss) = (call.f(0), call.i(1), call.f(2), call.f(3));
        let (classes, inner) = (call.in_dims(0)[1], call.in_dims(0)[2]);
        let smooth = R::of(f64::from(self.0.label_smoothing));
        let spread = smooth / R::of(classes as f64);
        let all = crate::ops::cpu::sum(weights);
        par_rows(call.outs[0], classes * inner, 1, |outer, out| {
            for at in 0..inner {
                let index = outer * inner + at;
                let place = Place::new(x, index, classes, inner);
                let target = usize::try_from(targets[index]).ok().filter(|t| *t < classes);
                let counted = targets[index] != self.0.ignore_index;
                let (d, hit) = match target.filter(|_| counted) {
                    Some(target) => (d_loss[index], (R::ONE - smooth) * weights[target]),
                    None => (R::ZERO, R::ZERO),
                };
                let log_total = place.log_total();
                for (class, out) in out.iter_mut().skip(at).step_by(inner).enumerate() {
                    let share = (place.at(class) - log_total).exp();
                    let own = if target == Some(class) { hit } else { R::ZERO };
                    *out = (share * (hit + spread * all) - spread * weights[class] - own) * d;
                }
            }
        });
    }
}

impl Op for ClassCrossEntropyGrad {
    fn name(&self) -> &'static str {
        "class_cross_entropy_grad"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        self.0.infer_rows(ins)?;
        Ok(vec![ins[0].clone()])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("second derivatives are not built"); 4])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        8 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let mut binds: Vec<Bind> = (0..4).map(Bind::In).collect();
        binds.push(Bind::Out(0));
        vec![self.0.launch("class_cross_entropy_grad", call.ins[0], binds)]
    }
}

/// Uses that the generic checks run over. Only the loss is differentiated; weights and hits are
/// compared between executors.
pub fn cases() -> Vec<Case> {
    let case = |name: &'static str, dims: [usize; 3], label_smoothing: f32, targets: Domain| {
        let op = ClassCrossEntropy { label_smoothing, ignore_index: -100 };
        let ins = vec![
            (TensorType::f32(dims), Domain::Normal),
            (TensorType::i32([dims[0], dims[2]]), targets),
            (TensorType::f32([dims[1]]), Domain::Uniform(0.2, 2.0)),
        ];
        let case = Case::graph(name, ins, move |graph, ins| {
            Ok(vec![graph.apply(Arc::new(op.clone()), ins)?[0]])
        });
        Case { not_differentiated: vec![2], ..case }
    };
    let results = Case::op(
        "all_results",
        ClassCrossEntropy { label_smoothing: 0.1, ignore_index: -100 },
        vec![
            (TensorType::f32([2, 5, 33]), Domain::Normal),
            (TensorType::i32([2, 33]), Domain::IndexOr(5, -100)),
            (TensorType::f32([5]), Domain::Uniform(0.2, 2.0)),
        ],
    );
    vec![
        case("one", [1, 2, 1], 0.0, Domain::Index(2)),
        case("rows", [7, 5, 1], 0.0, Domain::Index(5)),
        case("smooth", [67, 5, 1], 0.1, Domain::Index(5)),
        case("ignored", [9, 11, 1], 0.2, Domain::IndexOr(11, -100)),
        case("images", [2, 3, 35], 0.0, Domain::Index(3)),
        case("images_smooth_ignored", [3, 7, 65], 0.3, Domain::IndexOr(7, -100)),
        Case { differentiable: false, ..results },
    ]
}
