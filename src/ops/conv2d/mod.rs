//! 2-d convolution (cross-correlation) and its two gradients, as implicit matrix products:
//! out[o, p] = Σ_k W[o, k]·x̃[k, p], k running over (channel, row, column) of the window and p over
//! (sample, row, column) of the output.

mod cpu;
mod depthwise;
mod gpu;

use std::sync::Arc;

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType};
use crate::ops::selection::{Free, Product};
use crate::ops::tile::ProductKernel;
use crate::ops::{
    Call, Case, Domain, GpuCall, Grad, GradCall, Launch, Op, Port, Real, ScratchCall, Storage,
    Target,
};

/// The window of a convolution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Rows and columns between windows.
    pub stride: [usize; 2],
    /// Zeros above, below, left and right.
    pub padding: [usize; 4],
    /// Rows and columns between the kernel's elements.
    pub dilation: [usize; 2],
    /// Groups of channels convolved apart.
    pub groups: usize,
}

/// Operands x `[batch, in, height, width]` and w `[out, in/groups, kh, kw]`; result
/// `[batch, out, height', width']`.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv2d(pub Window);

/// Operands w and the cotangent; result the gradient of x, of the given `[height, width]`. With
/// features in the place of the cotangent this is the transposed convolution.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv2dGradInput(pub Window, pub [usize; 2]);

/// Operands x and the cotangent; result the gradient of w, of the given kernel size.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv2dGradWeight(pub Window, pub [usize; 2]);

/// The extents of one use, groups taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extents {
    pub(super) batch: usize,
    /// Channels of x and of the output in one group.
    pub(super) cin: usize,
    pub(super) cout: usize,
    pub(super) input: [usize; 2],
    pub(super) output: [usize; 2],
    pub(super) kernel: [usize; 2],
    pub(super) window: Window,
}

impl Extents {
    fn new(window: Window, x: &[usize], w: &[usize], out: [usize; 2]) -> Self {
        Extents {
            batch: x[0],
            cin: w[1],
            cout: w[0] / window.groups,
            input: [x[2], x[3]],
            output: out,
            kernel: [w[2], w[3]],
            window,
        }
    }

    /// Elements of a window: the length of the forward sums.
    pub(super) fn taps(&self) -> usize {
        self.cin * self.kernel[0] * self.kernel[1]
    }

    /// Pixels of the input and of the output.
    pub(super) fn in_pixels(&self) -> usize {
        self.input[0] * self.input[1]
    }

    pub(super) fn out_pixels(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Whether the windows are the pixels themselves.
    pub(super) fn is_pointwise(&self) -> bool {
        self.kernel == [1, 1] && self.window.stride == [1, 1] && self.window.padding == [0; 4]
    }

    fn flops(&self) -> u64 {
        2 * (self.batch * self.window.groups * self.cout * self.taps() * self.out_pixels()) as u64
    }
}

impl Window {
    /// Rows and columns of the output.
    fn output(&self, input: [usize; 2], kernel: [usize; 2]) -> Result<[usize; 2], String> {
        let axis = |a: usize| {
            let padded = input[a] + self.padding[2 * a] + self.padding[2 * a + 1];
            let reach = self.dilation[a] * (kernel[a] - 1) + 1;
            (padded >= reach).then(|| (padded - reach) / self.stride[a] + 1)
        };
        match (axis(0), axis(1)) {
            (Some(rows), Some(cols)) => Ok([rows, cols]),
            _ => Err(format!(
                "a kernel of {}x{} with dilation {}x{} does not fit the padded input of {}x{}",
                kernel[0],
                kernel[1],
                self.dilation[0],
                self.dilation[1],
                input[0] + self.padding[0] + self.padding[1],
                input[1] + self.padding[2] + self.padding[3],
            )),
        }
    }
}

impl Conv2d {
    /// A convolution; `padding` is top, bottom, left, right.
    pub fn new(
        stride: [usize; 2],
        padding: [usize; 4],
        dilation: [usize; 2],
        groups: usize,
    ) -> Self {
        Conv2d(Window { stride, padding, dilation, groups })
    }

