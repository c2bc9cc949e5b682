//! Fusion: elementwise maps that feed each other become one map with several results, and on a
//! GPU a map that is the only reader of a product moves into the product's kernel.
//!
//! Nodes are grown into clusters, which are then rebuilt as one node each. A cluster may grow only
//! where no path leads out of it and back in, and while its operands fit the bindings of every
//! device.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use crate::graph::{Graph, Leaf, Node, Origin, Shape, TensorType, ValueId};
use crate::ops::map::{Access, Code, Map, Reg};
use crate::ops::{GpuLimits, Op, Target};

/// The fused graph, and where each value that is still stored went. `keep` values stay stored.
pub fn fuse(
    graph: &Graph,
    keep: &[ValueId],
    target: &Target,
) -> (Graph, HashMap<ValueId, ValueId>) {
    let mut clusters = Clusters::new(graph, keep);
    for node in 0..graph.nodes.len() {
        clusters.grow(node);
    }
    if matches!(target, Target::Gpu(_)) {
        for node in 0..graph.nodes.len() {
            clusters.absorb(node);
        }
    }
    Rebuild::run(&clusters)
}

struct Clusters<'a> {
    graph: &'a Graph,
    /// Cluster of each node.
    of: Vec<usize>,
    clusters: Vec<Cluster>,
    /// Nodes that read each value, by root.
    readers: HashMap<ValueId, Vec<usize>>,
    kept: HashSet<ValueId>,
}

/// Nodes that become one.
#[derive(Clone, Debug, Default)]
struct Cluster {
    /// Members in order; a product that was absorbed is not among them.
    members: Vec<usize>,
    /// Shape of the fused map.
    shape: Shape,
    /// The product whose result the map is applied to.
    product: Option<usize>,
}

impl<'a> Clusters<'a> {
    fn new(graph: &'a Graph, keep: &[ValueId]) -> Self {
        let mut readers: HashMap<ValueId, Vec<usize>> = HashMap::new();
        for (index, node) in graph.nodes.iter().enumerate() {
            for input in &node.inputs {
                readers.entry(graph.root(*input)).or_default().push(index);
            }
        }
        let clusters = graph.nodes.iter().enumerate().map(|(index, node)| Cluster {
            members: vec![index],
            shape: node.op.as_map().map(|map| map.shape.clone()).unwrap_or_default(),
            product: None,
        });
        Clusters {
            graph,
            of: (0..graph.nodes.len()).collect(),
            clusters: clusters.collect(),
            readers,
            kept: keep.iter().map(|value| graph.root(*value)).collect(),
        }
    }

