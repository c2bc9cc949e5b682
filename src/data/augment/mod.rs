//! Random changes to training images, each a function of (seed, epoch, sample). The formulas are
//! torchvision's, for images of numbers from 0 to 1.

mod colour;
mod geometry;
mod policy;

use super::DataError;
use crate::config::augment::{Augment, ColorJitter, Erasing};
use crate::ops::philox;
use geometry::{Placing, ResizeTo};

/// The stream of augmentation draws.
const STREAM: u32 = 0x4155_474d;

/// An image `[channels, height, width]` of numbers from 0 to 1, row by row.
struct Image<'a> {
    pixels: &'a mut [f32],
    rows: usize,
    cols: usize,
}

impl Image<'_> {
    /// Each channel by itself.
    fn planes(&mut self) -> std::slice::ChunksExactMut<'_, f32> {
        self.pixels.chunks_exact_mut(self.rows * self.cols)
    }

    /// The three channels, if there are three.
    fn rgb(&mut self) -> Option<[&mut [f32]; 3]> {
        let (red, rest) = self.pixels.split_at_mut_checked(self.rows * self.cols)?;
        let (green, blue) = rest.split_at_mut_checked(self.rows * self.cols)?;
        (blue.len() == green.len()).then_some([red, green, blue])
    }
}

/// Random numbers of one rule for one sample in one epoch.
struct Draws {
    counter: [u32; 4],
    key: [u32; 2],
    words: [u32; 4],
    used: usize,
}

impl Draws {
    fn new(key: [u32; 2], epoch: u64, sample: usize, rule: usize) -> Self {
        let counter = [sample as u32, epoch as u32, STREAM, (rule as u32) << 16];
        Draws { counter, key, words: philox::block(counter, key), used: 0 }
    }

