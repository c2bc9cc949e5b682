//! Activations: elementwise maps, and those that work along an axis.

mod gated;
mod hard;
mod linear_units;
mod prelu;
mod smooth;
mod softmax;

pub use gated::Glu;
pub use hard::{HardSigmoid, HardSwish, Relu6};
pub use linear_units::{Celu, Elu, LeakyRelu, Relu, Selu};
pub use prelu::Prelu;
pub use smooth::{Gelu, Mish, Sigmoid, Silu, Softplus, Softsign, Tanh};
pub use softmax::{LogSoftmax, Softmax};

use std::fmt::Debug;

use super::{Layer, LayerCx, LayerError};
use crate::graph::ValueId;
use crate::ops::map::{self, Code, Reg};

/// A layer that is one function of each element.
pub trait Elementwise: Debug + Send + Sync {
    /// Writes f(x).
    fn code(&self, code: &mut Code, x: Reg) -> Reg;
}

impl<E: Elementwise> Layer for E {
    fn has_parameters(&self) -> bool {
        false
    }

    fn build(&self, cx: &mut LayerCx<'_>, x: ValueId) -> Result<ValueId, LayerError> {
        cx.float_dims(x)?;
        Ok(map::unary(cx.graph, x, |code, x| self.code(code, x))?)
    }
}
