//! The model language: reads the `model` section into a tree of layers. Lists chain; `residual`,
//! `parallel` and `repeat` hold lists; `blocks` are templates whose `$parameters` are replaced
//! before their layers are read, so that every layer sees plain values and errors point at the
//! line where they were written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::template::{Param, Template, is_integer, substitute, template};
use super::{Entry, Layer, TABLE};
use crate::config::decode::{Bounded, Cx, Decode};
use crate::config::macros::choices;
use crate::config::nearest::nearest;
use crate::config::node::{Key, Node, Value};
use crate::config::reader::MapReader;
use crate::config::schema::Range;
use crate::config::source::Span;
use crate::config::values::OneOrMany;

/// A model as it was written.
#[derive(Clone, Debug)]
pub struct Model {
    /// The layers in order.
    pub items: Vec<Item>,
    /// Names of the layers that are the model's outputs; the loss is of the first. None where the
    /// last layer is the only output.
    pub outputs: Vec<(String, Span)>,
    /// Patterns of parameters' names that are not trained.
    pub freeze: Vec<(String, Span)>,
}

/// One item of a list of layers.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its word, such as `conv2d`, or the block's name.
    pub word: String,
    /// `name:`, unique among its neighbours; gives the path of its parameters.
    pub name: Option<String>,
    /// `from:`, the layers it takes its input from instead of the one before.
    pub from: Vec<String>,
    /// `share:`, the layer whose parameters it uses.
    pub share: Option<String>,
    /// `trainable:`, for it and all layers in it.
    pub trainable: Option<bool>,
    /// Where it was written.
    pub span: Span,
    /// Its key path, such as `model.layers[3]`.
    pub path: String,
    /// What it is.
    pub kind: Kind,
}

/// What an item is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A layer.
    Layer(Arc<dyn Layer>),
    /// Layers whose result is added to their input.
    Residual(Vec<Item>, Shortcut),
    /// Branches over one input, merged; the axis where it is given.
    Parallel(Vec<Vec<Item>>, Merge, Option<i64>),
    /// The layers of `from:` as one; the axis where it is given.
    Merge(Merge, Option<i64>),
    /// The same layers several times, each time with parameters of their own.
    Repeat(usize, Vec<Item>),
    /// A block's layers.
    Block(Vec<Item>),
}

choices! {
    /// How a residual's input reaches the sum.
    pub enum Shortcut {
        /// As it is; the shapes must be equal.
        Identity = "identity",
        /// Through a 1x1 convolution and batch norm where the shape changes (He et al. 2015).
        Projection = "projection",
    }
}

choices! {
    /// How branches become one.
    pub enum Merge {
        /// Elementwise sum.
        Add = "add",
        /// Elementwise product.
        Multiply = "multiply",
        /// One after another along the features (the channels of images).
        Concat = "concat",
    }
}

/// Words of the language that are no layers of their own: they hold others or bring them together.
pub(super) const CONTAINERS: [&str; 6] =
    ["residual", "parallel", "repeat", "add", "multiply", "concat"];
/// Layers that a model may have when it is written out.
pub(super) const MOST_ITEMS: usize = 20_000;
/// The parameter that every model has: the number of classes or tokens in the data.
const CLASSES: &str = "classes";
/// Keys that every layer takes.
pub(super) const COMMON: [&str; 4] = ["name", "from", "share", "trainable"];

struct Reader<'a> {
    cx: &'a mut Cx,
    scope: &'a mut Scope,
}

/// What names mean while the layers are read.
struct Scope {
    /// What `$name` stands for everywhere.
    known: BTreeMap<String, Node>,
    blocks: BTreeMap<String, Template>,
    /// Blocks that some layer used.
    used: BTreeSet<String>,
    /// Items read so far.
    items: usize,
    /// Blocks being instantiated, outermost first: a block may not contain itself.
    open: Vec<String>,
}

