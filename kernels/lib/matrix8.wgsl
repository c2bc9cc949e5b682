enable wgpu_cooperative_matrix;
// Matrix units of 8x8: parts of the factors in half precision, of the sums in single precision.

const SIDE: u32 = 8u;

alias left_part = coop_mat8x8<f16, A>;
alias right_part = coop_mat8x8<f16, B>;
alias sum_part = coop_mat8x8<f32, C>;

// How tiles of factors are kept: Metal loads a matrix from single numbers.
alias cell_t = f16;
const CELL: u32 = 1u;
const QUAD_CELLS: u32 = 4u;

fn cell(quad: vec4<f16>, at: u32) -> f16 {
    return quad[at];
}

// The quad whose numbers lie in these cells.
fn quad_of(x: f16, y: f16, z: f16, w: f16) -> vec4<f16> {
    return vec4<f16>(x, y, z, w);
}
