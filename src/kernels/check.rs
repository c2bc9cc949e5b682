//! Validation of a kernel, and its translation to the languages of Metal, Vulkan and DX12, without
//! a device.

use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, TypeInner};

use super::Assembled;
use crate::ops::GpuLimits;

/// What is known of a kernel after its validation.
#[derive(Clone, Debug)]
pub struct Checked {
    module: Module,
    info: ModuleInfo,
    /// Bytes of workgroup memory.
    pub workgroup_bytes: u32,
    /// Threads of a workgroup.
    pub threads: u32,
}

/// A kernel in the languages of the backends.
#[derive(Clone, Debug)]
pub struct Translation {
    /// Metal shading language.
    pub msl: String,
    /// SPIR-V.
    pub spirv: Vec<u32>,
    /// HLSL; there is none for kernels on matrix units, which DX12 does not offer.
    pub hlsl: Option<String>,
}

/// Parses and validates WGSL, without any extension of the language but half-precision floats and
/// matrix units, which only devices that have them are given, and holds it against the floor of
/// every WebGPU device.
///
/// # Errors
/// Text with the file and line of the kernel.
pub fn check(assembled: &Assembled) -> Result<Checked, String> {
    let place = |line: usize| match assembled.origins.get(line.saturating_sub(1)) {
        Some((file, line)) => format!("kernels/{file}.wgsl:{line}"),
        None => "a kernel".to_owned(),
    };
    let module = naga::front::wgsl::parse_str(&assembled.text).map_err(|error| {
        let line = error.location(&assembled.text).map_or(0, |l| l.line_number as usize);
        format!("{}: {}", place(line), error.message())
    })?;
    let mut validator = Validator::new(
        ValidationFlags::all(),
        Capabilities::SHADER_FLOAT16 | Capabilities::COOPERATIVE_MATRIX,
    );
    let info = validator.validate(&module).map_err(|error| {
        let line = error.location(&assembled.text).map_or(0, |l| l.line_number as usize);
        format!("{}: {}", place(line), error.emit_to_string(&assembled.text))
    })?;
    let mut layouter = naga::proc::Layouter::default();
    layouter.update(module.to_ctx()).map_err(|error| error.to_string())?;
    let workgroup_bytes = (module.global_variables.iter())
        .filter(|(_, g)| g.space == AddressSpace::WorkGroup)
        .map(|(_, g)| layouter[g.ty].size)
        .sum();
    let threads =
        module.entry_points.iter().map(|e| e.workgroup_size.iter().product()).max().unwrap_or(0);
    let checked = Checked { module, info, workgroup_bytes, threads };
    checked.fits(&GpuLimits::FLOOR)?;
    Ok(checked)
}

impl Checked {
    fn fits(&self, floor: &GpuLimits) -> Result<(), String> {
        for entry in self.entries() {
            let storage = self.storage(entry).len();
            if storage > floor.storage_bindings as usize {
                return Err(format!(
                    "`{entry}` uses {storage} storage buffers; every device has only {}",
                    floor.storage_bindings
                ));
            }
        }
        if self.workgroup_bytes > floor.workgroup_bytes {
            return Err(format!(
                "{} bytes of workgroup memory; every device has only {}",
                self.workgroup_bytes, floor.workgroup_bytes
            ));
        }
        if self.threads > floor.workgroup_threads {
            return Err(format!(
                "{} threads; every device has only {}",
                self.threads, floor.workgroup_threads
            ));
        }
        let storage = self
            .module
            .global_variables
            .iter()
            .filter(|(_, g)| matches!(g.space, AddressSpace::Storage { .. }));
        for (_, global) in storage {
            if !matches!(self.module.types[global.ty].inner, TypeInner::Array { .. }) {
                return Err("a storage binding is no array".into());
            }
        }
        Ok(())
    }

    /// Names of the entry points.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.module.entry_points.iter().map(|entry| entry.name.as_str())
    }

    /// Binding numbers of the storage buffers that an entry point uses, ascending.
    pub fn storage(&self, entry: &str) -> Vec<u32> {
        self.bindings(entry, |space| matches!(space, AddressSpace::Storage { .. }))
    }

    /// Binding numbers of the uniform buffers that an entry point uses, ascending.
    pub fn uniforms(&self, entry: &str) -> Vec<u32> {
        self.bindings(entry, |space| matches!(space, AddressSpace::Uniform))
    }

    fn bindings(&self, entry: &str, wanted: fn(&AddressSpace) -> bool) -> Vec<u32> {
        let Some(index) = self.entries().position(|name| name == entry) else { return Vec::new() };
        let usage = self.info.get_entry_point(index);
        let globals = self.module.global_variables.iter();
        let used = globals.filter(|(handle, g)| wanted(&g.space) && !usage[*handle].is_empty());
        let mut found: Vec<u32> =
            used.filter_map(|(_, g)| g.binding.as_ref().map(|b| b.binding)).collect();
        found.sort_unstable();
        found
    }

    /// Translates one entry point.
    ///
    /// # Errors
    /// Whatever a backend cannot express.
    pub fn translate(&self, entry: &str) -> Result<Translation, String> {
        let stage = naga::ShaderStage::Compute;
        let msl_options = msl::Options {
            lang_version: (2, 4),
            fake_missing_bindings: true,
            ..Default::default()
        };
        let msl_pipeline = msl::PipelineOptions {
            entry_point: Some((stage, entry.to_owned())),
            ..Default::default()
        };
        let (msl, _) = msl::write_string(&self.module, &self.info, &msl_options, &msl_pipeline)
            .map_err(|error| format!("MSL: {error}"))?;
        let spv_pipeline =
            spv::PipelineOptions { shader_stage: stage, entry_point: entry.to_owned() };
        let spirv =
            spv::write_vec(&self.module, &self.info, &spv::Options::default(), Some(&spv_pipeline))
                .map_err(|error| format!("SPIR-V: {error}"))?;
        let types = &self.module.types;
        if types.iter().any(|(_, ty)| matches!(ty.inner, TypeInner::CooperativeMatrix { .. })) {
            return Ok(Translation { msl, spirv, hlsl: None });
        }
        let mut hlsl = String::new();
        let hlsl_options = hlsl::Options::default();
        let hlsl_pipeline = hlsl::PipelineOptions { entry_point: Some((stage, entry.to_owned())) };
        hlsl::Writer::new(&mut hlsl, &hlsl_options, &hlsl_pipeline)
            .write(&self.module, &self.info, None)
            .map_err(|error| format!("HLSL: {error}"))?;
        Ok(Translation { msl, spirv, hlsl: Some(hlsl) })
    }
}