    fn extents(&self, ins: &[&TensorType], out: &TensorType) -> Extents {
        let out = out.shape.dims();
        Extents::new(self.0, ins[0].shape.dims(), ins[1].shape.dims(), [out[2], out[3]])
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let e = self.extents(call.in_types, call.out_types[0]);
        if depthwise::applies(&e) {
            return depthwise::forward(&e, call);
        }
        cpu::forward(&e, call);
    }
}

impl Op for Conv2d {
    fn name(&self) -> &'static str {
        "conv2d"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let (x, w) = (ins[0].shape.dims(), ins[1].shape.dims());
        if x.len() != 4 || w.len() != 4 || x[1] != w[1] * self.0.groups || w[0] % self.0.groups != 0
        {
            return Err(format!(
                "a weight of {} in {} groups does not fit an input of {}",
                ins[1].shape, self.0.groups, ins[0].shape
            ));
        }
        let [rows, cols] = self.0.output([x[2], x[3]], [w[2], w[3]])?;
        Ok(vec![TensorType::f32([x[0], w[0], rows, cols])])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let (x, w, d) = (call.ins[0], call.ins[1], call.d_out());
        let size = |dims: &[usize]| [dims[2], dims[3]];
        let (input, kernel) = (size(graph.shape(x).dims()), size(graph.shape(w).dims()));
        let mut grads = vec![Grad::Unneeded; 2];
        if call.needs[0] {
            grads[0] = Grad::Flows(graph.op(Conv2dGradInput(self.0, input), &[w, d])?);
        }
        if call.needs[1] {
            grads[1] = Grad::Flows(graph.op(Conv2dGradWeight(self.0, kernel), &[x, d])?);
        }
        Ok(grads)
    }

    fn flops(&self, ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        self.extents(ins, outs[0]).flops()
    }

    cpu_by_eval!();

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(_) => Storage::Factor,
            Port::Out(_) => Storage::Either,
        }
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let e = self.extents(call.ins, call.outs[0]);
        if depthwise::applies(&e) {
            return depthwise::gpu_forward(&e, call);
        }
        gpu::launches(ProductKernel::Conv, "conv2d", ["x", "w", "y"], &e, call)
    }

    fn product(&self, call: &GpuCall<'_>) -> Option<Product> {
        let e = self.extents(call.ins, call.outs[0]);
        product(ProductKernel::Conv, Arc::new(self.clone()), &e, [(0, 0, 0), (1, 0, 1)], call)
    }

    fn scratch(&self, call: &ScratchCall<'_>) -> usize {
        let e = self.extents(call.ins, call.outs[0]);
        match call.target {
            _ if depthwise::applies(&e) => 0,
            Target::Cpu => cpu::column_scratch(&e),
            Target::Gpu(limits) => gpu::scratch(ProductKernel::Conv, &e, call.ins, limits),
        }
    }
}

impl Conv2dGradInput {
    fn extents(&self, ins: &[&TensorType], out: &TensorType) -> Extents {
        let d = ins[1].shape.dims();
        Extents::new(self.0, out.shape.dims(), ins[0].shape.dims(), [d[2], d[3]])
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let e = self.extents(call.in_types, call.out_types[0]);
        if depthwise::applies(&e) {
            return depthwise::grad_input(&e, call);
        }
        cpu::grad_input(&e, call);
    }
}

