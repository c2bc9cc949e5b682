//! GPUs through wgpu: Metal, Vulkan, DX12.
//!
//! [`open`] chooses an adapter; [`GpuDevice::prepare`] allocates a plan's pages, compiles its
//! kernels and builds its bind groups, all before the first step. The loop then only fills a
//! staging buffer, records, submits, and reads a small ring of reports.

mod adapter;
mod build;
mod counted;
mod executor;
mod faults;
mod rings;
mod sizes;
mod submit;

pub use adapter::{AdapterSummary, GpuDevice, adapters, open};
pub use executor::GpuExecutor;
pub use faults::Fault;
pub use sizes::{check_fit, staging_bytes};

/// How a plan is prepared. The default is what training uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Whether kernels are compiled with bounds checks and zeroed workgroup memory.
    pub checked: bool,
    /// Floating-point operations in one submission, so that none runs for long; `None` for the
    /// adapter's own.
    pub submission_flops: Option<u64>,
    /// A failure to bring about, for tests.
    pub fault: Option<Fault>,
}

impl Default for Options {
    fn default() -> Self {
        Options { checked: cfg!(debug_assertions), submission_flops: None, fault: None }
    }
}
