//! Adapters: which there are, which one a word means, and what it can do.

use std::sync::{Arc, Mutex, OnceLock};

use serde::Serialize;
use wgpu::{Adapter, Backend, Backends, DeviceType, Instance};

use super::Options;
use super::counted::Counted;
use super::executor::GpuExecutor;
use crate::device::{DeviceError, DeviceInfo};
use crate::ops::selection::Chosen;
use crate::ops::{GpuLimits, MatrixUnits};
use crate::plan::Plan;

/// Below 4 GiB: a Metal binding of 2³² bytes or more computes wrong results in silence.
const LONGEST_BINDING: u64 = (4 << 30) - 256;

/// A GPU that is open. Clones are the same device.
#[derive(Clone)]
pub struct GpuDevice {
    pub(super) device: Counted,
    pub(super) queue: wgpu::Queue,
    pub(super) failure: Failure,
    pub(super) info: DeviceInfo,
    pub(super) limits: GpuLimits,
    pub(super) software: bool,
}

/// The first thing that went wrong on a device, as its callbacks tell it.
#[derive(Clone, Debug, Default)]
pub(super) struct Failure(Arc<Mutex<Option<String>>>);

impl Failure {
    fn set(&self, reason: String) {
        let mut slot = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        slot.get_or_insert(reason);
    }

    pub(super) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}

/// An adapter as `doctor` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AdapterSummary {
    /// What it is.
    pub info: DeviceInfo,
    /// Whether it is a real GPU.
    pub hardware: bool,
    /// Largest storage binding that is used, in bytes.
    pub binding_bytes: u64,
    /// Largest buffer, in bytes.
    pub buffer_bytes: u64,
    /// Storage buffers in one dispatch.
    pub storage_bindings: u32,
    /// Workgroup memory, in bytes.
    pub workgroup_bytes: u32,
}

fn instance() -> &'static Instance {
    static INSTANCE: OnceLock<Instance> = OnceLock::new();
    INSTANCE.get_or_init(|| {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
        Instance::new(descriptor)
    })
}

fn all() -> Vec<Adapter> {
    let backends = Backends::VULKAN | Backends::METAL | Backends::DX12;
    pollster::block_on(instance().enumerate_adapters(backends))
}

/// Every adapter of this machine.
pub fn adapters() -> Vec<AdapterSummary> {
    all().iter().map(summary).collect()
}

fn summary(adapter: &Adapter) -> AdapterSummary {
    let limits = limits(adapter);
    AdapterSummary {
        info: info(adapter),
        hardware: is_hardware(adapter),
        binding_bytes: limits.binding_bytes,
        buffer_bytes: limits.buffer_bytes,
        storage_bindings: limits.storage_bindings,
        workgroup_bytes: limits.workgroup_bytes,
    }
}

fn is_hardware(adapter: &Adapter) -> bool {
    !matches!(adapter.get_info().device_type, DeviceType::Cpu)
}

fn backend_word(backend: Backend) -> &'static str {
    match backend {
        Backend::Metal => "metal",
        Backend::Vulkan => "vulkan",
        Backend::Dx12 => "dx12",
        _ => "other",
    }
}

fn info(adapter: &Adapter) -> DeviceInfo {
    let info = adapter.get_info();
    DeviceInfo {
        backend: backend_word(info.backend).into(),
        name: info.name,
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        threads: 0,
    }
}

fn limits(adapter: &Adapter) -> GpuLimits {
    let limits = adapter.limits();
    GpuLimits {
        workgroup_threads: limits.max_compute_invocations_per_workgroup,
        workgroup_bytes: limits.max_compute_workgroup_storage_size,
        storage_bindings: limits.max_storage_buffers_per_shader_stage,
        binding_bytes: limits.max_storage_buffer_binding_size.min(LONGEST_BINDING),
        buffer_bytes: limits.max_buffer_size,
        grid: limits.max_compute_workgroups_per_dimension,
        offset_alignment: u64::from(limits.min_storage_buffer_offset_alignment),
        half: adapter.features().contains(wgpu::Features::SHADER_F16),
        matrix: matrix_units(adapter),
        stores_parts: adapter.get_info().backend == Backend::Vulkan,
        chosen: Chosen::NONE,
    }
}

