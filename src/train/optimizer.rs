//! Optimizers from their section, and the groups of parameters that they update.

use std::sync::Arc;

use crate::config::optimizer::{AdjustLr, Decay, Optimizer};
use crate::config::pattern::fits;
use crate::config::types::Config;
use crate::ops::update::{self, Settings, UpdateRule};
use crate::plan::{Group, ParamSpec};

/// The rules of an optimizer.
struct Rules {
    main: Arc<dyn UpdateRule>,
    /// What Muon leaves to AdamW.
    rest: Option<Rest>,
}

struct Rest {
    rule: Arc<dyn UpdateRule>,
    lr_factor: f64,
    params: Vec<String>,
}

impl Rest {
    fn takes(&self, param: &ParamSpec) -> bool {
        let named = self.params.iter().any(|pattern| fits(pattern, &param.name));
        param.shape.rank() != 2 || named
    }
}

/// The rule whose scalars the device gets: [`UpdateRule::hyper`].
pub fn rule(spec: &Optimizer) -> Arc<dyn UpdateRule> {
    let rules = rules(spec);
    rules.rest.map_or(rules.main, |rest| rest.rule)
}

fn rules(spec: &Optimizer) -> Rules {
    let main: Arc<dyn UpdateRule> = match spec {
        Optimizer::Sgd(o) => Arc::new(update::Sgd {
            momentum: o.momentum,
            dampening: o.dampening,
            nesterov: o.nesterov,
            weight_decay: o.weight_decay,
        }),
        Optimizer::Adam(o) => Arc::new(update::Adam {
            betas: o.betas,
            eps: o.eps,
            weight_decay: o.weight_decay,
            decoupled: false,
            amsgrad: o.amsgrad,
        }),
        Optimizer::AdamW(o) => Arc::new(update::Adam {
            betas: o.betas,
            eps: o.eps,
            weight_decay: o.weight_decay,
            decoupled: true,
            amsgrad: o.amsgrad,
        }),
        Optimizer::Adamax(o) => {
            Arc::new(update::Adamax { betas: o.betas, eps: o.eps, weight_decay: o.weight_decay })
        }
        Optimizer::NAdam(o) => Arc::new(update::NAdam {
            betas: o.betas,
            eps: o.eps,
            weight_decay: o.weight_decay,
            momentum_decay: o.momentum_decay,
            decoupled: o.decoupled_weight_decay,
        }),
        Optimizer::RAdam(o) => Arc::new(update::RAdam {
            betas: o.betas,
            eps: o.eps,
            weight_decay: o.weight_decay,
            decoupled: o.decoupled_weight_decay,
        }),
        Optimizer::Adagrad(o) => Arc::new(update::Adagrad {
            lr_decay: o.lr_decay,
            eps: o.eps,
            weight_decay: o.weight_decay,
            initial_accumulator_value: o.initial_accumulator_value,
        }),
        Optimizer::Adadelta(o) => {
            Arc::new(update::Adadelta { rho: o.rho, eps: o.eps, weight_decay: o.weight_decay })
        }
        Optimizer::RmsProp(o) => Arc::new(update::RmsProp {
            alpha: o.alpha,
            eps: o.eps,
            weight_decay: o.weight_decay,
            momentum: o.momentum,
            centered: o.centered,
        }),
        Optimizer::Lion(o) => {
            Arc::new(update::Lion { betas: o.betas, weight_decay: o.weight_decay })
        }
        Optimizer::Lamb(o) => {
            Arc::new(update::Lamb { betas: o.betas, eps: o.eps, weight_decay: o.weight_decay })
        }
        Optimizer::Lars(o) => Arc::new(update::Lars {
            momentum: o.momentum,
            weight_decay: o.weight_decay,
            trust_coefficient: o.trust_coefficient,
            eps: o.eps,
        }),
        Optimizer::Adafactor(o) => Arc::new(update::Adafactor {
            beta2_decay: o.beta2_decay,
            eps: o.eps,
            d: o.d,
            weight_decay: o.weight_decay,
        }),
        Optimizer::Muon(o) => Arc::new(update::Muon {
            momentum: o.momentum,
            nesterov: o.nesterov,
            weight_decay: o.weight_decay,
            steps: o.ns_steps,
            coefficients: o.ns_coefficients,
            eps: o.eps,
            match_adamw: o.adjust_lr == AdjustLr::MatchRmsAdamW,
        }),
    };
    let rest = match spec {
        Optimizer::Muon(o) => Some(Rest {
            rule: Arc::new(update::Adam {
                betas: o.adamw_betas,
                eps: o.adamw_eps,
                weight_decay: o.adamw_weight_decay,
                decoupled: true,
                amsgrad: false,
            }),
            lr_factor: o.adamw_lr / o.lr,
            params: o.adamw_params.clone(),
        }),
        _ => None,
    };
    Rules { main, rest }
}

