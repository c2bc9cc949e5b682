//! Ops: everything that can stand in a graph. One file per op holds its shape rule, its gradient
//! rule, its CPU kernel and the launch of its GPU kernel; [`families`] is the table that the
//! generic checks walk.
//!
//! An op is an object that the tiers interrogate: the graph asks for shapes and gradients, the
//! plan for launches and scratch, the CPU executor for a call. No tier matches on op names.

pub mod accumulate;
pub mod attention;
pub mod batch_norm;
pub mod class_cross_entropy;
pub mod clip_units;
pub mod concat;
pub mod conv2d;
pub mod cpu;
pub mod cross_entropy;
pub mod ctc;
pub mod embedding;
pub mod grad_scale;
pub mod launch;
pub mod layer_norm;
pub mod log_sum_exp;
pub mod map;
pub mod matmul;
pub mod max;
pub mod one_hot;
pub mod pad;
pub mod permute;
pub mod philox;
pub mod pool2d;
pub mod real;
pub mod recurrent;
pub mod reduce;
pub mod resize;
pub mod rope;
pub mod selection;
pub mod softmax;
pub mod stats;
pub mod tile;
pub mod to_float;
pub mod tril;
pub mod unfold;
pub mod update;

use std::fmt::Debug;
use std::sync::Arc;

pub use accumulate::Accumulate;
pub use clip_units::ClipUnits;
pub use cpu::{Call, Operand};
pub use grad_scale::GradScale;
pub use launch::{Bind, GpuLimits, Kernel, Launch, MatrixUnits, Replacement, Target};
pub use real::Real;
pub use stats::Stats;

use crate::graph::{Graph, ShapeError, TensorType, ValueId};

/// One operation. Every duty without a default must be written; that is what keeps an op from
/// losing its gradient in silence.
pub trait Op: Debug + Send + Sync {
    /// The op's name: its file's stem, the name of its kernel, and its row in every report.
    fn name(&self) -> &'static str;

    /// Types of the outputs for these operands.
    ///
    /// # Errors
    /// A sentence saying what was expected and what was found.
    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String>;

    /// The gradient of each input, in graph terms, given the outputs' cotangents.
    ///
    /// # Errors
    /// Only when the rule itself is wrong.
    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError>;

    /// Floating-point operations of one execution (a multiply-add counts as two).
    fn flops(&self, ins: &[&TensorType], outs: &[&TensorType]) -> u64;

    /// Runs on the CPU in the precision of training.
    fn cpu_f32(&self, call: Call<'_, f32>);

    /// Runs on the CPU in double precision: the judge of the other two.
    fn cpu_f64(&self, call: Call<'_, f64>);

    /// The GPU launches that compute the outputs, in order.
    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch>;

    /// Elements of scratch memory that one execution needs on this target.
    fn scratch(&self, _call: &ScratchCall<'_>) -> usize {
        0
    }

    /// The product of matrices that this op is on a GPU, if it is one: what a tile is selected for.
    fn product(&self, _call: &GpuCall<'_>) -> Option<selection::Product> {
        None
    }

    /// Whether the operand or result may be stored in half precision. The kernels of an op whose
    /// answer is not [`Storage::Single`] look at the types they are given.
    fn storage(&self, _port: Port) -> Storage {
        Storage::Single
    }

    /// Pairs `(input, output)` that share memory: the op updates the input in place. The CPU call
    /// sees [`Operand::InPlace`] for such an input and finds its content in the output.
    fn in_place(&self) -> &[(usize, usize)] {
        &[]
    }

    /// The elementwise map this op is, if it is one: what fusion works on.
    fn as_map(&self) -> Option<&map::Map> {
        None
    }

    /// This op with `map` applied to its only output before it is stored. Input 0 of the map is
    /// this op's result; the map's other inputs are appended to this op's inputs, and the outputs
    /// become the map's. `None` where the op has no such form.
    fn with_epilogue(&self, _map: &map::Map) -> Option<Arc<dyn Op>> {
        None
    }

    /// The same computation by simpler ops, for an op that was fused from others: what the fused
    /// form is checked against.
    fn unfused(&self, _graph: &mut Graph, _ins: &[ValueId]) -> Option<Vec<ValueId>> {
        None
    }
}

/// An operand or a result of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// The operand of this index.
    In(usize),
    /// The result of this index.
    Out(usize),
}

/// How a float operand or result may be stored in a program of mixed precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In single precision only.
    Single,
    /// In single or half precision, as it comes.
    Either,
    /// In either, but it is a factor of a product, which matrix units want in half precision.
    Factor,
}

/// Implements the two CPU entry points of [`Op`] by one generic method `eval<R: Real>`.
#[macro_export]
macro_rules! cpu_by_eval {
    () => {
        fn cpu_f32(&self, call: $crate::ops::Call<'_, f32>) {
            self.eval(call);
        }
        fn cpu_f64(&self, call: $crate::ops::Call<'_, f64>) {
            self.eval(call);
        }
    };
}

