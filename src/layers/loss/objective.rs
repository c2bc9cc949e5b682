//! What is minimised in all: the weighted sum of the outputs' losses and of the penalties, and
//! what its parts are among a step's statistics.

use super::{LossCx, criterion};
use crate::config::loss::{Penalty, Term};
use crate::config::metric::Metric;
use crate::graph::{Graph, Leaf, ShapeError, TensorType, ValueId};
use crate::layers::{LayerError, Mode};
use crate::ops::concat::Slice;
use crate::ops::map::{self, Code, Unary};
use crate::ops::reduce;

/// What the weights of a loss add up to. The host can tell it from the targets alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Divisor {
    /// This much for each sample.
    Each(f64),
    /// The weight of each target's class, and nothing for ignored ones.
    Classes {
        /// What is ignored.
        ignore_index: i32,
        /// Weights of the classes; `None` where all count 1.
        weight: Option<Vec<f32>>,
    },
}

impl Divisor {
    pub(super) fn classes(ignore_index: i32, weight: &Option<Vec<f64>>) -> Self {
        let weight = weight.as_ref().map(|all| all.iter().map(|w| *w as f32).collect());
        Divisor::Classes { ignore_index, weight }
    }

    /// What a batch of this many samples with these bytes as targets adds to it.
    fn of(&self, samples: usize, target: &[u8]) -> f64 {
        match self {
            Divisor::Each(each) => *each * samples as f64,
            Divisor::Classes { ignore_index, weight } => {
                let ids = bytemuck::pod_collect_to_vec::<u8, i32>(target);
                let counted = ids.iter().filter(|id| *id != ignore_index);
                let weight_of = |id: &i32| match weight {
                    Some(weight) => {
                        usize::try_from(*id).ok().and_then(|id| weight.get(id)).map_or(0.0, |w| *w)
                    }
                    None => 1.0,
                };
                counted.map(|id| f64::from(weight_of(id))).sum()
            }
        }
    }
}

/// Where a part of the objective is in a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Index of the output among the program's.
    pub output: usize,
    /// Index of the target among the batch's inputs.
    pub target: usize,
    /// Index of the loss among the objective's terms in the configuration.
    pub term: usize,
}

/// A part of the objective among the statistics: the sum of its rows, of their weights, and, for
/// some, of the rows that are right.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// The name that its mean is reported under; `None` where the objective has no other part.
    pub name: Option<String>,
    /// The name that the share of right rows is reported under, where that is asked for.
    pub accuracy: Option<String>,
    /// What its mean counts in the objective.
    pub weight: f64,
    /// What its weights add up to.
    pub divisor: Divisor,
    /// Its output and target; `None` for a penalty.
    pub place: Option<Place>,
    /// Index of the sum of its rows; that of their weights is the next, and that of the right rows
    /// the one after.
    pub index: usize,
}

impl Measure {
    /// The mean, from sums of the statistics; 0 where nothing counted.
    pub fn mean(&self, sums: &[f64]) -> f64 {
        let weight = sums[self.index + 1];
        if weight == 0.0 { 0.0 } else { sums[self.index] / weight }
    }
}

/// The statistics of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// The objective's parts.
    pub measures: Vec<Measure>,
    /// How many statistics there are.
    pub count: usize,
    /// Index of the one that gradients are divided by.
    pub divisor: usize,
    /// Whether training takes the factors of the parts as its last batch input.
    pub takes_factors: bool,
}

impl Statistics {
    /// The objective, from sums of the statistics.
    pub fn objective(&self, sums: &[f64]) -> f64 {
        self.measures.iter().map(|measure| measure.weight * measure.mean(sums)).sum()
    }

    /// The factor of each part's rows in a window, whose batches are given by their sizes and
    /// inputs: weight · samples / divisor, so that the gradient, divided by the samples, is that of
    /// the weighted means over the whole window. `None` where training takes none.
    pub fn factors(&self, window: &[(usize, Vec<&[u8]>)]) -> Option<Vec<f32>> {
        let samples: usize = window.iter().map(|(size, _)| size).sum();
        let factor = |measure: &Measure| {
            let target = measure.place.as_ref().map(|place| place.target);
            let part = |(size, inputs): &(usize, Vec<&[u8]>)| {
                measure.divisor.of(*size, target.map_or(&[], |target| inputs[target]))
            };
            let divisor: f64 = window.iter().map(part).sum();
            let scale = if divisor == 0.0 { 0.0 } else { samples as f64 / divisor };
            (measure.weight * scale) as f32
        };
        self.takes_factors.then(|| self.measures.iter().map(factor).collect())
    }
}

/// A term with what it is built from.
pub(in crate::layers) struct Sources<'a> {
    /// The term.
    pub(in crate::layers) term: Term<'a>,
    /// Its output.
    pub(in crate::layers) output: ValueId,
    /// Its target.
    pub(in crate::layers) target: ValueId,
    /// Number of classes in the data, where the target is the data's.
    pub(in crate::layers) classes: Option<usize>,
    /// Where they are.
    pub(in crate::layers) place: Place,
}

