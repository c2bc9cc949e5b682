//! Matrix products on the GPU: one tiled kernel, and one that adds split sums.

use super::{MatMul, choose};
use crate::ops::launch::fold_groups;
use crate::ops::map::{self, Map};
use crate::ops::{Bind, GpuCall, Kernel, Launch};

/// Threads of the kernel that adds parts.
const FINISH_THREADS: usize = 256;

/// The launches of a product.
pub(super) fn launches(op: &MatMul, call: &GpuCall<'_>) -> Vec<Launch> {
    let e = op.accepted(call.ins);
    let choice = choose(op.problem(e), call.limits);
    let tile = choice.tile;
    let mut kernel = Kernel::file("matmul", "matmul")
        .with("ROWS", tile.rows as u32)
        .with("COLS", tile.cols as u32)
        .with("DEPTH", tile.depth as u32)
        .with("THREAD_ROWS", tile.thread_rows as u32)
        .with("THREAD_QUADS", tile.thread_quads as u32)
        .with("TRANS_A", op.trans_a.into())
        .with("TRANS_B", op.trans_b.into());
    let tiles = [e.n.div_ceil(tile.cols), e.m.div_ceil(tile.rows), e.batch * choice.parts];
    let terms = e.k.div_ceil(choice.parts).next_multiple_of(tile.depth);
    let dims =
        [e.m, e.n, e.k, e.batch, terms, tiles[0], tiles[1], tiles[2]].map(|n| n as u32).to_vec();
    let grid = fold_groups(tiles.iter().product());
    let mut binds = vec![Bind::In(0), Bind::In(1)];
    if choice.parts > 1 {
        binds.push(Bind::Scratch);
        let mut kernel_finish = Kernel::file("matmul_finish", "finish");
        let mut finish_binds = vec![Bind::Scratch];
        store_through(op.epilogue.as_ref(), call, &mut kernel_finish, &mut finish_binds);
        let outputs = e.outputs();
        let finish = Launch::flat(
            kernel_finish,
            vec![outputs as u32, choice.parts as u32],
            finish_binds,
            outputs,
            FINISH_THREADS as u32,
        );
        return vec![Launch { kernel, dims, binds, grid }, finish];
    }
    store_through(op.epilogue.as_ref(), call, &mut kernel, &mut binds);
    vec![Launch { kernel, dims, binds, grid }]
}

/// Makes a kernel store its results through the map, if there is one, and adds the operands that
/// this needs after those bound already.
fn store_through(
    epilogue: Option<&Map>,
    call: &GpuCall<'_>,
    kernel: &mut Kernel,
    binds: &mut Vec<Bind>,
) {
    let first = binds.len() + 2;
    let text = match epilogue {
        Some(map) => map::epilogue_text(map, &call.ins[2..], first),
        None => map::plain_epilogue(first),
    };
    kernel.replace.push(("epilogue", text));
    binds.extend((0..call.outs.len()).map(Bind::Out));
    binds.extend((2..call.ins.len()).map(Bind::In));
}
