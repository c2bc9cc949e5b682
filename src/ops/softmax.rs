//! Softmax over the last axis, yᵢ = e^{xᵢ} / Σ e^{xⱼ}, with its gradient dx = y ⊙ (dy − Σ y·dy);
//! and its logarithm, yᵢ = xᵢ − ln Σ e^{xⱼ}, with dx = dy − e^y·Σ dy.

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType};
use crate::ops::cpu::{dot, fold_lanes, par_rows, sum};
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Port, Real, Storage,
};

/// Softmax over the last axis of one operand. A row of −∞ alone, as where everything is masked, gives
/// zeros.
#[derive(Clone, Debug, PartialEq)]
pub struct Softmax;

/// The gradient: operands y and dy.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftmaxGrad;

/// The logarithm of softmax over the last axis of one operand.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSoftmax;

/// Its gradient: operands y and dy.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSoftmaxGrad;

/// Rows that a piece of work takes on the CPU.
pub(super) fn rows_per_piece(row: usize) -> usize {
    (16_384 / row.max(1)).max(1)
}

fn row_launch(kernel: Kernel, ty: &TensorType, binds: Vec<Bind>) -> Launch {
    let cols = ty.shape.last();
    let rows = ty.shape.elements() / cols;
    Launch::rows(kernel, vec![rows as u32, cols as u32], binds, rows, cols)
}

impl Softmax {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let x = call.f(0);
        let cols = call.in_types[0].shape.last();
        par_rows(call.outs[0], cols, rows_per_piece(cols), |first, out| {
            for (row, out) in out.chunks_exact_mut(cols).enumerate() {
                let x = &x[(first + row) * cols..(first + row + 1) * cols];
                softmax_row(x, out);
            }
        });
    }
}

/// One row; the shift by the maximum keeps every exponential at most 1.
#[inline(always)]
pub(super) fn softmax_row<R: Real>(x: &[R], out: &mut [R]) {
    let top = x.iter().copied().fold(R::NEG_INFINITY, R::max);
    if top == R::NEG_INFINITY && x.iter().all(|v| *v == top) {
        return out.fill(R::ZERO);
    }
    for (o, v) in out.iter_mut().zip(x) {
        *o = (*v - top).exp();
    }
    let scale = R::ONE / crate::ops::cpu::sum(out);
    out.iter_mut().for_each(|o| *o *= scale);
}

impl Op for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![ins[0].clone()])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Flows(graph.op(SoftmaxGrad, &[call.outs[0], call.d_out()])?)])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        4 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        vec![row_launch(
            Kernel::file("softmax", "softmax").stored("a", call.ins[0]).stored("b", call.outs[0]),
            call.ins[0],
            vec![Bind::In(0), Bind::Out(0)],
        )]
    }
}

impl SoftmaxGrad {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (y, dy) = (call.f(0), call.f(1));
        let cols = call.in_types[0].shape.last();
        par_rows(call.outs[0], cols, rows_per_piece(cols), |first, out| {
            for (row, out) in out.chunks_exact_mut(cols).enumerate() {
                let at = (first + row) * cols..(first + row + 1) * cols;
                let (y, dy) = (&y[at.clone()], &dy[at]);
                let mean = dot(y, dy);
                for ((o, y), dy) in out.iter_mut().zip(y).zip(dy) {
                    *o = *y * (*dy - mean);
                }
            }
        });
    }
}

impl Op for SoftmaxGrad {
    fn name(&self) -> &'static str {
        "softmax_grad"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        if ins[0] != ins[1] {
            return Err(format!("y is {} and dy is {}", ins[0], ins[1]));
        }
        Ok(vec![ins[0].clone()])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("second derivatives are not built"); 2])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        4 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let binds = vec![Bind::In(0), Bind::In(1), Bind::Out(0)];
        let kernel = Kernel::file("softmax", "softmax_grad")
            .stored("a", call.ins[0])
            .stored("b", call.ins[1])
            .stored("c", call.outs[0]);
        vec![row_launch(kernel, call.ins[0], binds)]
    }
}

impl LogSoftmax {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let x = call.f(0);
        let cols = call.in_types[0].shape.last();
        par_rows(call.outs[0], cols, rows_per_piece(cols), |first, out| {
            for (row, out) in out.chunks_exact_mut(cols).enumerate() {
                let x = &x[(first + row) * cols..(first + row + 1) * cols];
                let top = x.iter().copied().fold(R::NEG_INFINITY, R::max);
                let total = fold_lanes(cols, |i| (x[i] - top).exp()).ln();
                for (o, v) in out.iter_mut().zip(x) {
                    *o = *v - top - total;
                }
            }
        });
    }
}

impl Op for LogSoftmax {
    fn name(&self) -> &'static str {
        "log_softmax"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![ins[0].clone()])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Flows(graph.op(LogSoftmaxGrad, &[call.outs[0], call.d_out()])?)])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        4 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let binds = vec![Bind::In(0), Bind::Out(0)];
        vec![row_launch(Kernel::file("softmax", "log_softmax"), call.ins[0], binds)]
    }
}

impl LogSoftmaxGrad {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (y, dy) = (call.f(0), call.f(1));
        let cols = call.in_types[0].shape.last();
        par_rows(call.outs[0], cols, rows_per_piece(cols), |first, out| {
            for (row, out) in out.chunks_exact_mut(cols).enumerate() {
                let at = (first + row) * cols..(first + row + 1) * cols;
                let (y, dy) = (&y[at.clone()], &dy[at]);
                let total = sum(dy);
                for ((o, y), dy) in out.iter_mut().zip(y).zip(dy) {
                    *o = *dy - y.exp() * total;
                }
            }
        });
    }
}

impl Op for LogSoftmaxGrad {
    fn name(&self) -> &'static str {
        "log_softmax_grad"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        SoftmaxGrad.infer(ins)
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("second derivatives are not built"); 2])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        4 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let binds = vec![Bind::In(0), Bind::In(1), Bind::Out(0)];
        vec![row_launch(Kernel::file("softmax", "log_softmax_grad"), call.ins[0], binds)]
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let shapes: [(&str, &[usize]); 5] = [
        ("one", &[1, 1]),
        ("rows3_cols7", &[3, 7]),
        ("rows3_cols257", &[3, 257]),
        ("rows2x5_cols13", &[2, 5, 13]),
        ("rows300_cols3", &[300, 3]),
    ];
    for (name, dims) in shapes {
        let ins = vec![(TensorType::f32(Shape::new(dims)), Domain::Normal)];
        cases.push(Case::op(name, Softmax, ins.clone()));
        cases.push(Case::op(format!("log_{name}"), LogSoftmax, ins));
    }
    cases
}
