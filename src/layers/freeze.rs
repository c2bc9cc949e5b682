//! `freeze:` of a model: parameters that are not trained, by patterns of their names.

use super::{BuildError, Registry};
use crate::config::nearest::nearest;
use crate::config::source::Span;

/// Whether a name fits a pattern, in which `*` stands for any text.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == name };
    let Some(rest) = name.strip_prefix(before) else { return false };
    rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| fits(after, &rest[at..]))
}

/// Marks all parameters that fit one of the patterns as not trained.
///
/// # Errors
/// When a pattern fits none.
pub(super) fn freeze(
    registry: &mut Registry,
    patterns: &[(String, Span)],
) -> Result<(), BuildError> {
    for (pattern, span) in patterns {
        let mut found = false;
        for (spec, trained) in registry.params.iter().zip(&mut registry.trained) {
            if fits(pattern, &spec.name) {
                *trained = false;
                found = true;
            }
        }
        if !found {
            let below = format!("{pattern}.*");
            let names = registry.params.iter().map(|spec| spec.name.as_str());
            let note = if names.clone().any(|name| fits(&below, name)) {
                Some(format!("`{below}` fits all parameters of that layer"))
            } else {
                nearest(pattern, names).map(|meant| format!("did you mean `{meant}`?"))
            };
            let message = format!("`{pattern}` fits no parameter");
            return Err(BuildError { span: *span, path: "model.freeze".into(), message, note });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("a.weight", "a.weight", true),
            ("a.weight", "a.weights", false),
            ("a.*", "a.0.weight", true),
            ("a.*", "ab.weight", false),
            ("*.bias", "a.0.bias", true),
            ("*.bias", "a.bias.0", false),
            ("a.*.w*", "a.0.1.weight", true),
            ("a.*.w*", "a.weight", false),
            ("*", "a", true),
            ("**", "", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} and {name}");
        }
    }
}
