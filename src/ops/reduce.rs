//! Sums over axes.

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType, ValueId};
use crate::ops::cpu::{self, par_rows};
use crate::ops::map;
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Port, Real, ScratchCall,
    Storage, Target,
};

/// Sums over neighbouring axes: the operand is seen as `[outer, reduce, inner]`, the result is
/// `[outer, inner]`, under `out`'s shape.
#[derive(Clone, Debug, PartialEq)]
pub struct ReduceSum {
    /// Product of the axes before.
    pub outer: usize,
    /// Product of the axes summed.
    pub reduce: usize,
    /// Product of the axes after.
    pub inner: usize,
    /// Shape of the result.
    pub out: Shape,
}

/// Rows that one workgroup of the column kernel sums before a second pass adds the parts.
const CHUNK: usize = 256;

/// Sums `value` over the axes along which `shape` was repeated to fill it, so that the result has
/// `shape`: the gradient of broadcasting.
///
/// # Errors
/// When `shape` does not broadcast to the value's shape.
pub fn sum_to(graph: &mut Graph, value: ValueId, shape: &Shape) -> Result<ValueId, ShapeError> {
    let from = graph.shape(value).clone();
    let lead = from.rank() - shape.rank();
    let axes: Vec<usize> = (0..from.rank())
        .filter(|axis| *axis < lead || (shape.dims()[axis - lead] == 1 && from.dims()[*axis] != 1))
        .collect();
    let sum = sum(graph, value, &axes)?;
    graph.reshape(sum, shape.clone())
}

/// Sums over `axes`, which stay with extent 1.
///
/// # Errors
/// When an axis does not exist.
pub fn sum(graph: &mut Graph, value: ValueId, axes: &[usize]) -> Result<ValueId, ShapeError> {
    let long = axes.iter().copied().filter(|axis| graph.shape(value).dims()[*axis] != 1).collect();
    over_runs(graph, value, long, |[outer, reduce, inner], out| ReduceSum {
        outer,
        reduce,
        inner,
        out,
    })
}

/// Applies an op to each run of neighbouring axes, the last one first: what is reduced early is never
/// read again. The op is made from the extents before, of and after the run, and its result's shape.
pub(super) fn over_runs<O: Op + 'static>(
    graph: &mut Graph,
    value: ValueId,
    mut axes: Vec<usize>,
    op: impl Fn([usize; 3], Shape) -> O,
) -> Result<ValueId, ShapeError> {
    let mut at = value;
    axes.sort_unstable();
    while let Some(last) = axes.pop() {
        let mut first = last;
        while axes.last().is_some_and(|axis| axis + 1 == first) {
            first -= 1;
            axes.pop();
        }
        let dims = graph.shape(at).dims();
        let product = |range: std::ops::Range<usize>| dims[range].iter().product::<usize>();
        let mut out = dims.to_vec();
        out[first..=last].fill(1);
        let extents = [product(0..first), product(first..last + 1), product(last + 1..dims.len())];
        at = graph.op(op(extents, Shape::new(out)), &[at])?;
    }
    Ok(at)
}

/// The mean over `axes`, which stay with extent 1.
///
/// # Errors
/// When an axis does not exist.
pub fn mean(graph: &mut Graph, value: ValueId, axes: &[usize]) -> Result<ValueId, ShapeError> {
    let count: usize = axes.iter().map(|axis| graph.shape(value).dims()[*axis]).product();
    let total = sum(graph, value, axes)?;
    map::scale(graph, total, 1.0 / count as f32)
}

impl ReduceSum {
    /// Parts that the column kernel splits the summed axis into.
    fn parts(&self) -> usize {
        if self.inner == 1 { 1 } else { self.reduce.div_ceil(CHUNK) }
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let x = call.f(0);
        let (reduce, inner) = (self.reduce, self.inner);
        if inner == 1 {
            par_rows(call.outs[0], 1, 64, |first, out| {
                for (row, out) in out.iter_mut().enumerate() {
                    let start = (first + row) * reduce;
                    *out = cpu::sum(&x[start..start + reduce]);
                }
            });
            return;
        }
        // Column sums: pieces of CHUNK rows into scratch, then the pieces in order.
        let parts = self.parts();
        let add_rows = |out: &mut [R], values: &[R]| {
            for row in values.chunks_exact(inner) {
                out.iter_mut().zip(row).for_each(|(o, v)| *o += *v);
            }
        };
        par_rows(&mut call.scratch[..self.outer * parts * inner], inner, 1, |piece, out| {
            let (outer, part) = (piece / parts, piece % parts);
            let rows = CHUNK.min(reduce - part * CHUNK);
            let start = (outer * reduce + part * CHUNK) * inner;
            out.fill(R::ZERO);
            add_rows(out, &x[start..start + rows * inner]);
        });
        let partial = &*call.scratch;
        par_rows(call.outs[0], inner, 1, |outer, out| {
            out.fill(R::ZERO);
            add_rows(out, &partial[outer * parts * inner..(outer + 1) * parts * inner]);
        });
    }
}

