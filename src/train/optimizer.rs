//! The optimizer's rule from its section.

use std::sync::Arc;

use crate::config::optimizer::{Decay, Optimizer};
use crate::ops::update::UpdateRule;
use crate::ops::{adam, sgd};

/// The rule, and whether weight decay applies to every parameter.
pub fn rule(spec: &Optimizer) -> (Arc<dyn UpdateRule>, bool) {
    match spec {
        Optimizer::Sgd(o) => {
            let rule = sgd::Sgd {
                momentum: o.momentum as f32,
                nesterov: o.nesterov,
                weight_decay: o.weight_decay as f32,
            };
            (Arc::new(rule), o.decay == Decay::All)
        }
        Optimizer::Adam(o) => (adam(o.betas, o.eps, o.weight_decay, false), o.decay == Decay::All),
        Optimizer::AdamW(o) => (adam(o.betas, o.eps, o.weight_decay, true), o.decay == Decay::All),
    }
}

fn adam(betas: [f64; 2], eps: f64, weight_decay: f64, decoupled: bool) -> Arc<dyn UpdateRule> {
    Arc::new(adam::Adam { beta1: betas[0], beta2: betas[1], eps, weight_decay, decoupled })
}

/// The base learning rate.
pub fn base_rate(spec: &Optimizer) -> f64 {
    match spec {
        Optimizer::Sgd(o) => o.lr,
        Optimizer::Adam(o) => o.lr,
        Optimizer::AdamW(o) => o.lr,
    }
}
