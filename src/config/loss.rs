//! The `loss` and `penalties` sections: what is minimized. Built by `layers::loss`.

use serde_json::Value as Json;

use super::decode::{Cx, Decode};
use super::macros::{choices, options, tagged};
use super::metric::Metric;
use super::nearest::nearest;
use super::node::{Node, Value};
use super::schema::{Schema, above};
use super::values::{Name, OneOrMany};

/// What is minimized: one loss of the model's output, or a weighted sum over several outputs.
#[derive(Debug, Clone, PartialEq)]
pub enum Objective {
    /// Of the model's output against the data's target.
    One(Loss),
    /// Of named outputs, in the order in which they were written.
    Several(Vec<(Name, OutputLoss)>),
}

options! {
    /// The loss of one output.
    pub struct OutputLoss {
        /// What is minimized.
        loss: Loss,
        /// What its mean counts in the sum.
        weight: f64 [0.0..] = 1.0,
        /// What it is compared with: the data's target or one of the model's inputs, by name.
        /// Without it: the data's target.
        target: Option<Name>,
        /// What is reported of this output beside its loss.
        metrics: Vec<Metric> = Vec::new(),
    }
}

impl Decode for Objective {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            return Loss::decode(node, cx).map(Self::One);
        };
        let Schema::Tagged(variants) = Loss::schema() else { return None };
        let words: Vec<&str> = variants.iter().map(|variant| variant.word).collect();
        let known = |key: &str| words.contains(&key);
        let meant = |key: &str| nearest(key, words.iter().copied()).is_some();
        let one = entries.iter().any(|(key, _)| known(&key.text))
            || matches!(entries.as_slice(), [(key, _)] if meant(&key.text))
            || entries.is_empty();
        if one {
            return Loss::decode(node, cx).map(Self::One);
        }
        let terms: Vec<Option<(Name, OutputLoss)>> = entries
            .iter()
            .map(|(key, node)| {
                let term = cx.within(&key.text, |cx| OutputLoss::decode(node, cx))?;
                Some((Name { text: key.text.clone(), span: key.span }, term))
            })
            .collect();
        terms.into_iter().collect::<Option<_>>().map(Self::Several)
    }

    fn schema() -> Schema {
        let several = Schema::Table(Box::new(OutputLoss::schema()));
        Schema::Either(Box::new(Loss::schema()), Box::new(several))
    }

    fn to_json(&self) -> Json {
        match self {
            Self::One(loss) => loss.to_json(),
            Self::Several(terms) => {
                terms.iter().map(|(k, v)| (k.text.clone(), v.to_json())).collect()
            }
        }
    }
}

/// One output's part in the objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Term<'a> {
    /// The output's name; `None` for the model's output as such.
    pub name: Option<&'a Name>,
    /// Its loss.
    pub loss: &'a Loss,
    /// What the loss counts in the sum.
    pub weight: f64,
    /// What it is compared with, by name, where that is not the data's target.
    pub target: Option<&'a Name>,
    /// What is measured of it.
    pub metrics: &'a [Metric],
}

impl Term<'_> {
    /// The name that a value of this output is reported under, after `valid/`.
    pub fn reported(&self, value: &str) -> String {
        self.name.map_or(value.to_owned(), |name| format!("{}_{value}", name.text))
    }

    /// The name that its own loss is reported under, beside the whole objective's `loss`.
    pub fn loss_name(&self) -> String {
        format!("{}_loss", self.name.map_or(self.loss.word(), |name| &name.text))
    }
}

impl Objective {
    /// The parts of the sum. `metrics` are those of a sole output.
    pub fn terms<'a>(&'a self, metrics: &'a [Metric]) -> Vec<Term<'a>> {
        match self {
            Self::One(loss) => vec![Term { name: None, loss, weight: 1.0, target: None, metrics }],
            Self::Several(terms) => terms
                .iter()
                .map(|(name, term)| Term {
                    name: Some(name),
                    loss: &term.loss,
                    weight: term.weight,
                    target: term.target.as_ref(),
                    metrics: &term.metrics,
                })
                .collect(),
        }
    }
}

