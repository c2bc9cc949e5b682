//! From a kernel's description to one WGSL text: `// @use lib/x` lines bring in kernels/lib/x.wgsl
//! once, `const NAME: u32 = …;` lines get the kernel's values, and the lines between
//! `// @for i in NAME` and its `// @end` are repeated with `$i` as 0, 1, … below NAME, a number or a
//! constant: loops that must be unrolled for their variables to stay in registers.

use crate::ops::launch::Source;
use crate::ops::{Kernel, Replacement};

/// A kernel that cannot be put together: a defect of the op that asks for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel `{kernel}`: {reason}")]
pub struct AssembleError {
    /// Name of the kernel.
    pub kernel: String,
    /// What is missing.
    pub reason: String,
}

/// WGSL with the place that each line came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembled {
    /// The text.
    pub text: String,
    /// File stem and line, from 1, of each line.
    pub origins: Vec<(String, usize)>,
}

/// Puts a kernel's text together.
///
/// # Errors
/// When a file or a constant that the kernel names does not exist.
pub fn assemble(kernel: &Kernel) -> Result<Assembled, AssembleError> {
    let fail = |reason: String| AssembleError { kernel: kernel.name().to_owned(), reason };
    let mut parts = Parts { kernel, done: Vec::new(), lines: Vec::new() };
    let text = match &kernel.source {
        Source::File(stem) => {
            super::file(stem).ok_or_else(|| fail(format!("there is no kernels/{stem}.wgsl")))?
        }
        Source::Generated { text, .. } => text,
    };
    parts.add(kernel.name(), text).map_err(fail)?;
    let mut lines = parts.lines;
    for (name, value) in &kernel.constants {
        let start = format!("const {name}: u32 =");
        let line = lines.iter_mut().find(|(_, _, text)| text.starts_with(&start));
        let Some((_, _, text)) = line else { return Err(fail(format!("it has no `{start} …`"))) };
        *text = format!("{start} {value}u;");
    }
    for name in &kernel.half {
        let start = format!("alias {name}_t = f32;");
        let line = lines.iter_mut().find(|(_, _, text)| *text == start);
        let Some((_, _, text)) = line else { return Err(fail(format!("it has no `{start}`"))) };
        *text = format!("alias {name}_t = f16;");
    }
    let lines = hoisted(unrolled(&lines).map_err(fail)?);
    let mut assembled = Assembled { text: String::new(), origins: Vec::with_capacity(lines.len()) };
    for (file, number, line) in lines {
        assembled.text.push_str(&line);
        assembled.text.push('\n');
        assembled.origins.push((file, number));
    }
    Ok(assembled)
}

/// Puts what a text must begin with before the rest: each `enable` once, those of halves too.
fn hoisted(lines: Vec<Line>) -> Vec<Line> {
    let (mut head, body): (Vec<Line>, Vec<Line>) =
        lines.into_iter().partition(|(_, _, text)| text.starts_with("enable "));
    if body.iter().any(|(_, _, text)| text.contains("f16")) {
        head.push((String::new(), 0, "enable f16;".into()));
    }
    head.sort_by(|a, b| a.2.cmp(&b.2));
    head.dedup_by(|a, b| a.2 == b.2);
    head.extend(body);
    head
}

/// A line: its file, its number there, its text.
type Line = (String, usize, String);

struct Parts<'a> {
    kernel: &'a Kernel,
    done: Vec<String>,
    lines: Vec<Line>,
}

/// Repeats what stands between `@for` and `@end`.
fn unrolled(lines: &[Line]) -> Result<Vec<Line>, String> {
    let constant = |name: &str| -> Option<usize> {
        let start = format!("const {name}: u32 = ");
        let value = lines.iter().find_map(|(_, _, text)| text.strip_prefix(&start))?;
        value.trim_end_matches("u;").parse().ok()
    };
    let mut out = Vec::new();
    repeat(lines, &constant, &mut out)?;
    Ok(out)
}

