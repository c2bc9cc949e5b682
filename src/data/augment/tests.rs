use std::path::Path;

use safetensors::SafeTensors;

use super::geometry::Cut;
use super::*;
use crate::config::augment::{
    Affine, Cutout, GaussianBlur, Grayscale, HorizontalFlip, Interpolation, RandAugment,
    RandomCrop, ResizedCrop, Rotation, TrivialAugment, VerticalFlip,
};

const DIMS: [usize; 3] = [3, 20, 28];

/// What torchvision made (tests/reference/augment.py).
fn reference(name: &str) -> Vec<f32> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference/augment.safetensors");
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    bytemuck::pod_collect_to_vec(file.tensor(name).unwrap().data())
}

fn compare(name: &str, tolerance: f32, change: impl FnOnce(&mut Image<'_>)) {
    let wanted = reference(name);
    let mut pixels = reference("image");
    pixels.truncate(wanted.len());
    change(&mut Image { pixels: &mut pixels, rows: DIMS[1], cols: DIMS[2] });
    let worst = pixels.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= tolerance, "{name}: {worst}");
}

fn resized(image: &mut Image<'_>, cut: [usize; 4]) {
    let [top, left, height, width] = cut;
    let resize = ResizeTo::new(Cut { top, left, height, width }, image.rows, image.cols);
    image.planes().for_each(|plane| resize.apply(plane));
}

#[test]
fn places_are_those_of_torchvision() {
    compare("resize_down", 1e-6, |image| resized(image, [2, 3, 15, 22]));
    compare("resize_up", 1e-6, |image| resized(image, [7, 1, 9, 6]));
    compare("resize_tall", 1e-6, |image| resized(image, [0, 4, 20, 5]));
    compare("rotate_nearest", 0.0, |image| {
        Placing::rotation(33.3).warp(image, Interpolation::Nearest);
    });
    compare("rotate_bilinear", 1e-5, |image| {
        Placing::rotation(-71.9).warp(image, Interpolation::Bilinear);
    });
    compare("affine", 1e-5, |image| {
        let (right, down) = (3.0, -2.0);
        let (degrees, scale, shear) = (21.7, 1.23, [11.1, 0.0]);
        let placing = Placing { degrees, right, down, scale, shear, ..Placing::default() };
        placing.warp(image, Interpolation::Bilinear);
    });
    compare("shear_y", 1e-5, |image| {
        let shear = [0.0, (-0.237f64).atan().to_degrees()];
        let placing = Placing { shear, center: [-14.0, -10.0], ..Placing::default() };
        placing.warp(image, Interpolation::Bilinear);
    });
    compare("vertical", 0.0, |image| image.planes().for_each(|p| geometry::upside_down(p, 28)));
    compare("blur", 1e-6, |image| geometry::blur(image, 5, 1.3));
}

#[test]
fn colours_are_those_of_torchvision() {
    compare("brightness", 1e-6, |image| colour::brightness(image, 1.37));
    compare("contrast", 1e-6, |image| colour::contrast(image, 0.41));
    compare("contrast_gray", 1e-6, |image| colour::contrast(image, 1.7));
    compare("saturation", 1e-6, |image| colour::saturation(image, 1.61));
    compare("hue", 1e-5, |image| colour::hue(image, -0.31));
    compare("hue_up", 1e-5, |image| colour::hue(image, 0.17));
    compare("grayscale", 1e-6, |image| colour::saturation(image, 0.0));
    compare("sharpness", 1e-6, |image| colour::sharpness(image, 1.83));
    compare("posterize", 0.0, |image| colour::posterize(image, 3));
    compare("solarize", 0.0, |image| colour::solarize(image, 0.43));
    compare("auto_contrast", 1e-6, colour::auto_contrast);
    compare("equalize", 1e-6, colour::equalize);
}

#[test]
fn strengths_are_those_of_torchvision() {
    for (rows, cols) in [(20, 28), (32, 32), (224, 224)] {
        let mut pixels = vec![0.0; rows * cols];
        let image = Image { pixels: &mut pixels, rows, cols };
        for (name, space) in [
            ("rand_augment", policy::Space::rand_augment(&image)),
            ("trivial_augment", policy::Space::trivial_augment()),
        ] {
            let wanted = reference(&format!("{name}_{rows}x{cols}"));
            assert_eq!(wanted.len(), 31 * policy::KINDS);
            for (at, wanted) in wanted.iter().enumerate() {
                let (kind, step) = (at / 31, at % 31);
                assert_eq!(space.strength(kind, step), *wanted, "{name}: {kind}, step {step}");
            }
        }
    }
}

