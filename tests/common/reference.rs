//! Reference files that PyTorch wrote (tests/reference), and the models that are compared with them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors};
use wootz::config::load::{Loaded, load_with};
use wootz::graph::{Shape, TensorType};
use wootz::layers::Model;

/// The folder of all references.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference")
}

/// One tensor: f32, f64 or i32.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its extents.
    pub dims: Vec<usize>,
    /// Its element type in the file.
    pub dtype: Dtype,
    /// Its elements, little-endian.
    pub bytes: Vec<u8>,
}

impl Stored {
    /// Its type without the first `skip` axes.
    pub fn ty(&self, skip: usize) -> TensorType {
        let shape = Shape::new(&self.dims[skip..]);
        if self.dtype == Dtype::I32 { TensorType::i32(shape) } else { TensorType::f32(shape) }
    }

    /// Its numbers.
    pub fn floats(&self) -> Vec<f64> {
        match self.dtype {
            Dtype::F64 => self
                .bytes
                .chunks_exact(8)
                .map(|b| f64::from_le_bytes(b.try_into().unwrap()))
                .collect(),
            _ => floats(&self.bytes),
        }
    }
}

/// Numbers from the bytes of f32.
pub fn floats(bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect()
}

/// A reference file.
#[derive(Debug, Clone)]
pub struct Reference {
    /// Its tensors.
    pub tensors: BTreeMap<String, Stored>,
    /// Its metadata.
    pub metadata: BTreeMap<String, String>,
}

impl Reference {
    /// Reads `tests/reference/<name>.safetensors`.
    pub fn read(name: &str) -> Self {
        let path = folder().join(format!("{name}.safetensors"));
        let bytes = std::fs::read(&path).expect("the reference file is in the repository");
        let file = SafeTensors::deserialize(&bytes).expect("it is a safetensors file");
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("it is a safetensors file");
        let metadata = header.metadata().iter().flatten();
        let tensors = file.iter().map(|(name, view)| {
            let (dims, bytes) = (view.shape().to_vec(), view.data().to_vec());
            (name.to_owned(), Stored { dims, dtype: view.dtype(), bytes })
        });
        Reference {
            tensors: tensors.collect(),
            metadata: metadata.map(|(k, v)| (k.clone(), v.clone())).collect(),
        }
    }

    /// A tensor that must be there.
    pub fn tensor(&self, name: &str) -> &Stored {
        self.tensors.get(name).unwrap_or_else(|| panic!("the reference has no `{name}`"))
    }

    /// The numbers of a tensor that must be there.
    pub fn floats(&self, name: &str) -> Vec<f64> {
        self.tensor(name).floats()
    }
}

/// Reads a configuration and its model from its text.
pub fn load(text: &str) -> (Loaded, Model) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, text).expect("a temporary file");
    load_with(&path, &[], &|_| None, |node, cx| Model::decode(node, 2, cx))
        .unwrap_or_else(|error| panic!("{error}"))
}