/// The groups of a configuration.
#[derive(Debug)]
pub struct Groups {
    /// The rule of each group.
    pub groups: Vec<Group>,
    /// The group of each parameter; `None` where it is frozen.
    pub of: Vec<Option<usize>>,
}

/// No parameter has such a name.
#[derive(Debug, thiserror::Error)]
#[error("no parameter is named `{pattern}`")]
pub struct Unnamed {
    /// The key that the pattern stands under.
    pub path: String,
    pattern: String,
}

/// Sorts parameters into groups of one rule and the same settings, in the order of their first
/// members. `trained` tells which ones the layers train.
///
/// # Errors
/// When a pattern of the configuration matches no parameter.
pub fn groups(config: &Config, params: &[ParamSpec], trained: &[bool]) -> Result<Groups, Unnamed> {
    let rules = rules(&config.optimizer);
    let groups = config.param_groups.iter().enumerate();
    let groups = groups.map(|(index, group)| (format!("param_groups[{index}]"), &group.params));
    let rest = rules.rest.iter().flat_map(|rest| &rest.params);
    let rest = rest.map(|pattern| ("optimizer.muon.adamw_params".to_owned(), pattern));
    for (path, pattern) in groups.chain(rest) {
        if !params.iter().any(|param| fits(pattern, &param.name)) {
            return Err(Unnamed { path, pattern: pattern.clone() });
        }
    }
    let everything_decays = config.optimizer.decay() == Decay::All;
    let wanted: Vec<Option<(bool, Settings)>> = (params.iter().zip(trained))
        .map(|(param, trained)| {
            let group = config.param_groups.iter().find(|group| group.matches(&param.name));
            if !trained || group.is_some_and(|group| !group.trainable) {
                return None;
            }
            let rest = rules.rest.as_ref().filter(|rest| rest.takes(param));
            let rule = rest.map_or(&rules.main, |rest| &rest.rule);
            let decays = param.decay || everything_decays;
            let usual = if decays { rule.weight_decay() } else { 0.0 };
            let settings = Settings {
                weight_decay: group.and_then(|group| group.weight_decay).unwrap_or(usual),
                lr_factor: group.map_or(1.0, |group| group.lr_factor)
                    * rest.map_or(1.0, |rest| rest.lr_factor),
                clip_value: config.train.clip_value,
                noise: None,
            };
            Some((rest.is_some(), settings))
        })
        .collect();
    let mut kinds: Vec<&(bool, Settings)> = Vec::new();
    for kind in wanted.iter().flatten() {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let of = wanted
        .iter()
        .map(|kind| kind.as_ref().and_then(|kind| kinds.iter().position(|known| *known == kind)));
    let of = of.collect();
    let groups = kinds.into_iter().map(|(rest, settings)| {
        let rest = rules.rest.as_ref().filter(|_| *rest);
        let rule = rest.map_or(&rules.main, |rest| &rest.rule).clone();
        Group { rule, settings: settings.clone() }
    });
    Ok(Groups { groups: groups.collect(), of })
}
