//! The `metrics` section: what is measured beside the loss. Computed by `train::metrics`.

use super::loss::{Loss, Predicts};
use super::macros::{choices, options, tagged};

tagged! {
    /// What is reported beside the loss.
    pub enum Metric {
        /// The share of targets that the largest output names.
        Accuracy(Accuracy) = "accuracy",
        /// The share of targets among the largest outputs.
        TopK(TopK) = "top_k",
        /// The share of right ones among those that are named.
        Precision(Precision) = "precision",
        /// The share of those that are named among all.
        Recall(Recall) = "recall",
        /// The harmonic mean of precision and recall.
        F1(F1) = "f1",
        /// How often each class is taken for each.
        ConfusionMatrix(ConfusionMatrix) = "confusion_matrix",
        /// Area under the receiver operating characteristic.
        RocAuc(RocAuc) = "roc_auc",
        /// Area under precision over recall.
        AveragePrecision(AveragePrecision) = "average_precision",
        /// Expected calibration error.
        CalibrationError(CalibrationError) = "calibration_error",
        /// Intersection over union, the mean over classes.
        MeanIou(MeanIou) = "mean_iou",
        /// The share of pixels of which the class is right.
        PixelAccuracy(PixelAccuracy) = "pixel_accuracy",
        /// e to the mean cross entropy.
        Perplexity(Perplexity) = "perplexity",
        /// Cross entropy in bits for each byte of the text.
        BitsPerByte(BitsPerByte) = "bits_per_byte",
        /// Mean absolute error.
        Mae(Mae) = "mae",
        /// Root of the mean squared error.
        Rmse(Rmse) = "rmse",
        /// Coefficient of determination.
        R2(R2) = "r2",
    }
}

choices! {
    /// How the values of several classes become one.
    pub enum Average {
        /// Their mean; classes that are neither named nor there do not count.
        Macro = "macro",
        /// Of all decisions together.
        Micro = "micro",
        /// One value for each class.
        PerClass = "per_class",
    }
}

options! {
    /// The share of targets that the largest output names; for yes-or-no answers, the share of
    /// answers that are right.
    pub struct Accuracy {}
}

options! {
    /// The share of targets that are among the `k` largest outputs. Reported as `top_5` and so on.
    pub struct TopK {
        /// How many outputs are looked at.
        k: usize [1..] = 5,
    }
}

options! {
    /// Of the places where a class is named, the share where it is right; 0 where it is never named.
    pub struct Precision {
        /// How classes are averaged.
        average: Average = Average::Macro,
    }
}

options! {
    /// Of the places where a class is, the share where it is named; 0 where it never is.
    pub struct Recall {
        /// How classes are averaged.
        average: Average = Average::Macro,
    }
}

options! {
    /// The harmonic mean of precision and recall.
    pub struct F1 {
        /// How classes are averaged.
        average: Average = Average::Macro,
    }
}

options! {
    /// How often each class (row) is taken for each (column).
    pub struct ConfusionMatrix {}
}

options! {
    /// Area under the receiver operating characteristic; of several classes, each against the
    /// rest and then the mean. Keeps a score for each sample and class.
    pub struct RocAuc {}
}

options! {
    /// Sum of precision times gain in recall over all thresholds; of several classes, each against
    /// the rest and then the mean. Keeps a score for each sample and class.
    pub struct AveragePrecision {}
}

options! {
    /// The mean gap between confidence and accuracy over bins of confidence (Guo et al. 2017).
    pub struct CalibrationError {
        /// Number of bins of equal width.
        bins: usize [1..] = 15,
    }
}

options! {
    /// Intersection over union of each class over the whole set, then the mean over the classes
    /// that are there or named.
    pub struct MeanIou {}
}

options! {
    /// The share of pixels of which the class is right.
    pub struct PixelAccuracy {}
}

options! {
    /// e to the mean cross entropy: the loss must be a plain one, without smoothing and weights.
    pub struct Perplexity {}
}

options! {
    /// Cross entropy in bits for each byte of the text, so that tokenizers can be compared.
    pub struct BitsPerByte {}
}

options! {
    /// Mean absolute error over all outputs.
    pub struct Mae {}
}

options! {
    /// Root of the mean squared error over all outputs.
    pub struct Rmse {}
}

options! {
    /// Coefficient of determination, 1 - residual sum of squares / total sum of squares, the mean
    /// over outputs.
    pub struct R2 {}
}

impl Metric {
    /// The name that its value is reported under, after `valid/`.
    pub fn name(&self) -> String {
        let average = match self {
            Self::TopK(o) => return format!("top_{}", o.k),
            Self::Precision(o) => o.average,
            Self::Recall(o) => o.average,
            Self::F1(o) => o.average,
            _ => Average::Macro,
        };
        match average {
            Average::Macro => self.word().to_owned(),
            other => format!("{}_{}", self.word(), other.word()),
        }
    }

    /// Whether its value is one number, which can be watched.
    pub fn is_number(&self) -> bool {
        let average = match self {
            Self::ConfusionMatrix(_) => return false,
            Self::Precision(o) => o.average,
            Self::Recall(o) => o.average,
            Self::F1(o) => o.average,
            _ => return true,
        };
        average != Average::PerClass
    }

    /// Whether smaller values of a metric or loss are better, by its name.
    pub fn smaller_is_better(name: &str) -> bool {
        let words =
            ["loss", "penalty", "mae", "rmse", "perplexity", "bits_per_byte", "calibration_error"];
        let last = name.rsplit('/').next().unwrap_or(name);
        words.iter().any(|word| {
            last.strip_suffix(word).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'))
        })
    }

    /// What keeps it from being measured beside a loss, if anything does. `classes` is whether the
    /// target is class indices.
    pub fn unfit(&self, loss: &Loss, classes: bool) -> Option<String> {
        let word = self.word();
        let beside = loss.word();
        let needs = |what: &str| Some(format!("`{word}` needs {what}, and `{beside}` has none"));
        match self {
            Self::Perplexity(_) | Self::BitsPerByte(_) => {
                let plain = loss.is_plain_cross_entropy() && classes;
                let why = "is made of a cross entropy without `label_smoothing` and `weight`";
                (!plain).then(|| format!("`{word}` {why}"))
            }
            Self::Mae(_) | Self::Rmse(_) | Self::R2(_) => {
                if loss.predicts() == Predicts::Numbers {
                    None
                } else {
                    needs("numbers")
                }
            }
            Self::TopK(_) => match loss.predicts() {
                Predicts::Classes if classes => None,
                _ => needs("classes of which one is right"),
            },
            _ => match loss.predicts() {
                Predicts::Classes if classes => None,
                Predicts::Answers => None,
                _ => needs("classes"),
            },
        }
    }
}
