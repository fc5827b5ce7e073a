//! Unit ring: a capture at the control socket, with a server that makes messages up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::capture::{CaptureCounts, CapturedMessage, Frame};
use crate::service::{CaptureSource, CapturedPart};
use crate::{AskError, CaptureStream, Captured};

const PATIENCE: Duration = Duration::from_secs(20);

/// How many captures run.
#[derive(Debug, Default)]
pub(super) struct Captures {
    is_taken: AtomicBool,
    asked: AtomicU64,
}

/// A message that says how many times there were messages before. Each time two are dropped.
struct Source {
    fake: Arc<Fake>,
    length: u32,
}

impl CaptureSource for Source {
    fn take(&mut self, _bytes_max: usize) -> CapturedPart {
        let time_ns = self.fake.captures.asked.fetch_add(1, Ordering::SeqCst);
        let message = CapturedMessage {
            time_ns,
            client: ([192, 0, 2, 1], 700).into(),
            server: ([192, 0, 2, 2], 2049).into(),
            is_datagram: false,
            is_sent: false,
            is_repeat: false,
            times: None,
            executed: None,
            length: self.length,
            bytes: vec![7; self.length as usize],
        };
        let counts = CaptureCounts { dropped: 2 * time_ns, room_bytes: 5 };
        CapturedPart { messages: vec![message], counts, is_pressing: false }
    }

    fn end(self: Box<Self>) -> CaptureCounts {
        CaptureCounts::default()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.fake.captures.is_taken.store(false, Ordering::SeqCst);
    }
}

pub(super) fn starter(fake: Arc<Fake>) -> crate::service::CaptureStarter {
    Box::new(move |filter, who| {
        let unreadable = |why| Refusal::new(RefusalKind::Unreadable, why);
        let length = filter.kept_bytes().map_err(unreadable)?;
        filter.network().map_err(unreadable)?;
        if fake.captures.is_taken.swap(true, Ordering::SeqCst) {
            return Err(Refusal::new(RefusalKind::Conflict, "a capture runs already"));
        }
        fake.note(format!("capture by {who}"));
        let source: Box<dyn CaptureSource> = Box::new(Source { fake: Arc::clone(&fake), length });
        Ok(source)
    })
}

fn next(stream: &mut CaptureStream) -> Frame {
    match stream.next(PATIENCE).expect("an answer") {
        Captured::Frame(frame) => frame,
        other => panic!("{other:?}"),
    }
}

fn filter(client: &str, snap_bytes: u32) -> CaptureFilter {
    let client = Some(client.to_owned()).filter(|client| !client.is_empty());
    CaptureFilter { client, snap_bytes: Some(snap_bytes), contents: true }
}

#[test]
fn a_capture_tells_all_and_ends_with_its_reader() {
    let place = place();
    let client = Client::connect(place.directory.path());
    let mut stream = client.capture(&filter("192.0.2.0/24", 512)).expect("capturing");
    for count in 0..100 {
        let counts = CaptureCounts { dropped: 2 * count, room_bytes: 5 };
        assert_eq!(next(&mut stream), Frame::Counts(counts));
        let Frame::Message(message) = next(&mut stream) else { panic!("no message") };
        assert_eq!((message.time_ns, message.bytes), (count, vec![7; 512]));
    }
    let another = client.capture(&filter("", 512)).expect_err("one at a time");
    assert!(matches!(another, AskError::Refused { status: 409, .. }), "{another}");
    drop(stream);
    let begun = Instant::now();
    while place.fake.captures.is_taken.load(Ordering::SeqCst) {
        assert!(begun.elapsed() < PATIENCE, "it has not ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    place.fake.take();
    drop(client.capture(&filter("", 512)).expect("capturing"));
    let who = Who { uid: Some(steadfast_sys::process::effective_ids().0), ..Who::default() };
    let asked = place.fake.take();
    assert!(asked[0].starts_with(&format!("capture by {who}")), "{asked:?}");
}

#[test]
fn messages_that_trickle_in_are_sent_together() {
    let place = place();
    let client = Client::connect(place.directory.path());
    let mut stream = client.capture(&filter("", 512)).expect("capturing");
    let begun = Instant::now();
    let elapsed = loop {
        next(&mut stream);
        let elapsed = begun.elapsed();
        if elapsed > Duration::from_millis(500) {
            break elapsed;
        }
    };
    // There was a message each time: it looked no sooner for another one.
    let asked = place.fake.captures.asked.load(Ordering::SeqCst);
    assert!(u128::from(asked) <= elapsed.as_millis() / 10 + 2, "{asked} times in {elapsed:?}");
}

#[test]
fn who_does_not_read_holds_up_nobody_else() {
    let place = place();
    let client = Client::connect(place.directory.path());
    let mut stream = client.capture(&filter("", 1 << 20)).expect("capturing");
    next(&mut stream);
    // What is on its way has an end: then no more is taken.
    let asked = || place.fake.captures.asked.load(Ordering::SeqCst);
    let begun = Instant::now();
    let mut before = u64::MAX;
    while asked() != before {
        assert!(begun.elapsed() < PATIENCE, "it goes on taking: {before}");
        before = asked();
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(before < 64, "{before} MiB wait");
    client.groups().expect("an answer");
    drop(place);
    let end = std::iter::repeat_with(|| stream.next(PATIENCE).expect("an answer"));
    assert!(end.take(200).any(|next| next == Captured::End), "the server has ended");
}

#[test]
fn what_cannot_be_captured_is_told() {
    let place = place();
    let client = Client::connect(place.directory.path());
    for wrong in [filter("nobody", 512), filter("", 511), filter("", (16 << 20) + 1)] {
        let refused = client.capture(&wrong).expect_err("a mistake");
        assert!(matches!(refused, AskError::Refused { status: 400, .. }), "{refused}");
    }
}
