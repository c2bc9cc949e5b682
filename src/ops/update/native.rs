//! Elementwise updates on the CPU: the rule's formula, compiled.

use super::scalar::Plain;
use super::{Elementwise, Scalars, Settings, Update};
use crate::cpu_by_eval;
use crate::graph::{Graph, ShapeError, TensorType};
use crate::ops::cpu::{SERIAL_BELOW, simd};
use crate::ops::{Call, GpuCall, Grad, GradCall, Launch, Op, Real};

/// Elements handed to one thread at once.
const PIECE: usize = 1 << 14;

/// An update by an elementwise rule.
#[derive(Debug)]
pub(super) struct Native<T> {
    pub(super) rule: T,
    pub(super) settings: Settings,
    /// The same as code.
    pub(super) update: Update,
}

impl<T: Elementwise> Native<T> {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        // Only code draws random numbers.
        if self.settings.noise.is_some() {
            return self.update.eval(call);
        }
        let moments = self.update.in_place - 1;
        let (g, scale) = (call.f(1 + moments), call.f(2 + moments)[0]);
        if scale == R::ZERO {
            return;
        }
        let hyper = call.globals.hyper.map(|x| Plain(R::of(f64::from(x))));
        let mut pieces: Vec<(&[R], Vec<&mut [R]>)> =
            g.chunks(PIECE).map(|g| (g, Vec::new())).collect();
        for out in call.outs.iter_mut() {
            for ((_, piece), chunk) in pieces.iter_mut().zip(out.chunks_mut(PIECE)) {
                piece.push(chunk);
            }
        }
        let run =
            |(g, outs): (&[R], Vec<&mut [R]>)| simd(|| self.piece(Plain(scale), hyper, g, outs));
        if g.len() < SERIAL_BELOW {
            pieces.into_iter().for_each(run);
        } else {
            use rayon::prelude::*;
            pieces.into_par_iter().for_each(run);
        }
    }

    /// One loop for each number of moments, so that it becomes SIMD.
    #[inline(always)]
    fn piece<R: Real>(
        &self,
        scale: Plain<R>,
        hyper: [Plain<R>; 8],
        g: &[R],
        mut outs: Vec<&mut [R]>,
    ) {
        // Copies that nothing else refers to: they stay in registers.
        let (rule, settings) = (self.rule.clone(), self.settings.clone());
        let s = &Scalars::new(scale, hyper, &settings);
        match &mut outs[..] {
            [p] => {
                for (p, g) in p.iter_mut().zip(g) {
                    [*p] = element(&rule, s, *g, [*p]);
                }
            }
            [p, a] => {
                for ((p, a), g) in p.iter_mut().zip(a.iter_mut()).zip(g) {
                    [*p, *a] = element(&rule, s, *g, [*p, *a]);
                }
            }
            [p, a, b] => {
                for (((p, a), b), g) in p.iter_mut().zip(a.iter_mut()).zip(b.iter_mut()).zip(g) {
                    [*p, *a, *b] = element(&rule, s, *g, [*p, *a, *b]);
                }
            }
            [p, a, b, c] => {
                let moments = a.iter_mut().zip(b.iter_mut()).zip(c.iter_mut());
                for ((p, ((a, b), c)), g) in p.iter_mut().zip(moments).zip(g) {
                    [*p, *a, *b, *c] = element(&rule, s, *g, [*p, *a, *b, *c]);
                }
            }
            _ => unreachable!("three moments at most"),
        }
    }
}

/// One element of the parameters and its moments.
#[inline(always)]
fn element<T: Elementwise, R: Real, const N: usize>(
    rule: &T,
    s: &Scalars<'_, Plain<R>>,
    g: R,
    old: [R; N],
) -> [R; N] {
    let mut new = old.map(Plain);
    let [p, moments @ ..] = &mut new[..] else { unreachable!("a parameter") };
    rule.formula(s, p, s.mean(Plain(g)), moments);
    new.map(|x| x.0)
}

impl<T: Elementwise> Op for Native<T> {
    fn name(&self) -> &'static str {
        self.update.name()
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        self.update.infer(ins)
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        self.update.grad(graph, call)
    }

    fn flops(&self, ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        self.update.flops(ins, outs)
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        self.update.gpu(call)
    }

    fn in_place(&self) -> &[(usize, usize)] {
        self.update.in_place()
    }
}
