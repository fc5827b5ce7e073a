//! Options of `serve` by the environment, as containers are configured (docs/containers.md): `--no-udp` is also
//! `STEADFAST_SERVE_NO_UDP=true`.

use std::ffi::OsString;

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches};

use crate::arguments::{Arguments, Command};

/// Begins the names of the variables. Kubernetes gives a container variables of its own, `STEADFAST_PORT` and others,
/// beside a service that is called steadfast.
const PREFIX: &str = "STEADFAST_SERVE_";
/// What is served, with colons between, if the command line names nothing.
const DIRECTORIES: &str = "STEADFAST_SERVE_DIRECTORIES";
/// Options without a variable: what is said once, and what is no setting.
const WITHOUT: [&str; 4] = ["new-handle-key", "verbose", "unsafe-async", "help"];

/// The command line, with the variable of each option.
pub(crate) fn described() -> clap::Command {
    let described = Arguments::command();
    with_full_stops(described).mut_subcommand("serve", |serve| serve.mut_args(with_variable))
}

/// A text of several sentences gets the full stop back that clap takes from its end.
fn with_full_stops(command: clap::Command) -> clap::Command {
    let ended = |text: String| {
        let lacks_it = text.contains(". ") && text.ends_with(char::is_alphanumeric);
        lacks_it.then(|| text + ".")
    };
    let about = command.get_about().and_then(|about| ended(about.to_string()));
    let command = match about {
        Some(about) => command.about(about),
        None => command,
    };
    let command =
        command.mut_args(|one| match one.get_help().and_then(|help| ended(help.to_string())) {
            Some(help) => one.help(help),
            None => one,
        });
    command.mut_subcommands(with_full_stops)
}

/// Understands these words, and the environment. What is typed outweighs a variable, also one that it conflicts with.
///
/// # Errors
/// What clap has to say: help, the version, or what is wrong. A variable that no option has is wrong, too.
pub(crate) fn understand(
    words: impl IntoIterator<Item = OsString>,
) -> Result<Arguments, clap::Error> {
    let words: Vec<OsString> = words.into_iter().collect();
    let plain = Arguments::command();
    let Ok(mut typed) = plain.clone().try_get_matches_from(&words) else {
        // Help and usage name the variables.
        return Arguments::from_arg_matches_mut(&mut described().try_get_matches_from(words)?);
    };
    let (Some(serve), Some(of_serve)) =
        (plain.find_subcommand("serve"), typed.subcommand_matches("serve"))
    else {
        return Arguments::from_arg_matches_mut(&mut typed);
    };
    refuse_unknown(serve)?;
    let outweighed: Vec<clap::Id> = serve
        .get_arguments()
        .filter(|argument| is_outweighed(serve, argument, of_serve))
        .map(|argument| argument.get_id().clone())
        .collect();
    let named = |argument: Arg| {
        if is_off(&argument) || outweighed.contains(argument.get_id()) {
            return argument;
        }
        with_variable(argument)
    };
    let command = plain.clone().mut_subcommand("serve", |serve| serve.mut_args(named));
    let mut arguments = Arguments::from_arg_matches_mut(&mut command.try_get_matches_from(words)?)?;
    if let Command::Serve(serve) = &mut arguments.command
        && serve.directories.is_empty()
        && let Some(directories) = std::env::var_os(DIRECTORIES)
    {
        let paths = std::env::split_paths(&directories);
        serve.directories = paths.filter(|path| !path.as_os_str().is_empty()).collect();
    }
    Ok(arguments)
}

/// The name of an option's variable, if it has one.
fn variable(argument: &Arg) -> Option<String> {
    let long = argument.get_long().filter(|long| !WITHOUT.contains(long))?;
    Some(format!("{PREFIX}{}", long.to_uppercase().replace('-', "_")))
}

fn is_switch(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::SetTrue)
}

fn with_variable(argument: Arg) -> Arg {
    let Some(name) = variable(&argument) else { return argument };
    let is_switch = is_switch(&argument);
    let argument = argument.env(name).hide_env_values(true);
    if is_switch { argument.value_parser(BoolishValueParser::new()) } else { argument }
}

/// Whether a switch is off by its variable: to clap it would be given, and conflict with others.
fn is_off(argument: &Arg) -> bool {
    let value = variable(argument)
        .filter(|_| is_switch(argument))
        .and_then(|name| std::env::var(name).ok());
    // As clap's own reading of them.
    value.is_some_and(|value| {
        ["n", "no", "f", "false", "off", "0"].contains(&value.to_lowercase().as_str())
    })
}

/// Whether something is typed that an option excludes, or that excludes it.
fn is_outweighed(serve: &clap::Command, argument: &Arg, typed: &ArgMatches) -> bool {
    let excludes = |one: &Arg, other: &Arg| {
        serve.get_arg_conflicts_with(one).iter().any(|it| it.get_id() == other.get_id())
    };
    serve.get_arguments().any(|other| {
        typed.value_source(other.get_id().as_str()) == Some(ValueSource::CommandLine)
            && (excludes(argument, other) || excludes(other, argument))
    })
}

/// A variable that is misspelt must not let more people in than was meant.
fn refuse_unknown(serve: &clap::Command) -> Result<(), clap::Error> {
    let known: Vec<String> = serve.get_arguments().filter_map(variable).collect();
    for (name, _) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        if name != DIRECTORIES && !known.iter().any(|known| known == name) {
            let why = format!("{name} is no variable of an option: see steadfast serve --help\n");
            return Err(clap::Error::raw(ErrorKind::UnknownArgument, why));
        }
    }
    Ok(())
}
