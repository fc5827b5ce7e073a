//! `steadfast share`, `group`, `apply`, `plan`, `rollback`, `history`, `reload`,
//! `import`, `export`: what is shared, asked of a running server and changed there.
//!
//! What is typed ([`arguments`]) becomes a batch ([`changes`]), which the server checks and does
//! as a whole; what it tells is shown as tables ([`text`]), or as JSON.

pub(crate) mod arguments;
mod changes;
mod import_files;
mod rule;
mod waiting;

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use steadfast_catalog::manage::{Batch, DefaultsSpec, Operation};
use steadfast_control::api::{
    AcceptRequest, Applied, Document, ExplainRequest, Import, Mistake, MountForm, MountingRequest,
    ShareFilter, Wish,
};
use steadfast_control::plain;
use steadfast_control::statistics::unix_time;
use steadfast_control::{AskError, Client};
use steadfast_observe::text::{self, table::Screen};
use steadfast_server::{directory_problem, planned_alone};

use crate::configuration_file::{CONFIGURATION_FILE, read};
use crate::output::print;
use crate::server_place::ServerChoice;
use arguments::{
    ApplyArguments, ChangeOptions, ExportArguments, GroupAction, GroupArguments, HistoryArguments,
    ImportArguments, PlanArguments, RollbackArguments, ShareAction, ShareArguments, ShareList,
    TellArguments,
};
use waiting::Waiting;

/// Mistakes that are told one by one; of more, how many.
const MISTAKES_MAX: usize = 50;

/// `steadfast share`
pub(crate) fn share(arguments: &ShareArguments) -> Result<()> {
    let client = arguments.server.client()?;
    match &arguments.action {
        ShareAction::Add(add) => {
            if !add.force && arguments.server.connect.is_none() {
                refuse_missing(add)?;
            }
            change(&client, changes::add(add)?, &add.change)
        }
        ShareAction::Set(set) => change(&client, changes::set(set)?, &set.change),
        ShareAction::Remove(paths) => change(&client, changes::remove(paths)?, &paths.change),
        ShareAction::Enable(paths) => change(&client, changes::enable(paths)?, &paths.change),
        ShareAction::Disable { paths, drain } => {
            change(&client, changes::disable(paths, *drain)?, &paths.change)
        }
        ShareAction::List(what) => list(&client, what),
        ShareAction::Show { path, json } => {
            let share = asked(client.share(&changes::path(path)?))?;
            if *json {
                return tell(true, &share, text::shares::share);
            }
            let asked_for =
                MountingRequest { path: share.path.clone(), ..MountingRequest::default() };
            // One of an older server is shown without.
            let mounting =
                share.state.is_served().then(|| client.mounting(&asked_for).ok()).flatten();
            let shown = |share: &_, screen| {
                text::shares::share(share, screen)
                    + &mounting.as_ref().map(text::mounting::in_short).unwrap_or_default()
            };
            tell(false, &share, shown)
        }
        ShareAction::Mounting { path, by, server_name, at, json } => {
            let request = MountingRequest {
                path: changes::path(path)?,
                server: server_name.clone(),
                at: at.clone(),
            };
            let mut told = asked(client.mounting(&request))?;
            told.forms.retain(|form| by.as_deref().is_none_or(|by| form.kind.word() == by));
            if *json {
                return print(&line(&told)?);
            }
            let text = match (by, &told.forms[..]) {
                (Some(_), [MountForm { why_not: Some(why), .. }]) => bail!("{why}"),
                (Some(_), [form]) => form.text.clone() + "\n",
                _ => text::mounting::forms(&told),
            };
            print(&plain::lines(&text))
        }
        ShareAction::Accept { paths, all, json } => {
            let paths = paths.iter().map(|path| changes::path(path)).collect::<Result<_>>()?;
            let done = asked(client.accept(&AcceptRequest { paths, all: *all }))?;
            tell(*json, &done, text::outcome::accepted)?;
            match done.warnings.len() {
                0 => Ok(()),
                count => bail!("{count} of them cannot be served"),
            }
        }
        ShareAction::Explain { words, sec, high_port, json } => {
            let request = request(words, sec, *high_port)?;
            let told = asked(client.explain(&request))?;
            tell(*json, &told, |told, _| told.sentences.join("\n") + "\n")
        }
    }
}

/// A share of nothing is most likely a slip of the pen.
fn refuse_missing(add: &arguments::ShareAdd) -> Result<()> {
    for path in add.directory.as_ref().map_or(add.paths.as_slice(), std::slice::from_ref) {
        let path = PathBuf::from(changes::path(path)?);
        // Only what this user can see.
        let is_missing = path.metadata().map_or_else(
            |error| error.kind() == std::io::ErrorKind::NotFound,
            |metadata| !metadata.is_dir(),
        );
        if let Some(problem) = directory_problem(&path).filter(|_| is_missing) {
            if path.as_os_str().as_encoded_bytes().iter().any(|byte| b"*?".contains(byte)) {
                bail!(
                    "{problem}; a pattern belongs to a group (steadfast group create NAME --pattern), or the shell \
                     expands it where it is not quoted"
                );
            }
            bail!("{problem}; with --force it is shared within a minute after it is there");
        }
    }
    Ok(())
}

