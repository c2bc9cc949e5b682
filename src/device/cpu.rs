//! The native executor: walks a program's steps and calls each op on slices of the pages.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::{DeviceError, DeviceInfo, Executor, Report, Run, Usage};
use crate::graph::{DType, TensorType};
use crate::ops::{Call, Operand};
use crate::plan::{Page, Plan, Slot, Step};

/// Runs plans on this machine's processor.
pub struct CpuExecutor {
    plan: Plan,
    memory: Memory,
    pool: ThreadPool,
    info: DeviceInfo,
    reports: Vec<Report>,
    submissions: u64,
}

impl CpuExecutor {
    /// Allocates the plan's pages and fills its constants. `threads` 0 means one a core.
    ///
    /// # Errors
    /// When the threads cannot be started.
    pub fn new(plan: Plan, threads: usize) -> Result<Self, DeviceError> {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().map_err(|error| {
            DeviceError::Unfit(format!("cannot start the worker threads: {error}"))
        })?;
        let mut memory = Memory::new(&plan.pages)?;
        for (slot, values) in &plan.consts {
            let repeated = values.iter().cycle();
            memory.floats_mut(*slot).iter_mut().zip(repeated).for_each(|(to, from)| *to = *from);
        }
        let info = info(pool.current_num_threads());
        Ok(CpuExecutor { plan, memory, pool, info, reports: Vec::new(), submissions: 0 })
    }

    fn load(&mut self, run: &Run<'_>) {
        let inputs = &self.plan.programs[run.program].inputs;
        for ((slot, _), bytes) in inputs.iter().zip(&run.inputs) {
            self.memory.bytes_mut(*slot).copy_from_slice(bytes);
        }
    }
}

/// Bytes of memory of this machine, where the system says so in /proc/meminfo.
fn installed_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// The processor as a device; 0 threads mean one a core.
pub fn info(threads: usize) -> DeviceInfo {
    let threads = if threads == 0 {
        std::thread::available_parallelism().map_or(1, usize::from)
    } else {
        threads
    };
    DeviceInfo {
        backend: "cpu".into(),
        name: format!("{} ({threads} threads)", std::env::consts::ARCH),
        driver: String::new(),
        threads,
    }
}

impl Executor for CpuExecutor {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn write(&mut self, slot: Slot, bytes: &[u8]) -> Result<(), DeviceError> {
        self.memory.bytes_mut(slot)[..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, slot: Slot) -> Result<Vec<u8>, DeviceError> {
        Ok(self.memory.bytes_mut(slot).to_vec())
    }

