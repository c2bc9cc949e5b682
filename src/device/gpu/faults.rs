//! Failures that tests bring about, to show that each is noticed.

use std::str::FromStr;

/// A failure at one submission, by its serial number from 1, or in one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The submission's work is never done, as when a driver drops it in silence.
    DropSubmission(u64),
    /// The device is lost before the submission.
    LoseDevice(u64),
    /// A kernel computes something else, as when it has a defect or its compiler has.
    EditKernel {
        /// The kernel's name.
        kernel: String,
        /// What stands in its assembled text, and is replaced wherever it does.
        old: String,
        /// What stands there instead.
        new: String,
    },
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            "expected drop-submission:N, lose-device:N or edit-kernel:NAME:OLD=>NEW".into()
        })
    }
}

fn parse(text: &str) -> Option<Fault> {
    let (kind, rest) = text.split_once(':')?;
    match kind {
        "drop-submission" => Some(Fault::DropSubmission(rest.parse().ok()?)),
        "lose-device" => Some(Fault::LoseDevice(rest.parse().ok()?)),
        "edit-kernel" => {
            let (kernel, edit) = rest.split_once(':')?;
            let (old, new) = edit.split_once("=>")?;
            let [kernel, old, new] = [kernel, old, new].map(str::to_owned);
            Some(Fault::EditKernel { kernel, old, new })
        }
        _ => None,
    }
}

impl Fault {
    /// A kernel's text with the failure in it; nothing where it is the text as it was.
    pub(super) fn edited(&self, name: &str, text: &str) -> Option<String> {
        match self {
            Fault::EditKernel { kernel, old, new } if kernel == name && text.contains(old) => {
                Some(text.replace(old, new))
            }
            _ => None,
        }
    }
}
