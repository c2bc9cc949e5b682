//! Maps on the GPU: one kernel generated per code, and the epilogue text of fused kernels.

use super::{Binary, Code, Instr, Map, Reg, Unary};
use crate::graph::{DType, Shape, TensorType};
use crate::ops::launch::Source;
use crate::ops::{Bind, GpuCall, Kernel, Launch, Real};

/// How an operand's element is found from the output's flat index i: Σ ((i / inner) mod extent) ·
/// stride over the terms. No terms: a scalar. One term (1, n, 1) with n the output's size: the
/// same index.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// `(inner, extent, stride)`.
    pub terms: Vec<(usize, usize, usize)>,
}

impl Access {
    /// The access of an operand of shape `of` in an output of shape `out`. Axes that are repeated
    /// have no term; neighbouring axes that are not are merged.
    pub fn new(of: &Shape, out: &Shape) -> Self {
        let lead = out.rank() - of.rank();
        let (inner, strides) = (out.strides(), of.strides());
        let mut terms: Vec<(usize, usize, usize)> = Vec::new();
        for axis in 0..of.rank() {
            let extent = of.dims()[axis];
            if extent == 1 {
                continue;
            }
            let term = (inner[lead + axis], extent, strides[axis]);
            match terms.last_mut() {
                Some(last) if last.0 == term.0 * extent && last.2 == term.2 * extent => {
                    *last = (term.0, last.1 * extent, term.2);
                }
                _ => terms.push(term),
            }
        }
        Access { terms }
    }

    /// The index of the element for output index `i`, in WGSL.
    fn wgsl(&self, map: &Map, i: &str) -> String {
        let count = map.shape.elements();
        let term = |(inner, extent, stride): &(usize, usize, usize)| {
            let mut text = i.to_owned();
            if *inner > 1 {
                text = format!("{text} / {inner}u");
            }
            if inner * extent < count {
                text = format!("{text} % {extent}u");
            }
            if *stride > 1 { format!("({text}) * {stride}u") } else { text }
        };
        let terms: Vec<String> = self.terms.iter().map(term).collect();
        if terms.is_empty() { "0u".into() } else { terms.join(" + ") }
    }

    /// Copies the elements for output indices `first..first + block.len()`, in runs that lie side
    /// by side or are one element repeated.
    #[inline(always)]
    pub fn load<R: Real>(&self, values: &[R], first: usize, block: &mut [R]) {
        let Some(&(inner, extent, stride)) = self.terms.last() else {
            return block.fill(values[0]);
        };
        let side_by_side = inner == 1 && stride == 1;
        let length = if side_by_side { extent } else { inner };
        let mut done = 0;
        while done < block.len() {
            let i = first + done;
            let run = (length - i % length).min(block.len() - done);
            let place =
                |(inner, extent, stride): &(usize, usize, usize)| i / inner % extent * stride;
            let at: usize = self.terms.iter().map(place).sum();
            let out = &mut block[done..done + run];
            if side_by_side {
                out.copy_from_slice(&values[at..at + run]);
            } else {
                out.fill(values[at]);
            }
            done += run;
        }
    }
}

/// Threads of a workgroup.
const THREADS: u32 = 256;

/// The launch of a map: operands at bindings 2 and up, then the results.
pub(super) fn launch(map: &Map, call: &GpuCall<'_>) -> Launch {
    let mut text = uses(&map.code);
    text.push_str("struct Dims { count: u32 }\n@group(0) @binding(0) var<uniform> dims: Dims;\n");
    let outs = map.code.outs.len();
    declare(&mut text, "in", 0, call.ins, 2);
    declare(&mut text, "out", 0, call.outs, 2 + map.inputs);
    text.push_str(&format!(
        "@compute @workgroup_size({THREADS})\nfn map(@builtin(workgroup_id) group: vec3<u32>, \
         @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {{\n\
         let i = (group.y * groups.x + group.x) * {THREADS}u + local;\n\
         if (i >= dims.count) {{ return; }}\n"
    ));
    body(&mut text, map, call.outs, |_, index| {
        read(map, call.ins[index], &format!("in{index}"), "i")
    });
    text.push_str("}\n");
    let kernel = Kernel {
        source: Source::Generated { name: "map".into(), text },
        entry: "map",
        constants: Vec::new(),
        replace: Vec::new(),
        half: Vec::new(),
    };
    let mut binds: Vec<Bind> = (0..map.inputs).map(Bind::In).collect();
    binds.extend((0..outs).map(Bind::Out));
    let count = map.shape.elements();
    Launch::flat(kernel, vec![count as u32], binds, count, THREADS)
}

/// WGSL for `fn epilogue(i, live, values)`, which puts four elements of a kernel's result through
/// `map` and stores what comes out: the map's results lie at the bindings from `first` on, then its
/// operands but the first. `others` are the types of those operands, `outs` of the results. Indices
/// of elements that are not live are 0. All operands are read before anything is stored, so that the
/// four do not wait for each other.
pub fn epilogue_text(
    map: &Map,
    others: &[&TensorType],
    outs: &[&TensorType],
    first: usize,
) -> String {
    let mut text = uses(&map.code);
    declare(&mut text, "out", 0, outs, first);
    declare(&mut text, "in", 1, others, first + outs.len());
    text.push_str("fn epilogue(at: vec4<u32>, live: vec4<bool>, values: vec4<f32>) {\n");
    let whole = TensorType::f32(map.shape.clone());
    let mut types = vec![&whole];
    types.extend_from_slice(others);
    for place in 0..4 {
        text.push_str(&format!("let i{place} = at[{place}];\n"));
        for (reg, instr) in map.code.instrs.iter().enumerate() {
            let Instr::Input(index) = *instr else { continue };
            let index = index as usize;
            let value = match index {
                0 => format!("values[{place}]"),
                _ => read(map, types[index], &format!("in{index}"), &format!("i{place}")),
            };
            text.push_str(&format!("let v{place}_{reg} = {value};\n"));
        }
    }
    for place in 0..4 {
        text.push_str(&format!("if (live[{place}]) {{\nlet i = i{place};\n"));
        body(&mut text, map, outs, |reg, _| format!("v{place}_{reg}"));
        text.push_str("}\n");
    }
    text.push_str("}\n");
    text
}

