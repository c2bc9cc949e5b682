//! Windows along an axis, moved in front of another one, and the sums back: what convolutions over
//! depth and patches of images are made of.

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType};
use crate::ops::cpu::par_rows;
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Port, Real, Storage,
};

/// Windows of x, seen as `[outer, mid, len, inner]`: y `[outer, windows, mid, kernel, inner]` with
/// y\[b, o, c, k, r\] = x\[b, c, o·stride + k·dilation − before, r\], zero outside of x.
#[derive(Clone, Debug, PartialEq)]
pub struct Unfold {
    /// The extents outer, mid, len and inner.
    pub view: [usize; 4],
    /// Elements of a window.
    pub kernel: usize,
    /// Step between windows.
    pub stride: usize,
    /// Zeros before the first element.
    pub before: usize,
    /// Zeros after the last element.
    pub after: usize,
    /// Step between the elements of a window.
    pub dilation: usize,
}

/// The sums back: each element of x gets the sum of its places in the windows. The gradient of
/// [`Unfold`].
#[derive(Clone, Debug, PartialEq)]
pub struct Fold(Unfold);

impl Unfold {
    fn reach(&self) -> usize {
        self.dilation * (self.kernel - 1) + 1
    }

    fn windows(&self) -> usize {
        (self.before + self.view[2] + self.after - self.reach()) / self.stride + 1
    }

    fn folded(&self) -> TensorType {
        TensorType::f32(self.view)
    }

    fn unfolded(&self) -> TensorType {
        let [outer, mid, _, inner] = self.view;
        TensorType::f32([outer, self.windows(), mid, self.kernel, inner])
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let [_, mid, len, inner] = self.view;
        let x = call.f(0);
        let windows = self.windows();
        let row = mid * self.kernel * inner;
        par_rows(call.outs[0], row, (4096 / row).max(1), |first, out| {
            for (index, out) in out.chunks_exact_mut(row).enumerate() {
                let (b, o) = ((first + index) / windows, (first + index) % windows);
                for (place, out) in out.chunks_exact_mut(inner).enumerate() {
                    let (c, k) = (place / self.kernel, place % self.kernel);
                    match (o * self.stride + k * self.dilation).checked_sub(self.before) {
                        Some(at) if at < len => {
                            let from = ((b * mid + c) * len + at) * inner;
                            out.copy_from_slice(&x[from..from + inner]);
                        }
                        _ => out.fill(R::ZERO),
                    }
                }
            }
        });
    }

    fn launch(&self, entry: &'static str, call: &GpuCall<'_>) -> Vec<Launch> {
        let [outer, mid, len, inner] = self.view;
        let words = [
            outer,
            mid,
            len,
            inner,
            self.windows(),
            self.kernel,
            self.stride,
            self.before,
            self.dilation,
        ];
        let dims = words.iter().map(|word| *word as u32).collect();
        let binds = vec![Bind::In(0), Bind::Out(0)];
        let kernel =
            Kernel::file("unfold", entry).stored("input", call.ins[0]).stored("out", call.outs[0]);
        vec![Launch::flat(kernel, dims, binds, call.outs[0].shape.elements(), 256)]
    }
}

impl Op for Unfold {
    fn name(&self) -> &'static str {
        "unfold"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let len = self.view[2];
        if ins[0].shape.elements() != self.view.iter().product::<usize>() {
            return Err(format!("{} is not {}", ins[0].shape, Shape::from(self.view)));
        }
        if self.before + len + self.after < self.reach() {
            return Err(format!(
                "a kernel of {} with dilation {} does not fit the padded input of {}",
                self.kernel,
                self.dilation,
                self.before + len + self.after
            ));
        }
        Ok(vec![self.unfolded()])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Flows(graph.op(Fold(self.clone()), &[call.d_out()])?)])
    }

    fn flops(&self, _ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        0
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        self.launch("unfold", call)
    }
}

impl Fold {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let u = &self.0;
        let [_, mid, len, inner] = u.view;
        let dy = call.f(0);
        let windows = u.windows();
        par_rows(call.outs[0], inner, (4096 / inner).max(1), |first, out| {
            for (index, out) in out.chunks_exact_mut(inner).enumerate() {
                let (line, at) = ((first + index) / len, (first + index) % len);
                let (b, c) = (line / mid, line % mid);
                out.fill(R::ZERO);
                for k in 0..u.kernel {
                    let Some(start) = (at + u.before).checked_sub(k * u.dilation) else { break };
                    let o = start / u.stride;
                    if start % u.stride != 0 || o >= windows {
                        continue;
                    }
                    let from = (((b * windows + o) * mid + c) * u.kernel + k) * inner;
                    let dy = &dy[from..from + inner];
                    out.iter_mut().zip(dy).for_each(|(o, d)| *o += *d);
                }
            }
        });
    }
}

impl Op for Fold {
    fn name(&self) -> &'static str {
        "fold"
    }

    fn infer(&self, _ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![self.0.folded()])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Flows(graph.op(self.0.clone(), &[call.d_out()])?)])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        self.0.launch("fold", call)
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: &'static str, view: [usize; 4], window: [usize; 5]| {
        let [kernel, stride, before, after, dilation] = window;
        let ins = vec![(TensorType::f32(view), Domain::Normal)];
        Case::op(name, Unfold { view, kernel, stride, before, after, dilation }, ins)
    };
    vec![
        case("one", [1, 1, 1, 1], [1, 1, 0, 0, 1]),
        case("exchange", [2, 3, 5, 7], [1, 1, 0, 0, 1]),
        case("patches", [2, 3, 8, 5], [4, 4, 0, 0, 1]),
        case("overlapping", [2, 3, 7, 5], [3, 1, 1, 1, 1]),
        case("dilation", [1, 2, 11, 3], [3, 2, 2, 1, 2]),
        case("gaps", [1, 2, 13, 1], [2, 5, 0, 3, 1]),
        case("over_a_group", [1, 1, 19, 67], [2, 1, 0, 0, 3]),
    ]
}
