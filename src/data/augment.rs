//! Random changes to training images, each a function of (seed, epoch, sample).

use crate::config::data::Augment;
use crate::ops::philox;

/// The stream of augmentation draws.
const STREAM: u32 = 0x4155_474d;

/// The rules with their key.
#[derive(Clone, Debug)]
pub(super) struct Augmenter {
    rules: Vec<Augment>,
    key: [u32; 2],
}

impl Augmenter {
    pub(super) fn new(rules: &[Augment], seed: u64) -> Self {
        Augmenter { rules: rules.to_vec(), key: [seed as u32, (seed >> 32) as u32] }
    }

    /// Changes an image of `dims` `[channels, height, width]` in place.
    pub(super) fn apply(&self, image: &mut [f32], dims: &[usize], epoch: u64, sample: usize) {
        let [_, rows, cols] = *dims else { return };
        for (index, rule) in self.rules.iter().enumerate() {
            let draws =
                philox::block([sample as u32, epoch as u32, STREAM, index as u32], self.key);
            match rule {
                Augment::RandomCrop(crop) => {
                    let range = 2 * crop.padding as u32 + 1;
                    let down = (draws[0] % range) as isize - crop.padding as isize;
                    let right = (draws[1] % range) as isize - crop.padding as isize;
                    image
                        .chunks_exact_mut(rows * cols)
                        .for_each(|plane| moved(plane, rows, cols, down, right));
                }
                Augment::HorizontalFlip(flip) => {
                    if f64::from(draws[0]) / 4_294_967_296.0 < flip.p {
                        image.chunks_exact_mut(cols).for_each(<[f32]>::reverse);
                    }
                }
            }
        }
    }
}

/// Moves a plane's content by whole pixels; what comes in is zero.
fn moved(plane: &mut [f32], rows: usize, cols: usize, down: isize, right: isize) {
    let old = plane.to_vec();
    for (at, pixel) in plane.iter_mut().enumerate() {
        let row = (at / cols) as isize + down;
        let col = (at % cols) as isize + right;
        let inside = (0..rows as isize).contains(&row) && (0..cols as isize).contains(&col);
        *pixel = if inside { old[row as usize * cols + col as usize] } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::data::{HorizontalFlip, RandomCrop};

    #[test]
    fn a_flip_mirrors_and_a_crop_moves() {
        let mut image = [1.0, 2.0, 3.0, 4.0];
        let flip = Augmenter::new(&[Augment::HorizontalFlip(HorizontalFlip { p: 1.0 })], 0);
        flip.apply(&mut image, &[1, 2, 2], 0, 0);
        assert_eq!(image, [2.0, 1.0, 4.0, 3.0]);
        moved(&mut image, 2, 2, 1, 0);
        assert_eq!(image, [4.0, 3.0, 0.0, 0.0]);
    }

    #[test]
    fn draws_depend_on_epoch_and_sample_only() {
        let crop = Augmenter::new(&[Augment::RandomCrop(RandomCrop { padding: 2 })], 4);
        let run = |epoch, sample| {
            let mut image: Vec<f32> = (0..64).map(|i| i as f32).collect();
            crop.apply(&mut image, &[1, 8, 8], epoch, sample);
            image
        };
        assert_eq!(run(3, 7), run(3, 7));
        assert!((0..10).any(|epoch| run(epoch, 7) != run(3, 7)));
        assert!((0..10).any(|sample| run(3, sample) != run(3, 7)));
    }
}
