//! Breaks a valid configuration in one place. Used to check that every such slip is rejected at
//! the line it was made on. Works on the text, line by line, so that it can take any shipped file
//! and owes nothing to the parser under test: it knows maps in block style and one-line flow maps.

/// A broken configuration.
#[derive(Debug, Clone)]
pub struct Mutant {
    /// What was done, for the message of a failing test.
    pub what: String,
    /// The text.
    pub text: String,
    /// Lines, from 1, at one of which an error must be reported.
    pub lines: Vec<usize>,
}

/// A key somewhere in the text, with where its line, name and value lie.
#[derive(Debug, Clone)]
struct Site {
    /// Index of the line.
    line: usize,
    /// Byte range of the key in the line.
    key: (usize, usize),
    /// Byte range of the value in the line; none if it goes on below or is not a plain scalar.
    scalar: Option<(usize, usize)>,
    /// Whether the key starts its line, but for indentation.
    block: bool,
}

/// A small generator of pseudo-random numbers (SplitMix64), so that failures repeat.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}

/// Breaks `text` in one of the ways there are. `is_free` tells which lines (from 1) hold keys of
/// the user's own choice, which are not to be renamed.
pub fn mutate(text: &str, random: &mut Random, is_free: impl Fn(usize) -> bool) -> Mutant {
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let all = sites(&lines);
    let sites: Vec<Site> = all.into_iter().filter(|s| !is_free(s.line + 1)).collect();
    loop {
        let site = random.pick(&sites);
        let made = match random.below(5) {
            0 => Some(rename(&lines, &site, random)),
            1 => duplicate(&lines, &site),
            2 => misplace(&lines, &sites, &site, random),
            3 => retype(&lines, &site, random),
            _ => tab(&lines, &site),
        };
        if let Some(mutant) = made {
            return mutant;
        }
    }
}

/// Every `key:` of the text outside comments and quotes.
fn sites(lines: &[String]) -> Vec<Site> {
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = line.split(" #").next().unwrap_or("");
        if code.trim_start().starts_with('#') {
            continue;
        }
        let start = code.len() - code.trim_start_matches([' ', '-']).len();
        let mut begin = start;
        for (at, c) in code.char_indices() {
            match c {
                '{' | ',' | '[' => begin = at + 1,
                ':' if code[at + 1..].starts_with(' ') || at + 1 == code.len() => {
                    let key_start =
                        begin + code[begin..at].len() - code[begin..at].trim_start().len();
                    let name = &code[key_start..at];
                    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    if name.is_empty() || !name.chars().all(is_word) {
                        continue;
                    }
                    let block = key_start == start && !code[..start].contains('-');
                    let scalar = scalar_after(code, at + 1);
                    found.push(Site { line: index, key: (key_start, at), scalar, block });
                }
                _ => {}
            }
        }
    }
    found
}

/// The plain scalar that follows a colon on its line.
fn scalar_after(code: &str, from: usize) -> Option<(usize, usize)> {
    let rest = &code[from..];
    let start = from + rest.len() - rest.trim_start().len();
    let end = code[start..].find([',', '}', ']']).map_or(code.len(), |at| start + at);
    let value = code[start..end].trim_end();
    let plain = !value.is_empty() && !value.starts_with(['{', '[', '&', '*', '"', '\'', '$']);
    plain.then_some((start, start + value.len()))
}

fn join(lines: &[String]) -> String {
    lines.join("\n") + "\n"
}

fn replaced(lines: &[String], line: usize, range: (usize, usize), with: &str) -> String {
    let mut lines = lines.to_vec();
    lines[line].replace_range(range.0..range.1, with);
    join(&lines)
}

/// A letter of a key is dropped, doubled or exchanged, or its case changes.
fn rename(lines: &[String], site: &Site, random: &mut Random) -> Mutant {
    let name = &lines[site.line][site.key.0..site.key.1];
    let at = random.below(name.len());
    let mut letters: Vec<char> = name.chars().collect();
    match random.below(4) {
        0 if letters.len() > 1 => _ = letters.remove(at),
        1 => letters.insert(at, 'q'),
        2 => letters[at] = if letters[at] == 'x' { 'y' } else { 'x' },
        _ => letters[0] = letters[0].to_ascii_uppercase(),
    }
    let mut changed: String = letters.into_iter().collect();
    if changed == "adam" {
        // `adamw` without its last letter is another optimizer, and no slip.
        changed.push('q');
    }
    Mutant {
        what: format!("`{name}` on line {} becomes `{changed}`", site.line + 1),
        text: replaced(lines, site.line, site.key, &changed),
        lines: vec![site.line + 1],
    }
}

/// A key is given twice.
fn duplicate(lines: &[String], site: &Site) -> Option<Mutant> {
    let name = &lines[site.line][site.key.0..site.key.1];
    let what = format!("`{name}` on line {} is given twice", site.line + 1);
    if !site.block {
        let (start, end) = site.scalar?;
        let value = &lines[site.line][start..end];
        let again = format!("{name}: {value}, ");
        let text = replaced(lines, site.line, (site.key.0, site.key.0), &again);
        return Some(Mutant { what, text, lines: vec![site.line + 1] });
    }
    let mut changed = lines.to_vec();
    let indent = &lines[site.line][..site.key.0];
    changed.insert(site.line, format!("{indent}{name}: 1"));
    Some(Mutant { what, text: join(&changed), lines: vec![site.line + 2] })
}

/// A key of one section appears in another that does not know it.
fn misplace(lines: &[String], sites: &[Site], site: &Site, random: &mut Random) -> Option<Mutant> {
    let foreign = random.pick(sites);
    let name = &lines[foreign.line][foreign.key.0..foreign.key.1];
    let known_here = ["version", "name", "seed", "device", "precision"];
    // Only a key that no section shares with another is wrong for sure where it lands.
    let uses = sites.iter().filter(|s| &lines[s.line][s.key.0..s.key.1] == name).count();
    if !site.block || site.key.0 != 0 || uses != 1 || foreign.key.0 == 0 || name.len() < 2 {
        return None;
    }
    if known_here.contains(&name) {
        return None;
    }
    let mut changed = lines.to_vec();
    changed.insert(site.line, format!("{name}: 1"));
    Some(Mutant {
        what: format!("`{name}` of line {} moves to the top level", foreign.line + 1),
        text: join(&changed),
        lines: vec![site.line + 1],
    })
}

/// A number becomes a word, or a scalar a map.
fn retype(lines: &[String], site: &Site, random: &mut Random) -> Option<Mutant> {
    let range = site.scalar?;
    let value = &lines[site.line][range.0..range.1];
    if value.parse::<f64>().is_ok() && random.below(2) == 0 {
        return Some(Mutant {
            what: format!("`{value}` on line {} becomes a word", site.line + 1),
            text: replaced(lines, site.line, range, "word"),
            lines: vec![site.line + 1],
        });
    }
    Some(Mutant {
        what: format!("`{value}` on line {} becomes a map", site.line + 1),
        text: replaced(lines, site.line, range, "{wrong_form: 1}"),
        lines: vec![site.line + 1],
    })
}

/// The indentation of a line becomes a tab.
fn tab(lines: &[String], site: &Site) -> Option<Mutant> {
    let line = &lines[site.line];
    let indent = line.len() - line.trim_start().len();
    (indent > 0).then(|| Mutant {
        what: format!("line {} is indented with a tab", site.line + 1),
        text: replaced(lines, site.line, (0, indent), "\t"),
        lines: vec![site.line + 1],
    })
}
