//! What the whole gradient says before it is used: its norm, whether it is finite, and the factor
//! that turns the sums of a window into a clipped mean.

use crate::cpu_by_eval;
use crate::graph::{Graph, ShapeError, TensorType};
use crate::ops::cpu::par_rows;
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Real, ScratchCall,
    Target,
};

/// Operands: all gradients (sums over the window) and the statistics. Result: scale, norm,
/// non-finite count, weight, then the statistics.
///
/// weight is the statistic that the loss is divided by; norm = √(Σ g²)/weight over the finite
/// elements (a sum that overflows and statistics count as non-finite elements too); scale = min(1, clip/(norm + 10⁻⁶))/weight as in PyTorch's `clip_grad_norm_`, or 0
/// where an element is not finite or the weight is 0, so that nothing is updated.
///
/// With a loss scale (Micikevicius et al. 2018) there is a third operand, updated in place:
/// `[loss scale, good steps, skipped steps]`. The gradients are that many times too large, which
/// `scale` and `norm` undo. A step with a gradient that is not finite halves the loss scale and
/// counts as skipped; after [`GROWTH_INTERVAL`] good ones in a row it is doubled. The first and the
/// third of the new values stand behind the statistics.
#[derive(Clone, Debug, PartialEq)]
pub struct GradScale {
    /// Largest norm of the mean gradient.
    pub clip_norm: Option<f32>,
    /// Which statistic is the weight.
    pub weight_index: usize,
    /// Whether the gradients have a loss scale.
    pub scaled: bool,
}

/// Good steps in a row after which the loss scale is doubled, as in PyTorch's `GradScaler`.
pub const GROWTH_INTERVAL: f32 = 2000.0;
/// What the loss scale is in a new run. The loss is not divided by its weight before the backward
/// pass, so that a scale of 1 here is one of the number of samples or tokens elsewhere.
pub const FIRST_LOSS_SCALE: f32 = 1024.0;
/// Numbers of the loss scale's state.
pub const SCALER: usize = 3;

/// Elements that one piece of work sums.
const CHUNK: usize = 8192;

fn pieces(n: usize) -> usize {
    n.div_ceil(CHUNK)
}

/// Workgroups of the first pass on a GPU: a few elements for each thread.
fn gpu_groups(n: usize) -> usize {
    n.div_ceil(1024).min(1024)
}

fn finite<R: Real>(value: R) -> bool {
    // By bits in f32, where it matters; f64 only judges.
    (value.to_f64() as f32).to_bits() & 0x7f80_0000 != 0x7f80_0000
}

impl GradScale {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (g, stats) = (call.f(0), call.f(1));
        let scratch = &mut call.scratch[..2 * pieces(g.len())];
        par_rows(scratch, 2, 1, |piece, out| {
            let g = &g[piece * CHUNK..((piece + 1) * CHUNK).min(g.len())];
            out[0] = crate::ops::cpu::dot(g, g);
            out[1] = R::ZERO;
            if !finite(out[0]) {
                let good: Vec<R> = g.iter().copied().filter(|v| finite(*v)).collect();
                out[0] = crate::ops::cpu::dot(&good, &good);
                out[1] = R::of((g.len() - good.len()) as f64);
            }
        });
        let square: R = scratch.chunks_exact(2).map(|p| p[0]).sum();
        let mut bad: R = scratch.chunks_exact(2).map(|p| p[1]).sum();
        if !finite(square) {
            bad += R::ONE;
        }
        bad += R::of(stats.iter().filter(|stat| !finite(**stat)).count() as f64);
        let weight = stats[self.weight_index];
        let [control, scaler @ ..] = call.outs else { unreachable!("a result") };
        let loss_scale = scaler.first().map_or(R::ONE, |state| state[0]);
        let divisor = weight * loss_scale;
        let norm = square.sqrt() / if weight == R::ZERO { R::ONE } else { divisor };
        let clip = match self.clip_norm {
            Some(limit) => (R::of(f64::from(limit)) / (norm + R::of(1e-6))).min(R::ONE),
            None => R::ONE,
        };
        let usable = bad == R::ZERO && weight != R::ZERO;
        control[0] = if usable { clip / divisor } else { R::ZERO };
        control[1] = norm;
        control[2] = bad;
        control[3] = weight;
        control[4..4 + stats.len()].copy_from_slice(stats);
        if let Some(state) = scaler.first_mut() {
            if bad > R::ZERO {
                state[0] *= R::of(0.5);
                state[1] = R::ZERO;
                state[2] += R::ONE;
            } else {
                state[1] += R::ONE;
                if state[1] >= R::of(f64::from(GROWTH_INTERVAL)) {
                    state[0] *= R::of(2.0);
                    state[1] = R::ZERO;
                }
            }
            control[4 + stats.len()] = state[0];
            control[5 + stats.len()] = state[2];
        }
    }
}

