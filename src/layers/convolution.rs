//! What the convolutions share: padding, groups, weight and bias.

use super::init::{Initializer, fans_of, torch_default};
use super::{LayerCx, LayerError};
use crate::config::decode::{Cx, Decode};
use crate::config::macros::choices;
use crate::config::nearest::nearest;
use crate::config::node::{Node, Value};
use crate::config::schema::{Schema, Word};
use crate::config::values::PerAxis;
use crate::graph::{Shape, ValueId};
use crate::ops::map;
use crate::ops::pad::{Pad, PadMode};

/// Elements before and after each axis: a number for all, one for each of several axes, two for each
/// axis, or `same`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Padding<const N: usize> {
    /// Before and after each axis.
    Explicit([[usize; 2]; N]),
    /// As many as keep ⌈size / stride⌉ elements; an odd one goes to the end.
    Same,
}

impl<const N: usize> Padding<N> {
    /// None.
    pub const NONE: Self = Padding::Explicit([[0; 2]; N]);

    /// Elements before and after each axis of an input of this size.
    pub fn sides(
        &self,
        size: [usize; N],
        kernel: [usize; N],
        stride: [usize; N],
        dilation: [usize; N],
    ) -> [[usize; 2]; N] {
        match self {
            Padding::Explicit(sides) => *sides,
            Padding::Same => std::array::from_fn(|axis| {
                let (size, stride) = (size[axis], stride[axis]);
                let reach = dilation[axis] * (kernel[axis] - 1) + 1;
                let total = ((size.div_ceil(stride) - 1) * stride + reach).saturating_sub(size);
                [total / 2, total - total / 2]
            }),
        }
    }

    fn list() -> Schema {
        Schema::List { item: Box::new(usize::schema()), len: Some(2 * N) }
    }
}

impl<const N: usize> Decode for Padding<N> {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        if node.text() == Some("same") {
            return Some(Padding::Same);
        }
        match &node.value {
            Value::List(items) if items.len() == 2 * N => {
                let all = Vec::<usize>::decode(node, cx)?;
                Some(Padding::Explicit(std::array::from_fn(|i| [all[2 * i], all[2 * i + 1]])))
            }
            Value::Scalar { .. } if node.text().is_some_and(|t| t.parse::<i64>().is_err()) => {
                let meant = node.text().and_then(|text| nearest(text, ["same"]));
                let expected = cx.expected(&Self::schema().words(), node);
                if let Some(meant) = meant {
                    expected.help(format!("did you mean `{meant}`?"));
                }
                None
            }
            Value::Scalar { .. } => usize::decode(node, cx).map(|n| Padding::Explicit([[n; 2]; N])),
            Value::List(items) if N > 1 && items.len() == N => {
                let each = <[usize; N]>::decode(node, cx)?;
                Some(Padding::Explicit(each.map(|n| [n, n])))
            }
            _ => {
                cx.expected(&Self::schema().words(), node);
                None
            }
        }
    }

    fn schema() -> Schema {
        let same = Word { word: "same", docs: "As many as keep the size at stride 1.".into() };
        let words = Schema::Choice(vec![same]);
        let lists = Schema::Either(Box::new(Self::list()), Box::new(words));
        let numbers = if N == 1 { usize::schema() } else { PerAxis::<usize, N>::schema() };
        Schema::Either(Box::new(numbers), Box::new(lists))
    }

    fn to_json(&self) -> serde_json::Value {
        match self {
            Padding::Explicit(sides) if sides.iter().all(|[a, b]| a == b) => match N {
                1 => sides[0][0].into(),
                _ => PerAxis(sides.map(|[before, _]| before)).to_json(),
            },
            Padding::Explicit(sides) => sides.as_flattened().into(),
            Padding::Same => "same".into(),
        }
    }
}

choices! {
    /// What stands outside of the input of a convolution.
    pub enum PaddingMode {
        /// 0.
        Zeros = "zeros",
        /// The input mirrored at its first and last elements, which are not repeated.
        Reflect = "reflect",
        /// The first and last elements.
        Replicate = "replicate",
        /// The elements of the other end.
        Circular = "circular",
    }
}

impl PaddingMode {
    /// The input, padded along its last axes unless by zeros, and the zeros that are left to add.
    ///
    /// # Errors
    /// When an axis is too short for the mode.
    pub fn apply<const N: usize>(
        self,
        cx: &mut LayerCx<'_>,
        x: ValueId,
        sides: [[usize; 2]; N],
    ) -> Result<(ValueId, [[usize; 2]; N]), LayerError> {
        let mode = match self {
            PaddingMode::Zeros => return Ok((x, sides)),
            PaddingMode::Reflect => PadMode::Reflect,
            PaddingMode::Replicate => PadMode::Replicate,
            PaddingMode::Circular => PadMode::Circular,
        };
        let first = cx.graph.shape(x).rank() - N;
        let padded = sides.iter().enumerate().try_fold(x, |x, (axis, [before, after])| {
            pad(cx, x, Pad { axis: first + axis, before: *before, after: *after, mode })
        })?;
        Ok((padded, [[0; 2]; N]))
    }
}

/// Pads an axis, if there is anything to add.
///
/// # Errors
/// When the axis is too short for the mode.
pub fn pad(cx: &mut LayerCx<'_>, x: ValueId, op: Pad) -> Result<ValueId, LayerError> {
    if op.before + op.after == 0 { Ok(x) } else { Ok(cx.graph.op(op, &[x])?) }
}

/// That both counts of channels can be split into groups.
///
/// # Errors
/// When one cannot.
pub fn check_groups(groups: usize, input: usize, output: usize) -> Result<(), LayerError> {
    for (what, count) in [("input", input), ("output", output)] {
        if count % groups != 0 {
            return Err(LayerError(format!(
                "cannot split {count} {what} channels into {groups} groups"
            )));
        }
    }
    Ok(())
}

/// The weight of this shape; its fans are PyTorch's.
///
/// # Errors
/// As [`LayerCx::param`].
pub fn weight(
    cx: &mut LayerCx<'_>,
    shape: &[usize],
    init: &Option<Initializer>,
) -> Result<ValueId, LayerError> {
    let fans = fans_of(shape);
    cx.weight("weight", Shape::new(shape), fans, init, torch_default(fans.fan_in))
}

/// The bias of this many outputs beside a weight of `shape`.
///
/// # Errors
/// As [`LayerCx::param`].
pub fn bias(
    cx: &mut LayerCx<'_>,
    outputs: usize,
    shape: &[usize],
    init: &Option<Initializer>,
) -> Result<ValueId, LayerError> {
    let fans = fans_of(shape);
    let init = init.as_ref().map_or_else(|| torch_default(fans.fan_in), |init| init.resolve(fans));
    cx.param("bias", [outputs], init, false)
}

/// Adds a bias to each channel of y, `[batch, channels, …]`, whose weight is of `shape`.
///
/// # Errors
/// As [`LayerCx::param`].
pub fn add_bias(
    cx: &mut LayerCx<'_>,
    y: ValueId,
    shape: &[usize],
    init: &Option<Initializer>,
) -> Result<ValueId, LayerError> {
    let dims = cx.graph.shape(y).dims();
    let mut spread = vec![1; dims.len() - 1];
    spread[0] = dims[1];
    let bias = bias(cx, spread[0], shape, init)?;
    let bias = cx.graph.reshape(bias, Shape::new(spread))?;
    Ok(map::add(cx.graph, y, bias)?)
}
