//! Memory: every value of a program gets a slot. Values of the arena are placed by liveness, the
//! biggest first, each at the lowest offset that is free during its whole life.

use std::collections::HashMap;

use super::{ALIGN, Page, PlanError, Slot, Step};
use crate::graph::{Graph, Leaf, Node, Origin, TensorType, ValueId};
use crate::ops::{ScratchCall, Target};

/// Where the values live that the program does not own.
pub(super) struct Fixed<'a> {
    /// Slot of a leaf.
    pub(super) leaf: &'a dyn Fn(&Leaf, &TensorType) -> Slot,
    /// Values that must be written to a given place (gradients, statistics), by root.
    pub(super) pinned: HashMap<ValueId, Slot>,
    /// Values that must outlive the program, by root.
    pub(super) kept: Vec<ValueId>,
}

/// Steps with their slots, and the bytes of arena that they need.
pub(super) struct Placed {
    pub(super) steps: Vec<Step>,
    pub(super) slots: HashMap<ValueId, Slot>,
    /// Bytes of each of the arena's buffers.
    pub(super) arena: Vec<u64>,
}

/// A piece of the arena: needed from one node to another, both included.
#[derive(Clone, Debug)]
struct Interval {
    bytes: u64,
    first: usize,
    last: usize,
    /// Which of the arena's buffers it lies in, and where.
    buffer: u8,
    offset: u64,
}

/// Places all values of a graph.
///
/// # Errors
/// When an op updates in place what is not a leaf.
pub(super) fn place(
    graph: &Graph,
    target: &Target,
    fixed: &Fixed<'_>,
) -> Result<Placed, PlanError> {
    let mut slots = HashMap::new();
    for (index, info) in graph.values.iter().enumerate() {
        if let Origin::Leaf(leaf) = &info.origin {
            slots.insert(ValueId(index as u32), (fixed.leaf)(leaf, &info.ty));
        }
    }
    slots.extend(fixed.pinned.iter().map(|(value, slot)| (*value, *slot)));
    let last = last_uses(graph, &fixed.kept);
    let mut intervals = Vec::new();
    let mut owners = Vec::new();
    let mut scratch = HashMap::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        for &(input, output) in node.op.in_place() {
            let operand = graph.root(node.inputs[input]);
            let slot = slots.get(&operand).copied();
            let leaf = matches!(graph.values[operand.index()].origin, Origin::Leaf(_));
            match slot.filter(|_| leaf) {
                Some(slot) => slots.insert(node.outputs[output], slot),
                None => return Err(PlanError::InPlace { op: node.op.name() }),
            };
        }
        for value in &node.outputs {
            if !slots.contains_key(value) {
                let until = last.get(value).copied().unwrap_or(index);
                owners.push((*value, intervals.len()));
                intervals.push(Interval::new(graph.ty(*value).bytes(), index, until));
            }
        }
        let bytes = scratch_bytes(graph, node, target);
        if bytes > 0 {
            scratch.insert(index, intervals.len());
            intervals.push(Interval::new(bytes, index, index));
        }
    }
    let longest = match target {
        Target::Cpu => u64::MAX,
        Target::Gpu(limits) => limits.buffer_bytes / ALIGN * ALIGN,
    };
    let arena = pack(&mut intervals, longest);
    let slot = |at: usize| Slot {
        page: Page::Arena(intervals[at].buffer),
        offset: intervals[at].offset,
        bytes: intervals[at].bytes,
    };
    slots.extend(
        owners.iter().map(|(value, at)| {
            (*value, Slot { bytes: graph.ty(*value).bytes().max(4), ..slot(*at) })
        }),
    );
    let steps = (graph.nodes.iter().enumerate())
        .map(|(index, node)| step(graph, node, &slots, scratch.get(&index).map(|at| slot(*at))))
        .collect();
    Ok(Placed { steps, slots, arena })
}

impl Interval {
    fn new(bytes: u64, first: usize, last: usize) -> Self {
        Interval { bytes: bytes.max(4).next_multiple_of(ALIGN), first, last, buffer: 0, offset: 0 }
    }

