//! Integers as floats.

use crate::cpu_by_eval;
use crate::graph::{DType, Graph, Shape, ShapeError, TensorType};
use crate::ops::cpu::par_rows;
use crate::ops::{Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Real};

/// The floats that are nearest to the i32 elements of one operand; exact up to 2²⁴.
#[derive(Clone, Debug, PartialEq)]
pub struct ToFloat;

impl ToFloat {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let x = call.i(0);
        par_rows(call.outs[0], 1, 16_384, |first, out| {
            for (y, x) in out.iter_mut().zip(&x[first..]) {
                *y = R::of(f64::from(*x));
            }
        });
    }
}

impl Op for ToFloat {
    fn name(&self) -> &'static str {
        "to_float"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        if ins[0].dtype != DType::I32 {
            return Err(format!("expected i32, got {}", ins[0]));
        }
        Ok(vec![TensorType::f32(ins[0].shape.clone())])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("its operand holds integers")])
    }

    fn flops(&self, _ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        0
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let count = call.outs[0].shape.elements();
        let binds = vec![Bind::In(0), Bind::Out(0)];
        vec![Launch::flat(
            Kernel::file("to_float", "to_float"),
            vec![count as u32],
            binds,
            count,
            256,
        )]
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, dims: &[usize]| {
        let ins = vec![(TensorType::i32(Shape::new(dims)), Domain::Index(1000))];
        Case { differentiable: false, ..Case::op(name, ToFloat, ins) }
    };
    vec![case("one", &[1]), case("rows3_cols257", &[3, 257])]
}
