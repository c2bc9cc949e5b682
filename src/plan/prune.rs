//! Drops what no kept value depends on.

use std::collections::HashMap;

use crate::graph::{Graph, Origin, ValueId};

/// The part of `graph` that `keep` depends on, and where its values went.
pub(super) fn prune(graph: &Graph, keep: &[ValueId]) -> (Graph, HashMap<ValueId, ValueId>) {
    let mut live = vec![false; graph.values.len()];
    let mark = |live: &mut Vec<bool>, value: ValueId| {
        let mut at = value;
        live[at.index()] = true;
        while let Origin::View(of) = graph.values[at.index()].origin {
            at = of;
            live[at.index()] = true;
        }
    };
    keep.iter().for_each(|v| mark(&mut live, *v));
    let mut used = vec![false; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        if node.outputs.iter().any(|v| live[v.index()]) {
            used[index] = true;
            node.inputs.iter().for_each(|v| mark(&mut live, *v));
        }
    }
    rebuild(graph, &live, &used)
}

fn rebuild(graph: &Graph, live: &[bool], used: &[bool]) -> (Graph, HashMap<ValueId, ValueId>) {
    let mut out = Graph::new();
    let mut to = HashMap::new();
    for (index, info) in graph.values.iter().enumerate().filter(|(i, _)| live[*i]) {
        if let Origin::Leaf(leaf) = &info.origin {
            to.insert(ValueId(index as u32), out.leaf(leaf.clone(), info.ty.clone()));
        }
    }
    for node in graph.nodes.iter().enumerate().filter(|(i, _)| used[*i]).map(|(_, n)| n) {
        let inputs: Vec<ValueId> =
            node.inputs.iter().map(|v| translate(graph, &mut out, &mut to, *v)).collect();
        let outputs = out.copy_node(node, &inputs, graph);
        to.extend(node.outputs.iter().copied().zip(outputs));
    }
    for index in (0..graph.values.len()).filter(|i| live[*i]) {
        translate(graph, &mut out, &mut to, ValueId(index as u32));
    }
    (out, to)
}

/// The new value of an old one, making its views anew where needed.
fn translate(
    graph: &Graph,
    out: &mut Graph,
    to: &mut HashMap<ValueId, ValueId>,
    value: ValueId,
) -> ValueId {
    if let Some(found) = to.get(&value) {
        return *found;
    }
    let Origin::View(of) = graph.values[value.index()].origin else {
        unreachable!("{value:?} is used before its node")
    };
    let base = translate(graph, out, to, of);
    let made = out.view(base, graph.ty(value).clone());
    to.insert(value, made);
    made
}
