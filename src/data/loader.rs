//! Batches ahead of time: a thread fills the next few steps while the device works.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;

use super::{Batches, Buffers, DataError, Dataset};

/// Steps that are ready before they are asked for.
const AHEAD: usize = 3;

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

    /// Numbers of the samples in the training set.
    pub fn ids(&self) -> impl Iterator<Item = usize> + '_ {
        self.micros.iter().flat_map(|micro| micro.ids.iter().copied())
    }
}

/// Fills steps in order on a thread of its own.
#[derive(Debug)]
pub struct Loader {
    ready: Receiver<Result<StepBatch, DataError>>,
    used: Sender<StepBatch>,
}

impl Loader {
    /// Starts with step `first`; ends after step `last`.
    pub fn start(set: Arc<Dataset>, batches: Batches, first: u64, last: u64) -> Self {
        let (send, ready) = mpsc::sync_channel(AHEAD);
        let (used, free) = mpsc::channel();
        thread::spawn(move || fill_all(&set, &batches, first..=last, &send, &free));
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
    batches: &Batches,
    steps: std::ops::RangeInclusive<u64>,
    send: &SyncSender<Result<StepBatch, DataError>>,
    free: &Receiver<StepBatch>,
) {
    let largest = batches.sizes()[0];
    let mut spare: Vec<Buffers> = Vec::new();
    for step in steps {
        spare.extend(free.try_iter().flat_map(|batch| batch.micros).map(|micro| micro.buffers));
        let batch =
            fill(set, batches, step, || spare.pop().unwrap_or_else(|| set.buffers(largest)));
        let failed = batch.is_err();
        if send.send(batch).is_err() || failed {
            return;
        }
    }
}

fn fill(
    set: &Dataset,
    batches: &Batches,
    step: u64,
    mut room: impl FnMut() -> Buffers,
) -> Result<StepBatch, DataError> {
    let epoch = batches.epoch_of(step);
    let mut micros = Vec::new();
    for ids in batches.micros(step) {
        let mut buffers = room();
        set.fill_epoch(&ids, epoch, &mut buffers)?;
        micros.push(Micro { size: ids.len(), buffers, ids });
    }
    Ok(StepBatch { step, epoch, micros })
}
