//! `rnn`, `lstm` and `gru`.

use super::dropout::Dropout;
use super::init::{Fans, Initializer, torch_default};
use super::{Layer, LayerCx, LayerError, batch_shape, lengths};
use crate::config::macros::{choices, options};
use crate::graph::ValueId;
use crate::ops::recurrent::{Cell, Recurrent};
use crate::ops::{concat, map, matmul};

choices! {
    /// Which states are the output.
    pub enum States {
        /// The state after each step, `[batch, time, features]`.
        Sequence = "sequence",
        /// The state after the last step of each sample, `[batch, features]`; of the way back, the
        /// state at the first one.
        Last = "last",
    }
}

choices! {
    /// The activation of an `rnn`.
    pub enum Nonlinearity {
        /// tanh x.
        Tanh = "tanh",
        /// max(x, 0).
        Relu = "relu",
    }
}

options! {
    /// Recurrent layers of one gate (Elman 1990): h' = tanh(W_ih·x + b_ih + W_hh·h + b_hh), from
    /// h = 0. Input `[batch, time, features]`, output `[batch, time, hidden_size]`, twice as wide
    /// where it is bidirectional. Parameters as in PyTorch: `weight_ih_l0` of `[hidden_size,
    /// features]`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`, the same ending in `_reverse` for
    /// the way back, and `_l1`, … for further layers.
    pub struct Rnn {
        /// Size of the state.
        hidden_size: usize [1..],
        /// Layers one above another.
        num_layers: usize [1..=256] = 1,
        /// The activation.
        nonlinearity: Nonlinearity = Nonlinearity::Tanh,
        /// Learned biases.
        bias: bool = true,
        /// Dropout on the output of each layer but the last.
        dropout: f64 [0.0..1.0] = 0.0,
        /// Whether each layer also runs from the last step to the first; both states are joined.
        bidirectional: bool = false,
        /// Which states are the output.
        output: States = States::Sequence,
        /// The input or layer that gives the number of steps of each sample, `[batch]`: steps
        /// beyond it are padding, where the output is zero, as of PyTorch's packed sequences. All
        /// steps where left out.
        lengths: Option<String>,
        /// First values of the weights; PyTorch's default where left out.
        init: Option<Initializer>,
    }
}

options! {
    /// Long short-term memory (Hochreiter & Schmidhuber 1997; Gers et al. 2000): with the parts
    /// i, f, g, o of W_ih·x + b_ih + W_hh·h + b_hh, c' = σ(f)·c + σ(i)·tanh(g) and
    /// h' = σ(o)·tanh(c'), from h = c = 0. Input `[batch, time, features]`, output `[batch, time,
    /// hidden_size]`, twice as wide where it is bidirectional. Parameters as in PyTorch:
    /// `weight_ih_l0` of `[4·hidden_size, features]`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`,
    /// the same ending in `_reverse` for the way back, and `_l1`, … for further layers.
    pub struct Lstm {
        /// Size of the state.
        hidden_size: usize [1..],
        /// Layers one above another.
        num_layers: usize [1..=256] = 1,
        /// Learned biases.
        bias: bool = true,
        /// Dropout on the output of each layer but the last.
        dropout: f64 [0.0..1.0] = 0.0,
        /// Whether each layer also runs from the last step to the first; both states are joined.
        bidirectional: bool = false,
        /// Which states are the output.
        output: States = States::Sequence,
        /// The input or layer that gives the number of steps of each sample, `[batch]`: steps
        /// beyond it are padding, where the output is zero, as of PyTorch's packed sequences. All
        /// steps where left out.
        lengths: Option<String>,
        /// First values of the weights; PyTorch's default where left out.
        init: Option<Initializer>,
    }
}

options! {
    /// Gated recurrent units (Cho et al. 2014), as PyTorch has them: with the parts r, z, n of
    /// W_ih·x + b_ih and of W_hh·h + b_hh, n' = tanh(n_x + σ(r)·n_h) and
    /// h' = (1 − σ(z))·n' + σ(z)·h, from h = 0. Input `[batch, time, features]`, output `[batch,
    /// time, hidden_size]`, twice as wide where it is bidirectional. Parameters as in PyTorch:
    /// `weight_ih_l0` of `[3·hidden_size, features]`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`,
    /// the same ending in `_reverse` for the way back, and `_l1`, … for further layers.
    pub struct Gru {
        /// Size of the state.
        hidden_size: usize [1..],
        /// Layers one above another.
        num_layers: usize [1..=256] = 1,
        /// Learned biases.
        bias: bool = true,
        /// Dropout on the output of each layer but the last.
        dropout: f64 [0.0..1.0] = 0.0,
        /// Whether each layer also runs from the last step to the first; both states are joined.
        bidirectional: bool = false,
        /// Which states are the output.
        output: States = States::Sequence,
        /// The input or layer that gives the number of steps of each sample, `[batch]`: steps
        /// beyond it are padding, where the output is zero, as of PyTorch's packed sequences. All
        /// steps where left out.
        lengths: Option<String>,
        /// First values of the weights; PyTorch's default where left out.
        init: Option<Initializer>,
    }
}

impl Layer for Rnn {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let cell = match self.nonlinearity {
            Nonlinearity::Tanh => Cell::Tanh,
            Nonlinearity::Relu => Cell::Relu,
        };
        let Rnn { hidden_size, num_layers, bias, dropout, bidirectional, output, .. } = *self;
        let (lengths, init) = (self.lengths.as_deref(), &self.init);
        Stack { cell, hidden_size, num_layers, bias, dropout, bidirectional, output, lengths, init }
            .build(cx, x)
    }
}

