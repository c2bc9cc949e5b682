//! Times every tile and split of the matrix product on a GPU (WOOTZ_BENCH_DEVICE, else `auto`), for
//! the shapes that the comparison with PyTorch is made of: what the choice in ops/tile.rs is held
//! against. `cargo bench --bench tiles`

use std::sync::Arc;

use wootz::device::agreement::globals;
use wootz::device::gpu::{self, GpuDevice, Options};
use wootz::device::{Executor, Run};
use wootz::graph::{DType, Graph, Leaf, ShapeError, TensorType};
use wootz::ops::matmul::{MatMul, launches_with};
use wootz::ops::tile::{Choice, Problem, choose};
use wootz::ops::{Call, GpuCall, Grad, GradCall, Launch, Op, ScratchCall, Target};
use wootz::plan;

/// A product that runs with a given variant.
#[derive(Debug)]
struct Forced(MatMul, Choice);

impl Op for Forced {
    fn name(&self) -> &'static str {
        "matmul"
    }
    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        self.0.infer(ins)
    }
    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        self.0.grad(graph, call)
    }
    fn flops(&self, ins: &[&TensorType], outs: &[&TensorType]) -> u64 {
        self.0.flops(ins, outs)
    }
    fn cpu_f32(&self, call: Call<'_, f32>) {
        self.0.cpu_f32(call);
    }
    fn cpu_f64(&self, call: Call<'_, f64>) {
        self.0.cpu_f64(call);
    }
    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        launches_with(&self.0, call, self.1)
    }
    fn scratch(&self, call: &ScratchCall<'_>) -> usize {
        self.1.parts * call.outs[0].shape.elements()
    }
}

/// m, n, k, whether A and B are stored transposed.
const SHAPES: [(usize, usize, usize, bool, bool); 15] = [
    (4096, 4096, 4096, false, false),
    (8192, 3072, 768, false, true),
    (8192, 50_257, 768, false, true),
    (128, 1024, 784, false, true),
    (128, 1024, 1024, false, false),
    (1024, 1024, 128, true, false),
    (128, 10, 1024, false, true),
    (10, 1024, 128, true, false),
    (32, 128, 784, false, true),
    (128, 784, 32, true, false),
    (16_384, 1536, 384, false, true),
    (16_384, 384, 384, false, true),
    (16_384, 384, 1536, false, false),
    (1536, 384, 16_384, true, false),
    (384, 384, 16_384, true, false),
];

fn main() {
    let asked = std::env::var("WOOTZ_BENCH_DEVICE").unwrap_or_else(|_| "auto".into());
    let device = match gpu::open(&asked) {
        Ok(device) => device,
        Err(error) => return eprintln!("no tiles were timed: {error}"),
    };
    for (m, n, k, trans_a, trans_b) in SHAPES {
        for dtype in [DType::F32, DType::F16] {
            let units = device.limits().matrix.filter(|_| dtype == DType::F16);
            let problem = Problem { layers: 1, m, n, k, units };
            let chosen = choose(&problem, &device.limits());
            let mut rows = Vec::new();
            let parts = |p: &usize| *p == 1 || (k / p >= 64 && p * m * n < 1 << 27);
            for tile in problem.tiles() {
                for parts in [1, 2, 4, 8, 16, 32].into_iter().filter(parts) {
                    let choice = Choice { tile, parts };
                    let op = Forced(MatMul::new(trans_a, trans_b), choice);
                    rows.push((time(&device, op, [m, n, k], dtype), choice));
                }
            }
            rows.sort_by(|a, b| a.0.total_cmp(&b.0));
            let show = |(us, c): &(f64, Choice)| {
                let rate = 2.0 * (m * n * k) as f64 / us * 1e-6;
                format!("{}x{}/{} {us:.1} ({rate:.1})", c.tile.rows, c.tile.cols, c.parts)
            };
            let best: Vec<String> = rows.iter().take(4).map(show).collect();
            let ours = rows.iter().find(|(_, c)| *c == chosen).map(show).unwrap_or_default();
            let name = dtype.name();
            println!("{name} {m}x{n}x{k}: chosen {ours} µs (TFLOP/s); best {}", best.join(", "));
        }
    }
}

/// Microseconds of one product.
fn time(device: &GpuDevice, op: Forced, [m, n, k]: [usize; 3], dtype: DType) -> f64 {
    let stored = |rows, cols, transposed| {
        let ty = TensorType::f32(if transposed { [cols, rows] } else { [rows, cols] });
        TensorType { dtype, ..ty }
    };
    let types = [stored(m, k, op.0.trans_a), stored(k, n, op.0.trans_b)];
    let mut graph = Graph::new();
    let inputs: Vec<_> = (0..2).map(|i| graph.leaf(Leaf::Input(i), types[i].clone())).collect();
    let out = graph.apply(Arc::new(op), &inputs).expect("extents that fit");
    let target = Target::Gpu(device.limits());
    let plan =
        plan::of_graph(&graph, &inputs, &out, &target, plan::Precision::Single).expect("a plan");
    let options = Options { checked: false, ..Options::default() };
    let mut executor = device.clone().prepare(&plan, options).expect("a device");
    let bytes: Vec<Vec<u8>> = types.iter().map(|ty| vec![0; ty.bytes() as usize]).collect();
    let run =
        Run { program: 0, inputs: bytes.iter().map(Vec::as_slice).collect(), globals: globals() };
    let times = executor.time_steps(&run, 50).expect("a time");
    times[0].as_secs_f64() * 1e6
}
