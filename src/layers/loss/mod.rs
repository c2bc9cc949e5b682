//! Losses: what is minimised, as rows whose sums are statistics. One file for each loss or small
//! group; their options are in `config::loss`. Adding one is its options, a function here, and a
//! line in `losses!`.
//!
//! A loss is Σ rows / Σ weights, over everything that is evaluated, or over the whole window that
//! a step accumulates: so it does not depend on how samples are split into batches.

mod binary;
mod cross_entropy;
mod ctc;
mod dice;
mod distribution;
mod margin;
mod objective;
mod pairs;
mod regression;

pub use objective::{Divisor, Measure, Place, Statistics};
pub(super) use objective::{Sources, build};

use super::{LayerError, batch_shape};
use crate::config::loss::Loss;
use crate::graph::{DType, Graph, ShapeError, ValueId};
use crate::ops::concat::Slice;
use crate::ops::map::{self, Code, Reg};
use crate::ops::one_hot::OneHot;
use crate::ops::reduce;

/// A loss in the making: the graph, and what is compared.
struct LossCx<'a> {
    graph: &'a mut Graph,
    word: &'static str,
    output: ValueId,
    target: ValueId,
    /// Number of classes in the data, where the target is the data's and has any.
    classes: Option<usize>,
}

/// A loss in the graph.
struct Rows {
    /// Summands of the loss, of any shape.
    rows: ValueId,
    /// Summands of what it is divided by.
    weights: ValueId,
    /// What the weights add up to.
    divisor: Divisor,
    /// 1 for each row whose largest logit is the target, where that means something; its mean is
    /// over the same weights.
    correct: Option<ValueId>,
}

/// A kind of loss.
trait Criterion {
    /// Adds the loss to the graph.
    ///
    /// # Errors
    /// When output and target do not fit.
    fn build(&self, cx: &mut LossCx<'_>) -> Result<Rows, LayerError>;
}

macro_rules! losses {
    ($($name:ident),* $(,)?) => {
        fn criterion(loss: &Loss) -> &dyn Criterion {
            match loss {
                $(Loss::$name(options) => options),*
            }
        }
    };
}

losses! {
    CrossEntropy,
    Nll,
    BinaryCrossEntropy,
    Focal,
    Dice,
    Mse,
    L1,
    SmoothL1,
    Huber,
    KlDiv,
    GaussianNll,
    PoissonNll,
    Hinge,
    MultiMargin,
    HingeEmbedding,
    CosineEmbedding,
    TripletMargin,
    InfoNce,
    Ctc,
}

/// How an output holds logits of classes: `[outer, classes, inner]` beside targets
/// `[outer, inner]`.
#[derive(Clone, Copy)]
struct Classes {
    outer: usize,
    classes: usize,
    inner: usize,
}

/// Splits dims at an axis of classes.
fn split(dims: &[usize], axis: usize) -> Classes {
    Classes {
        outer: dims[..axis].iter().product(),
        classes: dims[axis],
        inner: dims[axis + 1..].iter().product(),
    }
}

/// The axis of classes: that of the channels in images, else the last one.
pub fn class_axis(rank: usize) -> usize {
    if rank == 4 { 1 } else { rank - 1 }
}

/// The axis of classes of an output beside targets that are class indices: where both would fit,
/// that of the channels in images, else the last one.
pub fn class_axis_of(given: &[usize], wanted: &[usize]) -> Option<usize> {
    let fits = |axis: &usize| {
        let (before, after) = (&given[..*axis], &given[*axis + 1..]);
        [before, after].concat() == wanted
    };
    let usual = (1..given.len()).contains(&1).then(|| class_axis(given.len()));
    let axes = usual.into_iter().chain((1..given.len()).rev());
    axes.filter(|axis| *axis == 1 || axis + 1 == given.len()).find(fits)
}

impl LossCx<'_> {
    fn error(&self, message: &str) -> LayerError {
        LayerError(format!("`{}` {message}", self.word))
    }

