//! Changes of colour, of numbers from 0 to 1.

use super::Image;

/// The luma of ITU-R BT.601, with torchvision's digits.
fn luma(red: f32, green: f32, blue: f32) -> f32 {
    0.2989 * red + 0.587 * green + 0.114 * blue
}

/// ratio · one + (1 − ratio) · other, within 0 and 1.
fn blend(one: f32, other: f32, ratio: f32) -> f32 {
    (ratio * one + (1.0 - ratio) * other).clamp(0.0, 1.0)
}

/// Towards black (0), or away from it (above 1).
pub(super) fn brightness(image: &mut Image<'_>, factor: f32) {
    image.pixels.iter_mut().for_each(|pixel| *pixel = blend(*pixel, 0.0, factor));
}

/// Towards the mean luma of the image (0), or away from it.
pub(super) fn contrast(image: &mut Image<'_>, factor: f32) {
    let count = (image.rows * image.cols) as f64;
    let mean = if let Some([red, green, blue]) = image.rgb() {
        let sum: f64 = (red.iter().zip(green.iter()).zip(blue.iter()))
            .map(|((r, g), b)| f64::from(luma(*r, *g, *b)))
            .sum();
        (sum / count) as f32
    } else {
        let sum: f64 = image.pixels.iter().copied().map(f64::from).sum();
        (sum / image.pixels.len() as f64) as f32
    };
    image.pixels.iter_mut().for_each(|pixel| *pixel = blend(*pixel, mean, factor));
}

/// Towards the luma of each pixel (0), or away from it. Only images of three channels have any.
pub(super) fn saturation(image: &mut Image<'_>, factor: f32) {
    let Some([red, green, blue]) = image.rgb() else { return };
    for ((r, g), b) in red.iter_mut().zip(green).zip(blue) {
        let gray = luma(*r, *g, *b);
        [r, g, b].into_iter().for_each(|pixel| *pixel = blend(*pixel, gray, factor));
    }
}

/// Turns the hue by a share of the circle. Only images of three channels have any.
pub(super) fn hue(image: &mut Image<'_>, share: f32) {
    let Some([red, green, blue]) = image.rgb() else { return };
    for ((r, g), b) in red.iter_mut().zip(green).zip(blue) {
        let [h, s, v] = to_hsv([*r, *g, *b]);
        [*r, *g, *b] = to_rgb([(h + share).rem_euclid(1.0), s, v]);
    }
}

fn to_hsv([r, g, b]: [f32; 3]) -> [f32; 3] {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    let range = most - least;
    if range == 0.0 {
        return [0.0, 0.0, most];
    }
    let sixths = if most == r {
        (g - b) / range
    } else if most == g {
        2.0 + (b - r) / range
    } else {
        4.0 + (r - g) / range
    };
    [(sixths / 6.0).rem_euclid(1.0), range / most, most]
}

fn to_rgb([h, s, v]: [f32; 3]) -> [f32; 3] {
    let sector = (h * 6.0).floor();
    let part = h * 6.0 - sector;
    let p = (v * (1.0 - s)).clamp(0.0, 1.0);
    let q = (v * (1.0 - s * part)).clamp(0.0, 1.0);
    let t = (v * (1.0 - s * (1.0 - part))).clamp(0.0, 1.0);
    match sector as i32 % 6 {
        0 => [v, t, p],
        1 => [q, v, p],
        2 => [p, v, t],
        3 => [p, q, v],
        4 => [t, p, v],
        _ => [v, p, q],
    }
}

/// Towards a smoothed image (0), or away from it; the outermost pixels stay.
pub(super) fn sharpness(image: &mut Image<'_>, factor: f32) {
    let (rows, cols) = (image.rows, image.cols);
    if rows <= 2 || cols <= 2 {
        return;
    }
    for plane in image.planes() {
        let old = plane.to_vec();
        for row in 1..rows - 1 {
            for col in 1..cols - 1 {
                let at = row * cols + col;
                let sum: f32 = (0..3)
                    .map(|r| {
                        let from = (row + r - 1) * cols + col - 1;
                        old[from..from + 3].iter().sum::<f32>()
                    })
                    .sum();
                plane[at] = blend(old[at], (sum + 4.0 * old[at]) / 13.0, factor);
            }
        }
    }
}

/// Keeps this many bits of eight.
pub(super) fn posterize(image: &mut Image<'_>, bits: u32) {
    let levels = (1u32 << bits) as f32;
    for pixel in image.pixels.iter_mut() {
        *pixel = (*pixel * levels).floor().clamp(0.0, levels - 1.0) / levels;
    }
}

/// Inverts what is as bright as the threshold or brighter.
pub(super) fn solarize(image: &mut Image<'_>, threshold: f32) {
    for pixel in image.pixels.iter_mut().filter(|pixel| **pixel >= threshold) {
        *pixel = 1.0 - *pixel;
    }
}

/// Stretches each channel from its least to its largest value onto 0 to 1.
pub(super) fn auto_contrast(image: &mut Image<'_>) {
    for plane in image.planes() {
        let least = plane.iter().copied().fold(f32::INFINITY, f32::min);
        let most = plane.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if most > least {
            plane.iter_mut().for_each(|pixel| *pixel = (*pixel - least) / (most - least));
        }
    }
}

/// Makes the 256 values of each channel about equally frequent, as Pillow does.
pub(super) fn equalize(image: &mut Image<'_>) {
    let byte = |pixel: f32| (pixel.clamp(0.0, 1.0) * 255.999) as u8;
    for plane in image.planes() {
        let mut counts = [0usize; 256];
        plane.iter().for_each(|pixel| counts[usize::from(byte(*pixel))] += 1);
        let last = counts.iter().rev().find(|count| **count > 0).copied().unwrap_or(0);
        let step = (plane.len() - last) / 255;
        if step == 0 {
            plane.iter_mut().for_each(|pixel| *pixel = f32::from(byte(*pixel)) / 255.0);
            continue;
        }
        let mut below = 0;
        let table = counts.map(|count| {
            let value = ((below + step / 2) / step).min(255);
            below += count;
            value as f32 / 255.0
        });
        plane.iter_mut().for_each(|pixel| *pixel = table[usize::from(byte(*pixel))]);
    }
}
