//! Pooling over windows of images and its gradients. Gradients gather: each input pixel looks at
//! the windows that hold it, so no element is written twice.

use std::sync::Arc;

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType};
use crate::ops::cpu::par_rows;
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Port, Real, Storage,
};

/// The largest element of each window of x `[batch, channels, height, width]`; padding never wins.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxPool2d {
    /// Rows and columns of the window.
    pub kernel: [usize; 2],
    /// Step between windows.
    pub stride: [usize; 2],
    /// Rows and columns of padding on each side, at most half a window.
    pub padding: [usize; 2],
}

/// The mean of each window of x `[batch, channels, height, width]`.
#[derive(Clone, Debug, PartialEq)]
pub struct AvgPool2d {
    /// Rows and columns of the window.
    pub kernel: [usize; 2],
    /// Step between windows.
    pub stride: [usize; 2],
    /// Rows and columns of zeros on each side, at most half a window.
    pub padding: [usize; 2],
    /// Whether the divisor counts padding.
    pub count_include_pad: bool,
}

/// Operands x and the cotangent: it goes to the first largest element of each window.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxPool2dGrad(MaxPool2d);

/// Operand: the cotangent, spread over its window in an image of the given size.
#[derive(Clone, Debug, PartialEq)]
pub struct AvgPool2dGrad(AvgPool2d, [usize; 2]);

/// One image's geometry.
#[derive(Clone, Copy)]
struct Plane {
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    input: [usize; 2],
    output: [usize; 2],
}

impl Plane {
    /// Input rows (axis 0) or columns (axis 1) of window `o`.
    fn window(&self, axis: usize, o: usize) -> std::ops::Range<usize> {
        let start = o * self.stride[axis];
        let first = start.saturating_sub(self.padding[axis]);
        let last =
            (start + self.kernel[axis]).saturating_sub(self.padding[axis]).min(self.input[axis]);
        first..last
    }

    /// Windows that hold input row or column `i`.
    fn holders(&self, axis: usize, i: usize) -> std::ops::Range<usize> {
        let padded = i + self.padding[axis];
        let first = (padded + 1).saturating_sub(self.kernel[axis]).div_ceil(self.stride[axis]);
        first..(padded / self.stride[axis] + 1).min(self.output[axis])
    }

    /// Index of the first largest element of window `(oy, ox)`.
    fn argmax<R: Real>(&self, x: &[R], oy: usize, ox: usize) -> usize {
        let mut best = None;
        for y in self.window(0, oy) {
            for at in self.window(1, ox).map(|c| y * self.input[1] + c) {
                // A NaN is the largest, as in PyTorch.
                let is_nan = |at: usize| x[at].to_f64().is_nan();
                if best.is_none_or(|b| x[at] > x[b] || (is_nan(at) && !is_nan(b))) {
                    best = Some(at);
                }
            }
        }
        best.unwrap_or(0)
    }

    fn dims(&self, planes: usize, count_include_pad: bool) -> Vec<u32> {
        let words = [
            planes,
            self.input[0],
            self.input[1],
            self.output[0],
            self.output[1],
            self.kernel[0],
            self.kernel[1],
            self.stride[0],
            self.stride[1],
            self.padding[0],
            self.padding[1],
            usize::from(count_include_pad),
        ];
        words.iter().map(|w| *w as u32).collect()
    }
}

fn plane(
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    x: &Shape,
    y: &Shape,
) -> Plane {
    let size = |s: &Shape| [s.dims()[2], s.dims()[3]];
    Plane { kernel, stride, padding, input: size(x), output: size(y) }
}

fn infer(
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    x: &TensorType,
) -> Result<Vec<TensorType>, String> {
    let d = x.shape.dims();
    if d.len() != 4 {
        return Err(format!("expected [batch, channels, height, width], got {}", x.shape));
    }
    let axis = |a: usize| {
        (d[2 + a] + 2 * padding[a]).checked_sub(kernel[a]).map(|rest| rest / stride[a] + 1)
    };
    match (axis(0), axis(1)) {
        (Some(rows), Some(cols)) => Ok(vec![TensorType::f32([d[0], d[1], rows, cols])]),
        _ => Err(format!(
            "a window of {}x{} does not fit the padded input of {}x{}",
            kernel[0],
            kernel[1],
            d[2] + 2 * padding[0],
            d[3] + 2 * padding[1]
        )),
    }
}

