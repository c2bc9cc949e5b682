//! `dot_interaction`.

use super::{Layer, LayerCx, LayerError, batch_shape};
use crate::config::macros::options;
use crate::graph::ValueId;
use crate::ops::matmul;
use crate::ops::tril::Tril;

options! {
    /// The dot product of each pair of vectors (Naumov et al. 2019, DLRM): of vectors 1 and 0, 2 and
    /// 0, 2 and 1, 3 and 0, …. Input `[batch, vectors, features]`, output `[batch, pairs]`, of n
    /// vectors n·(n − 1)/2.
    pub struct DotInteraction {
        /// Whether each vector makes a pair with itself too: n·(n + 1)/2 products, row by row.
        self_interaction: bool = false,
    }
}

impl Layer for DotInteraction {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.float_dims(x)?;
        let least = if self.self_interaction { 1 } else { 2 };
        match dims[..] {
            [_, vectors, _] if vectors >= least => {}
            _ => {
                let got = batch_shape(cx.graph.shape(x));
                return Err(LayerError(format!(
                    "needs an input of [batch, vectors, features] with {least} vectors or more, got {got}"
                )));
            }
        }
        let products = matmul::matmul(cx.graph, x, x, false, true)?;
        Ok(cx.graph.op(Tril { diagonal: self.self_interaction }, &[products])?)
    }
}
