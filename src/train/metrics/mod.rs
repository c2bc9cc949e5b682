//! Metrics that need each prediction: streamed over the batches of a set, exact over all of it.
//! One file for each group; adding one is a line in `accumulator`.

mod calibration;
mod classes;
mod ranking;
mod regression;

use serde_json::Value as Json;

use crate::config::loss::{Predicts, Term};
use crate::config::metric::Metric;
use crate::device::{DeviceError, Executor};
use crate::graph::{DType, TensorType};
use crate::layers::loss::{Divisor, class_axis, class_axis_of};
use crate::plan::Program;

use super::compile::Compiled;

/// Predictions beside what is, row by row.
#[derive(Debug)]
pub enum Batch<'a> {
    /// Logits `[rows, classes]` and the class of each row; ignored targets are left out.
    Classes {
        /// The logits.
        logits: &'a [f32],
        /// How many there are in a row.
        classes: usize,
        /// The classes.
        targets: &'a [usize],
    },
    /// Logits of yes-or-no answers `[rows, labels]` and the right answers.
    Answers {
        /// The logits.
        logits: &'a [f32],
        /// How many there are in a row.
        labels: usize,
        /// The right answers.
        targets: &'a [bool],
    },
    /// Numbers `[rows, outputs]` and the right ones.
    Numbers {
        /// What the model gives.
        values: &'a [f32],
        /// How many there are in a row.
        outputs: usize,
        /// The right ones.
        targets: &'a [f32],
    },
}

/// The value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One number.
    Number(f64),
    /// Numbers for each class, or a matrix.
    Table(Json),
    /// The set does not say: it has no example of a class, or no spread.
    Undefined,
}

