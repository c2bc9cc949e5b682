//! The logarithm of summed exponentials along one axis, y = log Σ eˣ, without overflow: the
//! largest element is taken out first. Its gradient is dx = dy·e^(x − y).

use crate::cpu_by_eval;
use crate::graph::{Graph, ShapeError, TensorType, ValueId};
use crate::ops::cpu::par_rows;
use crate::ops::launch::fold_groups;
use crate::ops::map::{self, Code, Unary};
use crate::ops::{Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Real};

/// Operand `[outer, terms, inner]`; result `[outer, 1, inner]`.
#[derive(Clone, Debug, PartialEq)]
pub struct LogSumExp;

/// log softmax along the middle axis of `[outer, classes, inner]`: x − log Σ eˣ.
///
/// # Errors
/// When the value has another rank.
pub fn log_softmax(graph: &mut Graph, x: ValueId) -> Result<ValueId, ShapeError> {
    let total = graph.op(LogSumExp, &[x])?;
    map::binary(graph, map::Binary::Sub, x, total)
}

impl LogSumExp {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let x = call.f(0);
        let (terms, inner) = (call.in_dims(0)[1], call.in_dims(0)[2]);
        let rows = (16_384 / terms.max(1)).max(1);
        par_rows(call.outs[0], 1, rows, |first, out| {
            for (place, out) in out.iter_mut().enumerate() {
                let (outer, at) = ((first + place) / inner, (first + place) % inner);
                let x = &x[outer * terms * inner + at..];
                let term = |k: usize| x[k * inner];
                let top = (0..terms).map(term).fold(R::NEG_INFINITY, R::max);
                let total = crate::ops::cpu::fold_lanes(terms, |k| (term(k) - top).exp());
                *out = top + total.ln();
            }
        });
    }
}

impl Op for LogSumExp {
    fn name(&self) -> &'static str {
        "log_sum_exp"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match *ins[0].shape.dims() {
            [outer, _, inner] => Ok(vec![TensorType::f32([outer, 1, inner])]),
            _ => Err(format!("expected [outer, terms, inner], got {}", ins[0])),
        }
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let shape = graph.shape(call.ins[0]).clone();
        let code = Code::of(|code| {
            let (x, y, d) = (code.input(0), code.input(1), code.input(2));
            let below = code.sub(x, y);
            let share = code.unary(Unary::Exp, below);
            code.mul(share, d)
        });
        let operands = [call.ins[0], call.outs[0], call.d_out()];
        Ok(vec![Grad::Flows(map::apply(graph, code, &operands, shape)?)])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        3 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let d = call.ins[0].shape.dims();
        let dims = d.iter().map(|d| *d as u32).collect();
        let binds = vec![Bind::In(0), Bind::Out(0)];
        let places = d[0] * d[2];
        if d[2] == 1 {
            let kernel = Kernel::file("log_sum_exp", "rows");
            return vec![Launch { kernel, dims, binds, grid: fold_groups(places) }];
        }
        vec![Launch::flat(Kernel::file("log_sum_exp", "columns"), dims, binds, places, 256)]
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: &'static str, dims: [usize; 3]| {
        Case::op(name, LogSumExp, vec![(TensorType::f32(dims), Domain::Normal)])
    };
    let far = (TensorType::f32([3, 7, 5]), Domain::Uniform(-300.0, 300.0));
    vec![
        case("one", [1, 1, 1]),
        case("rows", [7, 13, 1]),
        case("long_row", [3, 1031, 1]),
        case("columns", [1, 5, 257]),
        case("images", [2, 3, 35]),
        Case::graph("log_softmax", vec![far], |graph, ins| Ok(vec![log_softmax(graph, ins[0])?])),
    ]
}
