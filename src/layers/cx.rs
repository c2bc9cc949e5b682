//! What a layer builds with: the graph, the parameters and states, and the mode.

use std::collections::{HashMap, HashSet};

use super::Layer;
use super::init::{Fans, Initializer};
use super::named::Named;
use crate::graph::{DType, Graph, Leaf, Shape, ShapeError, TensorType, ValueId};
use crate::plan::{Init, ParamSpec};

/// Whether the graph is for training or for evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Dropout is on, batch norm uses the batch's statistics and updates the running ones.
    Train,
    /// Dropout is off, batch norm uses the running statistics.
    Eval,
}

/// Parameters and states in the order in which the layers declared them; shared by all graphs of
/// one model.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// Trainable parameters.
    pub params: Vec<ParamSpec>,
    /// Whether each parameter is trained.
    pub trained: Vec<bool>,
    /// Path of the layer that declared each parameter.
    pub(super) owners: Vec<String>,
    /// Running statistics and the like.
    pub states: Vec<ParamSpec>,
    param_index: HashMap<String, usize>,
    state_index: HashMap<String, usize>,
}

/// What a layer could not do; says what was expected and what was found.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerError(pub String);

impl From<ShapeError> for LayerError {
    fn from(error: ShapeError) -> Self {
        LayerError(error.message)
    }
}

impl From<String> for LayerError {
    fn from(message: String) -> Self {
        LayerError(message)
    }
}

/// The context of one layer while a graph is built.
#[derive(Debug)]
pub struct LayerCx<'a> {
    /// The graph.
    pub graph: &'a mut Graph,
    /// Training or evaluation.
    pub mode: Mode,
    /// New values of states so far.
    pub state_updates: &'a mut Vec<ValueId>,
    /// The inputs after the first, of a layer that takes several.
    pub others: Vec<ValueId>,
    /// What the data's inputs and the layers before this one gave.
    pub(super) known: &'a Named,
    pub(super) registry: &'a mut Registry,
    pub(super) leaves: &'a mut Leaves,
    /// Path of the layer, such as `h.0.attn`.
    pub(super) path: String,
    /// Path whose parameters the layer uses: its own, or that of the layer it shares with.
    pub(super) owner: String,
    /// What stands before the names of parameters: the part of the layer that is built, and a dot.
    pub(super) part: String,
    pub(super) trainable: bool,
}

/// Leaves of one graph, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaves {
    params: HashMap<String, ValueId>,
    states: HashMap<String, ValueId>,
    /// Parameters declared in this graph by their own layer.
    declared: HashSet<String>,
    streams: u32,
}

