//! RMSprop (Hinton 2012; centered by Graves 2013), as in PyTorch: v ← αv + (1 − α)g²; centered
//! also a ← a + (1 − α)(g − a) and v − a² in the place of v; d = g/(√v + ε); with momentum
//! b ← μb + d in the place of d; p ← p − lr·d.

use super::{Elementwise, Number, Scalars};

/// RMSprop.
#[derive(Clone, Debug, PartialEq)]
pub struct RmsProp {
    /// α.
    pub alpha: f64,
    /// ε.
    pub eps: f64,
    /// λ.
    pub weight_decay: f64,
    /// μ; 0 keeps no buffer.
    pub momentum: f64,
    /// Whether the gradient's mean is taken off its mean square.
    pub centered: bool,
}

impl Default for RmsProp {
    fn default() -> Self {
        RmsProp { alpha: 0.99, eps: 1e-8, weight_decay: 0.0, momentum: 0.0, centered: false }
    }
}

impl Elementwise for RmsProp {
    fn name(&self) -> &'static str {
        "rmsprop"
    }

    fn moments(&self) -> Vec<&'static str> {
        let mut names = vec!["square_avg"];
        names.extend(self.centered.then_some("grad_avg"));
        names.extend((self.momentum > 0.0).then_some("momentum_buffer"));
        names
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    #[inline(always)]
    fn formula<N: Number>(&self, s: &Scalars<'_, N>, p: &mut N, g: N, moments: &mut [N]) {
        let (g, rest) = (s.coupled(g, *p), 1.0 - self.alpha);
        let square = moments[0] * self.alpha + g * g * rest;
        moments[0] = square;
        let mut variance = square;
        if self.centered {
            let mean = moments[1].towards(g, rest);
            moments[1] = mean;
            // Rounding may take it below 0 where gradients hardly change.
            variance = (square - mean * mean).max(square.constant(0.0));
        }
        let mut direction = g / (variance.sqrt() + self.eps);
        if self.momentum > 0.0 {
            let buffer = &mut moments[1 + usize::from(self.centered)];
            direction = *buffer * self.momentum + direction;
            *buffer = direction;
        }
        *p = *p - s.lr() * direction;
    }
}
