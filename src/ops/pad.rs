//! Padding along an axis: with one value, or with elements of the operand. Several axes are padded
//! one after another.

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType};
use crate::ops::concat::Slice;
use crate::ops::cpu::par_rows;
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Port, Real, Storage,
};

/// What stands outside of the operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PadMode {
    /// One value.
    Constant(f32),
    /// The elements mirrored at the first and at the last one, which are not repeated.
    Reflect,
    /// The first and the last element.
    Replicate,
    /// The elements of the other end.
    Circular,
}

/// `before + extent + after` elements of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Pad {
    /// The axis.
    pub axis: usize,
    /// Elements before the operand's first.
    pub before: usize,
    /// Elements after its last.
    pub after: usize,
    /// What they are.
    pub mode: PadMode,
}

/// Operand: the cotangent of a [`Pad`] that repeats elements; each element's cotangents are added.
#[derive(Clone, Debug, PartialEq)]
pub struct PadGrad(Pad);

/// A tensor as `outer` lines of `len` runs of `inner` elements, the axis being the lines'.
struct Lines {
    outer: usize,
    len: usize,
    inner: usize,
}

impl Pad {
    fn lines(&self, unpadded: &Shape) -> Lines {
        let dims = unpadded.dims();
        Lines {
            outer: dims[..self.axis].iter().product(),
            len: dims[self.axis],
            inner: dims[self.axis + 1..].iter().product(),
        }
    }

    fn total(&self, len: usize) -> usize {
        self.before + len + self.after
    }

    /// The operand's index that stands at `at` of the result; none for the constant.
    fn source(&self, at: usize, len: usize) -> Option<usize> {
        let last = len as isize - 1;
        let i = at as isize - self.before as isize;
        let outside = i < 0 || i > last;
        let i = match self.mode {
            _ if !outside => i,
            PadMode::Constant(_) => return None,
            PadMode::Reflect if i < 0 => -i,
            PadMode::Reflect => 2 * last - i,
            PadMode::Replicate => i.clamp(0, last),
            PadMode::Circular => (i + len as isize) % len as isize,
        };
        Some(i as usize)
    }

    /// Indices of the result that lie outside of the operand, in order.
    fn edges(&self, len: usize) -> impl Iterator<Item = usize> {
        (0..self.before).chain(self.before + len..self.total(len))
    }

    fn with_extent(&self, shape: &Shape, extent: usize) -> TensorType {
        let mut dims = shape.dims().to_vec();
        dims[self.axis] = extent;
        TensorType::f32(Shape::new(dims))
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let Lines { len, inner, .. } = self.lines(&call.in_types[0].shape);
        let x = call.f(0);
        let size = len * inner;
        par_rows(call.outs[0], self.total(len) * inner, 1, |line, out| {
            let x = &x[line * size..(line + 1) * size];
            out[self.before * inner..][..size].copy_from_slice(x);
            for at in self.edges(len) {
                let out = &mut out[at * inner..][..inner];
                match (self.source(at, len), self.mode) {
                    (Some(i), _) => out.copy_from_slice(&x[i * inner..][..inner]),
                    (None, PadMode::Constant(value)) => out.fill(R::of(f64::from(value))),
                    (None, _) => unreachable!("only the constant has no source"),
                }
            }
        });
    }

    fn launch(&self, entry: &'static str, unpadded: &Shape, call: &GpuCall<'_>) -> Vec<Launch> {
        let Lines { outer, len, inner } = self.lines(unpadded);
        let (mode, value) = match self.mode {
            PadMode::Constant(value) => (0, value),
            PadMode::Reflect => (1, 0.0),
            PadMode::Replicate => (2, 0.0),
            PadMode::Circular => (3, 0.0),
        };
        let words = [outer, len, inner, self.before, self.total(len), mode];
        let mut dims: Vec<u32> = words.iter().map(|word| *word as u32).collect();
        dims.push(value.to_bits());
        let binds = vec![Bind::In(0), Bind::Out(0)];
        let kernel =
            Kernel::file("pad", entry).stored("input", call.ins[0]).stored("out", call.outs[0]);
        vec![Launch::flat(kernel, dims, binds, call.outs[0].shape.elements(), 256)]
    }
}

impl Op for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let shape = &ins[0].shape;
        let Some(&len) = shape.dims().get(self.axis) else {
            return Err(format!("{shape} has no axis {}", self.axis));
        };
        let most = match self.mode {
            PadMode::Constant(_) | PadMode::Replicate => usize::MAX,
            PadMode::Reflect => len - 1,
            PadMode::Circular => len,
        };
        let widest = self.before.max(self.after);
        if widest > most {
            let mode = if self.mode == PadMode::Reflect { "reflect" } else { "circular" };
            return Err(format!(
                "`{mode}` pads an axis of {len} by at most {most} on each side, but {widest} are \
                 asked for"
            ));
        }
        Ok(vec![self.with_extent(shape, self.total(len))])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let len = graph.shape(call.ins[0]).dims()[self.axis];
        let d_out = call.d_out();
        let d = match self.mode {
            PadMode::Constant(_) => {
                graph.op(Slice { axis: self.axis, start: self.before, len }, &[d_out])?
            }
            _ => graph.op(PadGrad(self.clone()), &[d_out])?,
        };
        Ok(vec![Grad::Flows(d)])
    }

    fn flops(&self, _ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        0
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        self.launch("pad", &call.ins[0].shape, call)
    }
}

impl PadGrad {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let Lines { len, inner, .. } = self.0.lines(&call.out_types[0].shape);
        let dy = call.f(0);
        let padded = self.0.total(len) * inner;
        par_rows(call.outs[0], len * inner, 1, |line, dx| {
            let dy = &dy[line * padded..(line + 1) * padded];
            dx.copy_from_slice(&dy[self.0.before * inner..][..len * inner]);
            for at in self.0.edges(len) {
                let i = self.0.source(at, len).unwrap_or_default();
                let dy = &dy[at * inner..][..inner];
                dx[i * inner..][..inner].iter_mut().zip(dy).for_each(|(o, d)| *o += *d);
            }
        });
    }
}

impl Op for PadGrad {
    fn name(&self) -> &'static str {
        "pad_grad"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let shape = &ins[0].shape;
        let len = shape.dims()[self.0.axis] - self.0.before - self.0.after;
        Ok(vec![self.0.with_extent(shape, len)])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Flows(graph.op(self.0.clone(), &[call.d_out()])?)])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        self.0.launch("pad_grad", &call.outs[0].shape, call)
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: String, dims: &[usize], axis: usize, sides: [usize; 2], mode: PadMode| {
        let [before, after] = sides;
        let ins = vec![(TensorType::f32(Shape::new(dims)), Domain::Normal)];
        Case::op(name, Pad { axis, before, after, mode }, ins)
    };
    let modes = [
        ("zeros", PadMode::Constant(0.0)),
        ("constant", PadMode::Constant(-1.5)),
        ("reflect", PadMode::Reflect),
        ("replicate", PadMode::Replicate),
        ("circular", PadMode::Circular),
    ];
    let mut cases = Vec::new();
    for (word, mode) in modes {
        let most = if mode == PadMode::Reflect { 0 } else { 1 };
        cases.push(case(format!("{word}_one"), &[1], 0, [most, most], mode));
        cases.push(case(format!("{word}_last"), &[3, 7], 1, [2, 5], mode));
        cases.push(case(format!("{word}_middle"), &[2, 5, 3], 1, [4, 1], mode));
        cases.push(case(format!("{word}_first"), &[4, 67], 0, [0, 3], mode));
    }
    cases
}
