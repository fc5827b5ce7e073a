//! `steadfast check-config`: a configuration file, and the directories that it names.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use steadfast_catalog::Configuration;
use steadfast_control::{plain, read_token_file};
use steadfast_server::{directory_problem, size_problem};

use crate::configuration_file::read;

/// Checks a file, and prints what it shares, or its mistakes.
pub(crate) fn run(file: &Path) -> ExitCode {
    match check(file) {
        Ok(configuration) => {
            let count = configuration.shares.len();
            let shares = if count == 1 { "share" } else { "shares" };
            let lines = configuration.shares.iter().map(|settings| {
                let share = &settings.share;
                let line = format!("  {} from {}", share.path, share.directory().display());
                plain::line(&line).into_owned() + "\n"
            });
            let head = format!("{}: ok, {count} {shares}\n", file.display());
            let text: String = std::iter::once(head).chain(lines).collect();
            // Nobody may be reading.
            let _ = std::io::stdout().write_all(plain::lines(&text).as_bytes());
            for warning in configuration.warnings() {
                eprintln!("warning: {}", plain::line(&warning));
            }
            ExitCode::SUCCESS
        }
        Err(mistakes) => {
            for mistake in mistakes {
                eprintln!("{}", plain::line(&mistake));
            }
            ExitCode::FAILURE
        }
    }
}

/// Checks a file, the directories of its shares and the token of monitoring, also where something else is wrong.
///
/// # Errors
/// One line a mistake.
fn check(file: &Path) -> Result<Configuration, Vec<String>> {
    let read = read(file);
    let readable = if let Ok(configuration) = &read {
        configuration.clone()
    } else {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        Configuration::read(&text).0.unwrap_or_default()
    };
    let missing = readable.directories.iter().filter_map(|(directory, place)| {
        let problem = directory_problem(directory)?;
        Some(format!("{}:{place}: {problem}", file.display()))
    });
    let sizes = readable.shares.iter().filter_map(|settings| {
        let problem = size_problem(&settings.share)?;
        Some(format!("{}:{}: {problem}", file.display(), settings.directory_place))
    });
    let token = readable.metrics.token_file.iter().filter_map(|token| {
        let error = read_token_file(&token.value).err()?;
        Some(format!("{}:{}: token_file: {error}", file.display(), token.place))
    });
    let missing: Vec<_> = missing.chain(sizes).chain(token).collect();
    match read {
        Ok(configuration) if missing.is_empty() => Ok(configuration),
        Ok(_) => Err(missing),
        Err(mistakes) => {
            let mut all = [mistakes, missing].concat();
            let head = format!("{}:", file.display());
            // By line and column; what has none comes first.
            all.sort_by_cached_key(|mistake| {
                let mut numbers = mistake.strip_prefix(&head).unwrap_or_default().split(':');
                let mut next = || numbers.next().and_then(|number| number.parse::<usize>().ok());
                (next(), next())
            });
            Err(all)
        }
    }
}
