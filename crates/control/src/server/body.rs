//! Bodies of requests: bounded each, in time, and all together.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::header::CONTENT_LENGTH;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::sync::Semaphore;

use crate::api::{BODY_BYTES_MAX, Document, Import, Mistake, Wish};
use crate::service::{Refusal, RefusalKind};

const MIB: usize = 1 << 20;
/// What all bodies that are being read or worked on may take, in MiB.
const ROOM_MIB: usize = 2 * BODY_BYTES_MAX / MIB;
/// For a body to be sent, beside a second for each MiB.
const PATIENCE: Duration = Duration::from_secs(10);

/// Room for the bodies of requests.
#[derive(Clone, Debug)]
pub(super) struct Room(Arc<Semaphore>);

impl Room {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(ROOM_MIB)))
    }

    /// Reads a request's body and hands it to `read`.
    pub(super) async fn take<T>(
        &self,
        request: Request,
        read: impl FnOnce(&[u8]) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let declared = request.headers().get(CONTENT_LENGTH);
        let declared = declared.and_then(|text| text.to_str().ok()?.parse::<usize>().ok());
        let bytes_max = declared.unwrap_or(BODY_BYTES_MAX);
        if bytes_max > BODY_BYTES_MAX {
            return Err(too_long());
        }
        let mib = bytes_max.div_ceil(MIB).max(1) as u32;
        let busy = || {
            let why = "the server is busy with other large requests: try again";
            Refusal::new(RefusalKind::Busy, why)
        };
        let room = self.0.try_acquire_many(mib).map_err(|_| busy())?;
        let patience = PATIENCE + Duration::from_secs(u64::from(mib));
        let body = tokio::time::timeout(patience, whole(request.into_body())).await;
        let body = body.map_err(|_| {
            let why = format!("the request was not sent within {} s", patience.as_secs());
            Refusal::new(RefusalKind::Unreadable, why)
        })??;
        let result = read(&body);
        drop(room);
        result
    }
}

fn too_long() -> Refusal {
    let why = format!("the request is longer than {} MiB", BODY_BYTES_MAX / MIB);
    Refusal::new(RefusalKind::Unreadable, why)
}

async fn whole(body: Body) -> Result<hyper::body::Bytes, Refusal> {
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_long()),
        Err(error) => {
            Err(Refusal::new(RefusalKind::Unreadable, format!("the request broke off: {error}")))
        }
    }
}

/// The value that a body is.
pub(super) fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| {
        // The parser's text ends with the place, which is told apart.
        let text = error.to_string();
        let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        let mistake = Mistake {
            place: format!("request:{}:{}", error.line(), error.column()),
            what: what.to_owned(),
            ..Mistake::default()
        };
        Refusal { kind: RefusalKind::Unreadable, ..Refusal::mistaken(vec![mistake]) }
    })
}

/// The batch, the document or the exports that a body is.
pub(super) fn wish(body: &[u8]) -> Result<Wish, Refusal> {
    /// What tells them apart, so that mistakes are told of the one that is meant.
    #[derive(Deserialize)]
    struct Kind {
        document: Option<IgnoredAny>,
        exports: Option<IgnoredAny>,
    }
    let kind: Kind = json(body)?;
    match kind {
        Kind { document: Some(IgnoredAny), .. } => json::<Document>(body).map(Wish::Document),
        Kind { exports: Some(IgnoredAny), .. } => json::<Import>(body).map(Wish::Import),
        Kind { .. } => json(body).map(Wish::Batch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_in_a_body_have_a_place() {
        let error = wish(b"{\"operations\": [\n {\"op\": \"add-shere\"}]}").expect_err("no batch");
        assert_eq!(error.kind, RefusalKind::Unreadable);
        assert_eq!(error.mistakes[0].place, "request:2:19");
        assert!(error.error.contains("unknown variant `add-shere`"), "{error}");
        assert!(wish(b"").is_err());
        let import =
            wish(b"{\"exports\": [{\"name\": \"e\", \"text\": \"/a *\"}], \"group\": \"g\"}");
        assert!(matches!(import, Ok(Wish::Import(_))), "{import:?}");
        let error = wish(b"{\"document\": \"\", \"nme\": \"x\"}").expect_err("no document");
        assert!(error.error.contains("unknown field `nme`"), "{error}");
    }

    #[tokio::test]
    async fn what_is_too_long_is_not_read() {
        let room = Room::new();
        let length = (BODY_BYTES_MAX + 1).to_string();
        let request = Request::builder().header(CONTENT_LENGTH, &length);
        let request = request.body(Body::empty()).expect("a request");
        let taken = room.take(request, |_| Ok(())).await;
        assert!(taken.expect_err("too long").error.contains("longer than 64 MiB"));
        // Nor what says nothing of its length, once the room is taken.
        let taken = room.0.try_acquire_many(100).expect("room");
        let request = || Request::new(Body::from("x"));
        let busy = room.take(request(), |_| Ok(())).await.expect_err("no room");
        assert_eq!(busy.kind, RefusalKind::Busy);
        drop(taken);
        assert_eq!(room.take(request(), |body| Ok(body.len())).await, Ok(1));
    }
}
