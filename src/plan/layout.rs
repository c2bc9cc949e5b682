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

/// The flat order: decayed parameters first, then the other trained ones, then the frozen ones, each
/// group in the order of declaration; every parameter starts at a multiple of [`ALIGN`] bytes and gaps hold zeros.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// Parameters by their index in the declaration.
    pub params: Vec<Placed>,
    /// Elements of the decayed group, gaps included.
    pub decayed: usize,
    /// Elements of both trained groups, gaps included: the length of gradients and moments.
    pub trained: usize,
    /// Elements in all, gaps included.
    pub elements: usize,
}

impl Layout {
    /// Places parameters, of which those with `trained` set (or absent) are trained.
    pub fn new(specs: Vec<ParamSpec>, trained: &[bool]) -> Self {
        let mut layout = Layout {
            params: specs.into_iter().map(|spec| Placed { spec, offset: 0 }).collect(),
            ..Layout::default()
        };
        let unit = (ALIGN / 4) as usize;
        let is_trained = |index: usize| trained.get(index).copied().unwrap_or(true);
        for group in [(true, true), (true, false), (false, true), (false, false)] {
            for (index, placed) in layout.params.iter_mut().enumerate() {
                if (is_trained(index), placed.spec.decay) == group {
                    placed.offset = layout.elements;
                    layout.elements += placed.spec.shape.elements().next_multiple_of(unit);
                }
            }
            match group {
                (true, true) => layout.decayed = layout.elements,
                (true, false) => layout.trained = layout.elements,
                _ => {}
            }
        }
        layout
    }

    /// Trained numbers, gaps not counted.
    pub fn parameter_count(&self) -> usize {
        self.params.iter().map(|p| p.spec.shape.elements()).sum()
    }
}
