// Windows along an axis, one thread an element of a window; and the sums back, one thread an element
// that adds its places in the windows in order. x [outer, mid, len, inner],
// windows [outer, windows, mid, kernel, inner].

struct Dims {
    outer: u32,
    mid: u32,
    len: u32,
    inner: u32,
    windows: u32,
    kernel: u32,
    stride: u32,
    before: u32,
    dilation: u32,
}

alias input_t = f32;
alias out_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> input: array<input_t>;
@group(0) @binding(3) var<storage, read_write> out: array<out_t>;

@compute @workgroup_size(256)
fn unfold(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    let place = i / dims.inner;
    let k = place % dims.kernel;
    let c = place / dims.kernel % dims.mid;
    let window = place / dims.kernel / dims.mid;
    let b = window / dims.windows;
    if (b >= dims.outer) {
        return;
    }
    // Before the first element this wraps to a huge number and fails the test.
    let at = window % dims.windows * dims.stride + k * dims.dilation - dims.before;
    let origin = ((b * dims.mid + c) * dims.len + min(at, dims.len - 1u)) * dims.inner + i % dims.inner;
    out[i] = out_t(select(0.0, f32(input[origin]), at < dims.len));
}

@compute @workgroup_size(256)
fn fold(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    let place = i / dims.inner;
    let line = place / dims.len;
    let b = line / dims.mid;
    if (b >= dims.outer) {
        return;
    }
    let at = place % dims.len + dims.before;
    var total = 0.0;
    for (var k = 0u; k < dims.kernel && k * dims.dilation <= at; k++) {
        let start = at - k * dims.dilation;
        let window = start / dims.stride;
        if (window * dims.stride == start && window < dims.windows) {
            total += f32(input[(((b * dims.windows + window) * dims.mid + line % dims.mid) * dims.kernel + k) * dims.inner + i % dims.inner]);
        }
    }
    out[i] = out_t(total);
}
