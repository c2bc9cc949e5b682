//! What a plan costs, as numbers: dispatches, memory by kind, the largest batch.

use serde::Serialize;

use super::{Plan, Program, Step};
use crate::graph::TensorType;
use crate::ops::{GpuCall, GpuLimits, Target};

/// The cost of one program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramCost {
    /// Ops after fusion.
    pub ops: usize,
    /// GPU dispatches; equal to the ops on the CPU.
    pub dispatches: usize,
    /// Floating-point operations.
    pub flops: u64,
}

/// Bytes of one kind of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageCost {
    /// The kind, such as `parameters`.
    pub kind: String,
    /// Bytes.
    pub bytes: u64,
}

/// The cost of a program on the plan's target.
pub fn program_cost(program: &Program, target: &Target) -> ProgramCost {
    let dispatches = program.steps.iter().map(|step| dispatches(step, target)).sum();
    let flops = program.steps.iter().map(flops).sum();
    ProgramCost { ops: program.steps.len(), dispatches, flops }
}

fn dispatches(step: &Step, target: &Target) -> usize {
    match target {
        Target::Cpu => 1,
        Target::Gpu(limits) => launches(step, limits),
    }
}

fn launches(step: &Step, limits: &GpuLimits) -> usize {
    let (ins, outs) = types(step);
    step.op.gpu(&GpuCall { ins: &ins, outs: &outs, limits }).len()
}

fn flops(step: &Step) -> u64 {
    let (ins, outs) = types(step);
    step.op.flops(&ins, &outs)
}

fn types(step: &Step) -> (Vec<&TensorType>, Vec<&TensorType>) {
    (step.in_types.iter().collect(), step.out_types.iter().collect())
}

/// Bytes of every page.
pub fn memory(plan: &Plan) -> Vec<PageCost> {
    plan.pages.iter().map(|(page, bytes)| PageCost { kind: page.name(), bytes: *bytes }).collect()
}

/// Bytes of all pages.
pub fn total_bytes(plan: &Plan) -> u64 {
    plan.pages.iter().map(|(_, bytes)| bytes).sum()
}

/// The largest batch whose plan holds at most `ceiling` bytes, by bisection: `bytes` gives the
/// bytes of a batch size and must not fall as the batch grows. Begins at 2 where 1 has no plan (a
/// batch norm needs several values). `None` if not even the smallest batch fits.
///
/// # Errors
/// Whatever `bytes` fails with.
pub fn largest_batch<E>(
    ceiling: u64,
    mut bytes: impl FnMut(usize) -> Result<u64, E>,
) -> Result<Option<usize>, E> {
    let smallest = if bytes(1).is_ok() { 1 } else { 2 };
    if bytes(smallest)? > ceiling {
        return Ok(None);
    }
    let (mut fits, mut high) = (smallest, 2 * smallest);
    while bytes(high)? <= ceiling {
        (fits, high) = (high, high * 2);
    }
    while high - fits > 1 {
        let middle = fits + (high - fits) / 2;
        if bytes(middle)? <= ceiling { fits = middle } else { high = middle }
    }
    Ok(Some(fits))
}
