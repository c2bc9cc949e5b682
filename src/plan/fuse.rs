//! Fusion of elementwise chains.

use std::collections::HashMap;

use crate::graph::{Graph, ValueId};
use crate::ops::Target;

/// The fused graph, and where the kept values went.
pub fn fuse(
    graph: &Graph,
    _keep: &[ValueId],
    _target: &Target,
) -> (Graph, HashMap<ValueId, ValueId>) {
    let same = (0..graph.values.len()).map(|i| (ValueId(i as u32), ValueId(i as u32))).collect();
    (graph.clone(), same)
}
