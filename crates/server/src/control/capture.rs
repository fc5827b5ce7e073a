//! Messages as the server reads and writes them.

use std::time::{Duration, Instant};

use steadfast_control::api::Who;
use steadfast_control::capture::{
    CaptureCounts, CaptureFilter, CapturedMessage, CapturedTimes, ExecutedCall,
};
use steadfast_control::service::{CaptureSource, CapturedPart};
use steadfast_control::{Refusal, RefusalKind};
use steadfast_engine::OperationId;
use steadfast_runtime::{self as runtime, Capture, CaptureOptions, CaptureRuns, Observer};

/// How long another capture may take to end.
const PATIENCE: Duration = Duration::from_millis(500);
const PACE: Duration = Duration::from_millis(10);

/// Begins a capture. The log says who has it, and when it ends: messages are other people's.
pub(super) fn begin(
    observer: &Observer,
    filter: &CaptureFilter,
    who: &Who,
) -> Result<Box<dyn CaptureSource>, Refusal> {
    let unreadable = |why| Refusal::new(RefusalKind::Unreadable, why);
    let options = CaptureOptions {
        message_bytes_max: filter.kept_bytes().map_err(unreadable)? as usize,
        with_contents: filter.contents,
        client: filter.network().map_err(unreadable)?,
    };
    let capture = begun(observer, options).map_err(|CaptureRuns| {
        let why = "a capture runs already, and a server has one at a time: wait until it ends, or end that `steadfast \
                   capture`";
        Refusal::new(RefusalKind::Conflict, why)
    })?;
    let clients = filter.client.as_deref().unwrap_or("all clients");
    tracing::info!(
        "{who} captures the first {} bytes of each message of {clients}, which may have contents of files",
        options.message_bytes_max
    );
    let who = who.to_string();
    Ok(Box::new(Source { capture: Some(capture), who, messages: 0, dropped: 0 }))
}

struct Source {
    /// `None` once it has ended.
    capture: Option<Capture>,
    who: String,
    messages: u64,
    dropped: u64,
}

impl CaptureSource for Source {
    fn take(&mut self, bytes_max: usize) -> CapturedPart {
        let Some(capture) = &mut self.capture else { return CapturedPart::default() };
        let messages: Vec<_> = capture.take(bytes_max).into_iter().map(told).collect();
        let counts =
            CaptureCounts { dropped: capture.dropped(), room_bytes: capture.room_bytes() as u64 };
        self.messages += messages.len() as u64;
        self.dropped = counts.dropped;
        CapturedPart { messages, counts, is_pressing: capture.is_pressing() }
    }

    fn end(mut self: Box<Self>) -> CaptureCounts {
        let Some(capture) = self.capture.take() else { return CaptureCounts::default() };
        let room_bytes = capture.room_bytes() as u64;
        self.dropped = capture.end();
        CaptureCounts { dropped: self.dropped, room_bytes }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let Self { who, messages, dropped, .. } = self;
        tracing::info!("the capture by {who} has ended: {messages} messages, {dropped} dropped");
    }
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
        is_repeat: message.is_repeat,
        times: message.spent.map(|spent| CapturedTimes {
            executed_ns: spent.executed_ns,
            waited_ns: spent.waited_ns,
            stable_ns: spent.stable_ns,
        }),
        executed: message.operation.and_then(executed),
        length: u32::try_from(message.length).unwrap_or(u32::MAX),
        bytes: message.bytes.into_vec(),
    }
}

/// `None` if it is none that the server knows.
fn executed(operation: OperationId) -> Option<ExecutedCall> {
    let name = operation.name();
    (operation != OperationId::OTHER).then_some(ExecutedCall {
        program: name.program,
        version: name.version,
        procedure: name.procedure,
    })
}
