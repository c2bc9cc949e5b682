//! Layer norm over the last axis (Ba et al. 2016): y = x̂·γ + β with x̂ = (x − μ)·r and
//! r = 1/√(σ² + ε), σ² the biased variance of the row. RMS norm (Zhang & Sennrich 2019) is the
//! same with μ = 0 and σ² the mean square.
//!
//! Gradients: dx = r·(g − mean g − x̂·mean(g·x̂)) with g = dy·γ, without mean g in RMS norm;
//! dγ = Σ dy·x̂; dβ = Σ dy.

use std::sync::Arc;

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType, ValueId};
use crate::ops::cpu::{self, fold_lanes, par_rows};
use crate::ops::launch::fold_groups;
use crate::ops::softmax::rows_per_piece;
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Port, Real, ScratchCall,
    Storage,
};

/// Operands x `[…, features]`, γ and β, both `[features]`, or both constants of one element;
/// results y, μ `[rows]`, r `[rows]`.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorm {
    /// ε.
    pub eps: f32,
    /// Whether the mean is taken away; RMS norm where not.
    pub centred: bool,
}

/// Operands x, γ, μ, r, dy; result dx.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNormGradInput {
    /// As in [`LayerNorm`].
    pub centred: bool,
}

/// Operands x, μ, r, dy; results dγ and dβ.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNormGradParams;

/// Rows that one workgroup, or one piece of CPU work, sums for dγ and dβ.
const CHUNK: usize = 64;

/// What is applied to the normalised rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Affine {
    /// γ `[features]`; 1 where absent.
    pub gamma: Option<ValueId>,
    /// β `[features]`; 0 where absent.
    pub beta: Option<ValueId>,
}

/// Adds a layer norm; gives y.
///
/// # Errors
/// When γ or β do not have the last axis's extent.
pub fn layer_norm(
    graph: &mut Graph,
    x: ValueId,
    affine: Affine,
    op: LayerNorm,
) -> Result<ValueId, ShapeError> {
    let plain = affine == Affine::default();
    let extent = if plain { 1 } else { graph.shape(x).last() };
    let gamma = affine.gamma.unwrap_or_else(|| graph.constant(1.0, [extent]));
    let beta = affine.beta.unwrap_or_else(|| graph.constant(0.0, [extent]));
    Ok(graph.apply(Arc::new(op), &[x, gamma, beta])?[0])
}

/// Elements between those of γ for neighbouring columns: 0 where one element serves all.
fn step(gamma: &TensorType, cols: usize) -> usize {
    usize::from(gamma.shape.elements() == cols)
}

fn rows_cols(ty: &TensorType) -> (usize, usize) {
    let cols = ty.shape.last();
    (ty.shape.elements() / cols, cols)
}

impl LayerNorm {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (x, gamma, beta) = (call.f(0), call.f(1), call.f(2));
        let (rows, cols) = rows_cols(call.in_types[0]);
        let eps = R::of(f64::from(self.eps));
        let step = step(call.in_types[1], cols);
        let [y, mean, rstd] = call.outs else { unreachable!("three results") };
        let n = R::of(cols as f64);
        par_rows(mean, 1, rows_per_piece(cols), |first, out| {
            for (row, out) in out.iter_mut().enumerate() {
                let at = (first + row) * cols;
                *out = if self.centred { cpu::sum(&x[at..at + cols]) / n } else { R::ZERO };
            }
        });
        let mean = &**mean;
        par_rows(rstd, 1, rows_per_piece(cols), |first, out| {
            for (row, out) in out.iter_mut().enumerate() {
                let x = &x[(first + row) * cols..(first + row + 1) * cols];
                let mu = mean[first + row];
                let square = fold_lanes(cols, |i| (x[i] - mu) * (x[i] - mu));
                *out = R::ONE / (square / n + eps).sqrt();
            }
        });
        let rstd = &**rstd;
        debug_assert_eq!(rows, mean.len());
        par_rows(y, cols, rows_per_piece(cols), |first, out| {
            for (row, out) in out.chunks_exact_mut(cols).enumerate() {
                let row = first + row;
                let x = &x[row * cols..(row + 1) * cols];
                let (mu, r) = (mean[row], rstd[row]);
                if step == 0 {
                    out.iter_mut()
                        .zip(x)
                        .for_each(|(o, v)| *o = (*v - mu) * r * gamma[0] + beta[0]);
                    continue;
                }
                for (((o, v), g), b) in out.iter_mut().zip(x).zip(gamma).zip(beta) {
                    *o = (*v - mu) * r * *g + *b;
                }
            }
        });
    }
}

