//! The socket of a mount, and who answers there.

use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::gather::Subject;
use super::place::{prepare_directory, socket_directories, socket_name};
use crate::document::{Answer, REQUEST_BYTES_MAX, Request};

/// Who asks at one time; more are sent away.
const CONNECTIONS_MAX: usize = 32;
/// Of them, those who wait for a flush.
const FLUSHES_MAX: usize = 8;
/// How long one may take to ask, or to read an answer.
const ASKING: Duration = Duration::from_secs(1);
/// The longest time of a flush.
const FLUSH_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Pause after a connection could not be taken.
const PAUSE: Duration = Duration::from_millis(100);
/// Nobody else may connect.
const SOCKET_MODE: u32 = 0o600;

/// Answers for a mount, until it ends.
#[derive(Debug)]
pub(crate) struct Service {
    subject: Arc<Subject>,
    /// Who may ask beside root.
    user: u32,
    path: PathBuf,
    /// The socket's own number, so that another one's is not removed.
    inode: u64,
    is_closed: AtomicBool,
    connections: AtomicUsize,
    flushes: AtomicUsize,
}

impl Service {
    /// Begins to answer for a mount with this device.
    ///
    /// # Errors
    /// When there is no place for the socket.
    pub(crate) fn start(subject: Arc<Subject>, device: (u32, u32)) -> io::Result<Arc<Self>> {
        let user = rustix::process::geteuid().as_raw();
        let mut outcome = Err(io::Error::from(io::ErrorKind::NotFound));
        for directory in socket_directories(user) {
            outcome = bind(&directory, &socket_name(device), user);
            if outcome.is_ok() {
                break;
            }
        }
        let (listener, path) = outcome?;
        let service = Arc::new(Self {
            subject,
            user,
            inode: std::fs::symlink_metadata(&path)?.ino(),
            path,
            is_closed: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            flushes: AtomicUsize::new(0),
        });
        let this = Arc::clone(&service);
        let thread = thread::Builder::new().name("nfs-status".to_owned());
        thread.spawn(move || this.listen(&listener))?;
        Ok(service)
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        let is_ours = |path: &Path| {
            std::fs::symlink_metadata(path).is_ok_and(|found| found.ino() == self.inode)
        };
        if is_ours(&self.path) {
            // So that the listener looks.
            let _ = UnixStream::connect(&self.path);
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn listen(self: &Arc<Self>, listener: &UnixListener) {
        while !self.is_closed.load(Ordering::Relaxed) {
            let Ok((stream, _)) = listener.accept() else {
                thread::sleep(PAUSE);
                continue;
            };
            // A place is given back when it is dropped, also if no thread can be started.
            let Some(place) = Taken::of(self, CONNECTIONS_MAX, |service| &service.connections)
            else {
                let why = "too many ask it at one time: ask again in a second".to_owned();
                // It waits for nobody: what does not fit into the socket's buffer is not said.
                let _ = stream
                    .set_nonblocking(true)
                    .and_then(|()| tell(&stream, &Answer::Refused(why)));
                continue;
            };
            let this = Arc::clone(self);
            let thread = thread::Builder::new().name("nfs-status".to_owned());
            let spawned = thread.spawn(move || {
                let _place = place;
                // Whoever asked may be gone.
                let _ = this.serve(stream);
            });
            if let Err(error) = spawned {
                tracing::warn!(%error, "cannot start a thread: a question about the mount is not answered");
            }
        }
    }

    fn serve(self: &Arc<Self>, mut stream: UnixStream) -> io::Result<()> {
        stream.set_write_timeout(Some(ASKING))?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        let answer = if [0, self.user].contains(&peer.uid.as_raw()) {
            match read_request(&mut stream)? {
                Ok(request) => self.answer(request, &stream)?,
                Err(why) => Answer::Refused(why),
            }
        } else {
            Answer::Refused("only root and the user who has mounted it may ask".to_owned())
        };
        tell(&stream, &answer)
    }

    fn answer(self: &Arc<Self>, request: Request, stream: &UnixStream) -> io::Result<Answer> {
        let Request::Flush(flush) = request else {
            return Ok(Answer::Status(Box::new(self.subject.document())));
        };
        let Some(_place) = Taken::of(self, FLUSHES_MAX, |service| &service.flushes) else {
            return Ok(Answer::Refused(format!("{FLUSHES_MAX} flushes are under way already")));
        };
        let timeout = Duration::from_millis(flush.timeout_ms).min(FLUSH_MAX);
        stream.set_nonblocking(true)?;
        let is_waited_for = || {
            // Nothing more is to come; the end says that nobody waits.
            let outcome = (&*stream).read(&mut [0]);
            matches!(outcome, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
        };
        let flushed = self.subject.flush(timeout, is_waited_for);
        stream.set_nonblocking(false)?;
        Ok(Answer::Flush(Box::new(flushed)))
    }
}

/// A place among a bounded number.
struct Taken {
    service: Arc<Service>,
    which: fn(&Service) -> &AtomicUsize,
}

impl Taken {
    fn of(service: &Arc<Service>, max: usize, which: fn(&Service) -> &AtomicUsize) -> Option<Self> {
        let taken = Self { service: Arc::clone(service), which };
        // If there were too many, it is given back at once.
        let before = which(service).fetch_add(1, Ordering::Relaxed);
        (before < max).then_some(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        (self.which)(&self.service).fetch_sub(1, Ordering::Relaxed);
    }
}

fn tell(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// One line, that comes soon. The inner error is for whoever asked.
fn read_request(stream: &mut UnixStream) -> io::Result<Result<Request, String>> {
    let begun = Instant::now();
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let left = ASKING.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut buffer = [0; REQUEST_BYTES_MAX as usize];
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if line.len() as u64 > REQUEST_BYTES_MAX {
            return Ok(Err("the question is too long".to_owned()));
        }
    }
    let request = serde_json::from_slice(&line);
    Ok(request.map_err(|error| format!("the question is not understood: {error}")))
}

/// Takes the place of a socket that a dead process has left.
fn bind(directory: &Path, name: &str, user: u32) -> io::Result<(UnixListener, PathBuf)> {
    prepare_directory(directory, user)?;
    let path = directory.join(name);
    let new = directory.join(format!(".{name}.{}", std::process::id()));
    // Left by a dead process that had our number.
    let _ = std::fs::remove_file(&new);
    let listener = UnixListener::bind(&new)?;
    let placed = std::fs::set_permissions(&new, Permissions::from_mode(SOCKET_MODE))
        .and_then(|()| std::fs::rename(&new, &path));
    match placed {
        Ok(()) => Ok((listener, path)),
        Err(error) => {
            let _ = std::fs::remove_file(&new);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(bytes: &[u8]) -> Result<Request, String> {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        one.write_all(bytes).unwrap();
        read_request(&mut other).unwrap()
    }

    #[test]
    fn a_question_is_one_short_line() {
        assert_eq!(ask(b"\"status\"\n"), Ok(Request::Status));
        assert!(ask(b"\"status\" \n\n").is_ok());
        assert!(ask(b"\"status\"\n\"status\"\n").is_err());
        assert!(ask(b"\xff\n").is_err());
        assert!(ask(&[b' '; REQUEST_BYTES_MAX as usize + 1]).unwrap_err().contains("too long"));
    }

    #[test]
    fn who_says_nothing_is_not_waited_for() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let begun = Instant::now();
        assert!(read_request(&mut other).is_err());
        assert!(begun.elapsed() >= ASKING / 2);
        drop(one);
        assert!(read_request(&mut other).is_err());
    }

    #[test]
    fn the_socket_of_a_dead_process_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let directory = place.path().join("sockets");
        let (dead, path) = bind(&directory, "0:50", user).unwrap();
        drop(dead);
        assert!(UnixStream::connect(&path).is_err());
        let (_alive, again) = bind(&directory, "0:50", user).unwrap();
        assert_eq!(path, again);
        assert!(UnixStream::connect(&path).is_ok());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        std::fs::write(directory.join("0:51"), "a file").unwrap();
        assert!(bind(&directory, "0:51", user).is_ok());
    }
}
