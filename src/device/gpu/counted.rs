//! The wgpu device behind counters: whatever an executor allocates or compiles goes through here,
//! so that the promise of no allocation in the loop is measured and not just meant.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupLayout, BindGroupLayoutDescriptor, Buffer,
    BufferDescriptor, CommandEncoder, ComputePipeline, ComputePipelineDescriptor, ErrorFilter,
    ErrorScopeGuard, PipelineLayout, PipelineLayoutDescriptor, PollError, PollStatus, PollType,
    ShaderModule, ShaderModuleDescriptor, ShaderRuntimeChecks,
};

/// A device whose buffers and pipelines are counted. Clones share the device and have counters of
/// their own.
pub(super) struct Counted {
    device: wgpu::Device,
    buffers: AtomicU64,
    pipelines: AtomicU64,
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Counted::new(self.device.clone())
    }
}

impl Counted {
    pub(super) fn new(device: wgpu::Device) -> Self {
        Counted { device, buffers: AtomicU64::new(0), pipelines: AtomicU64::new(0) }
    }

    /// Buffers and pipelines made so far.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.buffers.load(Ordering::Relaxed), self.pipelines.load(Ordering::Relaxed))
    }

    pub(super) fn buffer(&self, descriptor: &BufferDescriptor<'_>) -> Buffer {
        self.buffers.fetch_add(1, Ordering::Relaxed);
        self.device.create_buffer(descriptor)
    }

    pub(super) fn pipeline(&self, descriptor: &ComputePipelineDescriptor<'_>) -> ComputePipeline {
        self.pipelines.fetch_add(1, Ordering::Relaxed);
        self.device.create_compute_pipeline(descriptor)
    }

    /// A shader with bounds checks.
    pub(super) fn checked_shader(&self, descriptor: ShaderModuleDescriptor<'_>) -> ShaderModule {
        self.device.create_shader_module(descriptor)
    }

    /// A shader without bounds checks.
    pub(super) fn trusted_shader(&self, descriptor: ShaderModuleDescriptor<'_>) -> ShaderModule {
        // SAFETY: the kernels are the project's own; every access is within the bounds of its slot,
        // which the tests show by running each kernel with checks too.
        #[allow(unsafe_code, reason = "bounds checks cost time in the innermost loops")]
        unsafe {
            self.device.create_shader_module_trusted(descriptor, ShaderRuntimeChecks::unchecked())
        }
    }

    pub(super) fn pipeline_layout(&self, d: &PipelineLayoutDescriptor<'_>) -> PipelineLayout {
        self.device.create_pipeline_layout(d)
    }

    pub(super) fn bind_group_layout(&self, d: &BindGroupLayoutDescriptor<'_>) -> BindGroupLayout {
        self.device.create_bind_group_layout(d)
    }

    pub(super) fn bind_group(&self, descriptor: &BindGroupDescriptor<'_>) -> BindGroup {
        self.device.create_bind_group(descriptor)
    }

    pub(super) fn encoder(&self) -> CommandEncoder {
        self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    pub(super) fn poll(&self, poll: PollType) -> Result<PollStatus, PollError> {
        self.device.poll(poll)
    }

    pub(super) fn error_scope(&self, filter: ErrorFilter) -> ErrorScopeGuard {
        self.device.push_error_scope(filter)
    }

    pub(super) fn destroy(&self) {
        self.device.destroy();
    }

    pub(super) fn on_lost(&self, told: impl Fn(wgpu::DeviceLostReason, String) + Send + 'static) {
        self.device.set_device_lost_callback(told);
    }

    pub(super) fn on_error(&self, told: impl Fn(wgpu::Error) + Send + Sync + 'static) {
        self.device.on_uncaptured_error(Arc::new(told));
    }
}
