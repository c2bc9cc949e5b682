//! Rules over several keys: one named function each, called by the section that holds them all
//! once its keys are read.

use super::augment::{Affine, Erasing, GaussianBlur, ResizedCrop};
use super::data::{Csv, Data, Normalize, Source, Synthetic, SyntheticKind, Task, Valid};
use super::decode::Cx;
use super::loss::{Compares, CrossEntropy, Loss, MultiMargin, Nll, Objective, Term};
use super::metric::Metric;
use super::node::Node;
use super::optimizer::{Muon, Sgd};
use super::schedule::{Chained, Cosine, Linear, MultiStep, Piecewise, Polynomial, Schedule, Wsd};
use super::source::Span;
use super::train::Train;
use super::types::Config;
use super::weights::Weights;

/// Where a key stands; the section itself if the key is left to its default.
fn at(node: &Node, key: &str) -> Span {
    node.entry(key).map_or(node.span, |(key, _)| key.span)
}

/// A run has exactly one length.
pub fn train(train: &Train, node: &Node, cx: &mut Cx) {
    match (train.epochs, train.steps) {
        (Some(_), Some(_)) => {
            cx.error(at(node, "steps"), "`steps` beside `epochs`").help("give one of them");
        }
        (None, None) => {
            cx.error(node.span, "neither `epochs` nor `steps` is given")
                .help("say how long to train with one of them");
        }
        _ => {}
    }
}

/// Nesterov's form is a form of momentum without dampening.
pub fn sgd(sgd: &Sgd, node: &Node, cx: &mut Cx) {
    if sgd.nesterov && sgd.momentum == 0.0 {
        cx.error(at(node, "nesterov"), "`nesterov` needs a `momentum` above 0");
    }
    if sgd.nesterov && sgd.dampening != 0.0 {
        cx.error(at(node, "dampening"), "`nesterov` needs a `dampening` of 0");
    }
}

/// Nesterov's form is a form of momentum.
pub fn muon(muon: &Muon, node: &Node, cx: &mut Cx) {
    if muon.nesterov && muon.momentum == 0.0 {
        cx.error(at(node, "momentum"), "`nesterov` needs a `momentum` above 0");
    }
}

/// Some class counts.
pub fn cross_entropy(loss: &CrossEntropy, node: &Node, cx: &mut Cx) {
    some_class_counts(loss.weight.as_deref(), node, cx);
}

/// Some class counts.
pub fn nll(loss: &Nll, node: &Node, cx: &mut Cx) {
    some_class_counts(loss.weight.as_deref(), node, cx);
}

/// Some class counts.
pub fn multi_margin(loss: &MultiMargin, node: &Node, cx: &mut Cx) {
    some_class_counts(loss.weight.as_deref(), node, cx);
}

fn some_class_counts(weight: Option<&[f64]>, node: &Node, cx: &mut Cx) {
    if weight.is_some_and(|weight| weight.iter().all(|weight| *weight == 0.0)) {
        cx.error(at(node, "weight"), "no class counts: every weight is 0")
            .help("give the classes that matter a weight above 0");
    }
}

/// Milestones rise.
pub fn multistep(schedule: &MultiStep, node: &Node, cx: &mut Cx) {
    rise(&schedule.milestones, "milestones", node, cx);
}

/// There is a point, and steps rise.
pub fn piecewise(schedule: &Piecewise, node: &Node, cx: &mut Cx) {
    let steps: Vec<f64> = schedule.points.iter().map(|[step, _]| *step).collect();
    if steps.is_empty() {
        cx.error(at(node, "points"), "a schedule needs at least one point");
    }
    rise(&steps, "points", node, cx);
}

/// Each schedule but the first has the step at which it begins.
pub fn chained(schedule: &Chained, node: &Node, cx: &mut Cx) {
    let (schedules, milestones) = (schedule.schedules.len(), schedule.milestones.len());
    if schedules != milestones + 1 {
        let message = format!(
            "{schedules} schedules need {} milestones, not {milestones}",
            schedules.max(1) - 1
        );
        cx.error(at(node, "milestones"), message);
    }
    rise(&schedule.milestones, "milestones", node, cx);
}

