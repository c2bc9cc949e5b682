//! Joining along an axis, and its inverse, cutting.

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType, ValueId};
use crate::ops::pad::{Pad, PadMode};
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Port, Real, Storage,
};

/// Joins float tensors that differ only in `axis`.
#[derive(Clone, Debug, PartialEq)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
}

/// The elements `start..start + len` of `axis`.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// The axis.
    pub axis: usize,
    /// First index.
    pub start: usize,
    /// Number of indices.
    pub len: usize,
}

/// Joins along `axis`.
///
/// # Errors
/// When the shapes differ elsewhere.
pub fn concat(graph: &mut Graph, values: &[ValueId], axis: usize) -> Result<ValueId, ShapeError> {
    graph.op(Concat { axis }, values)
}

/// `(outer, row)`: a tensor as rows that hold the axis and all that follows it.
fn rows(shape: &Shape, axis: usize) -> (usize, usize) {
    (shape.dims()[..axis].iter().product(), shape.dims()[axis..].iter().product())
}

fn with_axis(shape: &Shape, axis: usize, extent: usize) -> TensorType {
    let mut dims = shape.dims().to_vec();
    dims[axis] = extent;
    TensorType::f32(Shape::new(dims))
}

/// A copy of `len` elements of each of `outer` rows, from column `from` of rows of `in_row` to
/// column `to` of rows of `out_row`.
struct Copy {
    outer: usize,
    in_row: usize,
    out_row: usize,
    from: usize,
    to: usize,
    len: usize,
}

impl Copy {
    fn run<R: Real>(&self, input: &[R], out: &mut [R]) {
        for row in 0..self.outer {
            let (i, o) = (row * self.in_row + self.from, row * self.out_row + self.to);
            out[o..o + self.len].copy_from_slice(&input[i..i + self.len]);
        }
    }

    fn launch(&self, input: usize, call: &GpuCall<'_>) -> Launch {
        let dims = [self.outer, self.in_row, self.out_row, self.from, self.to, self.len];
        let dims = dims.iter().map(|d| *d as u32).collect();
        Launch::flat(
            moved("copy", call, input),
            dims,
            vec![Bind::In(input), Bind::Out(0)],
            self.outer * self.len,
            256,
        )
    }
}

/// The kernel that moves elements of an operand to the result.
fn moved(entry: &'static str, call: &GpuCall<'_>, input: usize) -> Kernel {
    Kernel::file("concat", entry).stored("input", call.ins[input]).stored("out", call.outs[0])
}

impl Concat {
    fn copies(&self, ins: &[&TensorType], out: &TensorType) -> Vec<Copy> {
        let (outer, out_row) = rows(&out.shape, self.axis);
        let mut to = 0;
        let mut copies = Vec::new();
        for ty in ins {
            let (_, in_row) = rows(&ty.shape, self.axis);
            copies.push(Copy { outer, in_row, out_row, from: 0, to, len: in_row });
            to += in_row;
        }
        copies
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        for (index, copy) in self.copies(call.in_types, call.out_types[0]).iter().enumerate() {
            copy.run(call.f(index), call.outs[0]);
        }
    }
}

impl Op for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let first = &ins.first().ok_or("nothing to join")?.shape;
        if self.axis >= first.rank() {
            return Err(format!("{first} has no axis {}", self.axis));
        }
        let mut total = 0;
        for ty in ins {
            if ty.shape.rank() != first.rank()
                || with_axis(&ty.shape, self.axis, 1) != with_axis(first, self.axis, 1)
            {
                return Err(format!(
                    "cannot join {first} and {} along axis {}",
                    ty.shape, self.axis
                ));
            }
            total += ty.shape.dims()[self.axis];
        }
        Ok(vec![with_axis(first, self.axis, total)])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let d_out = call.d_out();
        let mut start = 0;
        let mut grads = Vec::new();
        for input in call.ins {
            let len = graph.shape(*input).dims()[self.axis];
            let slice = Slice { axis: self.axis, start, len };
            grads.push(Grad::Flows(graph.op(slice, &[d_out])?));
            start += len;
        }
        Ok(grads)
    }

    fn flops(&self, _ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        0
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let copies = self.copies(call.ins, call.outs[0]);
        copies.iter().enumerate().map(|(index, copy)| copy.launch(index, call)).collect()
    }
}

impl Slice {
    fn copy(&self, input: &TensorType) -> Copy {
        let (outer, in_row) = rows(&input.shape, self.axis);
        let step = in_row / input.shape.dims()[self.axis];
        let len = self.len * step;
        Copy { outer, in_row, out_row: len, from: self.start * step, to: 0, len }
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        self.copy(call.in_types[0]).run(call.f(0), call.outs[0]);
    }
}

impl Op for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let shape = &ins[0].shape;
        if self.axis >= shape.rank()
            || self.start + self.len > shape.dims()[self.axis]
            || self.len == 0
        {
            return Err(format!(
                "cannot cut {}..{} of axis {} from {shape}",
                self.start,
                self.start + self.len,
                self.axis
            ));
        }
        Ok(vec![with_axis(shape, self.axis, self.len)])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let total = graph.shape(call.ins[0]).dims()[self.axis];
        let after = total - self.start - self.len;
        let mode = PadMode::Constant(0.0);
        let pad = Pad { axis: self.axis, before: self.start, after, mode };
        Ok(vec![Grad::Flows(graph.op(pad, &[call.d_out()])?)])
    }

    fn flops(&self, _ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        0
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        vec![self.copy(call.ins[0]).launch(0, call)]
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let f = |dims: &[usize]| (TensorType::f32(Shape::new(dims)), Domain::Normal);
    vec![
        Case::op("one", Concat { axis: 0 }, vec![f(&[1])]),
        Case::op("rows", Concat { axis: 0 }, vec![f(&[2, 3]), f(&[5, 3])]),
        Case::op("last_of_3", Concat { axis: 1 }, vec![f(&[3, 2]), f(&[3, 1]), f(&[3, 7])]),
        Case::op("channels", Concat { axis: 1 }, vec![f(&[2, 3, 4, 5]), f(&[2, 2, 4, 5])]),
        Case::op("wide", Concat { axis: 1 }, vec![f(&[5, 257]), f(&[5, 300])]),
        Case::op("slice_middle", Slice { axis: 1, start: 2, len: 3 }, vec![f(&[3, 7, 2])]),
        Case::op("slice_all", Slice { axis: 0, start: 0, len: 5 }, vec![f(&[5])]),
    ]
}
