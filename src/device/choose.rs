//! Choosing a device by the word in the configuration.

use super::cpu::{self, CpuExecutor};
use super::gpu::{self, GpuDevice};
use super::{DeviceError, DeviceInfo, Executor};
use crate::ops::Target;
use crate::ops::selection::Chosen;
use crate::plan::Plan;

/// A device that was chosen but runs nothing yet.
pub enum Device {
    /// The native executor, with this many threads (0: one a core).
    Cpu(usize),
    /// A GPU.
    Gpu(Box<GpuDevice>),
}

/// Opens the device of a word: `cpu`; `auto`, the first hardware GPU, else the CPU; a backend's
/// name; or a part of an adapter's name, the only way to a software adapter.
///
/// # Errors
/// When no device matches. Nothing stands in for a device that was asked for.
pub fn open(asked: &str, threads: usize) -> Result<Device, DeviceError> {
    match asked {
        "cpu" => Ok(Device::Cpu(threads)),
        "auto" => match gpu::open(asked) {
            Ok(device) => Ok(Device::Gpu(Box::new(device))),
            Err(DeviceError::NotFound { found, .. }) => {
                tracing::info!("no hardware GPU ({found}): using the CPU");
                Ok(Device::Cpu(threads))
            }
            Err(error) => Err(error),
        },
        _ => Ok(Device::Gpu(Box::new(gpu::open(asked)?))),
    }
}

impl Device {
    /// What to plan for.
    pub fn target(&self) -> Target {
        match self {
            Device::Cpu(_) => Target::Cpu,
            Device::Gpu(device) => Target::Gpu(device.limits()),
        }
    }

    /// The device with choices of selection; the CPU has none to make.
    #[must_use]
    pub fn choosing(self, chosen: Chosen) -> Self {
        match self {
            Device::Gpu(device) => Device::Gpu(Box::new(device.choosing(chosen))),
            cpu @ Device::Cpu(_) => cpu,
        }
    }

    /// What the device is.
    pub fn info(&self) -> DeviceInfo {
        match self {
            Device::Cpu(threads) => cpu::info(*threads),
            Device::Gpu(device) => device.info().clone(),
        }
    }

    /// Allocates a plan's memory and compiles its kernels.
    ///
    /// # Errors
    /// When the plan does not fit the device.
    pub fn prepare(self, plan: &Plan) -> Result<Box<dyn Executor>, DeviceError> {
        self.prepare_with(plan, gpu::Options::default())
    }

    /// As [`Device::prepare`], with options for a GPU.
    ///
    /// # Errors
    /// As [`Device::prepare`].
    pub fn prepare_with(
        self,
        plan: &Plan,
        options: gpu::Options,
    ) -> Result<Box<dyn Executor>, DeviceError> {
        match self {
            Device::Cpu(threads) => Ok(Box::new(CpuExecutor::new(plan.clone(), threads)?)),
            Device::Gpu(device) => Ok(Box::new(device.prepare(plan, options)?)),
        }
    }

    /// The device in words.
    pub fn describe(&self) -> String {
        let info = self.info();
        format!("{} ({})", info.name, info.backend)
    }
}
