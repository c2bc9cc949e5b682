//! Matrix products: `C = op(A)·op(B)` of rank 2, or of rank 3 with a common batch, with an
//! optional elementwise map applied to the product before it is stored. Layers call [`matmul`];
//! fusion adds the map.

mod cpu;
mod gpu;

use std::sync::Arc;

use super::map::{Code, Map, Unary};
use super::selection::{Free, Product};
use super::{
    Call, Case, Domain, GpuCall, Grad, GradCall, Launch, Op, Port, Real, ScratchCall, Storage,
    Target,
};
use crate::cpu_by_eval;
use crate::graph::{Graph, Shape, ShapeError, TensorType, ValueId};

/// A matrix product. Operands: A `[.., M, K]` (`[.., K, M]` where transposed), B `[.., K, N]`
/// (`[.., N, K]` where transposed), then the further operands of the epilogue. Results: the
/// product `[.., M, N]`, or the epilogue's outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct MatMul {
    /// Whether A is stored transposed.
    pub trans_a: bool,
    /// Whether B is stored transposed.
    pub trans_b: bool,
    /// A map over the product (its operand 0); its shape has as many elements as the product.
    pub epilogue: Option<Map>,
}

/// The extents of one product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extents {
    /// Matrices.
    pub batch: usize,
    /// Rows of C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// Length of the sums.
    pub k: usize,
}

impl Extents {
    fn outputs(&self) -> usize {
        self.batch * self.m * self.n
    }
}

impl MatMul {
    /// A product without an epilogue.
    pub fn new(trans_a: bool, trans_b: bool) -> Self {
        MatMul { trans_a, trans_b, epilogue: None }
    }

    /// The extents for these operands, or what does not fit.
    fn extents(&self, a: &TensorType, b: &TensorType) -> Result<Extents, String> {
        if !a.dtype.is_float() || !b.dtype.is_float() {
            return Err(format!("expected two float matrices, got {a} and {b}"));
        }
        let (rank, a_dims, b_dims) = (a.shape.rank(), a.shape.dims(), b.shape.dims());
        if rank != b.shape.rank() || !(2..=3).contains(&rank) {
            return Err(format!(
                "expected two matrices or two batches of matrices, got {} and {}",
                a.shape, b.shape
            ));
        }
        let stored = |dims: &[usize], transposed: bool| {
            let (rows, cols) = (dims[rank - 2], dims[rank - 1]);
            if transposed { (cols, rows) } else { (rows, cols) }
        };
        let ((m, k), (k_b, n)) = (stored(a_dims, self.trans_a), stored(b_dims, self.trans_b));
        let batch = if rank == 3 { a_dims[0] } else { 1 };
        if rank == 3 && b_dims[0] != batch {
            return Err(format!("batches of {batch} and {} matrices", b_dims[0]));
        }
        if k != k_b {
            return Err(format!(
                "cannot multiply {}{} by {}{}: sums of length {k} and {k_b}",
                a.shape,
                if self.trans_a { " transposed" } else { "" },
                b.shape,
                if self.trans_b { " transposed" } else { "" },
            ));
        }
        Ok(Extents { batch, m, n, k })
    }

    /// The extents of operands that [`Op::infer`] has accepted.
    fn accepted(&self, ins: &[&TensorType]) -> Extents {
        match self.extents(ins[0], ins[1]) {
            Ok(extents) => extents,
            Err(message) => unreachable!("operands that infer accepted: {message}"),
        }
    }

    fn product_type(&self, ins: &[&TensorType]) -> Result<TensorType, String> {
        let Extents { batch, m, n, .. } = self.extents(ins[0], ins[1])?;
        let dims = if ins[0].shape.rank() == 3 { vec![batch, m, n] } else { vec![m, n] };
        Ok(TensorType::f32(Shape::new(dims)))
    }

    /// The gradients of A and B, given the cotangent of the product.
    fn operand_grads(
        &self,
        graph: &mut Graph,
        call: &GradCall<'_>,
        d: ValueId,
    ) -> Result<Vec<Grad>, ShapeError> {
        let (a, b) = (call.ins[0], call.ins[1]);
        let mut grads = vec![Grad::Unneeded; 2];
        if call.needs[0] {
            grads[0] = Grad::Flows(if self.trans_a {
                matmul(graph, b, d, self.trans_b, true)?
            } else {
                matmul(graph, d, b, false, !self.trans_b)?
            });
        }
        if call.needs[1] {
            grads[1] = Grad::Flows(if self.trans_b {
                matmul(graph, d, a, true, self.trans_a)?
            } else {
                matmul(graph, a, d, !self.trans_a, false)?
            });
        }
        Ok(grads)
    }
}

