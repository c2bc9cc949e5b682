//! Attention on the GPU: a workgroup holds a tile of queries (or of keys) and walks over the tiles
//! of the other side.

use super::{Attention, Extents};
use crate::ops::launch::fold_groups;
use crate::ops::{Bind, Kernel, Launch};

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
    ]
}

fn grid(e: &Extents) -> [u32; 3] {
    fold_groups(e.batch * e.heads * e.length.div_ceil(block(e)))
}

/// Operands: qkv → out, log-sums.
pub(super) fn forward(op: &Attention, e: &Extents) -> Vec<Launch> {
    vec![Launch {
        kernel: kernel(op, e, "attention", "attention"),
        dims: dims(op, e),
        binds: vec![Bind::In(0), Bind::Out(0), Bind::Out(1)],
        grid: grid(e),
    }]
}

/// Elements of δ.
pub(super) fn backward_scratch(e: &Extents) -> usize {
    e.batch * e.heads * e.length
}

/// δ and dQ by tiles of queries; then dK and dV by tiles of keys.
pub(super) fn backward(op: &Attention, e: &Extents) -> Vec<Launch> {
    let queries = Launch {
        kernel: kernel(op, e, "attention_grad_query", "grad_query"),
        dims: dims(op, e),
        binds: vec![
            Bind::In(0),
            Bind::In(1),
            Bind::In(2),
            Bind::In(3),
            Bind::Out(0),
            Bind::Scratch,
        ],
        grid: grid(e),
    };
    let keys = Launch {
        kernel: kernel(op, e, "attention_grad_key", "grad_key"),
        dims: dims(op, e),
        binds: vec![Bind::In(0), Bind::In(2), Bind::In(3), Bind::Scratch, Bind::Out(0)],
        grid: grid(e),
    };
    vec![queries, keys]
}
