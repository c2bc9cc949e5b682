//! The flat order of parameters: where each lies in its page.

use std::ops::Range;

use super::{ALIGN, Page, Slot};
use crate::graph::Shape;

/// How a parameter or a state gets its first values. Random ones are drawn on the host by Philox
/// keyed by (seed, the parameter's name), so they depend on nothing else.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// Every element is this value.
    Constant(f32),
    /// Uniform in (−bound, bound).
    Uniform(f32),
    /// Normal with this mean and standard deviation.
    Normal {
        /// Mean.
        mean: f32,
        /// Standard deviation.
        std: f32,
    },
    /// Normal, drawn again until within two standard deviations of the mean.
    TruncNormal {
        /// Mean.
        mean: f32,
        /// Standard deviation of the normal before truncation.
        std: f32,
    },
    /// As another one, but zero at these elements.
    ZerosWithin(Box<Init>, Range<usize>),
}

/// A parameter or state as the layers declare it.
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// Name in checkpoints, such as `h.0.attn.in_proj_weight`.
    pub name: String,
    /// Extents, in PyTorch's layout.
    pub shape: Shape,
    /// First values.
    pub init: Init,
    /// Whether weight decay applies by default: true for matrices, kernels and embeddings, false
    /// for biases and norms.
    pub decay: bool,
}

/// A parameter with its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// What was declared.
    pub spec: ParamSpec,
    /// First element in the page.
    pub offset: usize,
}

impl Placed {
    /// The parameter's range in a page that has the parameters' order.
    pub fn slot(&self, page: Page) -> Slot {
        Slot { page, offset: self.offset as u64 * 4, bytes: self.spec.shape.elements() as u64 * 4 }
    }
}

/// The flat order: the groups of trained parameters, then the frozen parameters, each in the order
/// of declaration; every parameter starts at a multiple of [`ALIGN`] bytes and gaps hold zeros.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// Parameters by their index in the declaration.
    pub params: Vec<Placed>,
    /// First element and the one after the last of each group, gaps included.
    pub groups: Vec<(usize, usize)>,
    /// Elements of all groups, gaps included: the length of gradients.
    pub trained: usize,
    /// Elements in all, gaps included.
    pub elements: usize,
}

/// Elements that a parameter takes, the gap after it included.
fn taken(shape: &Shape) -> usize {
    shape.elements().next_multiple_of((ALIGN / 4) as usize)
}

impl Layout {
    /// Places parameters, each in its group; those without one (or beyond the list) are frozen.
    pub fn new(specs: Vec<ParamSpec>, groups: &[Option<usize>]) -> Self {
        let mut layout = Layout {
            params: specs.into_iter().map(|spec| Placed { spec, offset: 0 }).collect(),
            ..Layout::default()
        };
        let of = |index: usize| groups.get(index).copied().flatten();
        let count = groups.iter().flatten().max().map_or(0, |last| last + 1);
        for group in (0..count).map(Some).chain([None]) {
            let start = layout.elements;
            for (_, placed) in layout.params.iter_mut().enumerate().filter(|(i, _)| of(*i) == group)
            {
                placed.offset = layout.elements;
                layout.elements += taken(&placed.spec.shape);
            }
            if group.is_some() {
                layout.groups.push((start, layout.elements));
                layout.trained = layout.elements;
            }
        }
        layout
    }

    /// Numbers of all parameters, gaps not counted.
    pub fn parameter_count(&self) -> usize {
        self.params.iter().map(|p| p.spec.shape.elements()).sum()
    }

    /// Whether a parameter is trained, by its index.
    pub fn is_trained(&self, index: usize) -> bool {
        self.params[index].offset < self.trained
    }

    /// The group of a trained parameter, by its index.
    pub fn group_of(&self, index: usize) -> Option<usize> {
        let offset = self.params[index].offset;
        self.groups.iter().position(|(start, end)| (*start..*end).contains(&offset))
    }

    /// Parameters of a group by their index, in their order in the pages.
    pub fn members(&self, group: usize) -> Vec<usize> {
        (0..self.params.len()).filter(|index| self.group_of(*index) == Some(group)).collect()
    }

    /// Places moments: `of` gives the names and shapes of those of a trained parameter, by its
    /// index. Each page has the parameters' order, and where moments have the parameters' shapes
    /// they lie as these do within a group.
    pub fn moments(&self, of: impl Fn(usize) -> Vec<(&'static str, Shape)>) -> Vec<Moments> {
        let mut pages: Vec<Moments> = Vec::new();
        for index in (0..self.groups.len()).flat_map(|group| self.members(group)) {
            for (page, (name, shape)) in of(index).into_iter().enumerate() {
                if pages.len() == page {
                    pages.push(Moments { placed: vec![None; self.params.len()], elements: 0 });
                }
                let moments = &mut pages[page];
                let elements = taken(&shape);
                let spec = ParamSpec {
                    name: format!("{}.{name}", self.params[index].spec.name),
                    shape,
                    init: Init::Constant(0.0),
                    decay: false,
                };
                moments.placed[index] = Some(Placed { spec, offset: moments.elements });
                moments.elements += elements;
            }
        }
        pages
    }
}

/// A page of moments.
#[derive(Clone, Debug, PartialEq)]
pub struct Moments {
    /// Where each parameter's moment lies, named `<parameter>.<moment>`, by the parameter's index;
    /// `None` where it has none.
    pub placed: Vec<Option<Placed>>,
    /// Elements in all, gaps included.
    pub elements: usize,
}