impl Op for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        if ins.len() < 2 {
            return Err(format!("expected two matrices, got {} operands", ins.len()));
        }
        let product = self.product_type(ins)?;
        let Some(map) = &self.epilogue else {
            if ins.len() > 2 {
                return Err(format!("expected two matrices, got {} operands", ins.len()));
            }
            return Ok(vec![product]);
        };
        if product.shape.elements() != map.shape.elements() {
            return Err(format!("a map onto {} cannot follow {}", map.shape, product.shape));
        }
        let as_mapped = TensorType::f32(map.shape.clone());
        let mut map_ins = vec![&as_mapped];
        map_ins.extend_from_slice(&ins[2..]);
        map.infer(&map_ins)
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let Some(map) = &self.epilogue else {
            return self.operand_grads(graph, call, call.d_out());
        };
        // The product was not stored: it is computed again for the map's gradient.
        let product = matmul(graph, call.ins[0], call.ins[1], self.trans_a, self.trans_b)?;
        let mapped = graph.reshape(product, map.shape.clone())?;
        let mut map_ins = vec![mapped];
        map_ins.extend_from_slice(&call.ins[2..]);
        let mut map_needs = vec![call.needs[0] || call.needs[1]];
        map_needs.extend_from_slice(&call.needs[2..]);
        let map_call = GradCall { ins: &map_ins, needs: &map_needs, ..*call };
        let map_grads = map.grad(graph, &map_call)?;
        let mut grads = match map_grads[0] {
            Grad::Flows(d) => {
                let d = graph.reshape(d, graph.shape(product).clone())?;
                self.operand_grads(graph, call, d)?
            }
            other => vec![other; 2],
        };
        grads.extend_from_slice(&map_grads[1..]);
        Ok(grads)
    }

    fn flops(&self, ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        let e = self.accepted(ins);
        let map = self.epilogue.as_ref().map_or(0, |map| map.flops(&ins[2..], outs));
        2 * (e.outputs() * e.k) as u64 + map
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        gpu::launches(self, call)
    }

    fn scratch(&self, call: &ScratchCall<'_>) -> usize {
        match call.target {
            Target::Cpu => cpu::scratch(self, self.accepted(call.ins)),
            Target::Gpu(limits) => gpu::scratch(self, call.ins, limits),
        }
    }

    fn product(&self, call: &GpuCall<'_>) -> Option<Product> {
        let rank = call.ins[0].shape.rank();
        let rows = if self.trans_a { rank - 1 } else { rank - 2 };
        let cols = if self.trans_b { rank - 2 } else { rank - 1 };
        Some(Product {
            problem: gpu::problem(self, call.ins, call.limits),
            op: Arc::new(MatMul::new(self.trans_a, self.trans_b)),
            free: vec![
                Free { factor: 0, axis: rows, out: rank - 2 },
                Free { factor: 1, axis: cols, out: rank - 1 },
            ],
        })
    }

    fn storage(&self, port: Port) -> Storage {
        match port {
            Port::In(0 | 1) => Storage::Factor,
            _ => Storage::Either,
        }
    }

    fn with_epilogue(&self, map: &Map) -> Option<Arc<dyn Op>> {
        if self.epilogue.is_some() {
            return None;
        }
        Some(Arc::new(MatMul { epilogue: Some(map.clone()), ..*self }))
    }

    fn unfused(&self, graph: &mut Graph, ins: &[ValueId]) -> Option<Vec<ValueId>> {
        let map = self.epilogue.as_ref()?;
        let product = matmul(graph, ins[0], ins[1], self.trans_a, self.trans_b).ok()?;
        let mapped = graph.reshape(product, map.shape.clone()).ok()?;
        let mut map_ins = vec![mapped];
        map_ins.extend_from_slice(&ins[2..]);
        graph.apply(Arc::new(map.clone()), &map_ins).ok()
    }
}

impl MatMul {
    fn eval<R: Real>(&self, call: Call<'_, R>) {
        cpu::eval(self, call);
    }
}

/// `op(a)·op(b)`.
///
/// # Errors
/// When the extents do not fit.
pub fn matmul(
    graph: &mut Graph,
    a: ValueId,
    b: ValueId,
    trans_a: bool,
    trans_b: bool,
) -> Result<ValueId, ShapeError> {
    graph.op(MatMul::new(trans_a, trans_b), &[a, b])
}

