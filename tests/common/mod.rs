//! What several tests share.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

pub mod mutate;
pub mod parity_page;
pub mod problem;
pub mod reference;
pub mod run_folder;
pub mod step;

use std::process::Command;

/// The command line under test.
pub fn wootz() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wootz"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// Whether the slow, long forms of the tests were asked for (scripts/nightly.sh).
pub fn soak() -> bool {
    std::env::var_os("WOOTZ_SOAK").is_some()
}

/// The GPU that tests run on: software Vulkan, or what WOOTZ_TEST_DEVICE names. Where there is
/// none, opening it fails, and so does the test.
pub fn gpu() -> String {
    std::env::var("WOOTZ_TEST_DEVICE").unwrap_or_else(|_| "llvmpipe".to_owned())
}

/// A small generator of pseudo-random numbers (SplitMix64), so that failures repeat.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * f64::powi(2.0, -53)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }
}