    fn submit(&mut self, runs: &[Run<'_>], tag: u64) -> Result<(), DeviceError> {
        for run in runs {
            self.load(run);
            let (memory, steps) = (&self.memory, &self.plan.programs[run.program].steps);
            self.pool.install(|| steps.iter().for_each(|step| memory.execute(step, run)));
        }
        self.submissions += 1;
        let bytes = self.plan.page_bytes(Page::Report);
        let values = self.memory.floats_mut(Slot { page: Page::Report, offset: 0, bytes }).to_vec();
        self.reports.push(Report { tag, values });
        Ok(())
    }

    fn reports(&mut self, _wait: bool) -> Result<Vec<Report>, DeviceError> {
        Ok(std::mem::take(&mut self.reports))
    }

    fn usage(&self) -> Usage {
        Usage {
            pages: (self.plan.pages.iter())
                .map(|(page, _)| (page.name(), self.page_bytes(*page)))
                .collect(),
            allocations: self.memory.pages.len() as u64,
            submissions: self.submissions,
            ..Usage::default()
        }
    }

    fn inspect(
        &mut self,
        run: &Run<'_>,
        look: &mut dyn FnMut(usize, usize, &TensorType, &[f32]) -> bool,
    ) -> Result<(), DeviceError> {
        self.load(run);
        for (index, step) in self.plan.programs[run.program].steps.iter().enumerate() {
            let memory = &self.memory;
            self.pool.install(|| memory.execute(step, run));
            for (out, (slot, ty)) in step.outs.iter().zip(&step.out_types).enumerate() {
                if !look(index, out, ty, self.memory.floats_mut(*slot)) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn time_steps(&mut self, run: &Run<'_>, repeats: u32) -> Result<Vec<Duration>, DeviceError> {
        self.load(run);
        let (memory, steps) = (&self.memory, &self.plan.programs[run.program].steps);
        let time = |step: &Step| {
            memory.execute(step, run);
            let begin = Instant::now();
            (0..repeats).for_each(|_| memory.execute(step, run));
            begin.elapsed() / repeats
        };
        Ok(self.pool.install(|| steps.iter().map(time).collect()))
    }

    fn page_bytes(&self, page: Page) -> u64 {
        self.memory.pages.get(&page).map_or(0, |words| words.len() as u64 * 4)
    }
}

/// The pages. Words are 32 bits, zero at the start.
struct Memory {
    pages: HashMap<Page, Box<[Word]>>,
}

/// A 32-bit word that steps may write through a shared reference to the memory.
#[repr(transparent)]
struct Word(std::cell::UnsafeCell<u32>);

// SAFETY: words are written only through `Memory::execute`, which hands each thread disjoint
// pieces of slices it holds exclusively (see there).
#[allow(unsafe_code, reason = "slots of one page are borrowed separately")]
unsafe impl Sync for Word {}

impl Memory {
    fn new(pages: &[(Page, u64)]) -> Result<Self, DeviceError> {
        let wanted: u64 = pages.iter().map(|(_, bytes)| *bytes).sum();
        let installed = installed_memory().unwrap_or(u64::MAX);
        let refused = || {
            DeviceError::Unfit(format!(
                "the plan takes {wanted} bytes; this machine has {installed}: use a smaller batch or model"
            ))
        };
        if wanted > installed {
            return Err(refused());
        }
        let page = |bytes: u64| -> Result<Box<[Word]>, DeviceError> {
            let mut words = Vec::new();
            words.try_reserve_exact((bytes / 4) as usize).map_err(|_| refused())?;
            words.extend((0..bytes / 4).map(|_| Word(0.into())));
            Ok(words.into_boxed_slice())
        };
        let pages = pages
            .iter()
            .map(|(p, bytes)| Ok((*p, page(*bytes)?)))
            .collect::<Result<_, DeviceError>>()?;
        Ok(Memory { pages })
    }

    fn words(&self, slot: Slot) -> &[Word] {
        let start = (slot.offset / 4) as usize;
        &self.pages[&slot.page][start..start + (slot.bytes / 4) as usize]
    }

    fn floats_mut(&mut self, slot: Slot) -> &mut [f32] {
        // SAFETY: `self` is borrowed exclusively.
        #[allow(unsafe_code, reason = "slots of one page are borrowed separately")]
        unsafe {
            self.floats_out(slot)
        }
    }

    fn bytes_mut(&mut self, slot: Slot) -> &mut [u8] {
        bytemuck::cast_slice_mut(self.floats_mut(slot))
    }

    /// # Safety
    /// No other reference to a byte of the slot may exist while the result does.
    #[allow(
        unsafe_code,
        clippy::mut_from_ref,
        reason = "slots of one page are borrowed separately"
    )]
    unsafe fn floats_out(&self, slot: Slot) -> &mut [f32] {
        let words = self.words(slot);
        // SAFETY: the words are in bounds and may be written through a shared reference; the
        // caller promises that nothing else refers to them; every bit pattern is a valid f32.
        unsafe { std::slice::from_raw_parts_mut(words.as_ptr() as *mut f32, words.len()) }
    }

    /// # Safety
    /// No exclusive reference to a byte of the slot may exist while the result does.
    #[allow(unsafe_code, reason = "slots of one page are borrowed separately")]
    unsafe fn operand(&self, slot: Slot, ty: &TensorType) -> Operand<'_, f32> {
        let words = self.words(slot);
        let (start, len) = (words.as_ptr(), words.len());
        // SAFETY: as above, and every bit pattern is a valid f32 and a valid i32.
        unsafe {
            match ty.dtype {
                DType::F32 | DType::F16 => {
                    Operand::F(std::slice::from_raw_parts(start as *const f32, len))
                }
                DType::I32 => Operand::I(std::slice::from_raw_parts(start as *const i32, len)),
            }
        }
    }

    fn execute(&self, step: &Step, run: &Run<'_>) {
        let in_place = |input: usize| step.op.in_place().iter().any(|(i, _)| *i == input);
        // SAFETY: steps run one at a time, and `plan::place::verify` has shown that in one step
        // no result or scratch slot shares a byte with another operand, except in-place pairs,
        // whose operand is not borrowed. So every slice made here is disjoint from the mutable
        // ones.
        #[allow(unsafe_code, reason = "slots of one page are borrowed separately")]
        let (ins, mut outs, scratch) = unsafe {
            let ins: Vec<Operand<'_, f32>> = (step.ins.iter().zip(&step.in_types).enumerate())
                .map(
                    |(i, (slot, ty))| {
                        if in_place(i) { Operand::InPlace } else { self.operand(*slot, ty) }
                    },
                )
                .collect();
            let outs: Vec<&mut [f32]> =
                step.outs.iter().map(|slot| self.floats_out(*slot)).collect();
            (ins, outs, step.scratch.map(|slot| self.floats_out(slot)))
        };
        let in_types: Vec<&TensorType> = step.in_types.iter().collect();
        let out_types: Vec<&TensorType> = step.out_types.iter().collect();
        step.op.cpu_f32(Call {
            ins: &ins,
            outs: &mut outs,
            scratch: scratch.unwrap_or(&mut []),
            in_types: &in_types,
            out_types: &out_types,
            globals: &run.globals,
        });
    }
}
