//! Updates on the CPU: the code is interpreted block by block, as a map's is.

use super::Update;
use crate::ops::cpu::{SERIAL_BELOW, simd};
use crate::ops::map::{BLOCK, run_block};
use crate::ops::{Call, Operand, Real};

/// Elements handed to one thread at once.
const PIECE: usize = 64 * BLOCK;

/// Runs an update.
pub(super) fn eval<R: Real>(update: &Update, call: Call<'_, R>) {
    let scale = call.f(update.operands)[0];
    if scale == R::ZERO {
        return;
    }
    let n = call.in_types[0].shape.elements();
    let mut pieces: Vec<Vec<&mut [R]>> = (0..n.div_ceil(PIECE)).map(|_| Vec::new()).collect();
    for out in call.outs.iter_mut() {
        for (piece, chunk) in pieces.iter_mut().zip(out.chunks_mut(PIECE)) {
            piece.push(chunk);
        }
    }
    let (ins, globals) = (call.ins, call.globals);
    let run = |(index, mut outs): (usize, Vec<&mut [R]>)| {
        simd(|| {
            let len = outs.first().map_or(0, |out| out.len());
            let mut regs = vec![[R::ZERO; BLOCK]; update.code.instrs.len()];
            for start in (0..len).step_by(BLOCK) {
                let (first, width) = (index * PIECE + start, BLOCK.min(len - start));
                let load = |input: usize, block: &mut [R; BLOCK]| {
                    if input == update.operands {
                        return block.fill(scale);
                    }
                    if input > update.operands {
                        let value = globals.hyper[input - update.operands - 1];
                        return block.fill(R::of(f64::from(value)));
                    }
                    match ins[input] {
                        Operand::InPlace => {
                            block[..width].copy_from_slice(&outs[input][start..start + width]);
                        }
                        Operand::F(values) if values.len() == 1 => block.fill(values[0]),
                        Operand::F(values) => {
                            block[..width].copy_from_slice(&values[first..first + width]);
                        }
                        ref other => unreachable!("an update over {other:?}"),
                    }
                };
                run_block(&update.code, &mut regs, first, globals, load);
                for (out, reg) in outs.iter_mut().zip(&update.code.outs) {
                    out[start..start + width].copy_from_slice(&regs[*reg as usize][..width]);
                }
            }
        });
    };
    if n < SERIAL_BELOW {
        pieces.into_iter().enumerate().for_each(run);
    } else {
        use rayon::prelude::*;
        pieces.into_par_iter().enumerate().for_each(run);
    }
}
