//! `freeze:` of a model: parameters that are not trained, by patterns of their names.

use super::{BuildError, Registry};
use crate::config::nearest::nearest;
use crate::config::pattern::fits;
use crate::config::source::Span;

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
