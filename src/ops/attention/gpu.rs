//! Attention on the GPU: a workgroup holds a tile of queries (or of keys) and walks over the tiles
//! of the other side; on matrix units where operands in half precision suit them.

use super::{Attention, Extents};
use crate::graph::{DType, TensorType};
use crate::ops::launch::fold_groups;
use crate::ops::{Bind, GpuCall, Kernel, Launch, MatrixUnits};

/// The widest head whose tiles fit the workgroup memory that every device has.
pub(super) const MAX_HEAD: usize = 256;

/// Queries and keys in a tile: three tiles of heads must fit workgroup memory. Tiles of 32 need so
/// many registers that too few threads are left; they took twice as long.
fn block(e: &Extents) -> usize {
    if e.head <= 128 { 16 } else { 8 }
}

fn kernel(op: &Attention, e: &Extents, file: &'static str, entry: &'static str) -> Kernel {
    let quads = e.head.div_ceil(4);
    Kernel::file(file, entry)
        .with("BLOCK", block(e) as u32)
        .with("MINE", block(e) as u32 / 8)
        .with("HEAD", e.head as u32)
        .with("QUADS", quads as u32)
        .with("OWN", quads.div_ceil(8) as u32)
        .with("CAUSAL", u32::from(op.causal))
        .with("DROPOUT", u32::from(op.dropout > 0.0))
        .with("ALIBI", u32::from(op.alibi))
}

/// Groups of 32 threads of a workgroup on matrix units, each with 32 queries (or keys): four where
/// workgroup memory allows it.
fn groups(units: MatrixUnits) -> usize {
    match units {
        MatrixUnits::Side8 => 2,
        MatrixUnits::Side16 => 4,
    }
}

/// Bytes of workgroup memory that these groups need.
fn matrix_bytes(e: &Extents, units: MatrixUnits) -> usize {
    groups(units) * 32 * (36 * 4 + 40 * 2) + 2 * 32 * (e.head + 8) * 2
}

/// The widest head whose sums stay in registers there.
const MATRIX_HEAD: usize = 64;

/// The matrix units that suit a use: whole strips of rows, and factors in half precision.
fn units(e: &Extents, factors: &[&TensorType], call: &GpuCall<'_>) -> Option<MatrixUnits> {
    let half = factors.iter().all(|ty| ty.dtype == DType::F16);
    call.limits.matrix.filter(|units| {
        half && e.length.is_multiple_of(units.side())
            && e.head.is_multiple_of(16)
            && e.head <= MATRIX_HEAD
            && matrix_bytes(e, *units) <= call.limits.workgroup_bytes as usize
    })
}

fn matrix_kernel(
    op: &Attention,
    e: &Extents,
    units: MatrixUnits,
    file: &'static str,
    entry: &'static str,
) -> Kernel {
    let side = units.side();
    let kernel = Kernel::file(file, entry)
        .with("HEAD", e.head as u32)
        .with("FEATURES", (e.head / side) as u32)
        .with("STRIPS", (32 / side) as u32)
        .with("GROUPS", groups(units) as u32)
        .with("QUADS", (e.head / 4 / groups(units)) as u32)
        .with("CAUSAL", u32::from(op.causal))
        .with("DROPOUT", u32::from(op.dropout > 0.0))
        .with("ALIBI", u32::from(op.alibi));
    units.in_kernel(kernel)
}

fn matrix_grid(e: &Extents, units: MatrixUnits) -> [u32; 3] {
    fold_groups(e.batch * e.heads * e.length.div_ceil(groups(units) * 32))
}

fn dims(op: &Attention, e: &Extents) -> Vec<u32> {
    let scale = (1.0 / (e.head as f64).sqrt()) as f32;
    vec![
        (e.batch * e.heads) as u32,
        e.length as u32,
        e.width as u32,
        e.heads as u32,
        scale.to_bits(),
        op.dropout.to_bits(),
        op.stream,
        op.window.unwrap_or(e.length).min(e.length) as u32,
        1 << e.heads.ilog2(),
    ]
}

/// Lets a kernel see only within segments where the op has them: operand `input`, which it finds
/// behind its other bindings.
fn within_segments(launch: &mut Launch, call: &GpuCall<'_>, input: usize) {
    if call.ins.len() > input {
        let binding = launch.binds.len() as u32 + 2;
        launch.kernel = (launch.kernel.clone())
            .with_library("attention_open", "attention_segments")
            .with("SEGMENTS", binding);
        launch.binds.push(Bind::In(input));
    }
}

fn grid(e: &Extents) -> [u32; 3] {
    fold_groups(e.batch * e.heads * e.length.div_ceil(block(e)))
}

/// Operands: qkv and segments where there are some → out, log-sums.
pub(super) fn forward(op: &Attention, e: &Extents, call: &GpuCall<'_>) -> Vec<Launch> {
    let (kernel, grid) = match units(e, &call.ins[..1], call) {
        Some(units) => {
            (matrix_kernel(op, e, units, "attention_matrix", "attention"), matrix_grid(e, units))
        }
        None => (kernel(op, e, "attention", "attention").stored("qkv", call.ins[0]), grid(e)),
    };
    let binds = vec![Bind::In(0), Bind::Out(0), Bind::Out(1)];
    let mut launch =
        Launch { kernel: kernel.stored("out", call.outs[0]), dims: dims(op, e), binds, grid };
    within_segments(&mut launch, call, 1);
    vec![launch]
}

/// Elements of δ.
pub(super) fn backward_scratch(e: &Extents) -> usize {
    e.batch * e.heads * e.length
}

/// δ and dQ by tiles of queries; then dK and dV by tiles of keys.
pub(super) fn backward(op: &Attention, e: &Extents, call: &GpuCall<'_>) -> Vec<Launch> {
    let (query, key, grid) = match units(e, &[call.ins[0], call.ins[3]], call) {
        Some(units) => (
            matrix_kernel(op, e, units, "attention_matrix_query", "grad_query"),
            matrix_kernel(op, e, units, "attention_matrix_key", "grad_key"),
            matrix_grid(e, units),
        ),
        None => {
            let stored =
                |kernel: Kernel| kernel.stored("qkv", call.ins[0]).stored("d_out", call.ins[3]);
            (
                stored(kernel(op, e, "attention_grad_query", "grad_query")),
                stored(kernel(op, e, "attention_grad_key", "grad_key")),
                grid(e),
            )
        }
    };
    let queries = Launch {
        kernel: query.stored("out", call.ins[1]).stored("d_qkv", call.outs[0]),
        dims: dims(op, e),
        binds: vec![
            Bind::In(0),
            Bind::In(1),
            Bind::In(2),
            Bind::In(3),
            Bind::Out(0),
            Bind::Scratch,
        ],
        grid,
    };
    let keys = Launch {
        kernel: key.stored("d_qkv", call.outs[0]),
        dims: dims(op, e),
        binds: vec![Bind::In(0), Bind::In(2), Bind::In(3), Bind::Scratch, Bind::Out(0)],
        grid,
    };
    let mut launches = vec![queries, keys];
    launches.iter_mut().for_each(|launch| within_segments(launch, call, 4));
    launches
}
