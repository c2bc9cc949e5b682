//! The plan: flat parameter pages, fused op graphs placed in memory, the step programs.
//!
//! A [`Plan`] is plain data: an ordered list of steps, each an op with the memory slots of its
//! operands. Both executors run the same plan; nothing in it knows YAML or a device's API.

mod build;
pub mod fuse;
mod layout;
mod place;
mod precision;
mod prune;
pub mod report;
mod update;

use std::sync::Arc;

pub use build::{Forward, REPORT_HEAD, REPORT_TAIL, Request, build, of_graph};
pub use layout::{Init, Layout, Moments, ParamSpec, Placed};
pub use update::{Group, Update};

use crate::graph::{ShapeError, TensorType, grad::GradError};
use crate::ops::{Op, Target};

/// A flat page of persistent memory, or a part of the arena. Each is one buffer on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Page {
    /// Trainable parameters.
    Params,
    /// Gradients of the current micro-batch in the parameters' order, then the step's statistics.
    Grads,
    /// Sums of the gradient page over an accumulation window; exists only where one is longer than
    /// a micro-batch.
    Accum,
    /// Optimizer moments, by index, in the parameters' order.
    Moment(u8),
    /// The average of the trained parameters, in their order.
    Average,
    /// State that is kept but not trained (running statistics).
    State,
    /// The micro-batch's inputs.
    Batch,
    /// The state of the loss scale, in mixed precision.
    Scaler,
    /// Constants, filled before the first step.
    Consts,
    /// What the host reads back after a step: the norm and the statistics.
    Report,
    /// Activations, intermediate gradients and scratch: reused within a program and between
    /// programs. As many buffers as the device's largest one asks for, by index.
    Arena(u8),
}

impl Page {
    /// The name used in reports.
    pub fn name(self) -> String {
        match self {
            Page::Params => "parameters".into(),
            Page::Grads => "gradients".into(),
            Page::Accum => "accumulated gradients".into(),
            Page::Moment(i) => format!("optimizer moment {}", i + 1),
            Page::Average => "average".into(),
            Page::State => "state".into(),
            Page::Batch => "batch".into(),
            Page::Scaler => "loss scale".into(),
            Page::Consts => "constants".into(),
            Page::Report => "report".into(),
            Page::Arena(0) => "activations".into(),
            Page::Arena(buffer) => format!("activations, part {}", buffer + 1),
        }
    }
}

/// How a plan stores what lies between the parameters and the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// In single precision.
    #[default]
    Single,
    /// In half precision where an op can, for a GPU that has it.
    Mixed,
}

/// A range of a page, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The page.
    pub page: Page,
    /// First byte; a multiple of [`ALIGN`].
    pub offset: u64,
    /// Length in bytes, never 0.
    pub bytes: u64,
}

impl Slot {
    /// Whether two slots share a byte.
    pub fn overlaps(&self, other: &Slot) -> bool {
        self.page == other.page
            && self.offset < other.offset + other.bytes
            && other.offset < self.offset + self.bytes
    }
}

/// Alignment of every slot, in bytes: the largest storage-offset alignment any WebGPU device asks.
pub const ALIGN: u64 = 256;

/// One op with its memory.
#[derive(Clone, Debug)]
pub struct Step {
    /// What is computed.
    pub op: Arc<dyn Op>,
    /// Operands' types.
    pub in_types: Vec<TensorType>,
    /// Results' types.
    pub out_types: Vec<TensorType>,
    /// Where the operands lie.
    pub ins: Vec<Slot>,
    /// Where the results go. An in-place result has its operand's slot.
    pub outs: Vec<Slot>,
    /// Scratch memory.
    pub scratch: Option<Slot>,
    /// The layer, such as `h.0.attn`.
    pub scope: Arc<str>,
    /// Whether it belongs to the backward pass.
    pub backward: bool,
}

/// A straight-line program over the pages.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Where each batch input lies, in the order of the model's inputs; empty for the update
    /// program.
    pub inputs: Vec<(Slot, TensorType)>,
    /// Values that the host may read after the program ran (a model's output, for `predict`).
    pub outputs: Vec<(Slot, TensorType)>,
}

/// Index into [`Plan::programs`].
pub type ProgramId = usize;

/// What the programs are for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roles {
    /// Micro-steps, in the order of the batch sizes asked for.
    pub train: Vec<ProgramId>,
    /// Evaluation, likewise.
    pub eval: Vec<ProgramId>,
    /// Evaluation with the averaged parameters, likewise; empty where none are kept.
    pub eval_average: Vec<ProgramId>,
    /// Adds a micro-batch's gradients to the window's; absent where windows have one micro-batch.
    pub accumulate: Option<ProgramId>,
    /// The optimizer; absent in plans for evaluation.
    pub update: Option<ProgramId>,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A trained parameter that the graph never reads.
    #[error("parameter `{name}` is never used")]
    Unused {
        /// The parameter.
        name: String,
    },
    /// A trained parameter that no gradient reaches.
    #[error(
        "no gradient reaches parameter `{name}`: {reason}; set `trainable: false` if that is meant"
    )]
    NoGradient {
        /// The parameter.
        name: String,
        /// Where it stopped.
        reason: String,
    },
    /// A model without trained parameters.
    #[error("the model has nothing to train: it has no parameters, or all have `trainable: false`")]
    NothingToTrain,
    /// A gradient that does not fit together.
    #[error(transparent)]
    Gradient(GradError),
    /// An op that does not fit its operands.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Mixed precision on a device that has none.
    #[error(
        "`precision: mixed` needs a GPU that stores half-precision floats, and {device} does not: use `precision: f32`"
    )]
    NoHalf {
        /// `the CPU executor` or `this GPU`.
        device: &'static str,
    },
    /// An in-place update of something that is not a leaf.
    #[error("`{op}` updates in place what is not a leaf")]
    InPlace {
        /// The op.
        op: &'static str,
    },
    /// Two operands of one step share memory: a defect of the planner, never run.
    #[error("`{op}` in `{scope}` would write over its own operand")]
    Overlap {
        /// The op.
        op: &'static str,
        /// The layer.
        scope: String,
    },
}

/// Everything that an executor needs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What it was planned for.
    pub target: Target,
    /// Size of each page in bytes, in a fixed order; pages that are not used are absent.
    pub pages: Vec<(Page, u64)>,
    /// All programs.
    pub programs: Vec<Program>,
    /// What each is for.
    pub roles: Roles,
    /// Constants to fill before the first step: each slot is filled with its values, repeated.
    pub consts: Vec<(Slot, Arc<[f32]>)>,
}

impl Plan {
    /// Bytes of a page; 0 where it does not exist.
    pub fn page_bytes(&self, page: Page) -> u64 {
        self.pages.iter().find(|(p, _)| *p == page).map_or(0, |(_, bytes)| *bytes)
    }
}
