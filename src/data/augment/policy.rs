//! Changes drawn from fourteen, as torchvision's `RandAugment` and `TrivialAugmentWide` have them.

use super::geometry::Placing;
use super::{Draws, Image, colour};
use crate::config::augment::Interpolation;

/// Steps of strength.
const STEPS: usize = 31;

/// The largest strength of each kind of change.
pub(super) struct Space {
    shear: f64,
    /// Shifts to the side and down, in pixels.
    translate: [f64; 2],
    rotate: f64,
    colour: f64,
    /// Bits that the strongest change takes away.
    posterize: f64,
}

impl Space {
    pub(super) fn rand_augment(image: &Image<'_>) -> Self {
        let share = 150.0 / 331.0;
        Space {
            shear: 0.3,
            translate: [share * image.cols as f64, share * image.rows as f64],
            rotate: 30.0,
            colour: 0.9,
            posterize: 4.0,
        }
    }

    pub(super) fn trivial_augment() -> Self {
        let translate = [32.0, 32.0];
        Space { shear: 0.99, translate, rotate: 135.0, colour: 0.99, posterize: 6.0 }
    }

    /// The strength of a kind of change at a step: a slope, pixels, degrees, what is added to a
    /// factor, bits that are kept, or the threshold of `solarize`. 0 where there is no strength.
    pub(super) fn strength(&self, kind: usize, step: usize) -> f32 {
        match kind {
            1 | 2 => linspace(0.0, self.shear, step),
            3 | 4 => linspace(0.0, self.translate[kind - 3], step),
            5 => linspace(0.0, self.rotate, step),
            6..=9 => linspace(0.0, self.colour, step),
            10 => {
                let each = (STEPS - 1) as f64 / self.posterize;
                8.0 - (step as f64 / each).round_ties_even() as f32
            }
            11 => linspace(1.0, 0.0, step),
            _ => 0.0,
        }
    }
}

/// As torch has it in single precision: from both ends to the middle.
fn linspace(first: f64, last: f64, at: usize) -> f32 {
    let (first, last) = (first as f32, last as f32);
    let step = (last - first) / (STEPS - 1) as f32;
    if at < STEPS / 2 {
        step.mul_add(at as f32, first)
    } else {
        step.mul_add(-((STEPS - 1 - at) as f32), last)
    }
}

/// One change of a given strength.
pub(super) fn rand_augment(image: &mut Image<'_>, magnitude: usize, draws: &mut Draws) {
    let space = Space::rand_augment(image);
    let kind = draws.below(KINDS);
    apply(kind, magnitude, draws.uniform() < 0.5, &space, image);
}

/// One change of a random strength.
pub(super) fn trivial_augment(image: &mut Image<'_>, draws: &mut Draws) {
    let kind = draws.below(KINDS);
    let step = draws.below(STEPS);
    apply(kind, step, draws.uniform() < 0.5, &Space::trivial_augment(), image);
}

/// How many kinds of change there are.
pub(super) const KINDS: usize = 14;

fn apply(kind: usize, step: usize, negative: bool, space: &Space, image: &mut Image<'_>) {
    let strength = space.strength(kind, step);
    let signed = if negative { -strength } else { strength };
    // A shear leaves the upper left corner where it is.
    let center = [-(image.cols as f64) / 2.0, -(image.rows as f64) / 2.0];
    let slope = f64::from(signed).atan().to_degrees();
    let placing = match kind {
        1 => Placing { shear: [slope, 0.0], center, ..Placing::default() },
        2 => Placing { shear: [0.0, slope], center, ..Placing::default() },
        3 => Placing { right: f64::from(signed.trunc()), ..Placing::default() },
        4 => Placing { down: f64::from(signed.trunc()), ..Placing::default() },
        5 => Placing::rotation(f64::from(signed)),
        6 => return colour::brightness(image, 1.0 + signed),
        7 => return colour::saturation(image, 1.0 + signed),
        8 => return colour::contrast(image, 1.0 + signed),
        9 => return colour::sharpness(image, 1.0 + signed),
        10 => return colour::posterize(image, strength as u32),
        11 => return colour::solarize(image, strength),
        12 => return colour::auto_contrast(image),
        13 => return colour::equalize(image),
        _ => return,
    };
    placing.warp(image, Interpolation::Nearest);
}
