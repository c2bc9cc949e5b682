//! NAdam (Dozat 2016), as in PyTorch: μₜ = β₁(1 − ½ · 0.96^(t·ψ)); moments as Adam's;
//! p ← p − (lr·(1 − μₜ)/(1 − Πμ) · g + lr·μₜ₊₁/(1 − μₜ₊₁·Πμ) · m)/(√(v/(1 − β₂ᵗ)) + ε), the
//! product over the steps so far.

use super::{Elementwise, Number, Scalars};

/// NAdam. Scalars: the factors of g and m, and √(1 − β₂ᵗ).
#[derive(Clone, Debug, PartialEq)]
pub struct NAdam {
    /// β₁ and β₂.
    pub betas: [f64; 2],
    /// ε.
    pub eps: f64,
    /// λ.
    pub weight_decay: f64,
    /// ψ.
    pub momentum_decay: f64,
    /// Whether decay is apart from the gradient.
    pub decoupled: bool,
}

impl Default for NAdam {
    fn default() -> Self {
        NAdam {
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.0,
            momentum_decay: 4e-3,
            decoupled: false,
        }
    }
}

impl NAdam {
    fn mu(&self, step: u64) -> f64 {
        self.betas[0] * (1.0 - 0.5 * 0.96_f64.powf(step as f64 * self.momentum_decay))
    }
}

impl Elementwise for NAdam {
    fn name(&self) -> &'static str {
        "nadam"
    }

    fn moments(&self) -> Vec<&'static str> {
        vec!["exp_avg", "exp_avg_sq"]
    }

    fn scalars(&self, step: u64) -> Vec<f64> {
        let (mu, next) = (self.mu(step), self.mu(step + 1));
        let mut product = 1.0;
        for t in 1..=step {
            product *= self.mu(t);
            // Below this, 1 less the product is 1.
            if product < 1e-20 {
                break;
            }
        }
        let root = (1.0 - self.betas[1].powf(step as f64)).sqrt();
        vec![(1.0 - mu) / (1.0 - product), next / (1.0 - product * next), root]
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
        let direction = (g * s.scalar(0) + m * s.scalar(1)) / (v.sqrt() / s.scalar(2) + self.eps);
        *p = old - s.lr() * direction;
    }
}