fn rise<T: PartialOrd>(steps: &[T], key: &str, node: &Node, cx: &mut Cx) {
    if steps.windows(2).any(|pair| pair[0] >= pair[1]) {
        cx.error(at(node, key), "the steps must rise");
    }
}

/// The warm-up of a polynomial schedule ends before the schedule does.
pub fn polynomial(schedule: &Polynomial, node: &Node, cx: &mut Cx) {
    warmup_ends(schedule.warmup_steps, schedule.total_steps, node, cx);
}

/// A name and what it becomes have the same number of `*`.
pub fn weights(weights: &Weights, node: &Node, cx: &mut Cx) {
    for (theirs, ours) in &weights.map {
        let [found, wanted] = [ours, theirs].map(|pattern| pattern.matches('*').count());
        if found != wanted {
            let entry = node.get("map").and_then(|map| map.get(theirs));
            let span = entry.map_or(node.span, |node| node.span);
            cx.error(span, format!("`{theirs}` has {wanted} `*`, `{ours}` has {found}"))
                .help("each `*` of the file's name stands for the same text in this model's");
        }
    }
}

/// The warm-up of a cosine schedule ends before the schedule does.
pub fn cosine(schedule: &Cosine, node: &Node, cx: &mut Cx) {
    warmup_ends(schedule.warmup_steps, schedule.total_steps, node, cx);
}

/// The warm-up of a linear schedule ends before the schedule does.
pub fn linear(schedule: &Linear, node: &Node, cx: &mut Cx) {
    warmup_ends(schedule.warmup_steps, schedule.total_steps, node, cx);
}

/// The warm-up and the decay fit into the schedule.
pub fn wsd(schedule: &Wsd, node: &Node, cx: &mut Cx) {
    let before = schedule.warmup_steps + schedule.decay_steps - 1;
    warmup_ends(before, schedule.total_steps, node, cx);
}

fn warmup_ends(warmup: usize, total: Option<usize>, node: &Node, cx: &mut Cx) {
    if let Some(total) = total.filter(|total| *total <= warmup) {
        let message = format!("`total_steps` is {total}, within the warm-up of {warmup} steps");
        cx.error(at(node, "total_steps"), message);
    }
}

/// A delimiter is one byte, and columns have names only if there is a header.
pub fn csv(csv: &Csv, node: &Node, cx: &mut Cx) {
    use super::data::Column;
    if csv.inputs.is_some() && csv.features.is_some() {
        cx.error(at(node, "inputs"), "`inputs` beside `features`").help("give one of them");
    }
    if csv
        .inputs
        .as_ref()
        .is_some_and(|inputs| inputs.values().any(Vec::is_empty) || inputs.is_empty())
    {
        cx.error(at(node, "inputs"), "an input without columns");
    }
    if !csv.delimiter.is_ascii() {
        cx.error(at(node, "delimiter"), "the delimiter must be an ASCII character");
    }
    if csv.header {
        return;
    }
    if matches!(csv.target, Column::Name(_)) {
        cx.error(at(node, "target"), "columns have no names without a header")
            .help("give the number of the column, from 0");
    }
    let named = csv.inputs.iter().flat_map(|inputs| inputs.values()).flatten();
    if named.into_iter().any(|c| matches!(c, Column::Name(_))) {
        cx.error(at(node, "inputs"), "columns have no names without a header")
            .help("give the numbers of the columns, from 0");
    }
    if csv.features.iter().flatten().any(|c| matches!(c, Column::Name(_))) {
        cx.error(at(node, "features"), "columns have no names without a header")
            .help("give the numbers of the columns, from 0");
    }
}

