// The elements below the diagonal of square matrices x [batch, n, n] as rows y [batch, taken], with the
// diagonal where DIAGONAL is 1; and the gradient, which puts them back and zeros elsewhere. One
// thread an element of the matrices.

const DIAGONAL: u32 = 0u;

struct Dims {
    elements: u32,
    n: u32,
    // Elements taken of a matrix.
    taken: u32,
}

alias input_t = f32;
alias out_t = f32;

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> input: array<input_t>;
@group(0) @binding(3) var<storage, read_write> out: array<out_t>;

// Whether an element of the matrices is taken.
fn is_taken(index: u32) -> bool {
    return index % dims.n < index / dims.n % dims.n + DIAGONAL;
}

// Where an element that is taken stands in y: after those of the rows above, 0 + 1 + 2 + ….
fn place(index: u32) -> u32 {
    let row = index / dims.n % dims.n + DIAGONAL;
    return index / (dims.n * dims.n) * dims.taken + row * (row - 1u) / 2u + index % dims.n;
}

@compute @workgroup_size(256)
fn tril(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if (i < dims.elements && is_taken(i)) {
        out[place(i)] = out_t(f32(input[i]));
    }
}

@compute @workgroup_size(256)
fn tril_grad(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = (group.y * groups.x + group.x) * 256u + local;
    if (i >= dims.elements) {
        return;
    }
    var d = 0.0;
    if (is_taken(i)) {
        d = f32(input[place(i)]);
    }
    out[i] = out_t(d);
}
