//! `upsample`.

use super::{Layer, LayerCx, LayerError};
use crate::config::macros::{choices, options};
use crate::config::values::PerAxis;
use crate::graph::ValueId;
use crate::ops::resize::{Interpolation, Resize};

choices! {
    /// How pixels in between are found.
    pub enum Mode {
        /// The pixel whose area holds it.
        Nearest = "nearest",
        /// Linear between the four around it.
        Bilinear = "bilinear",
    }
}

options! {
    /// Images of another size. Input and output `[batch, channels, height, width]`.
    pub struct Upsample {
        /// Rows and columns of the output.
        size: Option<PerAxis<usize, 2>>,
        /// Rows and columns of the output for each of the input; instead of `size`.
        scale_factor: Option<PerAxis<f64, 2>>,
        /// How pixels in between are found.
        mode: Mode = Mode::Nearest,
        /// Whether the centres of the corners' pixels stay at the corners; `bilinear` only.
        align_corners: bool = false,
    }
}

impl Upsample {
    fn size(&self, input: [usize; 2]) -> Result<[usize; 2], LayerError> {
        match (self.size, self.scale_factor) {
            (Some(size), None) if !size.0.contains(&0) => Ok(size.0),
            (Some(_), None) => Err(LayerError("`size` must be at least 1".into())),
            (None, Some(PerAxis(factors))) => {
                let sizes = [0, 1].map(|axis| input[axis] as f64 * factors[axis]);
                if sizes.iter().any(|size| *size < 1.0 || size.fract() != 0.0) {
                    return Err(LayerError(format!(
                        "`scale_factor` makes {}x{} of {}x{} pixels; give the `size` instead",
                        sizes[0], sizes[1], input[0], input[1]
                    )));
                }
                Ok(sizes.map(|size| size as usize))
            }
            _ => Err(LayerError("needs either `size` or `scale_factor`".into())),
        }
    }
}

impl Layer for Upsample {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let [_, _, height, width] = cx.image_dims(x)?;
        let size = self.size([height, width])?;
        let interpolation = match (self.mode, self.align_corners) {
            (Mode::Nearest, false) => Interpolation::Nearest,
            (Mode::Nearest, true) => {
                return Err(LayerError("`align_corners` is for the mode `bilinear`".into()));
            }
            (Mode::Bilinear, false) => Interpolation::Linear,
            (Mode::Bilinear, true) => Interpolation::LinearCorners,
        };
        // The columns first: the rows are then moved whole.
        [(3, size[1], width), (2, size[0], height)].into_iter().try_fold(x, |x, axis| {
            let (axis, size, extent) = axis;
            if size == extent {
                return Ok(x);
            }
            Ok(cx.graph.op(Resize { axis, size, interpolation }, &[x])?)
        })
    }
}
