//! The threads that prepare batches.

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::DataError;

/// Steps that are prepared before they are asked for, where they are small.
const MOST_AHEAD: usize = 64;

/// Threads that prepare batches, and how many bytes of them they prepare ahead.
#[derive(Debug)]
pub(super) struct Workers {
    pool: ThreadPool,
    ahead: usize,
}

impl Workers {
    /// Starts the threads: one for each core where no number is given.
    ///
    /// # Errors
    /// When the system starts no more threads.
    pub(super) fn new(threads: Option<usize>, ahead_mb: usize) -> Result<Self, DataError> {
        let builder = ThreadPoolBuilder::new()
            .num_threads(threads.unwrap_or(0))
            .thread_name(|index| format!("data-{index}"));
        let pool = builder.build().map_err(|error| {
            DataError::Unfit(format!("cannot start the threads of `data.workers`: {error}"))
        })?;
        Ok(Workers { pool, ahead: ahead_mb.saturating_mul(1 << 20) })
    }

    /// Runs parallel work on these threads.
    pub(super) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }

    /// Steps of `bytes` that are prepared ahead.
    pub(super) fn ahead(&self, bytes: usize) -> usize {
        (self.ahead / bytes.max(1)).clamp(1, MOST_AHEAD)
    }
}
