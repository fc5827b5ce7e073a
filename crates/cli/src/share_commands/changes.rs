//! What was typed becomes a batch of operations.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use steadfast_catalog::manage::{Batch, Changes, GroupSpec, Operation, PatternSpec, ShareSpec};

use super::arguments::{GroupAction, Groups, Paths, Settings, ShareAdd, ShareSet};

/// A path as it is written: absolute, without a slash at its end.
pub(super) fn path(typed: &Path) -> Result<String> {
    let absolute = std::path::absolute(typed)
        .with_context(|| format!("{} cannot be made absolute", typed.display()))?;
    let clean: PathBuf = absolute.components().collect();
    let Some(text) = clean.to_str() else {
        bail!("the path {} is not UTF-8: it cannot be shared", typed.display());
    };
    Ok(text.to_owned())
}

fn each(paths: &[PathBuf], make: impl Fn(String) -> Operation) -> Result<Vec<Operation>> {
    paths.iter().map(|typed| path(typed).map(&make)).collect()
}

pub(super) fn add(arguments: &ShareAdd) -> Result<Vec<Operation>> {
    let is_of_one = [
        ("--directory", arguments.directory.is_some()),
        ("--id", arguments.id.is_some()),
        ("--resource", arguments.resource.is_some()),
    ];
    if let (true, Some((option, _))) =
        (arguments.paths.len() > 1, is_of_one.iter().find(|(_, is_said)| *is_said))
    {
        bail!("{option} is said of one share: add the others by themselves");
    }
    let directory = arguments.directory.as_deref().map(path).transpose()?;
    each(&arguments.paths, |path| Operation::AddShare {
        group: arguments.group.clone(),
        share: ShareSpec {
            path,
            directory: directory.clone(),
            id: arguments.id,
            description: arguments.description.clone(),
            resource: arguments.resource.clone(),
            protocols: arguments.protocols.clone(),
            options: arguments.options.clone(),
            clients: arguments.clients.clone(),
            rules: arguments.rules.clone(),
            log: None,
            enabled: arguments.disabled.then_some(false),
            draining: None,
        },
    })
}

/// What is said of shares and groups alike.
fn settings(settings: &Settings) -> Changes {
    let mut set = Map::new();
    for key in &settings.unset {
        set.insert(key.clone(), Value::Null);
    }
    for (key, list) in [
        ("clients", &settings.clients),
        ("options", &settings.options),
        ("protocols", &settings.protocols),
    ] {
        if !list.is_empty() {
            set.insert(key.to_owned(), json!(list));
        }
    }
    if let Some(description) = &settings.description {
        set.insert("description".to_owned(), json!(description));
    }
    Changes {
        set,
        add_clients: settings.add_clients.clone(),
        remove_clients: settings.remove_clients.clone(),
        add_options: settings.add_options.clone(),
        remove_options: settings.remove_options.clone(),
    }
}

pub(super) fn set(arguments: &ShareSet) -> Result<Vec<Operation>> {
    let mut changes = settings(&arguments.settings);
    if !arguments.rules.is_empty() {
        changes.set.insert("rule".to_owned(), json!(arguments.rules));
    }
    if let Some(directory) = &arguments.directory {
        changes.set.insert("directory".to_owned(), json!(path(directory)?));
    }
    if let Some(id) = arguments.id {
        changes.set.insert("id".to_owned(), json!(id));
    }
    if let Some(resource) = &arguments.resource {
        changes.set.insert("resource".to_owned(), json!(resource));
    }
    let mut operations = Vec::new();
    if let Some(group) = &arguments.group {
        let to = |path| Operation::MoveShare { path, group: group.clone() };
        operations.extend(each(&arguments.paths, to)?);
    }
    if changes != Changes::default() {
        let change = |path| Operation::SetShare { path, changes: changes.clone() };
        operations.extend(each(&arguments.paths, change)?);
    }
    if operations.is_empty() {
        bail!("nothing to change: say what, see `steadfast share set --help`");
    }
    Ok(operations)
}

