//! Random changes to training images: the list `augment` of the `data` section.

use super::macros::{choices, options, tagged};
use super::schema::above;
use super::validate;

tagged! {
    /// A random change made to training images, before `normalize`. Sizes stay as they are.
    pub enum Augment {
        /// Pads with zeros, then cuts the original size out at a random place.
        RandomCrop(RandomCrop) = "random_crop",
        /// Cuts a part of random size and shape out and scales it to the size of the image.
        ResizedCrop(ResizedCrop) = "resized_crop",
        /// Mirrors left and right.
        HorizontalFlip(HorizontalFlip) = "horizontal_flip",
        /// Mirrors top and bottom.
        VerticalFlip(VerticalFlip) = "vertical_flip",
        /// Turns about the middle.
        Rotation(Rotation) = "rotation",
        /// Turns, moves, scales and shears about the middle.
        Affine(Affine) = "affine",
        /// Changes brightness, contrast, saturation and hue, in random order.
        ColorJitter(ColorJitter) = "color_jitter",
        /// Takes the colours away.
        Grayscale(Grayscale) = "grayscale",
        /// Blurs with a Gaussian of random width.
        GaussianBlur(GaussianBlur) = "gaussian_blur",
        /// Overwrites a rectangle of random size and shape (Zhong and others, 2017).
        Erasing(Erasing) = "erasing",
        /// Overwrites a square at a random place with zeros (DeVries and Taylor, 2017).
        Cutout(Cutout) = "cutout",
        /// Some changes of one strength, drawn from fourteen (Cubuk and others, 2019).
        RandAugment(RandAugment) = "rand_augment",
        /// One change of a random strength, drawn from fourteen (Müller and Hutter, 2021).
        TrivialAugment(TrivialAugment) = "trivial_augment",
    }
}

options! {
    /// Pads with zeros, then cuts the original size out at a random place.
    pub struct RandomCrop {
        /// Pixels added on each side.
        padding: usize [1..],
    }
}

options! {
    /// Cuts a part of random size and shape out and scales it to the size of the image, each pixel
    /// being the mean of what it covers (bilinear with antialiasing).
    pub struct ResizedCrop checked_by validate::resized_crop {
        /// Least and largest share of the area that is cut out.
        scale: [f64; 2] [above(0.0)] = [0.08, 1.0],
        /// Least and largest width of what is cut out, divided by its height.
        ratio: [f64; 2] [above(0.0)] = [0.75, 1.3333333333333333],
    }
}

options! {
    /// Mirrors left and right.
    pub struct HorizontalFlip {
        /// The share of images mirrored.
        p: f64 [0.0..=1.0] = 0.5,
    }
}

options! {
    /// Mirrors top and bottom.
    pub struct VerticalFlip {
        /// The share of images mirrored.
        p: f64 [0.0..=1.0] = 0.5,
    }
}

choices! {
    /// How a pixel between pixels is found.
    pub enum Interpolation {
        /// The nearest pixel.
        Nearest = "nearest",
        /// A mean of the four pixels around, by nearness.
        Bilinear = "bilinear",
    }
}

options! {
    /// Turns about the middle; what comes in is zero.
    pub struct Rotation {
        /// The largest angle, in degrees, in both directions.
        degrees: f64 [0.0..=180.0],
        /// How a pixel between pixels is found.
        interpolation: Interpolation = Interpolation::Nearest,
    }
}

options! {
    /// Turns, moves, scales and shears about the middle; what comes in is zero.
    pub struct Affine checked_by validate::affine {
        /// The largest angle, in degrees, in both directions.
        degrees: f64 [0.0..=180.0] = 0.0,
        /// The largest shift to the side and down, as shares of width and height.
        translate: [f64; 2] [0.0..=1.0] = [0.0, 0.0],
        /// The least and the largest factor of the size.
        scale: [f64; 2] [above(0.0)] = [1.0, 1.0],
        /// The largest shear along the rows, in degrees, in both directions.
        shear: f64 [0.0..90.0] = 0.0,
        /// How a pixel between pixels is found.
        interpolation: Interpolation = Interpolation::Nearest,
    }
}

options! {
    /// Changes brightness, contrast, saturation and hue, in random order. A factor is drawn between
    /// 1 - x, at least 0, and 1 + x.
    pub struct ColorJitter {
        /// The x of brightness.
        brightness: f64 [0.0..] = 0.0,
        /// The x of contrast.
        contrast: f64 [0.0..] = 0.0,
        /// The x of saturation; for images of three channels.
        saturation: f64 [0.0..] = 0.0,
        /// The largest shift of the hue, as a share of the circle, in both directions; for images
        /// of three channels.
        hue: f64 [0.0..=0.5] = 0.0,
    }
}

options! {
    /// Takes the colours away: all three channels get the luma.
    pub struct Grayscale {
        /// The share of images changed.
        p: f64 [0.0..=1.0] = 0.1,
    }
}

options! {
    /// Blurs with a Gaussian of random width; beyond the edge the image is mirrored.
    pub struct GaussianBlur checked_by validate::gaussian_blur {
        /// Pixels of the kernel along each axis, an odd number.
        kernel_size: usize [1..=255],
        /// Least and largest standard deviation, in pixels.
        sigma: [f64; 2] [above(0.0)] = [0.1, 2.0],
    }
}

options! {
    /// Overwrites a rectangle of random size and shape.
    pub struct Erasing checked_by validate::erasing {
        /// The share of images changed.
        p: f64 [0.0..=1.0] = 0.5,
        /// Least and largest share of the area.
        scale: [f64; 2] [above(0.0)] = [0.02, 0.33],
        /// Least and largest height, divided by the width.
        ratio: [f64; 2] [above(0.0)] = [0.3, 3.3],
        /// What is written, where 1 is a full pixel.
        value: f64 = 0.0,
    }
}

options! {
    /// Overwrites a square with zeros. Its middle is any pixel, so a part may lie outside.
    pub struct Cutout {
        /// Pixels along a side.
        size: usize [1..],
    }
}

options! {
    /// Some changes of one strength.
    pub struct RandAugment {
        /// Changes in a row.
        num_ops: usize [1..=14] = 2,
        /// The strength, of 31 steps from 0.
        magnitude: usize [0..=30] = 9,
    }
}

options! {
    /// One change of a random strength of 31 steps.
    pub struct TrivialAugment {}
}
