//! Sets of samples in memory.

use std::sync::Arc;

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::augment::Augmenter;
use super::order::Permutation;
use super::workers::Workers;
use super::{DataError, Vocabulary};
use crate::config::augment::Augment;
use crate::layers::InputSpec;
use crate::ops::philox;

/// What the target is.
#[derive(Clone, Debug, PartialEq)]
pub enum Task {
    /// One of several classes.
    Classification {
        /// How many.
        classes: usize,
        /// Their names, where the data gives any.
        names: Vec<String>,
    },
    /// Numbers.
    Regression,
    /// The next token at every place.
    NextToken {
        /// How many tokens there are.
        vocab: usize,
    },
}

/// The samples of a source.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) inputs: Vec<InputSpec>,
    pub(super) target: InputSpec,
    pub(super) task: Task,
    /// Names of a table's feature columns, in order.
    pub(super) columns: Vec<String>,
    pub(super) samples: Samples,
}

/// How samples are held.
#[derive(Clone, Debug)]
pub(super) enum Samples {
    /// Bytes of `[channels, height, width]`; a value is byte · scale + shift of its channel, the
    /// divisor being a part of the scale.
    Images { pixels: Vec<u8>, divisor: f64, channels: Vec<(f32, f32)>, labels: Vec<i32> },
    /// Numbers in rows.
    Rows { values: Vec<f32>, targets: Targets },
    /// One long sequence; samples are windows of `context` tokens, one after another.
    Tokens { tokens: Vec<i32>, context: usize, vocabulary: Vocabulary },
    /// Sequences of tokens, each with its successor sequence: `context + 1` tokens a sample.
    Sequences { tokens: Vec<i32>, context: usize },
}

/// What is predicted from a row.
#[derive(Clone, Debug)]
pub(super) enum Targets {
    Classes(Vec<i32>),
    Numbers(Vec<f32>),
}

/// A part of a content.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    /// Samples `first..first + len` of a permutation.
    Chosen { order: Permutation, first: usize, len: usize },
    /// Samples in their own order.
    All { len: usize },
    /// Windows of the tokens `first..first + tokens`. Where `shifted`, each epoch begins at
    /// another place, so that windows are cut differently.
    Windows { first: usize, tokens: usize, context: usize, shifted: bool },
}

impl Part {
    pub(super) fn whole(content: &Content) -> Part {
        match &content.samples {
            Samples::Tokens { tokens, context, .. } => {
                Part::Windows { first: 0, tokens: tokens.len(), context: *context, shifted: true }
            }
            _ => Part::All { len: content.len() },
        }
    }

    fn len(&self) -> usize {
        match self {
            Part::Chosen { len, .. } | Part::All { len } => *len,
            Part::Windows { tokens, context, shifted, .. } => {
                let whole = (tokens - 1) / context;
                if *shifted && whole > 1 { whole - 1 } else { whole }
            }
        }
    }
}

/// Key of the permutation that chooses a held-out share.
const SPLIT_KEY: u64 = 1;
/// Bytes that are worth a thread where they are only copied.
const PIECE: usize = 1 << 16;
/// Stream of the windows' shifts.
const SHIFT_STREAM: u32 = 0x5348_4946;

impl Content {
    fn len(&self) -> usize {
        match &self.samples {
            Samples::Images { labels, .. } => labels.len(),
            Samples::Rows { values, .. } => {
                let widths = self.inputs.iter().map(|input| input.sample.shape.elements());
                values.len() / widths.sum::<usize>()
            }
            Samples::Tokens { tokens, context, .. } => tokens.len().saturating_sub(1) / context,
            Samples::Sequences { tokens, context } => tokens.len() / (context + 1),
        }
    }

    /// What is kept and the share that is held out.
    pub(super) fn split(&self, share: f64, seed: u64) -> Result<(Part, Part), DataError> {
        if let Samples::Tokens { tokens, context, .. } = &self.samples {
            return split_text(tokens.len(), *context, share);
        }
        let len = self.len();
        let held = (len as f64 * share).round() as usize;
        if held == 0 || held == len {
            return Err(DataError::Unfit(format!(
                "a share of {share} of {len} samples leaves {held} for validation and {} for training",
                len - held
            )));
        }
        let order = Permutation::new(len, seed, SPLIT_KEY);
        let part = |first, len| Part::Chosen { order, first, len };
        Ok((part(held, len - held), part(0, held)))
    }
}

fn split_text(tokens: usize, context: usize, share: f64) -> Result<(Part, Part), DataError> {
    let held = (tokens as f64 * share).round() as usize;
    let kept = tokens - held;
    if held <= context || kept <= context {
        return Err(DataError::Unfit(format!(
            "a share of {share} of {tokens} tokens leaves no window of {context} tokens and their successors \
             in one of the parts"
        )));
    }
    let part = |first, tokens, shifted| Part::Windows { first, tokens, context, shifted };
    Ok((part(0, kept, true), part(kept, held, false)))
}