impl Op for Conv2dGradInput {
    fn name(&self) -> &'static str {
        "conv2d_grad_input"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let (w, d) = (ins[0].shape.dims(), ins[1].shape.dims());
        if w.len() != 4 || d.len() != 4 || d[1] != w[0] || w[0] % self.0.groups != 0 {
            return Err(format!(
                "a weight of {} in {} groups does not fit an input of {}",
                ins[0].shape, self.0.groups, ins[1].shape
            ));
        }
        if self.0.output(self.1, [w[2], w[3]])? != [d[2], d[3]] {
            return Err(format!(
                "windows over {}x{} pixels are not {}x{}",
                self.1[0], self.1[1], d[2], d[3]
            ));
        }
        Ok(vec![TensorType::f32([d[0], w[1] * self.0.groups, self.1[0], self.1[1]])])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        // It is the transposed convolution of w and d: linear in both.
        let (w, d, d_out) = (call.ins[0], call.ins[1], call.d_out());
        let size = graph.shape(w).dims();
        let kernel = [size[2], size[3]];
        let mut grads = vec![Grad::Unneeded; 2];
        if call.needs[0] {
            grads[0] = Grad::Flows(graph.op(Conv2dGradWeight(self.0, kernel), &[d_out, d])?);
        }
        if call.needs[1] {
            grads[1] = Grad::Flows(graph.op(Conv2d(self.0), &[d_out, w])?);
        }
        Ok(grads)
    }

    fn flops(&self, ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        self.extents(ins, outs[0]).flops()
    }

    cpu_by_eval!();

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(_) => Storage::Factor,
            Port::Out(_) => Storage::Either,
        }
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let e = self.extents(call.ins, call.outs[0]);
        if depthwise::applies(&e) {
            return depthwise::gpu_grad_input(&e, call);
        }
        gpu::launches(ProductKernel::ConvGradInput, "grad_input", ["w", "dy", "dx"], &e, call)
    }

    fn product(&self, call: &GpuCall<'_>) -> Option<Product> {
        let e = self.extents(call.ins, call.outs[0]);
        product(
            ProductKernel::ConvGradInput,
            Arc::new(self.clone()),
            &e,
            [(1, 0, 0), (0, 1, 1)],
            call,
        )
    }

    fn scratch(&self, call: &ScratchCall<'_>) -> usize {
        let e = self.extents(call.ins, call.outs[0]);
        match call.target {
            _ if depthwise::applies(&e) => 0,
            Target::Cpu => cpu::column_scratch(&e),
            Target::Gpu(limits) => gpu::scratch(ProductKernel::ConvGradInput, &e, call.ins, limits),
        }
    }
}

impl Conv2dGradWeight {
    fn extents(&self, ins: &[&TensorType], out: &TensorType) -> Extents {
        let d = ins[1].shape.dims();
        Extents::new(self.0, ins[0].shape.dims(), out.shape.dims(), [d[2], d[3]])
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let e = self.extents(call.in_types, call.out_types[0]);
        if depthwise::applies(&e) {
            return depthwise::grad_weight(&e, call);
        }
        cpu::grad_weight(&e, call);
    }
}

impl Op for Conv2dGradWeight {
    fn name(&self) -> &'static str {
        "conv2d_grad_weight"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let (x, d) = (ins[0].shape.dims(), ins[1].shape.dims());
        Ok(vec![TensorType::f32([d[1], x[1] / self.0.groups, self.1[0], self.1[1]])])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("second derivatives are not built"); 2])
    }

    fn flops(&self, ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        self.extents(ins, outs[0]).flops()
    }

    cpu_by_eval!();

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(_) => Storage::Factor,
            Port::Out(_) => Storage::Either,
        }
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let e = self.extents(call.ins, call.outs[0]);
        if depthwise::applies(&e) {
            return depthwise::gpu_grad_weight(&e, call);
        }
        gpu::launches(ProductKernel::ConvGradWeight, "grad_weight", ["x", "dy", "dw"], &e, call)
    }

    fn product(&self, call: &GpuCall<'_>) -> Option<Product> {
        let e = self.extents(call.ins, call.outs[0]);
        product(
            ProductKernel::ConvGradWeight,
            Arc::new(self.clone()),
            &e,
            [(1, 1, 0), (0, 1, 1)],
            call,
        )
    }

    fn scratch(&self, call: &ScratchCall<'_>) -> usize {
        let e = self.extents(call.ins, call.outs[0]);
        match call.target {
            Target::Cpu if depthwise::applies(&e) => 0,
            Target::Gpu(_) if depthwise::applies(&e) => depthwise::weight_scratch(&e),
            Target::Cpu => cpu::weight_scratch(&e),
            Target::Gpu(limits) => {
                gpu::scratch(ProductKernel::ConvGradWeight, &e, call.ins, limits)
            }
        }
    }
}