    fn lives_with(&self, other: &Interval) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// For each value (by root), the last node that reads it.
fn last_uses(graph: &Graph, kept: &[ValueId]) -> HashMap<ValueId, usize> {
    let mut last = HashMap::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        for value in &node.inputs {
            last.insert(graph.root(*value), index);
        }
    }
    for value in kept {
        last.insert(graph.root(*value), graph.nodes.len());
    }
    last
}

fn scratch_bytes(graph: &Graph, node: &Node, target: &Target) -> u64 {
    let ins: Vec<&TensorType> = node.inputs.iter().map(|v| graph.ty(*v)).collect();
    let outs: Vec<&TensorType> = node.outputs.iter().map(|v| graph.ty(*v)).collect();
    node.op.scratch(&ScratchCall { ins: &ins, outs: &outs, target }) as u64 * 4
}

/// Assigns buffers of at most `longest` bytes and offsets in them; returns the bytes of each buffer.
fn pack(intervals: &mut [Interval], longest: u64) -> Vec<u64> {
    let mut order: Vec<usize> = (0..intervals.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(intervals[*i].bytes), intervals[*i].first, *i));
    let mut done: Vec<usize> = Vec::with_capacity(order.len());
    let mut tops: Vec<u64> = Vec::new();
    for index in order {
        let bytes = intervals[index].bytes;
        for buffer in 0..=u8::MAX {
            let mut busy: Vec<(u64, u64)> = done
                .iter()
                .map(|i| &intervals[*i])
                .filter(|other| other.buffer == buffer && other.lives_with(&intervals[index]))
                .map(|other| (other.offset, other.offset + other.bytes))
                .collect();
            busy.sort_unstable();
            let mut offset = 0;
            for (start, end) in &busy {
                if offset + bytes <= *start {
                    break;
                }
                offset = offset.max(*end);
            }
            // What alone is longer than a buffer may be gets one, and the device refuses it by name.
            if offset + bytes <= longest || busy.is_empty() || buffer == u8::MAX {
                (intervals[index].buffer, intervals[index].offset) = (buffer, offset);
                tops.resize(tops.len().max(usize::from(buffer) + 1), 0);
                let top = &mut tops[usize::from(buffer)];
                *top = (*top).max(offset + bytes);
                break;
            }
        }
        done.push(index);
    }
    tops
}

fn step(graph: &Graph, node: &Node, slots: &HashMap<ValueId, Slot>, scratch: Option<Slot>) -> Step {
    let types = |values: &[ValueId]| values.iter().map(|v| graph.ty(*v).clone()).collect();
    let places = |values: &[ValueId]| values.iter().map(|v| slots[&graph.root(*v)]).collect();
    Step {
        op: node.op.clone(),
        in_types: types(&node.inputs),
        out_types: types(&node.outputs),
        ins: places(&node.inputs),
        outs: places(&node.outputs),
        scratch,
        scope: node.scope.clone(),
        backward: node.backward,
    }
}

/// Checks what the executors rely on: in one step, no result or scratch shares a byte with
/// another operand, except in-place pairs.
///
/// # Errors
/// Naming the op and the two slots.
pub fn verify(steps: &[Step]) -> Result<(), PlanError> {
    for step in steps {
        let written: Vec<(usize, &Slot)> =
            step.outs.iter().chain(&step.scratch).enumerate().collect();
        for &(index, slot) in &written {
            let in_place = |input: usize| step.op.in_place().contains(&(input, index));
            let clash =
                step.ins.iter().enumerate().find(|(i, s)| s.overlaps(slot) && !in_place(*i));
            let twice = written.iter().find(|(other, s)| *other != index && s.overlaps(slot));
            if clash.is_some() || twice.is_some() {
                return Err(PlanError::Overlap {
                    op: step.op.name(),
                    scope: step.scope.to_string(),
                });
            }
        }
    }
    Ok(())
}
