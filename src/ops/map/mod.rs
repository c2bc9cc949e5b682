//! Elementwise maps: every output element is one scalar [`Code`] of the operands' elements at the
//! same place, operands being repeated by the broadcasting rule. All activations, residual
//! additions, scalings and dropout are maps; fusing maps is splicing code.

mod code;
mod cpu;
mod wgsl;

pub use code::{Binary, Code, Instr, Reg, Unary};
pub(super) use cpu::{BLOCK, run_block};
pub use wgsl::{Access, epilogue_text, plain_epilogue};
pub(super) use wgsl::{declare, statements, uses};

use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType, ValueId};
use crate::ops::{
    Call, Case, Domain, GpuCall, Grad, GradCall, Launch, Op, Port, Real, Storage, reduce,
};

/// An elementwise map onto `shape`.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// What each element computes.
    pub code: Code,
    /// Number of operands (the code may leave some unread).
    pub inputs: usize,
    /// Shape of every output.
    pub shape: Shape,
}

impl Op for Map {
    fn name(&self) -> &'static str {
        "map"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        if ins.len() != self.inputs || self.code.inputs() > self.inputs {
            return Err(format!("expected {} operands, got {}", self.inputs, ins.len()));
        }
        if let Some(ty) = ins.iter().find(|ty| !ty.shape.broadcasts_to(&self.shape)) {
            return Err(format!("{} cannot be repeated to fill {}", ty.shape, self.shape));
        }
        Ok(vec![TensorType::f32(self.shape.clone()); self.code.outs.len()])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let d_out = call.d_out();
        let mut operands = call.ins.to_vec();
        operands.push(d_out);
        operands.push(call.outs[0]);
        let mut grads = Vec::with_capacity(self.inputs);
        for (index, input) in call.ins.iter().enumerate() {
            if !call.needs[index] {
                grads.push(Grad::Unneeded);
                continue;
            }
            let code = self.code.derivative(index, self.inputs);
            let full = apply(graph, code, &operands, self.shape.clone())?;
            let shape = graph.shape(*input).clone();
            grads.push(Grad::Flows(reduce::sum_to(graph, full, &shape)?));
        }
        Ok(grads)
    }

    fn flops(&self, _ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        (self.code.arithmetic() * self.shape.elements()) as u64
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        vec![wgsl::launch(self, call)]
    }

    fn storage(&self, _port: Port) -> Storage {
        Storage::Either
    }

    fn as_map(&self) -> Option<&Map> {
        Some(self)
    }
}

impl Map {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        cpu::eval(self, call);
    }
}

/// Applies scalar code with one result to operands; operands that the code does not read are left
/// out.
///
/// # Errors
/// When an operand cannot be repeated to fill `shape`.
pub fn apply(
    graph: &mut Graph,
    code: Code,
    operands: &[ValueId],
    shape: impl Into<Shape>,
) -> Result<ValueId, ShapeError> {
    let (code, used) = compact(&code);
    let operands: Vec<ValueId> = used.iter().map(|i| operands[*i]).collect();
    let map = Map { code, inputs: operands.len(), shape: shape.into() };
    if map.is_identity() && graph.shape(operands[0]) == &map.shape {
        return Ok(operands[0]);
    }
    graph.op(map, &operands)
}

impl Map {
    /// Whether the map only copies its single operand.
    pub fn is_identity(&self) -> bool {
        self.code.instrs == [Instr::Input(0)] && self.code.outs == [0]
    }
}

/// The same code over only those inputs that it reads, and their old indices.
pub fn compact(code: &Code) -> (Code, Vec<usize>) {
    let code = code.pruned();
    let mut used: Vec<usize> = code
        .instrs
        .iter()
        .filter_map(|i| if let Instr::Input(index) = i { Some(*index as usize) } else { None })
        .collect();
    used.sort_unstable();
    let mut new = Code::new();
    let inputs: Vec<Reg> = (0..code.inputs())
        .map(|old| used.iter().position(|u| *u == old).map_or(0, |at| new.input(at)))
        .collect();
    let outs = new.splice(&code, &inputs);
    new.outs = outs;
    (new, used)
}

/// A copy of x.
///
/// # Errors
/// Never for a float operand.
pub fn copy(graph: &mut Graph, x: ValueId) -> Result<ValueId, ShapeError> {
    let shape = graph.shape(x).clone();
    graph.op(Map { code: Code::of(|code| code.input(0)), inputs: 1, shape }, &[x])
}

/// `f(x)` elementwise.
///
/// # Errors
/// Never for a float operand.
pub fn unary(
    graph: &mut Graph,
    x: ValueId,
    build: impl FnOnce(&mut Code, Reg) -> Reg,
) -> Result<ValueId, ShapeError> {
    let shape = graph.shape(x).clone();
    let code = Code::of(|code| {
        let input = code.input(0);
        build(code, input)
    });
    apply(graph, code, &[x], shape)
}

/// `f(a, b)` elementwise over the broadcast of both shapes, the first operand giving the shape
/// where they have the same rank and size.
///
/// # Errors
/// When neither operand can be repeated to fill the other.
pub fn binary(graph: &mut Graph, f: Binary, a: ValueId, b: ValueId) -> Result<ValueId, ShapeError> {
    let shape =
        if graph.shape(b).broadcasts_to(graph.shape(a)) { graph.shape(a) } else { graph.shape(b) };
    let shape = shape.clone();
    let code = Code::of(|code| {
        let (a, b) = (code.input(0), code.input(1));
        code.binary(f, a, b)
    });
    apply(graph, code, &[a, b], shape)
}