/// The product that a convolution is, unless it is depthwise. `free` are the axes of the batch and of
/// the channels that are not summed over: factor, its axis, the result's. Channels in groups are not
/// free, since a slice of them is of other groups.
fn product(
    kernel: ProductKernel,
    op: Arc<dyn Op>,
    e: &Extents,
    free: [(usize, usize, usize); 2],
    call: &GpuCall<'_>,
) -> Option<Product> {
    if depthwise::applies(e) {
        return None;
    }
    let batch = |axis: &(usize, usize, usize)| axis.1 == 0 && axis.2 == 0;
    let sliced = free.into_iter().filter(|axis| e.window.groups == 1 || batch(axis));
    let free = sliced.map(|(factor, axis, out)| Free { factor, axis, out }).collect();
    Some(Product { problem: gpu::problem(kernel, e, call.ins, call.limits), op, free })
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: &'static str,
                x: [usize; 4],
                w: [usize; 4],
                stride: [usize; 2],
                padding: [usize; 4],
                dilation: [usize; 2],
                groups: usize| {
        let f = |dims: [usize; 4]| (TensorType::f32(Shape::new(dims)), Domain::Normal);
        let op: Arc<dyn Op> = Arc::new(Conv2d::new(stride, padding, dilation, groups));
        Case::graph(name, vec![f(x), f(w)], move |graph, ins| graph.apply(op.clone(), ins))
    };
    let (one, none) = ([1, 1], [0; 4]);
    let mut cases = vec![
        case("one", [1, 1, 1, 1], [1, 1, 1, 1], one, none, one, 1),
        case("plain", [2, 3, 5, 6], [4, 3, 3, 3], one, none, one, 1),
        case("same", [2, 3, 5, 6], [4, 3, 3, 3], one, [1; 4], one, 1),
        case("pointwise", [2, 5, 3, 4], [6, 5, 1, 1], one, none, one, 1),
        case("pointwise_stride", [2, 4, 5, 5], [6, 4, 1, 1], [2, 2], none, one, 1),
        case("stride", [2, 3, 8, 7], [4, 3, 3, 3], [2, 2], [1; 4], one, 1),
        case("stride3", [1, 2, 11, 10], [3, 2, 3, 3], [3, 3], [3; 4], one, 1),
        case("dilation", [1, 3, 9, 8], [4, 3, 3, 3], one, [2; 4], [2, 2], 1),
        case("groups", [2, 4, 6, 6], [6, 2, 3, 3], one, [1; 4], one, 2),
        case("depthwise", [2, 6, 5, 6], [6, 1, 3, 3], one, [1; 4], one, 6),
        case("asymmetric", [1, 2, 5, 7], [3, 2, 2, 4], [2, 1], [0, 1, 1, 2], one, 1),
        case("kernel7", [1, 2, 9, 9], [2, 2, 7, 7], [2, 2], [3; 4], one, 1),
        case("mixed", [2, 4, 11, 9], [6, 2, 3, 2], [2, 1], [1, 1, 1, 1], [1, 2], 2),
        case("over_a_tile", [3, 3, 9, 8], [67, 3, 3, 3], one, [1; 4], one, 1),
        case("many_taps", [1, 17, 5, 5], [5, 17, 3, 3], one, [1; 4], one, 1),
        case("depthwise_multiplier", [2, 3, 7, 5], [6, 1, 3, 2], [2, 1], [1, 2, 0, 1], [1, 2], 3),
        case("depthwise_wide", [1, 2, 1, 70], [2, 1, 1, 65], one, none, one, 2),
        case("depthwise_in_parts", [3, 2, 41, 37], [2, 1, 3, 3], one, [1; 4], one, 2),
    ];
    // x [batch, out, h, w], w [out, in/groups, kh, kw], result of `size`.
    let transposed = |name: &'static str,
                      x: [usize; 4],
                      w: [usize; 4],
                      stride: [usize; 2],
                      padding: [usize; 4],
                      groups: usize,
                      size: [usize; 2]| {
        let f = |dims: [usize; 4]| (TensorType::f32(Shape::new(dims)), Domain::Normal);
        let window = Window { stride, padding, dilation: [1, 1], groups };
        Case::op(name, Conv2dGradInput(window, size), vec![f(w), f(x)])
    };
    cases.extend([
        transposed("transposed", [2, 3, 4, 5], [3, 2, 3, 3], one, none, 1, [6, 7]),
        transposed("transposed_stride", [1, 4, 3, 4], [4, 3, 3, 2], [2, 3], [1; 4], 2, [6, 9]),
        transposed("transposed_depthwise", [2, 4, 3, 3], [4, 2, 2, 2], [2, 2], none, 4, [7, 6]),
    ]);
    cases
}
