//! Stochastic gradient descent with momentum, as PyTorch defines it: d = g·scale + λ·p;
//! b ← d in the first step, else μ·b + d; p ← p − lr·b, or p − lr·(d + μ·b) with Nesterov.

use std::sync::Arc;

use super::update::UpdateRule;
use crate::cpu_by_eval;
use crate::graph::{Graph, ShapeError, TensorType};
use crate::ops::cpu::par_rows;
use crate::ops::{Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Real};

/// Operands: parameters and, with momentum, the buffer (both in place), gradients, control.
#[derive(Clone, Debug, PartialEq)]
pub struct Sgd {
    /// μ; 0 keeps no buffer.
    pub momentum: f32,
    /// Nesterov's form.
    pub nesterov: bool,
    /// λ.
    pub weight_decay: f32,
}

/// Elements that one piece of CPU work updates.
pub(super) const PIECE: usize = 1 << 14;

impl UpdateRule for Sgd {
    fn moment_names(&self) -> &[&'static str] {
        if self.momentum == 0.0 { &[] } else { &["momentum_buffer"] }
    }

    fn hyper(&self, lr: f64, _step: u64) -> [f32; 8] {
        [lr as f32, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    }

    fn op(&self, decay: bool) -> Arc<dyn Op> {
        Arc::new(Sgd { weight_decay: if decay { self.weight_decay } else { 0.0 }, ..self.clone() })
    }

    fn decays(&self) -> bool {
        self.weight_decay != 0.0
    }
}

impl Sgd {
    fn has_buffer(&self) -> bool {
        self.momentum != 0.0
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let at = 1 + usize::from(self.has_buffer());
        let (g, control) = (call.f(at), call.f(at + 1));
        if control[2] > R::ZERO {
            return;
        }
        let of = |x: f32| R::of(f64::from(x));
        let (scale, lr, decay, momentum) =
            (control[0], of(call.globals.hyper[0]), of(self.weight_decay), of(self.momentum));
        let first_step = call.globals.step == 1;
        if !self.has_buffer() {
            par_rows(call.outs[0], 1, PIECE, |first, p| {
                let g = &g[first..first + p.len()];
                for (p, g) in p.iter_mut().zip(g) {
                    *p -= lr * (*g * scale + decay * *p);
                }
            });
            return;
        }
        let [p, buffer] = call.outs else { unreachable!("parameters and a buffer") };
        let p_read = &**p;
        par_rows(buffer, 1, PIECE, |first, b| {
            let (g, p) = (&g[first..first + b.len()], &p_read[first..first + b.len()]);
            for ((b, g), p) in b.iter_mut().zip(g).zip(p) {
                let d = *g * scale + decay * *p;
                *b = if first_step { d } else { momentum * *b + d };
            }
        });
        let buffer = &**buffer;
        let nesterov = self.nesterov;
        par_rows(p, 1, PIECE, |first, p| {
            let (g, b) = (&g[first..first + p.len()], &buffer[first..first + p.len()]);
            for ((p, g), b) in p.iter_mut().zip(g).zip(b) {
                let d = if nesterov { (*g * scale + decay * *p) + momentum * *b } else { *b };
                *p -= lr * d;
            }
        });
    }
}

impl Op for Sgd {
    fn name(&self) -> &'static str {
        "sgd"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let same = 2 + usize::from(self.has_buffer());
        if ins.len() != same + 1 || ins[..same].iter().any(|ty| *ty != ins[0]) {
            return Err("parameters, moments and gradients must have one size".into());
        }
        Ok(vec![ins[0].clone(); same - 1])
    }

    fn grad(&self, _graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("an update is not differentiated"); call.ins.len()])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        6 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let n = call.ins[0].shape.elements();
        let dims = vec![
            n as u32,
            self.weight_decay.to_bits(),
            self.momentum.to_bits(),
            u32::from(self.nesterov),
        ];
        if self.has_buffer() {
            let binds = vec![Bind::Out(0), Bind::Out(1), Bind::In(2), Bind::In(3)];
            return vec![Launch::flat(
                Kernel::file("sgd_momentum", "sgd_momentum"),
                dims,
                binds,
                n,
                256,
            )];
        }
        let binds = vec![Bind::Out(0), Bind::In(1), Bind::In(2)];
        vec![Launch::flat(Kernel::file("sgd", "sgd"), dims, binds, n, 256)]
    }

    fn in_place(&self) -> &[(usize, usize)] {
        if self.has_buffer() { &[(0, 0), (1, 1)] } else { &[(0, 0)] }
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let f = |n: usize| (TensorType::f32([n]), Domain::Normal);
    let control = (TensorType::f32([6]), Domain::Uniform(-0.9, -0.1));
    let plain = Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.1 };
    let heavy = Sgd { momentum: 0.9, ..plain.clone() };
    let nesterov = Sgd { nesterov: true, ..heavy.clone() };
    vec![
        Case::update("plain", plain, vec![f(259), f(259), control.clone()]),
        Case::update("momentum", heavy, vec![f(259), f(259), f(259), control.clone()]),
        Case::update("nesterov", nesterov, vec![f(300), f(300), f(300), control]),
    ]
}
