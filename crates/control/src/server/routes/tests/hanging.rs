//! A disk hangs, and questions that need it are asked again and again.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::super::*;
use super::{Fake, services};
use crate::statistics::Statistics;
use crate::{Control, ControlOptions};

/// For everything that has to happen, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A disk that hangs until it is told not to.
#[derive(Default)]
pub(super) struct Hanging {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: usize,
    answers: bool,
}

impl Hanging {
    /// Of who needs the disk.
    pub(super) fn wait(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.waiting += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.answers).expect("no panic"));
    }

    fn wait_for(&self, waiting: usize) {
        let state = self.state.lock().expect("no panic");
        let few = |state: &mut State| state.waiting < waiting;
        let waited = self.changed.wait_timeout_while(state, PATIENCE, few);
        let (state, timeout) = waited.expect("no panic");
        assert!(!timeout.timed_out(), "{} of {waiting} wait", state.waiting);
    }

    fn end(&self) {
        // Not poisoned by a test that has failed: what hangs must end.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner).answers = true;
        self.changed.notify_all();
    }
}

fn asked(place: &Path, path: &str) -> UnixStream {
    let mut stream = UnixStream::connect(place.join(crate::SOCKET_NAME)).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.set_write_timeout(Some(PATIENCE)).expect("set");
    let _ = write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream
}

fn status(place: &Path, path: &str) -> Option<String> {
    let mut answer = String::new();
    let _ = asked(place, path).read_to_string(&mut answer);
    answer.get(9..12).map(str::to_owned)
}

/// Asks so often for what hangs that there is no more room for it, and says which status each of `others` has then.
fn others_meanwhile<const N: usize>(
    services: Services,
    disk: &Hanging,
    (hangs, most): (&str, usize),
    others: [&str; N],
) -> [Option<String>; N] {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    let options = ControlOptions::default();
    let control = Control::start(place, &options, router(services)).expect("started");
    for count in 1..=most {
        // Whoever asked does not wait for the answer.
        let asker = asked(place, hangs);
        disk.wait_for(count);
        drop(asker);
    }
    assert_eq!(status(place, hangs).as_deref(), Some("503"));
    let told = others.map(|path| status(place, path));
    disk.end();
    let begun = Instant::now();
    while status(place, hangs).as_deref() != Some("200") {
        assert!(begun.elapsed() < PATIENCE, "it hangs for ever");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(control);
    told
}

#[test]
fn questions_that_hang_are_bounded_and_keep_nobody_from_metrics() {
    let disk = Arc::new(Hanging::default());
    let hanging = Arc::clone(&disk);
    let statistics = Box::new(move || {
        hanging.wait();
        Statistics::default()
    });
    let services = Services { statistics, ..services(Arc::default()) };
    let hangs = ("/v1/statistics", WORK_MAX);
    let told = others_meanwhile(services, &disk, hangs, ["/metrics", "/v1/shares"]);
    assert_eq!(told, ["200", "200"].map(|status| Some(status.to_owned())));
}

/// A change of shares waits for the disk, and `steadfast status` asks for shares each time.
#[test]
fn shares_that_hang_keep_nobody_from_anything_else() {
    let disk = Arc::new(Hanging::default());
    let fake = Fake { disk: Some(Arc::clone(&disk)), ..Fake::default() };
    let others = ["/v1/statistics", "/v1/clients", "/v1/version", "/metrics"];
    let hangs = ("/v1/shares", SHARES_MAX);
    let told = others_meanwhile(services(Arc::new(fake)), &disk, hangs, others);
    assert_eq!(told, ["200"; 4].map(|status| Some(status.to_owned())));
}
