// @use lib/cross_entropy_row
// The gradient of cross-entropy's loss with respect to the logits; a group of LANES threads a row:
//   dx = (softmax x − ε/cols − (1 − ε)·[j = t]) · d_loss, or 0 where the target is ignored.

alias dx_t = f32;

@group(0) @binding(4) var<storage, read_write> d_loss: array<f32>;
@group(0) @binding(5) var<storage, read_write> dx: array<dx_t>;

@compute @workgroup_size(256)
fn cross_entropy_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = (group.y * groups.x + group.x) * (256u / LANES) + local / LANES;
    let lane = local % LANES;
    let live = row < dims.rows;
    let base = select(0u, row * dims.cols, live);
    let top = row_max(base, local);
    let log_total = row_log_total(base, top, local);
    if (!live) {
        return;
    }
    let label = targets[row];
    let scale = select(d_loss[row], 0.0, label == dims.ignore_index);
    let spread = dims.smoothing / f32(dims.cols);
    for (var j = lane; j < dims.cols; j += LANES) {
        let wanted = spread + select(0.0, 1.0 - dims.smoothing, j == label);
        dx[base + j] = dx_t((exp(f32(logits[base + j]) - log_total) - wanted) * scale);
    }
}
