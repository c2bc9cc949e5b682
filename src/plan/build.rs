//! From graphs to a [`Plan`]: differentiate, fuse, place, and write the update program.

use std::collections::HashMap;
use std::sync::Arc;

use super::place::{self, Fixed};
use super::update::Update;
use super::{
    ALIGN, Layout, Page, Plan, PlanError, Precision, Program, ProgramId, Roles, Slot, precision,
    prune,
};
use crate::graph::{Graph, Leaf, Origin, TensorType, ValueId, grad};
use crate::ops::map::{self, Code};
use crate::ops::{Stats, Target};

/// A forward graph as the layers build it, for one batch size and one mode.
#[derive(Clone, Debug)]
pub struct Forward {
    /// The graph.
    pub graph: Graph,
    /// Batch inputs in order: the model's, then the target's.
    pub inputs: Vec<ValueId>,
    /// The model's outputs.
    pub outputs: Vec<ValueId>,
    /// Per-row loss with its factor: Σ factor · rows is what is minimised.
    pub losses: Vec<(ValueId, f32)>,
    /// Row vectors whose sums are the step's statistics, in the order of the model's names.
    pub stats: Vec<ValueId>,
    /// New values of states, updated in place (running statistics).
    pub state_updates: Vec<ValueId>,
}

/// What a plan is made from.
#[derive(Debug)]
pub struct Request<'a> {
    /// Where it will run.
    pub target: &'a Target,
    /// How values between the parameters and the loss are stored.
    pub precision: Precision,
    /// The parameters' order.
    pub params: &'a Layout,
    /// The states' order.
    pub states: &'a Layout,
    /// Training graphs, one for each batch size that occurs; none for evaluation only.
    pub train: Vec<Forward>,
    /// Evaluation graphs, one for each batch size that occurs.
    pub eval: Vec<Forward>,
    /// The optimizer; `None` for evaluation only.
    pub update: Option<Update>,
}

/// Numbers in front of the statistics in a training report: scale, gradient norm, non-finite
/// gradients, divisor.
pub const REPORT_HEAD: usize = 4;
/// Numbers behind the statistics in a training report of mixed precision: the loss scale and the
/// steps that were skipped so far.
pub const REPORT_TAIL: usize = 2;

/// Builds the plan.
///
/// # Errors
/// When a gradient does not reach a trained parameter, or something does not fit the target.
pub fn build(request: Request<'_>) -> Result<Plan, PlanError> {
    if request.precision == Precision::Mixed {
        match request.target {
            Target::Cpu => return Err(PlanError::NoHalf { device: "the CPU executor" }),
            Target::Gpu(limits) if !limits.half => {
                return Err(PlanError::NoHalf { device: "this GPU" });
            }
            Target::Gpu(_) => {}
        }
    }
    let stats = request.train.iter().chain(&request.eval).map(|f| f.stats.len()).max().unwrap_or(0);
    let mut builder = Builder::new(&request, stats);
    for forward in &request.train {
        let id = builder.micro(forward)?;
        builder.roles.train.push(id);
    }
    for forward in &request.eval {
        let id = builder.eval(forward)?;
        builder.roles.eval.push(id);
    }
    if request.update.as_ref().is_some_and(|update| update.average) {
        builder.trained_page = Page::Average;
        for forward in &request.eval {
            let id = builder.eval(forward)?;
            builder.roles.eval_average.push(id);
        }
        builder.trained_page = Page::Params;
    }
    if let Some(update) = &request.update {
        builder.update(update)?;
    }
    builder.finish()
}

/// A plan of one program that computes `outputs` of a graph whose leaves are all inputs.
///
/// # Errors
/// When something does not fit the target.
pub fn of_graph(
    graph: &Graph,
    inputs: &[ValueId],
    outputs: &[ValueId],
    target: &Target,
    precision: Precision,
) -> Result<Plan, PlanError> {
    let nothing = Layout::default();
    let request = Request {
        target,
        precision,
        params: &nothing,
        states: &nothing,
        train: Vec::new(),
        eval: Vec::new(),
        update: None,
    };
    let mut builder = Builder::new(&request, 0);
    let id = builder.program(graph.clone(), Vec::new(), inputs, outputs, &[])?;
    builder.roles.eval.push(id);
    builder.finish()
}

