//! RAdam (Liu et al. 2020), as in PyTorch: moments as Adam's; with ρ∞ = 2/(1 − β₂) − 1 and
//! ρₜ = ρ∞ − 2t·β₂ᵗ/(1 − β₂ᵗ), where ρₜ > 5:
//! p ← p − lr · m/(1 − β₁ᵗ) · r·√(1 − β₂ᵗ)/(√v + ε),
//! r = √((ρₜ − 4)(ρₜ − 2)ρ∞ / ((ρ∞ − 4)(ρ∞ − 2)ρₜ)); before that p ← p − lr · m/(1 − β₁ᵗ).

use super::{Elementwise, Number, Scalars};

/// RAdam. Scalars: the factors of m/(√v + ε) and of m, one of which is 0.
#[derive(Clone, Debug, PartialEq)]
pub struct RAdam {
    /// β₁ and β₂.
    pub betas: [f64; 2],
    /// ε.
    pub eps: f64,
    /// λ.
    pub weight_decay: f64,
    /// Whether decay is apart from the gradient.
    pub decoupled: bool,
}

impl Default for RAdam {
    fn default() -> Self {
        RAdam { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0, decoupled: false }
    }
}

impl Elementwise for RAdam {
    fn name(&self) -> &'static str {
        "radam"
    }

    fn moments(&self) -> Vec<&'static str> {
        vec!["exp_avg", "exp_avg_sq"]
    }

    fn scalars(&self, step: u64) -> Vec<f64> {
        let t = step as f64;
        let ([b1, b2], rest) = (self.betas, 1.0 - self.betas[1].powf(t));
        let unbiased = 1.0 / (1.0 - b1.powf(t));
        let limit = 2.0 / (1.0 - b2) - 1.0;
        let length = limit - 2.0 * t * b2.powf(t) / rest;
        if length <= 5.0 {
            return vec![0.0, unbiased];
        }
        let rectified =
            (length - 4.0) * (length - 2.0) * limit / ((limit - 4.0) * (limit - 2.0) * length);
        vec![unbiased * (rectified * rest).sqrt(), 0.0]
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    #[inline(always)]
    fn formula<N: Number>(&self, s: &Scalars<'_, N>, p: &mut N, g: N, moments: &mut [N]) {
        let [b1, b2] = self.betas;
        let (old, g) = if self.decoupled { (s.shrunk(*p), g) } else { (*p, s.coupled(g, *p)) };
        let m = moments[0].towards(g, 1.0 - b1);
        let v = moments[1] * b2 + g * g * (1.0 - b2);
        (moments[0], moments[1]) = (m, v);
        let direction = m * s.scalar(0) / (v.sqrt() + self.eps) + m * s.scalar(1);
        *p = old - s.lr() * direction;
    }
}
