// What a product's result goes through before it is stored. Fusion puts an elementwise map here;
// this is the plain store.

@group(0) @binding(4) var<storage, read_write> out0: array<f32>;

fn epilogue(i: u32, value: f32) {
    out0[i] = value;
}