/// Classes belong to classification and tokens, outputs to regression.
pub fn synthetic(source: &Synthetic, node: &Node, cx: &mut Cx) {
    let kind = source.kind.word();
    if source.kind == SyntheticKind::Regression {
        if source.classes.is_some() {
            cx.error(at(node, "classes"), "`classes` has no meaning for regression")
                .help("`outputs` says how many numbers to predict");
        }
    } else {
        if source.outputs.is_some() {
            cx.error(at(node, "outputs"), format!("`outputs` has no meaning for {kind}"));
        }
        if source.classes.is_none() {
            cx.missing_key("classes", "an integer >= 2", node.span);
        }
    }
    const MOST: usize = 1 << 32;
    let each = source.shape.iter().try_fold(1_usize, |n, d| n.checked_mul(*d));
    if each.and_then(|each| each.checked_mul(source.samples)).is_none_or(|n| n > MOST) {
        cx.error(at(node, "samples"), format!("more than {MOST} numbers in all"))
            .help("fewer samples, or a smaller shape");
    }
    let tokens = source.kind == SyntheticKind::Tokens;
    let dims = source.shape.len();
    if dims == 0 || (tokens && dims != 1) {
        let wanted = if tokens { "[time]" } else { "[features] or [channels, height, width]" };
        cx.error(at(node, "shape"), format!("expected a shape {wanted}, got {dims} dimensions"));
    }
}

/// Mean and deviation are given for the same channels.
pub fn normalize(normalize: &Normalize, node: &Node, cx: &mut Cx) {
    let (means, stds) = (normalize.mean.len(), normalize.std.len());
    if means != stds {
        let message = format!("{means} means but {stds} standard deviations: one a channel");
        cx.error(at(node, "std"), message);
    }
}

/// Normalization and augmentation are for images.
pub fn data(data: &Data, node: &Node, cx: &mut Cx) {
    let images = match &data.train {
        Source::Idx(_) | Source::Cifar10(_) => true,
        Source::Synthetic(s) => s.shape.len() == 3,
        Source::Csv(_) | Source::Text(_) => false,
    };
    for (key, given) in
        [("normalize", data.normalize.is_some()), ("augment", !data.augment.is_empty())]
    {
        if given && !images {
            let word = data.train.word();
            cx.error(at(node, key), format!("`{key}` is for images, and `{word}` holds none"));
        }
    }
}

/// A least value does not lie above the largest.
fn least_first(pair: [f64; 2], key: &str, node: &Node, cx: &mut Cx) {
    if pair[0] > pair[1] {
        cx.error(at(node, key), format!("`{key}` is from {} to {}", pair[0], pair[1]))
            .help("the smaller number comes first");
    }
}

/// An area within the image; ranges rise.
pub fn resized_crop(crop: &ResizedCrop, node: &Node, cx: &mut Cx) {
    least_first(crop.scale, "scale", node, cx);
    least_first(crop.ratio, "ratio", node, cx);
    share_of_area(crop.scale[1], node, cx);
}

fn share_of_area(largest: f64, node: &Node, cx: &mut Cx) {
    if largest > 1.0 {
        cx.error(at(node, "scale"), format!("a share of the area cannot be {largest}, above 1"));
    }
}

/// Factors rise.
pub fn affine(affine: &Affine, node: &Node, cx: &mut Cx) {
    least_first(affine.scale, "scale", node, cx);
}

/// A kernel has a middle; widths rise.
pub fn gaussian_blur(blur: &GaussianBlur, node: &Node, cx: &mut Cx) {
    least_first(blur.sigma, "sigma", node, cx);
    if blur.kernel_size.is_multiple_of(2) {
        cx.error(at(node, "kernel_size"), "`kernel_size` must be odd");
    }
}

/// An area within the image; ranges rise.
pub fn erasing(erasing: &Erasing, node: &Node, cx: &mut Cx) {
    least_first(erasing.scale, "scale", node, cx);
    least_first(erasing.ratio, "ratio", node, cx);
    share_of_area(erasing.scale[1], node, cx);
}

/// Rules over several sections.
pub fn config(config: &Config, node: &Node, cx: &mut Cx) {
    run_name(config, node, cx);
    losses_fit_targets(config, node, cx);
    metrics_fit_losses(config, node, cx);
    penalties_are_some(config, cx);
    if let Some(best) = &config.checkpoint.keep_best {
        metric_exists(&best.metric, &["checkpoint", "keep_best"], config, node, cx);
    }
    if let Some(stop) = &config.early_stop {
        metric_exists(&stop.metric, &["early_stop"], config, node, cx);
    }
    if let Schedule::ReduceOnPlateau(plateau) = &config.schedule {
        metric_exists(&plateau.metric, &["schedule", "reduce_on_plateau"], config, node, cx);
    }
}

