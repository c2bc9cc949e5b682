//! From the tree of layers to a graph: walks the items, keeps names, reports what does not fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::conv2d::Conv2d;
use super::convolution::{Padding, PaddingMode};
use super::cx::{Leaves, axis_of, batch_shape};
use super::language::{Item, Kind, MOST_ITEMS, Merge, Shortcut};
use super::named::{Named, Source};
use super::{Layer, LayerCx, LayerError, Mode, Model, Registry, batch_norm};
use crate::config::decode::all_defaults;
use crate::config::source::Span;
use crate::config::values::PerAxis;
use crate::graph::{Graph, Leaf, Shape, TensorType, ValueId};
use crate::ops::{concat, map};

/// A batch input: its name and the type of one sample, without the batch axis.
#[derive(Clone, Debug, PartialEq)]
pub struct InputSpec {
    /// The name that `from:` uses.
    pub name: String,
    /// Type of one sample.
    pub sample: TensorType,
}

/// What did not fit, and where it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildError {
    /// The layer.
    pub span: Span,
    /// Its key path.
    pub path: String,
    /// What was expected and found.
    pub message: String,
    /// Where its input came from.
    pub note: Option<String>,
}

/// A layer's row in the table that `plan` prints.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Path of the layer.
    pub name: String,
    /// Where it was written.
    pub span: Span,
    /// Its word.
    pub word: String,
    /// Shape of its output.
    pub output: Shape,
    /// Trained numbers that it declared.
    pub parameters: usize,
    /// Whether they are trained.
    pub trainable: bool,
    /// Floating-point operations of its forward pass.
    pub flops: u64,
}

/// The layers' graph for one batch size and mode, without a loss.
#[derive(Clone, Debug)]
pub struct Body {
    /// The graph.
    pub graph: Graph,
    /// The model's inputs in order: leaves `Input(0)` and up.
    pub inputs: Vec<ValueId>,
    /// The model's outputs; the loss is of the first.
    pub outputs: Vec<ValueId>,
    /// New values of states, updated in place.
    pub state_updates: Vec<ValueId>,
    /// The layers in order.
    pub rows: Vec<Row>,
}

impl Model {
    /// Builds the layers' graph for a batch size. Parameters and states are declared in `registry`
    /// by the first call and found there by the next ones.
    ///
    /// # Errors
    /// When a layer's input does not fit.
    pub fn body(
        &self,
        registry: &mut Registry,
        inputs: &[InputSpec],
        batch: usize,
        mode: Mode,
    ) -> Result<Body, BuildError> {
        let (mut body, named, last) = self.layers(registry, inputs, batch, mode)?;
        let outputs = self.named_outputs(&named)?;
        body.outputs = outputs.unwrap_or(vec![last]).iter().map(|source| source.value).collect();
        Ok(body)
    }

    /// The layers that `outputs:` names.
    pub(super) fn named_outputs(&self, named: &Named) -> Result<Option<Vec<Source>>, BuildError> {
        let find = |(name, span): &(String, Span)| named.find(name, *span, "model.outputs");
        let found = self.outputs.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(found).filter(|found| !found.is_empty()))
    }

    /// The layers' graph without outputs, what layers and inputs have names, and the last layer.
    pub(super) fn layers(
        &self,
        registry: &mut Registry,
        inputs: &[InputSpec],
        batch: usize,
        mode: Mode,
    ) -> Result<(Body, Named, Source), BuildError> {
        let mut graph = Graph::new();
        let mut named = BTreeMap::new();
        let mut leaves = Vec::new();
        for (index, spec) in inputs.iter().enumerate() {
            let value = graph.leaf(Leaf::Input(index), batched(&spec.sample, batch));
            leaves.push(value);
            let from = format!("input `{}`", spec.name);
            named.insert(spec.name.clone(), Source { value, from, line: None });
        }
        let mut builder = Builder {
            graph,
            registry,
            leaves: Leaves::default(),
            named: Named(named),
            mode,
            rows: Vec::new(),
            state_updates: Vec::new(),
        };
        let first =
            Source { value: leaves[0], from: format!("the data's {}", inputs[0].name), line: None };
        let last = builder.chain(&self.items, "", first, true)?;
        super::freeze::freeze(builder.registry, &self.freeze)?;
        builder.mark_frozen();
        let body = Body {
            graph: builder.graph,
            inputs: leaves,
            outputs: Vec::new(),
            state_updates: builder.state_updates,
            rows: builder.rows,
        };
        Ok((body, builder.named, last))
    }
}

