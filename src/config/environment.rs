//! `${VAR}` in the values of a configuration.

use super::diagnostic::{Diagnostic, Diagnostics};
use super::node::{Node, Value};
use super::source::Span;

/// Looks a variable up: `|name| std::env::var(name).ok()`.
pub type Lookup<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Replaces `${VAR}` in every scalar of the tree; `$${` stands for `${`. A `$` without a brace
/// is left alone: it marks a parameter of a model's block.
pub fn substitute(node: &mut Node, variables: Lookup, diagnostics: &mut Diagnostics) {
    match &mut node.value {
        Value::Null => {}
        Value::List(items) => {
            items.iter_mut().for_each(|item| substitute(item, variables, diagnostics));
        }
        Value::Map(entries) => {
            entries.iter_mut().for_each(|(_, value)| substitute(value, variables, diagnostics));
        }
        Value::Scalar { text, .. } if text.contains("${") => {
            match expand(text, variables) {
                Ok(expanded) => *text = expanded,
                Err(problem) => _ = diagnostics.push(report(node.span, problem)),
            };
        }
        Value::Scalar { .. } => {}
    }
}

enum Problem {
    Unclosed,
    NotAName(String),
    Unset(String),
}

fn report(span: Span, problem: Problem) -> Diagnostic {
    let escape = "for a literal `${` write `$${`";
    let (message, help) = match problem {
        Problem::Unclosed => ("`${` without `}`".to_owned(), escape.to_owned()),
        Problem::NotAName(name) => {
            (format!("`{name}` is not the name of a variable"), escape.to_owned())
        }
        Problem::Unset(name) => (
            format!("the environment variable `{name}` is not set"),
            format!("set it before the run: {name}=…"),
        ),
    };
    let mut diagnostic = Diagnostic::new(span, "", message);
    diagnostic.help(help);
    diagnostic
}

fn expand(text: &str, variables: Lookup) -> Result<String, Problem> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, from) = rest.split_at(start);
        if let Some(before) = before.strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = &from[2..];
            continue;
        }
        out.push_str(before);
        let (name, after) = from[2..].split_once('}').ok_or(Problem::Unclosed)?;
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts_well || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(Problem::NotAName(name.to_owned()));
        }
        out.push_str(&variables(name).ok_or_else(|| Problem::Unset(name.to_owned()))?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_variables() {
        let lookup = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
        let expanded = |text| expand(text, &lookup).ok();
        assert_eq!(expanded("${HOME}/data").as_deref(), Some("/home/me/data"));
        assert_eq!(expanded("$${HOME} $x ${HOME}").as_deref(), Some("${HOME} $x /home/me"));
        assert_eq!(expanded("${NOPE}"), None);
        assert_eq!(expanded("${"), None);
        assert_eq!(expanded("${a-b}"), None);
    }
}