/// A run's name becomes a folder's.
fn run_name(config: &Config, node: &Node, cx: &mut Cx) {
    let Some(name) = &config.name else { return };
    let bad = |c: char| c.is_control() || matches!(c, '/' | '\\' | ':');
    let taken = name.starts_with('.') || name.starts_with("step-");
    if name.trim().is_empty() || name.len() > 100 || name.contains(bad) || taken {
        let span = node.get("name").map_or(node.span, |name| name.span);
        cx.within("name", |cx| {
            cx.error(span, "this cannot be the name of a run's folder").help(
                "up to 100 characters, without slashes, colons and control characters, and not \
                 beginning with a dot or `step-`",
            );
        });
    }
}

/// Whether the targets of a source are classes and not numbers.
fn has_classes(source: &Source) -> bool {
    match source {
        Source::Idx(_) | Source::Text(_) | Source::Cifar10(_) => true,
        Source::Csv(csv) => csv.task == Task::Classification,
        Source::Synthetic(s) => s.kind != SyntheticKind::Regression,
    }
}

/// Whether a term is compared with the target of a source, which may be given by its name.
fn has_data_target(term: &Term<'_>, source: &Source) -> bool {
    let name = match source {
        Source::Idx(_) | Source::Cifar10(_) => "label",
        Source::Csv(_) => "target",
        Source::Text(_) => "next tokens",
        Source::Synthetic(s) => match s.kind {
            SyntheticKind::Classification => "label",
            SyntheticKind::Regression => "target",
            SyntheticKind::Tokens => "next tokens",
        },
    };
    term.target.is_none_or(|target| target.text == name)
}

/// Whether a source gives several numbers for a sample, which can be probabilities of classes.
fn has_several_numbers(source: &Source) -> bool {
    matches!(source, Source::Synthetic(s) if s.outputs.is_some_and(|outputs| outputs > 1))
}

/// Runs `body` at the section of an output's loss, `loss` or `loss.NAME`, with that node.
fn at_term<'n>(term: &Term<'_>, node: &'n Node, cx: &mut Cx, body: impl FnOnce(&'n Node, &mut Cx)) {
    let loss = node.get("loss").unwrap_or(node);
    cx.within("loss", |cx| match term.name {
        None => body(loss, cx),
        Some(name) => {
            let own = loss.get(&name.text).unwrap_or(loss);
            cx.within(&name.text, |cx| body(own, cx));
        }
    });
}

fn losses_fit_targets(config: &Config, node: &Node, cx: &mut Cx) {
    let valid = match &config.data.valid {
        Some(Valid::Source(source)) => Some(("valid", source)),
        _ => None,
    };
    let test = config.data.test.as_ref().map(|source| ("test", source));
    let sources = [Some(("train", &config.data.train)), valid, test];
    for term in &config.loss.terms(&config.metrics) {
        let compared = |(_, source): &(&str, &Source)| has_data_target(term, source);
        for (key, source) in sources.into_iter().flatten().filter(compared) {
            if let Some((message, help)) = unfit_target(term.loss, key, source) {
                at_term(term, node, cx, |node, cx| {
                    _ = cx.error(node.span, message).help(help);
                });
            }
        }
    }
}

/// What is wrong with a loss for a source's targets, and what may be meant.
fn unfit_target(loss: &Loss, key: &str, source: &Source) -> Option<(String, String)> {
    let classes = has_classes(source);
    let soft = matches!(loss, Loss::CrossEntropy(_) | Loss::Dice(_)) && !classes;
    let (wanted, found, other) = match loss.compares() {
        Compares::Classes if !classes => ("classes", "numbers", "mse"),
        Compares::Either if soft && !has_several_numbers(source) => ("classes", "numbers", "mse"),
        Compares::Numbers if classes => ("numbers", "classes", "cross_entropy"),
        _ => return None,
    };
    let word = loss.word();
    let message = format!("`{word}` needs {wanted} as targets, and `data.{key}` has {found}");
    Some((message, format!("use `{other}`")))
}

