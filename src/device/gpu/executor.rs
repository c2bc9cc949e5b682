//! The GPU executor.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use wgpu::{
    Buffer, BufferBinding, BufferDescriptor, BufferUsages, CommandEncoder, ComputePipeline,
    MapMode, PollType,
};

use super::Options;
use super::adapter::{Failure, GpuDevice};
use super::build::{Builder, Command, Recorded};
use super::rings::Mappable;
use super::sizes::{CANARY_BYTES, RUNS, Sizes, check_fit};
use super::submit::Open;
use crate::device::{DeviceError, DeviceInfo, Executor, Report, Run, Usage};
use crate::graph::TensorType;
use crate::ops::{Kernel, Launch, Target};
use crate::plan::{ALIGN, Page, Plan, Slot};

/// Floating-point operations in one submission: about a third of a second on the slowest GPU that
/// is worth training on. macOS ends long work, Windows after two seconds.
const SUBMISSION_FLOPS: u64 = 100_000_000_000;
/// The same on a software adapter.
const SOFTWARE_FLOPS: u64 = 1_000_000_000;
/// Longest time that one submission may take before the device counts as hung.
const PATIENCE: Duration = Duration::from_secs(120);

/// A report on its way back.
struct Pending {
    tag: u64,
    readback: usize,
    /// Serial numbers of the submissions since the report before.
    first: u64,
    last: u64,
}

/// Runs plans on a GPU.
pub struct GpuExecutor {
    pub(super) gpu: GpuDevice,
    pub(super) plan: Plan,
    pub(super) pages: HashMap<Page, Buffer>,
    pub(super) programs: Vec<Vec<Recorded>>,
    pub(super) pipelines: Vec<ComputePipeline>,
    pub(super) canary: Command,
    pub(super) canary_cells: Buffer,
    pub(super) globals: Buffer,
    pub(super) stagings: Vec<Mappable>,
    pub(super) next_staging: usize,
    pub(super) open: Option<Open>,
    pub(super) readbacks: Vec<Mappable>,
    pub(super) free_readbacks: VecDeque<usize>,
    pub(super) transfer: Mappable,
    pending: VecDeque<Pending>,
    pub(super) done: Vec<Report>,
    pub(super) sizes: Sizes,
    pub(super) options: Options,
    pub(super) budget: u64,
    /// Steps that share a submission.
    pub(super) together: usize,
    pub(super) serial: u64,
}

