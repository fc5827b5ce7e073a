//! The sections of a report, measured one after the other: told, written into a document, and kept as JSON.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Findings, replace_section};
use crate::workspace::{self, target};

/// What came of the sections so far.
#[derive(Debug)]
pub(crate) struct Sections {
    /// The file of the documentation, below `docs`.
    document: &'static str,
    /// The documentation stays as it is.
    prints_only: bool,
    misses: usize,
    failures: Vec<&'static str>,
    results: Vec<Value>,
}

impl Sections {
    /// None yet.
    pub(crate) fn new(document: &'static str, prints_only: bool) -> Self {
        Self { document, prints_only, misses: 0, failures: Vec::new(), results: Vec::new() }
    }

    /// Measures one. That it fails is noted: what others find is worth telling.
    ///
    /// # Errors
    /// When what was found cannot be written into the document.
    pub(crate) fn measure(
        &mut self,
        name: &'static str,
        measure: impl FnOnce() -> Result<Findings>,
    ) -> Result<()> {
        eprintln!("== {name}");
        let begun = Instant::now();
        match measure() {
            Ok(findings) => {
                self.misses += findings.misses();
                println!("\n## {name}\n\n{}", findings.markdown());
                self.results.push(json!({ "section": name, "findings": findings.json() }));
                if !self.prints_only {
                    self.publish(name, &findings)?;
                }
            }
            Err(error) => {
                eprintln!("{name} failed: {error:#}");
                self.failures.push(name);
            }
        }
        eprintln!("== {name} took {:.0} s", begun.elapsed().as_secs_f64());
        Ok(())
    }

    /// Writes a section into the documentation.
    fn publish(&self, name: &str, findings: &Findings) -> Result<()> {
        let docs = workspace::root()?.join("docs");
        for (file, svg) in &findings.plots {
            std::fs::write(docs.join(file), svg)?;
        }
        let document = docs.join(self.document);
        let text = std::fs::read_to_string(&document)?;
        let text =
            replace_section(&text, name, &findings.markdown()).with_context(|| self.document)?;
        Ok(std::fs::write(document, text)?)
    }

    /// Writes every figure into this file of the target directory.
    ///
    /// # Errors
    /// When a goal was missed, or a section failed; or the file cannot be written.
    pub(crate) fn end(self, file: &str) -> Result<()> {
        let text = serde_json::to_string_pretty(&Value::from(self.results))?;
        std::fs::write(target()?.join(file), text)?;
        println!("Every figure is in target/{file}.");
        match (self.misses, self.failures.len()) {
            (0, 0) => Ok(()),
            (misses, 0) => bail!("goals missed: {misses}"),
            (misses, _) => {
                bail!("goals missed: {misses}; sections that failed: {}", self.failures.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Goal;

    #[test]
    fn a_section_that_fails_ends_no_other_and_is_told_at_the_end() {
        let mut sections = Sections::new("journal.md", true);
        let missed = || {
            let mut findings = Findings::default();
            findings.goals.push(Goal::at_most("a bound", 1.0, Some(2.0)));
            Ok(findings)
        };
        sections.measure("fails", || bail!("no disk")).expect("noted");
        sections.measure("misses", missed).expect("told");
        let file = format!("sections-{}.json", std::process::id());
        let told = sections.end(&file).expect_err("not all is well").to_string();
        assert_eq!(told, "goals missed: 1; sections that failed: fails");
        let file = target().expect("a directory").join(file);
        let kept = std::fs::read_to_string(&file).expect("the figures");
        assert!(kept.contains("misses") && !kept.contains("fails"), "{kept}");
        std::fs::remove_file(file).expect("removed");
    }
}
