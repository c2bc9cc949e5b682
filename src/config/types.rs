//! The whole configuration. Its sections lie in `data`, `optimizer` and `train`; `model` stays a
//! tree here, which `layers` decodes.

use std::sync::OnceLock;

use serde_json::{Value as Json, json};

use super::data::Data;
use super::decode::{Cx, Decode, all_defaults};
use super::health::{Average, Health};
use super::loss::{Objective, Penalty};
use super::macros::{choices, options};
use super::metric::Metric;
use super::nearest::nearest;
use super::node::{Node, ScalarKind};
use super::optimizer::{Optimizer, ParamGroup};
use super::records::Records;
use super::schedule::Schedule;
use super::schema::{Place, Schema, Word, places};
use super::train::{Checkpoint, EarlyStop, Train};
use super::validate;
use super::weights::Weights;

options! {
    /// A training run.
    pub struct Config checked_by validate::config {
        /// The version of this language: 1.
        version: Version,
        /// A name for the run. Without it: the name of the file.
        name: Option<String>,
        /// Seed of everything random: first weights, order of samples, dropout.
        seed: u64 = 0,
        /// What to run on.
        device: Device = Device::Auto,
        /// The precision of the arithmetic.
        precision: Precision = Precision::F32,
        /// The samples.
        data: Data,
        /// The network.
        model: Node,
        /// First values of the network from a file, instead of random ones.
        weights: Option<Weights>,
        /// What is minimized: a loss of the model's output, or a map of outputs to their losses.
        loss: Objective,
        /// Penalties on what layers give out, added to the loss.
        penalties: Vec<Penalty> = Vec::new(),
        /// What is reported beside the loss; with several outputs, each has its own.
        metrics: Vec<Metric> = Vec::new(),
        /// How parameters follow their gradients.
        optimizer: Optimizer,
        /// Parameters that are trained in another way than the rest.
        param_groups: Vec<ParamGroup> = Vec::new(),
        /// How the learning rate changes over the run.
        schedule: Schedule = Schedule::Constant(all_defaults()),
        /// How long and in what portions to train.
        train: Train,
        /// When the run is saved, and what is kept.
        checkpoint: Checkpoint = all_defaults(),
        /// Ends the run when it no longer gets better.
        early_stop: Option<EarlyStop>,
        /// An average of the weights, kept beside them.
        average: Option<Average>,
        /// What counts as a sick run, and what is done then.
        health: Health = all_defaults(),
        /// What is written for other programs to read.
        records: Records = all_defaults(),
    }
}

impl Config {
    /// Every key and the section it is valid in, for [`Cx::new`].
    pub fn places() -> &'static [Place] {
        static PLACES: OnceLock<Vec<Place>> = OnceLock::new();
        PLACES.get_or_init(|| places(&Self::schema()))
    }
}

/// The version of the language. There is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version;

impl Decode for Version {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        match node.scalar_kind() {
            Some(ScalarKind::Integer(1)) => Some(Self),
            Some(ScalarKind::Integer(other)) => {
                cx.error(node.span, format!("version {other} is not known here"))
                    .help("this release reads version 1");
                None
            }
            _ => {
                cx.expected("the version number 1", node);
                None
            }
        }
    }

    fn schema() -> Schema {
        Schema::Integer(super::schema::Range::of(1..=1))
    }

    fn to_json(&self) -> Json {
        json!(1)
    }
}

choices! {
    /// The precision of the arithmetic.
    pub enum Precision {
        /// 32-bit floating point throughout.
        F32 = "f32",
        /// 16-bit activations and products, summed in 32 bits; parameters, norms and losses in 32. For GPUs.
        Mixed = "mixed",
    }
}

/// What to run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// The best GPU, or the CPU if there is none.
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU through Metal.
    Metal,
    /// A GPU through Vulkan.
    Vulkan,
    /// A GPU through Direct3D 12.
    Dx12,
    /// The GPU whose name holds this text.
    Named(String),
}

impl Device {
    const WORDS: [(&'static str, &'static str, Self); 5] = [
        ("auto", "The best GPU, or the CPU if there is none.", Self::Auto),
        ("cpu", "The CPU.", Self::Cpu),
        ("metal", "A GPU through Metal.", Self::Metal),
        ("vulkan", "A GPU through Vulkan.", Self::Vulkan),
        ("dx12", "A GPU through Direct3D 12.", Self::Dx12),
    ];
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self, Self::WORDS.iter().find(|(_, _, device)| device == self)) {
            (Self::Named(name), _) => f.write_str(name),
            (_, Some((word, ..))) => f.write_str(word),
            (_, None) => Ok(()),
        }
    }
}

impl Decode for Device {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        let name = String::decode(node, cx)?;
        if let Some((_, _, device)) = Self::WORDS.into_iter().find(|(word, ..)| *word == name) {
            return Some(device);
        }
        // A slip in a known word would otherwise become a search for a GPU of that name.
        let meant = match name.as_str() {
            "gpu" => Some("auto"),
            name => nearest(name, Self::WORDS.iter().map(|(word, ..)| *word)),
        };
        if let Some(meant) = meant {
            cx.expected(&Self::schema().words(), node).help(format!("did you mean `{meant}`?"));
            return None;
        }
        if name.trim().is_empty() {
            cx.expected(&Self::schema().words(), node);
            return None;
        }
        Some(Self::Named(name))
    }

    fn schema() -> Schema {
        let word = |(word, docs, _): (&'static str, &str, Self)| Word { word, docs: docs.into() };
        Schema::WordOrText(Self::WORDS.into_iter().map(word).collect())
    }

    fn to_json(&self) -> Json {
        match self {
            Self::Named(name) => json!(name),
            known => {
                let word = Self::WORDS.into_iter().find(|(.., device)| device == known);
                json!(word.map(|(word, ..)| word))
            }
        }
    }
}
