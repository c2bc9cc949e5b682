//! Writing and reading one checkpoint folder.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{CheckpointError, FORMAT, NamedTensor, Snapshot, State, find};

const MODEL: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const AVERAGE: &str = "average.safetensors";
const STATE: &str = "state.json";
const MANIFEST: &str = "manifest.json";

#[derive(Serialize, Deserialize)]
struct Manifest {
    format: u32,
    files: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize, PartialEq)]
struct Entry {
    bytes: u64,
    sha256: String,
}

impl Entry {
    fn of(content: &[u8]) -> Self {
        let sha256 = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
        Entry { bytes: content.len() as u64, sha256 }
    }
}

/// Writes a checkpoint into the run's folder and returns its path. One that is there already and
/// whole is left as it is. For tests, `stall_at` stops the process for good after so many bytes.
///
/// # Errors
/// When the disk refuses; nothing that was there before is touched.
pub fn save(
    run: &Path,
    snapshot: &Snapshot,
    stall_at: Option<usize>,
) -> Result<PathBuf, CheckpointError> {
    let path = run.join(find::folder_name(snapshot.state.step));
    if path.exists() && load(&path).is_ok_and(|there| &there == snapshot) {
        return Ok(path);
    }
    let temporary = run.join(format!(".writing-{}-{}", snapshot.state.step, std::process::id()));
    if temporary.exists() {
        fs::remove_dir_all(&temporary).map_err(CheckpointError::io("remove", &temporary))?;
    }
    fs::create_dir_all(&temporary).map_err(CheckpointError::io("create", &temporary))?;
    let written = write_files(&temporary, snapshot, stall_at).and_then(|()| {
        sync(&temporary)?;
        if path.exists() {
            let old = run.join(format!(".replaced-{}-{}", snapshot.state.step, std::process::id()));
            fs::rename(&path, &old).map_err(CheckpointError::io("move", &path))?;
            fs::rename(&temporary, &path).map_err(CheckpointError::io("rename", &temporary))?;
            return fs::remove_dir_all(&old).map_err(CheckpointError::io("remove", &old));
        }
        fs::rename(&temporary, &path).map_err(CheckpointError::io("rename", &temporary))
    });
    if let Err(error) = written {
        // The first error is the one to report; what is left behind is ignored by every reader.
        let _ = fs::remove_dir_all(&temporary);
        return Err(error);
    }
    sync(run)?;
    Ok(path)
}

fn write_files(
    folder: &Path,
    snapshot: &Snapshot,
    stall_at: Option<usize>,
) -> Result<(), CheckpointError> {
    let mut left = stall_at;
    let mut manifest = Manifest { format: FORMAT, files: BTreeMap::new() };
    let state = serde_json::to_vec_pretty(&State { format: FORMAT, ..snapshot.state.clone() })
        .map_err(|e| damaged(folder, e.to_string()))?;
    let mut files = vec![
        (MODEL, encode(folder, &snapshot.model)?),
        (OPTIMIZER, encode(folder, &snapshot.optimizer)?),
        (STATE, state),
    ];
    if !snapshot.average.is_empty() {
        files.push((AVERAGE, encode(folder, &snapshot.average)?));
    }
    for (name, content) in &files {
        manifest.files.insert((*name).to_owned(), Entry::of(content));
        write(&folder.join(name), content, &mut left)?;
    }
    let manifest =
        serde_json::to_vec_pretty(&manifest).map_err(|e| damaged(folder, e.to_string()))?;
    write(&folder.join(MANIFEST), &manifest, &mut left)
}

fn encode(folder: &Path, tensors: &[NamedTensor]) -> Result<Vec<u8>, CheckpointError> {
    let mut views = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let view = TensorView::new(Dtype::F32, tensor.dims.clone(), &tensor.bytes)
            .map_err(|e| damaged(folder, format!("`{}`: {e}", tensor.name)))?;
        views.push((tensor.name.as_str(), view));
    }
    // One key only: the map's order must not reach the file.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize(views, Some(metadata)).map_err(|e| damaged(folder, e.to_string()))
}