/// What an op's gradient rule is given.
#[derive(Debug)]
pub struct GradCall<'a> {
    /// The forward operands.
    pub ins: &'a [ValueId],
    /// The forward results.
    pub outs: &'a [ValueId],
    /// The cotangent of each result; `None` where the loss does not depend on it.
    pub d_outs: &'a [Option<ValueId>],
    /// Whether the gradient of each operand is wanted.
    pub needs: &'a [bool],
}

impl GradCall<'_> {
    /// The cotangent of the only output of an op that has one.
    pub fn d_out(&self) -> ValueId {
        self.d_outs[0].unwrap_or(self.outs[0])
    }
}

/// The gradient of one operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Grad {
    /// It is this value.
    Flows(ValueId),
    /// There is none, for this reason (an index, a statistic that is not trained through).
    Stops(&'static str),
    /// Nobody asked for it.
    Unneeded,
}

/// What an op's lowering is given.
#[derive(Clone, Copy, Debug)]
pub struct GpuCall<'a> {
    /// Types of the operands.
    pub ins: &'a [&'a TensorType],
    /// Types of the results.
    pub outs: &'a [&'a TensorType],
    /// What the device can do.
    pub limits: &'a GpuLimits,
}

/// What an op's scratch request is given.
#[derive(Clone, Copy, Debug)]
pub struct ScratchCall<'a> {
    /// Types of the operands.
    pub ins: &'a [&'a TensorType],
    /// Types of the results.
    pub outs: &'a [&'a TensorType],
    /// Where it will run.
    pub target: &'a Target,
}

/// From which values a checked operand is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Domain {
    /// Standard normal.
    Normal,
    /// Uniform between two bounds.
    Uniform(f32, f32),
    /// Normal, but never within 0.1 of zero: for functions with a kink there.
    AwayFromZero,
    /// A shuffled arithmetic progression, no two equal: for maxima.
    Distinct,
    /// Normal, with a NaN, both infinities and zeros among them.
    Special,
    /// Integers from 0 up to this bound (not included).
    Index(i32),
    /// Integers from 0 up to the bound, every third one replaced by the second number (an ignored
    /// target).
    IndexOr(i32, i32),
}

/// Builds a case's outputs from its operands.
pub type Build =
    Arc<dyn Fn(&mut Graph, &[ValueId]) -> Result<Vec<ValueId>, ShapeError> + Send + Sync>;

/// One checked use of an op: a small graph around it. The checks differentiate the graph, so the
/// ops that its gradient is made of are checked with it.
#[derive(Clone)]
pub struct Case {
    /// Unique within the family, such as `rows3_cols257`.
    pub name: String,
    /// Types and value ranges of the operands.
    pub ins: Vec<(TensorType, Domain)>,
    /// The use.
    pub build: Build,
    /// Whether the gradient with respect to every float operand is checked. False only for the
    /// ops of the update, which nothing differentiates.
    pub differentiable: bool,
    /// Float operands that are no variables of the function (running statistics).
    pub not_differentiated: Vec<usize>,
}

impl Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("ins", &self.ins).finish()
    }
}

impl Case {
    /// A case of one op whose outputs are all float.
    pub fn op(
        name: impl Into<String>,
        op: impl Op + 'static,
        ins: Vec<(TensorType, Domain)>,
    ) -> Self {
        let op: Arc<dyn Op> = Arc::new(op);
        Case::graph(name, ins, move |graph, ins| graph.apply(op.clone(), ins))
    }

    /// A case of several ops.
    pub fn graph(
        name: impl Into<String>,
        ins: Vec<(TensorType, Domain)>,
        build: impl Fn(&mut Graph, &[ValueId]) -> Result<Vec<ValueId>, ShapeError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Case {
            name: name.into(),
            ins,
            build: Arc::new(build),
            differentiable: true,
            not_differentiated: Vec::new(),
        }
    }

    /// A case of an update op, which nothing differentiates.
    pub fn update(
        name: impl Into<String>,
        op: impl Op + 'static,
        ins: Vec<(TensorType, Domain)>,
    ) -> Self {
        Case { differentiable: false, ..Case::op(name, op, ins) }
    }
}

/// A family of ops that live in one file, with the uses that every check runs over: the
/// finite-difference check, GPU against CPU, and the translation of its kernels.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The file's stem.
    pub name: &'static str,
    /// Its cases: odd sizes, size 1, primes, one more than a tile, absent optional operands.
    pub cases: fn() -> Vec<Case>,
}

macro_rules! ops {
    ($($name:ident),* $(,)?) => {
        /// Every op family. Adding an op is one line here.
        pub fn families() -> Vec<Family> {
            vec![$(Family { name: stringify!($name), cases: $name::cases }),*]
        }
    };
}

ops! {
    accumulate,
    attention,
    batch_norm,
    class_cross_entropy,
    clip_units,
    concat,
    conv2d,
    cross_entropy,
    ctc,
    embedding,
    grad_scale,
    layer_norm,
    log_sum_exp,
    map,
    matmul,
    max,
    permute,
    pad,
    one_hot,
    pool2d,
    recurrent,
    reduce,
    resize,
    rope,
    softmax,
    stats,
    to_float,
    tril,
    unfold,
    update,
}