impl Layer for Lstm {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let cell = Cell::Lstm;
        let Lstm { hidden_size, num_layers, bias, dropout, bidirectional, output, .. } = *self;
        let (lengths, init) = (self.lengths.as_deref(), &self.init);
        Stack { cell, hidden_size, num_layers, bias, dropout, bidirectional, output, lengths, init }
            .build(cx, x)
    }
}

impl Layer for Gru {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        let cell = Cell::Gru;
        let Gru { hidden_size, num_layers, bias, dropout, bidirectional, output, .. } = *self;
        let (lengths, init) = (self.lengths.as_deref(), &self.init);
        Stack { cell, hidden_size, num_layers, bias, dropout, bidirectional, output, lengths, init }
            .build(cx, x)
    }
}

/// What the three layers are: layers of cells one above another.
struct Stack<'a> {
    cell: Cell,
    hidden_size: usize,
    num_layers: usize,
    bias: bool,
    dropout: f64,
    bidirectional: bool,
    output: States,
    lengths: Option<&'a str>,
    init: &'a Option<Initializer>,
}

impl Stack<'_> {
    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        if cx.float_dims(x)?.len() != 3 {
            let got = batch_shape(cx.graph.shape(x));
            return Err(LayerError(format!(
                "needs an input of [batch, time, features], got {got}"
            )));
        }
        if self.dropout > 0.0 && self.num_layers == 1 {
            return Err(LayerError(
                "`dropout` acts between the layers of a stack, and `num_layers` is 1: leave it out, \
                 or put a `dropout` layer after this one"
                    .into(),
            ));
        }
        let lengths = self.lengths.map(|name| lengths::named(cx, name, x)).transpose()?;
        let mut at = x;
        for layer in 0..self.num_layers {
            let last = layer + 1 == self.num_layers;
            let output = if last { self.output } else { States::Sequence };
            at = self.layer(cx, at, lengths, layer, output)?;
            if !last {
                at = Dropout { p: self.dropout }.build(cx, at)?;
            }
        }
        Ok(at)
    }

    /// One layer, in one direction or both.
    fn layer(
        &self,
        cx: &mut LayerCx<'_>,
        x: ValueId,
        lengths: Option<ValueId>,
        layer: usize,
        output: States,
    ) -> Result<ValueId, LayerError> {
        let directions: &[bool] = if self.bidirectional { &[false, true] } else { &[false] };
        let mut states = Vec::new();
        for &reverse in directions {
            let suffix = if reverse { "_reverse" } else { "" };
            let h = self.direction(cx, x, lengths, &format!("l{layer}{suffix}"), reverse)?;
            states.push(match output {
                States::Sequence => h,
                States::Last => last(cx, h, lengths, reverse)?,
            });
        }
        if let [only] = states[..] {
            return Ok(only);
        }
        let axis = cx.graph.shape(states[0]).rank() - 1;
        Ok(concat::concat(cx.graph, &states, axis)?)
    }

    /// One layer in one direction: the inputs' projections of all steps as one product, then the
    /// cells.
    fn direction(
        &self,
        cx: &mut LayerCx<'_>,
        x: ValueId,
        lengths: Option<ValueId>,
        name: &str,
        reverse: bool,
    ) -> Result<ValueId, LayerError> {
        let dims = cx.float_dims(x)?;
        let (batch, time, features) = (dims[0], dims[1], dims[2]);
        let width = self.cell.gates() * self.hidden_size;
        let default = torch_default(self.hidden_size);
        let mut weight = |kind: &str, fan_in: usize| {
            let fans = Fans { fan_in, fan_out: width };
            let name = format!("weight_{kind}_{name}");
            cx.weight(&name, [width, fan_in], fans, self.init, default.clone())
        };
        let (weight_ih, weight_hh) = (weight("ih", features)?, weight("hh", self.hidden_size)?);
        let rows = cx.graph.reshape(x, [batch * time, features])?;
        let mut projected = matmul::matmul(cx.graph, rows, weight_ih, false, true)?;
        let mut bias = cx.graph.constant(0.0, [width]);
        if self.bias {
            let bias_ih = cx.param(&format!("bias_ih_{name}"), [width], default.clone(), false)?;
            bias = cx.param(&format!("bias_hh_{name}"), [width], default, false)?;
            if self.cell == Cell::Gru {
                projected = map::add(cx.graph, projected, bias_ih)?;
            } else {
                // Where both are only ever added, their gradients are one sum.
                bias = map::add(cx.graph, bias, bias_ih)?;
            }
        }
        let projected = cx.graph.reshape(projected, [batch, time, width])?;
        let op = Recurrent { cell: self.cell, reverse };
        let mut operands = vec![projected, weight_hh, bias];
        operands.extend(lengths);
        Ok(cx.graph.apply(std::sync::Arc::new(op), &operands)?[0])
    }
}

/// The state after the last step of each sample, of `[batch, time, features]`.
fn last(
    cx: &mut LayerCx<'_>,
    h: ValueId,
    lengths: Option<ValueId>,
    reverse: bool,
) -> Result<ValueId, LayerError> {
    let dims = cx.graph.shape(h).dims().to_vec();
    let state = match lengths {
        Some(lengths) if !reverse => {
            let ends = lengths::ends(cx.graph, lengths, dims[1])?;
            let ends = cx.graph.reshape(ends, [dims[0], 1, dims[1]])?;
            matmul::matmul(cx.graph, ends, h, false, false)?
        }
        _ => {
            let start = if reverse { 0 } else { dims[1] - 1 };
            cx.graph.op(concat::Slice { axis: 1, start, len: 1 }, &[h])?
        }
    };
    Ok(cx.graph.reshape(state, [dims[0], dims[2]])?)
}
