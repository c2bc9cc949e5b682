use std::sync::Arc;

use super::*;
use crate::config::sampling::Balanced;
use crate::data::dataset::{Content, Part, Samples, Targets};
use crate::data::workers::Workers;
use crate::graph::TensorType;
use crate::layers::InputSpec;

/// 100 rows: 90 of class `a`, 9 of `b`, 1 of `c`.
fn set() -> Dataset {
    let classes: Vec<i32> =
        (0..100).map(|row| i32::from(row >= 90) + i32::from(row >= 99)).collect();
    let spec = |name: &str, sample| InputSpec { name: name.into(), sample };
    let names = ["a", "b", "c"].map(String::from).to_vec();
    let content = Content {
        inputs: vec![spec("x", TensorType::f32([1]))],
        target: spec("y", TensorType::i32([])),
        task: Task::Classification { classes: 3, names },
        columns: Vec::new(),
        samples: Samples::Rows { values: vec![0.0; 100], targets: Targets::Classes(classes) },
    };
    let workers = Arc::new(Workers::new(Some(1), 1).unwrap());
    Dataset::new(Arc::new(content), Part::All { len: 100 }, workers)
}

fn counts(sampler: &Sampler, set: &Dataset, draws: usize) -> [usize; 3] {
    let mut counts = [0; 3];
    (0..draws).for_each(|place| counts[set.class_of(sampler.at(2, place)).unwrap()] += 1);
    counts
}

/// Within five standard deviations of a binomial count.
fn near(counts: [usize; 3], draws: usize, shares: [f64; 3]) {
    for (count, share) in counts.into_iter().zip(shares) {
        let (mean, spread) = (draws as f64 * share, (draws as f64 * share * (1.0 - share)).sqrt());
        assert!((count as f64 - mean).abs() <= 5.0 * spread, "{counts:?}, wanted {shares:?}");
    }
}

#[test]
fn classes_are_drawn_as_often_as_they_should() {
    let set = set();
    let balanced = Sampling::Balanced(Balanced { samples: None });
    let sampler = Sampler::new(&balanced, &set, 3).unwrap();
    assert_eq!(sampler.epoch_len(), 100);
    near(counts(&sampler, &set, 30_000), 30_000, [1.0 / 3.0; 3]);
    let classes = Some([("b".to_owned(), 4.0), ("c".to_owned(), 0.0)].into());
    let weighted = Sampling::Weighted(Weighted { classes, path: None, samples: Some(7) });
    let sampler = Sampler::new(&weighted, &set, 3).unwrap();
    assert_eq!(sampler.epoch_len(), 7);
    let found = counts(&sampler, &set, 30_000);
    near(found, 30_000, [90.0 / 126.0, 36.0 / 126.0, 0.0]);
    assert_eq!(found[2], 0, "a weight of 0 is never drawn");
}

#[test]
fn a_draw_is_a_function_of_seed_epoch_and_place() {
    let set = set();
    let balanced = Sampling::Balanced(Balanced { samples: None });
    let draws = |seed, epoch| -> Vec<usize> {
        let sampler = Sampler::new(&balanced, &set, seed).unwrap();
        (0..50).map(|place| sampler.at(epoch, place)).collect()
    };
    assert_eq!(draws(1, 0), draws(1, 0));
    assert_ne!(draws(1, 0), draws(1, 1));
    assert_ne!(draws(1, 0), draws(2, 0));
}

#[test]
fn weights_of_samples_come_from_a_file() {
    let (set, folder) = (set(), tempfile::tempdir().unwrap());
    let path = folder.path().join("weights.txt");
    let weighted = |path: &Path| {
        let path = Some(path.to_owned());
        Sampling::Weighted(Weighted { classes: None, path, samples: None })
    };
    let only =
        |row: usize| (0..100).map(|at| if at == row { "2.5\n" } else { "0\n" }).collect::<String>();
    std::fs::write(&path, only(42)).unwrap();
    let sampler = Sampler::new(&weighted(&path), &set, 0).unwrap();
    assert!((0..200).all(|place| sampler.at(0, place) == 42));
    let message = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Sampler::new(&weighted(&path), &set, 0).unwrap_err().to_string()
    };
    assert!(message("1\n-2\n").contains("line 2: expected a weight of at least 0, found `-2`"));
    assert!(message("1\n1\n").contains("2 weights, but `data.train` has 100 samples"));
    assert!(message(&"0\n".repeat(100)).contains("add up to 0"));
}

#[test]
fn a_class_that_does_not_exist_is_named() {
    let classes = Some([("aa".to_owned(), 4.0)].into());
    let weighted = Sampling::Weighted(Weighted { classes, path: None, samples: None });
    let message = Sampler::new(&weighted, &set(), 0).unwrap_err().to_string();
    assert!(message.contains("there is no class `aa`"), "{message}");
}
