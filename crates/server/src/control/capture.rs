//! Messages as the server reads and writes them.

use std::time::{Duration, Instant};

use steadfast_control::capture::{CaptureCounts, CaptureFilter, CapturedMessage, CapturedTimes};
use steadfast_control::service::CaptureSource;
use steadfast_control::{Refusal, RefusalKind};
use steadfast_runtime::{self as runtime, Capture, CaptureOptions, CaptureRuns, Observer};

/// How long another capture may take to end.
const PATIENCE: Duration = Duration::from_millis(500);
const PACE: Duration = Duration::from_millis(10);

/// Begins a capture.
pub(super) fn begin(observer: &Observer, filter: &CaptureFilter) -> Result<CaptureSource, Refusal> {
    let unreadable = |why| Refusal::new(RefusalKind::Unreadable, why);
    let options = CaptureOptions {
        message_bytes_max: filter.kept_bytes().map_err(unreadable)? as usize,
        with_contents: filter.contents,
        client: filter.network().map_err(unreadable)?,
    };
    let mut capture = begun(observer, options).map_err(|CaptureRuns| {
        let why = "a capture runs already, and a server has one at a time: wait until it ends, or end that `steadfast \
                   capture`";
        Refusal::new(RefusalKind::Conflict, why)
    })?;
    let who = filter.client.as_deref().unwrap_or("all clients");
    tracing::info!("capturing messages of {who}, contents of files: {}", filter.contents);
    Ok(Box::new(move || {
        let messages = capture.take().into_iter().map(told).collect();
        let counts =
            CaptureCounts { dropped: capture.dropped(), room_bytes: capture.room_bytes() as u64 };
        (messages, counts)
    }))
}

/// One that was ended a moment ago may not have noticed it yet.
fn begun(observer: &Observer, options: CaptureOptions) -> Result<Capture, CaptureRuns> {
    let begun = Instant::now();
    loop {
        match observer.capture(options) {
            Err(CaptureRuns) if begun.elapsed() < PATIENCE => std::thread::sleep(PACE),
            result => return result,
        }
    }
}

fn told(message: runtime::CapturedMessage) -> CapturedMessage {
    CapturedMessage {
        time_ns: message.time_ns,
        client: message.peer,
        server: message.local,
        is_datagram: message.is_datagram,
        is_sent: message.is_sent,
        is_repeat: message.spent.is_some_and(|spent| spent.is_repeat),
        times: message.spent.map(|spent| CapturedTimes {
            executed_ns: spent.executed_ns,
            waited_ns: spent.waited_ns,
            stable_ns: spent.stable_ns,
        }),
        length: u32::try_from(message.length).unwrap_or(u32::MAX),
        bytes: message.bytes.into_vec(),
    }
}
