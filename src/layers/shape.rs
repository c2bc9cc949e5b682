//! `flatten` and `reshape`: other shapes of the same elements, at no cost.

use super::{Layer, LayerCx, LayerError, batch_shape};
use crate::config::macros::options;
use crate::graph::{Shape, ValueId};

options! {
    /// Neighbouring axes as one: `[batch, a, b, …]` becomes `[batch, a·b·…]`.
    pub struct Flatten {
        /// The first of them.
        start_dim: i64 = 1,
        /// The last of them.
        end_dim: i64 = -1,
    }
}

options! {
    /// Another shape for each sample.
    pub struct Reshape {
        /// The axes after the batch; one may be -1 and is inferred.
        shape: Vec<i64>,
    }
}

impl Layer for Flatten {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.graph.shape(x).dims().to_vec();
        if dims.len() == 1 {
            return Ok(cx.graph.reshape(x, [dims[0], 1])?);
        }
        let (first, last) = (cx.axis(x, self.start_dim)?, cx.axis(x, self.end_dim)?);
        if first > last {
            return Err(LayerError(format!(
                "`start_dim` {} lies after `end_dim` {}",
                self.start_dim, self.end_dim
            )));
        }
        let mut shape = dims[..first].to_vec();
        shape.push(dims[first..=last].iter().product());
        shape.extend(&dims[last + 1..]);
        Ok(cx.graph.reshape(x, Shape::new(shape))?)
    }
}

impl Layer for Reshape {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.graph.shape(x).dims();
        let (batch, elements): (usize, usize) = (dims[0], dims[1..].iter().product());
        let inferred = self.shape.iter().filter(|d| **d == -1).count();
        let positive = self.shape.iter().filter(|d| **d > 0);
        let known = positive.fold(1_usize, |n, d| n.saturating_mul(*d as usize));
        let fits = match inferred {
            0 => known == elements,
            1 => known > 0 && elements % known == 0,
            _ => false,
        };
        if !fits || self.shape.iter().any(|d| *d == 0 || *d < -1) {
            let got = batch_shape(cx.graph.shape(x));
            return Err(LayerError(format!("cannot give {got} the shape {:?}", self.shape)));
        }
        let axis = |d: &i64| if *d == -1 { elements / known } else { *d as usize };
        let dims: Vec<usize> = std::iter::once(batch).chain(self.shape.iter().map(axis)).collect();
        Ok(cx.graph.reshape(x, Shape::new(dims))?)
    }
}