impl GpuExecutor {
    pub(super) fn new(gpu: GpuDevice, plan: &Plan, options: Options) -> Result<Self, DeviceError> {
        check_fit(plan, &gpu.limits, &gpu.info.name)?;
        let begin = Instant::now();
        let sizes = Sizes::new(plan);
        let out_of_memory = gpu.device.error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = |label: &str, size: u64, usage: BufferUsages, mapped: bool| {
            let label = Some(label);
            let mapped_at_creation = mapped;
            gpu.device.buffer(&BufferDescriptor { label, size, usage, mapped_at_creation })
        };
        let storage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let pages: HashMap<Page, Buffer> = plan
            .pages
            .iter()
            .map(|(page, bytes)| (*page, buffer(&page.name(), *bytes, storage, false)))
            .collect();
        let uniform = BufferUsages::UNIFORM | BufferUsages::COPY_DST;
        let dims = buffer("dims", sizes.dims, uniform, false);
        let globals = buffer("globals", RUNS as u64 * ALIGN, uniform, false);
        let canary_cells = buffer("canary", CANARY_BYTES, storage, false);
        let write = BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC;
        let read = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let stagings = (0..sizes.stagings)
            .map(|_| Mappable::new(buffer("staging", sizes.staging, write, true), true))
            .collect();
        let readbacks = (0..sizes.stagings + 1)
            .map(|_| Mappable::new(buffer("readback", sizes.readback, read, false), false))
            .collect();
        let transfer = Mappable::new(buffer("transfer", sizes.transfer, read, false), false);
        if let Some(error) = pollster::block_on(out_of_memory.pop()) {
            return Err(DeviceError::Unfit(format!("the plan's memory cannot be had: {error}")));
        }
        // What the plan was made for: the kernels must be those whose scratch it placed.
        let limits = match &plan.target {
            Target::Gpu(limits) => limits,
            Target::Cpu => &gpu.limits,
        };
        let mut builder = Builder::new(&gpu.device, limits, &pages, &dims, &globals, &options);
        let programs = builder.programs(plan);
        let launch = Launch {
            kernel: Kernel::file("canary", "canary"),
            dims: Vec::new(),
            binds: Vec::new(),
            grid: [1, 1, 1],
        };
        let cells = BufferBinding { buffer: &canary_cells, offset: 0, size: None };
        let canary = builder.command_over(&launch, &[cells]);
        let pipelines = builder.compile()?;
        tracing::info!(
            device = %gpu.info.name,
            kernels = pipelines.len(),
            milliseconds = begin.elapsed().as_millis() as u64,
            "memory allocated and kernels compiled"
        );
        gpu.queue.write_buffer(&dims, 0, &builder.words);
        let own = if gpu.software { SOFTWARE_FLOPS } else { SUBMISSION_FLOPS };
        let budget = options.submission_flops.unwrap_or(own);
        let executor = GpuExecutor {
            plan: plan.clone(),
            pages,
            programs,
            pipelines,
            canary,
            canary_cells,
            globals,
            stagings,
            next_staging: 0,
            open: None,
            readbacks,
            free_readbacks: (0..sizes.stagings + 1).collect(),
            transfer,
            pending: VecDeque::new(),
            done: Vec::new(),
            sizes,
            // A fault hits one submission, so then each has its own.
            together: if options.fault.is_some() { 1 } else { sizes.together },
            options,
            budget,
            serial: 0,
            gpu,
        };
        executor.fill_constants();
        executor.check()?;
        Ok(executor)
    }

    fn fill_constants(&self) {
        for (slot, values) in &self.plan.consts {
            let count = (slot.bytes / 4) as usize;
            let values: Vec<f32> = values.iter().copied().cycle().take(count).collect();
            self.gpu.queue.write_buffer(
                &self.pages[&slot.page],
                slot.offset,
                bytemuck::cast_slice(&values),
            );
        }
    }

    pub(super) fn failed(&self, reason: impl Into<String>) -> DeviceError {
        DeviceError::Failed { submission: self.serial, reason: reason.into() }
    }

    /// What the device's callbacks have told.
    pub(super) fn check(&self) -> Result<(), DeviceError> {
        self.failure().get().map_or(Ok(()), |reason| Err(self.failed(reason)))
    }

    fn failure(&self) -> &Failure {
        &self.gpu.failure
    }

    /// Waits until a buffer is mapped: for the submission that uses it and no longer, and for a
    /// bounded time.
    pub(super) fn wait(&self, what: &str, buffer: &Mappable) -> Result<(), DeviceError> {
        let begin = Instant::now();
        while !buffer.is_mapped() {
            self.check()?;
            if buffer.has_failed() {
                return Err(self.failed(format!("{what} could not be mapped")));
            }
            if begin.elapsed() > PATIENCE {
                let seconds = PATIENCE.as_secs();
                return Err(self.failed(format!("no answer within {seconds} s ({what})")));
            }
            let poll = PollType::Wait {
                submission_index: buffer.used_by(),
                timeout: Some(Duration::from_secs(1)),
            };
            match self.gpu.device.poll(poll) {
                Ok(_) | Err(wgpu::PollError::Timeout) => {}
                Err(error) => return Err(self.failed(error.to_string())),
            }
        }
        self.check()
    }

    fn encoder(&self) -> CommandEncoder {
        self.gpu.device.encoder()
    }

