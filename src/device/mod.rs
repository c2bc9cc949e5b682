//! Devices: choosing one, and the [`Executor`] that runs a plan on it.
//!
//! `train` and the CLI talk to an executor; an executor talks to a plan's steps. The CPU one walks
//! the steps and calls each op; the GPU one records what each op lowers to. Neither knows an op's
//! name.

pub mod agreement;
mod choose;
pub mod cpu;
pub mod gpu;
pub mod profiles;
pub mod select;

pub use choose::{Device, open};

use std::time::Duration;

use crate::graph::TensorType;
use crate::plan::{Page, ProgramId, Slot};

/// Scalars that change from step to step, read by kernels as a uniform
/// (kernels/lib/globals.wgsl) and by CPU kernels directly.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Globals {
    /// Optimizer step, from 1.
    pub step: u32,
    /// Micro-batch within the step, from 0.
    pub micro: u32,
    /// The run's seed, low word first.
    pub seed: [u32; 2],
    /// What the optimizer's host side computed for this step; its meaning is the optimizer's.
    pub hyper: [f32; 8],
    /// Pads to a multiple of 16 bytes.
    pub pad: [u32; 4],
}

/// What a device is, for logs and run.json.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct DeviceInfo {
    /// `cpu`, `metal`, `vulkan` or `dx12`.
    pub backend: String,
    /// The adapter's name, or the processor's.
    pub name: String,
    /// Driver and version, empty for the CPU.
    pub driver: String,
    /// Threads of the CPU executor; 0 for a GPU.
    pub threads: usize,
}

/// A device that cannot do what is asked, or that failed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// No device answers to the name that was asked for.
    #[error("no device matches `{asked}`; this machine has: {found}")]
    NotFound {
        /// The config's or the command line's words.
        asked: String,
        /// What there is.
        found: String,
    },
    /// The plan does not fit the device.
    #[error("{0}")]
    Unfit(String),
    /// The device stopped working; nothing it computed since the last report can be trusted.
    #[error("the device failed at submission {submission}: {reason}")]
    Failed {
        /// Serial number of the submission.
        submission: u64,
        /// What was seen.
        reason: String,
    },
}

/// One program of a step with its inputs and scalars.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// Which program of the plan.
    pub program: ProgramId,
    /// Bytes of each batch input, in the program's order.
    pub inputs: Vec<&'a [u8]>,
    /// The scalars it sees.
    pub globals: Globals,
}

/// What the host reads back after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The tag given to [`Executor::submit`].
    pub tag: u64,
    /// Content of the report page.
    pub values: Vec<f32>,
}

/// What an executor holds and has done, for the exact-memory and no-allocation promises.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Usage {
    /// Bytes of each page on the device.
    pub pages: Vec<(String, u64)>,
    /// Bytes of upload and readback memory.
    pub staging: u64,
    /// Bytes of uniforms and other small buffers.
    pub small: u64,
    /// Device buffers created since the start.
    pub allocations: u64,
    /// Pipelines compiled since the start.
    pub compilations: u64,
    /// Command submissions since the start.
    pub submissions: u64,
}

/// Runs the programs of one plan.
pub trait Executor {
    /// What it runs on.
    fn info(&self) -> &DeviceInfo;

    /// Writes bytes to a slot; ordered after everything submitted before.
    ///
    /// # Errors
    /// When the device failed.
    fn write(&mut self, slot: Slot, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Waits for all work and reads a slot.
    ///
    /// # Errors
    /// When the device failed.
    fn read(&mut self, slot: Slot) -> Result<Vec<u8>, DeviceError>;

    /// Enqueues programs in order, then a readback of the report page under `tag`. Returns once
    /// the inputs have been taken over, not when the work is done; waits only where its small
    /// ring of steps in flight is full.
    ///
    /// # Errors
    /// When the device failed, at this step or an earlier one.
    fn submit(&mut self, runs: &[Run<'_>], tag: u64) -> Result<(), DeviceError>;

    /// The reports that have arrived, oldest first; with `wait`, of everything submitted.
    ///
    /// # Errors
    /// When the device failed.
    fn reports(&mut self, wait: bool) -> Result<Vec<Report>, DeviceError>;

    /// What it holds and has done.
    fn usage(&self) -> Usage;

    /// Runs one program step by step and shows each result to `look` (step index, output index,
    /// content) until it returns false: the slow path that finds the first bad layer.
    ///
    /// # Errors
    /// When the device failed.
    fn inspect(
        &mut self,
        run: &Run<'_>,
        look: &mut dyn FnMut(usize, usize, &TensorType, &[f32]) -> bool,
    ) -> Result<(), DeviceError>;

    /// Runs one program step by step, each step `repeats` times at a stretch, and gives the mean
    /// time of each. The content of the pages is of no use afterwards.
    ///
    /// # Errors
    /// When the device failed.
    fn time_steps(&mut self, run: &Run<'_>, repeats: u32) -> Result<Vec<Duration>, DeviceError>;

    /// Bytes of a page that the executor allocated, 0 where it has none.
    fn page_bytes(&self, page: Page) -> u64;
}
