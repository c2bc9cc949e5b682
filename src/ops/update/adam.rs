//! Adam (Kingma & Ba 2015), AdamW (Loshchilov & Hutter 2019) and AMSGrad (Reddi et al. 2018) in
//! PyTorch's order of operations: m ← m + (1 − β₁)(g − m); v ← β₂v + (1 − β₂)g²;
//! p ← p − lr/(1 − β₁ᵗ) · m/(√v/√(1 − β₂ᵗ) + ε). Adam adds λ·p to the gradient; AdamW first
//! shrinks p by 1 − lr·λ; AMSGrad takes the largest v so far.

use super::{Elementwise, Number, Scalars};

/// Adam. Scalars: 1/(1 − β₁ᵗ) and √(1 − β₂ᵗ).
#[derive(Clone, Debug, PartialEq)]
pub struct Adam {
    /// β₁ and β₂.
    pub betas: [f64; 2],
    /// ε.
    pub eps: f64,
    /// λ.
    pub weight_decay: f64,
    /// Whether decay is apart from the gradient (AdamW).
    pub decoupled: bool,
    /// Whether the largest second moment so far is used.
    pub amsgrad: bool,
}

impl Default for Adam {
    fn default() -> Self {
        Adam { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0, decoupled: false, amsgrad: false }
    }
}

impl Elementwise for Adam {
    fn name(&self) -> &'static str {
        if self.decoupled { "adamw" } else { "adam" }
    }

    fn moments(&self) -> Vec<&'static str> {
        let mut names = vec!["exp_avg", "exp_avg_sq"];
        names.extend(self.amsgrad.then_some("max_exp_avg_sq"));
        names
    }

    fn scalars(&self, step: u64) -> Vec<f64> {
        let t = step as f64;
        let [b1, b2] = self.betas;
        vec![1.0 / (1.0 - b1.powf(t)), (1.0 - b2.powf(t)).sqrt()]
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
        let mut square = v;
        if let Some(largest) = moments.get_mut(2) {
            *largest = largest.max(v);
            square = *largest;
        }
        let root = square.sqrt() / s.scalar(1) + self.eps;
        *p = old - s.lr() * s.scalar(0) * (m / root);
    }
}
