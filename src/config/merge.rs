//! Lays one tree over another: a file over the one it extends, a `--set` over the files.

use super::node::{Key, Node, Value};
use super::schema::Schema;
use super::source::Span;

/// Lays `over` on `base`. Maps merge key by key; anything else is replaced. Where the schema has
/// a choice (`optimizer: {sgd: …}`), another choice replaces it instead of standing beside it.
pub fn merge(base: Node, over: Node, schema: Option<&Schema>) -> Node {
    match (base.value, over.value) {
        (Value::Map(mut entries), Value::Map(new)) => {
            if chooses_anew(&entries, &new, schema) {
                return Node { value: Value::Map(new), span: over.span };
            }
            for (key, value) in new {
                match entries.iter().position(|(k, _)| k.text == key.text) {
                    None => entries.push((key, value)),
                    Some(index) => {
                        let (_, old) = entries.remove(index);
                        let below = schema.and_then(|s| s.child(&key.text));
                        entries.insert(index, (key, merge(old, value, below)));
                    }
                }
            }
            Node { value: Value::Map(entries), span: over.span }
        }
        (_, value) => Node { value, span: over.span },
    }
}

fn chooses_anew(old: &[(Key, Node)], new: &[(Key, Node)], schema: Option<&Schema>) -> bool {
    schema.is_some_and(Schema::is_choice)
        && new.len() == 1
        && old.iter().all(|(key, _)| key.text != new[0].0.text)
}

/// A step of the path in `--set path=value`.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Into a map.
    Key(Key),
    /// Into a list, from 0.
    Index(usize, Span),
}

/// An index that the list has not got.
#[derive(Debug, Clone, PartialEq)]
pub struct NoSuchItem {
    /// Where the index stands in the override.
    pub span: Span,
    /// What is wrong.
    pub message: String,
}

/// Puts `value` at the end of a path, making maps on the way where there are none.
///
/// # Errors
/// An index into something that is no list, or past its end.
pub fn set(
    node: &mut Node,
    steps: &[Step],
    value: Node,
    schema: Option<&Schema>,
) -> Result<(), NoSuchItem> {
    let Some((step, rest)) = steps.split_first() else {
        *node = value;
        return Ok(());
    };
    match step {
        Step::Index(index, span) => {
            let Value::List(items) = &mut node.value else {
                let message = format!("`[{index}]` needs a list, got {}", node.describe());
                return Err(NoSuchItem { span: *span, message });
            };
            let count = items.len();
            let Some(item) = items.get_mut(*index) else {
                let message = format!("`[{index}]` is past the end: the list has {count} items");
                return Err(NoSuchItem { span: *span, message });
            };
            set(item, rest, value, None)
        }
        Step::Key(key) => {
            let entries = open_map(node, key, schema);
            let below = schema.and_then(|s| s.child(&key.text));
            let index = entries.iter().position(|(k, _)| k.text == key.text);
            let index = index.unwrap_or_else(|| {
                entries.push((key.clone(), Node::null(key.span)));
                entries.len() - 1
            });
            if rest.is_empty() {
                entries[index].0 = key.clone();
            }
            set(&mut entries[index].1, rest, value, below)
        }
    }
}

/// The entries of the map to put `key` in; what stands there gives way if it must.
fn open_map<'n>(
    node: &'n mut Node,
    key: &Key,
    schema: Option<&Schema>,
) -> &'n mut Vec<(Key, Node)> {
    // `optimizer: sgd` and `--set optimizer.sgd.lr=1`: the bare word becomes a map.
    if !matches!(node.value, Value::Map(_)) {
        *node = Node { value: Value::Map(Vec::new()), span: key.span };
    }
    let Value::Map(entries) = &mut node.value else { unreachable!("made a map above") };
    let known = schema.is_some_and(|s| s.is_choice() && s.child(&key.text).is_some());
    if known && entries.iter().all(|(k, _)| k.text != key.text) {
        entries.clear();
    }
    entries
}
