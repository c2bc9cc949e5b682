// @use lib/embedding_id
// The gradient of an embedding's table: out[r, j] = Σ dy[i, j] over the places i where ids[i] = r, in
// their order by quarters. A workgroup takes one row and 64 columns. It looks at 1,024 ids at a
// time; where the row is among them, a list of its places is made by a running count, and four groups
// of 64 threads take turns at the list. The four sums are added at the end.
//
// Where BY_ROW is 1 there is a workgroup for each row of the table, else for each place, of which the
// first one of an id takes its row; `zero` has filled the table before.

const BY_ROW: u32 = 1u;

struct Dims {
    rows: u32,
    width: u32,
    ids: u32,
    // The row that gets no gradient; past the table where there is none.
    padding: u32,
}

alias dy_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> dy: array<dy_t>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

// Whether the row is among the ids at hand, and whether an earlier place has it.
var<workgroup> found: u32;
var<workgroup> taken: u32;
var<workgroup> counts: array<u32, 256>;
var<workgroup> places: array<u32, 1024>;
var<workgroup> totals: array<f32, 256>;

@compute @workgroup_size(256)
fn zero(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if (i < dims.rows * dims.width) {
        out[i] = 0.0;
    }
}

@compute @workgroup_size(256)
fn embedding_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let index = group.y * groups.x + group.x;
    let strips = (dims.width + 63u) / 64u;
    let owner = index / strips;
    var row = owner;
    var exists = owner < dims.rows;
    if (BY_ROW == 0u) {
        row = id_of(ids[min(owner, dims.ids - 1u)]);
        exists = owner < dims.ids && row < dims.rows && row != dims.padding;
    }
    let column = (index % strips) * 64u + local % 64u;
    let quarter = local / 64u;
    let live = exists && column < dims.width;
    if (local == 0u) {
        taken = 0u;
    }
    var total = 0.0;
    for (var first = 0u; first < dims.ids; first += 1024u) {
        if (local == 0u) {
            found = 0u;
        }
        workgroupBarrier();
        var own = 0u;
        for (var e = 0u; e < 4u; e++) {
            let place = first + local * 4u + e;
            if (place < dims.ids && id_of(ids[min(place, dims.ids - 1u)]) == row && row != dims.padding) {
                own += 1u;
                found = 1u;
                if (BY_ROW == 0u && place < owner) {
                    taken = 1u;
                }
            }
        }
        if (workgroupUniformLoad(&taken) == 1u) {
            break;
        }
        if (workgroupUniformLoad(&found) == 0u) {
            continue;
        }
        counts[local] = own;
        workgroupBarrier();
        for (var width = 1u; width < 256u; width <<= 1u) {
            var before = 0u;
            if (local >= width) {
                before = counts[local - width];
            }
            workgroupBarrier();
            counts[local] += before;
            workgroupBarrier();
        }
        var to = counts[local] - own;
        for (var e = 0u; e < 4u; e++) {
            let place = first + local * 4u + e;
            if (place < dims.ids && id_of(ids[min(place, dims.ids - 1u)]) == row) {
                places[to] = place;
                to += 1u;
            }
        }
        workgroupBarrier();
        if (live) {
            for (var k = quarter; k < counts[255]; k += 4u) {
                total += f32(dy[places[k] * dims.width + column]);
            }
        }
        workgroupBarrier();
    }
    totals[local] = total;
    workgroupBarrier();
    if (quarter == 0u && live && taken == 0u) {
        out[row * dims.width + column] = (totals[local] + totals[local + 64u]) + (totals[local + 128u] + totals[local + 192u]);
    }
}