/// A set of samples.
#[derive(Debug)]
pub struct Dataset {
    content: Arc<Content>,
    part: Part,
    augmenter: Option<Augmenter>,
    seed: u64,
    workers: Arc<Workers>,
}

impl Dataset {
    pub(super) fn new(content: Arc<Content>, part: Part, workers: Arc<Workers>) -> Self {
        Dataset { content, part, augmenter: None, seed: 0, workers }
    }

    /// The same set whose samples change from epoch to epoch.
    ///
    /// # Errors
    /// When a rule is for other images.
    pub(super) fn augmented(mut self, rules: &[Augment], seed: u64) -> Result<Self, DataError> {
        if !rules.is_empty() {
            let dims = self.content.inputs[0].sample.shape.dims();
            self.augmenter = Some(Augmenter::new(rules, seed, dims)?);
        }
        self.seed = seed;
        Ok(self)
    }

    /// Who fills its batches.
    pub(super) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.part.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The model's inputs.
    pub fn inputs(&self) -> &[InputSpec] {
        &self.content.inputs
    }

    /// The target.
    pub fn target(&self) -> &InputSpec {
        &self.content.target
    }

    /// Number of classes, or of tokens.
    pub fn classes(&self) -> Option<usize> {
        match self.content.task {
            Task::Classification { classes, .. } => Some(classes),
            Task::NextToken { vocab } => Some(vocab),
            Task::Regression => None,
        }
    }

    /// What the target is.
    pub fn task(&self) -> &Task {
        &self.content.task
    }

    /// The tokens, for text.
    pub fn vocabulary(&self) -> Option<&Vocabulary> {
        match &self.content.samples {
            Samples::Tokens { vocabulary, .. } => Some(vocabulary),
            _ => None,
        }
    }

    /// Bytes of text that the targets of all samples stand for; 0 for what is no text.
    pub fn target_bytes(&self) -> u64 {
        match (&self.content.samples, &self.part) {
            (Samples::Tokens { tokens, vocabulary, .. }, Part::Windows { first, context, .. }) => {
                let targets = &tokens[first + 1..first + 1 + self.len() * context];
                targets.iter().map(|token| vocabulary.bytes(*token as usize) as u64).sum()
            }
            _ => 0,
        }
    }

