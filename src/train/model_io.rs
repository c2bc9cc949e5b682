//! Parameters, states and moments between an executor and their names.

use crate::device::{DeviceError, Executor};
use crate::ops::grad_scale::{FIRST_LOSS_SCALE, SCALER};
use crate::plan::{Init, Page, Placed, Slot};

use super::checkpoint::{NamedTensor, Snapshot};
use super::compile::Compiled;
use super::initial;

/// Where parameters and states lie.
pub(super) fn places(compiled: &Compiled) -> impl Iterator<Item = (&Placed, Page)> {
    let params = compiled.params.params.iter().map(|placed| (placed, Page::Params));
    params.chain(compiled.states.params.iter().map(|placed| (placed, Page::State)))
}

/// Writes the first values of all parameters and states.
///
/// # Errors
/// When the device fails.
pub fn initialise(
    executor: &mut dyn Executor,
    compiled: &Compiled,
    seed: u64,
) -> Result<(), DeviceError> {
    for (placed, page) in places(compiled) {
        let spec = &placed.spec;
        let values = initial::draw(&spec.init, &spec.name, spec.shape.elements(), seed);
        executor.write(placed.slot(page), bytemuck::cast_slice(&values))?;
    }
    start_averages(executor, compiled)?;
    match scaler(compiled) {
        Some(slot) => executor.write(slot, bytemuck::cast_slice(&[FIRST_LOSS_SCALE, 0.0, 0.0])),
        None => Ok(()),
    }
}

/// Begins the averages of parameters, where there are any, with the parameters.
pub(super) fn start_averages(
    executor: &mut dyn Executor,
    compiled: &Compiled,
) -> Result<(), DeviceError> {
    for placed in averaged(compiled) {
        let bytes = executor.read(placed.slot(Page::Params))?;
        executor.write(placed.slot(Page::Average), &bytes)?;
    }
    Ok(())
}

/// Name of the loss scale's state among the optimizer's tensors: no parameter's moment has it.
const LOSS_SCALE: &str = "loss_scale";

/// Where the state of the loss scale lies, if there is one.
fn scaler(compiled: &Compiled) -> Option<Slot> {
    let bytes = (SCALER * 4) as u64;
    let exists = compiled.plan.page_bytes(Page::Scaler) > 0;
    exists.then_some(Slot { page: Page::Scaler, offset: 0, bytes })
}

/// Sets all moments to zero, as at a run's start.
///
/// # Errors
/// When the device fails.
pub fn clear_moments(executor: &mut dyn Executor, compiled: &Compiled) -> Result<(), DeviceError> {
    for (page, placed) in moments(compiled) {
        let slot = placed.slot(page);
        executor.write(slot, &vec![0; slot.bytes as usize])?;
    }
    Ok(())
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
    for (placed, page) in places(compiled) {
        tensors.push(read(executor, placed, page, placed.spec.name.clone())?);
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
    for (page, placed) in moments(compiled) {
        tensors.push(read(executor, placed, page, placed.spec.name.clone())?);
    }
    if let Some(slot) = scaler(compiled) {
        let bytes = executor.read(slot)?;
        tensors.push(NamedTensor { name: LOSS_SCALE.into(), dims: vec![SCALER], bytes });
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}

/// All moments with their pages.
fn moments(compiled: &Compiled) -> impl Iterator<Item = (Page, &Placed)> {
    compiled.moments.iter().enumerate().flat_map(|(page, moments)| {
        moments.placed.iter().flatten().map(move |placed| (Page::Moment(page as u8), placed))
    })
}

/// The parameters that are averaged.
fn averaged(compiled: &Compiled) -> Vec<&Placed> {
    if compiled.plan.page_bytes(Page::Average) == 0 {
        return Vec::new();
    }
    let params = &compiled.params;
    (0..params.params.len())
        .filter(|index| params.is_trained(*index))
        .map(|index| &params.params[index])
        .collect()
}

/// Reads the average of the trained parameters under their names; empty where none is kept.
///
/// # Errors
/// When the device fails.
pub fn read_average(
    executor: &mut dyn Executor,
    compiled: &Compiled,
) -> Result<Vec<NamedTensor>, DeviceError> {
    let mut tensors = Vec::new();
    for placed in averaged(compiled) {
        tensors.push(read(executor, placed, Page::Average, placed.spec.name.clone())?);
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
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

/// Writes a snapshot's parameters and states, and where `training` is set its moments and average.
///
/// # Errors
/// When names or shapes differ: all differences are listed.
pub fn restore(
    executor: &mut dyn Executor,
    compiled: &Compiled,
    snapshot: &Snapshot,
    training: bool,
) -> Result<(), RestoreError> {
    let wanted: Vec<_> =
        places(compiled).map(|(placed, page)| (placed.spec.name.clone(), placed, page)).collect();
    write_all(executor, &wanted, &snapshot.model)?;
    if training {
        let wanted: Vec<_> = moments(compiled)
            .map(|(page, placed)| (placed.spec.name.clone(), placed, page))
            .collect();
        let (scales, moments): (Vec<NamedTensor>, Vec<NamedTensor>) =
            snapshot.optimizer.iter().cloned().partition(|tensor| tensor.name == LOSS_SCALE);
        write_all(executor, &wanted, &moments)?;
        let wanted: Vec<_> = (averaged(compiled).into_iter())
            .map(|placed| (placed.spec.name.clone(), placed, Page::Average))
            .collect();
        write_all(executor, &wanted, &snapshot.average)?;
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