fn request(words: &[String], sec: &str, high_port: bool) -> Result<ExplainRequest> {
    let (client, user, path) = match words {
        [client, path] => (client, None, path),
        [client, user, path] => (client, Some(user.clone()), path),
        _ => bail!("say CLIENT [USER] PATH"),
    };
    Ok(ExplainRequest {
        client: client.clone(),
        path: changes::path(path.as_ref())?,
        user,
        flavor: Some(sec.to_owned()),
        high_port,
    })
}

fn list(client: &Client, what: &ShareList) -> Result<()> {
    let filter = ShareFilter {
        group: what.group.clone(),
        state: what.state.map(Into::into),
        filled: what.filled,
        prefix: what.prefix.as_deref().map(changes::path).transpose()?,
        ..ShareFilter::default()
    };
    let waiting = Waiting::begin("listing shares");
    let page = asked(client.shares(&filter, |done, total| waiting.note(done, total)))?;
    drop(waiting);
    if what.json {
        let lines: Result<String> = page.shares.iter().map(line).collect();
        return print(&lines?);
    }
    if what.paths {
        // Programs get them as they are.
        let is_seen = std::io::stdout().is_terminal();
        let told = |path: &str| if is_seen { plain::line(path).into_owned() } else { path.into() };
        return print(&page.shares.iter().map(|it| told(&it.path) + "\n").collect::<String>());
    }
    let shares = plain::document(&page.shares)?;
    print(&text::shares::shares(&shares, page.total, Screen::of_stdout()))
}

/// `steadfast group`
pub(crate) fn group(arguments: &GroupArguments) -> Result<()> {
    let client = arguments.server.client()?;
    if let Some((operations, options)) = changes::groups(&arguments.action)? {
        return change(&client, operations, options);
    }
    let groups = asked(client.groups())?;
    if matches!(arguments.action, GroupAction::List { json: true }) {
        let lines: Result<String> = groups.iter().map(line).collect();
        return print(&lines?);
    }
    print(&text::shares::groups(&plain::document(&groups)?, Screen::of_stdout()))
}

/// `steadfast apply`
pub(crate) fn apply(arguments: &ApplyArguments) -> Result<()> {
    let wish = wish(&arguments.file, arguments.change.comment.as_ref(), arguments.partial)?;
    wished(&arguments.server.client()?, &wish, &arguments.change)
}

/// `steadfast plan`
pub(crate) fn plan(arguments: &PlanArguments) -> Result<()> {
    let wish = wish(&arguments.file, None, arguments.partial)?;
    let options = ChangeOptions { dry_run: true, json: arguments.json, ..ChangeOptions::default() };
    wished(&arguments.server.client()?, &wish, &options)
}

/// What a file asks for.
fn wish(file: &Path, comment: Option<&String>, partial: bool) -> Result<Wish> {
    let mut text = String::new();
    let (name, read) = if file == Path::new("-") {
        ("standard input".to_owned(), std::io::stdin().read_to_string(&mut text))
    } else {
        let read = std::fs::read_to_string(file);
        (
            file.display().to_string(),
            read.map(|read| {
                text = read;
                text.len()
            }),
        )
    };
    read.with_context(|| format!("{name} cannot be read"))?;
    if text.trim_start().starts_with('{') {
        let mut batch: Batch = serde_json::from_str(&text)
            .map_err(|error| anyhow!("{name}:{}:{}: {error}", error.line(), error.column()))?;
        batch.partial |= partial;
        batch.comment = comment.cloned().or(batch.comment);
        return Ok(Wish::Batch(batch));
    }
    Ok(Wish::Document(Document { document: text, name, comment: comment.cloned(), partial }))
}

/// `steadfast import`
pub(crate) fn import(arguments: &ImportArguments) -> Result<()> {
    let wanted = Import {
        form: import_files::form(arguments.from),
        exports: import_files::read(arguments.from, &arguments.files)?,
        group: arguments.group.clone(),
        comment: arguments.change.comment.clone(),
        partial: arguments.partial,
    };
    let client = arguments.server.client()?;
    if arguments.change.dry_run
        && let Err(error) = client.history()
        && error.is_without_server()
    {
        eprintln!("{error}; what follows is for a server that shares nothing yet");
        let planned = planned_alone(&wanted, defaults(&arguments.server));
        let planned = planned.map_err(|mistakes| {
            with_partial(&told_of_mistakes("mistakes in the files", &mistakes))
        })?;
        return tell(arguments.change.json, &planned, text::outcome::plan);
    }
    wished(&client, &Wish::Import(wanted), &arguments.change)
}

