// Another order of the axes. A place along all axes but the row (the result's last axis) and, in
// transpose, the column (the operand's last axis) is found from the axes `others`, innermost first:
// their extent, elements between neighbours in x and in y.
//   fetch:     y[i] = x[…], one thread an element; the column has extent 1
//   transpose: tiles of 32 x 32 through workgroup memory; x is read along the column and y written
//              along the row

struct Dims {
    places: u32,
    row: u32,
    // Elements of x between neighbours of the row.
    row_stride: u32,
    column: u32,
    // Elements of y between neighbours of the column.
    column_step: u32,
    pad_0: u32,
    pad_1: u32,
    pad_2: u32,
    others: array<vec4<u32>, 7>,
}

alias x_t = f32;
alias y_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> x: array<x_t>;
@group(0) @binding(3) var<storage, read_write> y: array<y_t>;

// Padded, so that columns of a tile lie in different banks.
var<workgroup> tile: array<f32, 1056>;

// Offsets of a place in x and y.
fn offsets(place: u32) -> vec2<u32> {
    var rest = place;
    var at = vec2<u32>();
    for (var axis = 0u; axis < 7u; axis++) {
        let other = dims.others[axis];
        at += (rest % other.x) * other.yz;
        rest /= other.x;
    }
    return at;
}

@compute @workgroup_size(256)
fn fetch(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if (i >= dims.places * dims.row) {
        return;
    }
    y[i] = y_t(x[offsets(i / dims.row).x + (i % dims.row) * dims.row_stride]);
}

@compute @workgroup_size(256)
fn transpose(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let index = group.y * groups.x + group.x;
    let across = (dims.row + 31u) / 32u;
    let down = (dims.column + 31u) / 32u;
    let place = index / (across * down);
    let live = place < dims.places;
    let at = offsets(select(0u, place, live));
    let row = (index % across) * 32u;
    let column = ((index / across) % down) * 32u;
    let lane = local % 32u;
    for (var k = local / 32u; k < 32u; k += 8u) {
        if (live && row + k < dims.row && column + lane < dims.column) {
            tile[k * 33u + lane] = f32(x[at.x + (row + k) * dims.row_stride + column + lane]);
        }
    }
    workgroupBarrier();
    for (var k = local / 32u; k < 32u; k += 8u) {
        if (live && row + lane < dims.row && column + k < dims.column) {
            y[at.y + (column + k) * dims.column_step + row + lane] = y_t(tile[lane * 33u + k]);
        }
    }
}
