//! Selection for the commands that train: the tiles of products are measured on the GPU, once for
//! each adapter, driver and program.

use std::time::Duration;

use clap::Args;

use super::CliError;
use super::session::Session;
use crate::device::Device;
use crate::device::gpu::GpuDevice;
use crate::device::select::{Cache, select};
use crate::ops::selection::Chosen;
use crate::train::compile::Compiled;

/// Whether the tiles of products are chosen by measuring.
#[derive(Clone, Copy, Debug, Args)]
pub struct TuneArgs {
    /// Take the fixed table of tiles on a GPU: measure nothing and use nothing that was measured
    /// before. A resumed run keeps the choices that it began with.
    #[arg(long)]
    no_tune: bool,
    /// Measure on a software adapter too; on real GPUs it is done by itself.
    #[arg(long, conflicts_with = "no_tune")]
    tune: bool,
}

/// Longest that a first run measures.
const BUDGET: Duration = Duration::from_secs(3);

/// What was chosen before on a real GPU.
pub fn known(device: &Device) -> Chosen {
    match device {
        Device::Gpu(gpu) if !gpu.is_software() => kept(gpu),
        _ => Chosen::NONE,
    }
}

fn kept(gpu: &GpuDevice) -> Chosen {
    Cache::of(gpu).map_or(Chosen::NONE, |cache| cache.load())
}

impl TuneArgs {
    /// Plans training for a device with the choices in force: those recorded in a run that goes on,
    /// else those measured before, and the missing ones measured now.
    ///
    /// # Errors
    /// When a layer does not fit, or every way to compute a product is wrong on the device.
    pub fn planned(
        self,
        session: &Session,
        device: Device,
        recorded: Option<Chosen>,
    ) -> Result<(Device, Compiled), CliError> {
        let measures = match &device {
            Device::Cpu(_) => false,
            Device::Gpu(gpu) => !self.no_tune && (self.tune || !gpu.is_software()),
        };
        let fixed = match recorded {
            Some(recorded) => Some(recorded),
            None if measures => None,
            None => Some(Chosen::NONE),
        };
        if let Some(fixed) = fixed {
            let device = device.choosing(fixed);
            let compiled = session.compile(&device.target())?;
            return Ok((device, compiled));
        }
        let device = match device {
            Device::Gpu(gpu) if gpu.is_software() => {
                let kept = kept(&gpu);
                Device::Gpu(gpu).choosing(kept)
            }
            other => other,
        };
        let compiled = session.compile(&device.target())?;
        let Device::Gpu(gpu) = device else { return Ok((device, compiled)) };
        let chosen = measured(&gpu, &compiled)?;
        if chosen == gpu.limits().chosen {
            return Ok((Device::Gpu(gpu), compiled));
        }
        let device = Device::Gpu(gpu).choosing(chosen);
        let compiled = session.compile(&device.target())?;
        Ok((device, compiled))
    }
}

/// Measures what is not known yet, says so, and keeps it.
fn measured(gpu: &GpuDevice, compiled: &Compiled) -> Result<Chosen, CliError> {
    let found = select(gpu, &compiled.plan, BUDGET)?;
    found.refused.iter().for_each(|refused| super::eprint(&format!("warning: {refused}")));
    if found.measured + found.unmeasured > 0 {
        tracing::info!(
            "tiles of {} products chosen by measuring, of {} by the table",
            found.measured,
            found.unmeasured
        );
        if let Some(Err(error)) = Cache::of(gpu).map(|cache| cache.store(&found.chosen)) {
            super::eprint(&format!("warning: the chosen tiles are not kept: {error}"));
        }
    }
    Ok(found.chosen)
}
