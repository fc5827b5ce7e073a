//! What can be asked of a running server. All routes begin with the version of their form; a
//! field may be added to an answer without another version. An error is `{"error": "…"}`.
//!
//! | | |
//! |---|---|
//! | `GET /v1/statistics` | what the server has done |
//! | `GET /v1/log` | what the intent log is doing |
//! | `POST /v1/log/flush` | makes all file systems stable; answers when they are |
//! | `POST /v1/log/enable`, `…/disable` | goes back to the log, or leaves it |

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;
use steadfast_runtime::intent_log::{IntentLogKeeper, SwitchError};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::intent_log::{FlushReport, LogReport};
use crate::statistics::Document;

/// Commands that may take long, at a time.
pub(super) const LONG_MAX: usize = 4;

/// What there is to ask.
pub(crate) struct Services {
    /// Makes the document of statistics.
    pub(crate) statistics: Box<dyn Fn() -> Document + Send + Sync>,
    /// The intent log, if there is one.
    pub(crate) log: Option<Arc<IntentLogKeeper>>,
}

struct Shared {
    services: Services,
    long: Arc<Semaphore>,
}

type Server = State<Arc<Shared>>;

/// The routes.
pub(crate) fn router(services: Services) -> Router {
    let shared = Shared { services, long: Arc::new(Semaphore::new(LONG_MAX)) };
    let log = Router::new()
        .route("/", get(log))
        .route("/flush", post(flush))
        .route("/enable", post(enable))
        .route("/disable", post(disable));
    let v1 = Router::new().route("/statistics", get(statistics)).nest("/log", log);
    Router::new()
        .nest("/v1", v1)
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "there is no such route") })
        .method_not_allowed_fallback(|| async {
            let why = "this route is asked by another method";
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, why)
        })
        .with_state(Arc::new(shared))
}

/// Why there is no answer.
struct Refusal {
    status: StatusCode,
    error: String,
}

impl Refusal {
    fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body {
            error: String,
        }
        (self.status, Json(Body { error: self.error })).into_response()
    }
}

type Answer<T> = Result<Json<T>, Refusal>;

/// Runs what may wait on a thread of its own.
async fn work<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Answer<T> {
    let done = spawn_blocking(act).await.map_err(|_| {
        let why = "the server failed at it: this is a bug, see its messages";
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why)
    })?;
    Ok(Json(done?))
}

/// As [`work`], for what changes the log, which may take long. It goes on though its asker leaves.
async fn command<T: Send + 'static>(
    shared: Arc<Shared>,
    act: impl FnOnce(&IntentLogKeeper) -> Result<T, Refusal> + Send + 'static,
) -> Answer<T> {
    let Ok(permit) = Arc::clone(&shared.long).try_acquire_owned() else {
        let why = format!("{LONG_MAX} such commands are under way: wait for one of them");
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why));
    };
    work(move || {
        let done = act(keeper(&shared)?);
        drop(permit);
        done
    })
    .await
}

fn keeper(shared: &Shared) -> Result<&IntentLogKeeper, Refusal> {
    shared.services.log.as_deref().ok_or_else(|| {
        let why = "this server was started without an intent log: set enabled = true in [log], \
                   and start it again";
        Refusal::new(StatusCode::CONFLICT, why)
    })
}

async fn statistics(State(shared): Server) -> Answer<Document> {
    work(move || Ok((shared.services.statistics)())).await
}

async fn log(State(shared): Server) -> Answer<LogReport> {
    work(move || Ok(LogReport::of(keeper(&shared)?))).await
}

async fn flush(State(shared): Server) -> Answer<FlushReport> {
    command(shared, |keeper| Ok(FlushReport::of(keeper.flush()))).await
}

async fn enable(State(shared): Server) -> Answer<LogReport> {
    command(shared, |keeper| switched(keeper, keeper.enable())).await
}

async fn disable(State(shared): Server) -> Answer<LogReport> {
    command(shared, |keeper| switched(keeper, keeper.disable())).await
}

/// The log as it is now.
fn switched(
    keeper: &IntentLogKeeper,
    switched: Result<(), SwitchError>,
) -> Result<LogReport, Refusal> {
    match switched {
        Ok(()) => Ok(LogReport::of(keeper)),
        Err(error) => Err(Refusal::new(StatusCode::CONFLICT, error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use hyper::service::Service;
    use hyper::{Method, Request};
    use hyper_util::service::TowerToHyperService;

    use super::*;
    use crate::statistics::empty_document;

    fn asked(method: &Method, route: &str) -> (StatusCode, serde_json::Value) {
        let services = Services { statistics: Box::new(empty_document), log: None };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let request = Request::builder().method(method).uri(route);
            let request = request.body(axum::body::Body::empty()).expect("a request");
            let router = TowerToHyperService::new(router(services));
            let response = router.call(request).await.expect("answered");
            let status = response.status();
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            (status, serde_json::from_slice(&body).expect("JSON"))
        })
    }

    #[test]
    fn errors_are_json_with_a_fitting_status() {
        let (status, document) = asked(&Method::GET, "/v1/statistics");
        assert_eq!((status, &document["version"]), (StatusCode::OK, &1.into()));
        for (method, route, expected) in [
            (Method::GET, "/", StatusCode::NOT_FOUND),
            (Method::GET, "/v2/statistics", StatusCode::NOT_FOUND),
            (Method::POST, "/v1/statistics", StatusCode::METHOD_NOT_ALLOWED),
            (Method::GET, "/v1/log/flush", StatusCode::METHOD_NOT_ALLOWED),
            (Method::GET, "/v1/log", StatusCode::CONFLICT),
            (Method::POST, "/v1/log/flush", StatusCode::CONFLICT),
            (Method::POST, "/v1/log/disable", StatusCode::CONFLICT),
        ] {
            let (status, body) = asked(&method, route);
            assert_eq!(status, expected, "{route}");
            assert!(body["error"].is_string(), "{route}: {body}");
        }
    }
}
