//! Scaled dot-product self-attention over packed projections (Vaswani et al. 2017), computed tile
//! by tile with a running softmax so that no length×length matrix is stored (Dao et al. 2022).
//!
//! P = softmax(Q·Kᵀ/√d), O = P·V for each sample and head. With δᵢ = Σ dOᵢ·Oᵢ:
//! dV = Pᵀ·dO, dS = P ⊙ (dO·Vᵀ − δ), dQ = dS·K/√d, dK = dSᵀ·Q/√d. P is recomputed from the saved
//! log Σ e^s of each row.

mod cpu;
mod gpu;

use std::sync::Arc;

use crate::cpu_by_eval;
use crate::graph::{Graph, ShapeError, TensorType};
use crate::ops::map;
use crate::ops::to_float::ToFloat;
use crate::ops::{
    Call, Case, Domain, GpuCall, Grad, GradCall, Launch, Op, Port, Real, ScratchCall, Storage,
    Target,
};

/// Operands: qkv `[batch, length, 3·width]`, queries, keys and values one after another, heads side
/// by side in each; and where not every position sees all others, segments `[batch, length]`: a
/// query sees the keys of its own segment. A number below zero marks padding: nothing sees it, and
/// its queries see all that is not padding. A query that sees nothing gives zeros. Results: the mixed values `[batch, length, width]` and log Σ e^s
/// `[batch, heads, length]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Number of heads; divides the width.
    pub heads: usize,
    /// Whether a position sees only itself and those before it.
    pub causal: bool,
    /// How many positions it then sees, itself included; all where left out.
    pub window: Option<usize>,
    /// Whether scores fall with the distance between query and key (Press et al. 2022).
    pub alibi: bool,
    /// Probability that an element of P is dropped.
    pub dropout: f32,
    /// Random stream of the dropout.
    pub stream: u32,
}

/// Operands qkv, out, log-sums, the cotangent of out, and segments where there are some; result
/// d_qkv.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionGrad(Attention);

/// The extents of one use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extents {
    pub(super) batch: usize,
    pub(super) length: usize,
    pub(super) width: usize,
    pub(super) heads: usize,
    /// Width of one head.
    pub(super) head: usize,
}

impl Attention {
    fn extents(&self, qkv: &TensorType) -> Extents {
        let d = qkv.shape.dims();
        let width = d[2] / 3;
        Extents { batch: d[0], length: d[1], width, heads: self.heads, head: width / self.heads }
    }

    /// What a head's scores lose for each position between query and key: 2^(−8·(h + 1)/n) for the
    /// first n heads, n the largest power of two among them, and every other slope of 2·n heads
    /// for the rest.
    fn slope(&self, head: usize) -> Option<f64> {
        let n = 1_usize << self.heads.ilog2();
        let exponent = if head < n {
            -8.0 * (head + 1) as f64 / n as f64
        } else {
            -4.0 * (2 * (head - n) + 1) as f64 / n as f64
        };
        self.alibi.then(|| exponent.exp2())
    }

    /// FLOPs of `products` length×length×head products.
    fn product_flops(&self, qkv: &TensorType, products: u64) -> u64 {
        let e = self.extents(qkv);
        let pairs = (e.batch * e.heads * e.length * e.length) as u64;
        products * 2 * pairs * e.head as u64 / if self.causal { 2 } else { 1 }
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        cpu::forward(self, call);
    }
}

impl AttentionGrad {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        cpu::backward(&self.0, call);
    }
}

impl Op for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let d = ins[0].shape.dims();
        if d.len() != 3 || !d[2].is_multiple_of(3 * self.heads) {
            return Err(format!(
                "expected [batch, length, 3·width] with {} heads, got {}",
                self.heads, ins[0].shape
            ));
        }
        let e = self.extents(ins[0]);
        if let Some(ty) = ins.get(1).filter(|ty| ty.shape.dims() != [e.batch, e.length]) {
            return Err(format!("expected segments [{}, {}], got {ty}", e.batch, e.length));
        }
        if e.head > gpu::MAX_HEAD {
            return Err(format!(
                "heads of {} features are wider than the {} that are supported",
                e.head,
                gpu::MAX_HEAD
            ));
        }
        Ok(vec![
            TensorType::f32([e.batch, e.length, e.width]),
            TensorType::f32([e.batch, e.heads, e.length]),
        ])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let Some(d_out) = call.d_outs[0] else {
            let stops = Grad::Stops("the log-sums are not trained through");
            return Ok(vec![stops; call.ins.len()]);
        };
        let op = AttentionGrad(self.clone());
        let mut operands = vec![call.ins[0], call.outs[0], call.outs[1], d_out];
        operands.extend(&call.ins[1..]);
        let d_qkv = graph.apply(Arc::new(op), &operands)?[0];
        let mut grads = vec![Grad::Flows(d_qkv)];
        grads.extend((call.ins.len() > 1).then_some(Grad::Stops("segments are numbers of parts")));
        Ok(grads)
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        self.product_flops(ins[0], 2)
    }

    cpu_by_eval!();

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(0) => Storage::Factor,
            Port::Out(0) => Storage::Either,
            Port::In(_) | Port::Out(_) => Storage::Single,
        }
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        gpu::forward(self, &self.extents(call.ins[0]), call)
    }

    fn scratch(&self, call: &ScratchCall<'_>) -> usize {
        match call.target {
            Target::Cpu => cpu::forward_scratch(&self.extents(call.ins[0])),
            Target::Gpu(_) => 0,
        }
    }
}

