//! From a kernel's description to one WGSL text: `// @use lib/x` lines bring in kernels/lib/x.wgsl
//! once, and `const NAME: u32 = …;` lines get the kernel's values.

use crate::ops::Kernel;
use crate::ops::launch::Source;

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
    let mut assembled = Assembled { text: String::new(), origins: Vec::with_capacity(lines.len()) };
    for (file, number, line) in lines {
        assembled.text.push_str(&line);
        assembled.text.push('\n');
        assembled.origins.push((file, number));
    }
    Ok(assembled)
}

struct Parts<'a> {
    kernel: &'a Kernel,
    done: Vec<String>,
    lines: Vec<(String, usize, String)>,
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
            match replaced {
                Some((_, text)) => self.add(&stem, text)?,
                None => {
                    let text = super::file(&stem)
                        .ok_or_else(|| format!("there is no kernels/{stem}.wgsl"))?;
                    self.add(&stem, text)?;
                }
            }
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
        assert_eq!(assembled.origins[at].0, "matmul");
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