    /// Time of one submission that runs some steps of a program `repeats` times.
    fn time_commands(
        &self,
        program: usize,
        steps: std::ops::Range<usize>,
        repeats: u32,
    ) -> Result<Duration, DeviceError> {
        let mut encoder = self.encoder();
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for _ in 0..repeats {
            let commands = self.programs[program][steps.clone()].iter().flat_map(|s| &s.commands);
            commands.for_each(|command| self.dispatch(&mut pass, command, 0));
        }
        drop(pass);
        let begin = Instant::now();
        self.gpu.queue.submit([encoder.finish()]);
        let waited = self.gpu.device.poll(PollType::wait_indefinitely());
        waited.map_err(|error| self.failed(error.to_string()))?;
        Ok(begin.elapsed())
    }

    /// Takes the oldest report over if it has arrived.
    fn collect(&mut self) -> Result<bool, DeviceError> {
        let Some(pending) = self.pending.front() else { return Ok(false) };
        let readback = &self.readbacks[pending.readback];
        if readback.has_failed() {
            return Err(self.failed("a report could not be mapped"));
        }
        if !readback.is_mapped() {
            return Ok(false);
        }
        let view =
            readback.buffer.get_mapped_range(..).map_err(|error| self.failed(error.to_string()))?;
        let (report, canary) = view.split_at(self.plan.page_bytes(Page::Report) as usize);
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(report);
        let cells: Vec<u32> = bytemuck::pod_collect_to_vec(canary);
        drop(view);
        readback.unmap();
        let (ended, wanted) = (u64::from(cells[0]), pending.last & u64::from(u32::MAX));
        if ended != wanted {
            let (first, last) = (pending.first, pending.last);
            let which = if first == last {
                "it".to_owned()
            } else {
                format!("one of the submissions {first} to {last}")
            };
            let reason = format!(
                "{which} never ran to its end (the device counts {ended} submissions, the host {wanted})"
            );
            return Err(DeviceError::Failed { submission: first, reason });
        }
        self.done.push(Report { tag: pending.tag, values });
        self.free_readbacks.push_back(pending.readback);
        self.pending.pop_front();
        Ok(true)
    }

    /// Waits for the oldest report.
    fn await_report(&mut self) -> Result<(), DeviceError> {
        self.flush()?;
        let Some(pending) = self.pending.front() else { return Ok(()) };
        self.wait("a report", &self.readbacks[pending.readback])?;
        self.collect().map(|_| ())
    }
}

/// Splits programs into groups of at most [`RUNS`], at most one of which has inputs.
fn groups<'r, 'a>(runs: &'r [Run<'a>]) -> Vec<&'r [Run<'a>]> {
    let mut groups = Vec::new();
    let mut start = 0;
    for at in 1..=runs.len() {
        let inputs =
            runs[start..at.min(runs.len())].iter().filter(|r| !r.inputs.is_empty()).count();
        let next_has_inputs = runs.get(at).is_some_and(|r| !r.inputs.is_empty());
        if at == runs.len() || at - start == RUNS || (inputs == 1 && next_has_inputs) {
            groups.push(&runs[start..at]);
            start = at;
        }
    }
    groups
}

impl Executor for GpuExecutor {
    fn info(&self) -> &DeviceInfo {
        &self.gpu.info
    }

    fn write(&mut self, slot: Slot, bytes: &[u8]) -> Result<(), DeviceError> {
        self.flush()?;
        self.gpu.queue.write_buffer(&self.pages[&slot.page], slot.offset, bytes);
        self.check()
    }

