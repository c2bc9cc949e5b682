//! Cross-entropy of logits against class indices, row by row, with label smoothing ε and an
//! ignored index: loss = −(1 − ε)·log pₜ − ε/C · Σ log pⱼ (Szegedy et al. 2016; PyTorch's
//! definition), p the softmax of the row. The softmax is never stored.

use std::sync::Arc;

use crate::cpu_by_eval;
use crate::graph::{DType, Graph, ShapeError, TensorType};
use crate::ops::cpu::par_rows;
use crate::ops::softmax::rows_per_piece;
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Port, Real, Storage,
};

/// Operands: logits `[rows, classes]`, targets i32 `[rows]`. Results `[rows]`: the loss, the
/// weight (1, or 0 where ignored), and 1 where the first largest logit is the target's. A target
/// that is neither a class nor the ignored index gives a loss of NaN.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossEntropy {
    /// ε.
    pub label_smoothing: f32,
    /// Rows with this target count for nothing.
    pub ignore_index: i32,
}

/// The gradient of the loss with respect to the logits: operands logits, targets, and the
/// cotangent of each row's loss.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossEntropyGrad(CrossEntropy);

/// Largest logit, its first index, and log Σ e^{x}.
#[inline(always)]
fn row_stats<R: Real>(x: &[R]) -> (R, usize, R) {
    let mut top = x[0];
    let mut at = 0;
    for (index, value) in x.iter().enumerate().skip(1) {
        if *value > top {
            (top, at) = (*value, index);
        }
    }
    let total = crate::ops::cpu::fold_lanes(x.len(), |i| (x[i] - top).exp());
    (top, at, top + total.ln())
}

impl CrossEntropy {
    fn dims(&self, ty: &TensorType) -> Vec<u32> {
        let d = ty.shape.dims();
        vec![d[0] as u32, d[1] as u32, self.ignore_index as u32, self.label_smoothing.to_bits()]
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (x, targets) = (call.f(0), call.i(1));
        let cols = call.in_types[0].shape.last();
        let [loss, weight, correct] = call.outs else { unreachable!("three results") };
        let smooth = R::of(f64::from(self.label_smoothing));
        let rows = rows_per_piece(cols);
        // (loss, correct) pairs are computed row by row, then taken apart.
        par_rows(loss, 1, rows, |first, out| {
            for (row, out) in out.iter_mut().enumerate() {
                let target = targets[first + row];
                if target == self.ignore_index {
                    *out = R::ZERO;
                    continue;
                }
                let x = &x[(first + row) * cols..(first + row + 1) * cols];
                let Some(at) = usize::try_from(target).ok().filter(|t| *t < cols) else {
                    *out = R::of(f64::NAN);
                    continue;
                };
                let (_, _, log_total) = row_stats(x);
                let mean = crate::ops::cpu::sum(x) / R::of(cols as f64);
                let hit = log_total - x[at];
                *out = hit + smooth * ((log_total - mean) - hit);
            }
        });
        for (row, (weight, correct)) in weight.iter_mut().zip(correct.iter_mut()).enumerate() {
            let counted = targets[row] != self.ignore_index;
            let best = row_stats_index(&x[row * cols..(row + 1) * cols]);
            *weight = if counted { R::ONE } else { R::ZERO };
            *correct = if counted && best as i32 == targets[row] { R::ONE } else { R::ZERO };
        }
    }
}

/// The first index of the largest logit.
#[inline(always)]
fn row_stats_index<R: Real>(x: &[R]) -> usize {
    let mut at = 0;
    for (index, value) in x.iter().enumerate() {
        if *value > x[at] {
            at = index;
        }
    }
    at
}

fn infer(ins: &[&TensorType]) -> Result<usize, String> {
    let (logits, targets) = (ins[0], ins[1]);
    let fits = logits.shape.rank() == 2
        && targets.dtype == DType::I32
        && targets.shape.dims() == &logits.shape.dims()[..1];
    if !fits {
        return Err(format!(
            "expected logits [rows, classes] and i32 targets [rows], got {logits} and {targets}"
        ));
    }
    Ok(logits.shape.dims()[0])
}

