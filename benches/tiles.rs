//! Times every tile and split of the matrix product on a GPU (WOOTZ_BENCH_DEVICE, else `auto`), for
//! the shapes that the comparison with PyTorch is made of: what the choice in ops/tile.rs is held
//! against. `cargo bench --bench tiles`

use std::sync::Arc;

use wootz::device::agreement::globals;
use wootz::device::gpu::{self, GpuDevice, Options};
use wootz::device::select::Variant;
use wootz::device::{Executor, Run};
use wootz::graph::{DType, Graph, Leaf, TensorType};
use wootz::ops::Target;
use wootz::ops::matmul::MatMul;
use wootz::ops::tile::{Choice, Problem, ProductKernel, choose};
use wootz::plan;

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
            let types = factors([m, n, k], [trans_a, trans_b], dtype);
            let extents = [1, m, n, k];
            let along_terms = [!trans_a, trans_b];
            let stored: Vec<&TensorType> = types.iter().collect();
            let kernel = ProductKernel::MatMul;
            let problem = Problem::new(kernel, extents, along_terms, &stored, &device.limits());
            let chosen = choose(&problem, &device.limits());
            let mut rows = Vec::new();
            let parts = |p: &usize| *p == 1 || (k / p >= 64 && p * m * n < 1 << 27);
            for tile in problem.tiles() {
                for parts in [1, 2, 4, 8, 16, 32].into_iter().filter(parts) {
                    let choice = Choice { tile, parts };
                    let op = Arc::new(MatMul::new(trans_a, trans_b));
                    rows.push((time(&device, Variant { op, problem, choice }, &types), choice));
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

/// The stored types of A and B.
fn factors([m, n, k]: [usize; 3], transposed: [bool; 2], dtype: DType) -> [TensorType; 2] {
    let stored = |rows, cols, transposed| {
        let ty = TensorType::f32(if transposed { [cols, rows] } else { [rows, cols] });
        TensorType { dtype, ..ty }
    };
    [stored(m, k, transposed[0]), stored(k, n, transposed[1])]
}

/// Microseconds of one product.
fn time(device: &GpuDevice, op: Variant, types: &[TensorType; 2]) -> f64 {
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
