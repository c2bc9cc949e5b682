//! How training samples are drawn: the key `sampling` of the `data` section.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::macros::{options, tagged};
use super::validate;

tagged! {
    /// How training samples are drawn, instead of each once in an epoch: at random with
    /// replacement.
    pub enum Sampling {
        /// Each class as often as the others.
        Balanced(Balanced) = "balanced",
        /// By weights of classes or of samples.
        Weighted(Weighted) = "weighted",
    }
}

options! {
    /// Draws each class as often as the others, whatever their numbers of samples are.
    pub struct Balanced {
        /// Samples of an epoch. Without it: as many as there are.
        samples: Option<usize> [1..],
    }
}

options! {
    /// Draws each sample with a probability in proportion to its weight. Either `classes` or
    /// `path` is given.
    pub struct Weighted checked_by validate::weighted {
        /// The weight of each sample of a class, by the name of the class; 1 where it is left out.
        classes: Option<BTreeMap<String, f64>>,
        /// A text file with the weight of each sample of `data.train`, one a line, in the order of
        /// the source.
        path: Option<PathBuf>,
        /// Samples of an epoch. Without it: as many as there are.
        samples: Option<usize> [1..],
    }
}