/// a + b.
///
/// # Errors
/// As [`binary`].
pub fn add(graph: &mut Graph, a: ValueId, b: ValueId) -> Result<ValueId, ShapeError> {
    binary(graph, Binary::Add, a, b)
}

/// a · b.
///
/// # Errors
/// As [`binary`].
pub fn mul(graph: &mut Graph, a: ValueId, b: ValueId) -> Result<ValueId, ShapeError> {
    binary(graph, Binary::Mul, a, b)
}

/// a · constant.
///
/// # Errors
/// Never for a float operand.
pub fn scale(graph: &mut Graph, a: ValueId, by: f32) -> Result<ValueId, ShapeError> {
    unary(graph, a, |code, x| code.scale(x, by))
}

/// Uses that the generic checks run over: every instruction, and every way to repeat an operand.
pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = [
        ("neg", Unary::Neg, Domain::Normal),
        ("exp", Unary::Exp, Domain::Normal),
        ("expm1", Unary::Expm1, Domain::Normal),
        ("expm1_near", Unary::Expm1, Domain::Uniform(-1e-3, 1e-3)),
        ("log", Unary::Log, Domain::Uniform(0.1, 4.0)),
        ("log1p", Unary::Log1p, Domain::Uniform(-0.9, 4.0)),
        ("log1p_near", Unary::Log1p, Domain::Uniform(-1e-3, 1e-3)),
        ("sqrt", Unary::Sqrt, Domain::Uniform(0.1, 4.0)),
        ("recip", Unary::Recip, Domain::AwayFromZero),
        ("tanh", Unary::Tanh, Domain::Normal),
        ("tanh_far", Unary::Tanh, Domain::Uniform(-30.0, 30.0)),
        ("erf", Unary::Erf, Domain::Normal),
        ("sigmoid", Unary::Sigmoid, Domain::Normal),
        ("abs", Unary::Abs, Domain::AwayFromZero),
    ]
    .into_iter()
    .map(|(name, f, domain)| {
        let code = Code::of(|code| {
            let x = code.input(0);
            code.unary(f, x)
        });
        case(name, code, &[3, 257], vec![(TensorType::f32([3, 257]), domain)])
    })
    .collect();
    let shapes: [(&str, &[usize], &[usize], &[usize]); 7] = [
        ("one", &[1], &[1], &[1]),
        ("scalar", &[7, 5], &[7, 5], &[]),
        ("rows", &[3, 67], &[3, 67], &[67]),
        ("columns", &[5, 31], &[5, 31], &[5, 1]),
        ("channels", &[2, 3, 4, 5], &[2, 3, 4, 5], &[3, 1, 1]),
        ("outer", &[4, 3, 7], &[4, 1, 7], &[3, 1]),
        ("blocks", &[521, 33], &[521, 33], &[521, 33]),
    ];
    for (index, (name, out, a, b)) in shapes.into_iter().enumerate() {
        let f = [
            Binary::Add,
            Binary::Sub,
            Binary::Mul,
            Binary::Div,
            Binary::Max,
            Binary::Min,
            Binary::Mul,
        ][index];
        let code = Code::of(|code| {
            let (a, b) = (code.input(0), code.input(1));
            code.binary(f, a, b)
        });
        let ins = vec![
            (TensorType::f32(Shape::new(a)), Domain::AwayFromZero),
            (TensorType::f32(Shape::new(b)), Domain::AwayFromZero),
        ];
        cases.push(case(name, code, out, ins));
    }
    // What is not a number must come out as it does on the CPU, never as a good one.
    for (name, f) in [
        ("tanh", Unary::Tanh),
        ("sigmoid", Unary::Sigmoid),
        ("erf", Unary::Erf),
        ("exp", Unary::Exp),
        ("expm1", Unary::Expm1),
        ("abs", Unary::Abs),
    ] {
        let code = Code::of(|code| {
            let x = code.input(0);
            code.unary(f, x)
        });
        let ins = vec![(TensorType::f32([21]), Domain::Special)];
        let case = case(&format!("special_{name}"), code, &[21], ins);
        cases.push(Case { differentiable: false, ..case });
    }
    let relu = Code::of(|code| {
        let (x, zero) = (code.input(0), code.constant(0.0));
        code.binary(Binary::Max, x, zero)
    });
    let ins = vec![(TensorType::f32([21]), Domain::Special)];
    cases.push(Case { differentiable: false, ..case("special_relu", relu, &[21], ins) });
    let dropped = Code::of(|code| {
        let (x, draw) = (code.input(0), code.push(Instr::Random(7)));
        let rate = code.constant(0.3);
        let kept = code.greater(draw, rate);
        code.mul(x, kept)
    });
    cases.push(case(
        "random",
        dropped,
        &[9, 101],
        vec![(TensorType::f32([9, 101]), Domain::Normal)],
    ));
    // One draw for a whole channel: fusion must not draw for each element.
    let images = vec![(TensorType::f32([3, 7, 5, 2]), Domain::Normal)];
    cases.push(Case::graph("random_channels", images, |graph, ins| {
        let code = Code::of(|code| {
            let (draw, rate) = (code.push(Instr::Random(9)), code.constant(0.4));
            code.greater(draw, rate)
        });
        let mask = apply(graph, code, &[], [3, 7, 1, 1])?;
        Ok(vec![mul(graph, ins[0], mask)?])
    }));
    cases
}

fn case(name: &str, code: Code, out: &[usize], ins: Vec<(TensorType, Domain)>) -> Case {
    Case::op(name, Map { code, inputs: ins.len(), shape: Shape::new(out) }, ins)
}