impl Op for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let rows = infer(ins)?;
        Ok(vec![TensorType::f32([rows]); 3])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let index = Grad::Stops("targets are class indices");
        let Some(d_loss) = call.d_outs[0] else {
            return Ok(vec![
                Grad::Stops("weights and hits do not depend on the logits smoothly"),
                index,
            ]);
        };
        let op = CrossEntropyGrad(self.clone());
        let dx = graph.apply(Arc::new(op), &[call.ins[0], call.ins[1], d_loss])?[0];
        Ok(vec![Grad::Flows(dx), index])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        4 * ins[0].shape.elements() as u64
    }

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(0) => Storage::Either,
            _ => Storage::Single,
        }
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let binds = vec![Bind::In(0), Bind::In(1), Bind::Out(0), Bind::Out(1), Bind::Out(2)];
        let [rows, cols] = [0, 1].map(|axis| call.ins[0].shape.dims()[axis]);
        let kernel = Kernel::file("cross_entropy", "cross_entropy").stored("logits", call.ins[0]);
        vec![Launch::rows(kernel, self.dims(call.ins[0]), binds, rows, cols)]
    }
}

impl CrossEntropyGrad {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (x, targets, d_loss) = (call.f(0), call.i(1), call.f(2));
        let cols = call.in_types[0].shape.last();
        let smooth = R::of(f64::from(self.0.label_smoothing));
        let spread = smooth / R::of(cols as f64);
        par_rows(call.outs[0], cols, rows_per_piece(cols), |first, out| {
            for (row, out) in out.chunks_exact_mut(cols).enumerate() {
                let row = first + row;
                if targets[row] == self.0.ignore_index {
                    out.fill(R::ZERO);
                    continue;
                }
                let x = &x[row * cols..(row + 1) * cols];
                let (_, _, log_total) = row_stats(x);
                for (o, v) in out.iter_mut().zip(x) {
                    *o = ((*v - log_total).exp() - spread) * d_loss[row];
                }
                if let Some(hit) = usize::try_from(targets[row]).ok().and_then(|t| out.get_mut(t)) {
                    *hit -= (R::ONE - smooth) * d_loss[row];
                }
            }
        });
    }
}

impl Op for CrossEntropyGrad {
    fn name(&self) -> &'static str {
        "cross_entropy_grad"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        infer(ins)?;
        Ok(vec![ins[0].clone()])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("second derivatives are not built"); 3])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        5 * ins[0].shape.elements() as u64
    }

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(0) | Port::Out(0) => Storage::Either,
            _ => Storage::Single,
        }
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let binds = vec![Bind::In(0), Bind::In(1), Bind::In(2), Bind::Out(0)];
        let [rows, cols] = [0, 1].map(|axis| call.ins[0].shape.dims()[axis]);
        let kernel = Kernel::file("cross_entropy_grad", "cross_entropy_grad")
            .stored("logits", call.ins[0])
            .stored("dx", call.outs[0]);
        vec![Launch::rows(kernel, self.0.dims(call.ins[0]), binds, rows, cols)]
    }
}

/// Uses that the generic checks run over. Only the loss is differentiated; weights and hits are
/// compared between executors.
pub fn cases() -> Vec<Case> {
    let case =
        |name: &'static str, rows: usize, cols: usize, label_smoothing: f32, targets: Domain| {
            let op = CrossEntropy { label_smoothing, ignore_index: -100 };
            let ins = vec![
                (TensorType::f32([rows, cols]), Domain::Normal),
                (TensorType::i32([rows]), targets),
            ];
            Case::graph(name, ins, move |graph, ins| {
                Ok(vec![graph.apply(Arc::new(op.clone()), ins)?[0]])
            })
        };
    vec![
        case("one", 1, 2, 0.0, Domain::Index(2)),
        case("rows7_cols5", 7, 5, 0.0, Domain::Index(5)),
        case("smooth", 7, 5, 0.1, Domain::Index(5)),
        case("ignored", 9, 11, 0.0, Domain::IndexOr(11, -100)),
        case("smooth_ignored", 9, 11, 0.2, Domain::IndexOr(11, -100)),
        case("cols300", 3, 300, 0.0, Domain::Index(300)),
        case("rows300", 300, 10, 0.0, Domain::Index(10)),
    ]
}