    fn batch(&self) -> usize {
        self.graph.shape(self.output).dims()[0]
    }

    fn dtype(&self) -> DType {
        self.graph.ty(self.target).dtype
    }

    fn shapes(&self) -> (Vec<usize>, Vec<usize>) {
        let dims = |value| self.graph.shape(value).dims().to_vec();
        (dims(self.output), dims(self.target))
    }

    /// The output and numbers of its shape as targets, both as `[batch, numbers]`.
    fn numbers(&mut self) -> Result<(ValueId, ValueId), LayerError> {
        if self.dtype() != DType::F32 {
            return Err(self.error(
                "needs numbers as targets, but the data gives class indices; for those use \
                 `cross_entropy`",
            ));
        }
        let (given, wanted) = (self.graph.shape(self.output), self.graph.shape(self.target));
        if given.elements() != wanted.elements() || given.dims().first() != wanted.dims().first() {
            return Err(self.error(&format!(
                "needs an output of the target's shape {}, but the model gives {}",
                batch_shape(wanted),
                batch_shape(given)
            )));
        }
        let (batch, each) = (self.batch(), given.elements() / self.batch());
        let x = self.graph.reshape(self.output, [batch, each])?;
        Ok((x, self.graph.reshape(self.target, [batch, each])?))
    }

    /// The output and what it should be between 0 and 1, both as `[batch, numbers]`: numbers as they
    /// are, class indices as one answer for each of several classes, or as the index itself where
    /// the output is one number.
    fn answers(&mut self) -> Result<(ValueId, ValueId), LayerError> {
        if self.dtype() == DType::F32 {
            return self.numbers();
        }
        let batch = self.batch();
        let each = self.graph.shape(self.output).elements() / batch;
        let wanted = if self.graph.shape(self.target).elements() == batch * each {
            self.second_class([batch, each])?
        } else {
            let layout = self.class_layout()?;
            let hot = self.one_hot(layout, i32::MIN)?;
            self.graph.reshape(hot, [batch, each])?
        };
        Ok((self.graph.reshape(self.output, [batch, each])?, wanted))
    }

    /// 1 where the target is the second of two classes, 0 where it is the first.
    fn second_class(&mut self, dims: [usize; 2]) -> Result<ValueId, LayerError> {
        let places = dims[0] * dims[1];
        let ids = self.graph.reshape(self.target, [places, 1])?;
        let hot = self.graph.op(OneHot { classes: 2, ignore_index: i32::MIN }, &[ids])?;
        let second = self.graph.op(Slice { axis: 1, start: 1, len: 1 }, &[hot])?;
        Ok(self.graph.reshape(second, dims)?)
    }

    /// 1 or −1 for each sample, `[batch, 1]`: numbers as they are, of two classes the first as −1.
    fn signs(&mut self) -> Result<ValueId, LayerError> {
        let batch = self.batch();
        if self.graph.shape(self.target).elements() != batch {
            return Err(self.error(&format!(
                "needs one target, 1 or -1, for each sample, but the data gives {}",
                batch_shape(self.graph.shape(self.target))
            )));
        }
        if self.dtype() == DType::F32 {
            return Ok(self.graph.reshape(self.target, [batch, 1])?);
        }
        let second = self.second_class([batch, 1])?;
        Ok(map::unary(self.graph, second, |code, y| {
            let twice = code.scale(y, 2.0);
            code.offset(twice, -1.0)
        })?)
    }

