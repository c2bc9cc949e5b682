//! Another order of the axes: y[i_{p₀}, i_{p₁}, …] = x[i₀, i₁, …].

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType, ValueId};
use crate::ops::cpu::par_rows;
use crate::ops::launch::fold_groups;
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Port, Real, Storage,
};

/// Axis `i` of the result is axis `axes[i]` of the operand.
#[derive(Clone, Debug, PartialEq)]
pub struct Permute {
    /// Each axis of the operand once.
    pub axes: Vec<usize>,
}

/// Axes that the kernels know besides the two that are transposed.
const MOST_OTHERS: usize = 6;
/// Rows and columns of a tile of the transposing kernel.
const TILE: usize = 32;

/// Puts the axes of `value` in another order; no work where their elements stay where they are.
///
/// # Errors
/// When `axes` is no order of its axes.
pub fn permute(graph: &mut Graph, value: ValueId, axes: &[usize]) -> Result<ValueId, ShapeError> {
    let op = Permute { axes: axes.to_vec() };
    let shape = graph.shape(value).clone();
    if op.infer(&[graph.ty(value)]).is_ok() && op.moves(&shape).len() <= 1 {
        let dims: Vec<usize> = axes.iter().map(|axis| shape.dims()[*axis]).collect();
        return graph.reshape(value, Shape::new(dims));
    }
    graph.op(op, &[value])
}

/// `[outer, a, b, inner]` as `[outer, b, a, inner]`.
///
/// # Errors
/// When `view` does not have as many elements as the value.
pub fn exchange(graph: &mut Graph, x: ValueId, view: [usize; 4]) -> Result<ValueId, ShapeError> {
    let x = graph.reshape(x, view)?;
    permute(graph, x, &[0, 2, 1, 3])
}

/// Puts the last axis of `value` in the place of `axis`, and `axis` last.
///
/// # Errors
/// As [`permute`].
pub fn swap_with_last(
    graph: &mut Graph,
    value: ValueId,
    axis: usize,
) -> Result<ValueId, ShapeError> {
    let rank = graph.shape(value).rank();
    let mut axes: Vec<usize> = (0..rank).collect();
    axes.swap(axis, rank - 1);
    permute(graph, value, &axes)
}

/// An axis of the result: its extent, and the operand's elements between its neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    extent: usize,
    stride: usize,
}

impl Permute {
    /// The result's axes in order, without those of extent 1, neighbours that stay neighbours as
    /// one.
    fn moves(&self, from: &Shape) -> Vec<Axis> {
        let strides = from.strides();
        let mut moves: Vec<Axis> = Vec::new();
        for axis in &self.axes {
            let next = Axis { extent: from.dims()[*axis], stride: strides[*axis] };
            if next.extent == 1 {
                continue;
            }
            match moves.last_mut() {
                Some(last) if last.stride == next.stride * next.extent => {
                    *last = Axis { extent: last.extent * next.extent, stride: next.stride };
                }
                _ => moves.push(next),
            }
        }
        moves
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let x = call.f(0);
        let mut outer = self.moves(&call.in_types[0].shape);
        let row = outer.pop().unwrap_or(Axis { extent: 1, stride: 1 });
        let rows_per_piece = (16_384 / row.extent).max(1);
        par_rows(call.outs[0], row.extent, rows_per_piece, |first, out| {
            for (index, out) in out.chunks_exact_mut(row.extent).enumerate() {
                let mut rest = first + index;
                let mut start = 0;
                for axis in outer.iter().rev() {
                    start += rest % axis.extent * axis.stride;
                    rest /= axis.extent;
                }
                for (j, out) in out.iter_mut().enumerate() {
                    *out = x[start + j * row.stride];
                }
            }
        });
    }
}