pub(super) struct Builder<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) stats: usize,
    /// Where trained parameters are read.
    trained_page: Page,
    /// The precision of the programs to come.
    pub(super) precision: Precision,
    consts: Vec<(Slot, Arc<[f32]>)>,
    programs: Vec<Program>,
    pub(super) roles: Roles,
    arena: Vec<u64>,
    batch: u64,
}

impl<'a> Builder<'a> {
    fn new(request: &'a Request<'a>, stats: usize) -> Self {
        Builder {
            request,
            stats,
            trained_page: Page::Params,
            precision: request.precision,
            consts: Vec::new(),
            programs: Vec::new(),
            roles: Roles::default(),
            arena: Vec::new(),
            batch: 0,
        }
    }
}

impl Builder<'_> {
    pub(super) fn params(&self) -> &Layout {
        self.request.params
    }

    /// Elements of the gradient page: trained parameters, then statistics.
    pub(super) fn grad_elements(&self) -> usize {
        self.params().trained + self.stats.next_multiple_of((ALIGN / 4) as usize)
    }

    fn micro(&mut self, forward: &Forward) -> Result<ProgramId, PlanError> {
        let mut graph = forward.graph.clone();
        let layout = self.params();
        let leaves = param_leaves(&graph);
        let trained: Vec<usize> =
            (0..layout.params.len()).filter(|i| layout.is_trained(*i)).collect();
        if trained.is_empty() {
            return Err(PlanError::NothingToTrain);
        }
        let mut wrt = Vec::new();
        for index in &trained {
            let name = &layout.params[*index].spec.name;
            wrt.push(*leaves.get(index).ok_or_else(|| PlanError::Unused { name: name.clone() })?);
        }
        let mut seeds = Vec::new();
        for &(rows, factor) in &forward.losses {
            let shape = graph.shape(rows).clone();
            let seed = match self.scaler(&mut graph) {
                None => graph.constant(factor, shape),
                Some(state) => {
                    let code = Code::of(|code| {
                        let scale = code.input(0);
                        code.scale(scale, factor)
                    });
                    map::apply(&mut graph, code, &[state], shape)?
                }
            };
            seeds.push((rows, seed));
        }
        let grads = grad::grad(&mut graph, &seeds, &wrt)
            .map_err(|error| self.unreached(error, &trained))?;
        graph.set_scope("");
        let mut pins: Vec<(ValueId, Slot)> = (trained.iter().zip(grads))
            .map(|(index, value)| (value, layout.params[*index].slot(Page::Grads)))
            .collect();
        let stats = self.stats_value(&mut graph, forward)?;
        let offset = layout.trained as u64 * 4;
        pins.push((stats, Slot { page: Page::Grads, offset, bytes: graph.ty(stats).bytes() }));
        self.program(graph, pins, &forward.inputs, &[], &forward.state_updates)
    }

    /// The loss scale, which a plan of mixed precision has.
    fn scaler(&self, graph: &mut Graph) -> Option<ValueId> {
        let mixed = self.request.precision == Precision::Mixed;
        let leaf = Leaf::Page { page: Page::Scaler, offset: 0 };
        mixed.then(|| graph.leaf(leaf, TensorType::f32([1])))
    }

    fn unreached(&self, error: grad::GradError, trained: &[usize]) -> PlanError {
        match error {
            grad::GradError::Unreached { value, reason } => PlanError::NoGradient {
                name: self.params().params[trained[value]].spec.name.clone(),
                reason,
            },
            other => PlanError::Gradient(other),
        }
    }

    fn stats_value(&self, graph: &mut Graph, forward: &Forward) -> Result<ValueId, PlanError> {
        Ok(graph.op(Stats, &forward.stats)?)
    }

    fn eval(&mut self, forward: &Forward) -> Result<ProgramId, PlanError> {
        let mut graph = forward.graph.clone();
        let stats = self.stats_value(&mut graph, forward)?;
        let slot = Slot { page: Page::Report, offset: 0, bytes: graph.ty(stats).bytes() };
        self.program(graph, vec![(stats, slot)], &forward.inputs, &forward.outputs, &[])
    }

    /// Fuses and places a graph whose `pins` must land in given slots.
    pub(super) fn program(
        &mut self,
        mut graph: Graph,
        pins: Vec<(ValueId, Slot)>,
        inputs: &[ValueId],
        outputs: &[ValueId],
        updates: &[ValueId],
    ) -> Result<ProgramId, PlanError> {
        let pins = distinct(&mut graph, pins)?;
        let batch = self.batch_slots(inputs.iter().map(|v| graph.ty(*v).clone()));
        let mut keep: Vec<ValueId> = pins.iter().map(|(value, _)| *value).collect();
        keep.extend(outputs.iter().chain(updates));
        let (graph, pruned) = prune::prune(&graph, &keep);
        let keep: Vec<ValueId> = keep.iter().map(|v| pruned[v]).collect();
        let (graph, stored) = match self.precision {
            Precision::Single => (graph, None),
            Precision::Mixed => {
                let (graph, stored) = precision::mixed(&graph, &keep);
                (graph, Some(stored))
            }
        };
        let stored = |value: &ValueId| stored.as_ref().map_or(*value, |stored| stored[value]);
        let keep: Vec<ValueId> = keep.iter().map(stored).collect();
        let (graph, fused) = super::fuse::fuse(&graph, &keep, self.request.target);
        let at = |value: &ValueId| graph.root(fused[&stored(&pruned[value])]);
        let pinned: HashMap<ValueId, Slot> =
            pins.iter().map(|(value, slot)| (at(value), *slot)).collect();
        let kept: Vec<ValueId> = outputs.iter().map(at).collect();
        let consts = self.place_consts(&graph);
        let leaf = |leaf: &Leaf, ty: &TensorType| self.leaf_slot(leaf, ty, &batch, &consts);
        let placed =
            place::place(&graph, self.request.target, &Fixed { leaf: &leaf, pinned, kept })?;
        place::verify(&placed.steps)?;
        self.arena.resize(self.arena.len().max(placed.arena.len()), 0);
        self.arena.iter_mut().zip(placed.arena).for_each(|(all, own)| *all = own.max(*all));
        let outputs = outputs
            .iter()
            .map(|v| (placed.slots[&at(v)], graph.ty(fused[&stored(&pruned[v])]).clone()))
            .collect();
        self.programs.push(Program { steps: placed.steps, inputs: batch, outputs });
        Ok(self.programs.len() - 1)
    }

    /// Slots of the batch inputs, one after another.
    fn batch_slots(&mut self, inputs: impl Iterator<Item = TensorType>) -> Vec<(Slot, TensorType)> {
        let mut offset = 0;
        let mut slots = Vec::new();
        for ty in inputs {
            slots.push((Slot { page: Page::Batch, offset, bytes: ty.bytes() }, ty.clone()));
            offset += ty.bytes().next_multiple_of(ALIGN);
        }
        self.batch = self.batch.max(offset);
        slots
    }

    /// Gives each constant of a graph a slot; equal ones share it.
    fn place_consts(&mut self, graph: &Graph) -> HashMap<ConstKey, Slot> {
        let mut slots: HashMap<ConstKey, Slot> = (self.consts.iter())
            .map(|(slot, values)| (const_key(values, slot.bytes), *slot))
            .collect();
        for info in &graph.values {
            let values: Arc<[f32]> = match &info.origin {
                Origin::Leaf(Leaf::Constant(value)) => Arc::new([*value]),
                Origin::Leaf(Leaf::Table(values)) => values.clone(),
                _ => continue,
            };
            slots.entry(const_key(&values, info.ty.bytes())).or_insert_with(|| {
                let offset = self
                    .consts
                    .last()
                    .map_or(0, |(s, _)| (s.offset + s.bytes).next_multiple_of(ALIGN));
                let slot = Slot { page: Page::Consts, offset, bytes: info.ty.bytes() };
                self.consts.push((slot, values));
                slot
            });
        }
        slots
    }

    fn leaf_slot(
        &self,
        leaf: &Leaf,
        ty: &TensorType,
        batch: &[(Slot, TensorType)],
        consts: &HashMap<ConstKey, Slot>,
    ) -> Slot {
        match leaf {
            Leaf::Param(index) => {
                let trained = self.params().is_trained(*index);
                let page = if trained { self.trained_page } else { Page::Params };
                self.params().params[*index].slot(page)
            }
            Leaf::State(index) => self.request.states.params[*index].slot(Page::State),
            Leaf::Input(index) => batch[*index].0,
            Leaf::Constant(value) => consts[&const_key(&[*value], ty.bytes())],
            Leaf::Table(values) => consts[&const_key(values, ty.bytes())],
            Leaf::Page { page, offset } => {
                Slot { page: *page, offset: *offset as u64 * 4, bytes: ty.bytes() }
            }
        }
    }

    fn finish(self) -> Result<Plan, PlanError> {
        let page = self.params().elements as u64 * 4;
        let grads = self.grad_elements() as u64 * 4;
        let mut pages = vec![(Page::Params, page)];
        if let Some(update) = &self.request.update {
            pages.push((Page::Grads, grads));
            if update.accumulate > 1 {
                pages.push((Page::Accum, grads));
            }
            let moments = update.moments.iter().enumerate();
            pages.extend(moments.map(|(i, m)| (Page::Moment(i as u8), m.elements as u64 * 4)));
            if update.average {
                pages.push((Page::Average, self.params().trained as u64 * 4));
            }
        }
        pages.push((Page::State, self.request.states.elements as u64 * 4));
        pages.push((Page::Batch, self.batch));
        let consts = self.consts.last().map_or(0, |(s, _)| s.offset + s.bytes);
        pages.push((Page::Consts, consts.next_multiple_of(ALIGN)));
        if self.request.update.is_some() && self.request.precision == Precision::Mixed {
            pages.push((Page::Scaler, ALIGN));
        }
        let report = REPORT_HEAD + self.stats + REPORT_TAIL;
        pages.push((Page::Report, ((report * 4) as u64).next_multiple_of(ALIGN)));
        let arena = self.arena.into_iter().enumerate();
        pages.extend(arena.map(|(buffer, bytes)| (Page::Arena(buffer as u8), bytes)));
        pages.retain(|(_, bytes)| *bytes > 0);
        Ok(Plan {
            target: self.request.target.clone(),
            pages,
            programs: self.programs,
            roles: self.roles,
            consts: self.consts,
        })
    }
}

