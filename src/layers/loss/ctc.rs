//! `ctc`.

use std::sync::Arc;

use super::{Criterion, LossCx, Rows, batch_shape};
use crate::config::loss::Ctc;
use crate::graph::DType;
use crate::layers::LayerError;
use crate::ops::ctc;

impl Criterion for Ctc {
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError> {
        let (given, wanted) = cx.shapes();
        let fits = given.len() == 3 && wanted.len() == 2 && cx.dtype() == DType::I32;
        if !fits {
            return Err(cx.error(&format!(
                "needs an output of [batch, time, classes] and labels [batch, labels], but the \
                 model gives {} and the data {}",
                batch_shape(cx.graph.shape(cx.output)),
                batch_shape(cx.graph.shape(cx.target))
            )));
        }
        if self.blank >= given[2] {
            return Err(cx.error(&format!(
                "has the blank {}, but the model gives {} classes",
                self.blank, given[2]
            )));
        }
        let op = ctc::Ctc { blank: self.blank as i32, zero_infinity: self.zero_infinity };
        let outs = cx.graph.apply(Arc::new(op), &[cx.output, cx.target])?;
        cx.samples(outs[0], 1.0)
    }
}
