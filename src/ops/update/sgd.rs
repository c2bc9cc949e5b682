//! Stochastic gradient descent with momentum, as PyTorch defines it: d = g + λ·p; b ← d in the
//! first step, else μ·b + (1 − τ)·d; p ← p − lr·b, or p − lr·(d + μ·b) with Nesterov.

use super::{Elementwise, Number, Scalars};

/// SGD. Scalars: what is kept of the buffer, and what is taken of the gradient.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sgd {
    /// μ; 0 keeps no buffer.
    pub momentum: f64,
    /// τ.
    pub dampening: f64,
    /// Nesterov's form.
    pub nesterov: bool,
    /// λ.
    pub weight_decay: f64,
}

impl Elementwise for Sgd {
    fn name(&self) -> &'static str {
        "sgd"
    }

    fn moments(&self) -> Vec<&'static str> {
        if self.momentum == 0.0 { Vec::new() } else { vec!["momentum_buffer"] }
    }

    fn scalars(&self, step: u64) -> Vec<f64> {
        if step == 1 { vec![0.0, 1.0] } else { vec![self.momentum, 1.0 - self.dampening] }
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    #[inline(always)]
    fn formula<N: Number>(&self, s: &Scalars<'_, N>, p: &mut N, g: N, moments: &mut [N]) {
        let d = s.coupled(g, *p);
        let [buffer] = moments else {
            *p = *p - s.lr() * d;
            return;
        };
        *buffer = *buffer * s.scalar(0) + d * s.scalar(1);
        let direction = if self.nesterov { d + *buffer * self.momentum } else { *buffer };
        *p = *p - s.lr() * direction;
    }
}
