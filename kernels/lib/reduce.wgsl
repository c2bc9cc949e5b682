// Reductions over groups of LANES threads of a workgroup of 256, in a fixed order. Every thread gets
// its group's result; the barriers inside make it safe to call one after another.

// A power of two.
const LANES: u32 = 256u;

var<workgroup> reduce_cells: array<f32, 256>;

fn workgroup_sum(value: f32, local: u32) -> f32 {
    reduce_cells[local] = value;
    workgroupBarrier();
    for (var width = LANES / 2u; width > 0u; width >>= 1u) {
        if (local % LANES < width) {
            reduce_cells[local] += reduce_cells[local + width];
        }
        workgroupBarrier();
    }
    let total = reduce_cells[local / LANES * LANES];
    workgroupBarrier();
    return total;
}

fn workgroup_max(value: f32, local: u32) -> f32 {
    reduce_cells[local] = value;
    workgroupBarrier();
    for (var width = LANES / 2u; width > 0u; width >>= 1u) {
        if (local % LANES < width) {
            reduce_cells[local] = max(reduce_cells[local], reduce_cells[local + width]);
        }
        workgroupBarrier();
    }
    let top = reduce_cells[local / LANES * LANES];
    workgroupBarrier();
    return top;
}