/// Planes of a `[batch, channels, height, width]` tensor.
fn planes(ty: &TensorType) -> usize {
    ty.shape.dims()[0] * ty.shape.dims()[1]
}

fn flat(kernel: Kernel, dims: Vec<u32>, binds: Vec<Bind>, out: &TensorType) -> Vec<Launch> {
    let kernel = kernel.stored("out", out);
    vec![Launch::flat(kernel, dims, binds, out.shape.elements(), 256)]
}

/// Planes that one piece of CPU work takes.
const PLANES: usize = 4;

/// Runs `body(plane index, input plane, output plane)` for every plane.
fn each_plane<R: Real>(
    input: &[R],
    in_size: usize,
    out: &mut [R],
    out_size: usize,
    body: impl Fn(usize, &[R], &mut [R]) + Send + Sync,
) {
    par_rows(out, out_size, PLANES, |first, out| {
        for (index, out) in out.chunks_exact_mut(out_size).enumerate() {
            let plane = first + index;
            body(plane, &input[plane * in_size..(plane + 1) * in_size], out);
        }
    });
}

impl MaxPool2d {
    fn plane(&self, x: &TensorType, y: &TensorType) -> Plane {
        plane(self.kernel, self.stride, self.padding, &x.shape, &y.shape)
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let p = self.plane(call.in_types[0], call.out_types[0]);
        let (ins, outs) = (p.input[0] * p.input[1], p.output[0] * p.output[1]);
        each_plane(call.f(0), ins, call.outs[0], outs, |_, x, y| {
            for (at, out) in y.iter_mut().enumerate() {
                *out = x[p.argmax(x, at / p.output[1], at % p.output[1])];
            }
        });
    }
}

impl Op for MaxPool2d {
    fn name(&self) -> &'static str {
        "max_pool2d"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        infer(self.kernel, self.stride, self.padding, ins[0])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let op = MaxPool2dGrad(self.clone());
        Ok(vec![Grad::Flows(graph.op(op, &[call.ins[0], call.d_out()])?)])
    }

    fn flops(&self, _ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        (outs[0].shape.elements() * self.kernel[0] * self.kernel[1]) as u64
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let dims = self.plane(call.ins[0], call.outs[0]).dims(planes(call.ins[0]), false);
        let kernel = Kernel::file("max_pool2d", "max_pool").stored("x", call.ins[0]);
        flat(kernel, dims, vec![Bind::In(0), Bind::Out(0)], call.outs[0])
    }
}

impl MaxPool2dGrad {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let p = self.0.plane(call.in_types[0], call.in_types[1]);
        let (ins, outs) = (p.input[0] * p.input[1], p.output[0] * p.output[1]);
        let dy = call.f(1);
        each_plane(call.f(0), ins, call.outs[0], ins, |plane, x, dx| {
            dx.fill(R::ZERO);
            for at in 0..outs {
                dx[p.argmax(x, at / p.output[1], at % p.output[1])] += dy[plane * outs + at];
            }
        });
    }
}

impl Op for MaxPool2dGrad {
    fn name(&self) -> &'static str {
        "max_pool2d_grad"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![ins[0].clone()])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("second derivatives are not built"); 2])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        (ins[1].shape.elements() * self.0.kernel[0] * self.0.kernel[1]) as u64
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let dims = self.0.plane(call.ins[0], call.ins[1]).dims(planes(call.ins[0]), false);
        let kernel = Kernel::file("max_pool2d", "max_pool_grad")
            .stored("x", call.ins[0])
            .stored("dy", call.ins[1]);
        flat(kernel, dims, vec![Bind::In(0), Bind::Out(0), Bind::In(1)], call.outs[0])
    }
}

impl AvgPool2d {
    fn plane(&self, x: &Shape, y: &Shape) -> Plane {
        plane(self.kernel, self.stride, self.padding, x, y)
    }

