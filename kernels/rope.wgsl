// Turns pairs of features of x [batch, length, width] by the angles whose cosines and sines are
// tables [length, head / 2]; columns from `columns` on pass as they are. One thread an element.

const INVERSE: u32 = 0u;

struct Dims {
    elements: u32,
    length: u32,
    width: u32,
    head: u32,
    columns: u32,
}

alias x_t = f32;
alias y_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> x: array<x_t>;
@group(0) @binding(3) var<storage, read_write> cosines: array<f32>;
@group(0) @binding(4) var<storage, read_write> sines: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<y_t>;

@compute @workgroup_size(256)
fn rope(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if (i >= dims.elements) {
        return;
    }
    let column = i % dims.width;
    var value = f32(x[i]);
    if (column < dims.columns) {
        let half_head = dims.head / 2u;
        let feature = column % dims.head;
        let first = feature < half_head;
        let at = i / dims.width % dims.length * half_head + feature % half_head;
        let other = f32(x[select(i - half_head, i + half_head, first)]);
        let turned = select(sines[at], -sines[at], first == (INVERSE == 0u));
        value = value * cosines[at] + other * turned;
    }
    y[i] = y_t(value);
}