/// Constants are the same if their values' bits and their sizes in bytes are.
type ConstKey = (Vec<u32>, u64);

fn const_key(values: &[f32], bytes: u64) -> ConstKey {
    (values.iter().map(|value| value.to_bits()).collect(), bytes)
}

/// The leaf of each parameter that the graph uses.
fn param_leaves(graph: &Graph) -> HashMap<usize, ValueId> {
    (graph.values.iter().enumerate())
        .filter_map(|(index, info)| match info.origin {
            Origin::Leaf(Leaf::Param(param)) => Some((param, ValueId(index as u32))),
            _ => None,
        })
        .collect()
}

/// Makes every pinned value one that a node computes and that is pinned once: leaves and values
/// that are wanted in two places are copied.
fn distinct(
    graph: &mut Graph,
    pins: Vec<(ValueId, Slot)>,
) -> Result<Vec<(ValueId, Slot)>, PlanError> {
    let mut taken = Vec::new();
    let mut out = Vec::with_capacity(pins.len());
    for (value, slot) in pins {
        let root = graph.root(value);
        let mut pinned = value;
        if grad::is_leaf(graph, value) || taken.contains(&root) {
            pinned = map::copy(graph, value)?;
        }
        taken.push(graph.root(pinned));
        out.push((pinned, slot));
    }
    Ok(out)
}
