//! Parameters, states and moments between an executor and their names.

use crate::device::{DeviceError, Executor};
use crate::ops::grad_scale::{FIRST_LOSS_SCALE, SCALER};
use crate::plan::{Init, Layout, Page, Placed, Slot};

use super::checkpoint::{NamedTensor, Snapshot};
use super::compile::Compiled;
use super::initial;

/// Writes the first values of all parameters and states.
///
/// # Errors
/// When the device fails.
pub fn initialise(
    executor: &mut dyn Executor,
    compiled: &Compiled,
    seed: u64,
) -> Result<(), DeviceError> {
    for (layout, page) in [(&compiled.params, Page::Params), (&compiled.states, Page::State)] {
        for placed in &layout.params {
            let values = initial::draw(
                &placed.spec.init,
                &placed.spec.name,
                placed.spec.shape.elements(),
                seed,
            );
            executor.write(placed.slot(page), bytemuck::cast_slice(&values))?;
        }
    }
    match scaler(compiled) {
        Some(slot) => executor.write(slot, bytemuck::cast_slice(&[FIRST_LOSS_SCALE, 0.0, 0.0])),
        None => Ok(()),
    }
}

/// Name of the loss scale's state among the optimizer's tensors: no parameter's moment has it.
const LOSS_SCALE: &str = "loss_scale";

/// Where the state of the loss scale lies, if there is one.
fn scaler(compiled: &Compiled) -> Option<Slot> {
    let bytes = (SCALER * 4) as u64;
    let exists = compiled.plan.page_bytes(Page::Scaler) > 0;
    exists.then_some(Slot { page: Page::Scaler, offset: 0, bytes })
}

/// Reads parameters and states under their names, in the order of names.
///
/// # Errors
/// When the device fails.
pub fn read_model(
    executor: &mut dyn Executor,
    compiled: &Compiled,
) -> Result<Vec<NamedTensor>, DeviceError> {
    let mut tensors = Vec::new();
    for (layout, page) in [(&compiled.params, Page::Params), (&compiled.states, Page::State)] {
        for placed in &layout.params {
            tensors.push(read(executor, placed, page, placed.spec.name.clone())?);
        }
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}

/// Reads the optimizer's moments of trained parameters as `<parameter>.<moment>`.
///
/// # Errors
/// When the device fails.
pub fn read_moments(
    executor: &mut dyn Executor,
    compiled: &Compiled,
) -> Result<Vec<NamedTensor>, DeviceError> {
    let mut tensors = Vec::new();
    for (index, moment) in compiled.rule.moment_names().iter().enumerate() {
        for (placed, _) in trained(compiled) {
            let name = format!("{}.{moment}", placed.spec.name);
            tensors.push(read(executor, placed, Page::Moment(index as u8), name)?);
        }
    }
    if let Some(slot) = scaler(compiled) {
        let bytes = executor.read(slot)?;
        tensors.push(NamedTensor { name: LOSS_SCALE.into(), dims: vec![SCALER], bytes });
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}

fn trained(compiled: &Compiled) -> impl Iterator<Item = (&Placed, &bool)> {
    compiled.params.params.iter().zip(&compiled.trained).filter(|(_, trained)| **trained)
}

fn read(
    executor: &mut dyn Executor,
    placed: &Placed,
    page: Page,
    name: String,
) -> Result<NamedTensor, DeviceError> {
    let bytes = executor.read(placed.slot(page))?;
    Ok(NamedTensor { name, dims: placed.spec.shape.dims().to_vec(), bytes })
}

/// What could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The file and the model differ.
    #[error("{0}")]
    Mismatch(String),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Writes a snapshot's parameters and states, and its moments where `moments` is set.
///
/// # Errors
/// When names or shapes differ: all differences are listed.
pub fn restore(
    executor: &mut dyn Executor,
    compiled: &Compiled,
    snapshot: &Snapshot,
    moments: bool,
) -> Result<(), RestoreError> {
    let mut wanted: Vec<(String, &Placed, Page)> = Vec::new();
    let named = |layout: &'_ Layout, page: Page| -> Vec<(String, Page, usize)> {
        layout.params.iter().enumerate().map(|(i, p)| (p.spec.name.clone(), page, i)).collect()
    };
    for (name, page, index) in named(&compiled.params, Page::Params) {
        wanted.push((name, &compiled.params.params[index], page));
    }
    for (name, page, index) in named(&compiled.states, Page::State) {
        wanted.push((name, &compiled.states.params[index], page));
    }
    write_all(executor, &wanted, &snapshot.model)?;
    if moments {
        let mut wanted = Vec::new();
        for (index, moment) in compiled.rule.moment_names().iter().enumerate() {
            for (placed, _) in trained(compiled) {
                wanted.push((
                    format!("{}.{moment}", placed.spec.name),
                    placed,
                    Page::Moment(index as u8),
                ));
            }
        }
        let (scales, moments): (Vec<NamedTensor>, Vec<NamedTensor>) =
            snapshot.optimizer.iter().cloned().partition(|tensor| tensor.name == LOSS_SCALE);
        write_all(executor, &wanted, &moments)?;
        match (scaler(compiled), scales.first()) {
            (Some(slot), Some(tensor)) if tensor.bytes.len() as u64 == slot.bytes => {
                executor.write(slot, &tensor.bytes)?;
            }
            (None, None) => {}
            _ => {
                let problem =
                    "the checkpoint is of another precision: one of both has no loss scale";
                return Err(RestoreError::Mismatch(problem.into()));
            }
        }
    }
    Ok(())
}

fn write_all(
    executor: &mut dyn Executor,
    wanted: &[(String, &Placed, Page)],
    given: &[NamedTensor],
) -> Result<(), RestoreError> {
    let mut problems = Vec::new();
    for tensor in given.iter().filter(|t| !wanted.iter().any(|(name, ..)| *name == t.name)) {
        problems.push(format!("`{}` is not in this model", tensor.name));
    }
    for (name, placed, _) in wanted {
        match given.iter().find(|t| t.name == *name) {
            None => problems.push(format!("`{name}` is missing")),
            Some(t) if t.dims != placed.spec.shape.dims() => {
                problems.push(format!(
                    "`{name}` has shape {:?}, this model needs {}",
                    t.dims, placed.spec.shape
                ));
            }
            Some(_) => {}
        }
    }
    if !problems.is_empty() {
        return Err(RestoreError::Mismatch(problems.join("; ")));
    }
    for (name, placed, page) in wanted {
        if let Some(tensor) = given.iter().find(|t| t.name == *name) {
            executor.write(placed.slot(*page), &tensor.bytes)?;
        }
    }
    Ok(())
}

/// The distribution a parameter starts from, for reports.
pub fn describe(init: &Init) -> String {
    match init {
        Init::Constant(value) => format!("{value}"),
        Init::Uniform(bound) => format!("uniform ±{bound:.4}"),
        Init::Normal { mean, std } => format!("normal {mean} ± {std}"),
        Init::TruncNormal { mean, std } => format!("truncated normal {mean} ± {std}"),
        Init::ZerosWithin(init, zeros) => {
            format!("{}, zeros at {}..{}", describe(init), zeros.start, zeros.end)
        }
    }
}