pub(super) fn batched(sample: &TensorType, batch: usize) -> TensorType {
    let dims: Vec<usize> =
        std::iter::once(batch).chain(sample.shape.dims().iter().copied()).collect();
    TensorType { shape: Shape::new(dims), dtype: sample.dtype }
}

struct Builder<'a> {
    graph: Graph,
    registry: &'a mut Registry,
    leaves: Leaves,
    named: Named,
    mode: Mode,
    rows: Vec<Row>,
    state_updates: Vec<ValueId>,
}

impl Builder<'_> {
    /// Builds a list of layers one after another. `prefix` is the path of what holds them.
    fn chain(
        &mut self,
        items: &[Item],
        prefix: &str,
        input: Source,
        trainable: bool,
    ) -> Result<Source, BuildError> {
        let mut at = input;
        for (index, item) in items.iter().enumerate() {
            let segment = item.name.clone().unwrap_or_else(|| index.to_string());
            let path = join(prefix, &segment);
            let sources = self.sources(item, at)?;
            at = self.item(item, &path, prefix, sources, trainable)?;
            if let Some(name) = &item.name {
                self.named.0.insert(name.clone(), at.clone());
            }
        }
        Ok(at)
    }

    /// Rows whose parameters are all frozen are not trainable, however that came.
    fn mark_frozen(&mut self) {
        let registry = &*self.registry;
        for row in self.rows.iter_mut().filter(|row| row.parameters > 0) {
            let mut own = registry.owners.iter().zip(&registry.trained);
            row.trainable = own.any(|(owner, trained)| *owner == row.name && *trained);
        }
    }

    /// The inputs of an item: the one before it, or what `from:` names.
    fn sources(&mut self, item: &Item, before: Source) -> Result<Vec<Source>, BuildError> {
        let mut sources = Vec::new();
        for name in &item.from {
            let meant = self.named.nearest(name).map(|m| format!("did you mean `{m}`?"));
            match self.named.0.get(name) {
                Some(source) => sources.push(source.clone()),
                None => {
                    return Err(error(
                        item,
                        format!("`from: {name}` names no layer before this one"),
                        meant,
                    ));
                }
            }
        }
        if sources.is_empty() {
            sources.push(before);
        }
        Ok(sources)
    }

    fn item(
        &mut self,
        item: &Item,
        path: &str,
        prefix: &str,
        sources: Vec<Source>,
        trainable: bool,
    ) -> Result<Source, BuildError> {
        let trainable = item.trainable.unwrap_or(trainable);
        if let Kind::Merge(merge, dim) = item.kind {
            return self.merge_layer(item, merge, dim, path, &sources);
        }
        if let Kind::Layer(layer) = &item.kind {
            return self.layer(item, &item.word, layer, path, sources, trainable);
        }
        let [input] = <[Source; 1]>::try_from(sources).map_err(|_| {
            let note = "`add`, `multiply` and `concat` bring several layers together".to_owned();
            error(item, format!("`{}` takes one input", item.word), Some(note))
        })?;
        let value = match &item.kind {
            Kind::Merge(..) | Kind::Layer(_) => unreachable!("built above"),
            Kind::Block(items) => return self.chain(items, path, input, trainable),
            Kind::Residual(items, shortcut) => {
                self.residual(item, items, *shortcut, path, prefix, input, trainable)?
            }
            Kind::Parallel(branches, merge, dim) => {
                let outs = self.branches(branches, path, input, trainable)?;
                self.graph.set_scope(path);
                self.merged(item, *merge, *dim, &outs)?
            }
            Kind::Repeat(times, items) => {
                let mut at = input;
                for index in 0..*times {
                    at = self.iteration(items, &join(path, &index.to_string()), at, trainable)?;
                }
                return Ok(at);
            }
        };
        Ok(self.source(item, path, value))
    }

    /// One round of `repeat`: a body of one layer takes the round's path itself, so that
    /// `repeat: {name: h, layers: [block]}` gives `h.0`, `h.1`, …
    fn iteration(
        &mut self,
        items: &[Item],
        path: &str,
        input: Source,
        trainable: bool,
    ) -> Result<Source, BuildError> {
        match items {
            [only] if only.name.is_none() => {
                let sources = self.sources(only, input)?;
                self.item(only, path, path, sources, trainable)
            }
            _ => self.chain(items, path, input, trainable),
        }
    }

    /// `add`, `multiply` and `concat` over the layers that `from:` names.
    fn merge_layer(
        &mut self,
        item: &Item,
        merge: Merge,
        dim: Option<i64>,
        path: &str,
        sources: &[Source],
    ) -> Result<Source, BuildError> {
        if sources.len() < 2 {
            let note = format!("such as `{}: {{from: [first, second]}}`", item.word);
            return Err(error(
                item,
                format!("`{}` needs several layers in `from`", item.word),
                Some(note),
            ));
        }
        self.graph.set_scope(path);
        let nodes = self.graph.nodes.len();
        let values: Vec<ValueId> = sources.iter().map(|source| source.value).collect();
        let value = self.merged(item, merge, dim, &values)?;
        self.rows.push(Row {
            name: path.to_owned(),
            span: item.span,
            word: item.word.clone(),
            output: self.graph.shape(value).clone(),
            parameters: 0,
            trainable: true,
            flops: self.flops_since(nodes),
        });
        Ok(self.source(item, path, value))
    }

    fn layer(
        &mut self,
        item: &Item,
        word: &str,
        layer: &Arc<dyn Layer>,
        path: &str,
        inputs: Vec<Source>,
        trainable: bool,
    ) -> Result<Source, BuildError> {
        if !layer.inputs().contains(&inputs.len()) {
            let (message, note) = match layer.inputs().into_inner() {
                (_, 1) => (
                    format!("`{word}` takes one input"),
                    "`add`, `multiply` and `concat` bring several layers together",
                ),
                (least, most) => {
                    let range = if least == most { "" } else { &format!("{least} to ") };
                    (
                        format!("`{word}` takes {range}{most} inputs, got {}", inputs.len()),
                        "`from` names them: `from: [first, second]`",
                    )
                }
            };
            return Err(error(item, message, Some(note.to_owned())));
        }
        if self.rows.len() >= MOST_ITEMS {
            return Err(error(item, format!("the model has more than {MOST_ITEMS} layers"), None));
        }
        let owner = match &item.share {
            Some(name) => self.shared(item, name)?,
            None => path.to_owned(),
        };
        self.graph.set_scope(path);
        let nodes = self.graph.nodes.len();
        let mut cx = LayerCx {
            graph: &mut self.graph,
            mode: self.mode,
            state_updates: &mut self.state_updates,
            registry: self.registry,
            leaves: &mut self.leaves,
            path: path.to_owned(),
            owner,
            part: String::new(),
            trainable,
            others: inputs[1..].iter().map(|input| input.value).collect(),
            known: &self.named,
        };
        let value = layer.build(&mut cx, inputs[0].value).map_err(|LayerError(message)| {
            let from: Vec<String> = inputs.iter().map(Source::described).collect();
            let note = format!("its input comes from {}", from.join(" and "));
            error(item, format!("`{word}`: {message}"), Some(note))
        })?;
        self.rows.push(Row {
            name: path.to_owned(),
            span: item.span,
            word: word.to_owned(),
            output: self.graph.shape(value).clone(),
            parameters: self.declared(path),
            trainable,
            flops: self.flops_since(nodes),
        });
        Ok(self.source(item, path, value))
    }

    /// Floating-point operations of the nodes from `first` on.
    fn flops_since(&self, first: usize) -> u64 {
        let types =
            |values: &[ValueId]| values.iter().map(|v| self.graph.ty(*v)).collect::<Vec<_>>();
        self.graph.nodes[first..]
            .iter()
            .map(|n| n.op.flops(&types(&n.inputs), &types(&n.outputs)))
            .sum()
    }

    /// Trained numbers that a layer declared, in this graph or an earlier one.
    fn declared(&self, path: &str) -> usize {
        let params = self.registry.params.iter().zip(&self.registry.owners);
        params.filter(|(_, owner)| *owner == path).map(|(p, _)| p.shape.elements()).sum()
    }

    fn shared(&self, item: &Item, name: &str) -> Result<String, BuildError> {
        let suffix = format!(".{name}");
        let found =
            self.rows.iter().rev().find(|row| row.name == name || row.name.ends_with(&suffix));
        match found {
            Some(row) => Ok(row.name.clone()),
            None => {
                let names = self.rows.iter().map(|row| row.name.as_str());
                let meant = crate::config::nearest::nearest(name, names)
                    .map(|m| format!("did you mean `{m}`?"));
                Err(error(item, format!("`share: {name}` names no layer before this one"), meant))
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "a residual needs all of its surroundings")]
    fn residual(
        &mut self,
        item: &Item,
        items: &[Item],
        shortcut: Shortcut,
        path: &str,
        prefix: &str,
        input: Source,
        trainable: bool,
    ) -> Result<ValueId, BuildError> {
        // Named layers of an unnamed residual belong to what holds the residual, so that GPT-2's
        // `h.0.attn` needs no extra word.
        let named = items.iter().all(|i| i.name.is_some() || !has_parameters(i));
        let inner = if item.name.is_none() && named && !prefix.is_empty() { prefix } else { path };
        let body = self.chain(items, inner, input.clone(), trainable)?;
        let (from, to) =
            (self.graph.shape(input.value).clone(), self.graph.shape(body.value).clone());
        let mut skip = input.clone();
        if from != to && shortcut == Shortcut::Projection {
            skip = self.projection(item, path, &input, &from, &to, trainable)?;
        } else if from != to {
            let message = format!(
                "`residual` adds {} to its input {}: the shapes differ",
                batch_shape(&to),
                batch_shape(&from)
            );
            let note = "`shortcut: projection` brings the input to the result's shape".to_owned();
            return Err(error(item, message, Some(note)));
        }
        self.graph.set_scope(path);
        map::add(&mut self.graph, body.value, skip.value).map_err(|e| error(item, e.message, None))
    }

    /// A 1x1 convolution and batch norm that bring `from` to the shape `to`, under PyTorch's name
    /// for it, `downsample`.
    fn projection(
        &mut self,
        item: &Item,
        path: &str,
        input: &Source,
        from: &Shape,
        to: &Shape,
        trainable: bool,
    ) -> Result<Source, BuildError> {
        let fits = from.rank() == 4
            && to.rank() == 4
            && from.dims()[2] >= to.dims()[2]
            && from.dims()[3] >= to.dims()[3];
        if !fits {
            let message = format!("cannot project {} to {}", batch_shape(from), batch_shape(to));
            return Err(error(item, message, None));
        }
        let stride = |axis: usize| {
            let (from, to) = (from.dims()[axis], to.dims()[axis]);
            (1..=from).find(|stride| from.div_ceil(*stride) == to)
        };
        let (Some(rows), Some(cols)) = (stride(2), stride(3)) else {
            let message = format!(
                "no stride brings {} to {}: give the layers padding that keeps or halves the size",
                batch_shape(from),
                batch_shape(to)
            );
            return Err(error(item, message, None));
        };
        let conv = Conv2d {
            out_channels: to.dims()[1],
            kernel_size: PerAxis([1, 1]),
            stride: PerAxis([rows, cols]),
            padding: Padding::NONE,
            padding_mode: PaddingMode::Zeros,
            dilation: PerAxis([1, 1]),
            groups: 1,
            bias: false,
            init: None,
            bias_init: None,
        };
        let layers: [(&str, Arc<dyn Layer>); 2] = [
            ("conv2d", Arc::new(conv)),
            ("batch_norm", Arc::new(all_defaults::<batch_norm::BatchNorm>())),
        ];
        let mut at = input.clone();
        for (index, (word, layer)) in layers.iter().enumerate() {
            let path = join(&join(path, "downsample"), &index.to_string());
            at = self.layer(item, word, layer, &path, vec![at], trainable)?;
        }
        Ok(at)
    }

    /// The results of branches over one input.
    fn branches(
        &mut self,
        branches: &[Vec<Item>],
        path: &str,
        input: Source,
        trainable: bool,
    ) -> Result<Vec<ValueId>, BuildError> {
        let mut outs = Vec::with_capacity(branches.len());
        for (index, branch) in branches.iter().enumerate() {
            let path = join(path, &index.to_string());
            outs.push(self.chain(branch, &path, input.clone(), trainable)?.value);
        }
        Ok(outs)
    }

    /// Several values as one.
    fn merged(
        &mut self,
        item: &Item,
        merge: Merge,
        dim: Option<i64>,
        outs: &[ValueId],
    ) -> Result<ValueId, BuildError> {
        let result = match merge {
            Merge::Add | Merge::Multiply => {
                let first = self.graph.shape(outs[0]).clone();
                if let Some(other) = outs.iter().find(|v| self.graph.shape(**v) != &first) {
                    let other = batch_shape(self.graph.shape(*other));
                    let message = format!(
                        "`{}` merges {} with {other}: the shapes differ",
                        item.word,
                        batch_shape(&first)
                    );
                    return Err(error(item, message, None));
                }
                let f = if merge == Merge::Add { map::add } else { map::mul };
                outs[1..].iter().try_fold(outs[0], |sum, value| f(&mut self.graph, sum, *value))
            }
            Merge::Concat => {
                let shape = self.graph.shape(outs[0]);
                let dim = dim.unwrap_or(if shape.rank() == 4 { 1 } else { -1 });
                let axis = axis_of(shape, dim).map_err(|LayerError(message)| {
                    error(item, format!("`{}` {message}", item.word), None)
                })?;
                concat::concat(&mut self.graph, outs, axis)
            }
        };
        result.map_err(|e| error(item, e.message, None))
    }

    fn source(&self, item: &Item, path: &str, value: ValueId) -> Source {
        Source {
            value,
            from: format!("`{}` {path}, {}", item.word, batch_shape(self.graph.shape(value))),
            line: Some(item.span.line),
        }
    }
}

/// Whether an item could declare parameters: what has no path of its own needs no name.
fn has_parameters(item: &Item) -> bool {
    match &item.kind {
        Kind::Layer(layer) => layer.has_parameters(),
        Kind::Merge(..) => false,
        _ => true,
    }
}

fn error(item: &Item, message: String, note: Option<String>) -> BuildError {
    BuildError { span: item.span, path: item.path.clone(), message, note }
}

fn join(prefix: &str, segment: &str) -> String {
    if prefix.is_empty() { segment.to_owned() } else { format!("{prefix}.{segment}") }
}