    /// SHA-256 of the source's content, classes and tokens, in hexadecimal.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        match &self.content.samples {
            Samples::Images { pixels, labels, .. } => {
                hash.update(pixels);
                hash.update(bytemuck::cast_slice(labels));
            }
            Samples::Rows { values, targets } => {
                hash.update(bytemuck::cast_slice(values));
                match targets {
                    Targets::Classes(classes) => hash.update(bytemuck::cast_slice(classes)),
                    Targets::Numbers(numbers) => hash.update(bytemuck::cast_slice(numbers)),
                }
            }
            Samples::Tokens { tokens, vocabulary, .. } => {
                hash.update(bytemuck::cast_slice(tokens));
                (0..vocabulary.len()).for_each(|token| hash.update(vocabulary.decode(token)));
            }
            Samples::Sequences { tokens, .. } => hash.update(bytemuck::cast_slice(tokens)),
        }
        if let Task::Classification { names, .. } = &self.content.task {
            names.iter().chain(&self.content.columns).for_each(|name| hash.update(name));
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Room for batches of up to `n` samples.
    pub fn buffers(&self, n: usize) -> Buffers {
        let specs = self.content.inputs.iter().chain([&self.content.target]);
        let sizes: Vec<usize> = specs.map(|spec| spec.sample.bytes() as usize).collect();
        Buffers {
            words: sizes.iter().map(|size| vec![0; size * n / 4]).collect(),
            sizes,
            filled: 0,
        }
    }

    /// Writes samples as they are into a batch: the model's inputs, then the target.
    ///
    /// # Errors
    /// When a sample cannot be read.
    pub fn fill(&self, ids: &[usize], buffers: &mut Buffers) -> Result<(), DataError> {
        self.fill_in(ids, None, buffers)
    }

    /// Writes samples as training sees them in an epoch.
    ///
    /// # Errors
    /// When a sample cannot be read.
    pub fn fill_epoch(
        &self,
        ids: &[usize],
        epoch: u64,
        buffers: &mut Buffers,
    ) -> Result<(), DataError> {
        self.fill_in(ids, Some(epoch), buffers)
    }

    /// Fills on all workers; of several samples that cannot be read, the first one is the error.
    fn fill_in(
        &self,
        ids: &[usize],
        epoch: Option<u64>,
        buffers: &mut Buffers,
    ) -> Result<(), DataError> {
        let bytes: usize = buffers.sizes.iter().sum();
        let mut columns: Vec<_> = (buffers.words.iter_mut().zip(&buffers.sizes))
            .map(|(words, size)| words.chunks_mut((size / 4).max(1)))
            .collect();
        let row = |id: &usize| (*id, columns.iter_mut().flat_map(Iterator::next).collect());
        let rows: Vec<(usize, Vec<&mut [u32]>)> = ids.iter().map(row).collect();
        let cheap = self.augmenter.is_none() || epoch.is_none();
        let least = if cheap { PIECE.div_ceil(bytes.max(1)) } else { 1 };
        let failed = self.workers.run(|| {
            rows.into_par_iter().with_min_len(least).find_map_first(|(id, mut parts)| {
                let (target, inputs) = parts.split_last_mut()?;
                self.sample(id, epoch, inputs, target).err()
            })
        });
        buffers.filled = ids.len();
        failed.map_or(Ok(()), Err)
    }

    /// Writes one sample: each of the model's inputs, then the target.
    fn sample(
        &self,
        id: usize,
        epoch: Option<u64>,
        inputs: &mut [&mut [u32]],
        target: &mut [u32],
    ) -> Result<(), DataError> {
        let at = match &self.part {
            Part::Chosen { order, first, .. } => order.at(first + id),
            Part::All { .. } => id,
            Part::Windows { first, context, shifted, tokens } => {
                let shift = epoch.filter(|_| *shifted && (tokens - 1) / context > 1);
                first + id * context + shift.map_or(0, |epoch| self.shift(epoch, *context))
            }
        };
        match &self.content.samples {
            Samples::Images { pixels, divisor, channels, labels } => {
                let input: &mut [f32] = bytemuck::cast_slice_mut(&mut *inputs[0]);
                let image = &pixels[at * input.len()..(at + 1) * input.len()];
                let plane = input.len() / channels.len();
                // Images are changed as numbers from 0 to 1, then shifted and scaled.
                let mut whole = 1.0;
                if let (Some(augmenter), Some(epoch)) = (&self.augmenter, epoch) {
                    whole = *divisor as f32;
                    input.iter_mut().zip(image).for_each(|(out, p)| *out = f32::from(*p) / whole);
                    let dims = self.content.inputs[0].sample.shape.dims();
                    augmenter.apply(input, dims, epoch, at);
                } else {
                    input.iter_mut().zip(image).for_each(|(out, p)| *out = f32::from(*p));
                }
                for (values, (scale, shift)) in input.chunks_exact_mut(plane).zip(channels) {
                    let scale = scale * whole;
                    values.iter_mut().for_each(|value| *value = *value * scale + shift);
                }
                target[0] = labels[at] as u32;
            }
            Samples::Rows { values, targets } => {
                let all: usize = inputs.iter().map(|input| input.len()).sum();
                let mut row = &values[at * all..(at + 1) * all];
                for input in inputs {
                    let (own, rest) = row.split_at(input.len());
                    input.copy_from_slice(bytemuck::cast_slice(own));
                    row = rest;
                }
                let wide = target.len();
                match targets {
                    Targets::Classes(classes) => target[0] = classes[at] as u32,
                    Targets::Numbers(numbers) => {
                        target.copy_from_slice(bytemuck::cast_slice(
                            &numbers[at * wide..(at + 1) * wide],
                        ));
                    }
                }
            }
            Samples::Tokens { tokens, context, .. } => {
                inputs[0].copy_from_slice(bytemuck::cast_slice(&tokens[at..at + context]));
                target.copy_from_slice(bytemuck::cast_slice(&tokens[at + 1..at + 1 + context]));
            }
            Samples::Sequences { tokens, context } => {
                let sequence = &tokens[at * (context + 1)..(at + 1) * (context + 1)];
                inputs[0].copy_from_slice(bytemuck::cast_slice(&sequence[..*context]));
                target.copy_from_slice(bytemuck::cast_slice(&sequence[1..]));
            }
        }
        Ok(())
    }

    /// Tokens by which the windows of an epoch are moved.
    fn shift(&self, epoch: u64, context: usize) -> usize {
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        let words = philox::block([epoch as u32, (epoch >> 32) as u32, SHIFT_STREAM, 0], key);
        words[0] as usize % context
    }
}

/// The bytes of a batch, one buffer for each input and one for the target.
#[derive(Clone, Debug)]
pub struct Buffers {
    words: Vec<Vec<u32>>,
    sizes: Vec<usize>,
    filled: usize,
}

impl Buffers {
    /// Makes the first number of the first input a NaN.
    pub(super) fn poison(&mut self) {
        if let Some(word) = self.words.first_mut().and_then(|words| words.first_mut()) {
            *word = f32::NAN.to_bits();
        }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.words.iter().map(|words| 4 * words.len()).sum()
    }

    /// What was filled in: the model's inputs, then the target.
    pub fn inputs(&self) -> Vec<&[u8]> {
        let bytes = self.words.iter().map(|words| bytemuck::cast_slice::<u32, u8>(words));
        bytes.zip(&self.sizes).map(|(bytes, size)| &bytes[..size * self.filled]).collect()
    }
}