impl Op for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let (rows, cols) = rows_cols(ins[0]);
        let fits = |ty: &TensorType| ty.shape.dims() == [cols] || ty.shape.dims() == [1];
        if !fits(ins[1]) || ins[1] != ins[2] {
            return Err(format!(
                "weight {} and bias {} must be [{cols}]",
                ins[1].shape, ins[2].shape
            ));
        }
        Ok(vec![ins[0].clone(), TensorType::f32([rows]), TensorType::f32([rows])])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let Some(dy) = call.d_outs[0] else { return Ok(vec![Grad::Unneeded; 3]) };
        let (x, gamma) = (call.ins[0], call.ins[1]);
        let (mean, rstd) = (call.outs[1], call.outs[2]);
        let mut grads = vec![Grad::Unneeded; 3];
        if call.needs[0] {
            grads[0] =
                Grad::Flows(graph.op(
                    LayerNormGradInput { centred: self.centred },
                    &[x, gamma, mean, rstd, dy],
                )?);
        }
        if call.needs[1] || call.needs[2] {
            let outs = graph.apply(Arc::new(LayerNormGradParams), &[x, mean, rstd, dy])?;
            grads[1] = Grad::Flows(outs[0]);
            grads[2] = Grad::Flows(outs[1]);
        }
        Ok(grads)
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        8 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(0) | Port::Out(0) => Storage::Either,
            _ => Storage::Single,
        }
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let (rows, cols) = rows_cols(call.ins[0]);
        let binds =
            vec![Bind::In(0), Bind::In(1), Bind::In(2), Bind::Out(0), Bind::Out(1), Bind::Out(2)];
        let dims = vec![rows as u32, cols as u32, self.eps.to_bits()];
        let kernel = Kernel::file("layer_norm", "layer_norm")
            .stored("x", call.ins[0])
            .stored("y", call.outs[0])
            .with("CENTRED", u32::from(self.centred))
            .with("STEP", step(call.ins[1], cols) as u32);
        vec![Launch::rows(kernel, dims, binds, rows, cols)]
    }
}

impl LayerNormGradInput {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (x, gamma, mean, rstd, dy) = (call.f(0), call.f(1), call.f(2), call.f(3), call.f(4));
        let (_, cols) = rows_cols(call.in_types[0]);
        let n = R::of(cols as f64);
        let step = step(call.in_types[1], cols);
        par_rows(call.outs[0], cols, rows_per_piece(cols), |first, out| {
            for (row, out) in out.chunks_exact_mut(cols).enumerate() {
                let row = first + row;
                let (x, dy) = (&x[row * cols..(row + 1) * cols], &dy[row * cols..(row + 1) * cols]);
                let (mu, r) = (mean[row], rstd[row]);
                let along = |i: usize| dy[i] * gamma[i * step];
                let g = if self.centred { fold_lanes(cols, along) / n } else { R::ZERO };
                let gx = fold_lanes(cols, |i| along(i) * ((x[i] - mu) * r)) / n;
                for i in 0..cols {
                    out[i] = r * (along(i) - g - (x[i] - mu) * r * gx);
                }
            }
        });
    }
}

impl Op for LayerNormGradInput {
    fn name(&self) -> &'static str {
        "layer_norm_grad_input"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![ins[0].clone()])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("second derivatives are not built"); 5])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        12 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(0 | 4) | Port::Out(0) => Storage::Either,
            _ => Storage::Single,
        }
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let (rows, cols) = rows_cols(call.ins[0]);
        let binds =
            vec![Bind::In(0), Bind::In(1), Bind::In(2), Bind::In(3), Bind::In(4), Bind::Out(0)];
        let dims = vec![rows as u32, cols as u32];
        let kernel = Kernel::file("layer_norm_grad_input", "grad_input")
            .stored("x", call.ins[0])
            .stored("dy", call.ins[4])
            .stored("dx", call.outs[0])
            .with("CENTRED", u32::from(self.centred))
            .with("STEP", step(call.ins[1], cols) as u32);
        vec![Launch::rows(kernel, dims, binds, rows, cols)]
    }
}

