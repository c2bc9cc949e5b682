//! The plainest way to run a graph: every value in its own vector, in order, on the CPU. The
//! reference that plans, fusion and both executors are checked against.

use crate::device::Globals;
use crate::graph::{Graph, Leaf, Origin, TensorType, ValueId};
use crate::ops::{Call, Op, Operand, Real, ScratchCall, Target};

/// The content of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Tensor<R> {
    /// Floats.
    F(Vec<R>),
    /// Integers.
    I(Vec<i32>),
}

impl<R: Real> Tensor<R> {
    /// The floats.
    pub fn f(&self) -> &[R] {
        match self {
            Tensor::F(values) => values,
            Tensor::I(_) => unreachable!("an integer tensor where floats were expected"),
        }
    }
}

/// Runs one op on the CPU into fresh vectors. In-place operands are copied first.
pub fn run_op<R: Real>(
    op: &dyn Op,
    ins: &[&Tensor<R>],
    in_types: &[&TensorType],
    out_types: &[&TensorType],
    globals: &Globals,
) -> Vec<Vec<R>> {
    let mut outs: Vec<Vec<R>> =
        out_types.iter().map(|ty| vec![R::of(f64::NAN); ty.shape.elements()]).collect();
    let mut operands: Vec<Operand<'_, R>> = ins
        .iter()
        .map(|tensor| match tensor {
            Tensor::F(values) => Operand::F(values),
            Tensor::I(values) => Operand::I(values),
        })
        .collect();
    for &(input, output) in op.in_place() {
        outs[output].copy_from_slice(ins[input].f());
        operands[input] = Operand::InPlace;
    }
    let scratch_call = ScratchCall { ins: in_types, outs: out_types, target: &Target::Cpu };
    let mut scratch = vec![R::of(f64::NAN); op.scratch(&scratch_call)];
    let mut out_slices: Vec<&mut [R]> = outs.iter_mut().map(Vec::as_mut_slice).collect();
    R::run(
        op,
        Call {
            ins: &operands,
            outs: &mut out_slices,
            scratch: &mut scratch,
            in_types,
            out_types,
            globals,
        },
    );
    outs
}

/// Runs a whole graph; `leaf` gives the content of each leaf that is not a constant. Returns the
/// content of every value.
pub fn run<R: Real>(
    graph: &Graph,
    globals: &Globals,
    mut leaf: impl FnMut(&Leaf, &TensorType) -> Tensor<R>,
) -> Vec<Tensor<R>> {
    let mut values: Vec<Option<Tensor<R>>> = vec![None; graph.values.len()];
    for (index, info) in graph.values.iter().enumerate() {
        if let Origin::Leaf(origin) = &info.origin {
            values[index] = Some(match origin {
                Leaf::Constant(value) => {
                    Tensor::F(vec![R::of(f64::from(*value)); info.ty.shape.elements()])
                }
                Leaf::Table(values) => {
                    Tensor::F(values.iter().map(|value| R::of(f64::from(*value))).collect())
                }
                other => leaf(other, &info.ty),
            });
        }
    }
    for node in &graph.nodes {
        let in_types: Vec<&TensorType> = node.inputs.iter().map(|v| graph.ty(*v)).collect();
        let out_types: Vec<&TensorType> = node.outputs.iter().map(|v| graph.ty(*v)).collect();
        let ins: Vec<&Tensor<R>> =
            node.inputs.iter().map(|v| content(graph, &values, *v)).collect();
        let outs = run_op(node.op.as_ref(), &ins, &in_types, &out_types, globals);
        for (id, out) in node.outputs.iter().zip(outs) {
            values[id.index()] = Some(Tensor::F(out));
        }
    }
    (0..graph.values.len())
        .map(|index| content(graph, &values, ValueId(index as u32)).clone())
        .collect()
}

fn content<'a, R>(graph: &Graph, values: &'a [Option<Tensor<R>>], value: ValueId) -> &'a Tensor<R> {
    match &values[graph.root(value).index()] {
        Some(tensor) => tensor,
        None => unreachable!("value {value:?} is used before it is computed"),
    }
}
