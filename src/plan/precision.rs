//! Mixed precision: which values of a program are stored as half-precision floats, after
//! Micikevicius et al. 2018, "Mixed Precision Training". All arithmetic outside of the products of
//! matrix units stays in single precision; parameters, their gradients, statistics and the terms of
//! the loss stay stored in it.

use std::collections::{HashMap, HashSet};

use crate::graph::{DType, Graph, Node, Origin, TensorType, ValueId};
use crate::ops::{Port, Storage, map};

/// The layer name of what belongs to the loss.
const LOSS_SCOPE: &str = "loss";

/// The graph with its types decided, and where each value went. Values of `keep` stay in single
/// precision.
pub(super) fn mixed(graph: &Graph, keep: &[ValueId]) -> (Graph, HashMap<ValueId, ValueId>) {
    let halves = halves(graph, keep);
    let mut pass = Pass {
        graph,
        halves,
        out: Graph::new(),
        to: HashMap::new(),
        singles: HashMap::new(),
        factors: HashMap::new(),
    };
    for index in 0..graph.values.len() {
        if let Origin::Leaf(leaf) = &graph.values[index].origin {
            let new = pass.out.leaf(leaf.clone(), graph.values[index].ty.clone());
            pass.to.insert(ValueId(index as u32), new);
        }
    }
    graph.nodes.iter().for_each(|node| pass.add(node));
    for index in 0..graph.values.len() {
        pass.translate(ValueId(index as u32));
    }
    (pass.out, pass.to)
}

/// The values (by root) that are stored in half precision: results that may be, that nobody
/// keeps, and that come from others like them or from products.
fn halves(graph: &Graph, keep: &[ValueId]) -> HashSet<ValueId> {
    let kept: HashSet<ValueId> = keep.iter().map(|value| graph.root(*value)).collect();
    let mut halves = HashSet::new();
    for node in &graph.nodes {
        let whole = node.outputs.first().map_or(0, |v| graph.shape(*v).elements());
        let follows = node.op.as_map().is_none()
            || (&*node.scope != LOSS_SCOPE
                && node.inputs.iter().any(|v| {
                    halves.contains(&graph.root(*v)) && graph.shape(*v).elements() == whole
                }));
        for (index, value) in node.outputs.iter().enumerate() {
            let allowed = node.op.storage(Port::Out(index)) != Storage::Single;
            if allowed && follows && !kept.contains(value) && graph.ty(*value).dtype == DType::F32 {
                halves.insert(*value);
            }
        }
    }
    halves
}

struct Pass<'a> {
    graph: &'a Graph,
    halves: HashSet<ValueId>,
    out: Graph,
    to: HashMap<ValueId, ValueId>,
    /// Copies in single precision of values stored in half, by the new root.
    singles: HashMap<ValueId, ValueId>,
    /// Copies in half precision of parameters, by the new root.
    factors: HashMap<ValueId, ValueId>,
}

impl Pass<'_> {
    fn add(&mut self, node: &Node) {
        self.out.set_scope(node.scope.clone());
        self.out.set_backward(node.backward);
        let inputs: Vec<ValueId> = (node.inputs.iter().enumerate())
            .map(|(index, input)| self.operand(*input, node.op.storage(Port::In(index))))
            .collect();
        let outputs = self.out.copy_node(node, &inputs, self.graph);
        for (old, new) in node.outputs.iter().zip(outputs) {
            if self.halves.contains(old) {
                self.out.store_as(new, DType::F16);
            }
            self.to.insert(*old, new);
        }
    }

    /// An operand as the op can read it.
    fn operand(&mut self, value: ValueId, storage: Storage) -> ValueId {
        let new = self.translate(value);
        let root = self.out.root(new);
        match (self.out.ty(root).dtype, storage) {
            (DType::F16, Storage::Single) => {
                let copy = self.copy(root, DType::F32, |pass| &mut pass.singles);
                self.out.view(copy, TensorType { dtype: DType::F32, ..self.out.ty(new).clone() })
            }
            (DType::F32, Storage::Factor) if self.is_large_leaf(root) => {
                let copy = self.copy(root, DType::F16, |pass| &mut pass.factors);
                self.out.view(copy, TensorType { dtype: DType::F16, ..self.out.ty(new).clone() })
            }
            _ => new,
        }
    }

    /// Whether a copy in half precision is worth a dispatch: the factors of large products are
    /// read many times over.
    fn is_large_leaf(&self, value: ValueId) -> bool {
        const LARGE: usize = 1 << 15;
        matches!(self.out.values[value.index()].origin, Origin::Leaf(_))
            && self.out.shape(value).elements() >= LARGE
    }

    fn copy(
        &mut self,
        root: ValueId,
        dtype: DType,
        known: impl Fn(&mut Self) -> &mut HashMap<ValueId, ValueId>,
    ) -> ValueId {
        if let Some(copy) = known(self).get(&root) {
            return *copy;
        }
        let copy = match map::copy(&mut self.out, root) {
            Ok(copy) => copy,
            Err(error) => unreachable!("a copy always fits: {error}"),
        };
        self.out.store_as(copy, dtype);
        known(self).insert(root, copy);
        copy
    }

    /// The new value of an old one, making its views anew.
    fn translate(&mut self, value: ValueId) -> ValueId {
        if let Some(found) = self.to.get(&value) {
            return *found;
        }
        let Origin::View(of) = self.graph.values[value.index()].origin else {
            unreachable!("{value:?} is used before its node")
        };
        let base = self.translate(of);
        let ty = TensorType { dtype: self.out.ty(base).dtype, ..self.graph.ty(value).clone() };
        let made = self.out.view(base, ty);
        self.to.insert(value, made);
        made
    }
}