/// The stored types of A and B for these extents.
fn operand_types(e: Extents, trans_a: bool, trans_b: bool, rank: usize) -> [TensorType; 2] {
    let ty = |rows: usize, cols: usize, transposed: bool| {
        let (rows, cols) = if transposed { (cols, rows) } else { (rows, cols) };
        let dims = if rank == 3 { vec![e.batch, rows, cols] } else { vec![rows, cols] };
        TensorType::f32(Shape::new(dims))
    };
    [ty(e.m, e.k, trans_a), ty(e.k, e.n, trans_b)]
}

/// Extents of the checked products: size 1, primes, one more than each tile, several tiles, aligned
/// and not, long sums that are split; from the tenth on, what each tile is the choice for.
pub(super) const SIZES: [(usize, usize, usize); 14] = [
    (1, 1, 1),
    (7, 5, 3),
    (17, 1, 19),
    (1, 23, 16),
    (33, 36, 17),
    (65, 33, 12),
    (132, 68, 20),
    (10, 31, 600),
    (36, 40, 260),
    (1285, 1283, 9),
    (2604, 2600, 8),
    (260, 264, 2048),
    (64, 2600, 9),
    (200, 1300, 8),
];

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (m, n, k) in &SIZES[..9] {
        let (m, n, k) = (*m, *n, *k);
        for (trans_a, trans_b) in [(false, false), (false, true), (true, false), (true, true)] {
            let e = Extents { batch: 1, m, n, k };
            cases.push(plain_case(e, trans_a, trans_b, 2));
        }
    }
    for (trans_a, trans_b) in [(false, false), (false, true), (true, false), (true, true)] {
        cases.push(plain_case(Extents { batch: 3, m: 35, n: 4, k: 9 }, trans_a, trans_b, 3));
    }
    cases.push(plain_case(Extents { batch: 1, m: 5, n: 6, k: 7 }, false, true, 3));
    cases.push(plain_case(Extents { batch: 2, m: 20, n: 24, k: 520 }, false, false, 3));
    // Each tile of the GPU kernel, its quads along either axis; aligned rows; split sums.
    for (m, n, k) in SIZES.into_iter().skip(9) {
        for transposed in [false, true] {
            let e = Extents { batch: 1, m, n, k };
            cases.push(plain_case(e, transposed, transposed, 2));
        }
    }
    // Two products in a row: in mixed precision the first's result is stored in half.
    let ins = [[33, 17], [17, 36], [36, 20]].map(|dims| (TensorType::f32(dims), Domain::Normal));
    cases.push(Case::graph("chain", ins.to_vec(), |graph, v| {
        let first = matmul(graph, v[0], v[1], false, false)?;
        Ok(vec![matmul(graph, first, v[2], false, false)?])
    }));
    cases.push(epilogue_case(Extents { batch: 1, m: 33, n: 36, k: 17 }));
    cases.push(epilogue_case(Extents { batch: 1, m: 9, n: 10, k: 700 }));
    cases
}

fn plain_case(e: Extents, trans_a: bool, trans_b: bool, rank: usize) -> Case {
    let flag = |transposed| if transposed { 't' } else { 'n' };
    let name = format!(
        "rank{rank}_b{}_m{}_n{}_k{}_{}{}",
        e.batch,
        e.m,
        e.n,
        e.k,
        flag(trans_a),
        flag(trans_b)
    );
    let ins = operand_types(e, trans_a, trans_b, rank).map(|ty| (ty, Domain::Normal));
    Case::op(name, MatMul::new(trans_a, trans_b), ins.to_vec())
}

/// A product with a bias and a tanh.
fn epilogue_case(e: Extents) -> Case {
    let mut code = Code::new();
    let (product, bias) = (code.input(0), code.input(1));
    let sum = code.add(product, bias);
    let small = code.scale(sum, 0.1);
    let squashed = code.unary(Unary::Tanh, small);
    code.outs = vec![squashed];
    let map = Map { code, inputs: 2, shape: [e.m, e.n].into() };
    let op = MatMul { epilogue: Some(map), ..MatMul::new(false, true) };
    let mut ins = operand_types(e, false, true, 2).map(|ty| (ty, Domain::Normal)).to_vec();
    ins.push((TensorType::f32([e.n]), Domain::Normal));
    Case::op(format!("epilogue_m{}_n{}_k{}", e.m, e.n, e.k), op, ins)
}
