// Ids of an embedding. Where NUMBERS is 1 they are stored as floats: whole numbers from 0 up to 2^24.

const NUMBERS: u32 = 0u;

// The id of what is stored; past every table where that is no id.
fn id_of(stored: u32) -> u32 {
    if (NUMBERS == 0u) {
        return stored;
    }
    // Bits of floats that are not negative are in the order of the floats, and NaN is above all.
    if (stored > 0x4b800000u) {
        return select(0xffffffffu, 0u, stored == 0x80000000u);
    }
    let number = bitcast<f32>(stored);
    return select(0xffffffffu, u32(number), floor(number) == number);
}
