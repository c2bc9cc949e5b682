//! Placeholder until the update ops are merged.
use std::sync::Arc;
use super::Op;
/// rule
pub trait UpdateRule: std::fmt::Debug + Send + Sync {
    /// n
    fn moments(&self) -> usize;
    /// op
    fn op(&self, decay: bool) -> Arc<dyn Op>;
    /// d
    fn decays(&self) -> bool;
}