impl LayerCx<'_> {
    /// A trainable parameter. `name` is the last part of its PyTorch name, such as `weight`.
    ///
    /// # Errors
    /// When another layer has declared the same name, or a shared one has another shape.
    pub fn param(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        init: Init,
        decay: bool,
    ) -> Result<ValueId, LayerError> {
        let shape = shape.into();
        if shape.checked_elements().is_none() {
            return Err(LayerError(format!(
                "needs a parameter `{name}` of {shape}, larger than any memory"
            )));
        }
        let full = format!("{}.{}{name}", self.owner, self.part);
        let shared = self.owner != self.path;
        if shared && !self.registry.param_index.contains_key(&full) {
            return Err(LayerError(format!("`{}` has no parameter `{name}` to share", self.owner)));
        }
        if !shared && !self.leaves.declared.insert(full.clone()) {
            return Err(LayerError(format!(
                "another layer has declared the parameter `{full}`: give one of them another `name`"
            )));
        }
        let index = match self.registry.param_index.get(&full) {
            Some(index) => *index,
            None => self.registry.declare(
                ParamSpec { name: full.clone(), shape: shape.clone(), init, decay },
                self.trainable,
                &self.path,
            ),
        };
        let known = &self.registry.params[index].shape;
        if known != &shape {
            return Err(LayerError(format!("needs `{full}` of shape {shape}, but it has {known}")));
        }
        let leaf = Leaf::Param(index);
        Ok(*self
            .leaves
            .params
            .entry(full)
            .or_insert_with(|| self.graph.leaf(leaf, TensorType::f32(shape))))
    }

    /// State that is kept with the model but not trained.
    pub fn state(&mut self, name: &str, shape: impl Into<Shape>, init: Init) -> ValueId {
        let shape = shape.into();
        let full = format!("{}.{}{name}", self.owner, self.part);
        let states = &mut self.registry.states;
        let index = *self.registry.state_index.entry(full.clone()).or_insert_with(|| {
            states.push(ParamSpec { name: full.clone(), shape: shape.clone(), init, decay: false });
            states.len() - 1
        });
        *self
            .leaves
            .states
            .entry(full)
            .or_insert_with(|| self.graph.leaf(Leaf::State(index), TensorType::f32(shape)))
    }

    /// A weight whose first values are the config's choice, or else `default`.
    ///
    /// # Errors
    /// As [`LayerCx::param`].
    pub fn weight(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        fans: Fans,
        init: &Option<Initializer>,
        default: Init,
    ) -> Result<ValueId, LayerError> {
        let init = init.as_ref().map_or(default, |init| init.resolve(fans));
        self.param(name, shape, init, true)
    }

    /// Builds a part of the layer from another layer: its parameters have `name` and a dot in front
    /// of their names, and its inputs after the first are `others`.
    ///
    /// # Errors
    /// Those of the other layer.
    pub fn inside(
        &mut self,
        name: &str,
        layer: &dyn Layer,
        x: ValueId,
        others: Vec<ValueId>,
    ) -> Result<ValueId, LayerError> {
        let outside = (self.part.clone(), std::mem::replace(&mut self.others, others));
        self.part = format!("{}{name}.", self.part);
        let result = layer.build(self, x);
        (self.part, self.others) = outside;
        result
    }

    /// What an input of the data or a layer before this one gave, by the name that stands under the
    /// layer's option `key`.
    ///
    /// # Errors
    /// When nothing has this name.
    pub fn named(&self, key: &str, name: &str) -> Result<ValueId, LayerError> {
        self.known.value(name).ok_or_else(|| {
            let meant = self.known.nearest(name);
            let meant = meant.map_or(String::new(), |meant| format!("; did you mean `{meant}`?"));
            LayerError(format!(
                "`{key}: {name}` names no input of the data and no layer before this one{meant}"
            ))
        })
    }

    /// A number for a stream of random numbers that no other layer of the model has.
    pub fn stream(&mut self) -> u32 {
        self.leaves.streams += 1;
        self.leaves.streams
    }

    /// Extents of a float value.
    ///
    /// # Errors
    /// When it holds integers.
    pub fn float_dims(&self, value: ValueId) -> Result<Vec<usize>, LayerError> {
        let ty = self.graph.ty(value);
        match ty.dtype {
            DType::F32 | DType::F16 => Ok(ty.shape.dims().to_vec()),
            DType::I32 => Err(LayerError("needs numbers, but its input holds class or token ids; an `embedding` turns them into numbers".into())),
        }
    }

    /// The axis that `dim` means, counted from the batch's (0) or, below 0, from the end, as in
    /// PyTorch.
    ///
    /// # Errors
    /// When there is no such axis, or it is the batch's: samples are never mixed.
    pub fn axis(&self, value: ValueId, dim: i64) -> Result<usize, LayerError> {
        axis_of(self.graph.shape(value), dim)
    }

    /// Extents of an image batch, `[batch, channels, height, width]`.
    ///
    /// # Errors
    /// When the value has another rank.
    pub fn image_dims(&self, value: ValueId) -> Result<[usize; 4], LayerError> {
        let dims = self.float_dims(value)?;
        dims.as_slice().try_into().map_err(|_| {
            LayerError(format!(
                "needs an input of [batch, channels, height, width], got {}",
                batch_shape(self.graph.shape(value))
            ))
        })
    }
}

impl Registry {
    fn declare(&mut self, spec: ParamSpec, trained: bool, owner: &str) -> usize {
        let index = self.params.len();
        self.param_index.insert(spec.name.clone(), index);
        self.params.push(spec);
        self.trained.push(trained);
        self.owners.push(owner.to_owned());
        index
    }
}

/// The axis of a shape that `dim` means: see [`LayerCx::axis`].
pub(super) fn axis_of(shape: &Shape, dim: i64) -> Result<usize, LayerError> {
    let rank = shape.rank() as i64;
    let axis = if dim < 0 { rank + dim } else { dim };
    if (1..rank).contains(&axis) {
        return Ok(axis as usize);
    }
    let got = batch_shape(shape);
    Err(LayerError(if axis == 0 {
        format!("works within samples, but axis {dim} of its input {got} is the batch")
    } else {
        format!("has no axis {dim} in its input {got}")
    }))
}

/// A shape with its first axis written as `batch`.
pub fn batch_shape(shape: &Shape) -> String {
    let mut words: Vec<String> = shape.dims().iter().map(usize::to_string).collect();
    if let Some(first) = words.first_mut() {
        *first = "batch".into();
    }
    format!("[{}]", words.join(", "))
}