/// The epilogue that only stores a result of this type.
pub fn plain_epilogue(out: &TensorType, first: usize) -> String {
    let mut text = String::new();
    declare(&mut text, "out", 0, &[out], first);
    text.push_str("fn epilogue(at: vec4<u32>, live: vec4<bool>, values: vec4<f32>) {\n");
    for place in 0..4 {
        let value = stored(&format!("values[{place}]"), out);
        text.push_str(&format!("if (live[{place}]) {{ out0[at[{place}]] = {value}; }}\n"));
    }
    text.push_str("}\n");
    text
}

/// The libraries that the code calls.
pub fn uses(code: &Code) -> String {
    let mut text = String::new();
    let calls = |instr: &Instr| match instr {
        Instr::Unary(f, _) => {
            matches!(f, Unary::Tanh | Unary::Erf | Unary::Sigmoid | Unary::Expm1 | Unary::Log1p)
        }
        Instr::Binary(f, _, _) => matches!(f, Binary::Max | Binary::Min),
        _ => false,
    };
    if code.instrs.iter().any(calls) {
        text.push_str("// @use lib/math\n");
    }
    if code.is_random() {
        text.push_str("// @use lib/philox\n");
    }
    text
}

/// Declares storage of these types, numbered from `number` on, at the bindings from `first` on.
pub fn declare(text: &mut String, name: &str, number: usize, types: &[&TensorType], first: usize) {
    for (at, ty) in types.iter().enumerate() {
        text.push_str(&format!(
            "@group(0) @binding({}) var<storage, read_write> {name}{}: array<{}>;\n",
            first + at,
            number + at,
            ty.dtype.name()
        ));
    }
}

/// An f32 expression as an element of this type.
fn stored(value: &str, ty: &TensorType) -> String {
    match ty.dtype {
        DType::F16 => format!("f16({value})"),
        _ => value.to_owned(),
    }
}

/// The element of an operand for output index `i`, as f32.
fn read(map: &Map, ty: &TensorType, name: &str, i: &str) -> String {
    let at = Access::new(&ty.shape, &map.shape).wgsl(map, i);
    match ty.dtype {
        DType::F16 => format!("f32({name}[{at}])"),
        _ => format!("{name}[{at}]"),
    }
}

/// The statements that compute and store element `i`; `input` gives an operand's element by its
/// register and its index.
fn body(text: &mut String, map: &Map, outs: &[&TensorType], input: impl Fn(Reg, usize) -> String) {
    statements(text, &map.code, input);
    for (index, reg) in map.code.outs.iter().enumerate() {
        let value = stored(&format!("r{reg}"), outs[index]);
        text.push_str(&format!("out{index}[i] = {value};\n"));
    }
}

/// One statement for each instruction; `input` gives the text of an input by its register and its
/// index.
pub fn statements(text: &mut String, code: &Code, input: impl Fn(Reg, usize) -> String) {
    for (reg, instr) in code.instrs.iter().enumerate() {
        let value = match *instr {
            Instr::Input(index) => input(reg as Reg, index as usize),
            Instr::Const(bits) => literal(f32::from_bits(bits)),
            Instr::Random(stream) => format!("philox_uniform({stream}u, i)"),
            Instr::Unary(f, a) => unary(f, a),
            Instr::Binary(f, a, b) => binary(f, a, b),
        };
        text.push_str(&format!("let r{reg} = {value};\n"));
    }
}

fn literal(value: f32) -> String {
    format!("{value:e}f")
}

fn unary(f: Unary, a: Reg) -> String {
    match f {
        Unary::Neg => format!("-r{a}"),
        Unary::Exp => format!("exp(r{a})"),
        Unary::Expm1 => format!("safe_expm1(r{a})"),
        Unary::Log => format!("log(r{a})"),
        Unary::Log1p => format!("safe_log1p(r{a})"),
        Unary::Sqrt => format!("sqrt(r{a})"),
        Unary::Recip => format!("1.0 / r{a}"),
        Unary::Tanh => format!("safe_tanh(r{a})"),
        Unary::Erf => format!("safe_erf(r{a})"),
        Unary::Sigmoid => format!("safe_sigmoid(r{a})"),
        Unary::Abs => format!("abs(r{a})"),
    }
}

fn binary(f: Binary, a: Reg, b: Reg) -> String {
    match f {
        Binary::Add => format!("r{a} + r{b}"),
        Binary::Sub => format!("r{a} - r{b}"),
        Binary::Mul => format!("r{a} * r{b}"),
        Binary::Div => format!("r{a} / r{b}"),
        Binary::Max => format!("safe_max(r{a}, r{b})"),
        Binary::Min => format!("safe_min(r{a}, r{b})"),
        Binary::Greater => format!("select(0.0, 1.0, r{a} > r{b})"),
    }
}
