//! What an optimizer is to the plan and to the training loop: its moments, the scalars of a step,
//! and the op that updates a flat range.

use std::fmt::Debug;
use std::sync::Arc;

use super::Op;

/// An optimizer.
pub trait UpdateRule: Debug + Send + Sync {
    /// Names of the moments that it keeps for each parameter, as PyTorch calls them.
    fn moment_names(&self) -> &[&'static str];

    /// Number of moments.
    fn moments(&self) -> usize {
        self.moment_names().len()
    }

    /// The scalars that the op reads from `Globals::hyper` in step `step` (from 1) at learning
    /// rate `lr`.
    fn hyper(&self, lr: f64, step: u64) -> [f32; 8];

    /// The op for a range of parameters, with weight decay or without. Operands: parameters and
    /// moments (in place), gradients, and the control vector of `GradScale`.
    fn op(&self, decay: bool) -> Arc<dyn Op>;

    /// Whether there is any weight decay.
    fn decays(&self) -> bool;
}