    fn word(&mut self) -> u32 {
        if self.used == self.words.len() {
            self.counter[3] += 1;
            self.words = philox::block(self.counter, self.key);
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// Uniform in [0, 1).
    fn uniform(&mut self) -> f64 {
        f64::from(self.word()) / 4_294_967_296.0
    }

    /// Uniform in [low, high).
    fn between(&mut self, [low, high]: [f64; 2]) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// A whole number below `count`.
    fn below(&mut self, count: usize) -> usize {
        ((u64::from(self.word()) * count as u64) >> 32) as usize
    }
}

/// The rules with their key.
#[derive(Clone, Debug)]
pub(super) struct Augmenter {
    rules: Vec<Augment>,
    key: [u32; 2],
}

impl Augmenter {
    /// The rules for images of `dims` `[channels, height, width]`.
    ///
    /// # Errors
    /// When a rule is for other images.
    pub(super) fn new(rules: &[Augment], seed: u64, dims: &[usize]) -> Result<Self, DataError> {
        rules.iter().try_for_each(|rule| fits(rule, dims))?;
        Ok(Augmenter { rules: rules.to_vec(), key: [seed as u32, (seed >> 32) as u32] })
    }

    /// Changes an image of `dims` `[channels, height, width]` in place.
    pub(super) fn apply(&self, pixels: &mut [f32], dims: &[usize], epoch: u64, sample: usize) {
        let [_, rows, cols] = *dims else { return };
        let mut image = Image { pixels, rows, cols };
        for (index, rule) in self.rules.iter().enumerate() {
            change(rule, &mut image, &mut Draws::new(self.key, epoch, sample, index));
        }
    }
}

/// Colours need three channels, and what is mirrored beyond the edge must be in the image.
fn fits(rule: &Augment, dims: &[usize]) -> Result<(), DataError> {
    let [channels, rows, cols] = *dims else { return Ok(()) };
    let colours = match rule {
        Augment::Grayscale(_) => Some("`grayscale`"),
        Augment::ColorJitter(jitter) if jitter.saturation > 0.0 => {
            Some("`saturation` of `color_jitter`")
        }
        Augment::ColorJitter(jitter) if jitter.hue > 0.0 => Some("`hue` of `color_jitter`"),
        _ => None,
    };
    if let Some(what) = colours.filter(|_| channels != 3) {
        return Err(DataError::Unfit(format!(
            "`data.augment`: {what} is for images of 3 channels, these have {channels}"
        )));
    }
    match rule {
        Augment::GaussianBlur(blur) if blur.kernel_size / 2 >= rows.min(cols) => {
            Err(DataError::Unfit(format!(
                "`data.augment`: a `kernel_size` of {} reaches over images of {rows}x{cols}",
                blur.kernel_size
            )))
        }
        _ => Ok(()),
    }
}

fn change(rule: &Augment, image: &mut Image<'_>, draws: &mut Draws) {
    let (rows, cols) = (image.rows, image.cols);
    match rule {
        Augment::RandomCrop(crop) => {
            let range = 2 * crop.padding + 1;
            let down = draws.below(range) as isize - crop.padding as isize;
            let right = draws.below(range) as isize - crop.padding as isize;
            image.planes().for_each(|plane| geometry::moved(plane, cols, down, right));
        }
        Augment::ResizedCrop(crop) => {
            let cut = geometry::random_crop(rows, cols, crop, draws);
            let resize = ResizeTo::new(cut, rows, cols);
            image.planes().for_each(|plane| resize.apply(plane));
        }
        Augment::HorizontalFlip(flip) => {
            if draws.uniform() < flip.p {
                image.pixels.chunks_exact_mut(cols).for_each(<[f32]>::reverse);
            }
        }
        Augment::VerticalFlip(flip) => {
            if draws.uniform() < flip.p {
                image.planes().for_each(|plane| geometry::upside_down(plane, cols));
            }
        }
        Augment::Rotation(turn) => {
            let angle = draws.between([-turn.degrees, turn.degrees]);
            Placing::rotation(angle).warp(image, turn.interpolation);
        }
        Augment::Affine(affine) => {
            let placing = Placing {
                degrees: draws.between([-affine.degrees, affine.degrees]),
                right: shift(affine.translate[0] * cols as f64, draws),
                down: shift(affine.translate[1] * rows as f64, draws),
                scale: draws.between(affine.scale),
                shear: [draws.between([-affine.shear, affine.shear]), 0.0],
                ..Placing::default()
            };
            placing.warp(image, affine.interpolation);
        }
        Augment::ColorJitter(jitter) => jittered(jitter, image, draws),
        Augment::Grayscale(gray) => {
            if draws.uniform() < gray.p {
                colour::saturation(image, 0.0);
            }
        }
        Augment::GaussianBlur(blur) => {
            geometry::blur(image, blur.kernel_size, draws.between(blur.sigma));
        }
        Augment::Erasing(erasing) => erased(erasing, image, draws),
        Augment::Cutout(cutout) => {
            let half = cutout.size / 2;
            let [middle_row, middle_col] = [draws.below(rows), draws.below(cols)];
            let span = |middle: usize, end: usize| {
                let first = middle as isize - half as isize;
                let last = (first + cutout.size as isize).clamp(0, end as isize);
                first.max(0) as usize..last as usize
            };
            write(image, span(middle_row, rows), span(middle_col, cols), 0.0);
        }
        Augment::RandAugment(rand) => {
            for _ in 0..rand.num_ops {
                policy::rand_augment(image, rand.magnitude, draws);
            }
        }
        Augment::TrivialAugment(_) => policy::trivial_augment(image, draws),
    }
}

/// A shift of whole pixels, up to `most` in both directions.
fn shift(most: f64, draws: &mut Draws) -> f64 {
    draws.between([-most, most]).round_ties_even()
}

/// Brightness, contrast, saturation and hue in one of their 24 orders.
fn jittered(jitter: &ColorJitter, image: &mut Image<'_>, draws: &mut Draws) {
    let factor = |x: f64, draws: &mut Draws| draws.between([(1.0 - x).max(0.0), 1.0 + x]) as f32;
    let mut kinds = [0, 1, 2, 3];
    for last in (1..kinds.len()).rev() {
        kinds.swap(last, draws.below(last + 1));
    }
    for kind in kinds {
        match kind {
            0 if jitter.brightness > 0.0 => {
                colour::brightness(image, factor(jitter.brightness, draws));
            }
            1 if jitter.contrast > 0.0 => colour::contrast(image, factor(jitter.contrast, draws)),
            2 if jitter.saturation > 0.0 => {
                colour::saturation(image, factor(jitter.saturation, draws));
            }
            3 if jitter.hue > 0.0 => {
                colour::hue(image, draws.between([-jitter.hue, jitter.hue]) as f32);
            }
            _ => {}
        }
    }
}

/// As torchvision does it: ten tries for a rectangle that is smaller than the image.
fn erased(erasing: &Erasing, image: &mut Image<'_>, draws: &mut Draws) {
    if draws.uniform() >= erasing.p {
        return;
    }
    let (rows, cols) = (image.rows, image.cols);
    for _ in 0..10 {
        let area = (rows * cols) as f64 * draws.between(erasing.scale);
        let ratio = draws.between(erasing.ratio.map(f64::ln)).exp();
        let height = (area * ratio).sqrt().round_ties_even() as usize;
        let width = (area / ratio).sqrt().round_ties_even() as usize;
        if height < rows && width < cols {
            let top = draws.below(rows - height + 1);
            let left = draws.below(cols - width + 1);
            write(image, top..top + height, left..left + width, erasing.value as f32);
            return;
        }
    }
}

fn write(
    image: &mut Image<'_>,
    rows: std::ops::Range<usize>,
    cols: std::ops::Range<usize>,
    value: f32,
) {
    let width = image.cols;
    for plane in image.planes() {
        for row in rows.clone() {
            plane[row * width..][cols.clone()].fill(value);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests;
