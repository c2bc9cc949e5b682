//! Adafactor (Shazeer & Stern 2018), as in PyTorch. The mean square of the gradient is kept as
//! its means over rows and over columns of the last two axes; for vectors, whole. With
//! γ = t^(−β₂ decay): r ← r + γ·(rowmean g² − r), c likewise; v = r·c/mean(r);
//! u = g/√v; p ← p·(1 − lr·λ) − α·u/max(1, RMS(u)/d), α = max(ε₂, RMS(p))·min(lr, 1/√t).

use std::sync::Arc;

use super::tensor::{mean_gradient, square_sum};
use super::{Number, Operands, Update, UpdateRule, X};
use crate::graph::{Graph, Shape, ShapeError, ValueId};
use crate::ops::map::{self, Binary};
use crate::ops::reduce;

/// Adafactor. Scalars: γ and 1/√t.
#[derive(Clone, Debug, PartialEq)]
pub struct Adafactor {
    /// The power of t, negative.
    pub beta2_decay: f64,
    /// ε₁ and ε₂: the least root of v, and the least RMS of a parameter.
    pub eps: [f64; 2],
    /// d.
    pub d: f64,
    /// λ.
    pub weight_decay: f64,
}

impl Default for Adafactor {
    fn default() -> Self {
        Adafactor {
            beta2_decay: -0.8,
            eps: [f64::from(f32::EPSILON), 1e-3],
            d: 1.0,
            weight_decay: 0.0,
        }
    }
}

impl Adafactor {
    /// New moments of a matrix or kernel, and v.
    fn factored(
        &self,
        graph: &mut Graph,
        target: &Operands<'_>,
        g: ValueId,
    ) -> Result<(Vec<ValueId>, ValueId), ShapeError> {
        let shape = graph.shape(g).clone();
        let axis = shape.rank() - 1;
        let square = map::mul(graph, g, g)?;
        let mut new = Vec::new();
        for (moment, axis) in [(0, axis), (1, axis - 1)] {
            let mean = reduce::mean(graph, square, &[axis])?;
            let ins = [target.moments[moment], mean, target.control];
            new.push(self.moved(graph, target, &ins)?);
        }
        let mean = reduce::mean(graph, new[0], &[axis - 1])?;
        let least = self.eps[0] as f32;
        let ratio = map::apply(
            graph,
            map::Code::of(|code| {
                let (row, mean, least) = (code.input(0), code.input(1), code.constant(least));
                let mean = code.binary(Binary::Max, mean, least);
                code.binary(Binary::Div, row, mean)
            }),
            &[new[0], mean],
            graph.shape(new[0]).clone(),
        )?;
        let v = map::apply(
            graph,
            map::Code::of(|code| {
                let (row, column) = (code.input(0), code.input(1));
                code.mul(row, column)
            }),
            &[ratio, new[1]],
            shape,
        )?;
        Ok((new, v))
    }

    /// A moment moved towards a mean by γ.
    fn moved(
        &self,
        graph: &mut Graph,
        target: &Operands<'_>,
        ins: &[ValueId; 3],
    ) -> Result<ValueId, ShapeError> {
        let update = Update::new("adafactor", 1, 2, target.settings, |s| {
            vec![s.operand(0) + s.scalar(0) * (s.operand(1) - s.operand(0))]
        });
        Ok(graph.apply(Arc::new(update), ins)?[0])
    }
}

/// Root mean square of `n` numbers from the sum of their squares.
fn rms(square: X<'_>, n: f64) -> X<'_> {
    (square * (1.0 / n)).sqrt()
}

impl UpdateRule for Adafactor {
    fn name(&self) -> &'static str {
        "adafactor"
    }

    fn moments(&self, param: &Shape) -> Vec<(&'static str, Shape)> {
        let rank = param.rank();
        if rank < 2 {
            return vec![("variance", param.clone())];
        }
        let without = |axis: usize| {
            let mut dims = param.dims().to_vec();
            dims[axis] = 1;
            Shape::new(dims)
        };
        vec![("row_var", without(rank - 1)), ("col_var", without(rank - 2))]
    }

    fn scalars(&self, step: u64) -> Vec<f64> {
        let t = step as f64;
        vec![t.powf(self.beta2_decay), 1.0 / t.sqrt()]
    }

    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }

    fn per_tensor(&self) -> bool {
        true
    }

    fn apply(&self, graph: &mut Graph, target: &Operands<'_>) -> Result<Vec<ValueId>, ShapeError> {
        let g = mean_gradient(graph, target)?;
        let n = graph.shape(g).elements() as f64;
        let (moments, v) = if graph.shape(g).rank() < 2 {
            let square = map::mul(graph, g, g)?;
            let new = self.moved(graph, target, &[target.moments[0], square, target.control])?;
            (vec![new], new)
        } else {
            self.factored(graph, target, g)?
        };
        let least = (self.eps[0] * self.eps[0]) as f32;
        let u = map::apply(
            graph,
            map::Code::of(|code| {
                let (g, v, least) = (code.input(0), code.input(1), code.constant(least));
                let v = code.binary(Binary::Max, v, least);
                let root = code.unary(map::Unary::Sqrt, v);
                code.binary(Binary::Div, g, root)
            }),
            &[g, v],
            graph.shape(g).clone(),
        )?;
        let (of_p, of_u) = (square_sum(graph, target.params)?, square_sum(graph, u)?);
        let step = Update::new("adafactor", 1, 4, target.settings, |s| {
            let (p, u) = (s.operand(0), s.operand(1));
            let rate = s.lr().min(s.scalar(1));
            let alpha = rms(s.operand(2), n).max(p.constant(self.eps[1])) * rate;
            let denominator = (rms(s.operand(3), n) / self.d).max(p.constant(1.0));
            vec![s.shrunk(p) - alpha / denominator * u]
        });
        let ins = [target.params, u, of_p, of_u, target.control];
        let mut new = graph.apply(Arc::new(step), &ins)?;
        new.extend(moments);
        Ok(new)
    }
}
