//! Philox4x32-10 (Salmon et al. 2011): random numbers as a function of a counter and a key.
//! kernels/lib/philox.wgsl is its twin.

use crate::device::Globals;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Four random words for a counter under a key.
#[inline(always)]
pub fn block(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut c0, mut c1, mut c2, mut c3], [mut k0, mut k1]) = (counter, key);
    for _ in 0..ROUNDS {
        let (p0, p1) =
            (u64::from(MULTIPLIERS[0]) * u64::from(c0), u64::from(MULTIPLIERS[1]) * u64::from(c2));
        (c0, c1, c2, c3) =
            ((p1 >> 32) as u32 ^ c1 ^ k0, p1 as u32, (p0 >> 32) as u32 ^ c3 ^ k1, p0 as u32);
        k0 = k0.wrapping_add(WEYL[0]);
        k1 = k1.wrapping_add(WEYL[1]);
    }
    [c0, c1, c2, c3]
}

/// The four uniform numbers of elements `4·quad..4·quad + 4` of a stream in one micro-step: the
/// counter is (quad, stream, step, micro-batch), the key the seed.
#[inline(always)]
pub fn uniforms(globals: &Globals, stream: u32, quad: u32) -> [f32; 4] {
    let words = block([quad, stream, globals.step, globals.micro], globals.seed);
    words.map(|word| (word >> 8) as f32 * (1.0 / 16_777_216.0))
}

/// The uniform number in [0, 1) of one element, a multiple of 2⁻²⁴.
#[inline(always)]
pub fn uniform(globals: &Globals, stream: u32, element: u32) -> f32 {
    uniforms(globals, stream, element / 4)[element as usize % 4]
}

#[cfg(test)]
mod tests {
    use super::block;

    /// The known answers of the authors' Random123 distribution.
    #[test]
    fn known_answers() {
        assert_eq!(block([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            block([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        let counter = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        assert_eq!(
            block(counter, [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }
}
