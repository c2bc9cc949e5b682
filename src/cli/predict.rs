//! `predict`: a trained model's answers, one JSON document a line; or a text continued.

use std::io::Write;

use clap::Args;
use serde_json::{Value as Json, json};

use super::CliError;
use super::eval::{Trained, TrainedArgs};
use super::session::set_sizes;
use crate::data::{Dataset, Task};
use crate::device::{Globals, Run};
use crate::ops::philox;
use crate::plan::Slot;

/// What to answer.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  wootz predict --run checkpoints/digits-cnn
  wootz predict --run checkpoints/digits-cnn --set data.valid.idx.images=new.idx3-ubyte …
  wootz predict --run checkpoints/char-gpt --prompt 'To be' --length 200 --temperature 0.8")]
pub struct PredictArgs {
    #[command(flatten)]
    trained: TrainedArgs,
    /// Continue this text instead, with a model of text.
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Tokens to add to the prompt.
    #[arg(long, default_value_t = 200, requires = "prompt")]
    length: usize,
    /// 0 takes the likeliest token each time; 1 draws as the model believes.
    #[arg(long, default_value_t = 1.0, requires = "prompt", value_parser = parse_temperature)]
    temperature: f64,
    /// Seed of the draws.
    #[arg(long, default_value_t = 0, requires = "prompt")]
    seed: u64,
}

fn parse_temperature(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number.filter(|t| t.is_finite() && *t >= 0.0).ok_or("expected a number >= 0".into())
}

/// Answers.
pub fn run(args: PredictArgs) -> Result<u8, CliError> {
    match &args.prompt {
        Some(prompt) => continue_text(&args, prompt),
        None => answer_set(&args),
    }
}

fn answer_set(args: &PredictArgs) -> Result<u8, CliError> {
    let on = args.trained.on;
    let mut trained = Trained::open(&args.trained, |session| {
        Ok(set_sizes(session.set(on)?.as_ref(), session.config().train.batch_size))
    })?;
    let set = trained.session.set(on)?;
    if set.vocabulary().is_some() {
        let hint = "a model of text continues a text: give it one with `--prompt`";
        return Err(CliError::Usage(hint.into()));
    }
    let size = trained.compiled.eval_sizes.iter().copied().max().unwrap_or(1);
    let mut buffers = set.buffers(size);
    let mut done = 0;
    while done < set.len() {
        let ids: Vec<usize> = (done..set.len().min(done + size)).collect();
        set.fill(&ids, &mut buffers)?;
        let outputs = trained.outputs(ids.len(), buffers.inputs())?;
        for (place, id) in ids.iter().enumerate() {
            let sample = |output: &'_ Vec<f32>| {
                let each = output.len() / ids.len();
                output[place * each..(place + 1) * each].to_vec()
            };
            let mut document = answer(&set, *id, &sample(&outputs[0]));
            if let (Task::Classification { names, .. }, Some(target)) =
                (set.task(), buffers.inputs().last())
            {
                let classes: Vec<i32> = bytemuck::pod_collect_to_vec(target);
                document["target"] = json!(names.get(classes[place] as usize));
            }
            for (name, output) in trained.compiled.outputs.iter().zip(&outputs).skip(1) {
                document["outputs"][name] = json!(sample(output));
            }
            super::print(&document.to_string());
        }
        done += ids.len();
    }
    Ok(0)
}

/// One sample's answer: the class and its probability, or the numbers.
fn answer(set: &Dataset, id: usize, output: &[f32]) -> Json {
    match set.task() {
        Task::Classification { names, .. } => {
            let (class, share) = likeliest(output);
            let name = names.get(class).cloned().unwrap_or_else(|| class.to_string());
            json!({"id": id, "class": name, "probability": share})
        }
        _ => json!({"id": id, "output": output}),
    }
}

/// The largest logit's index and its softmax.
fn likeliest(logits: &[f32]) -> (usize, f64) {
    let top = logits
        .iter()
        .copied()
        .enumerate()
        .fold((0, f32::MIN), |best, (i, v)| if v > best.1 { (i, v) } else { best });
    let total: f64 = logits.iter().map(|v| f64::from(v - top.1).exp()).sum();
    (top.0, 1.0 / total)
}

impl Trained {
    /// The model's outputs for one batch, row-major.
    fn outputs(&mut self, size: usize, inputs: Vec<&[u8]>) -> Result<Vec<Vec<f32>>, CliError> {
        let at = self.compiled.eval_sizes.iter().position(|s| *s == size).unwrap_or(0);
        let program = self.compiled.plan.roles.eval[at];
        self.executor.submit(&[Run { program, inputs, globals: Globals::default() }], 0)?;
        self.executor.reports(true)?;
        let slots: Vec<Slot> =
            self.compiled.plan.programs[program].outputs.iter().map(|(slot, _)| *slot).collect();
        slots
            .into_iter()
            .map(|slot| Ok(bytemuck::pod_collect_to_vec(&self.executor.read(slot)?)))
            .collect()
    }
}

fn continue_text(args: &PredictArgs, prompt: &str) -> Result<u8, CliError> {
    let mut trained = Trained::open(&args.trained, |_| Ok(vec![1]))?;
    let set = trained.session.data.train.clone();
    let Some(vocabulary) = set.vocabulary() else {
        return Err(CliError::Usage("`--prompt` needs a model of text".into()));
    };
    let encoded = vocabulary.encode(prompt);
    let mut tokens = encoded.map_err(|error| CliError::Usage(error.to_string()))?;
    if tokens.is_empty() {
        return Err(CliError::Usage("the prompt is empty".into()));
    }
    let context = set.inputs()[0].sample.shape.elements();
    let mut out = std::io::stdout().lock();
    // A reader that went away ends the text.
    let _ = write!(out, "{prompt}");
    for draw in 0..args.length {
        let window = &tokens[tokens.len().saturating_sub(context)..];
        let mut ids = window.to_vec();
        ids.resize(context, 0);
        let target = vec![0_i32; context];
        let logits = &trained
            .outputs(1, vec![bytemuck::cast_slice(&ids), bytemuck::cast_slice(&target)])?[0];
        let classes = logits.len() / context;
        let last = &logits[(window.len() - 1) * classes..window.len() * classes];
        let token = choose(last, args.temperature, args.seed, draw as u32);
        tokens.push(token as i32);
        if write!(out, "{}", vocabulary.decode(token)).and_then(|()| out.flush()).is_err() {
            return Ok(0);
        }
    }
    let _ = writeln!(out);
    Ok(0)
}

/// Draws a token from softmax(logits / temperature); the likeliest at temperature 0.
fn choose(logits: &[f32], temperature: f64, seed: u64, draw: u32) -> usize {
    let (top, _) = likeliest(logits);
    if temperature <= 0.0 {
        return top;
    }
    let weights: Vec<f64> =
        logits.iter().map(|v| (f64::from(v - logits[top]) / temperature).exp()).collect();
    let word = philox::block([draw, 0, 0, 0], [seed as u32, (seed >> 32) as u32])[0];
    let mut left = f64::from(word) / 4_294_967_296.0 * weights.iter().sum::<f64>();
    for (token, weight) in weights.iter().enumerate() {
        left -= weight;
        if left < 0.0 {
            return token;
        }
    }
    top
}
