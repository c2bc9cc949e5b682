//! `slice` and `split`: a part of the input along an axis.

use super::{Layer, LayerCx, LayerError};
use crate::config::macros::options;
use crate::config::values::OneOrMany;
use crate::graph::ValueId;
use crate::ops::concat;

options! {
    /// The elements from `start` up to `end`, not included, along an axis. Below 0 they count from
    /// the end.
    pub struct Slice {
        /// The axis: 1 for channels, -1 for the last.
        dim: i64,
        /// The first element.
        start: i64 = 0,
        /// One past the last element; the end where left out.
        end: Option<i64>,
    }
}

options! {
    /// One of the parts that an axis is split into, as by PyTorch's `split`. Several layers with
    /// the same `from` take several parts.
    pub struct Split {
        /// The size of each part (the last one may be smaller), or a list of all sizes.
        split_size: OneOrMany<usize>,
        /// Which part, from 0.
        index: usize,
        /// The axis: 1 for channels, -1 for the last.
        dim: i64,
    }
}

fn part(
    cx: &mut LayerCx<'_>,
    x: ValueId,
    axis: usize,
    start: usize,
    end: usize,
) -> Result<ValueId, LayerError> {
    if start == 0 && end == cx.graph.shape(x).dims()[axis] {
        return Ok(x);
    }
    Ok(cx.graph.op(concat::Slice { axis, start, len: end - start }, &[x])?)
}

impl Layer for Slice {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.float_dims(x)?;
        let axis = cx.axis(x, self.dim)?;
        let size = dims[axis] as i64;
        let place = |at: i64| if at < 0 { size + at } else { at };
        let (start, end) = (place(self.start), place(self.end.unwrap_or(size)));
        if start < 0 || start >= end || end > size {
            return Err(LayerError(format!(
                "has nothing to take from {start} up to {end} of {size} elements"
            )));
        }
        part(cx, x, axis, start as usize, end as usize)
    }
}

impl Layer for Split {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let dims = cx.float_dims(x)?;
        let axis = cx.axis(x, self.dim)?;
        let (size, sizes) = (dims[axis], &self.split_size.0);
        if sizes.contains(&0) {
            return Err(LayerError("`split_size` must be at least 1".into()));
        }
        let (start, len, parts) = match sizes[..] {
            [each] => (self.index.saturating_mul(each), each, size.div_ceil(each)),
            _ => {
                let total: usize = sizes.iter().sum();
                if total != size {
                    return Err(LayerError(format!(
                        "the sizes {sizes:?} have the sum {total}, but the axis has {size} elements"
                    )));
                }
                let before = sizes.iter().take(self.index).sum();
                (before, sizes.get(self.index).copied().unwrap_or(0), sizes.len())
            }
        };
        if self.index >= parts {
            return Err(LayerError(format!(
                "has no part {}: {size} elements are split into {parts}, counted from 0",
                self.index
            )));
        }
        part(cx, x, axis, start, (start + len).min(size))
    }
}