impl Penalty {
    /// The name that its value is reported under, after `valid/`.
    pub fn reported(&self) -> String {
        format!("{}_penalty", self.layer.text)
    }
}

options! {
    /// A penalty on the size of what a layer gives out, added to the loss: the sum over a sample,
    /// the mean over the batch.
    pub struct Penalty {
        /// The layer, by its `name`.
        layer: Name,
        /// Factor of the sum of absolute values.
        l1: f64 [0.0..] = 0.0,
        /// Factor of the sum of squares.
        l2: f64 [0.0..] = 0.0,
    }
}

tagged! {
    /// What is minimized: the mean over the batch.
    pub enum Loss {
        /// Cross entropy of the classes' softmax.
        CrossEntropy(CrossEntropy) = "cross_entropy",
        /// Negative log likelihood of log-probabilities.
        Nll(Nll) = "nll",
        /// Cross entropy of independent yes-or-no answers.
        BinaryCrossEntropy(BinaryCrossEntropy) = "binary_cross_entropy",
        /// Cross entropy that counts easy answers less.
        Focal(Focal) = "focal",
        /// One minus the overlap of what is predicted and what is.
        Dice(Dice) = "dice",
        /// Mean squared error.
        Mse(Mse) = "mse",
        /// Mean absolute error.
        L1(L1) = "l1",
        /// Squared error near zero, absolute error elsewhere.
        SmoothL1(SmoothL1) = "smooth_l1",
        /// Squared error near zero, absolute error elsewhere, scaled by `delta`.
        Huber(Huber) = "huber",
        /// Kullback-Leibler divergence from log-probabilities.
        KlDiv(KlDiv) = "kl_div",
        /// Negative log likelihood of a normal distribution.
        GaussianNll(GaussianNll) = "gaussian_nll",
        /// Negative log likelihood of counts.
        PoissonNll(PoissonNll) = "poisson_nll",
        /// Hinge loss of signs or of classes.
        Hinge(Hinge) = "hinge",
        /// Multi-class hinge loss.
        MultiMargin(MultiMargin) = "multi_margin",
        /// Hinge loss of distances.
        HingeEmbedding(HingeEmbedding) = "hinge_embedding",
        /// Angles between pairs of vectors.
        CosineEmbedding(CosineEmbedding) = "cosine_embedding",
        /// Distances among triplets of vectors.
        TripletMargin(TripletMargin) = "triplet_margin",
        /// Contrast of pairs within the batch.
        InfoNce(InfoNce) = "info_nce",
        /// Labels of a sequence without their places.
        Ctc(Ctc) = "ctc",
    }
}

options! {
    /// Cross entropy of the softmax of the model's outputs, one a class. Targets are class indices,
    /// or probabilities in the shape of the output.
    pub struct CrossEntropy checked_by super::validate::cross_entropy {
        /// The share of the target spread evenly over all classes.
        label_smoothing: f64 [0.0..1.0] = 0.0,
        /// Targets with this class do not count.
        ignore_index: i64 [f64::from(i32::MIN)..=f64::from(i32::MAX)] = -100,
        /// What each class counts; the mean is the weighted one.
        weight: Option<Vec<f64>> [0.0..],
    }
}

options! {
    /// Negative log likelihood: the model's outputs are log-probabilities, as `log_softmax` gives.
    pub struct Nll checked_by super::validate::nll {
        /// Targets with this class do not count.
        ignore_index: i64 [f64::from(i32::MIN)..=f64::from(i32::MAX)] = -100,
        /// What each class counts; the mean is the weighted one.
        weight: Option<Vec<f64>> [0.0..],
    }
}

options! {
    /// Cross entropy of independent yes-or-no answers; the model's outputs are logits, before the
    /// sigmoid. PyTorch's `BCEWithLogitsLoss`.
    pub struct BinaryCrossEntropy {
        /// What targets of 1 count beside those of 0: one number, or one for each output.
        pos_weight: Option<OneOrMany<f64>>,
    }
}

