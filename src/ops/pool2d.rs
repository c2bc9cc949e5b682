//! Pooling over windows of images and its gradients. Gradients gather: each input pixel looks at
//! the windows that hold it, so no element is written twice.

use std::iter::StepBy;
use std::ops::Range;

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType};
use crate::ops::cpu::par_rows;
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Port, Real, Storage,
};

/// The windows that an image is cut into.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Windows {
    /// Of one size, at even steps.
    Strided {
        /// Rows and columns of a window.
        kernel: [usize; 2],
        /// Step between windows.
        stride: [usize; 2],
        /// Rows and columns of padding on each side, at most half a window.
        padding: [usize; 2],
        /// Step between the rows and the columns of a window.
        dilation: [usize; 2],
        /// Whether a last window may reach beyond the padded image.
        ceil_mode: bool,
    },
    /// This many rows and columns of them: window o of n over a side of s goes from ⌊o·s/n⌋ up to
    /// ⌈(o + 1)·s/n⌉.
    Adaptive([usize; 2]),
}

/// Rows or columns that a window with gaps reaches over.
fn reach(kernel: usize, dilation: usize) -> usize {
    (kernel - 1) * dilation + 1
}

/// The largest element of each window of x `[batch, channels, height, width]`; padding never wins.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxPool2d {
    /// The windows.
    pub windows: Windows,
}

/// The mean of each window of x `[batch, channels, height, width]`; windows have no gaps.
#[derive(Clone, Debug, PartialEq)]
pub struct AvgPool2d {
    /// The windows.
    pub windows: Windows,
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
    windows: Windows,
    input: [usize; 2],
    output: [usize; 2],
}

impl Plane {
    fn new(windows: Windows, x: &TensorType, y: &TensorType) -> Self {
        let size = |ty: &TensorType| [ty.shape.dims()[2], ty.shape.dims()[3]];
        Plane { windows, input: size(x), output: size(y) }
    }

    /// Input rows (axis 0) or columns (axis 1) of window `o`.
    fn window(&self, axis: usize, o: usize) -> StepBy<Range<usize>> {
        let (size, count) = (self.input[axis], self.output[axis]);
        match self.windows {
            Windows::Strided { kernel, stride, padding, dilation, .. } => {
                let (start, pad, step) = (o * stride[axis], padding[axis], dilation[axis]);
                let before = pad.saturating_sub(start).div_ceil(step) * step;
                let end = (start + reach(kernel[axis], step)).saturating_sub(pad).min(size);
                (start + before - pad..end).step_by(step)
            }
            Windows::Adaptive(_) => (o * size / count..((o + 1) * size).div_ceil(count)).step_by(1),
        }
    }

    /// Windows that hold input row or column `i`.
    fn holders(&self, axis: usize, i: usize) -> Range<usize> {
        let (size, count) = (self.input[axis], self.output[axis]);
        match self.windows {
            Windows::Strided { kernel, stride, padding, .. } => {
                let (padded, stride) = (i + padding[axis], stride[axis]);
                let first = (padded + 1).saturating_sub(kernel[axis]).div_ceil(stride);
                first..(padded / stride + 1).min(count)
            }
            Windows::Adaptive(_) => i * count / size..((i + 1) * count).div_ceil(size).min(count),
        }
    }

    /// Rows or columns of window `o`, those of padding counted.
    fn padded(&self, axis: usize, o: usize) -> usize {
        match self.windows {
            Windows::Strided { kernel, stride, padding, .. } => {
                kernel[axis].min(self.input[axis] + 2 * padding[axis] - o * stride[axis])
            }
            Windows::Adaptive(_) => self.window(axis, o).len(),
        }
    }