/// The matrix units that kernels can use: products of half-precision floats with sums in single
/// precision, by groups of 32 threads.
fn matrix_units(adapter: &Adapter) -> Option<MatrixUnits> {
    let info = adapter.get_info();
    let wanted = wgpu::Features::SHADER_F16 | wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
    if !adapter.features().contains(wanted)
        || (info.subgroup_min_size, info.subgroup_max_size) != (32, 32)
    {
        return None;
    }
    let kinds = adapter.cooperative_matrix_properties();
    let has = |side: u32| {
        kinds.iter().any(|kind| {
            (kind.m_size, kind.n_size, kind.k_size) == (side, side, side)
                && kind.ab_type == wgpu::CooperativeScalarType::F16
                && kind.cr_type == wgpu::CooperativeScalarType::F32
        })
    };
    match (has(16), has(8)) {
        (true, _) => Some(MatrixUnits::Side16),
        (false, true) => Some(MatrixUnits::Side8),
        (false, false) => None,
    }
}

/// Whether `asked` means this adapter. A software adapter answers only to its own name.
fn answers(adapter: &Adapter, asked: &str) -> bool {
    let asked = asked.to_lowercase();
    let info = info(adapter);
    let generic = asked == "auto" || asked == info.backend;
    let named = info.name.to_lowercase().contains(&asked);
    (is_hardware(adapter) && (generic || named)) || (!is_hardware(adapter) && named)
}

/// Discrete before integrated before the rest.
fn rank(adapter: &Adapter) -> usize {
    match adapter.get_info().device_type {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    }
}

/// Opens the adapter that a word means: `auto`, a backend, or a part of an adapter's name.
///
/// # Errors
/// When none answers, or the one that does cannot run the kernels.
pub fn open(asked: &str) -> Result<GpuDevice, DeviceError> {
    let mut found = all();
    found.sort_by_key(rank);
    let Some(adapter) = found.iter().find(|adapter| answers(adapter, asked)) else {
        let names: Vec<String> = found
            .iter()
            .map(|adapter| {
                let software = if is_hardware(adapter) { "" } else { ", software" };
                format!("{} ({}{software})", adapter.get_info().name, info(adapter).backend)
            })
            .chain(["cpu".to_owned()])
            .collect();
        return Err(DeviceError::NotFound { asked: asked.to_owned(), found: names.join(", ") });
    };
    connect(adapter)
}

fn connect(adapter: &Adapter) -> Result<GpuDevice, DeviceError> {
    let (info, limits) = (info(adapter), limits(adapter));
    let floor = GpuLimits::FLOOR;
    if limits.storage_bindings < floor.storage_bindings
        || limits.workgroup_threads < floor.workgroup_threads
        || limits.workgroup_bytes < floor.workgroup_bytes
    {
        return Err(DeviceError::Unfit(format!(
            "{} lacks what every kernel needs: {} storage buffers, {} threads and {} bytes of memory in a workgroup",
            info.name, floor.storage_bindings, floor.workgroup_threads, floor.workgroup_bytes
        )));
    }
    let mut features = wgpu::Features::empty();
    features.set(wgpu::Features::SHADER_F16, limits.half);
    features.set(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX, limits.matrix.is_some());
    let experimental = match limits.matrix {
        None => wgpu::ExperimentalFeatures::disabled(),
        // SAFETY: what is experimental is the extension of the language for matrix units, used by
        // the project's own kernels, which the tests hold against double precision.
        #[allow(unsafe_code, reason = "there is no other way to the matrix units")]
        Some(_) => unsafe { wgpu::ExperimentalFeatures::enabled() },
    };
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("wootz"),
        required_features: features,
        required_limits: adapter.limits(),
        experimental_features: experimental,
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        ..Default::default()
    };
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))
        .map_err(|error| DeviceError::Unfit(format!("{} cannot be opened: {error}", info.name)))?;
    let device = Counted::new(device);
    let failure = Failure::default();
    let (lost, error) = (failure.clone(), failure.clone());
    device.on_lost(move |reason, message| {
        if reason != wgpu::DeviceLostReason::Unknown && message.is_empty() {
            lost.set("the device was lost".into());
        } else {
            lost.set(format!("the device was lost: {message}"));
        }
    });
    device.on_error(move |e| error.set(e.to_string()));
    Ok(GpuDevice { device, queue, failure, info, limits, software: !is_hardware(adapter) })
}

impl GpuDevice {
    /// What it can do.
    pub fn limits(&self) -> GpuLimits {
        self.limits.clone()
    }

    /// The device with the choices of selection: what is planned and prepared from now on takes them.
    #[must_use]
    pub fn choosing(mut self, chosen: Chosen) -> Self {
        self.limits.chosen = chosen;
        self
    }

    /// Whether it is no real GPU.
    pub fn is_software(&self) -> bool {
        self.software
    }

    /// What it is.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Allocates a plan's memory, compiles its kernels, and builds its bind groups.
    ///
    /// # Errors
    /// When a page, a binding or a kernel does not fit the device.
    pub fn prepare(self, plan: &Plan, options: Options) -> Result<GpuExecutor, DeviceError> {
        GpuExecutor::new(self, plan, options)
    }
}
