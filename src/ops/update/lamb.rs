//! LAMB (You et al. 2020): moments as Adam's; r = m̂/(√v̂ + ε) + λ·p; p ← p − lr · ‖p‖/‖r‖ · r for
//! each parameter, the ratio being 1 where one of the norms is 0.

use super::tensor::{mean_gradient, norm};
use super::{Number, Operands, Update, UpdateRule};
use crate::graph::{Graph, Shape, ShapeError, ValueId};
use std::sync::Arc;

/// LAMB. Scalars: 1/(1 − β₁ᵗ) and √(1 − β₂ᵗ).
#[derive(Clone, Debug, PartialEq)]
pub struct Lamb {
    /// β₁ and β₂.
    pub betas: [f64; 2],
    /// ε.
    pub eps: f64,
    /// λ.
    pub weight_decay: f64,
}

impl Default for Lamb {
    fn default() -> Self {
        Lamb { betas: [0.9, 0.999], eps: 1e-6, weight_decay: 0.0 }
    }
}

impl UpdateRule for Lamb {
    fn name(&self) -> &'static str {
        "lamb"
    }

    fn moments(&self, param: &Shape) -> Vec<(&'static str, Shape)> {
        vec![("exp_avg", param.clone()), ("exp_avg_sq", param.clone())]
    }

    fn scalars(&self, step: u64) -> Vec<f64> {
        let t = step as f64;
        let [b1, b2] = self.betas;
        vec![1.0 / (1.0 - b1.powf(t)), (1.0 - b2.powf(t)).sqrt()]
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn per_tensor(&self) -> bool {
        true
    }

    fn apply(&self, graph: &mut Graph, target: &Operands<'_>) -> Result<Vec<ValueId>, ShapeError> {
        let ([b1, b2], settings) = (self.betas, target.settings);
        let g = mean_gradient(graph, target)?;
        let moments = Update::new("lamb", 2, 4, settings, |s| {
            let g = s.operand(2);
            let m = s.operand(0).towards(g, 1.0 - b1);
            let v = s.operand(1) * b2 + g * g * (1.0 - b2);
            let r = m * s.scalar(0) / (v.sqrt() / s.scalar(1) + self.eps)
                + s.operand(3) * s.weight_decay();
            vec![m, v, r]
        });
        let ins = [target.moments[0], target.moments[1], g, target.params, target.control];
        let moments = graph.apply(Arc::new(moments), &ins)?;
        let (of_p, of_r) = (norm(graph, target.params)?, norm(graph, moments[2])?);
        let step = Update::new("lamb", 1, 4, settings, |s| {
            let (p, r, of_p, of_r) = (s.operand(0), s.operand(1), s.operand(2), s.operand(3));
            let zero = p.constant(0.0);
            // ‖r‖ is kept from 0 where the ratio is not used.
            let used = of_p.above(zero) * of_r.above(zero);
            let ratio = of_p / of_r.max(p.constant(f64::from(f32::MIN_POSITIVE)));
            vec![p - s.lr() * (used * (ratio - p.constant(1.0)) + p.constant(1.0)) * r]
        });
        let ins = [target.params, moments[2], of_p, of_r, target.control];
        let p = graph.apply(Arc::new(step), &ins)?[0];
        Ok(vec![p, moments[0], moments[1]])
    }
}
