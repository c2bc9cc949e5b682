//! What a sweep does next, from all trials and jobs: a trial goes on to its next rung, or a new one
//! begins. Nothing here depends on when a job ended, only on what it came to: of several jobs that
//! run at the same time, job k is decided on by the results of the jobs up to k − `parallel`.

use super::space::{self, Draw, Observed};
use super::store::{Job, Next, State, Trial, cost};
use crate::config::sweep::{Asha, Hyperband, Median, Sampler, Scheduler, Sweep};

/// What is done next.
pub fn next(sweep: &Sweep, trials: &[Trial], jobs: &[Job]) -> Next {
    let adapts = matches!(sweep.sampler, Sampler::Tpe | Sampler::CmaEs);
    let seen = match adapts || sweep.scheduler.is_some() {
        true => (jobs.len() + 1).saturating_sub(sweep.parallel),
        false => 0,
    };
    if jobs.iter().take(seen).any(|job| !job.state.has_ended()) {
        return Next::Wait;
    }
    let found = View { sweep, trials, jobs, seen, last: false }.next();
    if found.is_some() {
        return found.unwrap_or(Next::Over);
    }
    if jobs.iter().any(|job| !job.state.has_ended()) {
        return Next::Wait;
    }
    View { sweep, trials, jobs, seen: jobs.len(), last: true }.next().unwrap_or(Next::Over)
}

/// What a decision sees.
struct View<'a> {
    sweep: &'a Sweep,
    trials: &'a [Trial],
    jobs: &'a [Job],
    /// Only the results of the first so many jobs count.
    seen: usize,
    /// Whether nothing more will come by itself.
    last: bool,
}

impl View<'_> {
    fn next(&self) -> Option<Next> {
        let go_on = match &self.sweep.scheduler {
            None => None,
            Some(Scheduler::Median(median)) => self.median(median),
            Some(Scheduler::Asha(_) | Scheduler::Hyperband(_)) => self.promoted(false),
        };
        go_on.or_else(|| self.begin()).or_else(|| match self.last {
            true => self.promoted(true),
            false => None,
        })
    }

    /// A new trial.
    fn begin(&self) -> Option<Next> {
        let number = self.trials.len();
        let Draw::Values(values) = space::draw(self.sweep, number, &self.observed()) else {
            return None;
        };
        let rung = self.bracket(number);
        let seed = space::trial_seed(self.sweep, number);
        Some(Next::Begin(values, seed, rung, self.until(rung)))
    }

    /// The results that count, a trial's last one each, the best trial first.
    fn observed(&self) -> Vec<Observed> {
        let results = || self.jobs.iter().take(self.seen);
        let top = results().map(|job| job.rung).max().unwrap_or_default();
        let of = |trial: &Trial| {
            let job = results().rev().find(|job| job.trial == trial.number)?;
            let short = match job.state {
                State::Done => 0,
                State::Stopped => 1 + top - job.rung,
                _ => usize::MAX,
            };
            let cost = cost(job.value, self.sweep.mode);
            Some(Observed { number: trial.number, values: trial.values.clone(), short, cost })
        };
        let mut observed: Vec<Observed> = self.trials.iter().filter_map(of).collect();
        observed.sort_by(Observed::order);
        observed
    }

    /// The last step of a rung.
    fn until(&self, rung: usize) -> Option<u64> {
        let power = |first: usize, factor: usize| {
            (first as u64).saturating_mul((factor as u64).saturating_pow(rung as u32))
        };
        Some(match self.sweep.scheduler.as_ref()? {
            Scheduler::Asha(Asha { first, factor }) => power(*first, *factor),
            Scheduler::Hyperband(Hyperband { first, factor, .. }) => power(*first, *factor),
            Scheduler::Median(Median { every, .. }) => *every as u64 * (rung as u64 + 1),
        })
    }

    /// The rung that a trial begins with. Hyperband's brackets take trials in turns, in the numbers
    /// of its first round: ⌈B / (s + 1) · ηˢ⌉ of the bracket with s rungs after its first.
    fn bracket(&self, trial: usize) -> usize {
        let Some(Scheduler::Hyperband(Hyperband { factor, brackets, .. })) = &self.sweep.scheduler
        else {
            return 0;
        };
        let sizes: Vec<usize> = (0..*brackets)
            .map(|first| {
                let after = brackets - 1 - first;
                (brackets * factor.saturating_pow(after as u32)).div_ceil(after + 1)
            })
            .collect();
        let mut rest = trial % sizes.iter().sum::<usize>();
        for (first, size) in sizes.iter().enumerate() {
            if rest < *size {
                return first;
            }
            rest -= size;
        }
        0
    }

    fn goes_on(&self, job: &Job) -> bool {
        let next = |other: &Job| other.trial == job.trial && other.rung > job.rung;
        self.jobs.iter().any(next)
    }

    /// Asynchronous successive halving (Li et al. 2020): one in η of the trials that have come to
    /// a rung go on to the next, from the highest rung down. Where `at_least_one`, the best of each
    /// rung goes on even if they are fewer.
    fn promoted(&self, at_least_one: bool) -> Option<Next> {
        let factor = match self.sweep.scheduler.as_ref()? {
            Scheduler::Asha(Asha { factor, .. })
            | Scheduler::Hyperband(Hyperband { factor, .. }) => *factor,
            Scheduler::Median(_) => return None,
        };
        let results = || self.jobs.iter().take(self.seen);
        let top = results().map(|job| job.rung).max()?;
        let brackets: Vec<usize> = self.trials.iter().map(|t| self.bracket(t.number)).collect();
        for rung in (0..=top).rev() {
            for bracket in 0..=rung {
                let mut there: Vec<&Job> =
                    results().filter(|j| j.rung == rung && brackets[j.trial] == bracket).collect();
                let worth = |job: &Job| cost(job.value, self.sweep.mode);
                there.sort_by(|a, b| worth(a).total_cmp(&worth(b)).then(a.trial.cmp(&b.trial)));
                let share = (there.len() / factor).max(usize::from(at_least_one));
                let found = there
                    .into_iter()
                    .take(share)
                    .find(|job| job.state == State::Stopped && !self.goes_on(job));
                if let Some(job) = found {
                    return Some(Next::GoOn(job.trial, rung + 1, self.until(rung + 1)));
                }
            }
        }
        None
    }

    /// The median rule (Golovin et al. 2017): a trial goes on unless its value is worse than the
    /// median of those that the trials before it had at the same step.
    fn median(&self, median: &Median) -> Option<Next> {
        let worth = |job: &Job| cost(job.value, self.sweep.mode);
        let passes = |job: &&Job| {
            let before = self.jobs.iter().take(job.number);
            let same = before.filter(|other| other.rung == job.rung && other.value.is_some());
            let mut costs: Vec<f64> = same.map(worth).collect();
            costs.sort_by(f64::total_cmp);
            costs.len() < median.startup || worth(job) <= middle(&costs)
        };
        let stopped = self.jobs.iter().take(self.seen).filter(|job| job.state == State::Stopped);
        let job = stopped.filter(|job| !self.goes_on(job)).find(passes)?;
        Some(Next::GoOn(job.trial, job.rung + 1, self.until(job.rung + 1)))
    }
}

/// The median of sorted numbers.
fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::INFINITY,
        odd if odd % 2 == 1 => sorted[half],
        _ => 0.5 * (sorted[half - 1] + sorted[half]),
    }
}
