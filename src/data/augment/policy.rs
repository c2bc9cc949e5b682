//! Changes drawn from fourteen, as torchvision's `RandAugment` and `TrivialAugmentWide` have them.

use super::geometry::Placing;
use super::{Draws, Image, colour};
use crate::config::augment::Interpolation;

/// Steps of strength.
const STEPS: usize = 31;

/// The largest strength of each kind of change.
struct Space {
    shear: f64,
    /// Shifts to the side and down, in pixels.
    translate: [f64; 2],
    rotate: f64,
    colour: f64,
    /// Bits that the strongest change takes away.
    posterize: f64,
}

/// One change of a given strength.
pub(super) fn rand_augment(image: &mut Image<'_>, magnitude: usize, draws: &mut Draws) {
    let share = 150.0 / 331.0;
    let space = Space {
        shear: 0.3,
        translate: [share * image.cols as f64, share * image.rows as f64],
        rotate: 30.0,
        colour: 0.9,
        posterize: 4.0,
    };
    let kind = draws.below(KINDS);
    apply(kind, magnitude, draws.uniform() < 0.5, &space, image);
}

/// One change of a random strength.
pub(super) fn trivial_augment(image: &mut Image<'_>, draws: &mut Draws) {
    let space =
        Space { shear: 0.99, translate: [32.0, 32.0], rotate: 135.0, colour: 0.99, posterize: 6.0 };
    let kind = draws.below(KINDS);
    let step = draws.below(STEPS);
    apply(kind, step, draws.uniform() < 0.5, &space, image);
}

/// How many kinds of change there are.
const KINDS: usize = 14;

fn apply(kind: usize, step: usize, negative: bool, space: &Space, image: &mut Image<'_>) {
    let share = step as f64 / (STEPS - 1) as f64;
    let signed = |most: f64| if negative { -most * share } else { most * share };
    let factor = (1.0 + signed(space.colour)) as f32;
    // A shear leaves the upper left corner where it is.
    let center = [-(image.cols as f64) / 2.0, -(image.rows as f64) / 2.0];
    let slope = signed(space.shear).atan().to_degrees();
    let placing = match kind {
        1 => Placing { shear: [slope, 0.0], center, ..Placing::default() },
        2 => Placing { shear: [0.0, slope], center, ..Placing::default() },
        3 => Placing { right: signed(space.translate[0]).trunc(), ..Placing::default() },
        4 => Placing { down: signed(space.translate[1]).trunc(), ..Placing::default() },
        5 => Placing::rotation(signed(space.rotate)),
        6 => return colour::brightness(image, factor),
        7 => return colour::saturation(image, factor),
        8 => return colour::contrast(image, factor),
        9 => return colour::sharpness(image, factor),
        10 => {
            let bits = (8.0 - space.posterize * share).round_ties_even() as u32;
            return colour::posterize(image, bits);
        }
        11 => return colour::solarize(image, (1.0 - share) as f32),
        12 => return colour::auto_contrast(image),
        13 => return colour::equalize(image),
        _ => return,
    };
    placing.warp(image, Interpolation::Nearest);
}