impl Model {
    /// Reads the `model` section; reports to `cx` and gives nothing where it has errors. `classes`
    /// is what `$classes` stands for: the number of classes or tokens in the data.
    pub fn decode(node: &Node, classes: usize, cx: &mut Cx) -> Option<Model> {
        let mut map = MapReader::open(node, cx)?;
        let blocks = map.entry("blocks").map(|(_, node)| node);
        let layers = map.entry("layers");
        if layers.is_none() {
            cx.missing_key("layers", "a list of layers", node.span);
        }
        let outputs = map.entry("outputs").map(|(_, node)| node);
        let freeze = map.entry("freeze").map(|(_, node)| node);
        map.finish(cx);
        let outputs = read_names("outputs", "layers' names", outputs, cx)?;
        let freeze = read_names("freeze", "patterns of parameters' names", freeze, cx)?;
        let number = Value::Scalar { text: classes.to_string(), quoted: false };
        let known = BTreeMap::from([(CLASSES.to_owned(), Node { value: number, span: node.span })]);
        let mut scope = Scope {
            known,
            blocks: BTreeMap::new(),
            used: BTreeSet::new(),
            items: 0,
            open: Vec::new(),
        };
        let mut reader = Reader { cx, scope: &mut scope };
        if let Some(blocks) = blocks {
            reader.read_blocks(blocks);
        }
        let layers = substitute(layers?.1, &reader.scope.known, reader.cx)?;
        let items = reader.list("layers", &layers);
        reader.report_unused();
        items.map(|items| Model { items, outputs, freeze })
    }
}

/// A list of names under a key of the section, each with its place.
fn read_names(
    key: &str,
    what: &str,
    node: Option<&Node>,
    cx: &mut Cx,
) -> Option<Vec<(String, Span)>> {
    let Some(node) = node else { return Some(Vec::new()) };
    cx.within(key, |cx| {
        let Value::List(names) = &node.value else {
            cx.expected(&format!("a list of {what}"), node);
            return None;
        };
        if names.is_empty() {
            cx.error(node.span, "this list is empty");
            return None;
        }
        let read = |(index, node): (usize, &Node)| {
            cx.at(index, |cx| String::decode(node, cx)).map(|name| (name, node.span))
        };
        let names: Vec<Option<(String, Span)>> = names.iter().enumerate().map(read).collect();
        names.into_iter().collect()
    })
}

