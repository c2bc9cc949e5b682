//! Maps on the CPU: the code is interpreted one block of elements at a time, each instruction a
//! loop over the block that the compiler turns into SIMD.

use super::code::{Binary, Code, Instr, Unary};
use super::{Map, wgsl::Access};
use crate::device::Globals;
use crate::graph::Shape;
use crate::ops::cpu::{SERIAL_BELOW, simd};
use crate::ops::{Call, Operand, Real};

/// Elements interpreted at once: a block's registers stay in the first-level cache.
const BLOCK: usize = 256;
/// Elements handed to one thread at once.
const PIECE: usize = 64 * BLOCK;

/// Runs a map.
pub(super) fn eval<R: Real>(map: &Map, call: Call<'_, R>) {
    let accesses: Vec<Access> =
        call.in_types.iter().map(|ty| Access::new(&ty.shape, &map.shape)).collect();
    let n = map.shape.elements();
    let mut pieces: Vec<Vec<&mut [R]>> = (0..n.div_ceil(PIECE)).map(|_| Vec::new()).collect();
    for out in call.outs.iter_mut() {
        for (piece, chunk) in pieces.iter_mut().zip(out.chunks_mut(PIECE)) {
            piece.push(chunk);
        }
    }
    let (ins, globals) = (call.ins, call.globals);
    let run = |(index, outs): (usize, Vec<&mut [R]>)| {
        simd(|| piece(map, &accesses, ins, outs, index * PIECE, globals));
    };
    if n < SERIAL_BELOW {
        pieces.into_iter().enumerate().for_each(run);
    } else {
        use rayon::prelude::*;
        pieces.into_par_iter().enumerate().for_each(run);
    }
}

#[inline(always)]
fn piece<R: Real>(
    map: &Map,
    accesses: &[Access],
    ins: &[Operand<'_, R>],
    mut outs: Vec<&mut [R]>,
    first: usize,
    globals: &Globals,
) {
    let len = outs.first().map_or(0, |out| out.len());
    let mut regs = vec![[R::ZERO; BLOCK]; map.code.instrs.len()];
    let mut start = 0;
    while start < len {
        let width = BLOCK.min(len - start);
        let load = |input: usize, block: &mut [R; BLOCK]| match ins[input] {
            Operand::F(values) => accesses[input].load(values, first + start, &mut block[..width]),
            ref other => unreachable!("a map over {other:?}"),
        };
        run_block(&map.code, &mut regs, first + start, globals, load);
        for (out, reg) in outs.iter_mut().zip(&map.code.outs) {
            out[start..start + width].copy_from_slice(&regs[*reg as usize][..width]);
        }
        start += width;
    }
}

/// Interprets the code for the block of elements that starts at `first`.
#[inline(always)]
fn run_block<R: Real>(
    code: &Code,
    regs: &mut [[R; BLOCK]],
    first: usize,
    globals: &Globals,
    load: impl Fn(usize, &mut [R; BLOCK]),
) {
    for (index, instr) in code.instrs.iter().enumerate() {
        let (done, rest) = regs.split_at_mut(index);
        let out = &mut rest[0];
        match *instr {
            Instr::Input(input) => load(input as usize, out),
            Instr::Const(bits) => out.fill(R::of(f64::from(f32::from_bits(bits)))),
            Instr::Random(stream) => random(stream, first, globals, out),
            Instr::Unary(f, a) => unary(f, &done[a as usize], out),
            Instr::Binary(f, a, b) => binary(f, &done[a as usize], &done[b as usize], out),
        }
    }
}

#[inline(always)]
fn unary<R: Real>(f: Unary, a: &[R; BLOCK], out: &mut [R; BLOCK]) {
    let each = |out: &mut [R; BLOCK], f: &dyn Fn(R) -> R| {
        for i in 0..BLOCK {
            out[i] = f(a[i]);
        }
    };
    match f {
        Unary::Neg => each(out, &|x| -x),
        Unary::Exp => each(out, &R::exp),
        Unary::Log => each(out, &R::ln),
        Unary::Sqrt => each(out, &R::sqrt),
        Unary::Recip => each(out, &|x| R::ONE / x),
        Unary::Tanh => each(out, &R::tanh),
        Unary::Erf => each(out, &R::erf),
        Unary::Sigmoid => each(out, &|x| R::ONE / (R::ONE + (-x).exp())),
        Unary::Abs => each(out, &R::abs),
    }
}

#[inline(always)]
fn binary<R: Real>(f: Binary, a: &[R; BLOCK], b: &[R; BLOCK], out: &mut [R; BLOCK]) {
    let each = |out: &mut [R; BLOCK], f: &dyn Fn(R, R) -> R| {
        for i in 0..BLOCK {
            out[i] = f(a[i], b[i]);
        }
    };
    match f {
        Binary::Add => each(out, &|x, y| x + y),
        Binary::Sub => each(out, &|x, y| x - y),
        Binary::Mul => each(out, &|x, y| x * y),
        Binary::Div => each(out, &|x, y| x / y),
        Binary::Max => each(out, &R::max),
        Binary::Min => each(out, &R::min),
        Binary::Greater => each(out, &|x, y| if x > y { R::ONE } else { R::ZERO }),
    }
}

fn random<R: Real>(_stream: u32, _first: usize, _globals: &Globals, _out: &mut [R; BLOCK]) {
    unreachable!("random numbers come with ops/philox.rs")
}

/// Applies a map in place to rows of a result that another op has just computed: the epilogue of
/// a matrix product or convolution on the CPU.
pub fn apply_rows<R: Real>(_map: &Map, _shape: &Shape) {
    unreachable!("epilogues come with fusion")
}
