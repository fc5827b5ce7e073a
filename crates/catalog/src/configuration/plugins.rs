//! `[plugin.NAME]`: other protocols that serve shares.

use std::path::PathBuf;

use steadfast_shares::shown;

use super::Placed;
use super::document::{Document, Table};

pub(super) const SAMBA_KEYS: [&str; 2] = ["include", "timeout_s"];
pub(super) const EXPORTFS_KEYS: [&str; 2] = ["file", "timeout_s"];
pub(super) const MDNS_KEYS: [&str; 1] = ["directory"];
pub(super) const PROGRAM_KEYS: [&str; 2] = ["command", "timeout_s"];
/// Most plug-ins.
const PLUGINS_MAX: usize = 32;
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// `[plugin.NAME]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSettings {
    /// What shares ask for: `protocols = ["NAME"]`.
    pub name: String,
    /// What serves them.
    pub kind: PluginKind,
    /// How long it may take for a batch, in s; 1 to 3,600 (default 30).
    pub timeout_s: Option<u64>,
}

/// What a plug-in is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginKind {
    /// Samba, by a file that its configuration includes.
    Samba {
        /// `include`
        include: PathBuf,
    },
    /// The kernel's server, by exportfs(8).
    Exportfs {
        /// `file`, in `/etc/exports.d`.
        file: PathBuf,
    },
    /// Announcements by Avahi.
    Mdns {
        /// `directory`, where Avahi looks for services.
        directory: PathBuf,
    },
    /// A program and its arguments.
    Program {
        /// `command`
        command: Vec<String>,
    },
}

pub(super) fn read(document: &mut Document<'_>, root: Table<'_>) -> Vec<PluginSettings> {
    let Some(all) = document.table(root, "plugin") else { return Vec::new() };
    if all.entries.len() > PLUGINS_MAX {
        document.refuse(all.place, format!("there are more than {PLUGINS_MAX} plug-ins"), None);
        return Vec::new();
    }
    let names: Vec<String> = all.entries.keys().map(|key| key.get_ref().to_string()).collect();
    names.into_iter().filter_map(|name| read_one(document, all, name)).collect()
}

fn read_one(document: &mut Document<'_>, all: Table<'_>, name: String) -> Option<PluginSettings> {
    let place = document.place_of(all, &name);
    let table = document.table(all, &name)?;
    let is_name = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if !is_name || name == "nfs" {
        document.refuse(place, format!("{} is no name of a plug-in", shown(&name)), None);
        return None;
    }
    let whose = format!("[plugin.{name}]");
    let kind = match name.as_str() {
        "smb" => {
            document.known_keys(table, &whose, &SAMBA_KEYS);
            let include = path(document, table, "include")?;
            PluginKind::Samba { include: include.value }
        }
        "exportfs" => {
            document.known_keys(table, &whose, &EXPORTFS_KEYS);
            let file = path(document, table, "file")?;
            if file.value.extension().is_none_or(|extension| extension != "exports") {
                let what = "exportfs reads files whose names end in .exports only".to_owned();
                document.refuse(file.place, what, None);
            }
            PluginKind::Exportfs { file: file.value }
        }
        "mdns" => {
            document.known_keys(table, &whose, &MDNS_KEYS);
            let directory = path(document, table, "directory")?;
            PluginKind::Mdns { directory: directory.value }
        }
        _ => {
            document.known_keys(table, &whose, &PROGRAM_KEYS);
            PluginKind::Program { command: command(document, table, &whose)? }
        }
    };
    let timeout_s = document.integer(table, "timeout_s", 1, 3600).map(|number| number.value);
    Some(PluginSettings { name, kind, timeout_s })
}

fn path(document: &mut Document<'_>, table: Table<'_>, key: &str) -> Option<Placed<PathBuf>> {
    if !table.entries.contains_key(key) {
        document.refuse(table.place, format!("the plug-in needs `{key} = \"/PATH\"`"), None);
        return None;
    }
    let text = document.string(table, key)?;
    super::absolute_path(document, key, &text)
}

fn command(document: &mut Document<'_>, table: Table<'_>, whose: &str) -> Option<Vec<String>> {
    if !table.entries.contains_key("command") {
        let what = format!("{whose} needs `command = [\"/PROGRAM\"]`");
        document.refuse(table.place, what, None);
        return None;
    }
    let words = document.placed_strings(table, "command")?;
    let place = document.place_of(table, "command");
    let Some(program) = words.first() else {
        document.refuse(place, "the command is empty".to_owned(), None);
        return None;
    };
    if !program.value.starts_with('/') {
        let what = format!("the program {} must be an absolute path", shown(program.value));
        document.refuse(program.place, what, None);
    }
    Some(words.into_iter().map(|word| word.value.to_owned()).collect())
}
