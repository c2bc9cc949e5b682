//! Class indices as vectors that are 1 at the class and 0 elsewhere.

use crate::cpu_by_eval;
use crate::graph::{DType, Graph, ShapeError, TensorType};
use crate::ops::cpu::par_rows;
use crate::ops::{Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Real};

/// Operand: indices i32 `[outer, inner]`; result `[outer, classes, inner]`. The ignored index gives
/// zeros; one that is no class gives NaN.
#[derive(Clone, Debug, PartialEq)]
pub struct OneHot {
    /// Number of classes.
    pub classes: usize,
    /// The index that stands for no class.
    pub ignore_index: i32,
}

impl OneHot {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let ids = call.i(0);
        let inner = call.in_dims(0)[1];
        let rows = (16_384 / inner.max(1)).max(1);
        par_rows(call.outs[0], inner, rows, |first, out| {
            for (row, out) in out.chunks_exact_mut(inner).enumerate() {
                let (outer, class) = ((first + row) / self.classes, (first + row) % self.classes);
                let ids = &ids[outer * inner..(outer + 1) * inner];
                for (o, id) in out.iter_mut().zip(ids) {
                    let known = usize::try_from(*id).is_ok_and(|id| id < self.classes);
                    *o = match (known, *id == self.ignore_index) {
                        (_, true) => R::ZERO,
                        (true, _) => R::of(f64::from(u8::from(*id as usize == class))),
                        (false, _) => R::of(f64::NAN),
                    };
                }
            }
        });
    }
}

impl Op for OneHot {
    fn name(&self) -> &'static str {
        "one_hot"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let [outer, inner] = *ins[0].shape.dims() else {
            return Err(format!("expected indices [outer, inner], got {}", ins[0]));
        };
        if ins[0].dtype != DType::I32 {
            return Err(format!("expected i32 indices, got {}", ins[0]));
        }
        Ok(vec![TensorType::f32([outer, self.classes, inner])])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("class indices are integers")])
    }

    fn flops(&self, _ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        0
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let n = call.outs[0].shape.elements();
        let inner = call.ins[0].shape.last();
        let dims = vec![self.classes as u32, inner as u32, n as u32, self.ignore_index as u32];
        let binds = vec![Bind::In(0), Bind::Out(0)];
        vec![Launch::flat(Kernel::file("one_hot", "one_hot"), dims, binds, n, 256)]
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: &'static str, dims: [usize; 2], classes: usize, ids: Domain| {
        let op = OneHot { classes, ignore_index: -100 };
        let ins = vec![(TensorType::i32(dims), ids)];
        Case { differentiable: false, ..Case::op(name, op, ins) }
    };
    vec![
        case("one", [1, 1], 1, Domain::Index(1)),
        case("rows", [7, 1], 5, Domain::Index(5)),
        case("ignored", [3, 11], 13, Domain::IndexOr(13, -100)),
        case("no_class", [3, 11], 13, Domain::IndexOr(13, 40)),
        case("images", [2, 257], 3, Domain::Index(3)),
    ]
}
