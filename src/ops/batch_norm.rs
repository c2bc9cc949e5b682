//! Batch norm (Ioffe & Szegedy 2015): y = (x − μ)·r·γ + β with r = 1/√(σ² + ε), μ and σ² of each
//! channel over the batch (training) or running ones (evaluation).
//!
//! Gradients in training: dβ = Σ dy, dγ = Σ dy·x̂, dx = γ·r·(dy − dβ/n − x̂·dγ/n).

use std::sync::Arc;

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType, ValueId};
use crate::ops::map::{self, Code, Map, Unary};
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Port, Real, Storage,
};

/// Mean and biased variance of each channel of x `[batch, channels, …]`. The gradient through
/// them is part of [`Normalize`]'s.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchStats;

/// Operands x, μ, σ², γ, β, the last four `[channels, 1, …]`: an elementwise map whose gradient
/// also goes through the statistics where they are the batch's.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalize {
    map: Map,
    eps: f32,
    /// Whether μ and σ² are x's own.
    training: bool,
}

/// Operands x, μ, σ², dy; results Σ dy and Σ dy·x̂ of each channel.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchNormGradStats {
    eps: f32,
}

/// Operands: running mean and variance (in place), the batch's. The running variance takes the
/// unbiased one, as in PyTorch.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdateRunning {
    momentum: f32,
    /// Values per channel.
    count: usize,
}

/// What [`batch_norm`] adds to the graph.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormOut {
    /// The normalised values.
    pub y: ValueId,
    /// New running mean and variance, in training.
    pub new_running: Option<[ValueId; 2]>,
}

/// Adds a batch norm. γ, β and the running statistics are `[channels]`.
///
/// # Errors
/// When they do not fit x.
#[allow(clippy::too_many_arguments, reason = "they are the operands of the formula")]
pub fn batch_norm(
    graph: &mut Graph,
    x: ValueId,
    gamma: ValueId,
    beta: ValueId,
    running_mean: ValueId,
    running_var: ValueId,
    eps: f32,
    momentum: f32,
    training: bool,
) -> Result<BatchNormOut, ShapeError> {
    let shape = graph.shape(x).clone();
    let channels = shape.dims()[1];
    let mut column = vec![1; shape.rank() - 1];
    column[0] = channels;
    let column = Shape::new(column);
    let (mut mean, mut var, mut new_running) = (running_mean, running_var, None);
    if training {
        let stats = graph.apply(Arc::new(BatchStats), &[x])?;
        (mean, var) = (stats[0], stats[1]);
        let count = shape.elements() / channels;
        let op = UpdateRunning { momentum, count };
        let new = graph.apply(Arc::new(op), &[running_mean, running_var, mean, var])?;
        new_running = Some([new[0], new[1]]);
    }
    let mut operands = vec![x];
    for value in [mean, var, gamma, beta] {
        operands.push(graph.reshape(value, column.clone())?);
    }
    let map = Map { code: normalize_code(eps), inputs: 5, shape };
    let y = graph.op(Normalize { map, eps, training }, &operands)?;
    Ok(BatchNormOut { y, new_running })
}

fn normalize_code(eps: f32) -> Code {
    Code::of(|code| {
        let [x, mean, var, gamma, beta] = [0, 1, 2, 3, 4].map(|i| code.input(i));
        let xhat = xhat(code, x, mean, var, eps);
        let scaled = code.mul(xhat, gamma);
        code.add(scaled, beta)
    })
}

/// (x − μ)/√(σ² + ε).
fn xhat(code: &mut Code, x: map::Reg, mean: map::Reg, var: map::Reg, eps: f32) -> map::Reg {
    let centred = code.sub(x, mean);
    let rstd = rstd(code, var, eps);
    code.mul(centred, rstd)
}

fn rstd(code: &mut Code, var: map::Reg, eps: f32) -> map::Reg {
    let shifted = code.offset(var, eps);
    let root = code.unary(Unary::Sqrt, shifted);
    code.unary(Unary::Recip, root)
}

/// `(batch, channels, pixels)` of `[batch, channels, …]`.
fn extents(ty: &TensorType) -> (usize, usize, usize) {
    let d = ty.shape.dims();
    (d[0], d[1], d[2..].iter().product())
}

