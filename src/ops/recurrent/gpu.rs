//! Recurrent cells on the GPU: one launch a step, in which a workgroup has the product and the
//! cells of its samples and units.

use super::{Cell, Extents, Recurrent, Step};
use crate::graph::TensorType;
use crate::ops::{Bind, Kernel, Launch};

/// Samples and units of a workgroup, forward and backward.
const FORWARD: [usize; 2] = [32, 8];
const BACKWARD: [usize; 2] = [16, 16];

/// In the place of the step before the first and after the last.
const NONE: u32 = u32::MAX;

fn kernel(op: &Recurrent, e: Extents, file: &'static str, libraries: [&'static str; 3]) -> Kernel {
    let mut kernel = Kernel::file(file, file).with("GATES", op.cell.gates() as u32);
    let [default, rnn, gru] = libraries;
    kernel = match op.cell {
        Cell::Lstm => kernel,
        Cell::Gru => kernel.with_library(default, gru),
        Cell::Tanh | Cell::Relu => kernel.with_library(default, rnn),
    };
    if e.hidden.is_multiple_of(4) {
        kernel = kernel.with_library("recurrent_quads", "recurrent_quads_aligned");
    }
    kernel
}

/// One launch for each step.
fn launches(
    kernel: &Kernel,
    binds: &[Bind],
    e: Extents,
    [samples, units]: [usize; 2],
    steps: impl Iterator<Item = Step>,
) -> Vec<Launch> {
    let grid = [e.hidden.div_ceil(units) as u32, e.batch.div_ceil(samples) as u32, 1];
    let launch = |step: Step| {
        let [batch, time, hidden, at] = [e.batch, e.time, e.hidden, step.at].map(|n| n as u32);
        let [before, after] = [step.before, step.after].map(|s| s.map_or(NONE, |s| s as u32));
        let dims = vec![batch, time, hidden, at, before, after];
        Launch { kernel: kernel.clone(), dims, binds: binds.to_vec(), grid }
    };
    steps.map(launch).collect()
}

/// Operands x, weight, bias and lengths where there are some → h, kept.
pub(super) fn forward(op: &Recurrent, ins: &[&TensorType], e: Extents) -> Vec<Launch> {
    let mut kernel =
        kernel(op, e, "recurrent", ["lstm_cell", "rnn_cell", "gru_cell"]).stored("x", ins[0]);
    if matches!(op.cell, Cell::Tanh | Cell::Relu) {
        kernel = kernel.with("RELU", u32::from(op.cell == Cell::Relu));
    }
    let mut binds = vec![Bind::In(0), Bind::In(1), Bind::Out(0), Bind::Out(1), Bind::In(2)];
    if ins.len() == 4 {
        kernel = kernel.with_library("recurrent_whole", "recurrent_lengths");
        binds.push(Bind::In(3));
    }
    launches(&kernel, &binds, e, FORWARD, op.steps(e.time))
}

/// Elements of what steps hand on beside the product.
pub(super) fn backward_scratch(e: Extents) -> usize {
    e.batch * e.hidden
}

/// Operands d_h, weight, kept and h → d_s, d_x.
pub(super) fn backward(op: &Recurrent, d_h: &TensorType, e: Extents) -> Vec<Launch> {
    let libraries = ["lstm_cell_grad", "rnn_cell_grad", "gru_cell_grad"];
    let kernel = kernel(op, e, "recurrent_grad", libraries).stored("d_h", d_h);
    let mut binds = vec![Bind::In(0), Bind::In(1), Bind::Out(0), Bind::In(2)];
    match op.cell {
        Cell::Tanh | Cell::Relu => {}
        Cell::Lstm => binds.push(Bind::Scratch),
        Cell::Gru => binds.extend([Bind::Scratch, Bind::In(3), Bind::Out(1)]),
    }
    launches(&kernel, &binds, e, BACKWARD, op.steps(e.time).rev())
}
