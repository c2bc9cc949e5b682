//! A sweep: which keys of a configuration vary, how they are drawn, what is compared.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::decode::Cx;
use super::macros::{choices, options, tagged};
use super::node::Node;
use super::schema::above;
use super::train::Mode;
use super::types::Version;

/// Most keys that the Sobol sampler varies.
pub const MOST_SOBOL_KEYS: usize = 32;

options! {
    /// Many runs of one configuration with different values.
    pub struct Sweep checked_by whole {
        /// The version of this language: 1.
        version: Version,
        /// A name for the sweep. Without it: the name of the file.
        name: Option<String>,
        /// The configuration that is varied, as a path from this file.
        base: PathBuf,
        /// The folder in which the sweep gets a folder of its name.
        dir: PathBuf = PathBuf::from("checkpoints/sweeps"),
        /// Seed of the draws and of the trials' own seeds.
        seed: u64 = 0,
        /// The metric that trials are compared by: a name in their `metrics.jsonl`, such as
        /// `valid/accuracy`. Its last value counts.
        metric: String,
        /// Whether small or large values of the metric are good.
        mode: Mode,
        /// What varies: a key of the base configuration, as `--set` takes it, and its values.
        space: BTreeMap<String, Parameter>,
        /// How values are drawn.
        sampler: Sampler = Sampler::Random,
        /// How trials that promise little are ended early. Without it each is trained to its end.
        scheduler: Option<Scheduler>,
        /// Trials in all. A grid without it is tried whole.
        trials: Option<usize> [1..],
        /// Begins nothing more once the sweep has run for so many minutes, over all its starts.
        minutes: Option<f64> [above(0.0)],
        /// Begins nothing more once a trial that is done has a value of the metric this good.
        target: Option<f64>,
        /// Trials that run at the same time.
        parallel: usize [1..] = 1,
        /// Lets a trial begin only while the planned memory of those that run, with its own, is
        /// within so many GiB. One alone may be larger.
        memory_gib: Option<f64> [above(0.0)],
    }
}

options! {
    /// The values of one key. Exactly one of the forms is given, `when` beside it.
    pub struct Parameter checked_by one_form {
        /// Any number between two.
        uniform: Option<[f64; 2]>,
        /// Any number between two, evenly over its logarithm.
        log_uniform: Option<[f64; 2]>,
        /// Any integer between two, both included.
        int: Option<[i64; 2]>,
        /// Multiples of a step between two numbers.
        quantised: Option<Quantised>,
        /// One of a list: numbers, words, whole sections, or names of their files.
        choice: Option<Vec<Node>>,
        /// The value of another key of the space.
        tied: Option<String>,
        /// Other keys of the space and the value each must have; else this key is left as it is
        /// in the base configuration.
        when: Option<BTreeMap<String, Node>>,
    }
}

options! {
    /// `low`, `low` + `step`, … up to `high`.
    pub struct Quantised {
        /// The least value.
        low: f64,
        /// No value is above.
        high: f64,
        /// The distance of neighbours.
        step: f64 [above(0.0)],
    }
}

choices! {
    /// How a sweep draws values.
    pub enum Sampler {
        /// Every combination, the last key fastest. Keys are taken in the order of the alphabet.
        Grid = "grid",
        /// Independent draws.
        Random = "random",
        /// The points of Sobol's sequence (Joe and Kuo 2008), shifted by the seed: they fill the
        /// space more evenly than independent draws. It varies up to 32 keys.
        Sobol = "sobol",
        /// Values that are more likely among good trials than among others: the tree-structured
        /// Parzen estimator (Bergstra et al. 2011). The first 10 trials are random.
        Tpe = "tpe",
        /// Evolution strategy with covariance matrix adaptation (Hansen 2016), for numbers. Each
        /// generation of 4 + ⌊3 ln keys⌋ trials waits for the one before.
        CmaEs = "cma_es",
    }
}

tagged! {
    /// How trials that promise little are ended early.
    pub enum Scheduler {
        /// Asynchronous successive halving (Li et al. 2020): of the trials that come to a rung, one
        /// in `factor` goes on to the next.
        Asha(Asha) = "asha",
        /// Hyperband (Li et al. 2018) of asynchronous brackets: trials begin at different rungs.
        Hyperband(Hyperband) = "hyperband",
        /// Ends trials that are worse than the median at the same step (Golovin et al. 2017).
        Median(Median) = "median",
    }
}

