//! `pad` and `crop`: elements added around the last axes, or cut off.

use super::convolution;
use super::{Layer, LayerCx, LayerError, batch_shape};
use crate::config::macros::{choices, options};
use crate::graph::ValueId;
use crate::ops::concat::Slice;
use crate::ops::pad::{self, PadMode};

choices! {
    /// What is added around an input.
    pub enum Mode {
        /// `value`.
        Constant = "constant",
        /// The input mirrored at its first and last elements, which are not repeated.
        Reflect = "reflect",
        /// The first and last elements.
        Replicate = "replicate",
        /// The elements of the other end.
        Circular = "circular",
    }
}

options! {
    /// Elements around the input. Input and output `[batch, …]`.
    pub struct Pad {
        /// Numbers of elements before and after the last axis, then the one before it, and so on:
        /// `[left, right]`, `[left, right, top, bottom]` or `[left, right, top, bottom, front,
        /// back]`.
        padding: Vec<usize>,
        /// What they are.
        mode: Mode = Mode::Constant,
        /// Their value in the mode `constant`.
        value: f64 = 0.0,
    }
}

options! {
    /// The input without elements at its ends. Input and output `[batch, …]`.
    pub struct Crop {
        /// Numbers of elements cut off before and after the last axis, then the one before it, and
        /// so on: `[left, right]`, `[left, right, top, bottom]` or `[left, right, top, bottom,
        /// front, back]`.
        cropping: Vec<usize>,
    }
}

/// Axes with the numbers before and after them, first axis first.
fn by_axis(
    cx: &LayerCx<'_>,
    x: ValueId,
    option: &str,
    numbers: &[usize],
) -> Result<Vec<(usize, [usize; 2])>, LayerError> {
    let rank = cx.float_dims(x)?.len();
    let axes = numbers.len() / 2;
    if numbers.len() % 2 == 1 || !(1..=3).contains(&axes) {
        return Err(LayerError(format!(
            "`{option}` has two numbers for each of 1 to 3 axes, got {numbers:?}"
        )));
    }
    if axes >= rank {
        return Err(LayerError(format!(
            "`{option}` has numbers for {axes} axes, but its input is {}",
            batch_shape(cx.graph.shape(x))
        )));
    }
    Ok((0..axes).rev().map(|i| (rank - 1 - i, [numbers[2 * i], numbers[2 * i + 1]])).collect())
}

impl Layer for Pad {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let mode = match self.mode {
            Mode::Constant => PadMode::Constant(self.value as f32),
            Mode::Reflect => PadMode::Reflect,
            Mode::Replicate => PadMode::Replicate,
            Mode::Circular => PadMode::Circular,
        };
        let axes = by_axis(cx, x, "padding", &self.padding)?;
        axes.into_iter().try_fold(x, |x, (axis, [before, after])| {
            convolution::pad(cx, x, pad::Pad { axis, before, after, mode })
        })
    }
}

impl Layer for Crop {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let axes = by_axis(cx, x, "cropping", &self.cropping)?;
        axes.into_iter().try_fold(x, |x, (axis, [start, after])| {
            let extent = cx.graph.shape(x).dims()[axis];
            match extent.checked_sub(start + after) {
                Some(len) if len == extent => Ok(x),
                Some(len) if len > 0 => Ok(cx.graph.op(Slice { axis, start, len }, &[x])?),
                _ => Err(LayerError(format!(
                    "cannot cut {} elements off an axis of {extent}",
                    start + after
                ))),
            }
        })
    }
}
