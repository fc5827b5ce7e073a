//! A program as a plug-in: it gets the whole state as JSON on its standard input, once a batch.
//!
//! It gets `{"version": 1, "plugin", "sequence", "shares": […], "changed": […]}`, where `shares`
//! are all that are to be served, each as `GET /v1/shares` has it, without `source`, and with
//! `access`: the rules, the first of which that has the client decides. `changed` are the paths
//! that changed since it last succeeded (`null`: all may have). It has succeeded if its exit
//! status is 0. It may answer `{"faults": [{"path": "…", "why": "…"}]}` about shares that it could
//! not serve; a fault without a path is about all of them. What it says on its standard error
//! goes to the server's messages.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::command::{Limits, last_line, run};
use super::{Fault, Plugin, PluginShare, Task};
use crate::api::ShareStatus;
use crate::explain::RightsTold;

/// Of the form of what it gets.
const VERSION: u32 = 1;
/// Lines of its standard error that are told.
const LINES_MAX: usize = 20;

/// A program.
#[derive(Clone, Debug)]
pub struct Executable {
    name: String,
    /// The program and its arguments.
    command: Vec<PathBuf>,
    limits: Limits,
}

#[derive(Serialize)]
struct Input<'a> {
    version: u32,
    plugin: &'a str,
    sequence: u64,
    shares: Vec<OneShare<'a>>,
    changed: Option<&'a [String]>,
}

#[derive(Serialize)]
struct OneShare<'a> {
    #[serde(flatten)]
    status: &'a ShareStatus,
    /// Who may do what, in the order in which it is asked.
    access: Vec<OneRule>,
}

#[derive(Serialize)]
struct OneRule {
    clients: String,
    /// The first that is for the caller's flavour; none: no access.
    grants: Vec<RightsTold>,
}

impl<'a> OneShare<'a> {
    fn of(share: &'a PluginShare) -> Self {
        let access = share.share.rules.rules().iter().map(|rule| OneRule {
            clients: rule.pattern.to_string(),
            grants: rule.grants.iter().map(RightsTold::of).collect(),
        });
        Self { status: &share.status, access: access.collect() }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Output {
    faults: Vec<OneFault>,
}

#[derive(Deserialize)]
struct OneFault {
    path: Option<String>,
    why: String,
}

impl Executable {
    /// A program with its arguments; `name` is what shares ask for.
    pub fn new(name: impl Into<String>, command: Vec<PathBuf>, limits: Limits) -> Self {
        Self { name: name.into(), command, limits }
    }

    /// Those of a directory: each file that may be executed, named after it without extension.
    ///
    /// # Errors
    /// When the directory is there and cannot be read.
    pub fn of_directory(directory: &Path, limits: Limits) -> std::io::Result<Vec<Self>> {
        use std::os::unix::fs::PermissionsExt;
        let mut found = Vec::new();
        let entries = match std::fs::read_dir(directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let is_program = path
                .metadata()
                .is_ok_and(|one| one.is_file() && one.permissions().mode() & 0o111 != 0);
            let name = path.file_stem().and_then(|name| name.to_str());
            if let Some(name) = name.filter(|name| is_program && !name.starts_with('.')) {
                found.push(Self::new(name, vec![path.clone()], limits));
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }
}

impl Plugin for Executable {
    fn name(&self) -> &str {
        &self.name
    }

    fn publish(&mut self, task: &Task<'_>) -> Result<(), Vec<Fault>> {
        let failed = |why: String| vec![Fault::new(why)];
        let input = Input {
            version: VERSION,
            plugin: &self.name,
            sequence: task.sequence,
            shares: task.shares.iter().map(|share| OneShare::of(share)).collect(),
            changed: task.changed,
        };
        let input = serde_json::to_vec(&input).map_err(|error| failed(error.to_string()))?;
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(failed("it has no command".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        let said = run(&mut command, input, self.limits).map_err(|e| failed(e.to_string()))?;
        for line in String::from_utf8_lossy(&said.stderr).lines().take(LINES_MAX) {
            tracing::info!("plug-in {}: {}", self.name, last_line(line.as_bytes()));
        }
        if said.stdout.trim_ascii().is_empty() {
            return Ok(());
        }
        let output: Output = serde_json::from_slice(&said.stdout)
            .map_err(|error| failed(format!("its answer is not understood: {error}")))?;
        let faults: Vec<Fault> = output
            .faults
            .into_iter()
            .map(|fault| Fault { why: fault.why, paths: fault.path.into_iter().collect() })
            .collect();
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}
