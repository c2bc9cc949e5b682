//! Folders of runs that are stopped and go on.

use std::fs;
use std::path::Path;

/// Resumes where there is a run, starts it where it was stopped before its folder was there.
pub fn resume_flags(run: &Path) -> Vec<&'static str> {
    if run.join("run.json").exists() { vec!["--resume"] } else { Vec::new() }
}

/// Two checkpoints of one step have the same bytes.
pub fn same_bytes(a: &Path, b: &Path) {
    assert_eq!(a.file_name(), b.file_name(), "the runs ended at different steps");
    for name in [
        "model.safetensors",
        "optimizer.safetensors",
        "average.safetensors",
        "state.json",
        "manifest.json",
    ] {
        assert!(
            fs::read(a.join(name)).ok() == fs::read(b.join(name)).ok(),
            "{name} differs between {} and {}",
            a.display(),
            b.display()
        );
    }
}
