// @use lib/recurrent_quads
// What the kernels of recurrent cells share. A dispatch is one step; the state that it multiplies
// with the weight is written by the dispatch of the step next to it. Tiles of both lie in workgroup
// memory as quads along the rows that they have in memory, their places in a row exchanged so that
// threads side by side read different banks. Groups of threads, slices, take turns at the terms of
// the sums; then every thread adds the slices' parts for one sample and unit, in order, and does
// the cell.

// Gates: the weight is [GATES * hidden, hidden].
const GATES: u32 = 4u;

// In the place of the step before the first and after the last.
const NONE: u32 = 0xffffffffu;

struct Dims {
    batch: u32,
    time: u32,
    hidden: u32,
    // The step, and those that run before and after it.
    step: u32,
    before: u32,
    after: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;

var<workgroup> tile: array<vec4<f32>, 1024>;

// The row of a sample's step in a sequence.
fn row_of(sample: u32, step: u32) -> u32 {
    return sample * dims.time + step;
}
