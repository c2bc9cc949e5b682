//! Choices that are kept from run to run, in a file for each adapter, driver and program.

use std::fs;
use std::io;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::device::gpu::GpuDevice;
use crate::ops::selection::Chosen;

/// The file of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct Cache {
    file: PathBuf,
}

impl Cache {
    /// The file for a device and this program, in the user's cache folder; `None` where the system
    /// tells of no such folder.
    pub fn of(device: &GpuDevice) -> Option<Cache> {
        let folder = dirs::cache_dir()?.join("wootz");
        let program = fs::read(std::env::current_exe().ok()?).ok()?;
        Some(Cache::within(folder, device, &program))
    }

    /// The file for a device and the content of a program.
    pub fn within(folder: PathBuf, device: &GpuDevice, program: &[u8]) -> Cache {
        let info = device.info();
        let mut hash = Sha256::new();
        for part in [info.backend.as_bytes(), info.name.as_bytes(), info.driver.as_bytes(), program]
        {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let name: String = hash.finalize()[..8].iter().map(|b| format!("{b:02x}")).collect();
        Cache { file: folder.join(format!("products-{name}.json")) }
    }

    /// What is kept; nothing where there is no file, or none that can be read.
    pub fn load(&self) -> Chosen {
        let text = fs::read(&self.file).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Keeps choices: the file is the old or the new one, whenever the process ends.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn store(&self, chosen: &Chosen) -> io::Result<()> {
        if let Some(folder) = self.file.parent() {
            fs::create_dir_all(folder)?;
        }
        let temporary = self.file.with_extension(format!("{}.new", std::process::id()));
        fs::write(&temporary, serde_json::to_vec(chosen)?)?;
        fs::rename(&temporary, &self.file)
    }
}
