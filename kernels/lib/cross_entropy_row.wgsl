// @use lib/reduce
// What both directions of cross-entropy need of a row: its largest logit and log Σ eˣ.

struct Dims {
    rows: u32,
    cols: u32,
    ignore_index: u32,
    smoothing: f32,
}

alias logits_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> logits: array<logits_t>;
@group(0) @binding(3) var<storage, read_write> targets: array<u32>;

fn row_max(base: u32, local: u32) -> f32 {
    var top = -3.0e38;
    for (var j = local % LANES; j < dims.cols; j += LANES) {
        top = max(top, f32(logits[base + j]));
    }
    return workgroup_max(top, local);
}

fn row_log_total(base: u32, top: f32, local: u32) -> f32 {
    var total = 0.0;
    for (var j = local % LANES; j < dims.cols; j += LANES) {
        total += exp(f32(logits[base + j]) - top);
    }
    return top + log(workgroup_sum(total, local));
}
