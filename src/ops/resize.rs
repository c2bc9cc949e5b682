//! Another extent of an axis, by the nearest element or by linear interpolation, and its gradient.
//! An image is resized along one axis after the other. Places are fractions of integers, so that
//! every executor takes the same elements.

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType};
use crate::ops::cpu::par_rows;
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Port, Real, Storage,
};

/// Where an element of the result lies between those of the operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interpolation {
    /// The element ⌊i·len / size⌋.
    Nearest,
    /// Linear at (i + ½)·len / size − ½, at least 0: both ends of the axis are aligned by the edges
    /// of their first and last elements.
    Linear,
    /// Linear at i·(len − 1) / (size − 1): aligned by the centres.
    LinearCorners,
}

/// Elements of an axis, `size` in the place of its extent.
#[derive(Clone, Debug, PartialEq)]
pub struct Resize {
    /// The axis.
    pub axis: usize,
    /// Its extent in the result.
    pub size: usize,
    /// How elements in between are found.
    pub interpolation: Interpolation,
}

/// Operand: the cotangent of a [`Resize`] of an axis of the given extent.
#[derive(Clone, Debug, PartialEq)]
pub struct ResizeGrad(Resize, usize);

/// An element's place is (max(i·step + shift, 0)) / unit.
struct Places {
    len: usize,
    step: usize,
    shift: isize,
    unit: usize,
    linear: bool,
}

impl Places {
    /// The two elements that element `i` of the result is made of, and the second one's share.
    fn taps(&self, i: usize) -> (usize, usize, f64) {
        let place = ((i * self.step) as isize + self.shift).max(0) as usize;
        let first = place / self.unit;
        let share = (place % self.unit) as f64 / self.unit as f64;
        (first, (first + 1).min(self.len - 1), if self.linear { share } else { 0.0 })
    }
}

impl Resize {
    fn places(&self, len: usize) -> Places {
        let (size, signed) = (self.size, |n: usize| n as isize);
        let (step, shift, unit, linear) = match self.interpolation {
            Interpolation::Nearest => (len, 0, size, false),
            Interpolation::Linear => (2 * len, signed(len) - signed(size), 2 * size, true),
            Interpolation::LinearCorners => (len - 1, 0, (size - 1).max(1), true),
        };
        Places { len, step, shift, unit, linear }
    }

    fn with_extent(&self, shape: &Shape, extent: usize) -> TensorType {
        let mut dims = shape.dims().to_vec();
        dims[self.axis] = extent;
        TensorType::f32(Shape::new(dims))
    }

    fn inner(&self, shape: &Shape) -> usize {
        shape.dims()[self.axis + 1..].iter().product()
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let shape = &call.in_types[0].shape;
        let (len, inner) = (shape.dims()[self.axis], self.inner(shape));
        let places = self.places(len);
        let x = call.f(0);
        par_rows(call.outs[0], self.size * inner, 1, |line, out| {
            let x = &x[line * len * inner..][..len * inner];
            for (i, out) in out.chunks_exact_mut(inner).enumerate() {
                let (first, second, share) = places.taps(i);
                let (near, far) = (&x[first * inner..][..inner], &x[second * inner..][..inner]);
                if share == 0.0 {
                    out.copy_from_slice(near);
                    continue;
                }
                let (keep, share) = (R::of(1.0 - share), R::of(share));
                for (out, (a, b)) in out.iter_mut().zip(near.iter().zip(far)) {
                    *out = *a * keep + *b * share;
                }
            }
        });
    }

    fn launch(&self, entry: &'static str, unresized: &Shape, call: &GpuCall<'_>) -> Vec<Launch> {
        let p = self.places(unresized.dims()[self.axis]);
        let outer: usize = unresized.dims()[..self.axis].iter().product();
        let dims = vec![
            outer as u32,
            p.len as u32,
            self.inner(unresized) as u32,
            self.size as u32,
            p.step as u32,
            p.shift as i32 as u32,
            p.unit as u32,
            u32::from(p.linear),
        ];
        let binds = vec![Bind::In(0), Bind::Out(0)];
        let kernel =
            Kernel::file("resize", entry).stored("input", call.ins[0]).stored("out", call.outs[0]);
        vec![Launch::flat(kernel, dims, binds, call.outs[0].shape.elements(), 256)]
    }
}

impl Op for Resize {
    fn name(&self) -> &'static str {
        "resize"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let shape = &ins[0].shape;
        let Some(&len) = shape.dims().get(self.axis) else {
            return Err(format!("{shape} has no axis {}", self.axis));
        };
        // Places are 32-bit numbers on a device.
        let places = len.saturating_add(1).saturating_mul(self.size.saturating_add(1));
        if self.size == 0 || places >= 1 << 29 {
            return Err(format!("cannot resize an axis of {len} to {}", self.size));
        }
        Ok(vec![self.with_extent(shape, self.size)])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let len = graph.shape(call.ins[0]).dims()[self.axis];
        Ok(vec![Grad::Flows(graph.op(ResizeGrad(self.clone(), len), &[call.d_out()])?)])
    }

    fn flops(&self, _ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        3 * outs[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        self.launch("resize", &call.ins[0].shape, call)
    }
}

impl ResizeGrad {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let ResizeGrad(resize, len) = self;
        let inner = resize.inner(&call.out_types[0].shape);
        let places = resize.places(*len);
        let dy = call.f(0);
        let size = resize.size * inner;
        par_rows(call.outs[0], len * inner, 1, |line, dx| {
            dx.fill(R::ZERO);
            for (i, dy) in dy[line * size..][..size].chunks_exact(inner).enumerate() {
                let (first, second, share) = places.taps(i);
                for (tap, share) in [(first, 1.0 - share), (second, share)] {
                    if share > 0.0 {
                        let share = R::of(share);
                        let dx = &mut dx[tap * inner..][..inner];
                        dx.iter_mut().zip(dy).for_each(|(o, d)| *o += *d * share);
                    }
                }
            }
        });
    }
}

impl Op for ResizeGrad {
    fn name(&self) -> &'static str {
        "resize_grad"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![self.0.with_extent(&ins[0].shape, self.1)])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Flows(graph.op(self.0.clone(), &[call.d_out()])?)])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        4 * ins[0].shape.elements() as u64
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        self.0.launch("resize_grad", &call.outs[0].shape, call)
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let ways = [
        ("nearest", Interpolation::Nearest),
        ("linear", Interpolation::Linear),
        ("corners", Interpolation::LinearCorners),
    ];
    let sizes: [(&str, &[usize], usize, usize); 8] = [
        ("one", &[1], 0, 1),
        ("one_to_3", &[2, 1, 3], 1, 3),
        ("to_one", &[2, 5], 1, 1),
        ("double", &[2, 5, 3], 1, 10),
        ("triple_last", &[3, 7], 1, 21),
        ("up_by_primes", &[3, 7], 1, 17),
        ("down", &[2, 13, 2], 1, 5),
        ("over_a_group", &[3, 67, 5], 1, 134),
    ];
    let mut cases = Vec::new();
    for (way, interpolation) in ways {
        for (name, dims, axis, size) in sizes {
            let ins = vec![(TensorType::f32(Shape::new(dims)), Domain::Normal)];
            cases.push(Case::op(
                format!("{way}_{name}"),
                Resize { axis, size, interpolation },
                ins,
            ));
        }
    }
    cases
}