impl Reader<'_> {
    fn read_blocks(&mut self, node: &Node) {
        let Value::Map(entries) = &node.value else {
            self.cx.within("blocks", |cx| _ = cx.expected("a map of block names", node));
            return;
        };
        for (key, body) in entries {
            if CONTAINERS.contains(&key.text.as_str()) || TABLE.iter().any(|e| e.word == key.text) {
                self.cx.error(
                    key.span,
                    format!("a block cannot be called `{}`: that is a layer", key.text),
                );
                continue;
            }
            let template =
                self.cx.within("blocks", |cx| cx.within(&key.text, |cx| template(key, body, cx)));
            if let Some(template) = template {
                self.scope.blocks.insert(key.text.clone(), template);
            }
        }
    }

    fn report_unused(&mut self) {
        for (name, template) in &self.scope.blocks {
            if !self.scope.used.contains(name) {
                self.cx
                    .error(template.span, format!("block `{name}` is never used"))
                    .help("use it as a layer, or remove it");
            }
        }
    }

    /// Reads a list of layers under a key.
    fn list(&mut self, key: &str, node: &Node) -> Option<Vec<Item>> {
        let Value::List(nodes) = &node.value else {
            self.nested(key, None, |reader| _ = reader.cx.expected("a list of layers", node));
            return None;
        };
        if nodes.is_empty() {
            self.nested(key, None, |reader| {
                _ = reader.cx.error(node.span, "this list of layers is empty")
            });
            return None;
        }
        let mut items = Vec::with_capacity(nodes.len());
        let mut whole = true;
        for (index, node) in nodes.iter().enumerate() {
            let item = self.nested(key, Some(index), |reader| reader.item(node));
            whole &= item.is_some();
            items.extend(item);
        }
        whole.then_some(items)
    }

    /// Runs `body` one key (if it is not empty) and list index down.
    fn nested<T>(
        &mut self,
        key: &str,
        index: Option<usize>,
        body: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> T {
        let Reader { cx, scope } = self;
        let indexed = |cx: &mut Cx| {
            let run = |cx: &mut Cx| body(&mut Reader { cx, scope });
            match index {
                Some(index) => cx.at(index, run),
                None => run(cx),
            }
        };
        if key.is_empty() { indexed(cx) } else { cx.within(key, indexed) }
    }

    fn item(&mut self, node: &Node) -> Option<Item> {
        self.scope.items += 1;
        if self.scope.items > MOST_ITEMS {
            if self.scope.items == MOST_ITEMS + 1 {
                let message = format!("the blocks expand to more than {MOST_ITEMS} layers");
                self.cx.error(node.span, message);
            }
            return None;
        }
        let (word, span, options) = match &node.value {
            Value::Scalar { text, .. } => (text.clone(), node.span, Node::null(node.span)),
            Value::Map(entries) if entries.len() == 1 => {
                let (key, options) = &entries[0];
                (key.text.clone(), key.span, options.clone())
            }
            Value::Map(entries) if entries.len() > 1 => {
                self.cx
                    .error(
                        entries[1].0.span,
                        format!(
                            "`{}` beside `{}`: a layer is one word, or a map with one key",
                            entries[1].0.text, entries[0].0.text
                        ),
                    )
                    .help(format!(
                        "options go under the layer's word: `{}: {{…}}`",
                        entries[0].0.text
                    ));
                return None;
            }
            _ => {
                self.cx.expected("a layer: one word, or a map with one key", node);
                return None;
            }
        };
        let path = self.cx.path().to_owned();
        if !self.known_word(&word) {
            self.unknown(&word, span);
            return None;
        }
        let (common, rest) = self.nested(&word, None, |reader| common(&options, reader.cx))?;
        let kind = self.nested(&word, None, |reader| reader.kind(&word, &rest))?;
        let Common { name, from, share, trainable } = common;
        let shares = matches!(&kind, Kind::Layer(layer) if layer.has_parameters());
        if share.is_some() && !shares {
            self.cx
                .error(span, format!("`share` on `{word}`, which has no parameters of its own"))
                .help("give `share` to the layers whose parameters are to be shared");
            return None;
        }
        Some(Item { word, name, from, share, trainable, span, path, kind })
    }

    fn known_word(&self, word: &str) -> bool {
        CONTAINERS.contains(&word) || self.scope.blocks.contains_key(word) || entry(word).is_some()
    }

    fn unknown(&mut self, word: &str, span: Span) {
        let words = TABLE
            .iter()
            .map(|e| e.word)
            .chain(CONTAINERS)
            .chain(self.scope.blocks.keys().map(String::as_str));
        let meant = nearest(word, words).map(str::to_owned);
        let error = self.cx.error(span, format!("unknown layer `{word}`"));
        match meant {
            Some(meant) => error.help(format!("did you mean `{meant}`?")),
            None => error.help("`wootz schema --layers` lists the layers; blocks are declared under `model.blocks`"),
        };
    }

    fn kind(&mut self, word: &str, options: &Node) -> Option<Kind> {
        match word {
            "residual" => {
                let mut map = MapReader::open(options, self.cx)?;
                let shortcut = map.field(
                    "shortcut",
                    &Shortcut::schema(),
                    Some(Shortcut::Identity),
                    self.cx,
                    Shortcut::decode,
                );
                let layers = self.required("layers", "a list of layers", &mut map, options);
                map.finish(self.cx);
                Some(Kind::Residual(self.list("layers", layers?)?, shortcut?))
            }
            "parallel" => {
                let mut map = MapReader::open(options, self.cx)?;
                let merge = map.take::<Merge>("merge", self.cx);
                let dim = map.take::<Option<i64>>("dim", self.cx);
                let branches =
                    self.required("branches", "a list of lists of layers", &mut map, options);
                map.finish(self.cx);
                let (merge, dim) = (merge?, dim?);
                if dim.is_some() && merge != Merge::Concat {
                    self.cx.error(options.span, "`dim` belongs to `merge: concat`");
                    return None;
                }
                Some(Kind::Parallel(self.branches(branches?)?, merge, dim))
            }
            "add" | "multiply" => {
                MapReader::open(options, self.cx)?.finish(self.cx);
                let merge = if word == "add" { Merge::Add } else { Merge::Multiply };
                Some(Kind::Merge(merge, None))
            }
            "concat" => {
                let mut map = MapReader::open(options, self.cx)?;
                let dim = map.take::<Option<i64>>("dim", self.cx);
                map.finish(self.cx);
                Some(Kind::Merge(Merge::Concat, dim?))
            }
            "repeat" => {
                let mut map = MapReader::open(options, self.cx)?;
                let layers = self.required("layers", "a list of layers", &mut map, options);
                let range = Range::of(1..);
                let times =
                    map.field("times", &usize::schema_within(range), None, self.cx, |node, cx| {
                        usize::decode_within(node, range, cx)
                    });
                map.finish(self.cx);
                Some(Kind::Repeat(times?, self.list("layers", layers?)?))
            }
            block if self.scope.blocks.contains_key(block) => self.block(block, options),
            layer => entry(layer)
                .and_then(|e| (e.decode)(options, self.cx))
                .map(|l| Kind::Layer(l.into())),
        }
    }

    fn required<'n>(
        &mut self,
        key: &'static str,
        form: &str,
        map: &mut MapReader<'n>,
        node: &Node,
    ) -> Option<&'n Node> {
        let found = map.entry(key).map(|(_, node)| node);
        if found.is_none() {
            self.cx.missing_key(key, form, node.span);
        }
        found
    }

    fn branches(&mut self, node: &Node) -> Option<Vec<Vec<Item>>> {
        let Value::List(lists) = &node.value else {
            self.cx.within("branches", |cx| _ = cx.expected("a list of lists of layers", node));
            return None;
        };
        if lists.len() < 2 {
            self.cx.error(node.span, "`parallel` needs at least two branches");
            return None;
        }
        let branch =
            |(index, list)| self.nested("branches", Some(index), |reader| reader.list("", list));
        lists.iter().enumerate().map(branch).collect()
    }

    fn block(&mut self, name: &str, options: &Node) -> Option<Kind> {
        self.scope.used.insert(name.to_owned());
        if self.scope.open.iter().any(|open| open == name) {
            self.cx.error(options.span, format!("block `{name}` contains itself"));
            return None;
        }
        let arguments = self.arguments(name, options)?;
        let layers = substitute(&self.scope.blocks[name].layers, &arguments, self.cx)?;
        self.scope.open.push(name.to_owned());
        let items = self.list("layers", &layers);
        self.scope.open.pop();
        Some(Kind::Block(items?))
    }

    /// The values of a block's parameters at one use.
    fn arguments(&mut self, name: &str, options: &Node) -> Option<BTreeMap<String, Node>> {
        let params = self.scope.blocks[name].params.clone();
        let given: &[(Key, Node)] = match &options.value {
            Value::Null => &[],
            Value::Map(entries) => entries,
            _ => {
                self.cx.expected("a map of the block's parameters", options);
                return None;
            }
        };
        let names: Vec<&str> = params.iter().map(|param| param.name.as_str()).collect();
        let mut whole = true;
        for (key, _) in given.iter().filter(|(key, _)| !names.contains(&key.text.as_str())) {
            self.cx.unknown_key(&key.text, key.span, &names);
            whole = false;
        }
        let mut arguments = self.scope.known.clone();
        for Param { name, integer, default } in &params {
            let found = given.iter().find(|(key, _)| key.text == *name).map(|(_, node)| node);
            let form = if *integer { "an integer" } else { "a word" };
            match found.or(default.as_ref()) {
                Some(node) if is_integer(node) == Some(*integer) => {
                    _ = arguments.insert(name.clone(), node.clone());
                }
                Some(node) => {
                    self.cx.within(name, |cx| _ = cx.expected(form, node));
                    whole = false;
                }
                None => {
                    self.cx.missing_key(name, form, options.span);
                    whole = false;
                }
            }
        }
        whole.then_some(arguments)
    }
}

