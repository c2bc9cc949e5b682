//! Adagrad (Duchi et al. 2011), as in PyTorch: s ← s + g², from the initial value on;
//! p ← p − lr/(1 + (t − 1)·η) · g/(√s + ε).

use super::{Elementwise, Number, Scalars};

/// Adagrad. Scalars: 1/(1 + (t − 1)·η), and what the sum begins with in the first step.
#[derive(Clone, Debug, PartialEq)]
pub struct Adagrad {
    /// η.
    pub lr_decay: f64,
    /// ε.
    pub eps: f64,
    /// λ.
    pub weight_decay: f64,
    /// What the sums begin with.
    pub initial_accumulator_value: f64,
}

impl Default for Adagrad {
    fn default() -> Self {
        Adagrad { lr_decay: 0.0, eps: 1e-10, weight_decay: 0.0, initial_accumulator_value: 0.0 }
    }
}

impl Elementwise for Adagrad {
    fn name(&self) -> &'static str {
        "adagrad"
    }

    fn moments(&self) -> Vec<&'static str> {
        vec!["sum"]
    }

    fn scalars(&self, step: u64) -> Vec<f64> {
        let first = if step == 1 { self.initial_accumulator_value } else { 0.0 };
        vec![1.0 / (1.0 + (step as f64 - 1.0) * self.lr_decay), first]
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    #[inline(always)]
    fn formula<N: Number>(&self, s: &Scalars<'_, N>, p: &mut N, g: N, moments: &mut [N]) {
        let g = s.coupled(g, *p);
        let sum = moments[0] + s.scalar(1) + g * g;
        moments[0] = sum;
        *p = *p - s.lr() * s.scalar(0) * (g / (sum.sqrt() + self.eps));
    }
}
