use super::*;
use crate::config::data::Data;
use crate::config::load::load_with;
use crate::data::open;

const CONFIG: &str = "
version: 1
seed: 5
data:
  train: {synthetic: {kind: classification, samples: 210, shape: [3, 12, 12], classes: 4}}
  valid: {split: 0.1}
  augment:
    - resized_crop
    - horizontal_flip
    - rotation: {degrees: 20}
    - color_jitter: {brightness: 0.2, contrast: 0.2, saturation: 0.2, hue: 0.1}
    - gaussian_blur: {kernel_size: 3}
    - rand_augment
    - erasing
model: {layers: [flatten, linear: {out_features: 4}]}
loss: cross_entropy
optimizer: {sgd: {lr: 0.1}}
train: {epochs: 3, batch_size: 16, accumulate: 2}
";

/// The configuration, with a number of workers.
fn config(workers: usize) -> crate::config::Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, CONFIG).unwrap();
    let (loaded, _) = load_with(&path, &[], &|_| None, |_, _| Some(())).unwrap();
    let data = Data { workers: Some(workers), ..loaded.config.data };
    crate::config::Config { data, ..loaded.config }
}

fn loader(config: &crate::config::Config, first: u64, last: u64) -> Loader {
    let set = open(&config.data, config.seed).unwrap().train;
    let batches = Batches::new(set.len(), &config.train, config.seed);
    Loader::start(set, batches, first, last)
}

/// Samples and bytes of each step.
fn steps(config: &crate::config::Config, first: u64, last: u64) -> Vec<(Vec<usize>, Vec<Vec<u8>>)> {
    let mut loader = loader(config, first, last);
    (first..=last)
        .map(|step| {
            let batch = loader.next_step().unwrap();
            assert_eq!(batch.step, step);
            let bytes = batch.micros.iter().flat_map(Micro::inputs).map(<[u8]>::to_vec).collect();
            let found = (batch.ids().collect(), bytes);
            loader.recycle(batch);
            found
        })
        .collect()
}

#[test]
fn batches_are_the_same_with_one_two_and_eight_workers_and_from_any_step() {
    let one = steps(&config(1), 1, 18);
    assert_eq!(one[0].0.len(), 32);
    assert_ne!(one[0].1, one[6].1, "each epoch has its own order");
    assert!(one == steps(&config(2), 1, 18), "two workers");
    assert!(one == steps(&config(8), 1, 18), "eight workers");
    assert!(one[10..] == steps(&config(8), 11, 18), "from step 11 on");
}

#[test]
fn memory_that_is_prepared_ahead_is_bounded() {
    let config = config(2);
    let set = open(&config.data, 0).unwrap().train;
    let bytes = set.buffers(32).bytes();
    assert_eq!(bytes, 32 * (3 * 12 * 12 * 4 + 4));
    assert_eq!(set.workers().ahead(bytes), 64, "small steps are bounded by their number");
    assert_eq!(set.workers().ahead(20 << 20), 3);
    assert_eq!(set.workers().ahead(200 << 20), 1, "one step at least");
}

#[test]
fn a_set_in_order_is_as_it_is() {
    let config = config(8);
    let valid = open(&config.data, config.seed).unwrap().valid.unwrap();
    let mut plain = valid.buffers(valid.len());
    valid.fill(&(0..valid.len()).collect::<Vec<_>>(), &mut plain).unwrap();
    let mut loader = Loader::in_order(valid.clone(), 16);
    let (first, rest) = (loader.next_step().unwrap(), loader.next_step().unwrap());
    assert_eq!((first.micros[0].size, rest.micros[0].size), (16, 5));
    let joined = [first.micros[0].inputs()[0], rest.micros[0].inputs()[0]].concat();
    assert!(joined == plain.inputs()[0]);
    assert!(loader.next_step().is_err());
}