impl Op for AttentionGrad {
    fn name(&self) -> &'static str {
        "attention_grad"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![ins[0].clone()])
    }

    fn grad(&self, _graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        Ok(vec![Grad::Stops("second derivatives are not built"); call.ins.len()])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        self.0.product_flops(ins[0], 5)
    }

    cpu_by_eval!();

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(0 | 3) => Storage::Factor,
            Port::In(1) | Port::Out(_) => Storage::Either,
            Port::In(_) => Storage::Single,
        }
    }

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        gpu::backward(&self.0, &self.0.extents(call.ins[0]), call)
    }

    fn scratch(&self, call: &ScratchCall<'_>) -> usize {
        let e = self.0.extents(call.ins[0]);
        match call.target {
            Target::Cpu => cpu::backward_scratch(&e),
            Target::Gpu(_) => gpu::backward_scratch(&e),
        }
    }
}

/// Uses that the generic checks run over. The log-sums are compared between executors but not
/// differentiated.
pub fn cases() -> Vec<Case> {
    let use_of = |name: &'static str, op: Attention, [batch, length, head]: [usize; 3]| {
        let ins = vec![(TensorType::f32([batch, length, 3 * op.heads * head]), Domain::Normal)];
        Case::graph(name, ins, move |graph, ins| {
            Ok(vec![graph.apply(Arc::new(op.clone()), ins)?[0]])
        })
    };
    let case = |name: &'static str,
                batch: usize,
                length: usize,
                heads: usize,
                head: usize,
                causal: bool,
                dropout: f32| {
        let op = Attention { heads, causal, window: None, alibi: false, dropout, stream: 3 };
        use_of(name, op, [batch, length, head])
    };
    let window = |heads: usize, window: usize| Attention {
        heads,
        causal: true,
        window: Some(window),
        alibi: false,
        dropout: 0.0,
        stream: 3,
    };
    let alibi = |heads: usize, causal: bool| Attention {
        causal,
        window: None,
        alibi: true,
        ..window(heads, 1)
    };
    // Three segments and padding, in no order.
    let segments = |name: &'static str, op: Attention, [batch, length, head]: [usize; 3]| {
        let ins = vec![
            (TensorType::f32([batch, length, 3 * op.heads * head]), Domain::Normal),
            (TensorType::i32([batch, length]), Domain::Index(4)),
        ];
        Case::graph(name, ins, move |graph, ins| {
            let numbers = graph.op(ToFloat, &[ins[1]])?;
            let numbers = map::unary(graph, numbers, |code, x| code.offset(x, -1.0))?;
            Ok(vec![graph.apply(Arc::new(op.clone()), &[ins[0], numbers])?[0]])
        })
    };
    let full = |heads: usize| Attention { causal: false, window: None, ..window(heads, 1) };
    vec![
        case("length1", 1, 1, 1, 4, true, 0.0),
        case("causal_length7", 2, 7, 2, 4, true, 0.0),
        case("full_length7", 2, 7, 2, 4, false, 0.0),
        case("causal_length17_head20", 1, 17, 2, 20, true, 0.0),
        case("full_length33_head16", 1, 33, 1, 16, false, 0.0),
        case("causal_length35_head64", 1, 35, 2, 64, true, 0.0),
        case("causal_length9_head80", 1, 9, 1, 80, true, 0.0),
        case("full_length11_head130", 1, 11, 1, 130, false, 0.0),
        case("causal_length70_head64", 1, 70, 1, 64, true, 0.1),
        // On matrix units: one workgroup and several, a last strip that is not whole.
        case("causal_length16_head16", 2, 16, 2, 16, true, 0.0),
        case("full_length48_head32", 1, 48, 2, 32, false, 0.0),
        case("causal_length208_head64", 1, 208, 2, 64, true, 0.1),
        case("dropout_length19", 2, 19, 2, 8, true, 0.3),
        use_of("window1_length7", window(1, 1), [2, 7, 4]),
        use_of("window5_length37", window(2, 5), [1, 37, 8]),
        use_of("window17_length70", window(1, 17), [1, 70, 20]),
        use_of("window_beyond_length9", window(1, 100), [1, 9, 4]),
        use_of("alibi_heads3_length19", alibi(3, true), [1, 19, 8]),
        use_of("alibi_heads2_full_length7", alibi(2, false), [2, 7, 4]),
        use_of(
            "alibi_window40_length208_head32",
            Attention { alibi: true, ..window(2, 40) },
            [1, 208, 32],
        ),
        use_of(
            "alibi_heads5_window3_length11",
            Attention { alibi: true, dropout: 0.2, ..window(5, 3) },
            [1, 11, 4],
        ),
        segments("segments_length1", full(1), [2, 1, 4]),
        segments("segments_length37", full(2), [2, 37, 8]),
        segments("segments_window5_length70", window(1, 5), [2, 70, 20]),
        segments("segments_length48_head32", full(2), [1, 48, 32]),
        segments(
            "segments_causal_dropout_length208_head16",
            Attention { window: None, dropout: 0.1, ..window(1, 1) },
            [1, 208, 16],
        ),
    ]
}
