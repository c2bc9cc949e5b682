//! Images mixed in pairs, and their classes: `mixup` and `cutmix`, with torchvision's formulas. The
//! partner is the sample before in the batch, that of the first one the last; how they are mixed is a
//! function of (seed, epoch, sample).

use std::ops::Range;

use rayon::prelude::*;

use super::Draws;
use crate::config::augment::Mix;

/// The place of mixing among the rules of a sample.
const RULE: usize = 0xffff;

/// The ways of mixing, with their key.
#[derive(Clone, Debug)]
pub(in crate::data) struct Mixer {
    rules: Vec<Mix>,
    key: [u32; 2],
}

impl Mixer {
    pub(in crate::data) fn new(rules: &[Mix], seed: u64) -> Self {
        Mixer { rules: rules.to_vec(), key: [seed as u32, (seed >> 32) as u32] }
    }

    /// Mixes a batch of images `[channels, rows, cols]` and shares of classes, one of each for each
    /// of `samples`.
    pub(in crate::data) fn apply(
        &self,
        images: &mut [f32],
        shares: &mut [f32],
        extents: [usize; 2],
        epoch: u64,
        samples: &[usize],
    ) {
        let count = samples.len();
        if count == 0 {
            return;
        }
        let (each, classes) = (images.len() / count, shares.len() / count);
        let (old_images, old_shares) = (images.to_vec(), shares.to_vec());
        let both = images.par_chunks_mut(each).zip(shares.par_chunks_mut(classes));
        both.zip(samples).enumerate().for_each(|(row, ((image, share), sample))| {
            let before = (row + count - 1) % count;
            let other = &old_images[before * each..(before + 1) * each];
            let mut draws = Draws::new(self.key, epoch, *sample, RULE);
            let rule = &self.rules[draws.below(self.rules.len())];
            let kept = match rule {
                Mix::Mixup(mixup) => {
                    let kept = beta(mixup.alpha, &mut draws) as f32;
                    blend(image, other, kept);
                    kept
                }
                Mix::Cutmix(cutmix) => {
                    let kept = beta(cutmix.alpha, &mut draws);
                    let middle = [draws.below(extents[0]), draws.below(extents[1])];
                    let [rows, cols] = rectangle(kept, middle, extents);
                    paste(image, other, extents, &rows, &cols);
                    let area = (rows.len() * cols.len()) as f64;
                    (1.0 - area / (extents[0] * extents[1]) as f64) as f32
                }
            };
            blend(share, &old_shares[before * classes..(before + 1) * classes], kept);
        });
    }
}

/// kept · own + (1 − kept) · other.
fn blend(own: &mut [f32], other: &[f32], kept: f32) {
    for (own, other) in own.iter_mut().zip(other) {
        *own = *own * kept + *other * (1.0 - kept);
    }
}

/// The rectangle of the other image, of about 1 − `kept` of the area, cut off at the edges.
fn rectangle(kept: f64, middle: [usize; 2], extents: [usize; 2]) -> [Range<usize>; 2] {
    let half = 0.5 * (1.0 - kept).sqrt();
    let span = |axis: usize| {
        let reach = (half * extents[axis] as f64) as usize;
        middle[axis].saturating_sub(reach)..(middle[axis] + reach).min(extents[axis])
    };
    [span(0), span(1)]
}

fn paste(
    image: &mut [f32],
    other: &[f32],
    [height, width]: [usize; 2],
    rows: &Range<usize>,
    cols: &Range<usize>,
) {
    let planes = image.chunks_exact_mut(height * width).zip(other.chunks_exact(height * width));
    for (own, other) in planes {
        for row in rows.clone() {
            let line = row * width + cols.start..row * width + cols.end;
            own[line.clone()].copy_from_slice(&other[line]);
        }
    }
}

/// A draw from Beta(α, α): g / (g + h) of two gamma variates, by their logarithms, since for small α
/// both may be too small for a number.
fn beta(alpha: f64, draws: &mut Draws) -> f64 {
    let gap = log_gamma_variate(alpha, draws) - log_gamma_variate(alpha, draws);
    1.0 / (1.0 + (-gap).exp())
}

/// The logarithm of a draw from Gamma(α, 1) (Marsaglia and Tsang 2000); for α < 1 from α + 1, times
/// a uniform number to the power 1/α.
fn log_gamma_variate(alpha: f64, draws: &mut Draws) -> f64 {
    if alpha < 1.0 {
        let shrunk = positive(draws).ln() / alpha;
        return log_gamma_variate(alpha + 1.0, draws) + shrunk;
    }
    let d = alpha - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(draws);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && positive(draws).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d.ln() + v.ln();
        }
    }
}

