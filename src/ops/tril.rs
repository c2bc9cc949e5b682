//! The elements below the diagonal of square matrices, as rows; and the gradient, which puts them
//! back.

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType};
use crate::ops::cpu::par_rows;
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Port, Real, Storage,
};

/// Of x `[batch, n, n]` the elements (1, 0), (2, 0), (2, 1), (3, 0), …: `[batch, n·(n − 1)/2]`, and
/// with the diagonal (0, 0), (1, 0), (1, 1), …: `[batch, n·(n + 1)/2]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tril {
    /// Whether the diagonal is among them.
    pub diagonal: bool,
}

/// Operand: the cotangent of a [`Tril`]; result `[batch, size, size]`, zero where nothing was
/// taken.
#[derive(Clone, Debug, PartialEq)]
pub struct TrilGrad {
    tril: Tril,
    size: usize,
}

impl Tril {
    /// How many elements of row `i` are taken.
    fn taken(&self, i: usize) -> usize {
        i + usize::from(self.diagonal)
    }

    /// Where those of row `i` begin; for the number of rows, how many elements there are.
    fn start(&self, i: usize) -> usize {
        (0..i).map(|row| self.taken(row)).sum()
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (x, n) = (call.f(0), call.in_dims(0)[1]);
        let width = call.out_dims(0)[1];
        par_rows(call.outs[0], width, 64, |first, out| {
            for (index, out) in out.chunks_exact_mut(width).enumerate() {
                let x = &x[(first + index) * n * n..][..n * n];
                let mut at = 0;
                for (i, row) in x.chunks_exact(n).enumerate() {
                    let taken = self.taken(i);
                    out[at..at + taken].copy_from_slice(&row[..taken]);
                    at += taken;
                }
            }
        });
    }

    /// One thread for each element of the matrices.
    fn launch(&self, entry: &'static str, matrices: &Shape, call: &GpuCall<'_>) -> Vec<Launch> {
        let (elements, n) = (matrices.elements(), matrices.last());
        let kernel = Kernel::file("tril", entry)
            .with("DIAGONAL", u32::from(self.diagonal))
            .stored("input", call.ins[0])
            .stored("out", call.outs[0]);
        let dims = vec![elements as u32, n as u32, self.start(n) as u32];
        vec![Launch::flat(kernel, dims, vec![Bind::In(0), Bind::Out(0)], elements, 256)]
    }
}

impl Op for Tril {
    fn name(&self) -> &'static str {
        "tril"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        match *ins[0].shape.dims() {
            [batch, n, columns] if n == columns && self.start(n) > 0 => {
                Ok(vec![TensorType::f32([batch, self.start(n)])])
            }
            _ => Err(format!("expected square matrices [batch, n, n], got {}", ins[0])),
        }
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let size = graph.shape(call.ins[0]).last();
        let back = TrilGrad { tril: self.clone(), size };
        Ok(vec![Grad::Flows(graph.op(back, &[call.d_out()])?)])
    }

    fn flops(&self, _ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        0
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        self.launch("tril", &call.ins[0].shape, call)
    }
}

impl TrilGrad {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (dy, n) = (call.f(0), self.size);
        let width = call.in_dims(0)[1];
        par_rows(call.outs[0], n * n, 64, |first, out| {
            for (index, out) in out.chunks_exact_mut(n * n).enumerate() {
                let mut dy = &dy[(first + index) * width..][..width];
                for (i, row) in out.chunks_exact_mut(n).enumerate() {
                    let (own, rest) = dy.split_at(self.tril.taken(i));
                    row[..own.len()].copy_from_slice(own);
                    row[own.len()..].fill(R::ZERO);
                    dy = rest;
                }
            }
        });
    }
}

impl Op for TrilGrad {
    fn name(&self) -> &'static str {
        "tril_grad"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![TensorType::f32([ins[0].shape.dims()[0], self.size, self.size])])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Flows(graph.op(self.tril.clone(), &[call.d_out()])?)])
    }

    fn flops(&self, _ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        0
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        self.tril.launch("tril_grad", &call.outs[0].shape, call)
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: &'static str, batch: usize, n: usize, diagonal: bool| {
        let ins = vec![(TensorType::f32([batch, n, n]), Domain::Normal)];
        Case::op(name, Tril { diagonal }, ins)
    };
    vec![
        case("one", 1, 2, false),
        case("one_diagonal", 1, 1, true),
        case("batch3_n7", 3, 7, false),
        case("batch5_n13_diagonal", 5, 13, true),
        case("batch65_n3", 65, 3, false),
    ]
}
