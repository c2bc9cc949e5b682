//! IDX files (Y. LeCun's format of MNIST): a magic number with the element type and the number of
//! axes, the extents as big-endian 32-bit integers, then the elements.

use std::path::Path;

use super::{channels, divisor, number_names, read, spec};
use crate::config::data::{Idx, Normalize};
use crate::data::DataError;
use crate::data::dataset::{Content, Samples, Task};
use crate::graph::TensorType;

pub(super) fn open(
    options: &Idx,
    normalize: Option<&Normalize>,
    like: Option<&Content>,
) -> Result<Content, DataError> {
    let divisor = divisor(options.scale, like);
    let (dims, pixels) = bytes(&options.images)?;
    let (label_dims, labels) = bytes(&options.labels)?;
    let shape = match dims[..] {
        [_, rows, cols] => [1, rows, cols],
        [_, channels, rows, cols] => [channels, rows, cols],
        _ => {
            return Err(DataError::content(
                &options.images,
                format!("expected images of 3 or 4 axes, found {} axes", dims.len()),
            ));
        }
    };
    if label_dims.len() != 1 {
        return Err(DataError::content(
            &options.labels,
            format!("expected labels of 1 axis, found {} axes", label_dims.len()),
        ));
    }
    if label_dims[0] != dims[0] {
        return Err(DataError::content(
            &options.labels,
            format!("{} labels for {} images", label_dims[0], dims[0]),
        ));
    }
    if labels.is_empty() || shape.contains(&0) {
        return Err(DataError::content(&options.images, "there are no images"));
    }
    let classes = labels.iter().max().map_or(0, |top| usize::from(*top) + 1);
    Ok(Content {
        inputs: vec![spec("image", TensorType::f32(shape))],
        target: spec("label", TensorType::i32([])),
        task: Task::Classification { classes, names: number_names(classes) },
        columns: Vec::new(),
        samples: Samples::Images {
            pixels,
            divisor,
            channels: channels(shape[0], divisor, normalize)?,
            labels: labels.into_iter().map(i32::from).collect(),
        },
    })
}

/// Extents and elements of a file of unsigned bytes.
fn bytes(path: &Path) -> Result<(Vec<usize>, Vec<u8>), DataError> {
    const UNSIGNED_BYTE: u8 = 8;
    let file = read(path)?;
    let [0, 0, kind, axes, rest @ ..] = &file[..] else {
        return Err(DataError::content(
            path,
            "this is no IDX file: it does not begin with two zero bytes",
        ));
    };
    if *kind != UNSIGNED_BYTE {
        return Err(DataError::content(
            path,
            format!("expected unsigned bytes (type 0x08), found type {kind:#04x}"),
        ));
    }
    let axes = usize::from(*axes);
    if rest.len() < axes * 4 {
        return Err(DataError::content(path, "the file ends within its header"));
    }
    let (header, elements) = rest.split_at(axes * 4);
    let dims: Vec<usize> = header
        .chunks_exact(4)
        .map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) as usize)
        .collect();
    let wanted = dims.iter().fold(1_usize, |n, d| n.saturating_mul(*d));
    if elements.len() != wanted {
        return Err(DataError::content(
            path,
            format!("the header says {wanted} bytes, the file has {}", elements.len()),
        ));
    }
    Ok((dims, elements.to_vec()))
}
