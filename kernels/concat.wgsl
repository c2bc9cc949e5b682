// Copies between rows of different lengths, for joining and cutting along an axis:
// out[r, to + j] = input[r, start + j] for j < len; one thread an element copied.
// input [outer, in_row], out [outer, out_row].

struct Dims {
    outer: u32,
    in_row: u32,
    out_row: u32,
    start: u32,
    to: u32,
    len: u32,
}

alias input_t = f32;
alias out_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> input: array<input_t>;
@group(0) @binding(3) var<storage, read_write> out: array<out_t>;

@compute @workgroup_size(256)
fn copy(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let i = (group.y * groups.x + group.x) * 256u + local.x;
    if (i >= dims.outer * dims.len) {
        return;
    }
    let row = i / dims.len;
    let j = i % dims.len;
    out[row * dims.out_row + dims.to + j] = out_t(f32(input[row * dims.in_row + dims.start + j]));
}