    /// What the window `(oy, ox)` is divided by.
    fn divisor(&self, p: &Plane, oy: usize, ox: usize) -> usize {
        if self.count_include_pad {
            self.kernel[0] * self.kernel[1]
        } else {
            p.window(0, oy).len() * p.window(1, ox).len()
        }
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let p = self.plane(&call.in_types[0].shape, &call.out_types[0].shape);
        let (ins, outs) = (p.input[0] * p.input[1], p.output[0] * p.output[1]);
        each_plane(call.f(0), ins, call.outs[0], outs, |_, x, y| {
            for (at, out) in y.iter_mut().enumerate() {
                let (oy, ox) = (at / p.output[1], at % p.output[1]);
                let mut total = R::ZERO;
                for row in p.window(0, oy) {
                    for col in p.window(1, ox) {
                        total += x[row * p.input[1] + col];
                    }
                }
                *out = total / R::of(self.divisor(&p, oy, ox) as f64);
            }
        });
    }
}

impl Op for AvgPool2d {
    fn name(&self) -> &'static str {
        "avg_pool2d"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        infer(self.kernel, self.stride, self.padding, ins[0])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let d = graph.shape(call.ins[0]).dims();
        let op = AvgPool2dGrad(self.clone(), [d[2], d[3]]);
        Ok(vec![Grad::Flows(graph.op(op, &[call.d_out()])?)])
    }

    fn flops(&self, _ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        (outs[0].shape.elements() * self.kernel[0] * self.kernel[1]) as u64
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let p = self.plane(&call.ins[0].shape, &call.outs[0].shape);
        let dims = p.dims(planes(call.ins[0]), self.count_include_pad);
        let kernel = Kernel::file("avg_pool2d", "avg_pool").stored("input", call.ins[0]);
        flat(kernel, dims, vec![Bind::In(0), Bind::Out(0)], call.outs[0])
    }
}

impl AvgPool2dGrad {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let p = self.0.plane(&call.out_types[0].shape, &call.in_types[0].shape);
        let (ins, outs) = (p.input[0] * p.input[1], p.output[0] * p.output[1]);
        each_plane(call.f(0), outs, call.outs[0], ins, |_, dy, dx| {
            for (at, out) in dx.iter_mut().enumerate() {
                let mut total = R::ZERO;
                for oy in p.holders(0, at / p.input[1]) {
                    for ox in p.holders(1, at % p.input[1]) {
                        total +=
                            dy[oy * p.output[1] + ox] / R::of(self.0.divisor(&p, oy, ox) as f64);
                    }
                }
                *out = total;
            }
        });
    }
}

impl Op for AvgPool2dGrad {
    fn name(&self) -> &'static str {
        "avg_pool2d_grad"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let d = ins[0].shape.dims();
        Ok(vec![TensorType::f32([d[0], d[1], self.1[0], self.1[1]])])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("second derivatives are not built")])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        (ins[0].shape.elements() * self.0.kernel[0] * self.0.kernel[1]) as u64
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let p = self.0.plane(&call.outs[0].shape, &call.ins[0].shape);
        let dims = p.dims(planes(call.ins[0]), self.0.count_include_pad);
        let kernel = Kernel::file("avg_pool2d", "avg_pool_grad").stored("input", call.ins[0]);
        flat(kernel, dims, vec![Bind::In(0), Bind::Out(0)], call.outs[0])
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let geometries: [(&str, [usize; 4], [usize; 2], [usize; 2], [usize; 2]); 5] = [
        ("one", [1, 1, 1, 1], [1, 1], [1, 1], [0, 0]),
        ("halves", [2, 3, 6, 8], [2, 2], [2, 2], [0, 0]),
        ("overlapping", [2, 2, 7, 7], [3, 3], [2, 2], [1, 1]),
        ("mixed", [1, 3, 9, 7], [3, 2], [2, 1], [1, 0]),
        ("gaps", [1, 5, 11, 13], [2, 2], [3, 4], [0, 0]),
    ];
    let mut cases = Vec::new();
    for (name, x, kernel, stride, padding) in geometries {
        let max: Arc<dyn Op> = Arc::new(MaxPool2d { kernel, stride, padding });
        let ins = |domain| vec![(TensorType::f32(Shape::new(x)), domain)];
        cases.push(Case::graph(format!("max_{name}"), ins(Domain::Distinct), move |g, v| {
            g.apply(max.clone(), v)
        }));
        for count_include_pad in [true, false] {
            let avg: Arc<dyn Op> =
                Arc::new(AvgPool2d { kernel, stride, padding, count_include_pad });
            let name = format!("avg_{name}_{count_include_pad}");
            cases.push(Case::graph(name, ins(Domain::Normal), move |g, v| g.apply(avg.clone(), v)));
        }
    }
    cases
}
