//! Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019) in PyTorch's order of operations:
//! m ← m + (1 − β₁)(g − m); v ← β₂v + (1 − β₂)g²; p ← p − lr/(1 − β₁ᵗ) · m/(√v/√(1 − β₂ᵗ) + ε).
//! Adam adds λ·p to the gradient; AdamW first shrinks p by 1 − lr·λ.

use std::sync::Arc;

use super::sgd::PIECE;
use super::update::UpdateRule;
use crate::cpu_by_eval;
use crate::graph::{Graph, ShapeError, TensorType};
use crate::ops::{Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Real};

/// Operands: parameters, m, v (in place), gradients, control. `hyper` holds lr, lr/(1 − β₁ᵗ) and
/// √(1 − β₂ᵗ), computed in double precision on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Adam {
    /// β₁.
    pub beta1: f64,
    /// β₂.
    pub beta2: f64,
    /// ε.
    pub eps: f64,
    /// λ.
    pub weight_decay: f64,
    /// Whether decay is apart from the gradient (AdamW).
    pub decoupled: bool,
}

impl UpdateRule for Adam {
    fn moment_names(&self) -> &[&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }

    fn hyper(&self, lr: f64, step: u64) -> [f32; 8] {
        let t = step as f64;
        let rate = lr / (1.0 - self.beta1.powf(t));
        let root = (1.0 - self.beta2.powf(t)).sqrt();
        [lr as f32, rate as f32, root as f32, 0.0, 0.0, 0.0, 0.0, 0.0]
    }

    fn op(&self, decay: bool) -> Arc<dyn Op> {
        Arc::new(Adam { weight_decay: if decay { self.weight_decay } else { 0.0 }, ..self.clone() })
    }

    fn decays(&self) -> bool {
        self.weight_decay != 0.0
    }
}

impl Adam {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (g, control) = (call.f(3), call.f(4));
        if control[2] > R::ZERO {
            return;
        }
        let hyper = call.globals.hyper.map(|x| R::of(f64::from(x)));
        let [lr, rate, root, ..] = hyper;
        let scale = control[0];
        let of = |x: f64| R::of(f64::from(x as f32));
        let (b1, b2, eps, decay) =
            (of(1.0 - self.beta1), of(self.beta2), of(self.eps), of(self.weight_decay));
        let (rest2, decoupled) = (of(1.0 - self.beta2), self.decoupled);
        let shrink = if decoupled { R::ONE - lr * decay } else { R::ONE };
        let coupled = if decoupled { R::ZERO } else { decay };
        let [p, m, v] = call.outs else { unreachable!("parameters and two moments") };
        let (p, m, v): (&mut [R], &mut [R], &mut [R]) = (p, m, v);
        let step = |first: usize, p: &mut [R], m: &mut [R], v: &mut [R]| {
            let g = &g[first..first + p.len()];
            for (((p, m), v), g) in p.iter_mut().zip(m.iter_mut()).zip(v.iter_mut()).zip(g) {
                let d = *g * scale + coupled * *p;
                *m += b1 * (d - *m);
                *v = b2 * *v + rest2 * d * d;
                *p = *p * shrink - rate * (*m / ((*v).sqrt() / root + eps));
            }
        };
        par_triples(p, m, v, step);
    }
}

/// Runs `body(first, p, m, v)` over equal pieces of three slices in parallel.
fn par_triples<R: Real>(
    p: &mut [R],
    m: &mut [R],
    v: &mut [R],
    body: impl Fn(usize, &mut [R], &mut [R], &mut [R]) + Send + Sync,
) {
    use rayon::prelude::*;
    let pieces = p.par_chunks_mut(PIECE).zip(m.par_chunks_mut(PIECE)).zip(v.par_chunks_mut(PIECE));
    pieces
        .enumerate()
        .for_each(|(index, ((p, m), v))| crate::ops::cpu::simd(|| body(index * PIECE, p, m, v)));
}

impl Op for Adam {
    fn name(&self) -> &'static str {
        "adam"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        if ins.len() != 5 || ins[..4].iter().any(|ty| *ty != ins[0]) {
            return Err("parameters, moments and gradients must have one size".into());
        }
        Ok(vec![ins[0].clone(); 3])
    }

    fn grad(&self, _graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("an update is not differentiated"); call.ins.len()])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        14 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let n = call.ins[0].shape.elements();
        let bits = |x: f64| (x as f32).to_bits();
        let dims = vec![
            n as u32,
            bits(1.0 - self.beta1),
            bits(self.beta2),
            bits(1.0 - self.beta2),
            bits(self.eps),
            bits(self.weight_decay),
            u32::from(self.decoupled),
        ];
        let binds = vec![Bind::Out(0), Bind::Out(1), Bind::Out(2), Bind::In(3), Bind::In(4)];
        vec![Launch::flat(Kernel::file("adam", "adam"), dims, binds, n, 256)]
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &[(0, 0), (1, 1), (2, 2)]
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: &'static str, n: usize, decoupled: bool| {
        let op = Adam { beta1: 0.9, beta2: 0.99, eps: 1e-6, weight_decay: 0.1, decoupled };
        let f = || (TensorType::f32([n]), Domain::Normal);
        let v = (TensorType::f32([n]), Domain::Uniform(0.5, 2.0));
        let control = (TensorType::f32([6]), Domain::Uniform(-0.9, -0.1));
        Case::update(name, op, vec![f(), f(), v, f(), control])
    };
    vec![case("coupled", 259, false), case("decoupled", 300, true), case("one", 1, true)]
}
