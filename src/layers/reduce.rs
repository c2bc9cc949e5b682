//! `mean`, `sum` and `max` over axes.

use super::{Layer, LayerCx, LayerError};
use crate::config::macros::options;
use crate::config::values::OneOrMany;
use crate::graph::{Graph, Shape, ShapeError, ValueId};
use crate::ops::{max, reduce};

options! {
    /// The mean over axes.
    pub struct Mean {
        /// The axes, one or a list: 1 for channels, -1 for the last.
        dims: OneOrMany<i64>,
        /// Whether they stay, with one element.
        keepdim: bool = false,
    }
}

options! {
    /// The sum over axes.
    pub struct Sum {
        /// The axes, one or a list: 1 for channels, -1 for the last.
        dims: OneOrMany<i64>,
        /// Whether they stay, with one element.
        keepdim: bool = false,
    }
}

options! {
    /// The largest element over axes. The gradient goes to the first of several.
    pub struct Max {
        /// The axes, one or a list: 1 for channels, -1 for the last.
        dims: OneOrMany<i64>,
        /// Whether they stay, with one element.
        keepdim: bool = false,
    }
}

/// Reduces over `dims`.
fn over(
    cx: &mut LayerCx<'_>,
    x: ValueId,
    dims: &[i64],
    keepdim: bool,
    f: fn(&mut Graph, ValueId, &[usize]) -> Result<ValueId, ShapeError>,
) -> Result<ValueId, LayerError> {
    let shape = cx.float_dims(x)?;
    let mut axes = Vec::new();
    for dim in dims {
        let axis = cx.axis(x, *dim)?;
        if axes.contains(&axis) {
            return Err(LayerError(format!("has axis {dim} twice in `dims`")));
        }
        axes.push(axis);
    }
    let y = f(cx.graph, x, &axes)?;
    if keepdim {
        return Ok(y);
    }
    let rest = shape.iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
    let rest: Vec<usize> = rest.map(|(_, extent)| *extent).collect();
    Ok(cx.graph.reshape(y, Shape::new(rest))?)
}

impl Layer for Mean {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        over(cx, x, &self.dims.0, self.keepdim, reduce::mean)
    }
}

impl Layer for Sum {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        over(cx, x, &self.dims.0, self.keepdim, reduce::sum)
    }
}

impl Layer for Max {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        over(cx, x, &self.dims.0, self.keepdim, max::max)
    }
}
