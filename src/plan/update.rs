//! The update program: gradients of a window to new parameters and moments.

use std::sync::Arc;

use super::build::Builder;
use super::{ALIGN, Moments, Page, PlanError, Precision, Slot};
use crate::graph::{Graph, Leaf, Shape, TensorType, ValueId};
use crate::ops::grad_scale::SCALER;
use crate::ops::update::{Operands, Settings, UpdateRule, average};
use crate::ops::{Accumulate, ClipUnits, GradScale, Target};

/// How parameters are updated.
#[derive(Clone, Debug)]
pub struct Update {
    /// The rule of each group of the layout.
    pub groups: Vec<Group>,
    /// Where the moments lie.
    pub moments: Vec<Moments>,
    /// Clips the global gradient norm.
    pub clip_norm: Option<f32>,
    /// Clips the norm of each unit's gradient: the share of its weights' norm, and the least of
    /// these.
    pub clip_adaptive: Option<(f32, f32)>,
    /// Adds noise to the gradient.
    pub noise: bool,
    /// Keeps an average of the parameters.
    pub average: bool,
    /// Micro-batches in a window.
    pub accumulate: usize,
    /// Which statistic is the divisor.
    pub weight_index: usize,
}

/// The rule of a group of parameters.
#[derive(Clone, Debug)]
pub struct Group {
    /// The optimizer.
    pub rule: Arc<dyn UpdateRule>,
    /// Its settings for this group.
    pub settings: Settings,
}

/// First stream of the gradient noise: those of layers count from 1.
const NOISE_STREAM: u32 = 1 << 30;

/// What is updated at once: a range of a group, or one parameter.
struct Part {
    offset: usize,
    shape: Shape,
    /// Page, first element and shape of each moment.
    moments: Vec<(Page, usize, Shape)>,
}

fn region(graph: &mut Graph, page: Page, offset: usize, shape: impl Into<Shape>) -> ValueId {
    graph.leaf(Leaf::Page { page, offset }, TensorType::f32(shape))
}

impl Builder<'_> {
    pub(super) fn update(&mut self, update: &Update) -> Result<(), PlanError> {
        // What a step changes is computed in single precision.
        self.precision = Precision::Single;
        let page = if update.accumulate > 1 { Page::Accum } else { Page::Grads };
        if update.accumulate > 1 {
            let (mut graph, total) = (Graph::new(), self.grad_elements());
            let sums = region(&mut graph, Page::Accum, 0, [total]);
            let g = region(&mut graph, Page::Grads, 0, [total]);
            let sums = graph.op(Accumulate, &[sums, g])?;
            self.roles.accumulate = Some(self.program(graph, Vec::new(), &[], &[], &[sums])?);
        }
        let mut graph = Graph::new();
        let elements = self.params().trained;
        let mut grads = region(&mut graph, page, 0, [elements]);
        let stats = region(&mut graph, page, elements, [self.stats]);
        let mut keep = Vec::new();
        if let Some((factor, eps)) = update.clip_adaptive {
            let params = region(&mut graph, Page::Params, 0, [elements]);
            let weight_index = update.weight_index;
            let clip = ClipUnits { factor, eps, weight_index, tensors: self.tensors() };
            grads = graph.op(clip, &[grads, params, stats])?;
            keep.push(grads);
        }
        let scaled = self.request.precision == Precision::Mixed;
        let scale =
            GradScale { clip_norm: update.clip_norm, weight_index: update.weight_index, scaled };
        let mut operands = vec![grads, stats];
        if scaled {
            operands.push(region(&mut graph, Page::Scaler, 0, [SCALER]));
        }
        let results = graph.apply(Arc::new(scale), &operands)?;
        let control = results[0];
        keep.extend(&results[1..]);
        let mut streams = (NOISE_STREAM..).step_by(2);
        for (index, group) in update.groups.iter().enumerate() {
            for part in self.parts(index, group, &update.moments) {
                let noise = streams.next().filter(|_| update.noise);
                let settings = Settings { noise, ..group.settings.clone() };
                let shape = || part.shape.clone();
                let moments = (part.moments.iter())
                    .map(|(page, offset, shape)| region(&mut graph, *page, *offset, shape.clone()))
                    .collect();
                let operands = Operands {
                    params: region(&mut graph, Page::Params, part.offset, shape()),
                    moments,
                    grads: region(&mut graph, page, part.offset, shape()),
                    control,
                    settings: &settings,
                };
                let new = group.rule.apply(&mut graph, &operands)?;
                if update.average {
                    let old = region(&mut graph, Page::Average, part.offset, shape());
                    keep.push(average(&mut graph, old, new[0], control)?);
                }
                keep.extend(new);
            }
        }
        let bytes = graph.ty(control).bytes();
        let pin = (control, Slot { page: Page::Report, offset: 0, bytes });
        self.roles.update = Some(self.program(graph, vec![pin], &[], &[], &keep)?);
        Ok(())
    }

    /// The trained parameters as `(first element, units, elements of a unit)`.
    fn tensors(&self) -> Vec<(usize, usize, usize)> {
        let layout = self.params();
        let trained = (0..layout.params.len()).filter(|index| layout.is_trained(*index));
        trained
            .map(|index| {
                let placed = &layout.params[index];
                let dims = placed.spec.shape.dims();
                let units = if dims.len() < 2 { 1 } else { dims[0] };
                (placed.offset, units, placed.spec.shape.elements() / units)
            })
            .collect()
    }

    /// The parts of a group: its parameters where the rule looks at whole ones, else ranges, cut
    /// where a binding would be too long.
    fn parts(&self, index: usize, group: &Group, moments: &[Moments]) -> Vec<Part> {
        let layout = self.params();
        let members = layout.members(index);
        // Moments of a parameter: page and place.
        let of = |param: usize| {
            moments.iter().enumerate().filter_map(move |(page, moments)| {
                let placed = moments.placed[param].as_ref()?;
                Some((Page::Moment(page as u8), placed))
            })
        };
        if group.rule.per_tensor() {
            return (members.iter())
                .map(|&param| Part {
                    offset: layout.params[param].offset,
                    shape: layout.params[param].spec.shape.clone(),
                    moments: of(param)
                        .map(|(page, placed)| (page, placed.offset, placed.spec.shape.clone()))
                        .collect(),
                })
                .collect();
        }
        let longest = match self.request.target {
            Target::Cpu => usize::MAX,
            Target::Gpu(limits) => (limits.binding_bytes / ALIGN * (ALIGN / 4)) as usize,
        };
        let (start, end) = layout.groups[index];
        let cut = (start..end).step_by(longest);
        cut.map(|offset| {
            let shape = Shape::new([longest.min(end - offset)]);
            let moments = of(members[0])
                .map(|(page, first)| (page, first.offset + offset - start, shape.clone()))
                .collect();
            Part { offset, shape, moments }
        })
        .collect()
    }
}
