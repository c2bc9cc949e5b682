//! Maps on the CPU: the code is interpreted one block of elements at a time, each instruction a
//! loop over the block that the compiler turns into SIMD.

use super::code::{Binary, Code, Instr, Unary};
use super::{Map, wgsl::Access};
use crate::device::Globals;
use crate::ops::cpu::{SERIAL_BELOW, simd};
use crate::ops::{Call, Operand, Real, philox};

/// Elements interpreted at once: a block's registers stay in the first-level cache.
pub const BLOCK: usize = 256;
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

/// Interprets the code for the block of elements that starts at `first`: `load` fills an input's
/// block.
#[inline(always)]
pub fn run_block<R: Real>(
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
fn each<R: Real>(a: &[R; BLOCK], out: &mut [R; BLOCK], f: impl Fn(R) -> R) {
    for i in 0..BLOCK {
        out[i] = f(a[i]);
    }
}

#[inline(always)]
fn unary<R: Real>(f: Unary, a: &[R; BLOCK], out: &mut [R; BLOCK]) {
    match f {
        Unary::Neg => each(a, out, |x| -x),
        Unary::Exp => each(a, out, |x| x.exp()),
        Unary::Expm1 => each(a, out, |x| x.exp_m1()),
        Unary::Log => each(a, out, |x| x.ln()),
        Unary::Log1p => each(a, out, |x| x.ln_1p()),
        Unary::Sqrt => each(a, out, |x| x.sqrt()),
        Unary::Recip => each(a, out, |x| R::ONE / x),
        Unary::Tanh => each(a, out, |x| x.tanh()),
        Unary::Erf => each(a, out, |x| x.erf()),
        Unary::Sigmoid => each(a, out, |x| R::ONE / (R::ONE + (-x).exp())),
        Unary::Abs => each(a, out, |x| x.abs()),
    }
}

#[inline(always)]
fn each_pair<R: Real>(a: &[R; BLOCK], b: &[R; BLOCK], out: &mut [R; BLOCK], f: impl Fn(R, R) -> R) {
    for i in 0..BLOCK {
        out[i] = f(a[i], b[i]);
    }
}

#[inline(always)]
fn binary<R: Real>(f: Binary, a: &[R; BLOCK], b: &[R; BLOCK], out: &mut [R; BLOCK]) {
    match f {
        Binary::Add => each_pair(a, b, out, |x, y| x + y),
        Binary::Sub => each_pair(a, b, out, |x, y| x - y),
        Binary::Mul => each_pair(a, b, out, |x, y| x * y),
        Binary::Div => each_pair(a, b, out, |x, y| x / y),
        Binary::Max => each_pair(a, b, out, |x, y| x.max(y)),
        Binary::Min => each_pair(a, b, out, |x, y| x.min(y)),
        Binary::Greater => each_pair(a, b, out, |x, y| if x > y { R::ONE } else { R::ZERO }),
    }
}

/// The uniform numbers of the block's elements; blocks start at multiples of four.
#[inline(always)]
fn random<R: Real>(stream: u32, first: usize, globals: &Globals, out: &mut [R; BLOCK]) {
    for (quad, four) in out.chunks_exact_mut(4).enumerate() {
        let draws = philox::uniforms(globals, stream, (first / 4 + quad) as u32);
        for (value, draw) in four.iter_mut().zip(draws) {
            *value = R::of(f64::from(draw));
        }
    }
}
