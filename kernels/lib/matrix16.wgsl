enable wgpu_cooperative_matrix;
// Matrix units of 16x16: parts of the factors in half precision, of the sums in single precision.

const SIDE: u32 = 16u;

alias left_part = coop_mat16x16<f16, A>;
alias right_part = coop_mat16x16<f16, B>;
alias sum_part = coop_mat16x16<f32, C>;

// How tiles of factors are kept: by quads, which are stored at once.
alias cell_t = vec4<f16>;
const CELL: u32 = 4u;
const QUAD_CELLS: u32 = 1u;

fn cell(quad: vec4<f16>, at: u32) -> vec4<f16> {
    return quad;
}

// The quad whose numbers lie in these cells.
fn quad_of(x: vec4<f16>, y: vec4<f16>, z: vec4<f16>, w: vec4<f16>) -> vec4<f16> {
    return x;
}