/// Writes a whole file; with `left`, up to so many bytes.
fn write(path: &Path, content: &[u8], left: &mut Option<usize>) -> Result<(), CheckpointError> {
    let mut file = File::create(path).map_err(CheckpointError::io("create", path))?;
    let fits = left.map_or(content.len(), |left| left.min(content.len()));
    file.write_all(&content[..fits]).map_err(CheckpointError::io("write", path))?;
    if let Some(left) = left {
        *left -= fits;
        if *left == 0 {
            stall();
        }
    }
    file.sync_all().map_err(CheckpointError::io("sync", path))
}

/// Says so on stderr, and waits for a kill.
fn stall() -> ! {
    eprintln!("stalled");
    loop {
        std::thread::park();
    }
}

/// Makes a folder's entries durable. Windows cannot open folders; its renames are journalled.
fn sync(folder: &Path) -> Result<(), CheckpointError> {
    if cfg!(windows) {
        return Ok(());
    }
    let file = File::open(folder).map_err(CheckpointError::io("open", folder))?;
    file.sync_all().map_err(CheckpointError::io("sync", folder))
}

/// Reads a checkpoint and checks every byte of it.
///
/// # Errors
/// When it is not whole.
pub fn load(path: &Path) -> Result<Snapshot, CheckpointError> {
    let manifest = read(path, MANIFEST)?;
    let manifest: Manifest =
        serde_json::from_slice(&manifest).map_err(|e| damaged(path, format!("{MANIFEST}: {e}")))?;
    if manifest.format != FORMAT {
        return Err(damaged(
            path,
            format!("format {} is not known here (this program reads {FORMAT})", manifest.format),
        ));
    }
    let verified = |name: &str| {
        let content = read(path, name)?;
        match manifest.files.get(name) {
            Some(entry) if entry.bytes != content.len() as u64 => Err(damaged(
                path,
                format!("{name} has {} bytes, not {}", content.len(), entry.bytes),
            )),
            Some(entry) if *entry != Entry::of(&content) => {
                Err(damaged(path, format!("{name} has another hash")))
            }
            Some(_) => Ok(content),
            None => Err(damaged(path, format!("{MANIFEST} does not list {name}"))),
        }
    };
    let (model, optimizer, state) = (verified(MODEL)?, verified(OPTIMIZER)?, verified(STATE)?);
    let average = match manifest.files.contains_key(AVERAGE) {
        true => decode(path, AVERAGE, &verified(AVERAGE)?)?,
        false => Vec::new(),
    };
    let state: State =
        serde_json::from_slice(&state).map_err(|e| damaged(path, format!("{STATE}: {e}")))?;
    if super::step_of(path).is_some_and(|step| step != state.step) {
        return Err(damaged(path, format!("it holds step {}", state.step)));
    }
    Ok(Snapshot {
        model: decode(path, MODEL, &model)?,
        optimizer: decode(path, OPTIMIZER, &optimizer)?,
        average,
        state,
    })
}

fn read(path: &Path, name: &str) -> Result<Vec<u8>, CheckpointError> {
    fs::read(path.join(name)).map_err(|e| damaged(path, format!("{name}: {e}")))
}

fn decode(path: &Path, name: &str, content: &[u8]) -> Result<Vec<NamedTensor>, CheckpointError> {
    let file =
        SafeTensors::deserialize(content).map_err(|e| damaged(path, format!("{name}: {e}")))?;
    let mut tensors = Vec::new();
    for (name, view) in file.iter() {
        if view.dtype() != Dtype::F32 {
            return Err(damaged(path, format!("`{name}` is of type {:?}, not F32", view.dtype())));
        }
        tensors.push(NamedTensor {
            name: name.to_owned(),
            dims: view.shape().to_vec(),
            bytes: view.data().to_vec(),
        });
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tensors)
}

fn damaged(path: &Path, reason: String) -> CheckpointError {
    CheckpointError::Damaged { path: path.to_owned(), reason }
}
