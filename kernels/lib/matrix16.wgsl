enable wgpu_cooperative_matrix;
// Matrix units of 16x16: parts of the factors in half precision, of the sums in single precision.

const SIDE: u32 = 16u;

alias left_part = coop_mat16x16<f16, A>;
alias right_part = coop_mat16x16<f16, B>;
alias sum_part = coop_mat16x16<f32, C>;
