//! Matrix products on the CPU: one GEMM for each piece of the result.

use super::{Extents, MatMul};
use crate::graph::TensorType;
use crate::ops::cpu::{Gemm, Matrix, par_gemm_batch};
use crate::ops::{Call, Operand, Real};

/// Elements of scratch: the product, where a map follows it.
pub(super) fn scratch(op: &MatMul, e: Extents) -> usize {
    if op.epilogue.is_some() { e.outputs() } else { 0 }
}

/// Runs a product.
pub(super) fn eval<R: Real>(op: &MatMul, call: Call<'_, R>) {
    let e = op.accepted(call.in_types);
    let (a, b) = (call.f(0), call.f(1));
    let Some(map) = &op.epilogue else {
        return product(op, e, a, b, call.outs[0]);
    };
    let Call { ins: call_ins, outs, scratch, in_types: call_types, out_types, globals } = call;
    let store = &mut scratch[..e.outputs()];
    product(op, e, a, b, store);
    let mapped = TensorType::f32(map.shape.clone());
    let mut ins = vec![Operand::F(&*store)];
    ins.extend_from_slice(&call_ins[2..]);
    let mut in_types = vec![&mapped];
    in_types.extend_from_slice(&call_types[2..]);
    let mut outs: Vec<&mut [R]> = outs.iter_mut().map(|out| &mut **out).collect();
    let (ins, in_types) = (&ins[..], &in_types[..]);
    R::run(map, Call { ins, outs: &mut outs, scratch: &mut [], in_types, out_types, globals });
}

fn product<R: Real>(op: &MatMul, e: Extents, a: &[R], b: &[R], c: &mut [R]) {
    let Extents { batch, m, n, k } = e;
    let stored = |data, rows, cols, transposed| {
        if transposed {
            Matrix { data, row: 1, col: rows }
        } else {
            Matrix { data, row: cols, col: 1 }
        }
    };
    let gemm = Gemm {
        m,
        n,
        k,
        a: stored(a, m, k, op.trans_a),
        b: stored(b, k, n, op.trans_b),
        c_row: n,
        accumulate: false,
    };
    par_gemm_batch(&gemm, batch, [m * k, k * n, m * n], c);
}
