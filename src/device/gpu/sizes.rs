//! Sizes of everything beside the pages: what the executor allocates and the plan's report
//! predicts, from one place.

use crate::device::DeviceError;
use crate::ops::{Bind, GpuCall, GpuLimits, Launch, Target};
use crate::plan::report::program_cost;
use crate::plan::{ALIGN, Page, Plan, Slot, Step};

/// Programs in one submission: a micro-batch, its accumulation and the update.
pub(super) const RUNS: usize = 3;
/// Bytes of the canary's count, as much as a binding is aligned to.
pub(super) const CANARY_BYTES: u64 = 256;
/// Most bytes that one checkpoint read moves at once.
const TRANSFER_BYTES: u64 = 4 << 20;

/// Byte sizes of the executor's own buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Steps that share a submission.
    pub(super) together: usize,
    /// Staging buffers: the steps of two submissions and one more. There is a readback buffer more.
    pub(super) stagings: usize,
    /// One staging buffer: the batch, then the globals of each program.
    pub(super) staging: u64,
    /// One readback buffer: the report, then the canary's count.
    pub(super) readback: u64,
    /// The buffer through which pages are read.
    pub(super) transfer: u64,
    /// The `dims` of all launches.
    pub(super) dims: u64,
}

impl Sizes {
    pub(super) fn new(plan: &Plan) -> Self {
        let limits = match &plan.target {
            Target::Gpu(limits) => limits.clone(),
            Target::Cpu => GpuLimits::FLOOR,
        };
        let launches: usize = plan
            .programs
            .iter()
            .flat_map(|p| &p.steps)
            .map(|step| launches(step, &limits).len())
            .sum();
        let largest = plan.pages.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let together = together(plan);
        Sizes {
            together,
            stagings: 2 * together + 1,
            staging: plan.page_bytes(Page::Batch) + RUNS as u64 * ALIGN,
            readback: plan.page_bytes(Page::Report) + CANARY_BYTES,
            transfer: largest.min(TRANSFER_BYTES),
            // One more for the canary's launch.
            dims: (launches as u64 + 1) * ALIGN,
        }
    }

    /// Bytes of upload and readback memory.
    pub(super) fn staging_total(&self) -> u64 {
        let stagings = self.stagings as u64;
        stagings * self.staging + (stagings + 1) * self.readback + self.transfer
    }

    /// Bytes of uniforms and the canary.
    pub(super) fn small_total(&self) -> u64 {
        self.dims + RUNS as u64 * ALIGN + CANARY_BYTES
    }
}

/// Steps that share a submission: several where one is short and its batch small, so that the
/// device does not wait for the host between them.
fn together(plan: &Plan) -> usize {
    const SHORT: u64 = 4_000_000_000;
    const SMALL: u64 = 1 << 20;
    let short =
        plan.programs.iter().all(|program| program_cost(program, &Target::Cpu).flops <= SHORT);
    if short && plan.page_bytes(Page::Batch) <= SMALL { 4 } else { 1 }
}

/// Bytes that the executor allocates beside the plan's pages.
pub fn staging_bytes(plan: &Plan) -> u64 {
    let sizes = Sizes::new(plan);
    sizes.staging_total() + sizes.small_total()
}

/// The launches of a step.
pub(super) fn launches(step: &Step, limits: &GpuLimits) -> Vec<Launch> {
    let ins: Vec<_> = step.in_types.iter().collect();
    let outs: Vec<_> = step.out_types.iter().collect();
    step.op.gpu(&GpuCall { ins: &ins, outs: &outs, limits })
}

/// The range that an operand of a step's launch is bound to.
pub(super) fn slot(step: &Step, bind: Bind) -> Slot {
    match bind {
        Bind::In(index) => step.ins[index],
        Bind::Out(index) => step.outs[index],
        Bind::Scratch => step.scratch.unwrap_or(step.outs[0]),
    }
}

/// Whether a plan keeps within a device's limits.
///
/// # Errors
/// When a page is longer than a buffer may be, or an operand than a binding.
pub fn check_fit(plan: &Plan, limits: &GpuLimits, device: &str) -> Result<(), DeviceError> {
    if let Some((page, bytes)) = plan.pages.iter().find(|(_, bytes)| *bytes > limits.buffer_bytes) {
        return Err(DeviceError::Unfit(format!(
            "the {} take {bytes} bytes in one buffer; {device} allows {}",
            page.name(),
            limits.buffer_bytes
        )));
    }
    let planned = match &plan.target {
        Target::Gpu(planned) => planned,
        Target::Cpu => limits,
    };
    for step in plan.programs.iter().flat_map(|program| &program.steps) {
        let launches = launches(step, planned);
        let mut slots = launches.iter().flat_map(|l| &l.binds).map(|bind| slot(step, *bind));
        if let Some(slot) = slots.find(|slot| slot.bytes > limits.binding_bytes) {
            // What belongs to no layer works on parameters: no batch is small enough for that.
            let (place, advice) = match &*step.scope {
                "" => ("the update".to_owned(), "a smaller model"),
                layer => (format!("`{layer}`"), "a smaller batch"),
            };
            return Err(DeviceError::Unfit(format!(
                "`{}` in {place} works on {} bytes at once; {device} binds at most {}: use {advice}",
                step.op.name(),
                slot.bytes,
                limits.binding_bytes
            )));
        }
    }
    Ok(())
}
