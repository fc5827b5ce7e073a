//! `steadfast mount`, and the same as a helper of mount(8) (`mount.steadfast`).
//!
//! In the background is a second process, which tells the first one when the mount stands. Exit status
//! as mount(8) has it: 0 mounted, 1 a wrong option, 2 a wrong command line, 32 failed.
//!
//! `steadfast mount status` and `steadfast mount flush` ask processes that stay (`asking`): a share always has a
//! colon in its name, so that these words are no share.

mod asking;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use steadfast_catalog::configuration::LogTarget;
use steadfast_control::plain;
use steadfast_mount::{Connected, Mounted, Options, Specification, Unmounter, connect};
use steadfast_sys::process::Signals;

use crate::logging;
use asking::MountAction;

/// The name under which mount(8) calls this program.
pub(crate) const HELPER_NAME: &str = "mount.steadfast";
/// What the background process says when the mount stands.
const READY: &str = "ready";
/// What it says before the reason, when it goes on trying.
const LATER: &str = "later: ";
/// How long is waited before mounting is tried again.
const RETRY: Duration = Duration::from_secs(2);
const USAGE: u8 = 1;
const FAILED: u8 = 32;
/// Of a question about mounts.
const ASKED_FAILED: u8 = 1;

/// Exit status: 0 mounted, 1 a wrong option, 2 a wrong command line, 32 failed.
#[derive(Clone, Debug, Default, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct MountArguments {
    #[command(subcommand)]
    action: Option<MountAction>,
    /// What to mount: the server, a colon, and the path of a share or below one.
    #[arg(value_name = "SERVER:/SHARE", required = true)]
    source: Option<String>,
    /// Where to.
    #[arg(required = true)]
    directory: Option<PathBuf>,
    /// Options as in nfs(5), separated by commas: mount.steadfast(8) has the list.
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground until the share is unmounted; signals unmount it.
    #[arg(long)]
    foreground: bool,
    /// Log more; twice for every detail.
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Tell on standard output when the mount stands, and leave the terminal.
    #[arg(long, hide = true, requires = "foreground")]
    ready: bool,
    /// End the FUSE connection that is standard output when the process that has started this one is dead.
    #[arg(long, hide = true, exclusive = true, value_name = "PROCESS")]
    guard: Option<u32>,
}

/// What mount(8) calls a helper with: `SPEC DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`.
pub(crate) fn run_helper(words: impl Iterator<Item = OsString>) -> ExitCode {
    match helper_arguments(words) {
        Ok(Some(arguments)) => run(&arguments),
        Ok(None) => ExitCode::SUCCESS,
        Err(why) => told(USAGE, &why),
    }
}

/// `None`: nothing is to be done (`-f`).
fn helper_arguments(
    words: impl Iterator<Item = OsString>,
) -> Result<Option<MountArguments>, String> {
    let mut arguments = MountArguments::default();
    let (mut places, mut is_fake) = (Vec::new(), false);
    let mut words = words;
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        let Some(letters) = text.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            places.push(word);
            continue;
        };
        for letter in letters.chars() {
            match letter {
                'f' => is_fake = true,
                'v' => arguments.verbose += 1,
                'r' => arguments.options.push("ro".to_owned()),
                'w' => arguments.options.push("rw".to_owned()),
                's' | 'n' => {}
                'o' => {
                    let options = words.next().ok_or("-o needs options")?;
                    let options = options.into_string().map_err(|_| "options must be UTF-8")?;
                    arguments.options.push(options);
                }
                't' => drop(words.next()),
                'N' => return Err("another namespace (-N) is not supported".to_owned()),
                _ => return Err(format!("unknown option -{letter}")),
            }
        }
    }
    let [source, directory] = <[OsString; 2]>::try_from(places)
        .map_err(|_| format!("usage: {HELPER_NAME} SERVER:/SHARE DIR [-fv] [-o OPTIONS]"))?;
    arguments.source = Some(source.into_string().map_err(|_| "the share's path must be UTF-8")?);
    arguments.directory = Some(directory.into());
    Ok((!is_fake).then_some(arguments))
}

pub(crate) fn run(arguments: &MountArguments) -> ExitCode {
    if let Some(action) = &arguments.action {
        let outcome = asking::run(action);
        return outcome.unwrap_or_else(|error| told(ASKED_FAILED, &format!("{error:#}")));
    }
    if let Some(parent) = arguments.guard {
        // There is nobody to be told of an error.
        return steadfast_mount::guard(parent)
            .map_or(ExitCode::from(FAILED), |()| ExitCode::SUCCESS);
    }
    // Without an action both are there: clap and `helper_arguments` see to that.
    let (Some(source), Some(directory)) = (&arguments.source, &arguments.directory) else {
        return told(USAGE, "say what to mount, and where to: SERVER:/SHARE DIR");
    };
    let parsed = Specification::parse(source).map_err(|error| error.to_string());
    let parsed = parsed.and_then(|what| {
        let options = Options::parse(&arguments.options.join(","));
        options.map(|options| (what, options)).map_err(|error| error.to_string())
    });
    let (what, options) = match parsed {
        Ok(parsed) => parsed,
        Err(why) => return told(USAGE, &why),
    };
    let outcome = if arguments.foreground {
        in_foreground(arguments, (source, directory), &what, &options)
    } else {
        in_background(arguments, (source, directory))
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        // The other process has told why.
        Ok(false) => ExitCode::from(FAILED),
        Err(error) => told(FAILED, &format!("{error:#}")),
    }
}

fn told(status: u8, why: &str) -> ExitCode {
    // The terminal may be gone.
    let _ = writeln!(std::io::stderr(), "steadfast mount: {}", plain::lines(why));
    ExitCode::from(status)
}

