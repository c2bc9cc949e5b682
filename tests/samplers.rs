//! What a sweep tries next, on functions in place of runs: the model-based samplers find better
//! values than random draws, the schedulers spend fewer steps, and nothing depends on which of
//! several jobs ends first.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::f64::consts::PI;
use std::fs;

use common::Random;
use wootz::config::load_sweep;
use wootz::config::sweep::Sweep;
use wootz::sweep::schedule;
use wootz::sweep::space::{Draw, Observed, Values, draw};
use wootz::sweep::store::{Job, Next, State, Trial};

fn sweep(lines: &str) -> Sweep {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sweep.yaml");
    let head = "version: 1\nbase: base.yaml\nmetric: valid/loss\nmode: min\n";
    fs::write(&path, format!("{head}{lines}")).unwrap();
    load_sweep(&path, |_, _| None).unwrap_or_else(|error| panic!("{error}"))
}

/// A space of the keys `a`, `b`, … over a range.
fn cube(keys: usize, low: f64, high: f64) -> String {
    let key = |index: usize| (b'a' + index as u8) as char;
    let lines = (0..keys).map(|index| format!("  {}: {{uniform: [{low}, {high}]}}\n", key(index)));
    format!("space:\n{}", lines.collect::<String>())
}

fn numbers(values: &Values) -> Vec<f64> {
    values.values().map(|value| value.as_f64().unwrap()).collect()
}

/// The least cost that a sampler finds.
fn least(sweep: &Sweep, cost: impl Fn(&Values) -> f64) -> f64 {
    let mut observed: Vec<Observed> = Vec::new();
    let mut number = 0;
    while let Draw::Values(values) = draw(sweep, number, &observed) {
        let cost = cost(&values);
        observed.push(Observed { number, values, short: 0, cost });
        observed.sort_by(Observed::order);
        number += 1;
    }
    assert_eq!(Some(number), sweep.trials);
    observed[0].cost
}

/// Its least value is 0.397887 (Branin 1972), on [-5, 10] × [0, 15].
fn branin(values: &Values) -> f64 {
    let [x, y] = numbers(values)[..] else { panic!("two keys") };
    let bend = y - 5.1 / (4.0 * PI * PI) * x * x + 5.0 / PI * x - 6.0;
    bend * bend + 10.0 * (1.0 - 1.0 / (8.0 * PI)) * x.cos() + 10.0
}

/// Its least value is -3.86278 (Hartmann 1973), on a cube of side 1.
fn hartmann(values: &Values) -> f64 {
    let a = [[3.0, 10.0, 30.0], [0.1, 10.0, 35.0], [3.0, 10.0, 30.0], [0.1, 10.0, 35.0]];
    let p = [
        [0.3689, 0.1170, 0.2673],
        [0.4699, 0.4387, 0.7470],
        [0.1091, 0.8732, 0.5547],
        [0.0381, 0.5743, 0.8828],
    ];
    let x = numbers(values);
    let term = |i: usize| (0..3).map(|j| a[i][j] * (x[j] - p[i][j]).powi(2)).sum::<f64>();
    -[1.0, 1.2, 3.0, 3.2].iter().enumerate().map(|(i, c)| c * (-term(i)).exp()).sum::<f64>()
}

/// Its least value is 0, at 0 (Ackley 1987).
fn ackley(values: &Values) -> f64 {
    let x = numbers(values);
    let n = x.len() as f64;
    let square = x.iter().map(|x| x * x).sum::<f64>() / n;
    let wave = x.iter().map(|x| (2.0 * PI * x).cos()).sum::<f64>() / n;
    20.0 - 20.0 * (-0.2 * square.sqrt()).exp() + 1f64.exp() - wave.exp()
}