impl Op for ReduceSum {
    fn name(&self) -> &'static str {
        "reduce"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let elements = ins[0].shape.elements();
        if elements != self.outer * self.reduce * self.inner
            || self.out.elements() != self.outer * self.inner
        {
            return Err(format!(
                "{} is not [{}, {}, {}]",
                ins[0].shape, self.outer, self.reduce, self.inner
            ));
        }
        Ok(vec![TensorType::f32(self.out.clone())])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let shape = graph.shape(call.ins[0]).clone();
        let code = map::Code::of(|code| code.input(0));
        let d = graph.reshape(call.d_out(), [self.outer, 1, self.inner])?;
        let full = map::apply(graph, code, &[d], [self.outer, self.reduce, self.inner])?;
        Ok(vec![Grad::Flows(graph.reshape(full, shape)?)])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(0) => Storage::Either,
            _ => Storage::Single,
        }
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let word = |n: usize| n as u32;
        if self.inner == 1 {
            let dims = vec![word(self.outer), word(self.reduce)];
            let grid = crate::ops::launch::fold_groups(self.outer);
            return vec![Launch {
                kernel: Kernel::file("reduce", "rows").stored("x", call.ins[0]),
                dims,
                binds: vec![Bind::In(0), Bind::Out(0)],
                grid,
            }];
        }
        let parts = self.parts();
        let columns = self.inner.div_ceil(64);
        let launch = |from: Bind, to: Bind, reduce: usize, chunk: usize, parts: usize| {
            let dims =
                vec![word(self.outer), word(reduce), word(self.inner), word(chunk), word(parts)];
            let grid = crate::ops::launch::fold_groups(self.outer * parts * columns);
            let kernel = match from {
                Bind::In(_) => Kernel::file("reduce", "columns").stored("x", call.ins[0]),
                _ => Kernel::file("reduce", "columns"),
            };
            Launch { kernel, dims, binds: vec![from, to], grid }
        };
        if parts == 1 {
            return vec![launch(Bind::In(0), Bind::Out(0), self.reduce, self.reduce, 1)];
        }
        vec![
            launch(Bind::In(0), Bind::Scratch, self.reduce, CHUNK, parts),
            launch(Bind::Scratch, Bind::Out(0), parts, parts, 1),
        ]
    }

    fn scratch(&self, call: &ScratchCall<'_>) -> usize {
        let parts = self.parts();
        match call.target {
            Target::Gpu(_) if parts == 1 => 0,
            Target::Cpu if self.inner == 1 => 0,
            _ => self.outer * parts * self.inner,
        }
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: &'static str, dims: &[usize], axes: &'static [usize]| {
        let ins = vec![(TensorType::f32(Shape::new(dims)), Domain::Normal)];
        Case::graph(name, ins, move |graph, ins| Ok(vec![sum(graph, ins[0], axes)?]))
    };
    vec![
        case("one", &[1, 1], &[1]),
        case("rows", &[7, 13], &[1]),
        case("columns", &[13, 7], &[0]),
        case("all", &[3, 5, 7], &[0, 1, 2]),
        case("middle", &[3, 5, 7], &[1]),
        case("outer_and_inner", &[3, 5, 7], &[0, 2]),
        case("long_row", &[2, 1031], &[1]),
        case("many_rows", &[517, 3], &[1]),
        case("tall_columns", &[1025, 65], &[0]),
        case("wide_columns", &[3, 257], &[0]),
        case("channels", &[2, 3, 11, 5], &[0, 2, 3]),
        Case::graph("mean", vec![(TensorType::f32([4, 9]), Domain::Normal)], |graph, ins| {
            Ok(vec![mean(graph, ins[0], &[1])?])
        }),
    ]
}
