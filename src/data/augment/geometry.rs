//! Changes of place: shifts, mirrors, scaled cuts, affine maps, blur.

use super::{Draws, Image};
use crate::config::augment::{Interpolation, ResizedCrop};

/// Moves a plane's content by whole pixels; what comes in is zero.
pub(super) fn moved(plane: &mut [f32], cols: usize, down: isize, right: isize) {
    let old = plane.to_vec();
    let rows = plane.len() / cols;
    for (at, pixel) in plane.iter_mut().enumerate() {
        let row = (at / cols) as isize - down;
        let col = (at % cols) as isize - right;
        *pixel = pixel_at(&old, rows, cols, row, col);
    }
}

/// A pixel, or zero outside.
fn pixel_at(plane: &[f32], rows: usize, cols: usize, row: isize, col: isize) -> f32 {
    let inside = (0..rows as isize).contains(&row) && (0..cols as isize).contains(&col);
    if inside { plane[row as usize * cols + col as usize] } else { 0.0 }
}

/// Mirrors a plane top and bottom.
pub(super) fn upside_down(plane: &mut [f32], cols: usize) {
    let rows = plane.len() / cols;
    for row in 0..rows / 2 {
        let (top, bottom) = plane.split_at_mut((rows - 1 - row) * cols);
        top[row * cols..(row + 1) * cols].swap_with_slice(&mut bottom[..cols]);
    }
}

/// A part of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    pub(super) top: usize,
    pub(super) left: usize,
    pub(super) height: usize,
    pub(super) width: usize,
}

/// The part that `resized_crop` cuts out: ten tries, then the middle with the nearest shape.
pub(super) fn random_crop(rows: usize, cols: usize, crop: &ResizedCrop, draws: &mut Draws) -> Cut {
    for _ in 0..10 {
        let area = (rows * cols) as f64 * draws.between(crop.scale);
        let ratio = draws.between(crop.ratio.map(f64::ln)).exp();
        let width = (area * ratio).sqrt().round_ties_even() as usize;
        let height = (area / ratio).sqrt().round_ties_even() as usize;
        if (1..=cols).contains(&width) && (1..=rows).contains(&height) {
            let top = draws.below(rows - height + 1);
            let left = draws.below(cols - width + 1);
            return Cut { top, left, height, width };
        }
    }
    let whole = cols as f64 / rows as f64;
    let (height, width) = if whole < crop.ratio[0] {
        ((cols as f64 / crop.ratio[0]).round_ties_even() as usize, cols)
    } else if whole > crop.ratio[1] {
        (rows, (rows as f64 * crop.ratio[1]).round_ties_even() as usize)
    } else {
        (rows, cols)
    };
    let (height, width) = (height.clamp(1, rows), width.clamp(1, cols));
    Cut { top: (rows - height) / 2, left: (cols - width) / 2, height, width }
}

/// Scaling of a cut to the size of the image: bilinear with antialiasing, first along rows.
pub(super) struct ResizeTo {
    cut: Cut,
    cols: usize,
    along_rows: Vec<Window>,
    along_cols: Vec<Window>,
}

/// The pixels that one pixel is a mean of: the first, and the weight of each.
struct Window {
    first: usize,
    weights: Vec<f32>,
}

impl ResizeTo {
    pub(super) fn new(cut: Cut, rows: usize, cols: usize) -> Self {
        ResizeTo {
            cut,
            cols,
            along_rows: windows(cut.width, cols),
            along_cols: windows(cut.height, rows),
        }
    }

    pub(super) fn apply(&self, plane: &mut [f32]) {
        let cut = &self.cut;
        let mut narrow = vec![0.0; cut.height * self.cols];
        for (row, out) in narrow.chunks_exact_mut(self.cols).enumerate() {
            let own = &plane[(cut.top + row) * self.cols + cut.left..][..cut.width];
            for (pixel, window) in out.iter_mut().zip(&self.along_rows) {
                let pairs = own[window.first..].iter().zip(&window.weights);
                *pixel = pairs.map(|(value, weight)| value * weight).sum();
            }
        }
        for (out, window) in plane.chunks_exact_mut(self.cols).zip(&self.along_cols) {
            out.fill(0.0);
            for (row, weight) in window.weights.iter().enumerate() {
                let own = &narrow[(window.first + row) * self.cols..][..self.cols];
                out.iter_mut().zip(own).for_each(|(pixel, value)| *pixel += value * weight);
            }
        }
    }
}

/// The windows that make `wanted` pixels of `given`: triangles as wide as the scale, at least 1.
fn windows(given: usize, wanted: usize) -> Vec<Window> {
    let scale = given as f64 / wanted as f64;
    let support = scale.max(1.0);
    let window = |at: usize| {
        let middle = (at as f64 + 0.5) * scale;
        let first = (middle - support + 0.5).max(0.0) as usize;
        let last = ((middle + support + 0.5) as usize).min(given);
        let weight = |k: usize| (1.0 - ((k as f64 - middle + 0.5) / support).abs()).max(0.0);
        let total: f64 = (first..last).map(weight).sum();
        let weights = (first..last).map(|k| (weight(k) / total) as f32).collect();
        Window { first, weights }
    };
    (0..wanted).map(window).collect()
}

