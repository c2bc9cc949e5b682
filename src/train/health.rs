//! Numbers that are not finite: found by bit pattern, traced to the first layer that made one.

use crate::device::{DeviceError, Executor, Run};

use super::compile::Compiled;

/// Whether a number is NaN or infinite, by its exponent's bits.
pub fn is_bad(value: f32) -> bool {
    value.to_bits() & 0x7f80_0000 == 0x7f80_0000
}

/// The first result of a program that is not finite.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstBad {
    /// The layer, such as `h.0.attn`, with `(backward)` where it was the gradient.
    pub layer: String,
    /// The op.
    pub op: &'static str,
    /// How many elements of how many are bad.
    pub bad: usize,
    /// Elements in all.
    pub of: usize,
}

/// Runs micro-batches again, step by step, to find where the first bad number arises. Bad inputs
/// are reported as `input`.
///
/// # Errors
/// When the device fails.
pub fn first_bad(
    executor: &mut dyn Executor,
    compiled: &Compiled,
    runs: &[Run<'_>],
) -> Result<Option<FirstBad>, DeviceError> {
    for run in runs.iter().filter(|run| !run.inputs.is_empty()) {
        if let Some(found) = bad_input(compiled, run) {
            return Ok(Some(found));
        }
        let steps = &compiled.plan.programs[run.program].steps;
        let mut found = None;
        executor.inspect(run, &mut |step, _, _, values| {
            let bad = values.iter().filter(|v| is_bad(**v)).count();
            if bad > 0 {
                let step = &steps[step];
                let pass = if step.backward { " (backward)" } else { "" };
                let layer = format!("{}{pass}", step.scope);
                found = Some(FirstBad { layer, op: step.op.name(), bad, of: values.len() });
            }
            found.is_none()
        })?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn bad_input(compiled: &Compiled, run: &Run<'_>) -> Option<FirstBad> {
    let inputs = &compiled.plan.programs[run.program].inputs;
    for ((_, ty), bytes) in inputs.iter().zip(&run.inputs) {
        if ty.dtype != crate::graph::DType::F32 {
            continue;
        }
        let numbers = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let bad = numbers.filter(|v| is_bad(*v)).count();
        if bad > 0 {
            return Some(FirstBad {
                layer: "the data".into(),
                op: "input",
                bad,
                of: bytes.len() / 4,
            });
        }
    }
    None
}