fn entry(word: &str) -> Option<&'static Entry> {
    TABLE.iter().find(|entry| entry.word == word)
}

/// The keys that every layer takes.
struct Common {
    name: Option<String>,
    from: Vec<String>,
    share: Option<String>,
    trainable: Option<bool>,
}

/// Takes the common keys off a layer's options; gives them and the rest.
fn common(options: &Node, cx: &mut Cx) -> Option<(Common, Node)> {
    if !matches!(options.value, Value::Map(_)) {
        let none = Common { name: None, from: Vec::new(), share: None, trainable: None };
        return Some((none, options.clone()));
    }
    let mut map = MapReader::open(options, cx)?;
    let name = map.take::<Option<String>>(COMMON[0], cx);
    let from = map.take::<Option<OneOrMany<String>>>(COMMON[1], cx);
    let share = map.take::<Option<String>>(COMMON[2], cx);
    let trainable = map.take::<Option<bool>>(COMMON[3], cx);
    let rest = Node { value: Value::Map(map.rest()), span: options.span };
    let name = name?;
    if let Some(bad) = name.as_deref().filter(|n| n.is_empty() || n.contains(['.', '$', ' '])) {
        cx.error(
            options.span,
            format!("`{bad}` cannot be a layer's name: names have no dots or spaces"),
        );
        return None;
    }
    let from = from?.map_or_else(Vec::new, |names| names.0);
    Some((Common { name, from, share: share?, trainable: trainable? }, rest))
}