impl BatchStats {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let x = call.f(0);
        let (batch, channels, pixels) = extents(call.in_types[0]);
        let n = R::of((batch * pixels) as f64);
        let [mean, var] = call.outs else { unreachable!("two results") };
        let over = |c: usize, term: &dyn Fn(R) -> R| -> R {
            let plane = |b: usize| &x[(b * channels + c) * pixels..][..pixels];
            (0..batch).map(|b| plane(b).iter().map(|v| term(*v)).sum::<R>()).sum()
        };
        par_channels(mean, |c| over(c, &|v| v) / n);
        let mean = &**mean;
        par_channels(var, |c| over(c, &|v| (v - mean[c]) * (v - mean[c])) / n);
    }
}

/// Computes one number a channel in parallel.
fn par_channels<R: Real>(out: &mut [R], body: impl Fn(usize) -> R + Send + Sync) {
    use rayon::prelude::*;
    out.par_iter_mut().enumerate().for_each(|(c, out)| *out = crate::ops::cpu::simd(|| body(c)));
}

impl Op for BatchStats {
    fn name(&self) -> &'static str {
        "batch_stats"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let channels = ins[0]
            .shape
            .dims()
            .get(1)
            .ok_or_else(|| format!("expected [batch, channels, …], got {}", ins[0].shape))?;
        Ok(vec![TensorType::f32([*channels]); 2])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops(
            "the gradient through batch statistics is part of the normalisation's",
        )])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        4 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(0) => Storage::Either,
            _ => Storage::Single,
        }
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let (batch, channels, pixels) = extents(call.ins[0]);
        let dims = vec![batch as u32, channels as u32, pixels as u32];
        let binds = vec![Bind::In(0), Bind::Out(0), Bind::Out(1)];
        vec![Launch {
            kernel: Kernel::file("batch_stats", "batch_stats").stored("x", call.ins[0]),
            dims,
            binds,
            grid: crate::ops::launch::fold_groups(channels),
        }]
    }
}

impl Op for Normalize {
    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        self.map.infer(ins)
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let dy = call.d_out();
        let [x, mean, var, gamma, _] = call.ins[..] else { unreachable!("five operands") };
        let column = graph.shape(gamma).clone();
        let channels = column.dims()[0];
        let flat = |graph: &mut Graph, v| graph.reshape(v, [channels]);
        let (mean1, var1) = (flat(graph, mean)?, flat(graph, var)?);
        let sums =
            graph.apply(Arc::new(BatchNormGradStats { eps: self.eps }), &[x, mean1, var1, dy])?;
        let d_beta = graph.reshape(sums[0], column.clone())?;
        let d_gamma = graph.reshape(sums[1], column)?;
        let mut grads = vec![Grad::Unneeded; 5];
        if call.needs[0] {
            let n = (self.map.shape.elements() / channels) as f32;
            let code = self.input_gradient(n);
            let operands = [x, mean, var, gamma, dy, d_beta, d_gamma];
            grads[0] = Grad::Flows(map::apply(graph, code, &operands, self.map.shape.clone())?);
        }
        grads[1] = Grad::Stops("folded into the input's gradient");
        grads[2] = grads[1];
        grads[3] = Grad::Flows(d_gamma);
        grads[4] = Grad::Flows(d_beta);
        Ok(grads)
    }

    fn flops(&self, ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        self.map.flops(ins, outs)
    }

    fn cpu_f32(&self, call: Call<'_, f32>) {
        self.map.cpu_f32(call);
    }

    fn cpu_f64(&self, call: Call<'_, f64>) {
        self.map.cpu_f64(call);
    }

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(0) | Port::Out(0) => Storage::Either,
            _ => Storage::Single,
        }
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        self.map.gpu(call)
    }

    fn as_map(&self) -> Option<&Map> {
        Some(&self.map)
    }
}

impl Normalize {
    /// dx over operands x, μ, σ², γ, dy, dβ, dγ.
    fn input_gradient(&self, n: f32) -> Code {
        Code::of(|code| {
            let [x, mean, var, gamma, dy, d_beta, d_gamma] =
                [0, 1, 2, 3, 4, 5, 6].map(|i| code.input(i));
            let rstd = rstd(code, var, self.eps);
            let slope = code.mul(gamma, rstd);
            if !self.training {
                return code.mul(dy, slope);
            }
            let xhat = xhat(code, x, mean, var, self.eps);
            let along = code.mul(xhat, d_gamma);
            let shared = code.add(d_beta, along);
            let mean_part = code.scale(shared, 1.0 / n);
            let rest = code.sub(dy, mean_part);
            code.mul(rest, slope)
        })
    }
}

