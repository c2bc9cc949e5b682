//! Lion (Chen et al. 2023): p ← p·(1 − lr·λ) − lr·sign(β₁m + (1 − β₁)g); m ← β₂m + (1 − β₂)g.

use super::{Elementwise, Number, Scalars};

/// Lion.
#[derive(Clone, Debug, PartialEq)]
pub struct Lion {
    /// β₁ and β₂.
    pub betas: [f64; 2],
    /// λ.
    pub weight_decay: f64,
}

impl Default for Lion {
    fn default() -> Self {
        Lion { betas: [0.9, 0.99], weight_decay: 0.0 }
    }
}

impl Elementwise for Lion {
    fn name(&self) -> &'static str {
        "lion"
    }

    fn moments(&self) -> Vec<&'static str> {
        vec!["exp_avg"]
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    #[inline(always)]
    fn formula<N: Number>(&self, s: &Scalars<'_, N>, p: &mut N, g: N, moments: &mut [N]) {
        let ([b1, b2], m) = (self.betas, moments[0]);
        let direction = (m * b1 + g * (1.0 - b1)).sign();
        moments[0] = m * b2 + g * (1.0 - b2);
        *p = s.shrunk(*p) - s.lr() * direction;
    }
}