/// A metric in the making.
pub trait Accumulator {
    /// Takes in a batch; all batches of a run are of one kind.
    fn update(&mut self, batch: &Batch<'_>);

    /// The value over everything taken in.
    fn value(&self) -> Value;
}

/// The accumulator of a metric, unless it is made of the statistics alone.
pub fn accumulator(metric: &Metric) -> Option<Box<dyn Accumulator>> {
    use classes::{Confusion, Counted, Counts, TopK};
    let counted = |value| Some(Box::new(Counted::new(value)) as Box<dyn Accumulator>);
    match metric {
        Metric::Accuracy(_) | Metric::PixelAccuracy(_) => counted(Counts::accuracy),
        Metric::TopK(o) => Some(Box::new(TopK::new(o.k))),
        Metric::Precision(o) => Some(Box::new(Counted::averaged(Counts::precision, o.average))),
        Metric::Recall(o) => Some(Box::new(Counted::averaged(Counts::recall, o.average))),
        Metric::F1(o) => Some(Box::new(Counted::averaged(Counts::f1, o.average))),
        Metric::MeanIou(_) => counted(Counts::mean_iou),
        Metric::ConfusionMatrix(_) => Some(Box::new(Confusion::default())),
        Metric::RocAuc(_) => Some(Box::new(ranking::Ranked::new(ranking::roc_auc))),
        Metric::AveragePrecision(_) => {
            Some(Box::new(ranking::Ranked::new(ranking::average_precision)))
        }
        Metric::CalibrationError(o) => Some(Box::new(calibration::Calibration::new(o.bins))),
        Metric::Mae(_) => Some(Box::new(regression::Errors::new(f64::abs, |mean| mean))),
        Metric::Rmse(_) => Some(Box::new(regression::Errors::new(|d| d * d, f64::sqrt))),
        Metric::R2(_) => Some(Box::new(regression::Determination::default())),
        Metric::Perplexity(_) | Metric::BitsPerByte(_) => None,
    }
}

/// The metrics of one output.
struct Stream {
    output: usize,
    target: usize,
    predicts: Predicts,
    ignore_index: Option<i32>,
    metrics: Vec<(String, Box<dyn Accumulator>)>,
}

/// The metrics of a whole set.
pub(super) struct Streams(Vec<Stream>);

impl Streams {
    /// For what the configuration asks of each output and the device does not give.
    pub(super) fn new(compiled: &Compiled, terms: &[Term<'_>]) -> Self {
        let mut streams = Vec::new();
        for measure in &compiled.eval_statistics.measures {
            let Some(place) = &measure.place else { continue };
            let term = &terms[place.term];
            let on_device =
                |m: &Metric| matches!(m, Metric::Accuracy(_)) && measure.accuracy.is_some();
            let metrics: Vec<_> = (term.metrics.iter().filter(|metric| !on_device(metric)))
                .filter_map(|m| Some((term.reported(&m.name()), accumulator(m)?)))
                .collect();
            let ignore_index = match &measure.divisor {
                Divisor::Classes { ignore_index, .. } => Some(*ignore_index),
                Divisor::Each(_) => None,
            };
            if !metrics.is_empty() {
                let (output, target) = (place.output, place.target);
                let predicts = term.loss.predicts();
                streams.push(Stream { output, target, predicts, ignore_index, metrics });
            }
        }
        Streams(streams)
    }

    /// Whether outputs are read back, so that each batch is waited for.
    pub(super) fn read_outputs(&self) -> bool {
        !self.0.is_empty()
    }

    /// Reads back what the program has just computed.
    pub(super) fn update(
        &mut self,
        executor: &mut dyn Executor,
        program: &Program,
        inputs: &[&[u8]],
    ) -> Result<(), DeviceError> {
        for stream in &mut self.0 {
            let (slot, output) = &program.outputs[stream.output];
            let values = bytemuck::pod_collect_to_vec::<u8, f32>(&executor.read(*slot)?);
            let target = (inputs[stream.target], &program.inputs[stream.target].1);
            stream.update(&values, output, target);
        }
        Ok(())
    }

    /// The values, by name.
    pub(super) fn values(&self) -> impl Iterator<Item = (&str, Value)> {
        let all = self.0.iter().flat_map(|stream| &stream.metrics);
        all.map(|(name, metric)| (name.as_str(), metric.value()))
    }
}

impl Stream {
    fn update(&mut self, values: &[f32], output: &TensorType, target: (&[u8], &TensorType)) {
        let (bytes, ty) = target;
        let given = output.shape.dims();
        let same = output.shape.elements() == ty.shape.elements();
        let mut take = |batch: Batch<'_>| {
            self.metrics.iter_mut().for_each(|(_, metric)| metric.update(&batch));
        };
        if ty.dtype == DType::F32 {
            let targets = bytemuck::pod_collect_to_vec::<u8, f32>(bytes);
            if self.predicts == Predicts::Numbers {
                let outputs = output.shape.elements() / given[0];
                return take(Batch::Numbers { values, outputs, targets: &targets });
            }
            let (logits, labels) = rows(values, given, label_axis(given));
            let (targets, _) = rows(&targets, given, label_axis(given));
            let targets: Vec<bool> = targets.iter().map(|y| *y > 0.5).collect();
            return take(Batch::Answers { logits: &logits, labels, targets: &targets });
        }
        let ids = bytemuck::pod_collect_to_vec::<u8, i32>(bytes);
        if same && self.predicts == Predicts::Answers {
            let targets: Vec<bool> = ids.iter().map(|id| *id == 1).collect();
            return take(Batch::Answers { logits: values, labels: 1, targets: &targets });
        }
        let Some(axis) = class_axis_of(given, ty.shape.dims()) else { return };
        let (logits, classes) = rows(values, given, Some(axis));
        let counted =
            |id: &i32| usize::try_from(*id).ok().filter(|_| Some(*id) != self.ignore_index);
        let kept: Vec<usize> = ids.iter().filter_map(counted).collect();
        let logits: Vec<f32> = (logits.chunks_exact(classes).zip(&ids))
            .filter(|(_, id)| counted(id).is_some())
            .flat_map(|(row, _)| row.iter().copied())
            .collect();
        take(Batch::Classes { logits: &logits, classes, targets: &kept });
    }
}

/// The axis of labels of an output that is answers; none where each sample has one.
fn label_axis(dims: &[usize]) -> Option<usize> {
    (dims.len() > 1).then(|| class_axis(dims.len()))
}

/// Values with an axis moved to the end, as rows, and the rows' length.
fn rows(values: &[f32], dims: &[usize], axis: Option<usize>) -> (Vec<f32>, usize) {
    let Some(axis) = axis else { return (values.to_vec(), 1) };
    let (classes, inner) = (dims[axis], dims[axis + 1..].iter().product::<usize>());
    if inner == 1 {
        return (values.to_vec(), classes);
    }
    let block = classes * inner;
    let moved = values.chunks_exact(block).flat_map(|block| {
        (0..inner).flat_map(move |at| (0..classes).map(move |class| block[class * inner + at]))
    });
    (moved.collect(), classes)
}

/// The first index of the largest.
fn largest(row: &[f32]) -> usize {
    row.iter().enumerate().fold(0, |best, (at, value)| if *value > row[best] { at } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::decode::all_defaults;
    use crate::graph::Shape;

    fn stream(metric: &Metric, predicts: Predicts, ignore_index: Option<i32>) -> Stream {
        let metrics: Vec<_> =
            accumulator(metric).into_iter().map(|a| (String::from("metric"), a)).collect();
        Stream { output: 0, target: 0, predicts, ignore_index, metrics }
    }

    /// Three classes over images of 1×2: the classes of a pixel lie two numbers apart, and one pixel
    /// of four is ignored.
    #[test]
    fn pixels_are_rows_and_ignored_ones_are_left_out() {
        let logits = [0.0, 9.0, 5.0, 1.0, 1.0, 1.0, 3.0, 0.0, 2.0, 8.0, 1.0, 1.0];
        let targets = [1_i32, 0, 255, 2];
        let output = TensorType::f32([2, 3, 1, 2]);
        let target = TensorType::i32([2, 1, 2]);
        let bytes: &[u8] = bytemuck::cast_slice(&targets);
        let metric = Metric::ConfusionMatrix(all_defaults());
        let mut stream = stream(&metric, Predicts::Classes, Some(255));
        stream.update(&logits, &output, (bytes, &target));
        let wanted = serde_json::json!([[1, 0, 0], [0, 1, 0], [0, 1, 0]]);
        assert_eq!(stream.metrics[0].1.value(), Value::Table(wanted));
    }

    /// Two labels over images of 1×2.
    #[test]
    fn labels_of_images_are_channels() {
        let logits = [1.0, -1.0, 2.0, 2.0];
        let targets = [1.0_f32, 1.0, 0.0, 1.0];
        let ty = TensorType::f32(Shape::new([1, 2, 1, 2]));
        let bytes: &[u8] = bytemuck::cast_slice(&targets);
        let metric = Metric::ConfusionMatrix(all_defaults());
        let mut stream = stream(&metric, Predicts::Answers, None);
        stream.update(&logits, &ty, (bytes, &ty));
        let wanted = serde_json::json!([[[0, 0], [1, 1]], [[0, 1], [0, 1]]]);
        assert_eq!(stream.metrics[0].1.value(), Value::Table(wanted));
    }
}
