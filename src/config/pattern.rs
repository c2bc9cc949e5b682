//! Patterns of names, in which `*` stands for any text.

/// What each `*` of a pattern stands for in a name; `None` if the name does not fit. Each takes as
/// little as it can.
pub fn captures<'n>(pattern: &str, name: &'n str) -> Option<Vec<&'n str>> {
    let Some((before, after)) = pattern.split_once('*') else {
        return (pattern == name).then(Vec::new);
    };
    let rest = name.strip_prefix(before)?;
    let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    ends.find_map(|at| {
        let mut found = captures(after, &rest[at..])?;
        found.insert(0, &rest[..at]);
        Some(found)
    })
}

/// Whether a name fits a pattern.
pub fn fits(pattern: &str, name: &str) -> bool {
    captures(pattern, name).is_some()
}

/// The name that another pattern, with as many `*`, makes of a name that fits one.
pub fn rename(pattern: &str, other: &str, name: &str) -> Option<String> {
    let mut found = captures(pattern, name)?.into_iter();
    let parts = other.split('*').enumerate();
    Some(parts.fold(String::new(), |text, (index, part)| {
        let star = if index == 0 { "" } else { found.next().unwrap_or_default() };
        text + star + part
    }))
}

#[cfg(test)]
mod tests {
    use super::{fits, rename};

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

    #[test]
    fn the_stars_of_one_pattern_stand_for_those_of_the_other() {
        for (pattern, other, name, expected) in [
            ("linear.*", "fc.*", "linear.weight", Some("fc.weight")),
            ("linear.*", "fc.*", "conv.weight", None),
            ("layer*.*", "stage*.block.*", "layer1.0.conv1", Some("stage1.block.0.conv1")),
            ("*", "model.*", "a.b", Some("model.a.b")),
            ("a", "b", "a", Some("b")),
        ] {
            assert_eq!(rename(pattern, other, name).as_deref(), expected, "{pattern} and {name}");
        }
    }
}
