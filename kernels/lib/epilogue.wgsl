// What a product's result goes through before it is stored. Fusion puts an elementwise map here;
// this is the plain store.

@group(0) @binding(4) var<storage, read_write> out0: array<f32>;

fn epilogue(at: vec4<u32>, live: vec4<bool>, values: vec4<f32>) {
    // @for j in 4
    if (live[$j]) {
        out0[at[$j]] = values[$j];
    }
    // @end
}