options! {
    /// Asynchronous successive halving.
    pub struct Asha {
        /// Steps of the first rung. Each later one has `factor` times as many.
        first: usize [1..],
        /// One in so many trials goes on.
        factor: usize [2..] = 3,
    }
}

options! {
    /// Hyperband.
    pub struct Hyperband {
        /// Steps of the first rung. Each later one has `factor` times as many.
        first: usize [1..],
        /// One in so many trials goes on.
        factor: usize [2..] = 3,
        /// Brackets, which begin at the first, second, … rung.
        brackets: usize [1..=16],
    }
}

options! {
    /// The median rule.
    pub struct Median {
        /// Steps from one comparison to the next.
        every: usize [1..],
        /// Compares once so many trials have come to a step.
        startup: usize [1..] = 5,
    }
}

fn whole(sweep: &Sweep, node: &Node, cx: &mut Cx) {
    let place = |key: &str| {
        let space = node.get("space");
        space.and_then(|space| space.entry(key)).map_or(node.span, |(key, _)| key.span)
    };
    if sweep.space.is_empty() {
        cx.error(node.span, "`space` is empty").help("name a key of the base configuration");
    }
    if sweep.sampler != Sampler::Grid && sweep.trials.is_none() {
        cx.missing_key("trials", "how many draws", node.span);
    }
    let free = sweep.space.values().filter(|parameter| parameter.tied.is_none()).count();
    if sweep.sampler == Sampler::Sobol && free > MOST_SOBOL_KEYS {
        let at = node.get("sampler").map_or(node.span, |sampler| sampler.span);
        cx.error(at, format!("`sobol` varies up to {MOST_SOBOL_KEYS} keys, the space has {free}"))
            .help("write `random`");
    }
    if sweep.sampler == Sampler::CmaEs
        && let Some(scheduler) = node.get("scheduler")
    {
        cx.error(scheduler.span, "`cma_es` compares trials that are trained to their ends")
            .help("leave `scheduler` out, or write `sampler: tpe`");
    }
    for (key, parameter) in &sweep.space {
        if sweep.sampler == Sampler::CmaEs
            && (parameter.choice.is_some() || parameter.when.is_some())
        {
            cx.error(place(key), format!("`cma_es` varies numbers, which `{key}` is not always"))
                .help("give it no `choice` and no `when`, or write `sampler: tpe`");
        }
        let source = parameter.tied.iter().map(|other| (other, "`tied`"));
        let conditions = parameter.when.iter().flat_map(BTreeMap::keys).map(|k| (k, "`when`"));
        for (other, what) in source.chain(conditions) {
            let target = sweep.space.get(other);
            if target.is_none_or(|other| other.tied.is_some() || other.when.is_some()) {
                cx.error(place(key), format!("{what} of `{key}` names `{other}`")).help(
                    "it must be another key of the space that has no `tied` and no `when` itself",
                );
            }
        }
        let endless = parameter.uniform.is_some() || parameter.log_uniform.is_some();
        if sweep.sampler == Sampler::Grid && endless {
            cx.error(place(key), format!("a grid needs a list of values for `{key}`"))
                .help("write `choice`, `int` or `quantised`");
        }
    }
}

fn one_form(parameter: &Parameter, node: &Node, cx: &mut Cx) {
    let given = [
        parameter.uniform.is_some(),
        parameter.log_uniform.is_some(),
        parameter.int.is_some(),
        parameter.quantised.is_some(),
        parameter.choice.is_some(),
        parameter.tied.is_some(),
    ];
    if given.iter().filter(|given| **given).count() != 1 {
        cx.error(node.span, "expected exactly one form of values")
            .help("one of `uniform`, `log_uniform`, `int`, `quantised`, `choice`, `tied`");
    }
    let integers = parameter.int.map(|[low, high]| [low as f64, high as f64]);
    let steps = parameter.quantised.as_ref().map(|q| [q.low, q.high]);
    let ranges = [parameter.uniform, parameter.log_uniform, integers, steps];
    if ranges.iter().flatten().any(|[low, high]| low > high) {
        cx.error(node.span, "the first bound is above the second")
            .help("write the lower one first");
    }
    if parameter.log_uniform.is_some_and(|[low, _]| low <= 0.0) {
        cx.error(node.span, "`log_uniform` needs bounds above 0");
    }
    if parameter.choice.as_ref().is_some_and(Vec::is_empty) {
        cx.error(node.span, "`choice` is empty").help("list at least one value");
    }
}
