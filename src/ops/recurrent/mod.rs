//! The cells of recurrent layers, run over all steps of their inputs: what depends on the step
//! before, and nothing else. The inputs' projections come in for all steps at once, and the
//! weights' gradients are products over all steps at once, outside of here.
//!
//! With s = W_hh·h + b_hh and the parts of x and s by gate, as PyTorch has them:
//! - rnn: h' = tanh(x + s) or max(x + s, 0) (Elman 1990);
//! - lstm (Hochreiter & Schmidhuber 1997; Gers et al. 2000): i, f, o = σ(x + s), g = tanh(x + s) of
//!   their parts, c' = f·c + i·g, h' = o·tanh c'; parts in the order i, f, g, o;
//! - gru (Cho et al. 2014): r, z = σ(x + s), n = tanh(x + r·s), h' = (1 − z)·n + z·h; parts in the
//!   order r, z, n.
//!
//! States start from zero. Where samples have lengths of their own, steps beyond a sample's length
//! leave its state at zero, so that the way back starts at the last step that it has.

mod cpu;
mod gpu;

use std::sync::Arc;

use super::pad::{Pad, PadMode};
use super::{concat, matmul, reduce};
use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType, ValueId};
use crate::ops::{
    Call, Case, Domain, GpuCall, Grad, GradCall, Launch, Op, Port, Real, ScratchCall, Storage,
    Target,
};

/// A kind of cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// One layer of tanh.
    Tanh,
    /// One layer of max(·, 0).
    Relu,
    /// Long short-term memory.
    Lstm,
    /// Gated recurrent unit.
    Gru,
}

impl Cell {
    /// Gates: the rows of the weights, in units of the hidden size.
    pub fn gates(self) -> usize {
        match self {
            Cell::Tanh | Cell::Relu => 1,
            Cell::Gru => 3,
            Cell::Lstm => 4,
        }
    }

    /// What a step keeps for its gradient, in units of the hidden size: the slope of an rnn;
    /// i, f, g, o and c' of an lstm; r, z, the part of s for n, and n of a gru.
    fn kept(self) -> usize {
        match self {
            Cell::Tanh | Cell::Relu => 1,
            Cell::Gru => 4,
            Cell::Lstm => 5,
        }
    }
}

/// A cell over all steps. Operands: x `[batch, time, gates·hidden]`, W_hh `[gates·hidden, hidden]`,
/// b_hh `[gates·hidden]`, and where samples end before the last step, how many steps each has,
/// `[batch]`. Results: h `[batch, time, hidden]` after each step, zero beyond a sample's length, and
/// what the gradient needs, `[batch, time, kept·hidden]`, there such that it is zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrent {
    /// The cell.
    pub cell: Cell,
    /// Whether it runs from the last step to the first.
    pub reverse: bool,
}

/// Operands: the cotangent of h, W_hh, what was kept, and h of a gru. Results: the cotangent of s
/// at all steps, and that of x where it is another one (gru).
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrentGrad(Recurrent);

/// The extents of one use.
#[derive(Clone, Copy, Debug)]
struct Extents {
    batch: usize,
    time: usize,
    hidden: usize,
}

impl Extents {
    /// Of a sequence `[batch, time, hidden]`.
    fn of(h: &TensorType) -> Extents {
        let d = h.shape.dims();
        Extents { batch: d[0], time: d[1], hidden: d[2] }
    }

    fn sequence(&self, parts: usize) -> TensorType {
        TensorType::f32([self.batch, self.time, parts * self.hidden])
    }
}

/// A step, and those that run before and after it.
#[derive(Clone, Copy, Debug)]
struct Step {
    at: usize,
    before: Option<usize>,
    after: Option<usize>,
}

impl Recurrent {
    /// The steps in the order in which they run.
    fn steps(&self, time: usize) -> impl DoubleEndedIterator<Item = Step> {
        let reverse = self.reverse;
        (0..time).map(move |i| {
            let at = |i: usize| if reverse { time - 1 - i } else { i };
            let after = (i + 1 < time).then(|| at(i + 1));
            Step { at: at(i), before: i.checked_sub(1).map(at), after }
        })
    }

