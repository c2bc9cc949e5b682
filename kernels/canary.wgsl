// The last dispatch of every submission: counts the submissions that reached their end, where the
// host compares the count with its own.

@group(0) @binding(2) var<storage, read_write> count: array<u32>;

@compute @workgroup_size(1)
fn canary() {
    count[0] += 1u;
}
