//! The health rules: each is a function of what is remembered and a step's numbers, so that a
//! resumed run judges alike.

use crate::config::health::{Action, Health as Rules};

use super::checkpoint::{Health, Mean};

/// A rule that struck.
#[derive(Clone, Debug, PartialEq)]
pub struct Strike {
    /// Its key.
    pub rule: &'static str,
    /// What is to be done.
    pub action: Action,
    /// What was seen, such as `the loss 9.1 is above 3 times its mean 1.2`.
    pub what: String,
}

impl Mean {
    /// Takes a number in; the mean goes back about `window` numbers.
    fn add(&mut self, value: f64, window: usize) {
        self.count += 1;
        self.value += (value - self.value) / (self.count.min(window as u64)) as f64;
    }
}

/// Takes in the loss and the gradient norm of a step, both finite; gives the rules that strike.
pub fn judge(rules: &Rules, state: &mut Health, loss: f64, norm: f64) -> Vec<Strike> {
    let mut strikes = Vec::new();
    if let Some(rule) = &rules.loss_spike {
        let mean = state.spike.value;
        let limit = mean + (rule.factor - 1.0) * mean.abs();
        if state.spike.count >= rule.window as u64 && loss > limit {
            let what =
                format!("the loss {loss:.4} is above {} times its mean {mean:.4}", rule.factor);
            strikes.push(Strike { rule: "loss_spike", action: rule.action, what });
        }
        state.spike.add(loss, rule.window);
    }
    if let Some(rule) = rules.exploding_gradient.as_ref().filter(|rule| norm > rule.norm) {
        let what = format!("the gradient's norm {norm:.3e} is above {:.3e}", rule.norm);
        strikes.push(Strike { rule: "exploding_gradient", action: rule.action, what });
    }
    if let Some(rule) = &rules.vanishing_gradient {
        state.vanishing = if norm < rule.norm { state.vanishing + 1 } else { 0 };
        if state.vanishing >= rule.steps as u64 {
            let (steps, limit) = (state.vanishing, rule.norm);
            let what =
                format!("the gradient's norm {norm:.3e} is below {limit:.3e}, for {steps} steps");
            strikes.push(Strike { rule: "vanishing_gradient", action: rule.action, what });
        }
    }
    if let Some(rule) = &rules.plateau {
        state.level.add(loss, rule.window);
        let level = state.level.value;
        if state.lowest.is_none_or(|lowest| level < lowest - rule.min_delta) {
            (state.lowest, state.since) = (Some(level), 0);
        } else {
            state.since += 1;
        }
        if state.since >= rule.steps as u64 {
            let (steps, lowest) = (state.since, state.lowest.unwrap_or(level));
            let what = format!(
                "the mean loss {level:.4} has not been below {lowest:.4} for {steps} steps"
            );
            strikes.push(Strike { rule: "plateau", action: rule.action, what });
        }
    }
    strikes
}

/// Watches how long steps take: tells when one takes a multiple of the mean of those before.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    seconds: Mean,
}

/// Steps that the mean time goes back, and before which no step is slow.
const CLOCK_WINDOW: usize = 20;

impl Clock {
    /// Takes in the time of a step.
    pub fn judge(&mut self, rules: &Rules, seconds: f64) -> Option<Strike> {
        let rule = rules.slow_step.as_ref()?;
        let mean = self.seconds.value;
        let slow = self.seconds.count >= CLOCK_WINDOW as u64 && seconds > rule.factor * mean;
        self.seconds.add(seconds, CLOCK_WINDOW);
        let what =
            format!("it took {seconds:.3} s, above {} times the mean {mean:.3} s", rule.factor);
        slow.then_some(Strike { rule: "slow_step", action: Action::Warn, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::decode::all_defaults;
    use crate::config::health::{LossSpike, Plateau, SlowStep, VanishingGradient};

    fn strikes(rules: &Rules, numbers: &[(f64, f64)]) -> Vec<usize> {
        let mut state = Health::default();
        let struck = |(loss, norm): &(f64, f64)| !judge(rules, &mut state, *loss, *norm).is_empty();
        let struck: Vec<bool> = numbers.iter().map(struck).collect();
        (0..numbers.len()).filter(|at| struck[*at]).collect()
    }

    #[test]
    fn a_spike_is_a_multiple_of_the_mean_once_there_is_one() {
        let rule = LossSpike { factor: 2.0, window: 3, action: Action::Stop };
        let rules = Rules { loss_spike: Some(rule), ..all_defaults() };
        let losses = [9.0, 1.0, 2.0, 3.9, 1.0, 8.5, 1.0].map(|loss| (loss, 1.0));
        assert_eq!(strikes(&rules, &losses), [5]);
    }

    #[test]
    fn a_gradient_vanishes_over_several_steps_in_a_row() {
        let rule = VanishingGradient { norm: 0.1, steps: 2, action: Action::Warn };
        let rules = Rules { vanishing_gradient: Some(rule), ..all_defaults() };
        let norms = [0.01, 1.0, 0.05, 0.05, 0.05, 0.2].map(|norm| (1.0, norm));
        assert_eq!(strikes(&rules, &norms), [3, 4]);
    }

    #[test]
    fn a_plateau_is_a_mean_without_a_new_low() {
        let rule = Plateau { steps: 3, min_delta: 0.0, window: 1, action: Action::Warn };
        let rules = Rules { plateau: Some(rule), ..all_defaults() };
        let losses = [3.0, 2.0, 2.0, 2.5, 2.0, 1.0, 1.0].map(|loss| (loss, 1.0));
        assert_eq!(strikes(&rules, &losses), [4]);
    }

    #[test]
    fn a_slow_step_stands_out_from_those_before() {
        let rules = Rules { slow_step: Some(SlowStep { factor: 5.0 }), ..all_defaults() };
        let mut clock = Clock::default();
        assert!((0..30).all(|_| clock.judge(&rules, 0.1).is_none()));
        assert!(clock.judge(&rules, 0.6).is_some_and(|s| s.what.contains("0.600 s")));
        assert!(clock.judge(&rules, 0.1).is_none());
    }
}