/// `[defaults]` of the configuration that is meant; mistakes in it are told elsewhere.
fn defaults(choice: &ServerChoice) -> DefaultsSpec {
    let file = choice.config.as_deref().unwrap_or(CONFIGURATION_FILE.as_ref());
    read(file).map(|configuration| configuration.defaults).unwrap_or_default()
}

/// `steadfast rollback`
pub(crate) fn rollback(arguments: &RollbackArguments) -> Result<()> {
    let client = arguments.server.client()?;
    if arguments.dry_run {
        let planned = asked(client.plan_rollback(arguments.state))?;
        return tell(arguments.json, &planned, text::outcome::plan);
    }
    let done = asked(client.rollback(arguments.state))?;
    tell(arguments.json, &done, text::outcome::applied)
}

/// `steadfast reload`
pub(crate) fn reload(arguments: &TellArguments) -> Result<()> {
    let done = asked(arguments.server.client()?.reload())?;
    tell(arguments.json, &done, text::outcome::applied)?;
    nothing_left_out(&done)
}

/// `steadfast history`
pub(crate) fn history(arguments: &HistoryArguments) -> Result<()> {
    let HistoryArguments { tell: arguments, follow } = arguments;
    if *follow {
        return watch(arguments);
    }
    let history = asked(arguments.server.client()?.history())?;
    tell(arguments.json, &history, |history, screen| {
        text::shares::history(history, unix_time(), screen)
    })
}

/// `steadfast export`
pub(crate) fn export(arguments: &ExportArguments) -> Result<()> {
    print(&asked(arguments.server.client()?.export(arguments.group.as_deref()))?)
}

/// `steadfast history --follow`
fn watch(arguments: &TellArguments) -> Result<()> {
    let screen = Screen::of_stdout();
    for event in asked(arguments.server.client()?.watch())? {
        let event = asked(event)?;
        let text = if arguments.json {
            line(&event)?
        } else {
            text::shares::event(&plain::document(&event)?, screen)
        };
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.context("cannot print")?,
        }
    }
    bail!("the server has stopped")
}

fn change(client: &Client, operations: Vec<Operation>, options: &ChangeOptions) -> Result<()> {
    let batch = changes::batch(operations, options.comment.as_ref());
    wished(client, &Wish::Batch(batch), options)
}

/// Has a wish done, or planned, and tells what came of it.
fn wished(client: &Client, wish: &Wish, options: &ChangeOptions) -> Result<()> {
    if options.dry_run {
        let waiting = Waiting::begin("planning");
        let planned = asked_for(wish, client.plan(wish))?;
        drop(waiting);
        return tell(options.json, &planned, text::outcome::plan);
    }
    let waiting = Waiting::begin("applying");
    let done = asked_for(wish, client.apply(wish, options.wait))?;
    drop(waiting);
    tell(options.json, &done, text::outcome::applied)?;
    nothing_left_out(&done)
}

/// Whether all was done, for the exit status.
fn nothing_left_out(done: &Applied) -> Result<()> {
    match done.mistakes.len() {
        0 => Ok(()),
        count => bail!("{count} left out, with mistakes"),
    }
}

/// An answer; what is wrong with what was asked, one line a mistake.
fn asked<T>(answer: Result<T, AskError>) -> Result<T> {
    answer.map_err(|error| match error.mistakes() {
        [] | [_] => anyhow!("{}", plain::line(&error.to_string())),
        mistakes => told_of_mistakes(&error.to_string(), mistakes),
    })
}

/// The same of a wish: one that files say can be done in part.
fn asked_for<T>(wish: &Wish, answer: Result<T, AskError>) -> Result<T> {
    let has_mistakes = answer.as_ref().is_err_and(|error| !error.mistakes().is_empty());
    let answer = asked(answer);
    match wish {
        Wish::Import(_) | Wish::Document(_) if has_mistakes => {
            answer.map_err(|error| with_partial(&error))
        }
        _ => answer,
    }
}

fn with_partial(error: &anyhow::Error) -> anyhow::Error {
    anyhow!("{error}\nnothing was done; --partial leaves out what has mistakes, and does the rest")
}

fn told_of_mistakes(head: &str, mistakes: &[Mistake]) -> anyhow::Error {
    let told = |what: &Mistake| plain::line(&what.to_string()).into_owned();
    let mut lines: Vec<String> = mistakes.iter().take(MISTAKES_MAX).map(told).collect();
    if let Some(more) = mistakes.len().checked_sub(MISTAKES_MAX).filter(|more| *more > 0) {
        lines.push(format!("and {more} more"));
    }
    anyhow!("{}:\n{}", plain::line(head), lines.join("\n"))
}

fn tell<T: Serialize + DeserializeOwned>(
    json: bool,
    value: &T,
    text: impl FnOnce(&T, Screen) -> String,
) -> Result<()> {
    print(&if json { line(value)? } else { text(&plain::document(value)?, Screen::of_stdout()) })
}

fn line(value: &impl Serialize) -> Result<String> {
    Ok(plain::json(value)? + "\n")
}

#[cfg(test)]
mod tests;