impl LayerNormGradParams {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (x, mean, rstd, dy) = (call.f(0), call.f(1), call.f(2), call.f(3));
        let (rows, cols) = rows_cols(call.in_types[0]);
        let parts = rows.div_ceil(CHUNK);
        par_rows(&mut call.scratch[..parts * 2 * cols], 2 * cols, 1, |part, out| {
            out.fill(R::ZERO);
            let (gamma, beta) = out.split_at_mut(cols);
            for row in part * CHUNK..((part + 1) * CHUNK).min(rows) {
                let (x, dy) = (&x[row * cols..(row + 1) * cols], &dy[row * cols..(row + 1) * cols]);
                for (((g, b), x), dy) in gamma.iter_mut().zip(beta.iter_mut()).zip(x).zip(dy) {
                    *g += *dy * ((*x - mean[row]) * rstd[row]);
                    *b += *dy;
                }
            }
        });
        for (index, out) in call.outs.iter_mut().enumerate() {
            out.fill(R::ZERO);
            for part in call.scratch.chunks_exact(2 * cols).take(parts) {
                let part = &part[index * cols..(index + 1) * cols];
                out.iter_mut().zip(part).for_each(|(o, p)| *o += *p);
            }
        }
    }
}

impl Op for LayerNormGradParams {
    fn name(&self) -> &'static str {
        "layer_norm_grad_params"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![TensorType::f32([ins[0].shape.last()]); 2])
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
        let (rows, cols) = rows_cols(call.ins[0]);
        let parts = rows.div_ceil(CHUNK);
        let dims = vec![rows as u32, cols as u32, CHUNK as u32, parts as u32];
        let partial = Launch {
            kernel: Kernel::file("layer_norm_grad_params", "partial")
                .stored("x", call.ins[0])
                .stored("dy", call.ins[3]),
            dims: dims.clone(),
            binds: vec![Bind::In(0), Bind::In(1), Bind::In(2), Bind::In(3), Bind::Scratch],
            grid: fold_groups(parts * cols.div_ceil(64)),
        };
        let finish = Launch::flat(
            Kernel::file("layer_norm_grad_finish", "finish"),
            dims,
            vec![Bind::Scratch, Bind::Out(0), Bind::Out(1)],
            cols,
            64,
        );
        vec![partial, finish]
    }

    fn scratch(&self, call: &ScratchCall<'_>) -> usize {
        let (rows, cols) = rows_cols(call.ins[0]);
        rows.div_ceil(CHUNK) * 2 * cols
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let shapes: [(&str, &[usize]); 5] = [
        ("rows1_cols2", &[1, 2]),
        ("rows3_cols7", &[3, 7]),
        ("rows5_cols257", &[5, 257]),
        ("rows2x3_cols16", &[2, 3, 16]),
        ("rows131_cols65", &[131, 65]),
    ];
    let mut cases = Vec::new();
    for (name, dims) in shapes {
        let cols = dims[dims.len() - 1];
        let f = |shape: Shape| (TensorType::f32(shape), Domain::Normal);
        for (prefix, centred) in [("", true), ("rms_", false)] {
            let op = LayerNorm { eps: 1e-3, centred };
            let (whole, plain) = (op.clone(), op);
            let ins = vec![f(Shape::new(dims)), f([cols].into()), f([cols].into())];
            cases.push(Case::graph(format!("{prefix}{name}"), ins.clone(), move |graph, ins| {
                let affine = Affine { gamma: Some(ins[1]), beta: Some(ins[2]) };
                Ok(vec![layer_norm(graph, ins[0], affine, whole.clone())?])
            }));
            let name = format!("{prefix}plain_{name}");
            cases.push(Case::graph(name, ins[..1].to_vec(), move |graph, ins| {
                Ok(vec![layer_norm(graph, ins[0], Affine::default(), plain.clone())?])
            }));
        }
    }
    cases
}