    fn read(&mut self, slot: Slot) -> Result<Vec<u8>, DeviceError> {
        self.flush()?;
        let mut out = Vec::with_capacity(slot.bytes as usize);
        while (out.len() as u64) < slot.bytes {
            let at = slot.offset + out.len() as u64;
            let size = self.sizes.transfer.min(slot.bytes - out.len() as u64);
            let mut encoder = self.encoder();
            encoder.copy_buffer_to_buffer(
                &self.pages[&slot.page],
                at,
                &self.transfer.buffer,
                0,
                size,
            );
            let submission = self.gpu.queue.submit([encoder.finish()]);
            self.transfer.request(MapMode::Read, submission);
            self.wait("a page", &self.transfer)?;
            let view = self
                .transfer
                .buffer
                .get_mapped_range(..size)
                .map_err(|error| self.failed(error.to_string()))?;
            out.extend_from_slice(&view);
            drop(view);
            self.transfer.unmap();
        }
        Ok(out)
    }

    fn submit(&mut self, runs: &[Run<'_>], tag: u64) -> Result<(), DeviceError> {
        self.check()?;
        while self.free_readbacks.is_empty() {
            self.await_report()?;
        }
        let readback = self.free_readbacks.pop_front();
        let first = self.serial + 1;
        let groups = groups(runs);
        let count = groups.len();
        for (index, group) in groups.into_iter().enumerate() {
            self.group(group, readback.filter(|_| index + 1 == count))?;
        }
        if let Some(readback) = readback {
            self.pending.push_back(Pending { tag, readback, first, last: self.serial });
        }
        Ok(())
    }

    fn reports(&mut self, wait: bool) -> Result<Vec<Report>, DeviceError> {
        if wait {
            self.flush()?;
            while !self.pending.is_empty() {
                self.await_report()?;
            }
        } else {
            if let Err(error) = self.gpu.device.poll(PollType::Poll) {
                return Err(self.failed(error.to_string()));
            }
            while self.collect()? {}
        }
        self.check()?;
        Ok(std::mem::take(&mut self.done))
    }

    fn usage(&self) -> Usage {
        Usage {
            pages: self
                .plan
                .pages
                .iter()
                .map(|(page, _)| (page.name(), self.page_bytes(*page)))
                .collect(),
            staging: self
                .stagings
                .iter()
                .chain(&self.readbacks)
                .chain([&self.transfer])
                .map(|m| m.buffer.size())
                .sum(),
            small: self.sizes.dims + self.globals.size() + self.canary_cells.size(),
            allocations: self.gpu.device.counts().0,
            compilations: self.gpu.device.counts().1,
            submissions: self.serial,
        }
    }

    fn inspect(
        &mut self,
        run: &Run<'_>,
        look: &mut dyn FnMut(usize, usize, &TensorType, &[f32]) -> bool,
    ) -> Result<(), DeviceError> {
        self.reports(true)?;
        self.upload(std::slice::from_ref(run))?;
        self.flush()?;
        for index in 0..self.programs[run.program].len() {
            let mut encoder = self.encoder();
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            let commands = &self.programs[run.program][index].commands;
            commands.iter().for_each(|command| self.dispatch(&mut pass, command, 0));
            drop(pass);
            self.gpu.queue.submit([encoder.finish()]);
            let step = &self.plan.programs[run.program].steps[index];
            let outs: Vec<(Slot, TensorType)> =
                step.outs.iter().copied().zip(step.out_types.clone()).collect();
            for (out, (slot, ty)) in outs.iter().enumerate() {
                let values = ty.numbers(&self.read(*slot)?);
                if !look(index, out, ty, &values) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn time_steps(&mut self, run: &Run<'_>, repeats: u32) -> Result<Vec<Duration>, DeviceError> {
        self.reports(true)?;
        self.upload(std::slice::from_ref(run))?;
        self.flush()?;
        let steps = self.programs[run.program].len();
        let empty = self.time_commands(run.program, 0..0, repeats)?;
        (0..steps)
            .map(|step| {
                self.time_commands(run.program, step..step + 1, repeats)?;
                let time = self.time_commands(run.program, step..step + 1, repeats)?;
                Ok(time.saturating_sub(empty) / repeats)
            })
            .collect()
    }

    fn page_bytes(&self, page: Page) -> u64 {
        self.pages.get(&page).map_or(0, Buffer::size)
    }
}
