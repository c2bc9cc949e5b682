//! LARS (You et al. 2017): for each parameter the rate η·‖p‖/(‖g‖ + λ·‖p‖ + ε), or 1 where one of
//! the norms is 0; d = rate·(g + λ·p); b ← μ·b + d; p ← p − lr·b.

use std::sync::Arc;

use super::tensor::{mean_gradient, norm};
use super::{Number, Operands, Update, UpdateRule};
use crate::graph::{Graph, Shape, ShapeError, ValueId};

/// LARS.
#[derive(Clone, Debug, PartialEq)]
pub struct Lars {
    /// μ.
    pub momentum: f64,
    /// λ.
    pub weight_decay: f64,
    /// η.
    pub trust_coefficient: f64,
    /// ε.
    pub eps: f64,
}

impl Default for Lars {
    fn default() -> Self {
        Lars { momentum: 0.9, weight_decay: 0.0, trust_coefficient: 1e-3, eps: 1e-8 }
    }
}

impl UpdateRule for Lars {
    fn name(&self) -> &'static str {
        "lars"
    }

    fn moments(&self, param: &Shape) -> Vec<(&'static str, Shape)> {
        vec![("momentum_buffer", param.clone())]
    }

    fn scalars(&self, _step: u64) -> Vec<f64> {
        Vec::new()
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn per_tensor(&self) -> bool {
        true
    }

    fn apply(&self, graph: &mut Graph, target: &Operands<'_>) -> Result<Vec<ValueId>, ShapeError> {
        let g = mean_gradient(graph, target)?;
        let (of_p, of_g) = (norm(graph, target.params)?, norm(graph, g)?);
        let step = Update::new("lars", 2, 5, target.settings, |s| {
            let (p, g, of_p, of_g) = (s.operand(0), s.operand(2), s.operand(3), s.operand(4));
            let (zero, one) = (p.constant(0.0), p.constant(1.0));
            let used = of_p.above(zero) * of_g.above(zero);
            let rate = of_p * self.trust_coefficient / (of_g + of_p * s.weight_decay() + self.eps);
            let rate = used * (rate - one) + one;
            let buffer = s.operand(1) * self.momentum + rate * s.coupled(g, p);
            vec![p - s.lr() * buffer, buffer]
        });
        let ins = [target.params, target.moments[0], g, of_p, of_g, target.control];
        graph.apply(Arc::new(step), &ins)
    }
}
