//! The binary version of CIFAR-10: one byte of label, then 3 × 32 × 32 bytes of pixels.

use super::{channels, divisor, read, spec};
use crate::config::data::{Cifar10, Normalize};
use crate::data::DataError;
use crate::data::dataset::{Content, Samples, Task};
use crate::graph::TensorType;

const SHAPE: [usize; 3] = [3, 32, 32];
const PIXELS: usize = 3 * 32 * 32;
const NAMES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

pub(super) fn open(
    options: &Cifar10,
    normalize: Option<&Normalize>,
    like: Option<&Content>,
) -> Result<Content, DataError> {
    let divisor = divisor(options.scale, like);
    let (mut pixels, mut labels) = (Vec::new(), Vec::new());
    for path in &options.path.0 {
        let file = read(path)?;
        if file.is_empty() || file.len() % (PIXELS + 1) != 0 {
            return Err(DataError::content(
                path,
                format!("expected a multiple of {} bytes, found {}", PIXELS + 1, file.len()),
            ));
        }
        for (index, record) in file.chunks_exact(PIXELS + 1).enumerate() {
            if usize::from(record[0]) >= NAMES.len() {
                return Err(DataError::content(
                    path,
                    format!("image {index} has label {}, above 9", record[0]),
                ));
            }
            labels.push(i32::from(record[0]));
            pixels.extend_from_slice(&record[1..]);
        }
    }
    Ok(Content {
        inputs: vec![spec("image", TensorType::f32(SHAPE))],
        target: spec("label", TensorType::i32([])),
        task: Task::Classification {
            classes: NAMES.len(),
            names: NAMES.map(String::from).to_vec(),
        },
        columns: Vec::new(),
        samples: Samples::Images {
            pixels,
            divisor,
            channels: channels(SHAPE[0], divisor, normalize)?,
            labels,
        },
    })
}
