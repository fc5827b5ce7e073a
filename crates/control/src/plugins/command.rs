//! Other programs: run with bounds on their time and on what they say.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Between two looks at whether a program has ended, once it has nothing more to say.
const LOOK: Duration = Duration::from_millis(5);

/// Bounds of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From its start to its end; then it is killed, with what it started.
    pub time: Duration,
    /// Of what it says, on each of its outputs, in bytes; what is more is not kept.
    pub output_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time: Duration::from_secs(30), output_bytes_max: 1 << 20 }
    }
}

/// Why a program did not do what it was run for.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It could not be started.
    #[error("{program} cannot be run: {source}")]
    Start {
        /// It.
        program: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// It took too long.
    #[error("{program} did not end within {} s, and was killed", .after.as_secs_f32())]
    TimedOut {
        /// It.
        program: String,
        /// How long it had.
        after: Duration,
    },
    /// It says so itself.
    #[error("{program} failed ({status}){}{said}", if .said.is_empty() { "" } else { ": " })]
    Failed {
        /// It.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it said on its standard error, in one line.
        said: String,
    },
}

/// What a program that succeeded said.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// Runs a program with this on its standard input.
pub(super) fn run(
    command: &mut Command,
    input: Vec<u8>,
    limits: Limits,
) -> Result<Said, CommandError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let deadline = Instant::now() + limits.time;
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own, so that what it starts can be killed with it.
    command.process_group(0);
    let failed = |source| CommandError::Start { program: program.clone(), source };
    let mut child = command.spawn().map_err(failed)?;
    let (sender, outputs) = mpsc::channel();
    let result = talk(&mut child, input, limits, &sender)
        .map_err(failed)
        .and_then(|()| listen(&mut child, &program, &outputs, deadline, limits));
    if !matches!(result, Ok(_) | Err(CommandError::Failed { .. })) {
        end(&mut child);
    }
    result
}

/// Threads that write to it and read from it, since it may do either first. They end with it, or
/// with whoever got its pipes from it.
fn talk(
    child: &mut Child,
    input: Vec<u8>,
    limits: Limits,
    sender: &mpsc::Sender<(bool, Vec<u8>)>,
) -> io::Result<()> {
    let thread = || std::thread::Builder::new().name("plugin-pipe".to_owned());
    if let Some(mut stdin) = child.stdin.take() {
        thread().spawn(move || {
            // Whether it reads all of it is its own affair.
            let _ = stdin.write_all(&input);
        })?;
    }
    if let Some(stdout) = child.stdout.take() {
        let sender = sender.clone();
        thread().spawn(move || sender.send((false, read(stdout, limits.output_bytes_max))))?;
    }
    if let Some(stderr) = child.stderr.take() {
        let sender = sender.clone();
        thread().spawn(move || sender.send((true, read(stderr, limits.output_bytes_max))))?;
    }
    Ok(())
}

/// Waits for what it says, and for its end.
fn listen(
    child: &mut Child,
    program: &str,
    outputs: &mpsc::Receiver<(bool, Vec<u8>)>,
    deadline: Instant,
    limits: Limits,
) -> Result<Said, CommandError> {
    let timed_out = || CommandError::TimedOut { program: program.to_owned(), after: limits.time };
    let mut said = Said::default();
    for _ in 0..2 {
        let left = deadline.saturating_duration_since(Instant::now());
        let (is_error, text) = outputs.recv_timeout(left).map_err(|_| timed_out())?;
        *(if is_error { &mut said.stderr } else { &mut said.stdout }) = text;
    }
    loop {
        let status = child
            .try_wait()
            .map_err(|source| CommandError::Start { program: program.to_owned(), source })?;
        match status {
            Some(status) if status.success() => return Ok(said),
            Some(status) => {
                let said = last_line(&said.stderr);
                return Err(CommandError::Failed { program: program.to_owned(), status, said });
            }
            None if Instant::now() >= deadline => return Err(timed_out()),
            None => std::thread::sleep(LOOK),
        }
    }
}

/// Reads to the end, and keeps the first bytes of it: who goes on talking is not made to wait.
fn read(mut from: impl Read, bytes_max: usize) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return kept,
            Ok(length) => {
                let room = bytes_max.saturating_sub(kept.len()).min(length);
                kept.extend(buffer.get(..room).unwrap_or_default());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return kept,
        }
    }
}

/// Kills it and what it started, and waits for it.
fn end(child: &mut Child) {
    // Its group has its number, which is nobody else's until it is waited for.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.kill();
    let _ = child.wait();
}

/// The last line that says something, bounded, without what a terminal would obey.
pub(super) fn last_line(text: &[u8]) -> String {
    const CHARS_MAX: usize = 300;
    let text = String::from_utf8_lossy(text);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or_default().chars().filter(|c| !c.is_control()).take(CHARS_MAX).collect()
}
