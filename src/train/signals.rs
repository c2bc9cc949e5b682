//! SIGINT and SIGTERM ask the run to finish its step, save and stop; a second one of the same
//! kind ends the process at once. SIGUSR1 asks it to save and go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Ctrl-C.
    Interrupt,
    /// `kill`.
    Terminate,
}

impl Stop {
    /// The exit code for it: 128 plus the signal's number.
    pub fn exit_code(self) -> u8 {
        match self {
            Stop::Interrupt => 130,
            Stop::Terminate => 143,
        }
    }
}

/// Watches for signals. Clones see the same.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    seen: Arc<AtomicUsize>,
    save: Arc<AtomicBool>,
}

impl Signals {
    /// Starts watching. The second signal of a kind kills the process with the signal's code.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn watch() -> std::io::Result<Self> {
        let signals = Signals::default();
        for signal in [SIGINT, SIGTERM] {
            let again = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, again.clone())?;
            signal_hook::flag::register(signal, again)?;
            signal_hook::flag::register_usize(signal, signals.seen.clone(), signal as usize)?;
        }
        #[cfg(unix)]
        signal_hook::flag::register(signal_hook::consts::SIGUSR1, signals.save.clone())?;
        Ok(signals)
    }

    /// What was asked for so far.
    pub fn stop(&self) -> Option<Stop> {
        match self.seen.load(Ordering::Relaxed) as i32 {
            SIGINT => Some(Stop::Interrupt),
            SIGTERM => Some(Stop::Terminate),
            _ => None,
        }
    }
    /// Whether a checkpoint was asked for since the last call.
    pub fn take_save(&self) -> bool {
        self.save.swap(false, Ordering::Relaxed)
    }
}
