// @use lib/embedding_id
// Rows of a table [rows, width] by id: out[i, j] = table[ids[i], j]; one thread an element. An id
// outside of the table gives NaN.

struct Dims {
    rows: u32,
    width: u32,
    n: u32,
}

alias out_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> table: array<f32>;
@group(0) @binding(3) var<storage, read_write> ids: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<out_t>;

@compute @workgroup_size(256)
fn embedding(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if (i >= dims.n) {
        return;
    }
    let id = id_of(ids[i / dims.width]);
    if (id < dims.rows) {
        out[i] = out_t(table[id * dims.width + i % dims.width]);
    } else {
        out[i] = out_t(bitcast<f32>(0x7fc00000u | (id & 0u)));
    }
}