    /// FLOPs of the products.
    fn product_flops(&self, e: Extents) -> u64 {
        let steps = (e.time - 1) as u64;
        steps * 2 * (e.batch * e.hidden * e.hidden * self.cell.gates()) as u64
    }

    /// h before each step.
    fn before(&self, graph: &mut Graph, h: ValueId) -> Result<ValueId, ShapeError> {
        let shape = graph.shape(h).clone();
        let time = shape.dims()[1];
        if time == 1 {
            return Ok(graph.constant(0.0, shape));
        }
        let (from, to) = if self.reverse { (1, 0) } else { (0, 1) };
        let cut = concat::Slice { axis: 1, start: from, len: time - 1 };
        let cut = graph.op(cut, &[h])?;
        let mode = PadMode::Constant(0.0);
        graph.op(Pad { axis: 1, before: to, after: 1 - to, mode }, &[cut])
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        cpu::forward(self, call);
    }
}

impl RecurrentGrad {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        cpu::backward(&self.0, call);
    }
}

impl Op for Recurrent {
    fn name(&self) -> &'static str {
        "recurrent"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let gates = self.cell.gates();
        let ([x, weight, bias], lengths) = (match ins {
            [first @ .., lengths] if ins.len() == 4 => (first, Some(lengths)),
            all => (all, None),
        }) else {
            let found = ins.len();
            return Err(format!("expected x, a weight, a bias and lengths, got {found} operands"));
        };
        let hidden = weight.shape.last();
        let &[batch, time, width] = x.shape.dims() else {
            return Err(format!("expected [batch, time, {gates}·hidden], got {}", x.shape));
        };
        let rows = gates * hidden;
        if width != rows || weight.shape.dims() != [rows, hidden] || bias.shape.dims() != [rows] {
            return Err(format!(
                "x {}, weight {} and bias {} do not fit {gates} gates",
                x.shape, weight.shape, bias.shape
            ));
        }
        if let Some(ty) = lengths.filter(|ty| ty.shape.dims() != [batch]) {
            return Err(format!("expected lengths of {batch} samples, got {ty}"));
        }
        let e = Extents { batch, time, hidden };
        Ok(vec![e.sequence(1), e.sequence(self.cell.kept())])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let Some(d_h) = call.d_outs[0] else {
            let stops = Grad::Stops("what is kept is not trained through");
            return Ok(vec![stops; call.ins.len()]);
        };
        let (h, kept) = (call.outs[0], call.outs[1]);
        let mut operands = vec![d_h, call.ins[1], kept];
        operands.extend((self.cell == Cell::Gru).then_some(h));
        let d = graph.apply(Arc::new(RecurrentGrad(self.clone())), &operands)?;
        let (d_s, d_x) = (d[0], d[d.len() - 1]);
        let e = Extents::of(graph.ty(h));
        let (rows, width) = (e.batch * e.time, self.cell.gates() * e.hidden);
        let d_s = graph.reshape(d_s, [rows, width])?;
        let mut grads = vec![Grad::Flows(d_x), Grad::Unneeded, Grad::Unneeded];
        grads.extend((call.ins.len() == 4).then_some(Grad::Stops("lengths are counts")));
        if call.needs[1] {
            let before = self.before(graph, h)?;
            let before = graph.reshape(before, [rows, e.hidden])?;
            grads[1] = Grad::Flows(matmul::matmul(graph, d_s, before, true, false)?);
        }
        if call.needs[2] {
            grads[2] = Grad::Flows(reduce::sum_to(graph, d_s, &Shape::from([width]))?);
        }
        Ok(grads)
    }

    fn flops(&self, _ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        self.product_flops(Extents::of(outs[0]))
    }

    cpu_by_eval!();

    fn storage(&self, port: Port) -> Storage {
        if port == Port::In(0) { Storage::Either } else { Storage::Single }
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        gpu::forward(self, call.ins, Extents::of(call.outs[0]))
    }

    fn scratch(&self, call: &ScratchCall<'_>) -> usize {
        match call.target {
            Target::Cpu => cpu::forward_scratch(self, Extents::of(call.outs[0])),
            Target::Gpu(_) => 0,
        }
    }
}