/// Uniform in (0, 1).
fn positive(draws: &mut Draws) -> f64 {
    draws.uniform() + f64::powi(2.0, -33)
}

/// Standard normal (Box and Muller 1958).
fn normal(draws: &mut Draws) -> f64 {
    let radius = (-2.0 * positive(draws).ln()).sqrt();
    radius * (std::f64::consts::TAU * draws.uniform()).cos()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;
    use crate::config::augment::{Cutmix, Mixup};
    use crate::data::augment::tests::reference;

    #[test]
    fn mixtures_are_those_of_torchvision() {
        let (images, each) = (reference("mix_images"), 2 * 6 * 9);
        let near = |found: &[f32], name: &str| {
            let wanted = reference(name);
            assert_eq!(found.len(), wanted.len());
            let worst = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst <= 1e-6, "{name}: {worst}");
        };
        let (mut mixed, mut cut) = (images.clone(), images.clone());
        let [mut mixed_shares, mut cut_shares] = [0, 1].map(|_| reference("mix_one_hot"));
        let [rows, cols] = rectangle(0.4, [1, 5], [6, 9]);
        let kept = (1.0 - (rows.len() * cols.len()) as f64 / 54.0) as f32;
        for row in 0..3 {
            let before = (row + 2) % 3;
            let other = &images[before * each..(before + 1) * each];
            blend(&mut mixed[row * each..(row + 1) * each], other, 0.3);
            paste(&mut cut[row * each..(row + 1) * each], other, [6, 9], &rows, &cols);
            let other = &reference("mix_one_hot")[before * 4..(before + 1) * 4];
            blend(&mut mixed_shares[row * 4..(row + 1) * 4], other, 0.3);
            blend(&mut cut_shares[row * 4..(row + 1) * 4], other, kept);
        }
        near(&mixed, "mixup");
        near(&mixed_shares, "mixup_shares");
        near(&cut, "cutmix");
        near(&cut_shares, "cutmix_shares");
    }

    /// Mean, variance and, where it is known in closed form, the whole distribution.
    #[test]
    fn shares_follow_the_beta_distribution() {
        const COUNT: usize = 20_000;
        for alpha in [0.01, 0.2, 0.5, 1.0, 4.0] {
            let mut draws = Draws::new([1, 2], 0, 0, 0);
            let mut found: Vec<f64> = (0..COUNT).map(|_| beta(alpha, &mut draws)).collect();
            found.sort_by(f64::total_cmp);
            assert!(found[0] >= 0.0 && found[COUNT - 1] <= 1.0);
            let mean = found.iter().sum::<f64>() / COUNT as f64;
            let variance = found.iter().map(|x| (x - 0.5).powi(2)).sum::<f64>() / COUNT as f64;
            assert!((mean - 0.5).abs() < 0.018, "{alpha}: mean {mean}");
            let wanted = 0.25 / (2.0 * alpha + 1.0);
            assert!((variance / wanted - 1.0).abs() < 0.05, "{alpha}: {variance}, not {wanted}");
            let share = |x: f64| match alpha {
                0.5 => x.sqrt().asin() * std::f64::consts::FRAC_2_PI,
                1.0 => x,
                _ => f64::NAN,
            };
            let gap = |(at, x): (usize, &f64)| ((at as f64 + 0.5) / COUNT as f64 - share(*x)).abs();
            // The Kolmogorov statistic, far beyond its 1 % point of 1.63 / √n.
            let worst = found.iter().enumerate().map(gap).fold(0.0, f64::max);
            assert!(worst < 2.2 / (COUNT as f64).sqrt(), "{alpha}: {worst}");
        }
    }

    #[test]
    fn a_mixture_depends_on_the_epoch_and_the_samples() {
        let rules = [Mix::Mixup(Mixup { alpha: 1.0 }), Mix::Cutmix(Cutmix { alpha: 1.0 })];
        let mixer = Mixer::new(&rules, 3);
        let run = |epoch, samples: &[usize]| {
            let (mut images, mut shares) = (reference("mix_images"), reference("mix_one_hot"));
            mixer.apply(&mut images, &mut shares, [6, 9], epoch, samples);
            for share in shares.chunks(4) {
                assert!((share.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            }
            (images, shares)
        };
        assert!(run(0, &[4, 7, 2]) == run(0, &[4, 7, 2]));
        assert!(run(0, &[4, 7, 2]) != run(1, &[4, 7, 2]));
        assert!(run(0, &[4, 7, 2]) != run(0, &[4, 8, 2]));
    }
}