fn repeat(
    lines: &[Line],
    constant: &impl Fn(&str) -> Option<usize>,
    out: &mut Vec<Line>,
) -> Result<(), String> {
    let mut at = 0;
    while at < lines.len() {
        let (file, number, text) = &lines[at];
        let Some(head) = text.trim().strip_prefix("// @for ") else {
            out.push(lines[at].clone());
            at += 1;
            continue;
        };
        let wrong = |what: &str| format!("{file}:{number}: {what}");
        let (name, bound) =
            head.split_once(" in ").ok_or_else(|| wrong("expected `@for i in N`"))?;
        let times = bound.parse().ok().or_else(|| constant(bound));
        let times = times.ok_or_else(|| wrong("the bound is no number and no constant"))?;
        let end = matching_end(&lines[at + 1..]).ok_or_else(|| wrong("`@for` without `@end`"))?;
        let body = &lines[at + 1..at + 1 + end];
        for index in 0..times {
            let variable = format!("${name}");
            let value = index.to_string();
            let round: Vec<Line> = body
                .iter()
                .map(|(file, number, text)| {
                    (file.clone(), *number, text.replace(&variable, &value))
                })
                .collect();
            repeat(&round, constant, out)?;
        }
        at += end + 2;
    }
    Ok(())
}

/// Lines before the `@end` that closes what has been opened.
fn matching_end(lines: &[Line]) -> Option<usize> {
    let mut open = 0;
    for (at, (_, _, text)) in lines.iter().enumerate() {
        match text.trim() {
            "// @end" if open == 0 => return Some(at),
            "// @end" => open -= 1,
            text if text.starts_with("// @for ") => open += 1,
            _ => {}
        }
    }
    None
}

impl Parts<'_> {
    fn add(&mut self, name: &str, text: &str) -> Result<(), String> {
        for used in text.lines().filter_map(|line| line.strip_prefix("// @use lib/")) {
            if self.done.iter().any(|d| d == used) {
                continue;
            }
            self.done.push(used.to_owned());
            let replaced = self.kernel.replace.iter().find(|(stem, _)| *stem == used);
            let stem = format!("lib/{used}");
            let stem = match replaced {
                Some((_, Replacement::Text(text))) => {
                    self.add(&stem, text)?;
                    continue;
                }
                Some((_, Replacement::File(other))) => format!("lib/{other}"),
                None => stem,
            };
            let text =
                super::file(&stem).ok_or_else(|| format!("there is no kernels/{stem}.wgsl"))?;
            self.add(&stem, text)?;
        }
        self.lines.extend(
            text.lines().enumerate().map(|(at, line)| (name.to_owned(), at + 1, line.to_owned())),
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_come_once_and_constants_are_set() {
        let kernel = Kernel::file("matmul", "matmul").with("DEPTH", 8);
        let assembled = assemble(&kernel).expect("it exists");
        assert!(assembled.text.contains("const DEPTH: u32 = 8u;"));
        assert_eq!(assembled.text.matches("fn epilogue(").count(), 1);
        let at = assembled
            .text
            .lines()
            .position(|line| line.starts_with("const DEPTH"))
            .expect("the line");
        assert_eq!(assembled.origins[at].0, "lib/tile");
    }

    #[test]
    fn loops_are_unrolled() {
        let text = "const N: u32 = 2u;\n// @for i in N\n// @for j in 2\nlet x_$i_$j = $iu;\n// @end\n// @end\n";
        let kernel = Kernel {
            source: Source::Generated { name: "loops".into(), text: text.into() },
            entry: "main",
            constants: Vec::new(),
            replace: Vec::new(),
            half: Vec::new(),
        };
        let assembled = assemble(&kernel).expect("it fits");
        let wanted = "const N: u32 = 2u;\nlet x_0_0 = 0u;\nlet x_0_1 = 0u;\nlet x_1_0 = 1u;\nlet x_1_1 = 1u;\n";
        assert_eq!(assembled.text, wanted);
        assert_eq!(assembled.origins[4], ("loops".to_owned(), 4));
    }

    #[test]
    fn what_does_not_exist_is_named() {
        let error = assemble(&Kernel::file("matmul", "matmul").with("DEEP", 8))
            .expect_err("no such constant");
        assert!(error.to_string().contains("DEEP"), "{error}");
        let error = assemble(&Kernel::file("matmull", "matmul")).expect_err("no such file");
        assert!(error.to_string().contains("matmull"), "{error}");
    }
}