impl Op for RecurrentGrad {
    fn name(&self) -> &'static str {
        "recurrent_grad"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let d_s = Extents::of(ins[0]).sequence(self.0.cell.gates());
        Ok(vec![d_s; if self.0.cell == Cell::Gru { 2 } else { 1 }])
    }

    fn grad(&self, _graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("second derivatives are not built"); call.ins.len()])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        self.0.product_flops(Extents::of(ins[0]))
    }

    cpu_by_eval!();

    fn storage(&self, port: Port) -> Storage {
        if port == Port::In(0) { Storage::Either } else { Storage::Single }
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        gpu::backward(&self.0, call.ins[0], Extents::of(call.ins[0]))
    }

    fn scratch(&self, call: &ScratchCall<'_>) -> usize {
        let e = Extents::of(call.ins[0]);
        match call.target {
            Target::Cpu => cpu::backward_scratch(e),
            Target::Gpu(_) => gpu::backward_scratch(e),
        }
    }
}

/// Uses that the generic checks run over. What is kept is compared between executors but not
/// differentiated.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, cell: Cell, [batch, time, hidden]: [usize; 3], reverse: bool| {
        let width = cell.gates() * hidden;
        let ins =
            [Shape::from([batch, time, width]), Shape::from([width, hidden]), Shape::from([width])];
        // Small weights: sums of many of them would saturate every gate.
        let bound = 1.0 / (hidden as f32).sqrt();
        let domains = [Domain::Normal, Domain::Uniform(-bound, bound), Domain::Normal];
        let ins = ins.into_iter().map(TensorType::f32).zip(domains).collect();
        let op = Recurrent { cell, reverse };
        Case::graph(name, ins, move |graph, ins| {
            Ok(vec![graph.apply(Arc::new(op.clone()), ins)?[0]])
        })
    };
    // As above, with samples of no steps, of some, and of all.
    let short = |name: &str, cell: Cell, extents: [usize; 3], reverse: bool| {
        let mut case = case(name, cell, extents, reverse);
        let lengths = Domain::Uniform(-0.5, extents[1] as f32);
        case.ins.push((TensorType::f32([extents[0]]), lengths));
        Case { not_differentiated: vec![3], ..case }
    };
    vec![
        case("lstm_one", Cell::Lstm, [1, 1, 1], false),
        case("lstm_batch3_time5_hidden7", Cell::Lstm, [3, 5, 7], false),
        case("lstm_batch33_time2_hidden68", Cell::Lstm, [33, 2, 68], true),
        case("lstm_batch2_time3_hidden33_reverse", Cell::Lstm, [2, 3, 33], true),
        case("gru_one", Cell::Gru, [1, 1, 1], true),
        case("gru_batch3_time5_hidden7", Cell::Gru, [3, 5, 7], false),
        case("gru_batch17_time3_hidden132_reverse", Cell::Gru, [17, 3, 132], true),
        case("rnn_one", Cell::Tanh, [1, 1, 1], false),
        case("rnn_batch3_time5_hidden7_reverse", Cell::Tanh, [3, 5, 7], true),
        case("rnn_batch5_time4_hidden68", Cell::Tanh, [5, 4, 68], false),
        case("rnn_relu_batch2_time3_hidden20", Cell::Relu, [2, 3, 20], false),
        short("lstm_lengths", Cell::Lstm, [5, 6, 7], false),
        short("lstm_lengths_reverse", Cell::Lstm, [35, 3, 12], true),
        short("gru_lengths", Cell::Gru, [5, 6, 12], false),
        short("gru_lengths_reverse", Cell::Gru, [7, 5, 9], true),
        short("rnn_lengths", Cell::Relu, [3, 5, 4], false),
        short("rnn_lengths_reverse", Cell::Tanh, [5, 4, 7], true),
    ]
}
