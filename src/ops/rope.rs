//! Rotary positions (Su et al. 2021): in each head, the features j and j + head/2 are a pair that is
//! turned by an angle that grows with the position, as GPT-NeoX and Llama pair them. The gradient
//! turns back.

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType, ValueId};
use crate::ops::cpu::par_rows;
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Port, Real, Storage,
};

/// Operands: x `[batch, length, width]` of heads side by side, and the cosines and sines
/// `[length, head/2]` of the angles. Result: x with its first columns turned.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Features of a head; even.
    pub head: usize,
    /// Columns that are turned, from the first; a multiple of `head`.
    pub columns: usize,
    /// Whether pairs are turned back.
    pub inverse: bool,
}

/// Turns the first `columns` of x by the angles position · theta^(−2j/head).
///
/// # Errors
/// When the columns are not whole heads of even width.
pub fn rope(
    graph: &mut Graph,
    x: ValueId,
    head: usize,
    columns: usize,
    theta: f64,
) -> Result<ValueId, ShapeError> {
    let (length, half) = (graph.shape(x).dims()[1], head / 2);
    let table = |f: fn(f64) -> f64| -> std::sync::Arc<[f32]> {
        let angle = |i: usize| {
            let (position, pair) = (i / half, i % half);
            position as f64 * theta.powf(-2.0 * pair as f64 / head as f64)
        };
        (0..length * half).map(|i| f(angle(i)) as f32).collect()
    };
    let cos = graph.table(table(f64::cos), [length, half])?;
    let sin = graph.table(table(f64::sin), [length, half])?;
    graph.op(Rope { head, columns, inverse: false }, &[x, cos, sin])
}

impl Rope {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (x, cos, sin) = (call.f(0), call.f(1), call.f(2));
        let dims = call.in_dims(0);
        let (length, width, half) = (dims[1], dims[2], self.head / 2);
        let sign = if self.inverse { -R::ONE } else { R::ONE };
        par_rows(call.outs[0], width, (16_384 / width).max(1), |first, out| {
            for (row, out) in out.chunks_exact_mut(width).enumerate() {
                let x = &x[(first + row) * width..(first + row + 1) * width];
                let at = (first + row) % length * half;
                let (cos, sin) = (&cos[at..at + half], &sin[at..at + half]);
                out[self.columns..].copy_from_slice(&x[self.columns..]);
                let heads = out[..self.columns].chunks_exact_mut(self.head);
                for (out, x) in heads.zip(x.chunks_exact(self.head)) {
                    let ((a, b), (out_a, out_b)) = (x.split_at(half), out.split_at_mut(half));
                    for j in 0..half {
                        let turned = sign * sin[j];
                        out_a[j] = a[j] * cos[j] - b[j] * turned;
                        out_b[j] = b[j] * cos[j] + a[j] * turned;
                    }
                }
            }
        });
    }
}

impl Op for Rope {
    fn name(&self) -> &'static str {
        "rope"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let &[_, length, width] = ins[0].shape.dims() else {
            return Err(format!("expected [batch, length, width], got {}", ins[0].shape));
        };
        let whole = self.head.is_multiple_of(2) && self.columns.is_multiple_of(self.head);
        if !whole || self.columns > width {
            return Err(format!(
                "cannot turn {} of {width} columns in heads of {}",
                self.columns, self.head
            ));
        }
        let table = Shape::from([length, self.head / 2]);
        if ins[1].shape != table || ins[2].shape != table {
            return Err(format!("expected cosines and sines of {table}"));
        }
        Ok(vec![ins[0].clone()])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let back = Rope { inverse: !self.inverse, ..self.clone() };
        let d_x = graph.op(back, &[call.d_out(), call.ins[1], call.ins[2]])?;
        let table = Grad::Stops("the angles are not trained");
        Ok(vec![Grad::Flows(d_x), table, table])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        3 * (ins[0].shape.elements() / ins[0].shape.last() * self.columns) as u64
    }

    cpu_by_eval!();

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(0) | Port::Out(_) => Storage::Either,
            Port::In(_) => Storage::Single,
        }
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let dims = call.ins[0].shape.dims();
        let elements = call.ins[0].shape.elements();
        let kernel = Kernel::file("rope", "rope")
            .with("INVERSE", self.inverse.into())
            .stored("x", call.ins[0])
            .stored("y", call.outs[0]);
        let dims = [elements, dims[1], dims[2], self.head, self.columns].map(|n| n as u32).to_vec();
        let binds = vec![Bind::In(0), Bind::In(1), Bind::In(2), Bind::Out(0)];
        vec![Launch::flat(kernel, dims, binds, elements, 256)]
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: &str, [batch, length, width]: [usize; 3], head: usize, columns: usize| {
        let table = || (TensorType::f32([length, head / 2]), Domain::Uniform(-1.0, 1.0));
        let x = (TensorType::f32([batch, length, width]), Domain::Normal);
        let op = Rope { head, columns, inverse: false };
        let case = Case::op(name, op, vec![x, table(), table()]);
        Case { not_differentiated: vec![1, 2], ..case }
    };
    vec![
        case("one", [1, 1, 2], 2, 2),
        case("heads_of_6", [2, 5, 18], 6, 12),
        case("whole_width", [3, 7, 20], 10, 20),
        case("several_groups", [2, 11, 40], 4, 24),
    ]
}