fn every_rule() -> Vec<Augment> {
    vec![
        Augment::RandomCrop(RandomCrop { padding: 2 }),
        Augment::ResizedCrop(ResizedCrop { scale: [0.08, 1.0], ratio: [0.75, 4.0 / 3.0] }),
        Augment::HorizontalFlip(HorizontalFlip { p: 0.5 }),
        Augment::VerticalFlip(VerticalFlip { p: 0.5 }),
        Augment::Rotation(Rotation { degrees: 30.0, interpolation: Interpolation::Bilinear }),
        Augment::Affine(Affine {
            degrees: 10.0,
            translate: [0.1, 0.2],
            scale: [0.8, 1.2],
            shear: 5.0,
            interpolation: Interpolation::Nearest,
        }),
        Augment::ColorJitter(ColorJitter {
            brightness: 0.4,
            contrast: 0.4,
            saturation: 0.4,
            hue: 0.1,
        }),
        Augment::Grayscale(Grayscale { p: 0.5 }),
        Augment::GaussianBlur(GaussianBlur { kernel_size: 3, sigma: [0.1, 2.0] }),
        Augment::Erasing(Erasing { p: 0.5, scale: [0.02, 0.33], ratio: [0.3, 3.3], value: 0.0 }),
        Augment::Cutout(Cutout { size: 6 }),
        Augment::RandAugment(RandAugment { num_ops: 2, magnitude: 9 }),
        Augment::TrivialAugment(TrivialAugment {}),
    ]
}

#[test]
fn draws_depend_on_epoch_and_sample_only() {
    for rule in every_rule() {
        let augmenter = Augmenter::new(std::slice::from_ref(&rule), 4, &DIMS).unwrap();
        let run = |epoch, sample| {
            let mut image = reference("image");
            augmenter.apply(&mut image, &DIMS, epoch, sample);
            assert!(image.iter().all(|pixel| pixel.is_finite()), "{rule:?}");
            image
        };
        assert_eq!(run(3, 7), run(3, 7), "{rule:?}");
        assert!((0..20).any(|epoch| run(epoch, 7) != run(3, 7)), "{rule:?}");
        assert!((0..20).any(|sample| run(3, sample) != run(3, 7)), "{rule:?}");
    }
}

#[test]
fn images_of_any_size_and_channels_pass() {
    for dims in [[1, 1, 1], [1, 2, 9], [2, 5, 1], [4, 3, 3]] {
        for rule in every_rule() {
            let Ok(augmenter) = Augmenter::new(std::slice::from_ref(&rule), 4, &dims) else {
                continue;
            };
            for sample in 0..200 {
                let mut image: Vec<f32> =
                    (0..dims.iter().product()).map(|k| (k % 7) as f32 / 6.0).collect();
                augmenter.apply(&mut image, &dims, 0, sample);
                assert!(image.iter().all(|pixel| (-1e-5..=1.00001).contains(pixel)), "{rule:?}");
            }
        }
    }
}

#[test]
fn colours_of_images_without_any_are_refused() {
    let gray = Augmenter::new(&[Augment::Grayscale(Grayscale { p: 1.0 })], 0, &[1, 8, 8]);
    let message = gray.unwrap_err().to_string();
    assert!(message.contains("`grayscale` is for images of 3 channels"), "{message}");
    let blur = GaussianBlur { kernel_size: 17, sigma: [1.0, 1.0] };
    assert!(Augmenter::new(&[Augment::GaussianBlur(blur)], 0, &[1, 8, 8]).is_err());
}

#[test]
fn what_is_drawn_covers_its_range() {
    let mut draws = Draws::new([1, 2], 0, 0, 0);
    let mut counts = [0; 5];
    (0..5000).for_each(|_| counts[draws.below(5)] += 1);
    assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    let crop = ResizedCrop { scale: [0.25, 0.25], ratio: [1.0, 1.0] };
    for sample in 0..50 {
        let cut = geometry::random_crop(16, 16, &crop, &mut Draws::new([1, 2], 0, sample, 0));
        assert_eq!((cut.height, cut.width), (8, 8));
        assert!(cut.top <= 8 && cut.left <= 8);
    }
}