    /// Elements of the largest window.
    fn area(&self) -> usize {
        match self.windows {
            Windows::Strided { kernel, .. } => kernel[0] * kernel[1],
            Windows::Adaptive(n) => self.input[0].div_ceil(n[0]) * self.input[1].div_ceil(n[1]),
        }
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

    /// The launch of a kernel over `threads` elements.
    fn launch(
        &self,
        kernel: Kernel,
        count_include_pad: bool,
        binds: Vec<Bind>,
        x: &TensorType,
        out: &TensorType,
    ) -> Vec<Launch> {
        let (size, stride, padding, dilation) = match self.windows {
            Windows::Strided { kernel, stride, padding, dilation, .. } => {
                (kernel, stride, padding, dilation)
            }
            Windows::Adaptive(_) => ([1, 1], [1, 1], [0, 0], [1, 1]),
        };
        let size = [0, 1].map(|axis| reach(size[axis], dilation[axis]));
        let mut words = vec![planes(x)];
        for pair in [self.input, self.output, size, stride, padding] {
            words.extend(pair);
        }
        words.extend(dilation);
        words.push(usize::from(count_include_pad));
        let dims = words.iter().map(|w| *w as u32).collect();
        let adaptive = u32::from(matches!(self.windows, Windows::Adaptive(_)));
        let kernel = kernel.with("ADAPTIVE", adaptive).stored("out", out);
        vec![Launch::flat(kernel, dims, binds, out.shape.elements(), 256)]
    }
}

fn infer(windows: Windows, x: &TensorType) -> Result<Vec<TensorType>, String> {
    let d = x.shape.dims();
    if d.len() != 4 {
        return Err(format!("expected [batch, channels, height, width], got {}", x.shape));
    }
    let (kernel, stride, padding, dilation, ceil_mode) = match windows {
        Windows::Adaptive([rows, cols]) => {
            return Ok(vec![TensorType::f32([d[0], d[1], rows, cols])]);
        }
        Windows::Strided { kernel, stride, padding, dilation, ceil_mode } => {
            (kernel, stride, padding, dilation, ceil_mode)
        }
    };
    let reach = [0, 1].map(|a| reach(kernel[a], dilation[a]));
    let axis = |a: usize| {
        let rest = (d[2 + a] + 2 * padding[a]).checked_sub(reach[a])?;
        let whole = rest / stride[a] + 1;
        // One more that begins inside of the image or before it.
        let more = ceil_mode && rest % stride[a] != 0 && whole * stride[a] < d[2 + a] + padding[a];
        Some(whole + usize::from(more))
    };
    let (Some(rows), Some(cols)) = (axis(0), axis(1)) else {
        return Err(format!(
            "a window of {}x{} does not fit the padded input of {}x{}",
            reach[0],
            reach[1],
            d[2] + 2 * padding[0],
            d[3] + 2 * padding[1]
        ));
    };
    let plane = Plane { windows, input: [d[2], d[3]], output: [rows, cols] };
    // Gaps may step over all of a small image.
    if let Some(a) =
        [0, 1].into_iter().find(|a| (0..plane.output[*a]).any(|o| plane.window(*a, o).len() == 0))
    {
        return Err(format!(
            "a window with dilation {} steps over all of an input of {}, from padding to padding",
            dilation[a],
            d[2 + a]
        ));
    }
    Ok(vec![TensorType::f32([d[0], d[1], rows, cols])])
}

/// Planes of a `[batch, channels, height, width]` tensor.
fn planes(ty: &TensorType) -> usize {
    ty.shape.dims()[0] * ty.shape.dims()[1]
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
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let p = Plane::new(self.windows, call.in_types[0], call.out_types[0]);
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
        infer(self.windows, ins[0])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let op = MaxPool2dGrad(self.clone());
        Ok(vec![Grad::Flows(graph.op(op, &[call.ins[0], call.d_out()])?)])
    }

    fn flops(&self, ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        (outs[0].shape.elements() * Plane::new(self.windows, ins[0], outs[0]).area()) as u64
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let [x, y] = [call.ins[0], call.outs[0]];
        let binds = vec![Bind::In(0), Bind::Out(0)];
        let kernel = Kernel::file("max_pool2d", "max_pool").stored("x", x);
        Plane::new(self.windows, x, y).launch(kernel, false, binds, x, y)
    }
}

impl MaxPool2dGrad {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let p = Plane::new(self.0.windows, call.in_types[0], call.in_types[1]);
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
        (ins[1].shape.elements() * Plane::new(self.0.windows, ins[0], ins[1]).area()) as u64
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let [x, dy] = [call.ins[0], call.ins[1]];
        let binds = vec![Bind::In(0), Bind::Out(0), Bind::In(1)];
        let plane = Plane::new(self.0.windows, x, dy);
        let kernel = Kernel::file("max_pool2d", "max_pool_grad").stored("x", x).stored("dy", dy);
        plane.launch(kernel, false, binds, x, call.outs[0])
    }
}

