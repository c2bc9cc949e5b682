//! From a plan to commands: kernels compiled, bind groups built, nothing left for the loop.

use std::collections::HashMap;

use rayon::prelude::*;
use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindGroupLayout, BindGroupLayoutDescriptor,
    BindGroupLayoutEntry, BindingResource, BindingType, Buffer, BufferBinding, BufferBindingType,
    ComputePipeline, ShaderStages,
};

use super::Options;
use super::counted::Counted;
use super::faults::Fault;
use super::sizes::{RUNS, launches, slot};
use crate::device::DeviceError;
use crate::kernels::assemble;
use crate::ops::{GpuLimits, Kernel, Launch};
use crate::plan::{ALIGN, Page, Plan, Slot, Step};

/// One dispatch, ready to be recorded.
pub(super) struct Command {
    pub(super) pipeline: usize,
    /// One for each place of the globals in a submission.
    pub(super) groups: [BindGroup; RUNS],
    pub(super) grid: [u32; 3],
}

/// The commands of one step of a program.
pub(super) struct Recorded {
    pub(super) commands: Vec<Command>,
    pub(super) flops: u64,
}

/// Builds everything that a plan's programs need on a device.
pub(super) struct Builder<'a> {
    pub(super) device: &'a Counted,
    pub(super) limits: &'a GpuLimits,
    pub(super) pages: &'a HashMap<Page, Buffer>,
    pub(super) dims: &'a Buffer,
    pub(super) globals: &'a Buffer,
    options: &'a Options,
    layouts: HashMap<usize, BindGroupLayout>,
    kernels: Vec<(Kernel, usize)>,
    found: HashMap<Kernel, usize>,
    /// The words of all launches, one slot of [`ALIGN`] bytes each.
    pub(super) words: Vec<u8>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        device: &'a Counted,
        limits: &'a GpuLimits,
        pages: &'a HashMap<Page, Buffer>,
        dims: &'a Buffer,
        globals: &'a Buffer,
        options: &'a Options,
    ) -> Self {
        Builder {
            device,
            limits,
            pages,
            dims,
            globals,
            options,
            layouts: HashMap::new(),
            kernels: Vec::new(),
            found: HashMap::new(),
            words: Vec::new(),
        }
    }

    /// The commands of all programs.
    pub(super) fn programs(&mut self, plan: &Plan) -> Vec<Vec<Recorded>> {
        let programs = plan.programs.iter();
        programs.map(|program| program.steps.iter().map(|step| self.step(step)).collect()).collect()
    }

    fn step(&mut self, step: &Step) -> Recorded {
        let (ins, outs): (Vec<_>, Vec<_>) =
            (step.in_types.iter().collect(), step.out_types.iter().collect());
        let flops = step.op.flops(&ins, &outs);
        let mut commands = Vec::new();
        for launch in launches(step, self.limits) {
            let slots: Vec<Slot> = launch.binds.iter().map(|bind| slot(step, *bind)).collect();
            commands.push(self.command(&launch, &slots));
        }
        Recorded { commands, flops }
    }

    /// A launch over slots of the pages.
    fn command(&mut self, launch: &Launch, slots: &[Slot]) -> Command {
        let bindings: Vec<BufferBinding<'_>> = slots
            .iter()
            .map(|slot| BufferBinding {
                buffer: &self.pages[&slot.page],
                offset: slot.offset,
                size: wgpu::BufferSize::new(slot.bytes),
            })
            .collect();
        self.command_over(launch, &bindings)
    }

    /// A launch over any buffers.
    pub(super) fn command_over(
        &mut self,
        launch: &Launch,
        storage: &[BufferBinding<'_>],
    ) -> Command {
        let at = self.words.len() as u64;
        self.words.extend_from_slice(bytemuck::cast_slice(&launch.dims));
        self.words.resize(at as usize + ALIGN as usize, 0);
        let pipeline = self.kernel(&launch.kernel, storage.len());
        let layout = self.layout(storage.len());
        let uniform = |buffer, offset| {
            BindingResource::Buffer(BufferBinding {
                buffer,
                offset,
                size: wgpu::BufferSize::new(ALIGN),
            })
        };
        let group = |run: u64| {
            let mut entries = vec![
                BindGroupEntry { binding: 0, resource: uniform(self.dims, at) },
                BindGroupEntry { binding: 1, resource: uniform(self.globals, run * ALIGN) },
            ];
            entries.extend((2..).zip(storage).map(|(binding, buffer)| BindGroupEntry {
                binding,
                resource: BindingResource::Buffer(buffer.clone()),
            }));
            self.device.bind_group(&BindGroupDescriptor {
                label: None,
                layout: &layout,
                entries: &entries,
            })
        };
        Command {
            pipeline,
            groups: std::array::from_fn(|run| group(run as u64)),
            grid: launch.grid,
        }
    }

    fn kernel(&mut self, kernel: &Kernel, storage: usize) -> usize {
        if let Some(found) = self.found.get(kernel) {
            return *found;
        }
        self.kernels.push((kernel.clone(), storage));
        self.found.insert(kernel.clone(), self.kernels.len() - 1);
        self.kernels.len() - 1
    }

    fn layout(&mut self, storage: usize) -> BindGroupLayout {
        let device = self.device;
        self.layouts
            .entry(storage)
            .or_insert_with(|| {
                let entry = |binding: u32, ty| BindGroupLayoutEntry {
                    binding,
                    visibility: ShaderStages::COMPUTE,
                    ty: BindingType::Buffer {
                        ty,
                        has_dynamic_offset: false,
                        min_binding_size: None,
                    },
                    count: None,
                };
                let uniforms = (0..2).map(|binding| entry(binding, BufferBindingType::Uniform));
                let buffers = (0..storage as u32)
                    .map(|i| entry(i + 2, BufferBindingType::Storage { read_only: false }));
                let entries: Vec<BindGroupLayoutEntry> = uniforms.chain(buffers).collect();
                device.bind_group_layout(&BindGroupLayoutDescriptor {
                    label: None,
                    entries: &entries,
                })
            })
            .clone()
    }

    /// Compiles all kernels that were asked for, several at once.
    pub(super) fn compile(&self) -> Result<Vec<ComputePipeline>, DeviceError> {
        let texts: Vec<String> =
            self.kernels.iter().map(|(kernel, _)| assembled(kernel)).collect::<Result<_, _>>()?;
        let texts = self.with_fault(texts)?;
        let kernels = self.kernels.par_iter().zip(texts);
        Ok(kernels.map(|((kernel, storage), text)| self.pipeline(kernel, text, *storage)).collect())
    }

    /// The kernels' texts with the failure that was asked for in one of them.
    fn with_fault(&self, mut texts: Vec<String>) -> Result<Vec<String>, DeviceError> {
        let Some(fault @ Fault::EditKernel { kernel: name, old, .. }) = &self.options.fault else {
            return Ok(texts);
        };
        let mut edits = 0;
        for ((kernel, _), text) in self.kernels.iter().zip(&mut texts) {
            if let Some(edited) = fault.edited(kernel.name(), text) {
                *text = edited;
                edits += 1;
            }
        }
        if edits == 0 {
            let reason = format!("no kernel `{name}` with `{old}` is launched");
            return Err(DeviceError::Unfit(reason));
        }
        Ok(texts)
    }

    fn pipeline(&self, kernel: &Kernel, text: String, storage: usize) -> ComputePipeline {
        tracing::debug!(kernel = kernel.name(), constants = ?kernel.constants, "compiling");
        let descriptor = wgpu::ShaderModuleDescriptor {
            label: Some(kernel.name()),
            source: wgpu::ShaderSource::Wgsl(text.into()),
        };
        let module = if self.options.checked {
            self.device.checked_shader(descriptor)
        } else {
            self.device.trusted_shader(descriptor)
        };
        let layout = self.device.pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[self.layouts.get(&storage)],
            immediate_size: 0,
        });
        self.device.pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(kernel.name()),
            layout: Some(&layout),
            module: &module,
            entry_point: Some(kernel.entry),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: self.options.checked,
                ..Default::default()
            },
            cache: None,
        })
    }
}

fn assembled(kernel: &Kernel) -> Result<String, DeviceError> {
    match assemble(kernel) {
        Ok(assembled) => Ok(assembled.text),
        Err(error) => Err(DeviceError::Unfit(error.to_string())),
    }
}