    fn node(&self, index: usize) -> &'a Node {
        &self.graph.nodes[index]
    }

    fn is_map(&self, node: usize) -> bool {
        self.node(node).op.as_map().is_some()
    }

    fn producer(&self, value: ValueId) -> Option<usize> {
        self.graph.producer(value).map(|(node, _)| node.index())
    }

    /// Merges the clusters of a map's operands with its own, as far as that is allowed.
    fn grow(&mut self, node: usize) {
        if !self.is_map(node) {
            return;
        }
        for input in &self.node(node).inputs {
            let Some(producer) = self.producer(*input).filter(|p| self.is_map(*p)) else {
                continue;
            };
            let (from, to) = (self.of[producer], self.of[node]);
            if from != to {
                self.merge(from, to);
            }
        }
    }

    fn merge(&mut self, from: usize, to: usize) {
        let (a, b) = (&self.clusters[from], &self.clusters[to]);
        let mut members: Vec<usize> = a.members.iter().chain(&b.members).copied().collect();
        members.sort_unstable();
        let shapes = [a.shape.clone(), b.shape.clone()];
        let Some(shape) = shapes.into_iter().find(|shape| self.fits(&members, shape)) else {
            return;
        };
        let merged = Cluster { members, shape, product: None };
        if self.bindings(&merged) > GpuLimits::FLOOR.storage_bindings as usize
            || self.has_way_back(&merged)
        {
            return;
        }
        merged.members.iter().for_each(|member| self.of[*member] = to);
        self.clusters[from] = Cluster::default();
        self.clusters[to] = merged;
    }

    /// Whether all members can be computed over one shape: what one hands to another is read at
    /// the same place, and what is repeated is repeated in the same way.
    fn fits(&self, members: &[usize], shape: &Shape) -> bool {
        members.iter().all(|member| {
            let node = self.node(*member);
            let Some(map) = node.op.as_map() else { return false };
            map.shape.elements() == shape.elements()
                && node.inputs.iter().all(|input| {
                    let own = self.graph.shape(*input);
                    let inside = self.producer(*input).is_some_and(|p| members.contains(&p));
                    let whole = own.elements() == shape.elements();
                    let alike = || {
                        own.broadcasts_to(shape)
                            && Access::new(own, shape) == Access::new(own, &map.shape)
                    };
                    whole || (!inside && (map.shape == *shape || alike()))
                })
        })
    }

    /// Values from outside that a cluster reads.
    fn inputs(&self, cluster: &Cluster) -> Vec<ValueId> {
        let mut inputs: Vec<ValueId> = Vec::new();
        for input in cluster.members.iter().flat_map(|member| &self.node(*member).inputs) {
            let inside = self.producer(*input).is_some_and(|p| cluster.members.contains(&p));
            let known = inputs.iter().any(|other| self.same(cluster, *other, *input));
            if !inside && !known {
                inputs.push(*input);
            }
        }
        inputs
    }

    /// Whether two operands are the same elements read in the same way.
    fn same(&self, cluster: &Cluster, a: ValueId, b: ValueId) -> bool {
        let all = cluster.shape.elements();
        let (first, second) = (self.graph.shape(a), self.graph.shape(b));
        self.graph.root(a) == self.graph.root(b)
            && (first == second || (first.elements() == all && second.elements() == all))
    }

    /// Results that somebody outside reads or that are kept.
    fn outputs(&self, cluster: &Cluster) -> Vec<ValueId> {
        let results = cluster.members.iter().flat_map(|member| &self.node(*member).outputs);
        let read_outside = |value: &ValueId| {
            let readers = self.readers.get(value).map(Vec::as_slice).unwrap_or_default();
            self.kept.contains(value)
                || readers.iter().any(|reader| !cluster.members.contains(reader))
        };
        results.copied().filter(read_outside).collect()
    }

    fn bindings(&self, cluster: &Cluster) -> usize {
        self.inputs(cluster).len() + self.outputs(cluster).len()
    }

    /// Whether something outside depends on the cluster and the cluster depends on it.
    fn has_way_back(&self, cluster: &Cluster) -> bool {
        let own: HashSet<usize> = cluster.members.iter().chain(&cluster.product).copied().collect();
        let mut seen: HashSet<usize> = HashSet::new();
        let mut open: Vec<usize> = Vec::new();
        let push = |open: &mut Vec<usize>, value: ValueId| {
            open.extend(self.producer(value).map(|producer| self.of[producer]));
        };
        let mut outer = Vec::new();
        own.iter().for_each(|node| {
            self.node(*node).inputs.iter().for_each(|input| push(&mut outer, *input))
        });
        // Clusters that the members belong to now are the merged one.
        let inner: HashSet<usize> = own.iter().map(|node| self.of[*node]).collect();
        open.extend(outer.into_iter().filter(|cluster| !inner.contains(cluster)));
        while let Some(at) = open.pop() {
            if inner.contains(&at) {
                return true;
            }
            if !seen.insert(at) {
                continue;
            }
            let cluster = &self.clusters[at];
            for node in cluster.members.iter().chain(&cluster.product) {
                self.node(*node).inputs.iter().for_each(|input| push(&mut open, *input));
            }
            open.retain(|next| *next != at);
        }
        false
    }

    /// Puts the cluster that alone reads a product into the product's kernel.
    fn absorb(&mut self, node: usize) {
        let product = self.node(node);
        let [result] = product.outputs[..] else { return };
        if self.is_map(node) || self.kept.contains(&result) {
            return;
        }
        let readers = self.readers.get(&result).map(Vec::as_slice).unwrap_or_default();
        let Some(to) = readers.first().map(|reader| self.of[*reader]) else { return };
        let cluster = &self.clusters[to];
        let alone = readers.iter().all(|reader| self.of[*reader] == to && self.is_map(*reader));
        let whole = self.graph.shape(result).elements() == cluster.shape.elements();
        if !alone || !whole || cluster.product.is_some() {
            return;
        }
        let merged = Cluster { product: Some(node), ..cluster.clone() };
        let bindings = product.inputs.len() + self.bindings(&merged) - 1;
        let allowed = product.op.with_epilogue(&self.map(&merged).0).is_some();
        if allowed
            && bindings <= GpuLimits::FLOOR.storage_bindings as usize
            && !self.has_way_back(&merged)
        {
            self.clusters[self.of[node]] = Cluster::default();
            self.of[node] = to;
            self.clusters[to] = merged;
        }
    }

    /// A cluster as one map: with its operands and its results. The result of an absorbed product
    /// is operand 0.
    fn map(&self, cluster: &Cluster) -> (Map, Vec<ValueId>, Vec<ValueId>) {
        let mut operands = self.inputs(cluster);
        if let Some(product) = cluster.product {
            let result = self.node(product).outputs[0];
            operands.sort_by_key(|operand| self.graph.root(*operand) != result);
        }
        let outputs = self.outputs(cluster);
        let mut code = Code::new();
        let mut registers: HashMap<ValueId, Reg> = HashMap::new();
        for member in &cluster.members {
            let node = self.node(*member);
            let Some(map) = node.op.as_map() else { unreachable!("a cluster of maps") };
            let inputs: Vec<Reg> = (node.inputs.iter())
                .map(|input| match registers.get(&self.graph.root(*input)) {
                    Some(register) => *register,
                    None => {
                        let at = operands
                            .iter()
                            .position(|operand| self.same(cluster, *operand, *input));
                        code.input(at.unwrap_or(0))
                    }
                })
                .collect();
            let results = code.splice(&map.code, &inputs);
            registers.extend(node.outputs.iter().copied().zip(results));
        }
        code.outs = outputs.iter().map(|output| registers[output]).collect();
        (
            Map { code: code.pruned(), inputs: operands.len(), shape: cluster.shape.clone() },
            operands,
            outputs,
        )
    }
}

