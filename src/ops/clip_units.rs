//! Adaptive gradient clipping (Brock et al. 2021): the gradient of each unit is scaled down to a
//! share of the norm of the unit's weights.

use crate::cpu_by_eval;
use crate::graph::{Graph, ShapeError, TensorType};
use crate::ops::cpu::{dot, par_rows};
use crate::ops::launch::fold_groups;
use crate::ops::{Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Real};

/// Operands: all gradients (sums over the window, in place), all parameters, the statistics. A
/// unit's mean gradient G = g/weight with ‖G‖ > m = factor · max(‖W‖, ε) becomes m · G/‖G‖.
#[derive(Clone, Debug, PartialEq)]
pub struct ClipUnits {
    /// The largest norm of a gradient, as a share of the weights'.
    pub factor: f32,
    /// The least norm of weights that is reckoned with.
    pub eps: f32,
    /// Which statistic is the weight.
    pub weight_index: usize,
    /// First element, units, and elements of a unit, of each parameter.
    pub tensors: Vec<(usize, usize, usize)>,
}

impl ClipUnits {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (params, weight) = (call.f(1), call.f(2)[self.weight_index]);
        let (factor, eps) = (R::of(f64::from(self.factor)), R::of(f64::from(self.eps)));
        if weight == R::ZERO {
            return;
        }
        for &(offset, units, len) in &self.tensors {
            let params = &params[offset..offset + units * len];
            let grads = &mut call.outs[0][offset..offset + units * len];
            par_rows(grads, len, (4096 / len).max(1), |first, rows| {
                for (row, g) in rows.chunks_exact_mut(len).enumerate() {
                    let p = &params[(first + row) * len..(first + row + 1) * len];
                    let most = dot(p, p).sqrt().max(eps) * factor * weight;
                    let norm = dot(g, g).sqrt();
                    if norm > most {
                        let scale = most / norm;
                        g.iter_mut().for_each(|g| *g *= scale);
                    }
                }
            });
        }
    }
}

impl Op for ClipUnits {
    fn name(&self) -> &'static str {
        "clip_units"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        if ins[0] != ins[1] {
            return Err(format!("gradients of {} and parameters of {}", ins[0], ins[1]));
        }
        Ok(vec![ins[0].clone()])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("an update is not differentiated"); 3])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        5 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn gpu(&self, _call: &GpuCall<'_>) -> Vec<Launch> {
        let launch = |&(offset, units, len): &(usize, usize, usize)| Launch {
            kernel: Kernel::file("clip_units", "clip_units"),
            dims: vec![
                offset as u32,
                units as u32,
                len as u32,
                self.weight_index as u32,
                self.factor.to_bits(),
                self.eps.to_bits(),
            ],
            binds: vec![Bind::Out(0), Bind::In(1), Bind::In(2)],
            grid: fold_groups(units),
        };
        self.tensors.iter().map(launch).collect()
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &[(0, 0)]
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: &'static str, n: usize, factor: f32, tensors: &[(usize, usize, usize)]| {
        let f = || (TensorType::f32([n]), Domain::Normal);
        let stats = (TensorType::f32([2]), Domain::Uniform(1.0, 2.0));
        let op = ClipUnits { factor, eps: 1e-3, weight_index: 1, tensors: tensors.to_vec() };
        Case::update(name, op, vec![f(), f(), stats])
    };
    vec![
        case("one", 1, 0.01, &[(0, 1, 1)]),
        case("rows", 160, 0.6, &[(0, 7, 13), (128, 1, 31)]),
        case("long", 2_100, 0.5, &[(0, 3, 257), (1_024, 257, 4)]),
    ]
}