#[test]
fn tpe_finds_better_values_than_random_draws() {
    let branin_space = "space:\n  a: {uniform: [-5, 10]}\n  b: {uniform: [0, 15]}\n".to_owned();
    type Cost = fn(&Values) -> f64;
    let functions: [(&str, String, Cost); 3] = [
        ("branin", branin_space, branin),
        ("hartmann", cube(3, 0.0, 1.0), hartmann),
        ("ackley", cube(4, -10.0, 10.0), ackley),
    ];
    for (name, space, cost) in functions {
        let mean = |sampler: &str| {
            let of = |seed: u64| {
                least(
                    &sweep(&format!("{space}seed: {seed}\nsampler: {sampler}\ntrials: 40\n")),
                    cost,
                )
            };
            (0..10).map(of).sum::<f64>() / 10.0
        };
        let (tpe, random) = (mean("tpe"), mean("random"));
        println!("{name}: tpe {tpe:.4}, random {random:.4}");
        assert!(tpe < random, "{name}: tpe {tpe}, random {random}");
    }
}

#[test]
fn tpe_learns_words_integers_and_what_has_a_condition() {
    let space = "space:
  kind: {choice: [a, b, c, d]}
  width: {int: [1, 64]}
  rate: {log_uniform: [1.0e-5, 1.0], when: {kind: c}}
sampler: tpe
trials: 100
";
    let cost = |values: &Values| {
        let width = (values["width"].as_f64().unwrap() - 40.0).abs() / 64.0;
        match values.get("rate") {
            Some(rate) => width + (rate.as_f64().unwrap().log10() + 3.0).abs() / 5.0,
            None => 1.0 + width,
        }
    };
    let found = least(&sweep(space), cost);
    assert!(found < 0.1, "{found}");
}

#[test]
fn cma_es_comes_to_the_least_value() {
    let sphere = |values: &Values| {
        numbers(values).iter().enumerate().map(|(i, x)| (x - 0.1 * i as f64).powi(2)).sum()
    };
    let found =
        least(&sweep(&format!("{}sampler: cma_es\ntrials: 600\n", cube(4, -1.0, 2.0))), sphere);
    assert!(found < 1e-8, "sphere: {found}");
    let rosenbrock = |values: &Values| {
        let [x, y] = numbers(values)[..] else { panic!("two keys") };
        100.0 * (y - x * x).powi(2) + (1.0 - x).powi(2)
    };
    let space = format!("{}sampler: cma_es\ntrials: 700\n", cube(2, -2.0, 2.0));
    let found = least(&sweep(&space), rosenbrock);
    assert!(found < 1e-6, "rosenbrock: {found}");
}

/// Runs a sweep of trials that have `total` steps and the cost `cost(values, step)`; `random` says
/// which of the jobs that run ends first.
fn simulate(
    sweep: &Sweep,
    total: u64,
    cost: impl Fn(&Values, u64) -> f64,
    mut random: Random,
) -> (Vec<Trial>, Vec<Job>) {
    let (mut trials, mut jobs): (Vec<Trial>, Vec<Job>) = (Vec::new(), Vec::new());
    loop {
        let running: Vec<usize> =
            jobs.iter().filter(|job| !job.state.has_ended()).map(|job| job.number).collect();
        let next = match running.len() < sweep.parallel {
            true => schedule::next(sweep, &trials, &jobs),
            false => Next::Wait,
        };
        let (trial, rung, until) = match next {
            Next::Over if running.is_empty() => return (trials, jobs),
            Next::Over | Next::Wait => {
                let number = running[random.below(running.len())];
                let job = &mut jobs[number];
                let trial = &mut trials[job.trial];
                let step = job.until.unwrap_or(total).min(total);
                let value = Some(cost(&trial.values, step));
                let state = if step < total { State::Stopped } else { State::Done };
                (job.state, job.value) = (state, value);
                (trial.state, trial.value, trial.steps) = (state, value, step);
                continue;
            }
            Next::GoOn(trial, rung, until) => (trial, rung, until),
            Next::Begin(values, seed, rung, until) => {
                let (number, state) = (trials.len(), State::Queued);
                let new =
                    Trial { number, values, seed, state, value: None, steps: 0, reason: None };
                trials.push(new);
                (number, rung, until)
            }
        };
        let (number, state) = (jobs.len(), State::Running);
        jobs.push(Job { number, trial, rung, until, state, value: None });
    }
}