/// Builds the fused graph.
struct Rebuild<'a> {
    clusters: &'a Clusters<'a>,
    out: Graph,
    to: HashMap<ValueId, ValueId>,
}

impl<'a> Rebuild<'a> {
    fn run(clusters: &'a Clusters<'a>) -> (Graph, HashMap<ValueId, ValueId>) {
        let mut rebuild = Rebuild { clusters, out: Graph::new(), to: HashMap::new() };
        let graph = clusters.graph;
        for (index, info) in graph.values.iter().enumerate() {
            if let Origin::Leaf(leaf) = &info.origin {
                let leaf: Leaf = leaf.clone();
                let new = rebuild.out.leaf(leaf, info.ty.clone());
                rebuild.to.insert(ValueId(index as u32), new);
            }
        }
        for cluster in rebuild.order() {
            rebuild.add(&clusters.clusters[cluster]);
        }
        for index in 0..graph.values.len() {
            rebuild.translate(ValueId(index as u32));
        }
        (rebuild.out, rebuild.to)
    }

    /// Clusters so that each comes after what it reads, near the order of their last nodes.
    fn order(&self) -> Vec<usize> {
        let clusters = self.clusters;
        let mut waits: HashMap<usize, HashSet<usize>> = HashMap::new();
        let mut followers: HashMap<usize, Vec<usize>> = HashMap::new();
        let last = |at: usize| clusters.clusters[at].members.last().copied().unwrap_or(0);
        let mut ready = BinaryHeap::new();
        for (at, cluster) in
            clusters.clusters.iter().enumerate().filter(|(_, c)| !c.members.is_empty())
        {
            let nodes = cluster.members.iter().chain(&cluster.product);
            let inputs = nodes.flat_map(|node| &clusters.node(*node).inputs);
            let before: HashSet<usize> = inputs
                .filter_map(|v| clusters.producer(*v))
                .map(|p| clusters.of[p])
                .filter(|c| *c != at)
                .collect();
            before.iter().for_each(|c| followers.entry(*c).or_default().push(at));
            if before.is_empty() {
                ready.push(Reverse((last(at), at)));
            }
            waits.insert(at, before);
        }
        let mut order = Vec::new();
        while let Some(Reverse((_, at))) = ready.pop() {
            order.push(at);
            for next in followers.remove(&at).unwrap_or_default() {
                let Some(before) = waits.get_mut(&next) else { continue };
                before.remove(&at);
                if before.is_empty() {
                    ready.push(Reverse((last(next), next)));
                }
            }
        }
        order
    }