impl Op for GradScale {
    fn name(&self) -> &'static str {
        "grad_scale"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let stats = ins[1].shape.elements();
        if self.weight_index >= stats {
            return Err(format!("no statistic {} among {stats}", self.weight_index));
        }
        let mut outs = vec![TensorType::f32([4 + stats + if self.scaled { 2 } else { 0 }])];
        outs.extend(self.scaled.then(|| ins[2].clone()));
        Ok(outs)
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("an update is not differentiated"); 2 + usize::from(self.scaled)])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        2 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let n = call.ins[0].shape.elements();
        let groups = gpu_groups(n);
        let partial = Launch {
            kernel: Kernel::file("grad_scale", "partial"),
            dims: vec![n as u32, groups as u32],
            binds: vec![Bind::In(0), Bind::Scratch],
            grid: [groups as u32, 1, 1],
        };
        let dims = vec![
            groups as u32,
            call.ins[1].shape.elements() as u32,
            self.weight_index as u32,
            u32::from(self.clip_norm.is_some()),
            self.clip_norm.unwrap_or(0.0).to_bits(),
        ];
        let finish = Launch {
            kernel: Kernel::file("grad_scale_finish", "finish").with("SCALED", self.scaled.into()),
            dims,
            binds: vec![
                Bind::Scratch,
                Bind::In(1),
                Bind::Out(0),
                if self.scaled { Bind::Out(1) } else { Bind::Scratch },
            ],
            grid: [1, 1, 1],
        };
        vec![partial, finish]
    }

    fn in_place(&self) -> &[(usize, usize)] {
        if self.scaled { &[(2, 1)] } else { &[] }
    }

    fn scratch(&self, call: &ScratchCall<'_>) -> usize {
        let n = call.ins[0].shape.elements();
        2 * match call.target {
            Target::Cpu => pieces(n),
            Target::Gpu(_) => gpu_groups(n),
        }
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let of = |name: &'static str, ins, clip_norm: Option<f32>, scaled| {
        Case::update(name, GradScale { clip_norm, weight_index: 1, scaled }, ins)
    };
    let operands = |n: usize, stats: usize, domain| {
        let stats = (TensorType::f32([stats]), Domain::Uniform(1.0, 9.0));
        vec![(TensorType::f32([n]), domain), stats]
    };
    let case = |name: &'static str, n: usize, stats: usize, clip_norm: Option<f32>| {
        of(name, operands(n, stats, Domain::Normal), clip_norm, false)
    };
    // Good steps below the interval, at it, and a bad step.
    let scaled = |name: &'static str, domain, steps: f32| {
        let mut ins = operands(259, 3, domain);
        ins.push((TensorType::f32([SCALER]), Domain::Uniform(steps, steps + 1.0)));
        of(name, ins, Some(0.5), true)
    };
    vec![
        scaled("scaled", Domain::Normal, 7.0),
        scaled("scaled_grows", Domain::Normal, GROWTH_INTERVAL),
        scaled("scaled_overflows", Domain::Special, 7.0),
        case("one", 1, 2, None),
        case("clipped", 259, 3, Some(0.01)),
        case("loose", 259, 3, Some(1e6)),
        case("pieces", 20_000, 2, Some(0.5)),
    ]
}
