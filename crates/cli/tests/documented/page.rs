//! A page of documentation, as far as its blocks of commands go.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// What stands between three back-ticks, by the words behind the first ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Run, and has to succeed.
    Shell,
    /// Run; what it finds, it tells by its exit status.
    Findings,
    /// Run line by line; each line would go on until it is interrupted.
    Endless,
    /// Run where a line begins with `$ `; what it prints stands below.
    Console,
    /// How commands can be written. Not run.
    Form,
    /// For another machine, or takes long. Not run here.
    Elsewhere,
    /// A file, which is written to where its first line says, if that is a path.
    File,
    /// What something prints.
    Text,
    /// Nothing of these.
    Unknown,
}

impl Kind {
    fn of(info: &str) -> Self {
        match info {
            "sh" => Self::Shell,
            "sh findings" => Self::Findings,
            "sh endless" => Self::Endless,
            "console" => Self::Console,
            "sh form" => Self::Form,
            "sh elsewhere" => Self::Elsewhere,
            "toml" | "yaml" => Self::File,
            "text" | "json" | "fstab" => Self::Text,
            _ => Self::Unknown,
        }
    }

    pub(crate) fn has_commands(self) -> bool {
        matches!(
            self,
            Self::Shell
                | Self::Findings
                | Self::Endless
                | Self::Console
                | Self::Form
                | Self::Elsewhere
        )
    }
}

#[derive(Debug)]
pub(crate) struct Block {
    /// Where it begins, from 1.
    pub(crate) line: usize,
    pub(crate) info: String,
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

impl Block {
    /// Its commands; what begins with a blank goes on with the one before.
    pub(crate) fn commands(&self) -> Vec<String> {
        let mut commands: Vec<String> = Vec::new();
        for line in self.text.lines() {
            let is_output = self.kind == Kind::Console && !line.starts_with("$ ");
            if is_output || line.is_empty() || line.starts_with('#') {
                continue;
            }
            let line = line.split(" # ").next().unwrap_or(line);
            match commands.last_mut() {
                Some(last) if line.starts_with(' ') => last.push_str(line),
                _ => commands.push(line.to_owned()),
            }
        }
        commands
    }

    /// Whether something is run for it.
    pub(crate) fn is_run(&self) -> bool {
        matches!(self.kind, Kind::Shell | Kind::Findings | Kind::Endless | Kind::Console)
    }

    fn path(&self) -> Option<&str> {
        let first = self.text.lines().next()?.strip_prefix("# ")?;
        (first.starts_with('/') || first == "wanted.toml").then_some(first)
    }

    /// What is run, and how.
    fn script(&self) -> Option<(&'static str, String)> {
        match self.kind {
            Kind::Shell => Some(("sh", self.text.clone())),
            Kind::Findings => Some(("findings", self.text.clone())),
            Kind::Endless => Some(("endless", self.text.clone())),
            Kind::Console => {
                let typed = self.text.lines().filter_map(|line| line.strip_prefix("$ "));
                Some(("sh", each_ended(typed)))
            }
            Kind::File => {
                let path = self.path()?;
                let text = &self.text;
                let write = format!("cat >{path} <<'END OF FILE'\n{text}END OF FILE\n");
                Some(("sh", format!("mkdir -p $(dirname {path})\n{write}")))
            }
            Kind::Form | Kind::Elsewhere | Kind::Text | Kind::Unknown => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Page {
    /// Its path from the repository.
    pub(crate) name: String,
    pub(crate) blocks: Vec<Block>,
    /// What is done before a block, with the line of that block: `<!-- run first: … -->`.
    before: Vec<(usize, String)>,
}

/// Each with its end.
fn each_ended<'l>(all: impl Iterator<Item = &'l str>) -> String {
    all.flat_map(|line| [line, "\n"]).collect()
}

const FENCE: &str = "```";

impl Page {
    pub(crate) fn parse(name: String, text: &str) -> Self {
        let mut page = Self { name, blocks: Vec::new(), before: Vec::new() };
        let mut lines = text.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            if let Some(info) = line.strip_prefix(FENCE) {
                let within = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != FENCE);
                let text = each_ended(within);
                let kind = Kind::of(info);
                page.blocks.push(Block { line: index + 1, info: info.to_owned(), kind, text });
            } else if let Some(first) = line.strip_prefix("<!-- run first:") {
                let mut script = first.to_owned();
                while !script.trim_end().ends_with("-->") {
                    let (_, line) = lines.next().expect("the end of a comment");
                    let _ = write!(script, "\n{line}");
                }
                let script = script.trim_end().trim_end_matches("-->").to_owned() + "\n";
                page.before.push((index + 1, script));
            }
        }
        page
    }

    /// Writes what runs the page, `page.sh` and a file a block, to this directory.
    pub(crate) fn write(&self, directory: &Path) {
        let mut all: Vec<(usize, &str, String)> = Vec::new();
        for (line, script) in &self.before {
            all.push((*line, "sh", script.clone()));
        }
        for block in &self.blocks {
            if let Some((how, script)) = block.script() {
                all.push((block.line, how, script));
            }
        }
        all.sort_by_key(|(line, ..)| *line);
        let mut page = include_str!("blocks.sh").to_owned();
        for (line, how, script) in all {
            fs::write(directory.join(format!("{line}.sh")), script).unwrap();
            let _ = writeln!(page, "block '{}:{line}' {how} /commands/{line}.sh", self.name);
        }
        // Files that stand in a page are right.
        page.push_str("steadfast check-config || failed=1\nexit $failed\n");
        fs::write(directory.join("page.sh"), page).unwrap();
    }
}