/// A loss that falls with the steps to what the key `a` makes of it, and is noisy early on.
fn falling(values: &Values, step: u64) -> f64 {
    let a = numbers(values)[0];
    (a - 0.3).powi(2) + (1.0 + 0.2 * (40.0 * a).sin()) / (1.0 + step as f64 / 50.0)
}

fn steps(trials: &[Trial]) -> u64 {
    trials.iter().map(|trial| trial.steps).sum()
}

fn best(trials: &[Trial]) -> f64 {
    let done = trials.iter().filter(|trial| trial.state == State::Done);
    done.filter_map(|trial| trial.value).min_by(f64::total_cmp).expect("a trial that is done")
}

const LIST: &str = "space: {a: {quantised: {low: 0.0, high: 0.92, step: 0.04}}}\nsampler: grid\n";

#[test]
fn asha_finds_the_grids_best_in_two_fifths_of_its_steps() {
    let (grid, _) = simulate(&sweep(LIST), 900, falling, Random::new(1));
    assert_eq!((grid.len(), steps(&grid)), (24, 24 * 900));
    for parallel in [1, 2, 4] {
        let lines = format!("{LIST}scheduler: {{asha: {{first: 100}}}}\nparallel: {parallel}\n");
        let (asha, jobs) = simulate(&sweep(&lines), 900, falling, Random::new(1));
        let share = steps(&asha) as f64 / steps(&grid) as f64;
        println!(
            "{parallel} at a time: {share:.3} of the steps, {} and {}",
            best(&asha),
            best(&grid)
        );
        assert!(share <= 0.4, "{share}");
        assert!(best(&asha) - best(&grid) < 0.01);
        assert!(jobs.iter().all(|job| [100, 300, 900].contains(&job.until.unwrap())));
    }
}

#[test]
fn hyperband_begins_trials_at_several_rungs() {
    let lines = "space: {a: {uniform: [0, 1]}}\ntrials: 40\n\
                 scheduler: {hyperband: {first: 100, brackets: 3}}\n";
    let (trials, jobs) = simulate(&sweep(lines), 900, falling, Random::new(1));
    let first = |trial: usize| jobs.iter().find(|job| job.trial == trial).unwrap().rung;
    // Li et al. 2018, Table 1, for R = 9 and η = 3: 9, 5 and 3 trials.
    let begun: Vec<usize> = (0..17).map(first).collect();
    assert_eq!(begun, [[0; 9].as_slice(), &[1; 5], &[2; 3]].concat());
    assert!(steps(&trials) < 40 * 900 / 2, "{}", steps(&trials));
    assert!(best(&trials) < 0.08, "{}", best(&trials));
}

#[test]
fn the_median_rule_ends_what_is_worse_than_half() {
    let lines = format!("{LIST}scheduler: {{median: {{every: 100, startup: 4}}}}\n");
    let (trials, _) = simulate(&sweep(&lines), 900, falling, Random::new(1));
    let stopped: Vec<usize> =
        trials.iter().filter(|t| t.state == State::Stopped).map(|t| t.number).collect();
    assert!(stopped.iter().all(|trial| *trial >= 4), "{stopped:?}");
    assert!(stopped.len() > 8, "{stopped:?}");
    // The last ones are far from the best value and are ended at once.
    assert!(trials[20..].iter().all(|trial| trial.steps == 100));
    assert!((best(&trials) - 0.06).abs() < 0.03, "{}", best(&trials));
}

#[test]
fn which_job_ends_first_changes_nothing() {
    for lines in [
        "sampler: random\nscheduler: {asha: {first: 100}}",
        "sampler: tpe",
        "sampler: tpe\nscheduler: {hyperband: {first: 100, brackets: 2}}",
        "sampler: cma_es",
        "sampler: sobol\nscheduler: {median: {every: 300}}",
    ] {
        let lines =
            format!("space: {{a: {{uniform: [0, 1]}}}}\ntrials: 30\nparallel: 3\n{lines}\n");
        let sweep = sweep(&lines);
        let runs = [1, 2, 3].map(|seed| simulate(&sweep, 900, falling, Random::new(seed)));
        assert_eq!(runs[0], runs[1], "{lines}");
        assert_eq!(runs[0], runs[2], "{lines}");
    }
}
