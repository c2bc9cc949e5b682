//! Adadelta (Zeiler 2012), as in PyTorch: v ← ρv + (1 − ρ)g²; d = √(u + ε)/√(v + ε) · g;
//! u ← ρu + (1 − ρ)d²; p ← p − lr·d.

use super::{Elementwise, Number, Scalars};

/// Adadelta.
#[derive(Clone, Debug, PartialEq)]
pub struct Adadelta {
    /// ρ.
    pub rho: f64,
    /// ε.
    pub eps: f64,
    /// λ.
    pub weight_decay: f64,
}

impl Default for Adadelta {
    fn default() -> Self {
        Adadelta { rho: 0.9, eps: 1e-6, weight_decay: 0.0 }
    }
}

impl Elementwise for Adadelta {
    fn name(&self) -> &'static str {
        "adadelta"
    }

    fn moments(&self) -> Vec<&'static str> {
        vec!["square_avg", "acc_delta"]
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    #[inline(always)]
    fn formula<N: Number>(&self, s: &Scalars<'_, N>, p: &mut N, g: N, moments: &mut [N]) {
        let (g, rest) = (s.coupled(g, *p), 1.0 - self.rho);
        let v = moments[0] * self.rho + g * g * rest;
        let d = (moments[1] + self.eps).sqrt() / (v + self.eps).sqrt() * g;
        (moments[0], moments[1]) = (v, moments[1] * self.rho + d * d * rest);
        *p = *p - s.lr() * d;
    }
}