    fn add(&mut self, cluster: &Cluster) {
        let graph = self.clusters.graph;
        let first = self.clusters.node(cluster.product.unwrap_or(cluster.members[0]));
        if cluster.product.is_none() && cluster.members.len() == 1 {
            let inputs: Vec<ValueId> =
                first.inputs.iter().filter_map(|input| self.translate(*input)).collect();
            let outputs = self.out.copy_node(first, &inputs, graph);
            self.to.extend(first.outputs.iter().copied().zip(outputs));
            return;
        }
        let (map, operands, outputs) = self.clusters.map(cluster);
        let whole = cluster.shape.elements();
        let mut inputs: Vec<ValueId> = Vec::new();
        if let Some(product) = cluster.product {
            let node = self.clusters.node(product);
            inputs.extend(node.inputs.iter().filter_map(|input| self.translate(*input)));
        }
        let others = operands.iter().skip(usize::from(cluster.product.is_some()));
        for operand in others {
            let Some(value) = self.translate(*operand) else { continue };
            let ty = graph.ty(*operand);
            let full = ty.shape.elements() == whole && ty.shape != cluster.shape;
            let viewed = TensorType { shape: cluster.shape.clone(), dtype: ty.dtype };
            inputs.push(if full { self.out.view(value, viewed) } else { value });
        }
        let op: Arc<dyn Op> = match cluster.product {
            Some(product) => match self.clusters.node(product).op.with_epilogue(&map) {
                Some(op) => op,
                None => unreachable!("`absorb` asked before"),
            },
            None => Arc::new(map),
        };
        self.out.set_scope(first.scope.clone());
        self.out.set_backward(first.backward);
        let results = match self.out.apply(op, &inputs) {
            Ok(results) => results,
            Err(error) => unreachable!("fused ops fit as the single ones did: {error}"),
        };
        for (old, new) in outputs.iter().zip(results) {
            let ty = graph.ty(*old);
            self.out.store_as(new, ty.dtype);
            let new = if ty.shape == cluster.shape { new } else { self.out.view(new, ty.clone()) };
            self.to.insert(*old, new);
        }
    }

    /// The new value of an old one, making its views anew; `None` where it is not stored any more.
    fn translate(&mut self, value: ValueId) -> Option<ValueId> {
        if let Some(found) = self.to.get(&value) {
            return Some(*found);
        }
        let graph = self.clusters.graph;
        let Origin::View(of) = graph.values[value.index()].origin else { return None };
        let base = self.translate(of)?;
        let made = self.out.view(base, graph.ty(value).clone());
        self.to.insert(value, made);
        Some(made)
    }
}