pub(super) fn remove(paths: &Paths) -> Result<Vec<Operation>> {
    each(&paths.paths, |path| Operation::RemoveShare { path })
}

/// Keys get these values.
fn set_shares(paths: &Paths, values: &[(&str, Value)]) -> Result<Vec<Operation>> {
    let changes = with(values);
    each(&paths.paths, |path| Operation::SetShare { path, changes: changes.clone() })
}

fn with(values: &[(&str, Value)]) -> Changes {
    let set = values.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    Changes { set, ..Changes::default() }
}

pub(super) fn enable(paths: &Paths) -> Result<Vec<Operation>> {
    set_shares(paths, &[("enabled", Value::Null), ("draining", Value::Null)])
}

pub(super) fn disable(paths: &Paths, drain: bool) -> Result<Vec<Operation>> {
    let key = if drain { ("draining", json!(true)) } else { ("enabled", json!(false)) };
    set_shares(paths, &[key])
}

fn patterns(directories: &[String]) -> Vec<PatternSpec> {
    let pattern = |one: &String| PatternSpec { directories: one.clone(), ..PatternSpec::default() };
    directories.iter().map(pattern).collect()
}

/// The operations of a command about groups, and how they are made; `None` for one that only
/// tells.
pub(super) fn groups(
    action: &GroupAction,
) -> Result<Option<(Vec<Operation>, &super::ChangeOptions)>> {
    let of_each = |groups: &Groups, make: &dyn Fn(String) -> Operation| -> Vec<Operation> {
        groups.names.iter().cloned().map(make).collect()
    };
    let set = |groups: &Groups, changes: &Changes| {
        of_each(groups, &|name| Operation::SetGroup { name, changes: changes.clone() })
    };
    Ok(Some(match action {
        GroupAction::Create { name, settings, patterns: directories, disabled, change } => {
            let has_others = !settings.add_clients.is_empty()
                || !settings.remove_clients.is_empty()
                || !settings.add_options.is_empty()
                || !settings.remove_options.is_empty()
                || !settings.unset.is_empty();
            if has_others {
                bail!("a new group has nothing to add to, or to take out: use --client, --options");
            }
            let group = GroupSpec {
                name: name.clone(),
                description: settings.description.clone(),
                options: settings.options.clone(),
                clients: settings.clients.clone(),
                protocols: settings.protocols.clone(),
                enabled: disabled.then_some(false),
                patterns: patterns(directories),
            };
            (vec![Operation::CreateGroup { group }], change)
        }
        GroupAction::Delete { groups, with_shares } => {
            let delete = |name| Operation::DeleteGroup { name, with_shares: *with_shares };
            (of_each(groups, &delete), &groups.change)
        }
        GroupAction::Set { groups, settings: said, patterns: directories } => {
            let mut changes = settings(said);
            if !directories.is_empty() {
                changes.set.insert("pattern".to_owned(), json!(patterns(directories)));
            }
            if changes == Changes::default() {
                bail!("nothing to change: say what, see `steadfast group set --help`");
            }
            (set(groups, &changes), &groups.change)
        }
        GroupAction::Enable(groups) => {
            (set(groups, &with(&[("enabled", Value::Null)])), &groups.change)
        }
        GroupAction::Disable(groups) => {
            (set(groups, &with(&[("enabled", json!(false))])), &groups.change)
        }
        GroupAction::Move { group, paths } => {
            let to = |path| Operation::MoveShare { path, group: group.clone() };
            (each(&paths.paths, to)?, &paths.change)
        }
        GroupAction::List { .. } => return Ok(None),
    }))
}

/// A batch of these operations.
pub(super) fn batch(operations: Vec<Operation>, comment: Option<&String>) -> Batch {
    Batch { operations, comment: comment.cloned(), partial: false }
}
