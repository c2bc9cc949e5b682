// The gradient of an embedding's table: out[r, j] = Σ dy[i, j] over the places i where
// ids[i] = r, in their order. A workgroup takes one row and 64 columns. Its 256 threads look at
// 256 ids at a time and note where the row's id stands; then four groups of 64 threads each add a
// quarter of the ids' cotangents in order, and the quarters are added at the end.

struct Dims {
    rows: u32,
    width: u32,
    ids: u32,
    // The row without gradient.
    padding: u32,
}

alias dy_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> dy: array<dy_t>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

var<workgroup> hits: array<u32, 256>;
var<workgroup> totals: array<f32, 256>;

@compute @workgroup_size(256)
fn embedding_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let index = group.y * groups.x + group.x;
    let strips = (dims.width + 63u) / 64u;
    let row = index / strips;
    let column = (index % strips) * 64u + local % 64u;
    let quarter = local / 64u;
    let live = row < dims.rows && column < dims.width;
    var total = 0.0;
    for (var first = 0u; first < dims.ids; first += 256u) {
        let place = first + local;
        hits[local] = 0u;
        if (place < dims.ids) {
            hits[local] = select(0u, 1u, ids[place] == row && row != dims.padding);
        }
        workgroupBarrier();
        if (live) {
            for (var k = quarter * 64u; k < quarter * 64u + 64u; k++) {
                if (hits[k] != 0u) {
                    total += f32(dy[(first + k) * dims.width + column]);
                }
            }
        }
        workgroupBarrier();
    }
    totals[local] = total;
    workgroupBarrier();
    if (quarter == 0u && live) {
        out[row * dims.width + column] = (totals[local] + totals[local + 64u]) + (totals[local + 128u] + totals[local + 192u]);
    }
}