/// The objective in a graph.
pub(in crate::layers) struct Built {
    /// Rows with factors: Σ factor · rows is what is minimised.
    pub(in crate::layers) losses: Vec<(ValueId, f32)>,
    /// Vectors whose sums are the statistics.
    pub(in crate::layers) stats: Vec<ValueId>,
    /// What they are.
    pub(in crate::layers) statistics: Statistics,
    /// The batch input that takes the factors.
    pub(in crate::layers) factors: Option<ValueId>,
}

/// Adds the objective to a graph whose batch inputs are `inputs` many. An error says which term it
/// is about.
pub(in crate::layers) fn build(
    graph: &mut Graph,
    terms: &[Sources<'_>],
    penalties: &[(&Penalty, ValueId)],
    (batch, inputs): (usize, usize),
    mode: Mode,
) -> Result<Built, (usize, LayerError)> {
    let mut parts: Vec<(ValueId, Measure)> = Vec::new();
    let mut stats = Vec::new();
    let alone = terms.len() + penalties.len() == 1;
    for (index, source) in terms.iter().enumerate() {
        let term = &source.term;
        let mut cx = LossCx {
            graph: &mut *graph,
            word: term.loss.word(),
            output: source.output,
            target: source.target,
            classes: source.classes,
        };
        let rows = criterion(term.loss).build(&mut cx).map_err(|error| (index, error))?;
        let wanted = term.metrics.iter().any(|metric| matches!(metric, Metric::Accuracy(_)));
        let correct = rows.correct.filter(|_| wanted);
        let measure = Measure {
            name: (!alone || term.name.is_some()).then(|| term.loss_name()),
            accuracy: correct.map(|_| term.reported("accuracy")),
            weight: term.weight,
            divisor: rows.divisor,
            place: Some(source.place.clone()),
            index: stats.len(),
        };
        parts.push((rows.rows, measure));
        stats.extend([rows.rows, rows.weights]);
        stats.extend(correct);
    }
    let finish = |graph: &mut Graph| -> Result<Built, ShapeError> {
        for (penalty, value) in penalties {
            let rows = penalty_rows(graph, penalty, *value, batch)?;
            let measure = Measure {
                name: Some(penalty.reported()),
                accuracy: None,
                weight: 1.0,
                divisor: Divisor::Each(1.0),
                place: None,
                index: stats.len(),
            };
            parts.push((rows, measure));
            stats.extend([rows, graph.constant(1.0, [batch])]);
        }
        sum(graph, parts, stats, (batch, inputs), mode)
    };
    finish(graph).map_err(|error| (0, error.into()))
}

/// l1·Σ|x| + l2·Σx² of each sample.
fn penalty_rows(
    graph: &mut Graph,
    penalty: &Penalty,
    value: ValueId,
    batch: usize,
) -> Result<ValueId, ShapeError> {
    let each = graph.shape(value).elements() / batch;
    let x = graph.reshape(value, [batch, each])?;
    let size = map::unary(graph, x, |code, x| {
        let (one, square) = (code.unary(Unary::Abs, x), code.mul(x, x));
        let (one, square) =
            (code.scale(one, penalty.l1 as f32), code.scale(square, penalty.l2 as f32));
        code.add(one, square)
    })?;
    let rows = reduce::sum(graph, size, &[1])?;
    graph.reshape(rows, [batch])
}

/// The weighted sum of the parts. One part alone is divided by its own weights. Several are divided
/// by the number of samples, and their rows have factors that make up for the difference; these
/// are constants unless some part's divisor depends on the targets.
fn sum(
    graph: &mut Graph,
    parts: Vec<(ValueId, Measure)>,
    mut stats: Vec<ValueId>,
    (batch, inputs): (usize, usize),
    mode: Mode,
) -> Result<Built, ShapeError> {
    let (rows, measures): (Vec<ValueId>, Vec<Measure>) = parts.into_iter().unzip();
    let each = |measure: &Measure| match measure.divisor {
        Divisor::Each(each) => Some((measure.weight / each) as f32),
        Divisor::Classes { .. } => None,
    };
    let mut losses = Vec::new();
    let mut factors = None;
    let mut takes_factors = false;
    let mut divisor = measures[0].index + 1;
    let constant: Option<Vec<f32>> = measures.iter().map(each).collect();
    if let [measure] = measures.as_slice() {
        losses.push((rows[0], measure.weight as f32));
    } else {
        divisor = stats.len();
        stats.push(graph.constant(1.0, [batch]));
        takes_factors = constant.is_none();
        match constant {
            Some(constant) => losses.extend(rows.into_iter().zip(constant)),
            None if mode == Mode::Train => {
                let ty = TensorType::f32([measures.len()]);
                let all = graph.leaf(Leaf::Input(inputs), ty);
                for (start, rows) in rows.into_iter().enumerate() {
                    let factor = graph.op(Slice { axis: 0, start, len: 1 }, &[all])?;
                    let code = Code::of(|code| {
                        let (rows, factor) = (code.input(0), code.input(1));
                        code.mul(rows, factor)
                    });
                    let shape = graph.shape(rows).clone();
                    losses.push((map::apply(graph, code, &[rows, factor], shape)?, 1.0));
                }
                factors = Some(all);
            }
            None => {}
        }
    }
    let statistics = Statistics { measures, count: stats.len(), divisor, takes_factors };
    Ok(Built { losses, stats, statistics, factors })
}
