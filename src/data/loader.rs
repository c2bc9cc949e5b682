//! Batches ahead of time: the next steps are filled while the device works, each on all workers,
//! in order, as many as their bytes allow.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;

use super::{Batches, Buffers, DataError, Dataset};

/// The micro-batches of one optimizer step.
#[derive(Debug)]
pub struct StepBatch {
    /// The step, from 1.
    pub step: u64,
    /// Its epoch, from 0.
    pub epoch: u64,
    /// Its micro-batches.
    pub micros: Vec<Micro>,
}

/// One micro-batch.
#[derive(Debug)]
pub struct Micro {
    /// Samples.
    pub size: usize,
    buffers: Buffers,
    ids: Vec<usize>,
}

impl Micro {
    /// Bytes of each input, then of the target.
    pub fn inputs(&self) -> Vec<&[u8]> {
        self.buffers.inputs()
    }
}

impl StepBatch {
    /// Puts a NaN into the first input of the first sample, as a fault for tests.
    pub fn poison(&mut self) {
        if let Some(micro) = self.micros.first_mut() {
            micro.buffers.poison();
        }
    }

    /// Numbers of the samples in their set.
    pub fn ids(&self) -> impl Iterator<Item = usize> + '_ {
        self.micros.iter().flat_map(|micro| micro.ids.iter().copied())
    }
}

/// What a step takes.
struct Wanted {
    step: u64,
    /// Where samples are as training sees them in an epoch.
    epoch: Option<u64>,
    micros: Vec<Vec<usize>>,
}

/// Fills steps in order.
#[derive(Debug)]
pub struct Loader {
    ready: Receiver<Result<StepBatch, DataError>>,
    used: Sender<StepBatch>,
}

impl Loader {
    /// Starts with step `first`; ends after step `last`.
    pub fn start(set: Arc<Dataset>, batches: Batches, first: u64, last: u64) -> Self {
        let (largest, micros) = (batches.sizes()[0], batches.accumulate());
        let wanted = (first..=last).map(move |step| {
            let epoch = Some(batches.epoch_of(step));
            Wanted { step, epoch, micros: batches.micros(step) }
        });
        Self::over(set, largest, micros, wanted)
    }

    /// Each sample of a set once, in order and as it is, `size` at a time.
    pub fn in_order(set: Arc<Dataset>, size: usize) -> Self {
        let len = set.len();
        let wanted = (0..len).step_by(size).zip(1..).map(move |(first, step)| {
            let ids = (first..len.min(first + size)).collect();
            Wanted { step, epoch: None, micros: vec![ids] }
        });
        Self::over(set, size, 1, wanted)
    }

    fn over(
        set: Arc<Dataset>,
        largest: usize,
        micros: usize,
        wanted: impl Iterator<Item = Wanted> + Send + 'static,
    ) -> Self {
        let first = set.buffers(largest);
        let ahead = set.workers().ahead(micros * first.bytes());
        // One more is being filled, and one waits to be sent.
        let (send, ready) = mpsc::sync_channel(ahead - 1);
        let (used, free) = mpsc::channel();
        thread::spawn(move || fill_all(&set, first, largest, wanted, &send, &free));
        Loader { ready, used }
    }

    /// The next step's batch; waits for it.
    ///
    /// # Errors
    /// When a sample cannot be read.
    pub fn next_step(&mut self) -> Result<StepBatch, DataError> {
        match self.ready.recv() {
            Ok(batch) => batch,
            Err(_) => Err(DataError::Unfit("no more steps were asked for".into())),
        }
    }

    /// Gives a batch's memory back.
    pub fn recycle(&mut self, batch: StepBatch) {
        // The filling thread may have ended already.
        let _ = self.used.send(batch);
    }
}

fn fill_all(
    set: &Dataset,
    first: Buffers,
    largest: usize,
    wanted: impl Iterator<Item = Wanted>,
    send: &SyncSender<Result<StepBatch, DataError>>,
    free: &Receiver<StepBatch>,
) {
    let mut spare = vec![first];
    for step in wanted {
        spare.extend(free.try_iter().flat_map(|batch| batch.micros).map(|micro| micro.buffers));
        let batch = fill(set, step, || spare.pop().unwrap_or_else(|| set.buffers(largest)));
        let failed = batch.is_err();
        if send.send(batch).is_err() || failed {
            return;
        }
    }
}

fn fill(
    set: &Dataset,
    wanted: Wanted,
    mut room: impl FnMut() -> Buffers,
) -> Result<StepBatch, DataError> {
    let mut micros = Vec::new();
    for ids in wanted.micros {
        let mut buffers = room();
        match wanted.epoch {
            Some(epoch) => set.fill_epoch(&ids, epoch, &mut buffers)?,
            None => set.fill(&ids, &mut buffers)?,
        }
        micros.push(Micro { size: ids.len(), buffers, ids });
    }
    Ok(StepBatch { step: wanted.step, epoch: wanted.epoch.unwrap_or(0), micros })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests;
