//! Adds a micro-batch's gradients to the window's: the first of a window overwrites.

use crate::cpu_by_eval;
use crate::graph::{Graph, ShapeError, TensorType};
use crate::ops::cpu::par_rows;
use crate::ops::{Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Real};

/// Operands: the sums (in place) and the new gradients, of equal size.
#[derive(Clone, Debug, PartialEq)]
pub struct Accumulate;

impl Accumulate {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let g = call.f(1);
        let fresh = call.globals.micro == 0;
        par_rows(call.outs[0], 1, 1 << 16, |first, sums| {
            let g = &g[first..first + sums.len()];
            for (sum, g) in sums.iter_mut().zip(g) {
                *sum = if fresh { *g } else { *sum + *g };
            }
        });
    }
}

impl Op for Accumulate {
    fn name(&self) -> &'static str {
        "accumulate"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        if ins[0] != ins[1] {
            return Err(format!("sums of {} and gradients of {}", ins[0], ins[1]));
        }
        Ok(vec![ins[0].clone()])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("an update is not differentiated"); 2])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let n = call.ins[0].shape.elements();
        let binds = vec![Bind::Out(0), Bind::In(1)];
        vec![Launch::flat(Kernel::file("accumulate", "accumulate"), vec![n as u32], binds, n, 256)]
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &[(0, 0)]
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let f = |n: usize| (TensorType::f32([n]), Domain::Normal);
    vec![
        Case::update("one", Accumulate, vec![f(1), f(1)]),
        Case::update("n259", Accumulate, vec![f(259), f(259)]),
    ]
}
