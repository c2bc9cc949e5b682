// Reductions over a workgroup of 256 threads, in a fixed order. Every thread gets the result;
// the barriers inside make it safe to call one after another.

var<workgroup> reduce_cells: array<f32, 256>;

fn workgroup_sum(value: f32, local: u32) -> f32 {
    reduce_cells[local] = value;
    workgroupBarrier();
    for (var width = 128u; width > 0u; width >>= 1u) {
        if (local < width) {
            reduce_cells[local] += reduce_cells[local + width];
        }
        workgroupBarrier();
    }
    let total = reduce_cells[0];
    workgroupBarrier();
    return total;
}

fn workgroup_max(value: f32, local: u32) -> f32 {
    reduce_cells[local] = value;
    workgroupBarrier();
    for (var width = 128u; width > 0u; width >>= 1u) {
        if (local < width) {
            reduce_cells[local] = max(reduce_cells[local], reduce_cells[local + width]);
        }
        workgroupBarrier();
    }
    let top = reduce_cells[0];
    workgroupBarrier();
    return top;
}
