//! The `data` section: where samples come from. Read by the `data` room.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value as Json, json};

use super::augment::Augment;
use super::decode::{Bounded, Cx, Decode, decode_variant};
use super::macros::{choices, options, tagged};
use super::node::{Node, ScalarKind};
use super::schema::{Range, Schema, Variant};
use super::validate;
use super::values::OneOrMany;

options! {
    /// Where the samples come from and how they are prepared. Paths are relative to the folder
    /// the command runs in.
    pub struct Data checked_by validate::data {
        /// The samples to train on.
        train: Source,
        /// The samples to measure progress on: a source, or a share of the training samples.
        valid: Option<Valid>,
        /// Samples for `wootz eval`.
        test: Option<Source>,
        /// Shifts and scales each channel of an image.
        normalize: Option<Normalize>,
        /// Random changes made to training images, in this order, before `normalize`.
        augment: Vec<Augment> = Vec::new(),
        /// Threads that prepare batches. Without it: one for each core. The batches do not depend
        /// on it.
        workers: Option<usize> [1..=1024],
        /// Megabytes of batches that are prepared before they are asked for; one step at least.
        prefetch_mb: usize [1..] = 64,
    }
}

tagged! {
    /// A set of samples.
    pub enum Source {
        /// Images and labels in the IDX format, as MNIST has.
        Idx(Idx) = "idx",
        /// A table.
        Csv(Csv) = "csv",
        /// Text for next-token prediction.
        Text(Text) = "text",
        /// The binary version of CIFAR-10.
        Cifar10(Cifar10) = "cifar10",
        /// Generated samples, for trying things out and for measuring speed.
        Synthetic(Synthetic) = "synthetic",
    }
}

options! {
    /// Images and labels in the IDX format, as MNIST has. Files may be gzipped.
    pub struct Idx {
        /// The file of images.
        images: PathBuf,
        /// The file of labels.
        labels: PathBuf,
        /// What pixel values are divided by. Without it: what those of `data.train` are, or 255.
        scale: Option<f64> [super::schema::above(0.0)],
    }
}

options! {
    /// A table: one sample a row.
    pub struct Csv checked_by validate::csv {
        /// The file.
        path: PathBuf,
        /// The column to predict: its name, or its number from 0.
        target: Column,
        /// The columns to predict from. Without it: all but the target.
        features: Option<Vec<Column>>,
        /// Several inputs of the model instead, each with its columns; `from` names them. The first
        /// layer takes the first one by name.
        inputs: Option<BTreeMap<String, Vec<Column>>>,
        /// What stands between columns.
        delimiter: char = ',',
        /// Whether the first row names the columns.
        header: bool = true,
        /// What the target is.
        task: Task,
    }
}

choices! {
    /// What a target is.
    pub enum Task {
        /// One of several classes.
        Classification = "classification",
        /// A number.
        Regression = "regression",
    }
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// By its name in the first row.
    Name(String),
    /// By its number, from 0.
    Index(usize),
}

impl Decode for Column {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        match node.scalar_kind() {
            Some(ScalarKind::Integer(_)) => usize::decode(node, cx).map(Self::Index),
            Some(ScalarKind::Text) => node.text().map(|name| Self::Name(name.to_owned())),
            _ => {
                cx.expected("the name or number of a column", node);
                None
            }
        }
    }

    fn schema() -> Schema {
        Schema::Either(Box::new(Schema::Text), Box::new(usize::schema()))
    }

    fn to_json(&self) -> Json {
        match self {
            Self::Name(name) => json!(name),
            Self::Index(index) => json!(index),
        }
    }
}

options! {
    /// Text for next-token prediction: windows of `context` tokens, each with the window that
    /// starts one token later as its target.
    pub struct Text {
        /// The file, in UTF-8.
        path: PathBuf,
        /// What a token is.
        tokenizer: Tokenizer = Tokenizer::Char,
        /// Tokens in a sample.
        context: usize [1..],
    }
}

choices! {
    /// What a token is.
    pub enum Tokenizer {
        /// A character that occurs in the text.
        Char = "char",
        /// A byte: 256 tokens.
        Byte = "byte",
    }
}

options! {
    /// The binary version of CIFAR-10: 3,073 bytes a sample.
    pub struct Cifar10 {
        /// The file, or a list of files.
        path: OneOrMany<PathBuf>,
        /// What pixel values are divided by. Without it: what those of `data.train` are, or 255.
        scale: Option<f64> [super::schema::above(0.0)],
    }
}

options! {
    /// Generated samples, for trying things out and for measuring speed.
    pub struct Synthetic checked_by validate::synthetic {
        /// What is generated.
        kind: SyntheticKind,
        /// How many samples.
        samples: usize [1..],
        /// Shape of one sample: `[features]`, `[channels, height, width]`, or `[time]` of tokens.
        shape: Vec<usize> [1..],
        /// Number of classes, or of tokens there are. Not for regression.
        classes: Option<usize> [2..],
        /// Numbers to predict for a sample. For regression.
        outputs: Option<usize> [1..],
        /// Seed of the generator.
        seed: u64 = 0,
    }
}

choices! {
    /// What is generated.
    pub enum SyntheticKind {
        /// A cloud of points for each class.
        Classification = "classification",
        /// Outputs of a fixed random function.
        Regression = "regression",
        /// Sequences of tokens that follow a fixed rule.
        Tokens = "tokens",
    }
}

/// Validation samples.
#[derive(Debug, Clone, PartialEq)]
pub enum Valid {
    /// This share of the training samples, above 0 and below 1.
    Split(f64),
    /// Samples of their own.
    Source(Source),
}

impl Valid {
    fn split_range() -> Range {
        Range { max: std::ops::Bound::Excluded(1.0), ..Range::of(super::schema::above(0.0)) }
    }
}

impl Decode for Valid {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        let Schema::Tagged(variants) = Self::schema() else { unreachable!("it is tagged") };
        let words: Vec<&str> = variants.iter().map(|v| v.word).collect();
        let choice = decode_variant(node, &words, cx)?;
        match words[choice.index] {
            "split" => cx
                .within("split", |cx| f64::decode_within(&choice.options, Self::split_range(), cx))
                .map(Self::Split),
            _ => Source::decode(node, cx).map(Self::Source),
        }
    }

    fn schema() -> Schema {
        let split = f64::schema_within(Self::split_range());
        let mut variants = vec![Variant { word: "split", options: split }];
        if let Schema::Tagged(sources) = Source::schema() {
            variants.extend(sources);
        }
        Schema::Tagged(variants)
    }

    fn to_json(&self) -> Json {
        match self {
            Self::Split(share) => json!({ "split": share }),
            Self::Source(source) => source.to_json(),
        }
    }
}

options! {
    /// For each channel: (value - mean) / std.
    pub struct Normalize checked_by validate::normalize {
        /// The mean of each channel.
        mean: Vec<f64>,
        /// The standard deviation of each channel.
        std: Vec<f64> [super::schema::above(0.0)],
    }
}
