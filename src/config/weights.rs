//! The `weights` section: first values from a file. Read by `train`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::macros::options;
use super::validate;

options! {
    /// First values of parameters and states from a safetensors file, such as one that PyTorch
    /// wrote. Training starts from them; `wootz eval --config` and `wootz predict --config` use them
    /// as they are. Tensors whose names end in `num_batches_tracked` are passed over.
    pub struct Weights checked_by validate::weights {
        /// The file. Its path is relative to the folder the command runs in.
        path: PathBuf,
        /// Names in the file, and what they are called in this model: `"linear.*": "fc.*"`. `*`
        /// stands for any text, the same in both. Of several that fit a name, the longest counts.
        map: BTreeMap<String, String> = BTreeMap::new(),
        /// Whether the file must hold each parameter and state, and nothing else. If not, those that
        /// it lacks start as they do without a file, and what is too much is left out. Shapes must
        /// always fit.
        strict: bool = true,
    }
}