options! {
    /// Cross entropy of logits times (1 - p)^gamma, p the probability of what is: easy answers
    /// count less (Lin et al. 2017). Class indices are taken as one yes-or-no answer a class.
    pub struct Focal {
        /// What targets of 1 count; those of 0 count 1 - alpha. `null`: both count 1.
        alpha: Option<f64> [0.0..=1.0] = Some(0.25),
        /// How much less easy answers count.
        gamma: f64 [0.0..] = 2.0,
    }
}

options! {
    /// One minus the Dice coefficient of each class of each sample (Milletari et al. 2016, with
    /// plain sums below): softmax for class indices, sigmoid for numbers.
    pub struct Dice {
        /// Added above and below the line.
        smooth: f64 [above(0.0)] = 1.0,
    }
}

options! {
    /// Mean squared error over all outputs.
    pub struct Mse {}
}

options! {
    /// Mean absolute error over all outputs.
    pub struct L1 {}
}

options! {
    /// 0.5 d^2 / beta where the error d is below `beta`, |d| - 0.5 beta elsewhere.
    pub struct SmoothL1 {
        /// Where the square ends; 0 gives `l1`.
        beta: f64 [0.0..] = 1.0,
    }
}

options! {
    /// 0.5 d^2 where the error d is below `delta`, delta (|d| - 0.5 delta) elsewhere.
    pub struct Huber {
        /// Where the square ends.
        delta: f64 [above(0.0)] = 1.0,
    }
}

options! {
    /// Kullback-Leibler divergence of the model's outputs, which are log-probabilities, from the
    /// targets.
    pub struct KlDiv {
        /// Whether the targets are log-probabilities too.
        log_target: bool = false,
        /// What the sum is divided by.
        reduction: KlReduction = KlReduction::Mean,
    }
}

choices! {
    /// What the sum is divided by.
    pub enum KlReduction {
        /// The number of elements.
        Mean = "mean",
        /// The number of samples, which is the definition of the divergence.
        BatchMean = "batchmean",
    }
}

options! {
    /// Negative log likelihood of the targets under normal distributions. The model gives twice as
    /// many numbers as the target has, along the first axis after the batch: the means, then the
    /// variances, which are positive (a `softplus` sees to that).
    pub struct GaussianNll {
        /// Adds the constant term.
        full: bool = false,
        /// Smaller variances count as this.
        eps: f64 [above(0.0)] = 1e-6,
    }
}

options! {
    /// Negative log likelihood of counts under Poisson distributions.
    pub struct PoissonNll {
        /// Whether the model gives the logarithm of the rate.
        log_input: bool = true,
        /// Adds Stirling's approximation of log(target!) for targets above 1.
        full: bool = false,
        /// Added to the rate before its logarithm, where `log_input` is false.
        eps: f64 [above(0.0)] = 1e-8,
    }
}

options! {
    /// max(0, margin - target output)^p where the target is 1 or -1; of two classes the first stands
    /// for -1. With class indices beside several outputs it is `multi_margin`.
    pub struct Hinge {
        /// The power: 1 or 2.
        p: usize [1..=2] = 1,
        /// From where on an output on the right side costs nothing.
        margin: f64 = 1.0,
    }
}

options! {
    /// Hinge loss over classes: the mean of max(0, margin - x_target + x_other)^p.
    pub struct MultiMargin checked_by super::validate::multi_margin {
        /// The power: 1 or 2.
        p: usize [1..=2] = 1,
        /// By how much the target's output should lead.
        margin: f64 = 1.0,
        /// What each class counts.
        weight: Option<Vec<f64>> [0.0..],
    }
}

options! {
    /// The output itself where the target is 1, max(0, margin - output) where it is -1. Of two
    /// classes the first stands for -1.
    pub struct HingeEmbedding {
        /// What unlike pairs should exceed.
        margin: f64 = 1.0,
    }
}

