//! Adamax (Kingma & Ba 2015, section 7.1), as in PyTorch: m ← m + (1 − β₁)(g − m);
//! u ← max(β₂·u, |g| + ε); p ← p − lr/(1 − β₁ᵗ) · m/u.

use super::{Elementwise, Number, Scalars};

/// Adamax. Scalar: 1/(1 − β₁ᵗ).
#[derive(Clone, Debug, PartialEq)]
pub struct Adamax {
    /// β₁ and β₂.
    pub betas: [f64; 2],
    /// ε.
    pub eps: f64,
    /// λ.
    pub weight_decay: f64,
}

impl Default for Adamax {
    fn default() -> Self {
        Adamax { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0 }
    }
}

impl Elementwise for Adamax {
    fn name(&self) -> &'static str {
        "adamax"
    }

    fn moments(&self) -> Vec<&'static str> {
        vec!["exp_avg", "exp_inf"]
    }

    fn scalars(&self, step: u64) -> Vec<f64> {
        vec![1.0 / (1.0 - self.betas[0].powf(step as f64))]
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    #[inline(always)]
    fn formula<N: Number>(&self, s: &Scalars<'_, N>, p: &mut N, g: N, moments: &mut [N]) {
        let g = s.coupled(g, *p);
        let m = moments[0].towards(g, 1.0 - self.betas[0]);
        let u = (moments[1] * self.betas[1]).max(g.abs() + self.eps);
        (moments[0], moments[1]) = (m, u);
        *p = *p - s.lr() * s.scalar(0) * (m / u);
    }
}
