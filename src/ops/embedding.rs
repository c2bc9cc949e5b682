//! Rows of a table by id, and the gradient: for each row of the table, the sum of the cotangents
//! of the places where its id stands, in their order. No atomics, so the bits repeat.
//!
//! Ids are i32, or whole numbers from 0 up to 2²⁴ as floats, as tables of data have them.

use std::borrow::Cow;

use crate::cpu_by_eval;
use crate::graph::{DType, Graph, Shape, ShapeError, TensorType};
use crate::ops::cpu::par_rows;
use crate::ops::launch::fold_groups;
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Port, Real, Storage,
};

/// Operands table `[rows, width]` and ids of any shape; result `[ids…, width]`. An id outside of the
/// table, and a number that is no id, gives NaN.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    /// A row without gradient.
    pub padding: Option<usize>,
}

/// Operands ids and the cotangent `[ids…, width]`; result `[rows, width]`.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingGrad {
    /// Rows of the table.
    pub rows: usize,
    /// A row whose gradient is zero.
    pub padding: Option<usize>,
}

/// Up to here all whole numbers are floats.
const MOST: f64 = 16_777_216.0;

/// The ids of an operand, as integers; −1 for a number that is none.
fn ids<'a, R: Real>(call: &Call<'a, R>, index: usize) -> Cow<'a, [i32]> {
    if call.in_types[index].dtype == DType::I32 {
        return call.i(index).into();
    }
    let id = |number: &R| {
        let number = number.to_f64();
        let whole = (0.0..=MOST).contains(&number) && number.fract() == 0.0;
        if whole { number as i32 } else { -1 }
    };
    call.f(index).iter().map(id).collect()
}

/// The kernel with the form of the ids.
fn kernel(file: &'static str, entry: &'static str, ids: &TensorType) -> Kernel {
    Kernel::file(file, entry).with("NUMBERS", u32::from(ids.dtype != DType::I32))
}

impl Embedding {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (table, ids) = (call.f(0), ids(&call, 1));
        let width = call.in_dims(0)[1];
        par_rows(call.outs[0], width, 64, |first, out| {
            for (index, out) in out.chunks_exact_mut(width).enumerate() {
                let start = usize::try_from(ids[first + index]).ok().map(|id| id * width);
                match start.and_then(|start| table.get(start..start + width)) {
                    Some(row) => out.copy_from_slice(row),
                    None => out.fill(R::of(f64::NAN)),
                }
            }
        });
    }
}

impl Op for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        if ins[0].shape.rank() != 2 {
            return Err(format!(
                "expected a table [rows, width] and ids, got {} and {}",
                ins[0], ins[1]
            ));
        }
        let mut dims = ins[1].shape.dims().to_vec();
        dims.push(ins[0].shape.last());
        Ok(vec![TensorType::f32(Shape::new(dims))])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let rows = graph.shape(call.ins[0]).dims()[0];
        let table = graph
            .op(EmbeddingGrad { rows, padding: self.padding }, &[call.ins[1], call.d_out()])?;
        Ok(vec![Grad::Flows(table), Grad::Stops("ids are integers")])
    }

    fn flops(&self, _ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        0
    }

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::Out(0) => Storage::Either,
            _ => Storage::Single,
        }
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let d = call.ins[0].shape.dims();
        let n = call.outs[0].shape.elements();
        let dims = vec![d[0] as u32, d[1] as u32, n as u32];
        let binds = vec![Bind::In(0), Bind::In(1), Bind::Out(0)];
        vec![Launch::flat(
            kernel("embedding", "embedding", call.ins[1]).stored("out", call.outs[0]),
            dims,
            binds,
            n,
            256,
        )]
    }
}

impl EmbeddingGrad {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (ids, dy) = (ids(&call, 0), call.f(1));
        let width = call.out_dims(0)[1];
        // Places of each id, in order: a counting sort.
        let mut starts = vec![0_usize; self.rows + 1];
        let valid = |id: i32| {
            usize::try_from(id).ok().filter(|id| *id < self.rows && Some(*id) != self.padding)
        };
        ids.iter().filter_map(|id| valid(*id)).for_each(|id| starts[id + 1] += 1);
        for row in 0..self.rows {
            starts[row + 1] += starts[row];
        }
        let mut next = starts.clone();
        let mut places = vec![0_usize; starts[self.rows]];
        for (place, id) in ids.iter().enumerate() {
            if let Some(id) = valid(*id) {
                places[next[id]] = place;
                next[id] += 1;
            }
        }
        par_rows(call.outs[0], width, 1, |row, out| {
            out.fill(R::ZERO);
            for place in &places[starts[row]..starts[row + 1]] {
                let dy = &dy[place * width..(place + 1) * width];
                out.iter_mut().zip(dy).for_each(|(o, d)| *o += *d);
            }
        });
    }
}

impl Op for EmbeddingGrad {
    fn name(&self) -> &'static str {
        "embedding_grad"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![TensorType::f32([self.rows, ins[1].shape.last()])])
    }

    fn grad(&self, _graph: &mut Graph, _call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("second derivatives are not built"); 2])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        ins[1].shape.elements() as u64
    }

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(1) => Storage::Either,
            _ => Storage::Single,
        }
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let width = call.outs[0].shape.last();
        let ids = call.ins[0].shape.elements();
        // Past the table where there is no such row.
        let padding = self.padding.unwrap_or(self.rows);
        let dims = vec![self.rows as u32, width as u32, ids as u32, padding as u32];
        let binds = vec![Bind::In(0), Bind::In(1), Bind::Out(0)];
        // A workgroup looks at all ids: as few of them as there can be.
        let by_row = self.rows <= ids;
        let kernel = |entry| {
            kernel("embedding_grad", entry, call.ins[0])
                .with("BY_ROW", by_row.into())
                .stored("dy", call.ins[1])
        };
        let sums = Launch {
            kernel: kernel("embedding_grad"),
            dims: dims.clone(),
            binds: binds.clone(),
            grid: fold_groups(self.rows.min(ids) * width.div_ceil(64)),
        };
        if by_row {
            return vec![sums];
        }
        vec![Launch::flat(kernel("zero"), dims, binds, self.rows * width, 256), sums]
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: &'static str, rows: usize, width: usize, ids: &[usize]| {
        let ins = vec![
            (TensorType::f32([rows, width]), Domain::Normal),
            (TensorType::i32(Shape::new(ids)), Domain::Index(rows as i32)),
        ];
        Case::op(name, Embedding { padding: None }, ins)
    };
    let numbers = |name: &'static str, rows: usize, width: usize, ids: &[usize]| {
        let mut case = case(name, rows, width, ids);
        case.ins[1].0 = TensorType::f32(Shape::new(ids));
        Case { not_differentiated: vec![1], ..case }
    };
    vec![
        case("one", 1, 1, &[1]),
        case("rows5_width3", 5, 3, &[7]),
        case("batch", 11, 8, &[3, 5]),
        case("wide", 7, 131, &[13]),
        case("many_ids", 8, 5, &[4, 80]),
        case("many_rows", 300, 4, &[2, 9]),
        case("several_rounds", 7, 66, &[3, 701]),
        case("rows_beyond_a_round", 3000, 65, &[2, 1100]),
        numbers("numbers", 5, 3, &[7, 2]),
        numbers("numbers_many_rows", 300, 4, &[2, 9]),
    ]
}
