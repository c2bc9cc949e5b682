//! `conv2d`.

use super::init::{Fans, Initializer, torch_default};
use super::{Layer, LayerCx, LayerError};
use crate::config::decode::{Cx, Decode};
use crate::config::macros::options;
use crate::config::nearest::nearest;
use crate::config::node::Node;
use crate::config::schema::{Schema, Word};
use crate::config::values::PerAxis;
use crate::graph::ValueId;
use crate::ops::{conv2d, map};

/// Zeros around the image: a number for all sides, `[vertical, horizontal]`, or `same`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Padding {
    /// Rows above and below, columns left and right.
    Explicit([usize; 2]),
    /// As many as keep ⌈size / stride⌉ rows and columns; an odd one goes below and right.
    Same,
}

impl Decode for Padding {
    fn decode(node: &Node, cx: &mut Cx) -> Option<Self> {
        if node.text() == Some("same") {
            return Some(Padding::Same);
        }
        if node.text().is_some_and(|text| text.parse::<i64>().is_err()) {
            let expected = cx.expected("an integer >= 0, two of them, or `same`", node);
            if let Some(meant) = node.text().and_then(|text| nearest(text, ["same"])) {
                expected.help(format!("did you mean `{meant}`?"));
            }
            return None;
        }
        PerAxis::<usize, 2>::decode(node, cx).map(|axes| Padding::Explicit(axes.0))
    }

    fn schema() -> Schema {
        let same = Word { word: "same", docs: "As many as keep the size at stride 1.".into() };
        Schema::Either(
            Box::new(PerAxis::<usize, 2>::schema()),
            Box::new(Schema::Choice(vec![same])),
        )
    }

    fn to_json(&self) -> serde_json::Value {
        match self {
            Padding::Explicit(sides) => PerAxis(*sides).to_json(),
            Padding::Same => "same".into(),
        }
    }
}

options! {
    /// 2-d convolution (cross-correlation, as in PyTorch). Input `[batch, in_channels, height,
    /// width]`, output `[batch, out_channels, …]`; `weight` of `[out_channels, in_channels /
    /// groups, kernel, kernel]`, `bias` of `[out_channels]`.
    pub struct Conv2d {
        /// Channels of the output.
        out_channels: usize [1..],
        /// Rows and columns of the kernel.
        kernel_size: PerAxis<usize, 2> [1..],
        /// Step between windows.
        stride: PerAxis<usize, 2> [1..] = PerAxis([1, 1]),
        /// Zeros around the input, or `same`.
        padding: Padding = Padding::Explicit([0, 0]),
        /// Step between the kernel's elements.
        dilation: PerAxis<usize, 2> [1..] = PerAxis([1, 1]),
        /// Groups of channels that are convolved apart.
        groups: usize [1..] = 1,
        /// Adds a learned bias to each channel.
        bias: bool = true,
        /// First values of the weight; PyTorch's default where left out.
        init: Option<Initializer>,
    }
}

impl Conv2d {
    /// Rows above, below, columns left, right for an image of `size`.
    fn sides(&self, size: [usize; 2]) -> [usize; 4] {
        match self.padding {
            Padding::Explicit([v, h]) => [v, v, h, h],
            Padding::Same => {
                let total = |axis: usize| {
                    let stride = self.stride.0[axis];
                    let reach = self.dilation.0[axis] * (self.kernel_size.0[axis] - 1) + 1;
                    ((size[axis].div_ceil(stride) - 1) * stride + reach).saturating_sub(size[axis])
                };
                let (v, h) = (total(0), total(1));
                [v / 2, v - v / 2, h / 2, h - h / 2]
            }
        }
    }
}

impl Layer for Conv2d {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let [_, channels, height, width] = cx.image_dims(x)?;
        for (what, count) in [("input", channels), ("output", self.out_channels)] {
            if count % self.groups != 0 {
                return Err(LayerError(format!(
                    "cannot split {count} {what} channels into {} groups",
                    self.groups
                )));
            }
        }
        let [kh, kw] = self.kernel_size.0;
        let area = kh * kw;
        let fan_in = channels / self.groups * area;
        let fans = Fans { fan_in, fan_out: self.out_channels * area };
        let shape = [self.out_channels, channels / self.groups, kh, kw];
        let weight = cx.weight("weight", shape, fans, &self.init, torch_default(fan_in))?;
        let op = conv2d::Conv2d::new(
            self.stride.0,
            self.sides([height, width]),
            self.dilation.0,
            self.groups,
        );
        let y = cx.graph.op(op, &[x, weight])?;
        if !self.bias {
            return Ok(y);
        }
        let bias = cx.param("bias", [self.out_channels], torch_default(fan_in), false)?;
        let bias = cx.graph.reshape(bias, [self.out_channels, 1, 1])?;
        Ok(map::add(cx.graph, y, bias)?)
    }
}
