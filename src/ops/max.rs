//! The largest element over neighbouring axes.

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType, ValueId};
use crate::ops::cpu::par_rows;
use crate::ops::launch::fold_groups;
use crate::ops::reduce::over_runs;
use crate::ops::{Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Real};

/// The operand is seen as `[outer, reduce, inner]`; results, both under `out`'s shape, are the
/// largest element over the middle and its index there (as a number), the first of several. A NaN
/// is the largest.
#[derive(Clone, Debug, PartialEq)]
pub struct Max {
    /// Product of the axes before.
    pub outer: usize,
    /// Product of the axes that are searched.
    pub reduce: usize,
    /// Product of the axes after.
    pub inner: usize,
    /// Shape of the results.
    pub out: Shape,
}

/// Operands: the index of the largest element, and the cotangent, which goes there; the result has
/// shape `x`.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxGrad {
    max: Max,
    x: Shape,
}

/// Indices are kept as f32, which is exact below this.
const LONGEST: usize = 1 << 24;

/// The largest element over `axes`, which stay with extent 1.
///
/// # Errors
/// When an axis is too long.
pub fn max(graph: &mut Graph, value: ValueId, axes: &[usize]) -> Result<ValueId, ShapeError> {
    over_runs(graph, value, axes.to_vec(), |[outer, reduce, inner], out| Max {
        outer,
        reduce,
        inner,
        out,
    })
}

impl Max {
    fn dims(&self) -> Vec<u32> {
        [self.outer, self.reduce, self.inner].map(|d| d as u32).to_vec()
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let x = call.f(0);
        let (reduce, inner) = (self.reduce, self.inner);
        let [top, index] = call.outs else { unreachable!("two results") };
        let at = |o: usize, r: usize| (o / inner * reduce + r) * inner + o % inner;
        let rows = (16_384 / reduce).max(1);
        par_rows(index, 1, rows, |first, out| {
            for (k, out) in out.iter_mut().enumerate() {
                let o = first + k;
                let mut best = 0;
                for r in 1..reduce {
                    let (new, old) = (x[at(o, r)], x[at(o, best)]);
                    if new > old || (new.to_f64().is_nan() && !old.to_f64().is_nan()) {
                        best = r;
                    }
                }
                *out = R::of(best as f64);
            }
        });
        for (o, (top, index)) in top.iter_mut().zip(index.iter()).enumerate() {
            *top = x[at(o, index.to_f64() as usize)];
        }
    }
}

impl Op for Max {
    fn name(&self) -> &'static str {
        "max"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let elements = ins[0].shape.elements();
        if elements != self.outer * self.reduce * self.inner
            || self.out.elements() != self.outer * self.inner
        {
            let Max { outer, reduce, inner, .. } = self;
            return Err(format!("{} is not [{outer}, {reduce}, {inner}]", ins[0].shape));
        }
        if self.reduce > LONGEST {
            return Err(format!("finds the largest of {LONGEST} elements, got {}", self.reduce));
        }
        Ok(vec![TensorType::f32(self.out.clone()); 2])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let Some(dy) = call.d_outs[0] else { return Ok(vec![Grad::Stops("an index")]) };
        let op = MaxGrad { max: self.clone(), x: graph.shape(call.ins[0]).clone() };
        Ok(vec![Grad::Flows(graph.op(op, &[call.outs[1], dy])?)])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let (dims, binds) = (self.dims(), vec![Bind::In(0), Bind::Out(0), Bind::Out(1)]);
        if self.inner == 1 {
            let kernel = Kernel::file("max", "rows");
            return vec![Launch { kernel, dims, binds, grid: fold_groups(self.outer) }];
        }
        let threads = call.outs[0].shape.elements();
        vec![Launch::flat(Kernel::file("max", "columns"), dims, binds, threads, 256)]
    }
}

impl MaxGrad {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (index, dy) = (call.f(0), call.f(1));
        let (reduce, inner) = (self.max.reduce, self.max.inner);
        par_rows(call.outs[0], inner, (16_384 / inner).max(1), |first, out| {
            for (row, out) in out.chunks_exact_mut(inner).enumerate() {
                let (o, r) = ((first + row) / reduce, R::of(((first + row) % reduce) as f64));
                let at = o * inner..(o + 1) * inner;
                for ((out, index), dy) in out.iter_mut().zip(&index[at.clone()]).zip(&dy[at]) {
                    *out = if *index == r { *dy } else { R::ZERO };
                }
            }
        });
    }
}

impl Op for MaxGrad {
    fn name(&self) -> &'static str {
        "max_grad"
    }

    fn infer(&self, _ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![TensorType::f32(self.x.clone())])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("second derivatives are not built"); 2])
    }

    fn flops(&self, _ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        outs[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let binds = vec![Bind::Out(0), Bind::In(1), Bind::In(0)];
        let threads = call.outs[0].shape.elements();
        vec![Launch::flat(Kernel::file("max", "grad"), self.max.dims(), binds, threads, 256)]
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: &'static str, dims: &[usize], axes: &'static [usize]| {
        let ins = vec![(TensorType::f32(Shape::new(dims)), Domain::Distinct)];
        Case::graph(name, ins, move |graph, ins| Ok(vec![max(graph, ins[0], axes)?]))
    };
    let special = vec![(TensorType::f32([3, 7]), Domain::Special)];
    vec![
        case("one", &[1, 1], &[1]),
        case("rows", &[7, 13], &[1]),
        case("columns", &[13, 7], &[0]),
        case("all", &[3, 5, 7], &[0, 1, 2]),
        case("middle", &[3, 5, 7], &[1]),
        case("outer_and_inner", &[3, 5, 7], &[0, 2]),
        case("long_row", &[2, 257], &[1]),
        case("tall_columns", &[259, 65], &[0]),
        case("images", &[2, 3, 11, 5], &[2, 3]),
        Case {
            differentiable: false,
            ..Case::graph("special", special, |graph, ins| Ok(vec![max(graph, ins[0], &[1])?]))
        },
    ]
}
