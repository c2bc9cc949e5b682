//! Limits of GPUs that are not there, so that a model can be planned for them.

use crate::ops::selection::Chosen;
use crate::ops::{GpuLimits, MatrixUnits};

/// A kind of GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The word it is chosen by.
    pub word: &'static str,
    /// What it is.
    pub name: &'static str,
    /// What it allows.
    pub limits: GpuLimits,
}

/// Kept under 4 GiB on every device, as adapters' own limits are.
const LONGEST_BINDING: u64 = (4 << 30) - 256;

/// What Apple's GPUs have in common: Apple's Metal feature set tables, families Apple7 to Apple9,
/// for threads (1,024), threadgroup memory (32 KB), half precision and matrices of 8×8; wgpu's
/// Metal backend for the bindings, the grid and the alignment (32), which Metal itself leaves open.
/// Parts of vectors are stored together only through Vulkan, as for adapters that are there.
const APPLE: GpuLimits = GpuLimits {
    workgroup_threads: 1024,
    workgroup_bytes: 32 << 10,
    storage_bindings: 29,
    binding_bytes: LONGEST_BINDING,
    buffer_bytes: 4 << 30,
    grid: 65_535,
    offset_alignment: 32,
    half: true,
    matrix: Some(MatrixUnits::Side8),
    stores_parts: false,
    chosen: Chosen::NONE,
};

/// Every profile.
pub const PROFILES: [Profile; 4] = [
    // `maxBufferLength` is no constant of Metal: this is half of the memory of the smallest machine
    // sold, 8 GB.
    Profile { word: "apple-m1", name: "Apple M1, 8 GB", limits: APPLE },
    // Half of 16 GB.
    Profile {
        word: "apple-m4",
        name: "Apple M4, 16 GB",
        limits: GpuLimits { buffer_bytes: 8 << 30, ..APPLE },
    },
    // The driver's values in the Vulkan hardware database (vulkan.gpuinfo.org) for the generations
    // from Turing on: maxComputeWorkGroupInvocations, maxComputeSharedMemorySize,
    // maxPerStageDescriptorStorageBuffers, maxMemoryAllocationSize, maxComputeWorkGroupCount,
    // minStorageBufferOffsetAlignment, cooperative matrices of 16×16. An H200 with driver 580.159.04
    // has this largest buffer. wgpu binds at most 2 GiB less a byte under Vulkan.
    Profile {
        word: "nvidia",
        name: "NVIDIA, Turing or newer, Vulkan",
        limits: GpuLimits {
            workgroup_threads: 1024,
            workgroup_bytes: 48 << 10,
            storage_bindings: 1 << 20,
            binding_bytes: i32::MAX as u64,
            buffer_bytes: 0xFFE0_0000,
            grid: 65_535,
            offset_alignment: 16,
            half: true,
            matrix: Some(MatrixUnits::Side16),
            stores_parts: true,
            chosen: Chosen::NONE,
        },
    },
    // The default limits of the WebGPU specification (section 3.6.2), but for the workgroup memory
    // that every kernel may use.
    Profile { word: "webgpu", name: "WebGPU with default limits", limits: GpuLimits::FLOOR },
];
