//! Blocks: templates of layers whose `$parameters` are replaced at each use.

use std::collections::{BTreeMap, BTreeSet};

use super::language::COMMON;
use crate::config::decode::Cx;
use crate::config::nearest::nearest;
use crate::config::node::{Key, Node, ScalarKind, Value};
use crate::config::reader::MapReader;
use crate::config::source::Span;

/// A parameter of a block.
#[derive(Clone)]
pub(super) struct Param {
    pub(super) name: String,
    /// Whether it takes integers, not words.
    pub(super) integer: bool,
    pub(super) default: Option<Node>,
}

/// A block template.
pub(super) struct Template {
    pub(super) params: Vec<Param>,
    pub(super) layers: Node,
    pub(super) span: Span,
}

/// Whether a scalar is an integer; `None` for lists and maps.
pub(super) fn is_integer(node: &Node) -> Option<bool> {
    let Value::Scalar { .. } = node.value else { return None };
    Some(matches!(node.scalar_kind(), Some(ScalarKind::Integer(_))))
}

/// Reads a block: `params` maps a name to `int`, `string` (to be given at each use) or to a
/// default value.
pub(super) fn template(key: &Key, body: &Node, cx: &mut Cx) -> Option<Template> {
    let mut map = MapReader::open(body, cx)?;
    let params = map.entry("params").map(|(_, node)| node);
    let layers = map.entry("layers").map(|(_, node)| node);
    if layers.is_none() {
        cx.missing_key("layers", "a list of layers", key.span);
    }
    map.finish(cx);
    let mut list = Vec::new();
    match params.map(|node| (&node.value, node)) {
        None | Some((Value::Null, _)) => {}
        Some((Value::Map(entries), _)) => {
            for (name, node) in entries {
                if COMMON.contains(&name.text.as_str()) {
                    cx.error(
                        name.span,
                        format!(
                            "a parameter cannot be called `{}`: every layer has that key",
                            name.text
                        ),
                    );
                }
                let open = matches!(node.text(), Some("int" | "string"));
                let integer = node.text() == Some("int") || is_integer(node) == Some(true);
                let default = (!open).then(|| node.clone());
                list.push(Param { name: name.text.clone(), integer, default });
            }
        }
        Some((_, node)) => {
            cx.within("params", |cx| _ = cx.expected("a map of parameter names", node))
        }
    }
    let layers = layers?.clone();
    let mut referenced = BTreeSet::new();
    references(&layers, &mut referenced);
    for Param { name, .. } in list.iter().filter(|param| !referenced.contains(&param.name)) {
        cx.error(key.span, format!("parameter `{name}` of block `{}` is never used", key.text));
    }
    Some(Template { params: list, layers, span: key.span })
}

fn references(node: &Node, found: &mut BTreeSet<String>) {
    match &node.value {
        Value::Scalar { text, .. } => found.extend(text.strip_prefix('$').map(str::to_owned)),
        Value::List(nodes) => nodes.iter().for_each(|n| references(n, found)),
        Value::Map(entries) => entries.iter().for_each(|(_, n)| references(n, found)),
        Value::Null => {}
    }
}

/// Replaces `$name` scalars by the arguments; they keep the place where `$name` stands.
pub(super) fn substitute(
    node: &Node,
    arguments: &BTreeMap<String, Node>,
    cx: &mut Cx,
) -> Option<Node> {
    let value = match &node.value {
        Value::Scalar { text, .. } if text.starts_with('$') => match arguments.get(&text[1..]) {
            Some(argument) => argument.value.clone(),
            None => {
                let meant =
                    nearest(&text[1..], arguments.keys().map(String::as_str)).map(str::to_owned);
                let error =
                    cx.error(node.span, format!("`{text}` is not a parameter of this block"));
                if let Some(meant) = meant {
                    error.help(format!("did you mean `${meant}`?"));
                }
                return None;
            }
        },
        Value::List(nodes) => {
            let nodes: Vec<Option<Node>> =
                nodes.iter().map(|n| substitute(n, arguments, cx)).collect();
            Value::List(nodes.into_iter().collect::<Option<_>>()?)
        }
        Value::Map(entries) => {
            let entries: Vec<Option<(Key, Node)>> = (entries.iter())
                .map(|(key, n)| Some((key.clone(), substitute(n, arguments, cx)?)))
                .collect();
            Value::Map(entries.into_iter().collect::<Option<_>>()?)
        }
        other => other.clone(),
    };
    Some(Node { value, span: node.span })
}