impl AvgPool2d {
    /// What the window `(oy, ox)` is divided by.
    fn divisor(&self, p: &Plane, oy: usize, ox: usize) -> usize {
        if self.count_include_pad {
            p.padded(0, oy) * p.padded(1, ox)
        } else {
            p.window(0, oy).len() * p.window(1, ox).len()
        }
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let p = Plane::new(self.windows, call.in_types[0], call.out_types[0]);
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
        infer(self.windows, ins[0])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let d = graph.shape(call.ins[0]).dims();
        let op = AvgPool2dGrad(self.clone(), [d[2], d[3]]);
        Ok(vec![Grad::Flows(graph.op(op, &[call.d_out()])?)])
    }

    fn flops(&self, ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        (outs[0].shape.elements() * Plane::new(self.windows, ins[0], outs[0]).area()) as u64
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let [x, y] = [call.ins[0], call.outs[0]];
        let binds = vec![Bind::In(0), Bind::Out(0)];
        let plane = Plane::new(self.windows, x, y);
        let kernel = Kernel::file("avg_pool2d", "avg_pool").stored("input", x);
        plane.launch(kernel, self.count_include_pad, binds, x, y)
    }
}

impl AvgPool2dGrad {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let p = Plane::new(self.0.windows, call.out_types[0], call.in_types[0]);
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

    fn flops(&self, ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        (ins[0].shape.elements() * Plane::new(self.0.windows, outs[0], ins[0]).area()) as u64
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let [dx, dy] = [call.outs[0], call.ins[0]];
        let binds = vec![Bind::In(0), Bind::Out(0)];
        let plane = Plane::new(self.0.windows, dx, dy);
        let kernel = Kernel::file("avg_pool2d", "avg_pool_grad").stored("input", dy);
        plane.launch(kernel, self.0.count_include_pad, binds, dx, dx)
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let windows = |kernel, stride, padding, dilation, ceil_mode| Windows::Strided {
        kernel,
        stride,
        padding,
        dilation,
        ceil_mode,
    };
    let strided = |kernel, stride, padding| windows(kernel, stride, padding, [1, 1], false);
    let ceiling = |kernel, stride, padding| windows(kernel, stride, padding, [1, 1], true);
    let geometries: [(&str, [usize; 4], Windows); 12] = [
        ("one", [1, 1, 1, 1], strided([1, 1], [1, 1], [0, 0])),
        ("halves", [2, 3, 6, 8], strided([2, 2], [2, 2], [0, 0])),
        ("overlapping", [2, 2, 7, 7], strided([3, 3], [2, 2], [1, 1])),
        ("mixed", [1, 3, 9, 7], strided([3, 2], [2, 1], [1, 0])),
        ("gaps", [1, 5, 11, 13], strided([2, 2], [3, 4], [0, 0])),
        ("row", [2, 3, 1, 13], strided([1, 3], [1, 2], [0, 1])),
        ("ceil", [2, 3, 7, 8], ceiling([2, 3], [2, 2], [0, 1])),
        ("ceil_beyond", [1, 2, 5, 6], ceiling([3, 2], [3, 3], [1, 1])),
        ("adaptive_one", [2, 3, 5, 7], Windows::Adaptive([1, 1])),
        ("adaptive", [2, 3, 11, 7], Windows::Adaptive([4, 3])),
        ("adaptive_same", [1, 2, 5, 3], Windows::Adaptive([5, 3])),
        ("adaptive_more", [1, 2, 3, 5], Windows::Adaptive([7, 8])),
    ];
    let max = |name: &str, x: [usize; 4], windows: Windows| {
        let ins = vec![(TensorType::f32(Shape::new(x)), Domain::Distinct)];
        Case::op(format!("max_{name}"), MaxPool2d { windows }, ins)
    };
    let mut cases = vec![
        max("dilated", [2, 3, 9, 8], windows([2, 3], [2, 1], [1, 1], [3, 2], false)),
        max("dilated_ceil", [1, 2, 11, 7], windows([3, 2], [3, 2], [1, 1], [2, 4], true)),
        max("dilated_row", [1, 2, 1, 13], windows([1, 4], [1, 2], [0, 2], [1, 3], false)),
    ];
    for (name, x, windows) in geometries {
        let ins = |domain| vec![(TensorType::f32(Shape::new(x)), domain)];
        cases.push(max(name, x, windows));
        for count_include_pad in [true, false] {
            let name = format!("avg_{name}_{count_include_pad}");
            let avg = AvgPool2d { windows, count_include_pad };
            cases.push(Case::op(name, avg, ins(Domain::Normal)));
        }
    }
    cases
}
