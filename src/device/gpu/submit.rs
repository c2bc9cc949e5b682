//! From programs to submissions: uploads, recording, cuts. Short steps share a submission, long
//! ones are cut into several; neither changes a bit.

use wgpu::{CommandEncoder, MapMode};

use super::Fault;
use super::build::Command;
use super::executor::GpuExecutor;
use super::sizes::{CANARY_BYTES, RUNS};
use crate::device::{DeviceError, Globals, Run};
use crate::plan::{ALIGN, Page};

/// What is recorded and not submitted yet.
pub(super) struct Open {
    encoder: CommandEncoder,
    /// Staging and readback buffers that it uses.
    stagings: Vec<usize>,
    readbacks: Vec<usize>,
    /// Floating-point operations.
    work: u64,
}

impl GpuExecutor {
    fn open(&mut self) -> Open {
        self.open.take().unwrap_or_else(|| Open {
            encoder: self.gpu.device.encoder(),
            stagings: Vec::new(),
            readbacks: Vec::new(),
            work: 0,
        })
    }

    /// Submits what is recorded.
    pub(super) fn flush(&mut self) -> Result<(), DeviceError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let submission = self.gpu.queue.submit([open.encoder.finish()]);
        for staging in open.stagings {
            self.stagings[staging].request(MapMode::Write, submission.clone());
        }
        for readback in open.readbacks {
            self.readbacks[readback].request(MapMode::Read, submission.clone());
        }
        self.check()
    }

    /// A mapped staging buffer, the oldest of the ring.
    fn staging(&mut self) -> Result<usize, DeviceError> {
        let index = self.next_staging;
        self.next_staging = (index + 1) % self.stagings.len();
        if self.open.as_ref().is_some_and(|open| open.stagings.contains(&index)) {
            self.flush()?;
        }
        self.wait("an upload buffer", &self.stagings[index])?;
        Ok(index)
    }

    /// Records the uploads of a group of programs, of which at most one has inputs.
    pub(super) fn upload(&mut self, runs: &[Run<'_>]) -> Result<(), DeviceError> {
        let index = self.staging()?;
        let batch = self.plan.page_bytes(Page::Batch);
        let mapped = self.stagings[index].buffer.get_mapped_range_mut(..);
        let mut view = mapped.map_err(|error| self.failed(error.to_string()))?;
        let mut end = 0;
        for (place, run) in runs.iter().enumerate() {
            let slots = &self.plan.programs[run.program].inputs;
            for ((slot, _), bytes) in slots.iter().zip(&run.inputs) {
                let at = slot.offset as usize;
                view.slice(at..at + bytes.len()).copy_from_slice(bytes);
                end = end.max(slot.offset + bytes.len() as u64);
            }
            let at = batch as usize + place * ALIGN as usize;
            view.slice(at..at + size_of::<Globals>())
                .copy_from_slice(bytemuck::bytes_of(&run.globals));
        }
        drop(view);
        self.stagings[index].unmap();
        let mut open = self.open();
        let staging = &self.stagings[index].buffer;
        if end > 0 {
            let page = &self.pages[&Page::Batch];
            open.encoder.copy_buffer_to_buffer(staging, 0, page, 0, end);
        }
        let globals = RUNS as u64 * ALIGN;
        open.encoder.copy_buffer_to_buffer(staging, batch, &self.globals, 0, globals);
        open.stagings.push(index);
        self.open = Some(open);
        Ok(())
    }

    /// Records a group of programs, cut where a submission would run for long.
    pub(super) fn group(
        &mut self,
        runs: &[Run<'_>],
        report: Option<usize>,
    ) -> Result<(), DeviceError> {
        self.upload(runs)?;
        for (place, run) in runs.iter().enumerate() {
            let mut at = 0;
            while at < self.programs[run.program].len() {
                at = self.record(run.program, at, place);
                if at < self.programs[run.program].len() {
                    self.end_of_work(None)?;
                    self.flush()?;
                }
            }
        }
        self.end_of_work(report)?;
        let steps = self.open.as_ref().map_or(0, |open| open.readbacks.len());
        if steps >= self.together { self.flush() } else { Ok(()) }
    }

    /// Records steps of a program from `at` until the budget is used; returns where it stopped.
    fn record(&mut self, program: usize, at: usize, place: usize) -> usize {
        let mut open = self.open();
        let steps = &self.programs[program];
        let mut pass = open.encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        let mut end = steps.len();
        for (index, step) in steps.iter().enumerate().skip(at) {
            if open.work > 0 && open.work + step.flops > self.budget {
                end = index;
                break;
            }
            open.work += step.flops;
            step.commands.iter().for_each(|command| self.dispatch(&mut pass, command, place));
        }
        drop(pass);
        self.open = Some(open);
        end
    }

    pub(super) fn dispatch(
        &self,
        pass: &mut wgpu::ComputePass<'_>,
        command: &Command,
        place: usize,
    ) {
        pass.set_pipeline(&self.pipelines[command.pipeline]);
        pass.set_bind_group(0, &command.groups[place], &[]);
        pass.dispatch_workgroups(command.grid[0], command.grid[1], command.grid[2]);
    }

    /// Ends a piece of work with its canary, and the copy of the report where one is wanted.
    fn end_of_work(&mut self, report: Option<usize>) -> Result<(), DeviceError> {
        self.serial += 1;
        let mut open = self.open();
        let mut pass = open.encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        self.dispatch(&mut pass, &self.canary, 0);
        drop(pass);
        match &self.options.fault {
            Some(Fault::DropSubmission(serial)) if *serial == self.serial => {
                open.encoder = self.gpu.device.encoder();
            }
            Some(Fault::LoseDevice(serial)) if *serial == self.serial => self.gpu.device.destroy(),
            _ => {}
        }
        if let Some(readback) = report {
            let to = &self.readbacks[readback].buffer;
            let bytes = self.plan.page_bytes(Page::Report);
            if bytes > 0 {
                open.encoder.copy_buffer_to_buffer(&self.pages[&Page::Report], 0, to, 0, bytes);
            }
            open.encoder.copy_buffer_to_buffer(&self.canary_cells, 0, to, bytes, CANARY_BYTES);
            open.readbacks.push(readback);
        }
        self.open = Some(open);
        Ok(())
    }
}
