//! Muon (Jordan et al. 2024), as in PyTorch but in single precision: b ← b + (1 − μ)(g − b);
//! u = b, or g + μ(b − g) with Nesterov; u is made nearly orthogonal by Newton-Schulz steps
//! X ← aX + (bA + cA²)X, A = XXᵀ, from X = u/‖u‖; p ← p·(1 − lr·λ) − lr·f·X, with
//! f = √max(1, rows/columns), or 0.2·√max(rows, columns) to match the size of AdamW's steps.

use std::sync::Arc;

use super::tensor::{mean_gradient, norm};
use super::{Number, Operands, Update, UpdateRule};
use crate::graph::{Graph, Shape, ShapeError, ValueId};
use crate::ops::map::{self, Binary, Code};
use crate::ops::matmul::matmul;

/// Muon, for matrices.
#[derive(Clone, Debug, PartialEq)]
pub struct Muon {
    /// μ.
    pub momentum: f64,
    /// Nesterov's form.
    pub nesterov: bool,
    /// λ.
    pub weight_decay: f64,
    /// Newton-Schulz steps.
    pub steps: usize,
    /// a, b, c.
    pub coefficients: [f64; 3],
    /// Least norm that u is divided by.
    pub eps: f64,
    /// Whether steps have the size of AdamW's.
    pub match_adamw: bool,
}

impl Default for Muon {
    fn default() -> Self {
        Muon {
            momentum: 0.95,
            nesterov: true,
            weight_decay: 0.1,
            steps: 5,
            coefficients: [3.4445, -4.775, 2.0315],
            eps: 1e-7,
            match_adamw: false,
        }
    }
}

impl Muon {
    fn orthogonal(&self, graph: &mut Graph, u: ValueId) -> Result<ValueId, ShapeError> {
        let [a, b, c] = self.coefficients.map(|x| x as f32);
        let of_u = norm(graph, u)?;
        let shape = graph.shape(u).clone();
        let tall = shape.dims()[0] > shape.dims()[1];
        let least = self.eps as f32;
        let unit = Code::of(|code| {
            let (u, norm, least) = (code.input(0), code.input(1), code.constant(least));
            let norm = code.binary(Binary::Max, norm, least);
            code.binary(Binary::Div, u, norm)
        });
        let mut x = map::apply(graph, unit, &[u, of_u], shape.clone())?;
        for _ in 0..self.steps {
            // The smaller of XXᵀ and XᵀX: X(XᵀX) = (XXᵀ)X.
            let gram = matmul(graph, x, x, tall, !tall)?;
            let square = matmul(graph, gram, gram, false, false)?;
            let sum = |first: f32, second: f32| {
                Code::of(|code| {
                    let (x, y) = (code.input(0), code.input(1));
                    let (x, y) = (code.scale(x, first), code.scale(y, second));
                    code.add(x, y)
                })
            };
            let side = graph.shape(gram).clone();
            let factor = map::apply(graph, sum(b, c), &[gram, square], side)?;
            let product = if tall {
                matmul(graph, x, factor, false, false)?
            } else {
                matmul(graph, factor, x, false, false)?
            };
            x = map::apply(graph, sum(a, 1.0), &[x, product], shape.clone())?;
        }
        Ok(x)
    }
}

impl UpdateRule for Muon {
    fn name(&self) -> &'static str {
        "muon"
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
        let (rows, columns) = {
            let dims = graph.shape(g).dims();
            (dims[0] as f64, dims[1] as f64)
        };
        let momentum = Update::new("muon", 1, 2, target.settings, |s| {
            let g = s.operand(1);
            let buffer = s.operand(0).towards(g, 1.0 - self.momentum);
            let u = if self.nesterov { g.towards(buffer, self.momentum) } else { buffer };
            vec![buffer, u]
        });
        let ins = [target.moments[0], g, target.control];
        let moved = graph.apply(Arc::new(momentum), &ins)?;
        let x = self.orthogonal(graph, moved[1])?;
        let size = if self.match_adamw {
            0.2 * rows.max(columns).sqrt()
        } else {
            (rows / columns).max(1.0).sqrt()
        };
        let step = Update::new("muon", 1, 2, target.settings, |s| {
            vec![s.shrunk(s.operand(0)) - s.lr() * s.operand(1) * size]
        });
        let p = graph.apply(Arc::new(step), &[target.params, x, target.control])?[0];
        Ok(vec![p, moved[0]])
    }
}
