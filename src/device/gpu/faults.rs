//! Failures that tests bring about, to show that each is noticed.

use std::str::FromStr;

/// A failure at one submission, by its serial number from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The submission's work is never done, as when a driver drops it in silence.
    DropSubmission(u64),
    /// The device is lost before the submission.
    LoseDevice(u64),
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed =
            text.split_once(':').and_then(|(kind, serial)| Some((kind, serial.parse().ok()?)));
        match parsed {
            Some(("drop-submission", serial)) => Ok(Fault::DropSubmission(serial)),
            Some(("lose-device", serial)) => Ok(Fault::LoseDevice(serial)),
            _ => Err("expected drop-submission:N or lose-device:N".into()),
        }
    }
}