options! {
    /// For a pair of vectors, `[batch, 2, features]`: 1 - cos where the target is 1,
    /// max(0, cos - margin) where it is -1. Of two classes the first stands for -1.
    pub struct CosineEmbedding {
        /// What the cosine of unlike pairs may be.
        margin: f64 [-1.0..=1.0] = 0.0,
    }
}

options! {
    /// For an anchor, a positive and a negative, `[batch, 3, features]`: max(0, distance to the
    /// positive - distance to the negative + margin). Needs no target.
    pub struct TripletMargin {
        /// By how much the negative should be farther away.
        margin: f64 [above(0.0)] = 1.0,
        /// The norm of the distance: 1 or 2.
        p: usize [1..=2] = 2,
        /// Added to each difference.
        eps: f64 [0.0..] = 1e-6,
        /// Takes the distance from the positive to the negative where that is smaller.
        swap: bool = false,
    }
}

options! {
    /// For a pair of vectors, `[batch, 2, features]`: cross entropy of finding each one's partner
    /// among all in the batch by its cosine, both ways (van den Oord et al. 2018; Radford et al.
    /// 2021). Needs no target; the negatives are those of the same batch, so it depends on
    /// `batch_size` even where batches are accumulated.
    pub struct InfoNce {
        /// What cosines are divided by.
        temperature: f64 [above(0.0)] = 0.07,
    }
}

options! {
    /// Connectionist temporal classification (Graves et al. 2006): labels `[batch, labels]` of
    /// sequences whose places are not known, beside logits or log-probabilities
    /// `[batch, time, classes]`. A sample's labels end at its first blank or negative number; its
    /// loss counts over their number.
    pub struct Ctc {
        /// The class that stands for no label.
        blank: usize = 0,
        /// Takes samples whose labels do not fit into their time as 0; else the run stops there.
        zero_infinity: bool = false,
    }
}

/// What a loss compares the output with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compares {
    /// Class indices.
    Classes,
    /// Numbers.
    Numbers,
    /// Either.
    Either,
    /// Nothing but the output.
    Nothing,
}

/// What the output of a loss is, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Predicts {
    /// Logits of classes of which one is right.
    Classes,
    /// Logits of answers that are yes or no by themselves.
    Answers,
    /// Numbers.
    Numbers,
    /// Vectors or distributions that are not compared one by one.
    Other,
}

impl Loss {
    /// What it compares the output with.
    pub fn compares(&self) -> Compares {
        match self {
            Self::Nll(_) | Self::MultiMargin(_) | Self::Ctc(_) => Compares::Classes,
            Self::CrossEntropy(_)
            | Self::BinaryCrossEntropy(_)
            | Self::Focal(_)
            | Self::Dice(_)
            | Self::Hinge(_)
            | Self::HingeEmbedding(_)
            | Self::CosineEmbedding(_) => Compares::Either,
            Self::TripletMargin(_) | Self::InfoNce(_) => Compares::Nothing,
            Self::Mse(_)
            | Self::L1(_)
            | Self::SmoothL1(_)
            | Self::Huber(_)
            | Self::KlDiv(_)
            | Self::GaussianNll(_)
            | Self::PoissonNll(_) => Compares::Numbers,
        }
    }

    /// What its output is.
    pub fn predicts(&self) -> Predicts {
        match self {
            Self::CrossEntropy(_) | Self::Nll(_) | Self::MultiMargin(_) => Predicts::Classes,
            Self::BinaryCrossEntropy(_) | Self::Focal(_) | Self::Dice(_) | Self::Hinge(_) => {
                Predicts::Answers
            }
            Self::Mse(_) | Self::L1(_) | Self::SmoothL1(_) | Self::Huber(_) => Predicts::Numbers,
            _ => Predicts::Other,
        }
    }

    /// Whether e to its mean is the perplexity.
    pub fn is_plain_cross_entropy(&self) -> bool {
        match self {
            Self::CrossEntropy(o) => o.label_smoothing == 0.0 && o.weight.is_none(),
            Self::Nll(o) => o.weight.is_none(),
            _ => false,
        }
    }
}
