//! Matrix products on the GPU: one tiled kernel, and one that adds split sums.

use super::MatMul;
use crate::graph::TensorType;
use crate::ops::launch::fold_groups;
use crate::ops::map::{self, Map};
use crate::ops::tile::{Choice, Problem, ProductKernel, choose};
use crate::ops::{Bind, GpuCall, GpuLimits, Kernel, Launch, Replacement};

/// Threads of the kernel that adds parts.
const FINISH_THREADS: usize = 256;

/// The product as the choice sees it.
pub(super) fn problem(op: &MatMul, factors: &[&TensorType], limits: &GpuLimits) -> Problem {
    let e = op.accepted(factors);
    let extents = [e.batch, e.m, e.n, e.k];
    Problem::new(ProductKernel::MatMul, extents, [!op.trans_a, op.trans_b], factors, limits)
}

/// Elements of scratch: the parts of split sums.
pub(super) fn scratch(op: &MatMul, factors: &[&TensorType], limits: &GpuLimits) -> usize {
    let parts = choose(&problem(op, factors, limits), limits).parts;
    if parts == 1 { 0 } else { parts * op.accepted(factors).outputs() }
}

/// The launches of a product.
pub(super) fn launches(op: &MatMul, call: &GpuCall<'_>) -> Vec<Launch> {
    let problem = problem(op, call.ins, call.limits);
    let Choice { tile, parts } = choose(&problem, call.limits);
    let e = op.accepted(call.ins);
    let kernel = Kernel::file(problem.kernel.stem(), "matmul")
        .with("TRANS_A", op.trans_a.into())
        .with("TRANS_B", op.trans_b.into())
        .stored("a", call.ins[0])
        .stored("b", call.ins[1]);
    let mut kernel = tile.specialise(kernel, problem.along_terms, call.limits);
    let row_lengths = [if op.trans_a { e.m } else { e.k }, if op.trans_b { e.k } else { e.n }];
    let aligned = row_lengths.iter().all(|length| length % 4 == 0);
    if aligned {
        kernel = kernel.with_library("operands", "operands_aligned");
    }
    let tiles = [e.n.div_ceil(tile.cols), e.m.div_ceil(tile.rows), e.batch * parts];
    let terms = e.k.div_ceil(parts).next_multiple_of(tile.depth);
    let covers = |extent: usize, by: usize| extent.is_multiple_of(by);
    let whole = aligned
        && covers(e.m, tile.rows)
        && covers(e.n, tile.cols)
        && covers(e.k, tile.depth)
        && (parts - 1) * terms < e.k;
    kernel = kernel.with("WHOLE", whole.into());
    let dims = [e.m, e.n, e.k, e.batch, terms, tiles[0], tiles[1], tiles[2]];
    let dims = dims.map(|n| n as u32).to_vec();
    let grid = fold_groups(tiles.iter().product());
    let mut binds = vec![Bind::In(0), Bind::In(1)];
    if parts == 1 {
        store_through(op.epilogue.as_ref(), call, &mut kernel, &mut binds);
        return vec![Launch { kernel, dims, binds, grid }];
    }
    binds.push(Bind::Scratch);
    let parts_type = TensorType::f32([e.outputs()]);
    kernel.replace.push(("epilogue", Replacement::Text(map::plain_epilogue(&parts_type, 4))));
    let mut finish = Kernel::file("matmul_finish", "finish");
    let mut finish_binds = vec![Bind::Scratch];
    store_through(op.epilogue.as_ref(), call, &mut finish, &mut finish_binds);
    let outputs = e.outputs();
    let finish = Launch::flat(
        finish,
        vec![outputs as u32, parts as u32],
        finish_binds,
        outputs,
        FINISH_THREADS as u32,
    );
    vec![Launch { kernel, dims, binds, grid }, finish]
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
        Some(map) => map::epilogue_text(map, &call.ins[2..], call.outs, first),
        None => map::plain_epilogue(call.outs[0], first),
    };
    kernel.replace.push(("epilogue", Replacement::Text(text)));
    binds.extend((0..call.outs.len()).map(Bind::Out));
    binds.extend((2..call.ins.len()).map(Bind::In));
}