impl BatchNormGradStats {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (x, mean, var, dy) = (call.f(0), call.f(1), call.f(2), call.f(3));
        let (batch, channels, pixels) = extents(call.in_types[0]);
        let eps = R::of(f64::from(self.eps));
        let [sums, along] = call.outs else { unreachable!("two results") };
        let plane = |values: &'_ [R], b: usize, c: usize| -> std::ops::Range<usize> {
            let start = (b * channels + c) * pixels;
            start..(start + pixels).min(values.len())
        };
        par_channels(sums, |c| {
            (0..batch).map(|b| crate::ops::cpu::sum(&dy[plane(dy, b, c)])).sum()
        });
        par_channels(along, |c| {
            let r = R::ONE / (var[c] + eps).sqrt();
            let image = |b: usize| {
                let at = plane(x, b, c);
                let (x, dy) = (&x[at.clone()], &dy[at]);
                crate::ops::cpu::fold_lanes(pixels, |i| dy[i] * ((x[i] - mean[c]) * r))
            };
            (0..batch).map(image).sum()
        });
    }
}

impl Op for BatchNormGradStats {
    fn name(&self) -> &'static str {
        "batch_norm_grad_stats"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![ins[1].clone(); 2])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("second derivatives are not built"); 4])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        5 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(0 | 3) => Storage::Either,
            _ => Storage::Single,
        }
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let (batch, channels, pixels) = extents(call.ins[0]);
        let dims = vec![batch as u32, channels as u32, pixels as u32, self.eps.to_bits()];
        let binds =
            vec![Bind::In(0), Bind::In(1), Bind::In(2), Bind::In(3), Bind::Out(0), Bind::Out(1)];
        let grid = crate::ops::launch::fold_groups(channels);
        vec![Launch {
            kernel: Kernel::file("batch_norm_grad_stats", "grad_stats")
                .stored("x", call.ins[0])
                .stored("dy", call.ins[3]),
            dims,
            binds,
            grid,
        }]
    }
}

impl UpdateRunning {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (mean, var) = (call.f(2), call.f(3));
        let momentum = R::of(f64::from(self.momentum));
        let unbiased = R::of(self.count as f64 / (self.count as f64 - 1.0));
        let [running_mean, running_var] = call.outs else { unreachable!("two results") };
        for (running, new) in running_mean.iter_mut().zip(mean) {
            *running = *running * (R::ONE - momentum) + *new * momentum;
        }
        for (running, new) in running_var.iter_mut().zip(var) {
            *running = *running * (R::ONE - momentum) + *new * unbiased * momentum;
        }
    }
}

impl Op for UpdateRunning {
    fn name(&self) -> &'static str {
        "update_running"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![ins[0].clone(), ins[1].clone()])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("running statistics are not trained"); 4])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        7 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let n = call.ins[0].shape.elements();
        let unbiased = (self.count as f64 / (self.count as f64 - 1.0)) as f32;
        let dims = vec![n as u32, self.momentum.to_bits(), unbiased.to_bits()];
        let binds = vec![Bind::Out(0), Bind::Out(1), Bind::In(2), Bind::In(3)];
        vec![Launch::flat(Kernel::file("update_running", "update_running"), dims, binds, n, 64)]
    }

    fn in_place(&self) -> &[(usize, usize)] {
        &[(0, 0), (1, 1)]
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: &'static str, dims: &[usize], training: bool| {
        let channels = dims[1];
        let f = |shape: Shape, domain| (TensorType::f32(shape), domain);
        let one = || Shape::new([channels]);
        let ins = vec![
            f(Shape::new(dims), Domain::Normal),
            f(one(), Domain::Normal),
            f(one(), Domain::Normal),
            f(one(), Domain::Normal),
            f(one(), Domain::Uniform(0.5, 2.0)),
        ];
        let mut case = Case::graph(name, ins, move |graph, ins| {
            Ok(vec![
                batch_norm(graph, ins[0], ins[1], ins[2], ins[3], ins[4], 1e-3, 0.1, training)?.y,
            ])
        });
        case.not_differentiated = vec![3, 4];
        case
    };
    let running = |channels: usize| {
        let f = |domain| (TensorType::f32([channels]), domain);
        let op = UpdateRunning { momentum: 0.1, count: 7 };
        Case::update(
            "running",
            op,
            vec![
                f(Domain::Normal),
                f(Domain::Uniform(0.5, 2.0)),
                f(Domain::Normal),
                f(Domain::Uniform(0.5, 2.0)),
            ],
        )
    };
    vec![
        case("rows3_channels1", &[3, 1], true),
        case("rows5_channels7", &[5, 7], true),
        case("images", &[2, 3, 5, 4], true),
        case("images_wide", &[3, 5, 17, 19], true),
        case("eval_rows", &[4, 3], false),
        case("eval_images", &[2, 3, 4, 5], false),
        running(67),
    ]
}
