//! `batch_norm`.

use super::{Layer, LayerCx, LayerError, Mode, batch_shape};
use crate::config::macros::options;
use crate::graph::ValueId;
use crate::ops::batch_norm;
use crate::plan::Init;

options! {
    /// Normalises each channel over the batch (Ioffe & Szegedy 2015), then scales by `weight` and
    /// shifts by `bias`. Input `[batch, channels]` or `[batch, channels, …]`. Training uses the
    /// statistics of the micro-batch and updates `running_mean` and `running_var` with them;
    /// evaluation uses those. So with `train.accumulate` above 1 each micro-batch is normalised by
    /// itself and updates the running statistics, as in PyTorch: a window of 4 × 16 samples is not
    /// a batch of 64 here.
    pub struct BatchNorm {
        /// Added to the variance.
        eps: f64 [0.0..] = 1e-5,
        /// Share of the new statistics in the running ones.
        momentum: f64 [0.0..=1.0] = 0.1,
        /// Whether there are a learned `weight` and `bias`.
        affine: bool = true,
    }
}

impl Layer for BatchNorm {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.float_dims(x)?;
        if dims.len() < 2 {
            let got = batch_shape(cx.graph.shape(x));
            return Err(LayerError(format!("needs an input of [batch, channels, …], got {got}")));
        }
        let count: usize = dims.iter().product::<usize>() / dims[1];
        if cx.mode == Mode::Train && count < 2 {
            return Err(LayerError(
                "needs more than one value per channel in training: the batch holds a single one"
                    .into(),
            ));
        }
        let channels = dims[1];
        let [weight, bias] = if self.affine {
            let weight = cx.param("weight", [channels], Init::Constant(1.0), false)?;
            [weight, cx.param("bias", [channels], Init::Constant(0.0), false)?]
        } else {
            [cx.graph.constant(1.0, [channels]), cx.graph.constant(0.0, [channels])]
        };
        let mean = cx.state("running_mean", [channels], Init::Constant(0.0));
        let var = cx.state("running_var", [channels], Init::Constant(1.0));
        let training = cx.mode == Mode::Train;
        let out = batch_norm::batch_norm(
            cx.graph,
            x,
            weight,
            bias,
            mean,
            var,
            self.eps as f32,
            self.momentum as f32,
            training,
        )?;
        cx.state_updates.extend(out.new_running.into_iter().flatten());
        Ok(out.y)
    }
}