/// Starts the process that stays; true once the mount stands.
fn in_background(arguments: &MountArguments, (source, directory): (&str, &Path)) -> Result<bool> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    // Whatever name this program was called by.
    command.arg0("steadfast").args(["mount", "--foreground", "--ready"]);
    for options in &arguments.options {
        command.arg("-o").arg(options);
    }
    command.args((0..arguments.verbose).map(|_| "-v"));
    command.arg("--").arg(source).arg(directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot start the background process")?;
    // Through pipes, so that the process that stays keeps neither terminal nor file of its caller.
    let errors = child.stderr.take();
    let errors = thread::spawn(move || {
        if let Some(mut errors) = errors {
            let _ = std::io::copy(&mut errors, &mut std::io::stderr());
        }
    });
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    let line = line.trim_end();
    if let Some(why) = line.strip_prefix(LATER) {
        let _ = writeln!(
            std::io::stderr(),
            "steadfast mount: {}; trying again in the background",
            plain::lines(why)
        );
    }
    if line == READY || line.starts_with(LATER) {
        return Ok(true);
    }
    child.wait()?;
    let _ = errors.join();
    Ok(false)
}

fn in_foreground(
    arguments: &MountArguments,
    (source, directory): (&str, &Path),
    what: &Specification,
    options: &Options,
) -> Result<bool> {
    // Before there are other threads, so that all leave signals to the one that waits for them.
    let signals = Signals::block().context("cannot block signals")?;
    if arguments.ready {
        // A session of its own: what ends the terminal does not end the mount.
        let _ = rustix::process::setsid();
    }
    let target = if arguments.ready { LogTarget::Journald } else { LogTarget::Stderr };
    // In the background there is the journal, or nobody to log to.
    logging::start(target, None, arguments.verbose)
        .or_else(|error| if arguments.ready { Ok(()) } else { Err(error) })?;
    let found = directory.canonicalize();
    let directory = &found.with_context(|| format!("{}", directory.display()))?;
    let mut is_told = !arguments.ready;
    let Some(connected) = connect_in_time(what, options, &signals, &mut is_told)? else {
        return Ok(false);
    };
    let mounted = Mounted::mount(connected, source, directory, options)
        .with_context(|| format!("cannot mount at {}", directory.display()))?;
    let unmounter = mounted.unmounter();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || await_signals(&signals, &unmounter))?;
    if !is_told {
        tell(READY)?;
    }
    mounted.guard_with(guard_command());
    mounted.serve().context("the connection to the kernel failed")?;
    Ok(true)
}

/// This program, though its file may have been replaced.
fn guard_command() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("steadfast").args(["mount", "--guard", &std::process::id().to_string()]);
    command
}

/// Whoever started this process need not wait any more.
fn tell(line: &str) -> Result<()> {
    std::env::set_current_dir("/")?;
    let mut output = std::io::stdout();
    writeln!(output, "{line}")?;
    output.flush()?;
    Ok(())
}

/// Connects, again and again for as long as the options say, while the server cannot be reached. With
/// `bg` nobody waits after the first attempt. `None`: a signal has ended it.
fn connect_in_time(
    what: &Specification,
    options: &Options,
    signals: &Signals,
    is_told: &mut bool,
) -> Result<Option<Connected>> {
    let begun = Instant::now();
    loop {
        let error = match connect(what, options) {
            Ok(connected) => return Ok(Some(connected)),
            Err(error) => error,
        };
        if !error.is_temporary() || begun.elapsed() >= options.retries_for() {
            if *is_told {
                tracing::error!(%error, "cannot mount");
            }
            return Err(error.into());
        }
        tracing::warn!(%error, "cannot mount yet, and try again");
        if options.in_background && !*is_told {
            tell(&format!("{LATER}{}", error.to_string().replace('\n', " ")))?;
            *is_told = true;
        }
        if signals.wait(RETRY)?.is_some() {
            return Ok(None);
        }
    }
}

/// Any signal unmounts; a second one does not wait for what is still to be written.
fn await_signals(signals: &Signals, unmounter: &Unmounter) {
    let mut is_unmounting = false;
    loop {
        match signals.wait(Duration::from_secs(3600)) {
            Ok(Some(_)) if is_unmounting => {
                tracing::error!("ended by a second signal: data that was not written is lost");
                steadfast_sys::process::exit_at_once(i32::from(FAILED));
            }
            Ok(Some(signal)) => {
                tracing::info!(%signal, "unmounting");
                is_unmounting = true;
                if let Err(error) = unmounter.unmount() {
                    tracing::error!(%error, "cannot unmount");
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, "cannot wait for signals");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helper(words: &[&str]) -> Result<Option<MountArguments>, String> {
        helper_arguments(words.iter().map(|word| OsString::from(*word)))
    }

    #[test]
    fn mount_8_is_understood() {
        let arguments = helper(&["h:/s", "/mnt", "-sv", "-o", "ro,nolock"]).unwrap().unwrap();
        assert_eq!((arguments.source.as_deref(), arguments.verbose), (Some("h:/s"), 1));
        assert_eq!(arguments.options, ["ro,nolock"]);
        assert!(helper(&["h:/s", "/mnt", "-f"]).unwrap().is_none());
        assert!(helper(&["h:/s", "/mnt", "-t", "fuse.steadfast", "-n"]).unwrap().is_some());
        for wrong in
            [&["h:/s"][..], &["h:/s", "/mnt", "-o"], &["h:/s", "/mnt", "-q"], &["a", "b", "c"]]
        {
            assert!(helper(wrong).is_err(), "{wrong:?}");
        }
    }
}
