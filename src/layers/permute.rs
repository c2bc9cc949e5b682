//! `permute` and `transpose`.

use super::{Layer, LayerCx, LayerError, batch_shape};
use crate::config::macros::options;
use crate::graph::ValueId;
use crate::ops::permute;

options! {
    /// Another order of the axes. The batch stays in front.
    pub struct Permute {
        /// The input's axes in the output's order: `[0, 2, 3, 1]` puts the channels of images last.
        dims: Vec<i64>,
    }
}

options! {
    /// Exchanges two axes.
    pub struct Transpose {
        /// One axis.
        dim0: i64,
        /// The other.
        dim1: i64,
    }
}

impl Layer for Permute {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let rank = cx.float_dims(x)?.len();
        let got = || batch_shape(cx.graph.shape(x));
        if self.dims.first() != Some(&0) {
            return Err(LayerError(
                "needs `dims` that begin with 0: the batch stays in front".into(),
            ));
        }
        if self.dims.len() != rank {
            let message =
                format!("needs {rank} `dims` for its input {}, got {:?}", got(), self.dims);
            return Err(LayerError(message));
        }
        let mut axes = vec![0];
        for dim in &self.dims[1..] {
            let axis = cx.axis(x, *dim)?;
            if axes.contains(&axis) {
                return Err(LayerError(format!("has axis {dim} twice in `dims`")));
            }
            axes.push(axis);
        }
        Ok(permute::permute(cx.graph, x, &axes)?)
    }
}

impl Layer for Transpose {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let mut axes: Vec<usize> = (0..cx.float_dims(x)?.len()).collect();
        axes.swap(cx.axis(x, self.dim0)?, cx.axis(x, self.dim1)?);
        Ok(permute::permute(cx.graph, x, &axes)?)
    }
}