    /// How the output holds logits of classes for targets that are class indices.
    fn class_layout(&self) -> Result<Classes, LayerError> {
        let (given, wanted) = self.shapes();
        if self.dtype() != DType::I32 {
            return Err(self.error(
                "needs class indices as targets, but the data gives numbers; for those use `mse`",
            ));
        }
        let Some(axis) = class_axis_of(&given, &wanted) else {
            return Err(self.error(&format!(
                "needs logits of {} and one more axis for the classes, but the model gives {}",
                batch_shape(self.graph.shape(self.target)),
                batch_shape(self.graph.shape(self.output))
            )));
        };
        let layout = split(&given, axis);
        match self.classes.filter(|wanted| layout.classes < *wanted) {
            Some(wanted) => Err(LayerError(format!(
                "the data has {wanted} classes, but the model gives {} logits",
                layout.classes
            ))),
            None => Ok(layout),
        }
    }

    /// The output as `[outer, classes, inner]`.
    fn logits(&mut self, layout: Classes) -> Result<ValueId, ShapeError> {
        self.graph.reshape(self.output, [layout.outer, layout.classes, layout.inner])
    }

    /// The target as ones and zeros, `[outer, classes, inner]`.
    fn one_hot(&mut self, layout: Classes, ignore_index: i32) -> Result<ValueId, ShapeError> {
        let ids = self.graph.reshape(self.target, [layout.outer, layout.inner])?;
        self.graph.op(OneHot { classes: layout.classes, ignore_index }, &[ids])
    }

    /// Weights of classes as `[classes, 1]`; ones where there are none.
    fn class_weights(
        &mut self,
        weight: &Option<Vec<f64>>,
        classes: usize,
    ) -> Result<ValueId, LayerError> {
        match weight {
            None => Ok(self.graph.constant(1.0, [classes, 1])),
            Some(weight) if weight.len() == classes => {
                let values: Vec<f32> = weight.iter().map(|w| *w as f32).collect();
                Ok(self.graph.table(values.into(), [classes, 1])?)
            }
            Some(weight) => Err(self.error(&format!(
                "has a `weight` for {} classes, but the model gives {classes}",
                weight.len()
            ))),
        }
    }

    /// One value from each pair of elements of two equal shapes.
    fn pairwise(
        &mut self,
        x: ValueId,
        y: ValueId,
        build: impl FnOnce(&mut Code, Reg, Reg) -> Reg,
    ) -> Result<ValueId, ShapeError> {
        let shape = self.graph.shape(x).clone();
        let code = Code::of(|code| {
            let (x, y) = (code.input(0), code.input(1));
            build(code, x, y)
        });
        map::apply(self.graph, code, &[x, y], shape)
    }

    /// The mean over all elements of `[batch, numbers]`; rows are samples.
    fn mean(&mut self, loss: ValueId) -> Result<Rows, LayerError> {
        let each = self.graph.shape(loss).last();
        let rows = reduce::sum(self.graph, loss, &[1])?;
        self.samples(rows, each as f64)
    }

    /// The sum of a row for each sample, divided by `each` times their number.
    fn samples(&mut self, rows: ValueId, each: f64) -> Result<Rows, LayerError> {
        let batch = self.batch();
        let rows = self.graph.reshape(rows, [batch])?;
        let weights = self.graph.constant(each as f32, [batch]);
        Ok(Rows { rows, weights, divisor: Divisor::Each(each), correct: None })
    }
}

/// The positive part, max(0, x).
fn positive(code: &mut Code, x: Reg) -> Reg {
    let zero = code.constant(0.0);
    code.binary(map::Binary::Max, x, zero)
}

/// log(1 + eˣ) = log(1 + e^(−|x|)) + (|x| + x)/2: no exponential of a positive number, and the
/// right slope at 0.
fn softplus(code: &mut Code, x: Reg) -> Reg {
    let size = code.unary(map::Unary::Abs, x);
    let minus = code.unary(map::Unary::Neg, size);
    let small = code.unary(map::Unary::Exp, minus);
    let above = code.offset(small, 1.0);
    let bend = code.unary(map::Unary::Log, above);
    let both = code.add(size, x);
    let line = code.scale(both, 0.5);
    code.add(bend, line)
}
