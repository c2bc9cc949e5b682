//! The op graph: values, nodes, shape inference and gradients.
//!
//! Layers build a graph with [`Graph`]; [`grad`] extends it with the backward pass; the plan room
//! turns it into a program. A graph knows nothing of YAML or devices. `graph` and `ops` are one
//! tier: a graph holds ops, and an op's gradient is written with the graph's builder methods.

pub mod eval;
pub mod grad;
mod tensor;

use std::sync::Arc;

pub use tensor::{DType, Shape, TensorType};

use crate::ops::Op;

/// A value: the output of a node, or a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

impl ValueId {
    /// Index into [`Graph::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node: one op applied to values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// Index into [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What stands behind a value that no node produces.
#[derive(Clone, Debug, PartialEq)]
pub enum Leaf {
    /// Trainable parameter, by index into the parameter list.
    Param(usize),
    /// State kept between steps but not trained (running statistics), by index into its list.
    State(usize),
    /// Batch input, by index into the input list.
    Input(usize),
    /// Every element has this value; filled once, before the first step.
    Constant(f32),
    /// The elements are these; filled once, before the first step.
    Table(Arc<[f32]>),
    /// A range of a flat page, in elements: used by the update program.
    Page {
        /// Which page.
        page: crate::plan::Page,
        /// First element.
        offset: usize,
    },
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// A leaf.
    Leaf(Leaf),
    /// Output `1` of node `0`.
    Node(NodeId, usize),
    /// The same bytes as another value under another shape of equal size.
    View(ValueId),
}

/// A value's type and origin.
#[derive(Clone, Debug)]
pub struct ValueInfo {
    /// Shape and element type.
    pub ty: TensorType,
    /// Where it comes from.
    pub origin: Origin,
}

/// An op with its operands.
#[derive(Clone, Debug)]
pub struct Node {
    /// What is computed.
    pub op: Arc<dyn Op>,
    /// Operands, in the op's order.
    pub inputs: Vec<ValueId>,
    /// Results, in the op's order.
    pub outputs: Vec<ValueId>,
    /// The layer that asked for it, such as `h.0.attn`; empty for what belongs to no layer.
    pub scope: Arc<str>,
    /// Whether it belongs to the backward pass.
    pub backward: bool,
}

/// An op that does not fit its operands.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{op}: {message}")]
pub struct ShapeError {
    /// The op's name.
    pub op: &'static str,
    /// What was expected and what was found.
    pub message: String,
}

/// A graph of ops in execution order: a node's operands always come before it.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// All nodes, in execution order.
    pub nodes: Vec<Node>,
    /// All values.
    pub values: Vec<ValueInfo>,
    scope: Arc<str>,
    backward: bool,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Graph::default()
    }

    /// Nodes added from now on belong to this layer.
    pub fn set_scope(&mut self, scope: impl Into<Arc<str>>) {
        self.scope = scope.into();
    }

    /// The layer that new nodes belong to.
    pub fn scope(&self) -> &Arc<str> {
        &self.scope
    }

    pub(crate) fn set_backward(&mut self, backward: bool) {
        self.backward = backward;
    }

    /// Adds a leaf.
    pub fn leaf(&mut self, leaf: Leaf, ty: TensorType) -> ValueId {
        self.push_value(ty, Origin::Leaf(leaf))
    }

    /// A value whose every element is `value`; costs no work in the step.
    pub fn constant(&mut self, value: f32, shape: impl Into<Shape>) -> ValueId {
        self.leaf(Leaf::Constant(value), TensorType::f32(shape))
    }

    /// A value whose elements are `values`; costs no work in the step.
    ///
    /// # Errors
    /// When `shape` has another number of elements.
    pub fn table(
        &mut self,
        values: Arc<[f32]>,
        shape: impl Into<Shape>,
    ) -> Result<ValueId, ShapeError> {
        let shape = shape.into();
        if shape.elements() != values.len() {
            let message = format!("{} values do not fill {shape}", values.len());
            return Err(ShapeError { op: "table", message });
        }
        Ok(self.leaf(Leaf::Table(values), TensorType::f32(shape)))
    }

    /// Applies an op; returns all its outputs.
    ///
    /// # Errors
    /// When the op does not fit the operands' shapes or types.
    pub fn apply(
        &mut self,
        op: Arc<dyn Op>,
        inputs: &[ValueId],
    ) -> Result<Vec<ValueId>, ShapeError> {
        let types: Vec<&TensorType> = inputs.iter().map(|v| self.ty(*v)).collect();
        let outs = op.infer(&types).map_err(|message| ShapeError { op: op.name(), message })?;
        if let Some(ty) = outs.iter().find(|ty| ty.shape.checked_elements().is_none()) {
            return Err(ShapeError {
                op: op.name(),
                message: format!("{} is larger than any memory", ty.shape),
            });
        }
        let node = NodeId(self.nodes.len() as u32);
        let outputs: Vec<ValueId> = outs
            .into_iter()
            .enumerate()
            .map(|(index, ty)| self.push_value(ty, Origin::Node(node, index)))
            .collect();
        self.nodes.push(Node {
            op,
            inputs: inputs.to_vec(),
            outputs: outputs.clone(),
            scope: self.scope.clone(),
            backward: self.backward,
        });
        Ok(outputs)
    }

    /// Applies an op that has exactly one output.
    ///
    /// # Errors
    /// As [`Graph::apply`].
    pub fn op(&mut self, op: impl Op + 'static, inputs: &[ValueId]) -> Result<ValueId, ShapeError> {
        Ok(self.apply(Arc::new(op), inputs)?[0])
    }

    /// The same elements under another shape; costs nothing.
    ///
    /// # Errors
    /// When the element counts differ.
    pub fn reshape(
        &mut self,
        value: ValueId,
        shape: impl Into<Shape>,
    ) -> Result<ValueId, ShapeError> {
        let shape = shape.into();
        let from = self.ty(value);
        if from.shape == shape {
            return Ok(value);
        }
        if from.shape.elements() != shape.elements() {
            return Err(ShapeError {
                op: "reshape",
                message: format!(
                    "{} has {} elements, {shape} has {}",
                    from.shape,
                    from.shape.elements(),
                    shape.elements()
                ),
            });
        }
        let ty = TensorType { shape, dtype: from.dtype };
        Ok(self.push_value(ty, Origin::View(value)))
    }

    /// A view under a type of equal size that is known to fit: for passes that rebuild a graph.
    pub(crate) fn view(&mut self, of: ValueId, ty: TensorType) -> ValueId {
        self.push_value(ty, Origin::View(of))
    }

    /// Decides how a node's result is stored: for the pass of mixed precision.
    pub(crate) fn store_as(&mut self, value: ValueId, dtype: DType) {
        self.values[value.index()].ty.dtype = dtype;
    }

    /// Adds a node of another graph with operands of this one: for passes that rebuild a graph.
    pub(crate) fn copy_node(
        &mut self,
        node: &Node,
        inputs: &[ValueId],
        from: &Graph,
    ) -> Vec<ValueId> {
        let id = NodeId(self.nodes.len() as u32);
        let outputs: Vec<ValueId> = (node.outputs.iter().enumerate())
            .map(|(index, old)| self.push_value(from.ty(*old).clone(), Origin::Node(id, index)))
            .collect();
        self.nodes.push(Node { inputs: inputs.to_vec(), outputs: outputs.clone(), ..node.clone() });
        outputs
    }

    /// Type of a value.
    pub fn ty(&self, value: ValueId) -> &TensorType {
        &self.values[value.index()].ty
    }

    /// Shape of a value.
    pub fn shape(&self, value: ValueId) -> &Shape {
        &self.ty(value).shape
    }

    /// The value whose bytes this one shares, following views.
    pub fn root(&self, mut value: ValueId) -> ValueId {
        while let Origin::View(of) = self.values[value.index()].origin {
            value = of;
        }
        value
    }

    /// The node that computes a value, following views.
    pub fn producer(&self, value: ValueId) -> Option<(NodeId, usize)> {
        match self.values[self.root(value).index()].origin {
            Origin::Node(node, index) => Some((node, index)),
            _ => None,
        }
    }

    fn push_value(&mut self, ty: TensorType, origin: Origin) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(ValueInfo { ty, origin });
        id
    }
}