/// Where an affine map puts an image. `center` is measured from the middle of the image.
pub(super) struct Placing {
    /// Clockwise.
    pub(super) degrees: f64,
    pub(super) right: f64,
    pub(super) down: f64,
    pub(super) scale: f64,
    /// Along rows and columns, in degrees.
    pub(super) shear: [f64; 2],
    pub(super) center: [f64; 2],
}

impl Default for Placing {
    fn default() -> Self {
        Placing {
            degrees: 0.0,
            right: 0.0,
            down: 0.0,
            scale: 1.0,
            shear: [0.0; 2],
            center: [0.0; 2],
        }
    }
}

impl Placing {
    /// A turn, counter-clockwise.
    pub(super) fn rotation(degrees: f64) -> Self {
        Placing { degrees: -degrees, ..Placing::default() }
    }

    /// The map from where a pixel comes to where it is read, both from the middle: the inverse of
    /// rotation · shear · scale about the centre, then the shift.
    fn inverse(&self) -> [f64; 6] {
        let turn = self.degrees.to_radians();
        let [sx, sy] = self.shear.map(f64::to_radians);
        let a = (turn - sy).cos() / sy.cos();
        let b = -a * sx.tan() - turn.sin();
        let c = (turn - sy).sin() / sy.cos();
        let d = -c * sx.tan() + turn.cos();
        let [m0, m1, m3, m4] = [d, -b, -c, a].map(|x| x / self.scale);
        let [x, y] = [-self.center[0] - self.right, -self.center[1] - self.down];
        let m2 = m0 * x + m1 * y + self.center[0];
        let m5 = m3 * x + m4 * y + self.center[1];
        [m0, m1, m2, m3, m4, m5]
    }

    /// Puts the image there; what comes in is zero.
    pub(super) fn warp(&self, image: &mut Image<'_>, interpolation: Interpolation) {
        let (rows, cols) = (image.rows, image.cols);
        let [m0, m1, m2, m3, m4, m5] = self.inverse();
        let [middle_x, middle_y] = [cols as f64 / 2.0 - 0.5, rows as f64 / 2.0 - 0.5];
        for plane in image.planes() {
            let old = plane.to_vec();
            for (at, pixel) in plane.iter_mut().enumerate() {
                let x = (at % cols) as f64 - middle_x;
                let y = (at / cols) as f64 - middle_y;
                let col = m0 * x + m1 * y + m2 + middle_x;
                let row = m3 * x + m4 * y + m5 + middle_y;
                *pixel = match interpolation {
                    Interpolation::Nearest => {
                        let [row, col] = [row, col].map(|x| x.round_ties_even() as isize);
                        pixel_at(&old, rows, cols, row, col)
                    }
                    Interpolation::Bilinear => between(&old, rows, cols, row, col),
                };
            }
        }
    }
}

/// The mean of the four pixels around a place.
fn between(plane: &[f32], rows: usize, cols: usize, row: f64, col: f64) -> f32 {
    let (top, left) = (row.floor(), col.floor());
    let (down, right) = ((row - top) as f32, (col - left) as f32);
    let at = |r: isize, c: isize| pixel_at(plane, rows, cols, top as isize + r, left as isize + c);
    let upper = at(0, 0) * (1.0 - right) + at(0, 1) * right;
    let lower = at(1, 0) * (1.0 - right) + at(1, 1) * right;
    upper * (1.0 - down) + lower * down
}

/// A Gaussian blur; beyond the edge the image is mirrored, the edge itself not repeated.
pub(super) fn blur(image: &mut Image<'_>, kernel_size: usize, sigma: f64) {
    let half = (kernel_size / 2) as isize;
    let bell = |k: isize| (-0.5 * (k as f64 / sigma).powi(2)).exp();
    let total: f64 = (-half..=half).map(bell).sum();
    let weights: Vec<f32> = (-half..=half).map(|k| (bell(k) / total) as f32).collect();
    let (rows, cols) = (image.rows, image.cols);
    let mirrored = |at: isize, len: usize| {
        let at = at.unsigned_abs();
        if at < len { at } else { 2 * (len - 1) - at }
    };
    let mut along = vec![0.0; rows * cols];
    for plane in image.planes() {
        for (at, out) in along.iter_mut().enumerate() {
            let (row, col) = (at / cols, (at % cols) as isize);
            let pixel = |k: isize| plane[row * cols + mirrored(col + k, cols)];
            *out = (-half..=half).zip(&weights).map(|(k, weight)| pixel(k) * weight).sum();
        }
        for (at, out) in plane.iter_mut().enumerate() {
            let (row, col) = ((at / cols) as isize, at % cols);
            let pixel = |k: isize| along[mirrored(row + k, rows) * cols + col];
            *out = (-half..=half).zip(&weights).map(|(k, weight)| pixel(k) * weight).sum();
        }
    }
}
