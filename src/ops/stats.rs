//! Sums of several vectors in one go: the statistics of a step.

use crate::cpu_by_eval;
use crate::graph::{Graph, ShapeError, TensorType};
use crate::ops::concat::Slice;
use crate::ops::cpu;
use crate::ops::map::{self, Code};
use crate::ops::{Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Real};

/// Operands: any number of float tensors; result: the vector of their sums.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats;

impl Stats {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        for index in 0..call.ins.len() {
            call.outs[0][index] = cpu::sum(call.f(index));
        }
    }
}

impl Op for Stats {
    fn name(&self) -> &'static str {
        "stats"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![TensorType::f32([ins.len()])])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let mut grads = Vec::new();
        for (index, input) in call.ins.iter().enumerate() {
            let shape = graph.shape(*input).clone();
            let one = graph.op(Slice { axis: 0, start: index, len: 1 }, &[call.d_out()])?;
            let one = graph.reshape(one, crate::graph::Shape::default())?;
            grads.push(Grad::Flows(map::apply(
                graph,
                Code::of(|code| code.input(0)),
                &[one],
                shape,
            )?));
        }
        Ok(grads)
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        ins.iter().map(|ty| ty.shape.elements() as u64).sum()
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        // Up to three vectors a launch: each is one workgroup's.
        let groups: Vec<Vec<usize>> =
            (0..call.ins.len()).collect::<Vec<_>>().chunks(3).map(<[usize]>::to_vec).collect();
        let launch = |group: &Vec<usize>| {
            let at = |i: usize| group.get(i).copied().unwrap_or(group[0]);
            let mut dims = vec![group[0] as u32];
            dims.extend(
                (0..3).map(|i| group.get(i).map_or(0, |g| call.ins[*g].shape.elements() as u32)),
            );
            let binds = vec![Bind::In(at(0)), Bind::In(at(1)), Bind::In(at(2)), Bind::Out(0)];
            Launch {
                kernel: Kernel::file("stats", "stats"),
                dims,
                binds,
                grid: [group.len() as u32, 1, 1],
            }
        };
        groups.iter().map(launch).collect()
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let f = |n: usize| (TensorType::f32([n]), Domain::Normal);
    vec![
        Case::op("one", Stats, vec![f(1)]),
        Case::op("two", Stats, vec![f(7), f(300)]),
        Case::op("three", Stats, vec![f(257), f(1), f(64)]),
        Case::op("five", Stats, vec![f(5), f(9), f(1000), f(3), f(2)]),
    ]
}
