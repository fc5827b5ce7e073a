//! The examples of the commands, which stand in `examples.txt`: sections `## COMMAND`, and in them what an example does
//! (`# …`) before what is typed. [`Examples`] is that text; tests in
//! `crates/cli/src/manual.rs` parse each line that begins with the program's name.

use super::roff;

const TEXT: &str = include_str!("examples.txt");

/// All examples.
#[derive(Debug)]
pub struct Examples(pub Vec<Section>);

/// Those of one command.
#[derive(Debug)]
pub struct Section {
    /// The words after `steadfast`; empty for the program itself.
    pub command: &'static str,
    /// In the order in which they are told.
    pub examples: Vec<Example>,
}

/// What is typed for one end.
#[derive(Debug, Default)]
pub struct Example {
    /// Lines that say what it does.
    pub what: Vec<&'static str>,
    /// Lines of a shell, or of fstab(5).
    pub lines: Vec<&'static str>,
}

impl Examples {
    /// Reads those that are part of this crate.
    #[must_use]
    pub fn read() -> Self {
        let mut sections: Vec<Section> = Vec::new();
        for line in TEXT.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
            if let Some(command) = line.strip_prefix("##") {
                let command = command.trim();
                let command = if command == "steadfast" { "" } else { command };
                sections.push(Section { command, examples: Vec::new() });
                continue;
            }
            // The text begins with a section, as a test in crates/cli/src/manual.rs says.
            let Some(section) = sections.last_mut() else { continue };
            let what = line.strip_prefix("# ");
            match section.examples.last_mut() {
                Some(last) if what.is_none() || last.lines.is_empty() => last.add(what, line),
                _ => {
                    let mut example = Example::default();
                    example.add(what, line);
                    section.examples.push(example);
                }
            }
        }
        Self(sections)
    }

    /// The section of a command, or of `mount.steadfast`.
    #[must_use]
    pub fn of(&self, command: &str) -> Option<&Section> {
        self.0.iter().find(|section| section.command == command)
    }

    /// The section of a page.
    pub(super) fn section(&self, command: &str) -> String {
        let Some(section) = self.of(command) else { return String::new() };
        let mut text = String::from(".SH EXAMPLES\n");
        for (index, example) in section.examples.iter().enumerate() {
            if index > 0 {
                text.push_str(".PP\n");
            }
            text.push_str(&roff::markdown(&example.what.join(" ")));
            text.push_str(":\n");
            text.push_str(&roff::literal(&example.lines.join("\n")));
        }
        text
    }
}

impl Example {
    fn add(&mut self, what: Option<&'static str>, line: &'static str) {
        match what {
            Some(what) => self.what.push(what),
            None => self.lines.push(line),
        }
    }
}
