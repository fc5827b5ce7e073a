//! Asks the process of a mount. It waits for nothing else: neither for the mount nor for its server.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

use super::place::{MountPoint, socket_directories, socket_name};
use crate::document::{
    ANSWER_BYTES_MAX, Answer, FlushRequest, Flushed, MountStatus, Request, shown,
};

/// How long a process may take to say how it is.
const PROMPT: Duration = Duration::from_millis(800);
/// How much longer than its time a flush may take to answer.
const SLACK: Duration = Duration::from_secs(2);

/// Why a mount does not say how it is.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The process is alive, and does not answer.
    #[error("the process of the mount does not answer: it hangs or is stopped")]
    Hangs,
    /// The process is gone.
    #[error(
        "nobody answers for the mount: its process has ended (umount {directory}, and mount again)"
    )]
    Dead {
        /// The mount point.
        directory: String,
    },
    /// Only who has mounted it, and root, may ask.
    #[error("it was mounted by user {user}: only that user and root may ask")]
    NotAllowed {
        /// Who has mounted it.
        user: u32,
    },
    /// The process said no.
    #[error("the process of the mount refuses: {0}")]
    Refused(String),
    /// What came is no answer.
    #[error("the process of the mount gave no proper answer: {0} (is it of another version?)")]
    Malformed(String),
    /// The socket failed.
    #[error("cannot ask the process of the mount: {0}")]
    Io(#[from] io::Error),
}

/// Asks a mount how it is. Takes less than a second.
///
/// # Errors
/// See [`AskError`].
pub fn status(mount: &MountPoint) -> Result<MountStatus, AskError> {
    match ask(mount, Request::Status, PROMPT)? {
        Answer::Status(status) => Ok(*status),
        other => Err(unexpected(&other)),
    }
}

/// Has everything that was written to a mount so far made stable at its server. Returns after this time at the
/// latest, and a little: the answer says whether it is done.
///
/// # Errors
/// See [`AskError`].
pub fn flush(mount: &MountPoint, timeout: Duration) -> Result<Flushed, AskError> {
    // A process that hangs is known at once.
    status(mount)?;
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let request = Request::Flush(FlushRequest { timeout_ms });
    match ask(mount, request, timeout.saturating_add(SLACK))? {
        Answer::Flush(flushed) => Ok(*flushed),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(answer: &Answer) -> AskError {
    match answer {
        Answer::Refused(why) => AskError::Refused(why.clone()),
        _ => AskError::Malformed("it answers another question".to_owned()),
    }
}

fn ask(mount: &MountPoint, request: Request, at_most: Duration) -> Result<Answer, AskError> {
    converse(connect(mount)?, request, at_most)
}

/// Asks, and waits `at_most` so long for the answer.
fn converse(
    mut stream: UnixStream,
    request: Request,
    at_most: Duration,
) -> Result<Answer, AskError> {
    let begun = Instant::now();
    let mut line = serde_json::to_vec(&request).map_err(io::Error::from)?;
    line.push(b'\n');
    stream.set_write_timeout(Some(PROMPT))?;
    match stream.write_all(&line) {
        // It refuses some without hearing them, and closes: what it has said is there to be read.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        asked => asked.map_err(of_io)?,
    }
    let mut answer = Vec::new();
    let mut buffer = [0; 16 << 10];
    while !answer.ends_with(b"\n") {
        let left = at_most.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(AskError::Hangs);
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut buffer).map_err(of_io)?;
        if count == 0 {
            return Err(AskError::Malformed("it ends early".to_owned()));
        }
        answer.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if answer.len() as u64 > ANSWER_BYTES_MAX {
            return Err(AskError::Malformed("it is too long".to_owned()));
        }
    }
    serde_json::from_slice(&answer).map_err(|error| AskError::Malformed(error.to_string()))
}

fn of_io(error: io::Error) -> AskError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AskError::Hangs,
        _ => AskError::Io(error),
    }
}

fn connect(mount: &MountPoint) -> Result<UnixStream, AskError> {
    let not_allowed = || AskError::NotAllowed { user: mount.user };
    for directory in socket_directories(mount.user) {
        let path = directory.join(socket_name(mount.device));
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // A process that takes no connections lets others wait without an end.
        socket.set_nonblocking(true)?;
        match socket.connect(&SockAddr::unix(&path)?) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(AskError::Hangs),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(not_allowed());
            }
            // Somebody else may have made the second directory, or the first one was left by the dead.
            Err(_) => continue,
        }
        socket.set_nonblocking(false)?;
        let stream = UnixStream::from(std::os::fd::OwnedFd::from(socket));
        let peer = rustix::net::sockopt::socket_peercred(&stream).map_err(io::Error::from)?;
        // Also not somebody of root: who owns the directory could lead to any socket.
        if peer.uid.as_raw() == mount.user {
            return Ok(stream);
        }
    }
    let own = rustix::process::geteuid().as_raw();
    if ![0, mount.user].contains(&own) {
        return Err(not_allowed());
    }
    Err(AskError::Dead { directory: shown(&mount.directory) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_before_the_question_was_read_is_told_why() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"{\"refused\":\"no\"}\n").unwrap();
        drop(theirs);
        let told = converse(ours, Request::Status, PROMPT);
        assert!(matches!(&told, Ok(Answer::Refused(why)) if why == "no"), "{told:?}");
        // Who was not told anything is told that much.
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let told = converse(ours, Request::Status, PROMPT);
        assert!(matches!(&told, Err(AskError::Malformed(_))), "{told:?}");
    }
}
