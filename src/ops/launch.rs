//! How an op describes its GPU work: plain data that the GPU executor turns into pipelines and
//! bind groups without ever learning an op's name.

use std::borrow::Cow;

use super::selection::Chosen;
use crate::graph::{DType, TensorType};

/// Where a program will run.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// The native executor.
    Cpu,
    /// A GPU with these limits.
    Gpu(GpuLimits),
}

/// What lowering may rely on. The values are the adapter's own.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuLimits {
    /// Threads in a workgroup.
    pub workgroup_threads: u32,
    /// Bytes of workgroup memory.
    pub workgroup_bytes: u32,
    /// Storage buffers that one dispatch may bind.
    pub storage_bindings: u32,
    /// Bytes of one storage binding.
    pub binding_bytes: u64,
    /// Bytes of one buffer.
    pub buffer_bytes: u64,
    /// Workgroups along one dimension of a dispatch.
    pub grid: u32,
    /// Alignment of a binding's offset, in bytes.
    pub offset_alignment: u64,
    /// Whether kernels may store half-precision floats.
    pub half: bool,
    /// The matrix units that kernels may use.
    pub matrix: Option<MatrixUnits>,
    /// Whether threads may store different parts of one vector in workgroup memory at once.
    pub stores_parts: bool,
    /// The tiles that were chosen by measuring.
    pub chosen: Chosen,
}

/// Matrix units: the products of small matrices of half-precision floats that a group of 32 threads
/// computes at once, with sums in single precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MatrixUnits {
    /// 8×8, as Apple's GPUs have them.
    Side8,
    /// 16×16, as most GPUs under Vulkan have them.
    Side16,
}

impl GpuLimits {
    /// The floor that each kernel must fit: what every WebGPU device has, and the 32 KiB of
    /// workgroup memory that every Metal and DX12 device and all Vulkan GPUs of desktops have.
    pub const FLOOR: GpuLimits = GpuLimits {
        workgroup_threads: 256,
        workgroup_bytes: 32 << 10,
        storage_bindings: 8,
        binding_bytes: 128 << 20,
        buffer_bytes: 256 << 20,
        grid: 65_535,
        offset_alignment: 256,
        half: false,
        matrix: None,
        stores_parts: false,
        chosen: Chosen::NONE,
    };
}

impl MatrixUnits {
    /// Rows and columns of a small matrix.
    pub const fn side(self) -> usize {
        match self {
            MatrixUnits::Side8 => 8,
            MatrixUnits::Side16 => 16,
        }
    }

    /// A kernel that uses lib/matrix16 with the library of these units.
    pub fn in_kernel(self, kernel: Kernel) -> Kernel {
        match self {
            MatrixUnits::Side8 => kernel.with_library("matrix16", "matrix8"),
            MatrixUnits::Side16 => kernel,
        }
    }
}

/// A WGSL kernel with its specialisation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The WGSL text before `@use` lines are resolved: a file of kernels/, or generated.
    pub source: Source,
    /// Entry point.
    pub entry: &'static str,
    /// Values for the file's `const NAME: u32 = …;` lines, by name.
    pub constants: Vec<(&'static str, u32)>,
    /// What stands in the place of library files, by their stem.
    pub replace: Vec<(&'static str, Replacement)>,
    /// Storage that holds half-precision floats, by the name before `_t` in `alias x_t = f32;`.
    pub half: Vec<&'static str>,
}

/// What stands in the place of a library file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Replacement {
    /// Another library file.
    File(&'static str),
    /// Generated text.
    Text(String),
}

/// Where a kernel's text comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// kernels/`stem`.wgsl.
    File(&'static str),
    /// Text generated for a fused chain, under the name that reports show.
    Generated {
        /// Name in reports.
        name: Cow<'static, str>,
        /// WGSL.
        text: String,
    },
}

impl Kernel {
    /// A kernel file's entry point, unspecialised.
    pub fn file(stem: &'static str, entry: &'static str) -> Self {
        Kernel {
            source: Source::File(stem),
            entry,
            constants: Vec::new(),
            replace: Vec::new(),
            half: Vec::new(),
        }
    }

    /// Says how an operand is stored: `alias NAME_t = f32;` becomes `f16` where it is so.
    #[must_use]
    pub fn stored(mut self, name: &'static str, ty: &TensorType) -> Self {
        if ty.dtype == DType::F16 {
            self.half.push(name);
        }
        self
    }

    /// Sets one of the file's constants.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: u32) -> Self {
        self.constants.push((name, value));
        self
    }

    /// Puts one library file in the place of another.
    #[must_use]
    pub fn with_library(mut self, stem: &'static str, other: &'static str) -> Self {
        self.replace.push((stem, Replacement::File(other)));
        self
    }

    /// Name in reports: the file's stem or the generated name.
    pub fn name(&self) -> &str {
        match &self.source {
            Source::File(stem) => stem,
            Source::Generated { name, .. } => name,
        }
    }
}

/// An operand of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bind {
    /// The op's input.
    In(usize),
    /// The op's output.
    Out(usize),
    /// The op's scratch memory.
    Scratch,
}

/// One dispatch: kernel, uniform words, storage operands and grid.
///
/// Bindings of group 0: 0 is the uniform `dims` (the words below, padded to 16 bytes), 1 the
/// uniform `globals` (kernels/lib/globals.wgsl), 2 and up the storage operands in order, all
/// `read_write` because they may lie in one buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// What runs.
    pub kernel: Kernel,
    /// The words of the `dims` uniform, in the order of the kernel's struct.
    pub dims: Vec<u32>,
    /// Storage operands, from binding 2 on.
    pub binds: Vec<Bind>,
    /// Workgroups in x, y, z; each at most [`GpuLimits::grid`].
    pub grid: [u32; 3],
}

impl Launch {
    /// A launch over `rows` of `cols` elements of a kernel that uses lib/reduce by rows.
    pub fn rows(
        kernel: Kernel,
        dims: Vec<u32>,
        binds: Vec<Bind>,
        rows: usize,
        cols: usize,
    ) -> Self {
        let lanes = lanes(cols);
        let kernel = kernel.with("LANES", lanes as u32);
        Launch { kernel, dims, binds, grid: fold_groups(rows.div_ceil(256 / lanes)) }
    }

    /// A launch over `threads` flat threads of `per_group` each, folded into two dimensions where
    /// one does not hold them. The kernel's flat index is
    /// `(group.y * num_groups.x + group.x) * per_group + local`.
    pub fn flat(
        kernel: Kernel,
        dims: Vec<u32>,
        binds: Vec<Bind>,
        threads: usize,
        per_group: u32,
    ) -> Self {
        Launch { kernel, dims, binds, grid: fold_groups(threads.div_ceil(per_group as usize)) }
    }
}

/// Threads that share a row of `cols` elements, for kernels that use lib/reduce by rows: a few where
/// rows are short, so that a workgroup of 256 has several of them.
fn lanes(cols: usize) -> usize {
    if cols <= 1024 { 32 } else { 256 }
}

/// Folds a count of workgroups into x and y, each at most 65,535. A kernel must check its flat
/// index against its bound: the product may exceed the count.
pub fn fold_groups(groups: usize) -> [u32; 3] {
    let limit = GpuLimits::FLOOR.grid as usize;
    if groups <= limit {
        return [groups.max(1) as u32, 1, 1];
    }
    let y = groups.div_ceil(limit);
    let x = groups.div_ceil(y);
    [x as u32, y as u32, 1]
}
