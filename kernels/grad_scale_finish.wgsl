// @use lib/reduce
// Second pass, one workgroup: control = [scale, norm, non-finite count, weight, statistics…].
//   norm = √(Σ g²)/weight; scale = min(1, clip/(norm + 1e-6))/weight, or 0 where it must not be used.
// Where SCALED is 1, both are also divided by the loss scale, and scaler = [loss scale, good steps,
// skipped steps] is updated; control ends with its first and third number.

const SCALED: u32 = 0u;
const GROWTH_INTERVAL: f32 = 2000.0;

struct Dims {
    groups: u32,
    stats: u32,
    weight_index: u32,
    clips: u32,
    clip: f32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> parts: array<f32>;
@group(0) @binding(3) var<storage, read_write> stats: array<f32>;
@group(0) @binding(4) var<storage, read_write> control: array<f32>;
@group(0) @binding(5) var<storage, read_write> scaler: array<f32>;

@compute @workgroup_size(256)
fn finish(@builtin(local_invocation_index) local: u32) {
    var square = 0.0;
    var bad = 0.0;
    for (var i = local; i < dims.groups; i += 256u) {
        square += parts[i * 2u];
        bad += parts[i * 2u + 1u];
    }
    for (var i = local; i < dims.stats; i += 256u) {
        bad += select(0.0, 1.0, (bitcast<u32>(stats[i]) & 0x7f800000u) == 0x7f800000u);
    }
    let square_sum = workgroup_sum(square, local);
    var bad_sum = workgroup_sum(bad, local);
    if ((bitcast<u32>(square_sum) & 0x7f800000u) == 0x7f800000u) {
        bad_sum += 1.0;
    }
    if (local == 0u) {
        let weight = stats[dims.weight_index];
        let usable = bad_sum == 0.0 && weight != 0.0;
        var divisor = select(1.0, weight, weight != 0.0);
        if (SCALED == 1u) {
            divisor *= scaler[0];
            if (bad_sum > 0.0) {
                scaler[0] *= 0.5;
                scaler[1] = 0.0;
                scaler[2] += 1.0;
            } else {
                scaler[1] += 1.0;
                if (scaler[1] >= GROWTH_INTERVAL) {
                    scaler[0] *= 2.0;
                    scaler[1] = 0.0;
                }
            }
            control[4u + dims.stats] = scaler[0];
            control[5u + dims.stats] = scaler[2];
        }
        let norm = sqrt(square_sum) / divisor;
        var clip = 1.0;
        if (dims.clips != 0u) {
            clip = min(1.0, dims.clip / (norm + 1e-6));
        }
        control[0] = select(0.0, clip / divisor, usable);
        control[1] = norm;
        control[2] = bad_sum;
        control[3] = weight;
    }
    for (var i = local; i < dims.stats; i += 256u) {
        control[4u + i] = stats[i];
    }
}
