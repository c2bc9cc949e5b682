//! Losses: what is minimised, and the rows that its statistics are sums of.

use super::{LayerError, batch_shape};
use crate::config::train::Loss as LossSpec;
use crate::graph::{DType, Graph, TensorType, ValueId};
use crate::ops::map::{self, Binary};
use crate::ops::{cross_entropy, reduce};

/// The loss in a graph, as row vectors whose sums are statistics.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Loss of each row.
    pub rows: ValueId,
    /// Weight of each row: the loss is Σ rows / Σ weights.
    pub weights: ValueId,
    /// 1 for each row whose largest logit is the target, where that means something; its mean is
    /// over the same weights.
    pub correct: Option<ValueId>,
}

impl Loss {
    /// Adds the loss of `output` against `target`, which has class indices below `classes`.
    ///
    /// # Errors
    /// When the shapes or types do not fit.
    pub fn build(
        graph: &mut Graph,
        spec: &LossSpec,
        output: ValueId,
        target: ValueId,
        classes: Option<usize>,
    ) -> Result<Loss, LayerError> {
        match spec {
            LossSpec::CrossEntropy(options) => {
                let (logits, targets) = class_rows(graph, output, target)?;
                let given = graph.shape(logits).last();
                if let Some(wanted) = classes.filter(|wanted| given < *wanted) {
                    return Err(LayerError(format!(
                        "the data has {wanted} classes, but the model gives {given} logits"
                    )));
                }
                let op = cross_entropy::CrossEntropy {
                    label_smoothing: options.label_smoothing as f32,
                    ignore_index: options.ignore_index as i32,
                };
                let outs = graph.apply(std::sync::Arc::new(op), &[logits, targets])?;
                Ok(Loss { rows: outs[0], weights: outs[1], correct: Some(outs[2]) })
            }
            LossSpec::Mse(_) => squared_error(graph, output, target),
        }
    }
}

/// Logits as `[rows, classes]` and targets as `[rows]`.
fn class_rows(
    graph: &mut Graph,
    output: ValueId,
    target: ValueId,
) -> Result<(ValueId, ValueId), LayerError> {
    let (logits, ids) = (graph.ty(output).clone(), graph.ty(target).clone());
    if ids.dtype != DType::I32 {
        return Err(LayerError("`cross_entropy` needs class indices as targets, but the data gives numbers; for those use `mse`".into()));
    }
    let dims = logits.shape.dims();
    if dims.len() < 2 || dims[..dims.len() - 1] != *ids.shape.dims() {
        return Err(LayerError(format!(
            "`cross_entropy` needs logits of {} and one more axis for the classes, but the model gives {}",
            batch_shape(&ids.shape),
            batch_shape(&logits.shape)
        )));
    }
    let rows = ids.shape.elements();
    Ok((graph.reshape(output, [rows, logits.shape.last()])?, graph.reshape(target, [rows])?))
}

/// Rows are samples: the sum of squared differences, and the number of them as weight, so that
/// the loss is the mean over all elements as in PyTorch.
fn squared_error(graph: &mut Graph, output: ValueId, target: ValueId) -> Result<Loss, LayerError> {
    let (given, wanted): (TensorType, TensorType) =
        (graph.ty(output).clone(), graph.ty(target).clone());
    if wanted.dtype != DType::F32 {
        return Err(LayerError("`mse` needs numbers as targets, but the data gives class indices; for those use `cross_entropy`".into()));
    }
    if given.shape.elements() != wanted.shape.elements()
        || given.shape.dims()[0] != wanted.shape.dims()[0]
    {
        return Err(LayerError(format!(
            "`mse` needs an output of the target's shape {}, but the model gives {}",
            batch_shape(&wanted.shape),
            batch_shape(&given.shape)
        )));
    }
    let batch = given.shape.dims()[0];
    let each = given.shape.elements() / batch;
    let output = graph.reshape(output, [batch, each])?;
    let target = graph.reshape(target, [batch, each])?;
    let error = map::binary(graph, Binary::Sub, output, target)?;
    let square = map::unary(graph, error, |code, x| code.mul(x, x))?;
    let rows = reduce::sum(graph, square, &[1])?;
    let rows = graph.reshape(rows, [batch])?;
    let weights = graph.constant(each as f32, [batch]);
    Ok(Loss { rows, weights, correct: None })
}