fn metrics_fit_losses(config: &Config, node: &Node, cx: &mut Cx) {
    if matches!(config.loss, Objective::Several(_)) && !config.metrics.is_empty() {
        let span = at(node, "metrics");
        cx.within("metrics", |cx| {
            _ = cx
                .error(span, "`metrics` beside a map of losses: of which output?")
                .help("give each output its own, beside its `loss`");
        });
    }
    for term in config.loss.terms(&config.metrics) {
        // Of the model's inputs, only tokens are classes.
        let source = &config.data.train;
        let tokens = match source {
            Source::Synthetic(s) => s.kind == SyntheticKind::Tokens,
            source => matches!(source, Source::Text(_)),
        };
        let classes = tokens || (has_data_target(&term, source) && has_classes(source));
        let report = |node: &Node, cx: &mut Cx| {
            let span = at(node, "metrics");
            cx.within("metrics", |cx| {
                for (index, metric) in term.metrics.iter().enumerate() {
                    let name = metric.name();
                    let twice = term.metrics[..index].iter().any(|other| other.name() == name);
                    let text = matches!(config.data.train, Source::Text(_));
                    let problem = match metric {
                        _ if twice => Some(format!("`{name}` is given twice")),
                        Metric::BitsPerByte(_) if !text => {
                            Some("`bits_per_byte` needs a text".to_owned())
                        }
                        _ => metric.unfit(term.loss, classes),
                    };
                    if let Some(problem) = problem {
                        cx.error(span, problem);
                    }
                }
            });
        };
        match term.name {
            None => report(node, cx),
            Some(_) => at_term(&term, node, cx, report),
        }
    }
}

/// A penalty without a factor is none.
fn penalties_are_some(config: &Config, cx: &mut Cx) {
    for (index, penalty) in config.penalties.iter().enumerate() {
        let twice =
            config.penalties[..index].iter().any(|other| other.layer.text == penalty.layer.text);
        let problem = match () {
            () if penalty.l1 == 0.0 && penalty.l2 == 0.0 => "neither `l1` nor `l2` is above 0",
            () if twice => "a second penalty on the same layer",
            () => continue,
        };
        let span = penalty.layer.span;
        cx.within("penalties", |cx| cx.at(index, |cx| _ = cx.error(span, problem)));
    }
}

/// The names of all values that an evaluation gives.
fn measured(config: &Config) -> Vec<String> {
    let mut names = vec!["valid/loss".to_owned()];
    for term in config.loss.terms(&config.metrics) {
        let alone = term.name.is_none() && config.penalties.is_empty();
        if !alone {
            names.push(format!("valid/{}", term.loss_name()));
        }
        let numbers = term.metrics.iter().filter(|metric| metric.is_number());
        names.extend(numbers.map(|m| format!("valid/{}", term.reported(&m.name()))));
    }
    names.extend(config.penalties.iter().map(|penalty| format!("valid/{}", penalty.reported())));
    names
}

/// A metric that is compared must be one that the run computes.
fn metric_exists(metric: &str, section: &[&str], config: &Config, node: &Node, cx: &mut Cx) {
    let mut known = measured(config);
    if config.average.is_some() {
        let averaged = known.iter().map(|metric| metric.replace("valid/", "average/"));
        known.extend(averaged.collect::<Vec<_>>());
    }
    if config.data.valid.is_some() && known.iter().any(|k| k == metric) {
        return;
    }
    let section_node = section.iter().try_fold(node, |node, key| node.get(key)).unwrap_or(node);
    let span = section_node.get("metric").map_or(section_node.span, |metric| metric.span);
    let path = section.join(".");
    let words = super::schema::alternatives(known.iter().map(String::as_str));
    cx.within(&format!("{path}.metric"), |cx| {
        if config.data.valid.is_none() {
            cx.error(span, format!("`{metric}` needs `data.valid`"))
                .help("hold a share out: `valid: {split: 0.1}`");
        } else {
            cx.error(span, format!("the run does not compute `{metric}`"))
                .help(format!("it computes {words}"));
        }
    });
}