impl Op for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let shape = &ins[0].shape;
        let mut sorted = self.axes.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..shape.rank()) {
            return Err(format!("{:?} is no order of the axes of {shape}", self.axes));
        }
        if shape.rank() > MOST_OTHERS + 2 {
            return Err(format!("{shape} has more than {} axes", MOST_OTHERS + 2));
        }
        let dims: Vec<usize> = self.axes.iter().map(|axis| shape.dims()[*axis]).collect();
        Ok(vec![TensorType::f32(Shape::new(dims))])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let mut inverse = vec![0; self.axes.len()];
        self.axes.iter().enumerate().for_each(|(to, from)| inverse[*from] = to);
        Ok(vec![Grad::Flows(permute(graph, call.d_out(), &inverse)?)])
    }

    fn flops(&self, _ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        0
    }

    cpu_by_eval!();

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    /// Where the last axis stays, elements are fetched one by one, rows of them side by side. Else
    /// the result's last axis and the operand's are transposed in tiles, for each place along all
    /// other axes.
    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let moves = self.moves(&call.ins[0].shape);
        let mut steps = vec![1; moves.len()];
        for axis in (1..moves.len()).rev() {
            steps[axis - 1] = steps[axis] * moves[axis].extent;
        }
        let binds = vec![Bind::In(0), Bind::Out(0)];
        let stored = |entry| {
            Kernel::file("permute", entry).stored("x", call.ins[0]).stored("y", call.outs[0])
        };
        let along = moves.iter().position(|axis| axis.stride == 1).unwrap_or(0);
        let last = moves.len().saturating_sub(1);
        let mut others = [[1, 0, 0]; MOST_OTHERS + 1];
        let tiled = along != last;
        let outer = (0..last).filter(|axis| !tiled || *axis != along).rev();
        for (slot, axis) in others.iter_mut().zip(outer) {
            *slot = [moves[axis].extent, moves[axis].stride, steps[axis]];
        }
        let row = moves.last().copied().unwrap_or(Axis { extent: 1, stride: 1 });
        let column = if tiled { [moves[along].extent, steps[along]] } else { [1, 0] };
        let batch: usize = others.iter().map(|[extent, ..]| extent).product();
        let mut words = vec![batch, row.extent, row.stride, column[0], column[1], 0, 0, 0];
        for other in others {
            words.extend(other);
            words.push(0);
        }
        let dims = words.iter().map(|w| *w as u32).collect();
        if tiled {
            let tiles = row.extent.div_ceil(TILE) * column[0].div_ceil(TILE);
            let grid = fold_groups(batch * tiles);
            let kernel = stored("transpose");
            return vec![Launch { kernel, dims, binds, grid }];
        }
        let threads = call.outs[0].shape.elements();
        vec![Launch::flat(stored("fetch"), dims, binds, threads, 256)]
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: &'static str, dims: &[usize], axes: &[usize]| {
        let ins = vec![(TensorType::f32(Shape::new(dims)), Domain::Normal)];
        Case::op(name, Permute { axes: axes.to_vec() }, ins)
    };
    vec![
        case("one", &[1], &[0]),
        case("ones", &[1, 1, 1], &[2, 0, 1]),
        case("same", &[3, 5], &[0, 1]),
        case("transpose", &[5, 7], &[1, 0]),
        case("transpose_over_a_tile", &[33, 65], &[1, 0]),
        case("batch_transpose", &[3, 37, 31], &[0, 2, 1]),
        case("last_stays", &[3, 5, 7, 11], &[0, 2, 1, 3]),
        case("reversed", &[2, 3, 4, 5], &[3, 2, 1, 0]),
        case("channels_last", &[2, 3, 17, 13], &[0, 2, 3, 1]),
        case("channels_first", &[2, 17, 13, 3], &[0, 3, 1, 2]),
        case("far", &[2, 3, 5, 2, 3, 7], &[4, 0, 5, 2, 1, 3]),
        case("most_axes", &[2, 3, 2, 2, 3, 2, 2, 2], &[7, 1, 6, 3, 5, 0, 4, 2]),
    ]
}
