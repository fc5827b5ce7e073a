//! What can be asked of a running server. All routes but [`METRICS`], [`LIVES`] and [`READY`], which are where monitoring
//! looks, begin with the version of their form; a field may be added to an answer without another version. An error, but of [`READY`],
//! is an [`ErrorBody`]: `{"error": "…", "mistakes": […]}`.
//!
//! [`ROUTES`] is all of them; `docs/openapi.json` describes them, and is served too.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router};
use hyper::HeaderMap;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::body::{self, Room};
use super::capture;
use super::peer::Peer;
use super::watch;
use crate::api::{
    AcceptRequest, Applied, ErrorBody, ExplainRequest, Explanation, GroupStatus, History, Mounting,
    MountingRequest, Plan, RollbackRequest, ShareFilter, SharePage, ShareStatus,
};
use crate::capture::CaptureFilter;
use crate::clients::{ClientEnded, ClientFilter, ClientNamed, ClientsReport};
use crate::metrics::{self, Collected, Format, StillCollecting};
use crate::service::{LogService, RawJson, Refusal, RefusalKind, Services, ShareService};
use crate::slow::{SlowFilter, SlowReport};
use crate::top::{TopFilter, TopReport};

/// The description of the interface, in `OpenAPI` 3.1.
pub const OPENAPI: &str = include_str!("../../../../docs/openapi.json");
/// Commands of the intent log that may take long, at a time.
pub(super) const LONG_MAX: usize = 4;
/// Questions that are answered at a time, including those whose askers have left. Three sockets have
/// [`super::CONNECTIONS_MAX`] connections each: only questions without askers bring it to this.
pub(super) const WORK_MAX: usize = 3 * super::CONNECTIONS_MAX + LONG_MAX;
/// Questions to the shares likewise, beside these: a change that waits for a disk that hangs keeps each of them.
pub(super) const SHARES_MAX: usize = 3 * super::CONNECTIONS_MAX;
/// Scrapes likewise, beside both. One collects the numbers, as long as a disk hangs; the others wait for it for
/// a few seconds.
pub(super) const SCRAPES_MAX: usize = super::CONNECTIONS_MAX + super::SCRAPERS_MAX;
/// Watchers at a time: fewer than connections.
const WATCHERS_MAX: usize = 16;

/// Where monitoring asks.
pub(super) const METRICS: &str = "/metrics";

/// Where those ask who start a server again that hangs, and those who send clients to one that is ready.
pub(super) const LIVES: &str = "/livez";
pub(super) const READY: &str = "/readyz";

/// What a route does to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// Nothing: who may connect may ask.
    Read,
    /// Nothing, but it tells names of files, which may be in directories that not everybody may read, or what clients
    /// read and write: only who [`Peer::may_change`].
    ReadFiles,
    /// Something: only who [`Peer::may_change`].
    Change,
}

struct Route {
    /// In lower case, as `OpenAPI` has it.
    #[cfg_attr(not(test), allow(dead_code))]
    method: &'static str,
    path: &'static str,
    access: Access,
    handler: fn() -> MethodRouter<Arc<Shared>>,
}

impl Route {
    const fn read(path: &'static str, handler: fn() -> MethodRouter<Arc<Shared>>) -> Self {
        Self { method: "get", path, access: Access::Read, handler }
    }

    const fn read_files(path: &'static str, handler: fn() -> MethodRouter<Arc<Shared>>) -> Self {
        Self { method: "get", path, access: Access::ReadFiles, handler }
    }

    const fn change(path: &'static str, handler: fn() -> MethodRouter<Arc<Shared>>) -> Self {
        Self { method: "post", path, access: Access::Change, handler }
    }
}

const ROUTES: [Route; 30] = [
    Route::read(METRICS, || get(metrics)),
    Route::read(LIVES, || get(lives)),
    Route::read(READY, || get(ready)),
    Route::read("/v1/openapi.json", || get(openapi)),
    Route::read("/v1/shares", || get(list)),
    Route::read("/v1/shares/show", || get(show)),
    Route::read("/v1/shares/mounting", || get(mounting)),
    Route::read("/v1/groups", || get(groups)),
    Route::read("/v1/export", || get(export)),
    // It holds up every change while it is made, as long as one that is applied.
    Route::change("/v1/plan", || post(plan)),
    Route::change("/v1/apply", || post(apply)),
    Route::change("/v1/rollback", || post(rollback)),
    Route::change("/v1/rollback/plan", || post(plan_rollback)),
    Route::change("/v1/accept", || post(accept)),
    Route::change("/v1/reload", || post(reload)),
    Route::read("/v1/history", || get(history)),
    Route::read("/v1/watch", || get(watched)),
    Route::read("/v1/explain", || get(explain)),
    Route::read("/v1/names", || get(names)),
    Route::read("/v1/statistics", || get(statistics)),
    Route::read_files("/v1/slow", || get(slow)),
    Route::read_files("/v1/top", || get(top)),
    Route::read_files("/v1/capture", || get(captured)),
    Route::read("/v1/log", || get(log)),
    Route::change("/v1/log/flush", || post(|it| command(it, |log| log.flush()))),
    Route::change("/v1/log/enable", || post(|it| command(it, |log| log.enable()))),
    Route::change("/v1/log/disable", || post(|it| command(it, |log| log.disable()))),
    Route::read("/v1/clients", || get(clients)),
    Route::change("/v1/clients/expire", || post(expire)),
    Route::read("/v1/version", || get(version)),
];

struct Shared {
    services: Services,
    collected: Collected,
    /// Threads for what is asked, those for what the shares are asked, and those for monitoring.
    working: Arc<Semaphore>,
    sharing: Arc<Semaphore>,
    scraping: Arc<Semaphore>,
    long: Arc<Semaphore>,
    watchers: Arc<Semaphore>,
    room: Room,
}

type Server = State<Arc<Shared>>;
type Answer<T> = Result<Json<T>, Refusal>;

/// The routes.
pub fn router(services: Services) -> Router {
    let shared = Shared {
        services,
        collected: Collected::default(),
        working: Arc::new(Semaphore::new(WORK_MAX)),
        sharing: Arc::new(Semaphore::new(SHARES_MAX)),
        scraping: Arc::new(Semaphore::new(SCRAPES_MAX)),
        long: Arc::new(Semaphore::new(LONG_MAX)),
        watchers: Arc::new(Semaphore::new(WATCHERS_MAX)),
        room: Room::new(),
    };
    let mut router = Router::new();
    for route in &ROUTES {
        let mut handler = (route.handler)();
        if route.access != Access::Read {
            handler = handler.layer(from_fn(only_who_may_change));
        }
        router = router.route(route.path, handler);
    }
    router
        .fallback(|| async {
            Refusal::new(RefusalKind::NotFound, "there is no such route: see /v1/openapi.json")
        })
        .method_not_allowed_fallback(|| async {
            let error = "this route is asked by another method: see /v1/openapi.json".to_owned();
            let body = ErrorBody { error, mistakes: Vec::new() };
            (StatusCode::METHOD_NOT_ALLOWED, Json(body))
        })
        .with_state(Arc::new(shared))
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self.kind {
            RefusalKind::Unreadable => StatusCode::BAD_REQUEST,
            RefusalKind::NotAllowed => StatusCode::FORBIDDEN,
            RefusalKind::NotFound => StatusCode::NOT_FOUND,
            RefusalKind::Conflict => StatusCode::CONFLICT,
            RefusalKind::Mistaken => StatusCode::UNPROCESSABLE_ENTITY,
            RefusalKind::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            RefusalKind::Busy => StatusCode::SERVICE_UNAVAILABLE,
        };
        (status, Json(ErrorBody { error: self.error, mistakes: self.mistakes })).into_response()
    }
}

impl IntoResponse for RawJson {
    fn into_response(self) -> Response {
        typed("application/json", self.0)
    }
}

fn typed(kind: &'static str, body: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static(kind))], body).into_response()
}

/// To a scraper that asks for something else.
pub(super) fn metrics_alone() -> impl IntoResponse {
    let why = format!("there is nothing here but {METRICS}, {LIVES} and {READY}");
    Refusal::new(RefusalKind::NotFound, why)
}

/// To who comes without the token of this place.
pub(super) fn no_token(place: &str) -> impl IntoResponse {
    let error = format!("send the token of {place}: Authorization: Bearer TOKEN");
    let body = ErrorBody { error, mistakes: Vec::new() };
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], Json(body))
}

async fn only_who_may_change(
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    if peer.may_change() {
        return next.run(request).await;
    }
    let why = format!(
        "{} may look, and not see names of files or change anything: ask as root, as the user that the server runs as, \
         or as a member of admin_group in [server]",
        peer.who()
    );
    Refusal::new(RefusalKind::NotAllowed, why).into_response()
}

/// Runs what may wait on a thread of its own.
async fn work<T: Send + 'static>(
    shared: Arc<Shared>,
    act: impl FnOnce(&Shared) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let room = Arc::clone(&shared.working);
    work_in(room, shared, act).await
}

/// As [`work`], on the threads that monitoring has for itself.
async fn scrape<T: Send + 'static>(
    shared: Arc<Shared>,
    act: impl FnOnce(&Shared) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let room = Arc::clone(&shared.scraping);
    work_in(room, shared, act).await
}

/// What hangs in a storage keeps its thread though its asker has left. When all of them hang, further questions are
/// rejected rather than left without an answer.
async fn work_in<T: Send + 'static>(
    room: Arc<Semaphore>,
    shared: Arc<Shared>,
    act: impl FnOnce(&Shared) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let Ok(permit) = room.try_acquire_owned() else {
        let why = "too many questions wait for their answers: a disk may hang";
        return Err(Refusal::new(RefusalKind::Busy, why));
    };
    let working = spawn_blocking(move || {
        let done = act(&shared);
        drop(permit);
        done
    });
    working.await.map_err(|_| {
        let why = "the server failed at it: this is a bug, see its messages";
        Refusal::new(RefusalKind::Failed, why)
    })?
}

/// As [`work`], for a question to the shares, on threads of their own: all of them wait while one change of shares
/// waits for a disk that hangs, and must not keep other questions from their answers.
async fn shares<T: Send + 'static>(
    shared: Arc<Shared>,
    act: impl FnOnce(&dyn ShareService) -> Result<T, Refusal> + Send + 'static,
) -> Answer<T> {
    let room = Arc::clone(&shared.sharing);
    work_in(room, shared, move |shared| act(&*shared.services.shares)).await.map(Json)
}

/// As [`work`], for what changes the log, which may take long. It goes on though its asker leaves.
async fn command<T: Serialize + 'static>(
    State(shared): Server,
    act: fn(&dyn LogService) -> Result<T, Refusal>,
) -> Result<RawJson, Refusal> {
    let Ok(permit) = Arc::clone(&shared.long).try_acquire_owned() else {
        let why = format!("{LONG_MAX} such commands are under way: wait for one of them");
        return Err(Refusal::new(RefusalKind::Busy, why));
    };
    work(shared, move |shared| {
        let done = act(&*shared.services.log);
        drop(permit);
        RawJson::of(&done?)
    })
    .await
}

/// What was asked after the question mark.
fn asked<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Refusal> {
    query.map(|Query(query)| query).map_err(|error| {
        // The extractor's text begins with whose it is, which says nothing to the asker.
        let text = error.body_text();
        let what = text.rsplit_once("query string: ").map_or(text.as_str(), |(_, what)| what);
        Refusal::new(RefusalKind::Unreadable, format!("the question is not understood: {what}"))
    })
}

/// Whoever gets an answer knows enough.
async fn lives() -> &'static str {
    "ok\n"
}

/// A word, or why not, for people; programs look at the status.
async fn ready(State(shared): Server) -> (StatusCode, String) {
    match shared.services.health.is_ready() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn openapi() -> Response {
    typed("application/json", OPENAPI.as_bytes().to_vec())
}

#[derive(Serialize)]
struct Version {
    version: u32,
    program: &'static str,
}

async fn version() -> Json<Version> {
    Json(Version { version: 1, program: env!("CARGO_PKG_VERSION") })
}

async fn list(
    State(shared): Server,
    query: Result<Query<ShareFilter>, QueryRejection>,
) -> Answer<SharePage> {
    let filter = asked(query)?;
    shares(shared, move |service| Ok(service.list(&filter))).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnePath {
    path: String,
}

async fn show(
    State(shared): Server,
    query: Result<Query<OnePath>, QueryRejection>,
) -> Answer<ShareStatus> {
    let OnePath { path } = asked(query)?;
    shares(shared, move |service| {
        service.share(&path).ok_or_else(|| {
            Refusal::new(RefusalKind::NotFound, format!("there is no share {path:?}"))
        })
    })
    .await
}

async fn groups(State(shared): Server) -> Answer<Vec<GroupStatus>> {
    shares(shared, |service| Ok(service.groups())).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneGroup {
    group: Option<String>,
}

async fn export(
    State(shared): Server,
    query: Result<Query<OneGroup>, QueryRejection>,
) -> Result<Response, Refusal> {
    let OneGroup { group } = asked(query)?;
    let Json(text) = shares(shared, move |service| service.export(group.as_deref())).await?;
    Ok(typed("text/plain; charset=utf-8", text.into_bytes()))
}

async fn plan(State(shared): Server, request: Request) -> Answer<Plan> {
    let wish = shared.room.take(request, body::wish).await?;
    shares(shared, move |service| service.plan(&wish)).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplyQuery {
    #[serde(default)]
    wait: bool,
}

async fn apply(
    State(shared): Server,
    Extension(peer): Extension<Peer>,
    query: Result<Query<ApplyQuery>, QueryRejection>,
    request: Request,
) -> Answer<Applied> {
    let ApplyQuery { wait } = asked(query)?;
    let wish = shared.room.take(request, body::wish).await?;
    shares(shared, move |service| service.apply(&wish, peer.who(), wait)).await
}

async fn rollback(
    State(shared): Server,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Answer<Applied> {
    let RollbackRequest { to } = shared.room.take(request, body::json).await?;
    shares(shared, move |service| service.rollback(to, peer.who())).await
}

async fn plan_rollback(State(shared): Server, request: Request) -> Answer<Plan> {
    let RollbackRequest { to } = shared.room.take(request, body::json).await?;
    shares(shared, move |service| service.plan_rollback(to)).await
}

async fn accept(
    State(shared): Server,
    Extension(peer): Extension<Peer>,
    request: Request,
) -> Answer<Applied> {
    let wish: AcceptRequest = shared.room.take(request, body::json).await?;
    shares(shared, move |service| service.accept(&wish, peer.who())).await
}

async fn reload(State(shared): Server, Extension(peer): Extension<Peer>) -> Answer<Applied> {
    shares(shared, move |service| service.reload(peer.who())).await
}

async fn history(State(shared): Server) -> Answer<History> {
    shares(shared, |service| Ok(service.history())).await
}

async fn watched(State(shared): Server) -> Result<Response, Refusal> {
    let Ok(room) = Arc::clone(&shared.watchers).try_acquire_owned() else {
        let why = format!("{WATCHERS_MAX} watch already");
        return Err(Refusal::new(RefusalKind::Busy, why));
    };
    Ok(watch::stream(shared.services.shares.subscribe(), room))
}

async fn explain(
    State(shared): Server,
    query: Result<Query<ExplainRequest>, QueryRejection>,
) -> Answer<Explanation> {
    let request = asked(query)?;
    shares(shared, move |service| service.explain(&request)).await
}

async fn mounting(
    State(shared): Server,
    query: Result<Query<MountingRequest>, QueryRejection>,
) -> Answer<Mounting> {
    let request = asked(query)?;
    shares(shared, move |service| service.mounting(&request)).await
}

async fn names(State(shared): Server) -> Result<RawJson, Refusal> {
    work(shared, |shared| (shared.services.names)()).await
}

async fn statistics(State(shared): Server) -> Result<RawJson, Refusal> {
    work(shared, |shared| RawJson::of(&(shared.services.statistics)())).await
}

async fn top(
    State(shared): Server,
    query: Result<Query<TopFilter>, QueryRejection>,
) -> Answer<TopReport> {
    let filter = asked(query)?;
    work(shared, move |shared| Ok((shared.services.top)(&filter))).await.map(Json)
}

async fn captured(
    State(shared): Server,
    Extension(peer): Extension<Peer>,
    query: Result<Query<CaptureFilter>, QueryRejection>,
) -> Result<Response, Refusal> {
    let filter = asked(query)?;
    let begin = move |shared: &Shared| (shared.services.capture)(&filter, peer.who());
    Ok(capture::stream(work(shared, begin).await?))
}

async fn slow(
    State(shared): Server,
    query: Result<Query<SlowFilter>, QueryRejection>,
) -> Answer<SlowReport> {
    let filter = asked(query)?;
    work(shared, move |shared| Ok((shared.services.slow)(&filter))).await.map(Json)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsQuery {
    format: Option<String>,
}

async fn metrics(
    State(shared): Server,
    headers: HeaderMap,
    query: Result<Query<MetricsQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let format = if let Some(name) = asked(query)?.format {
        Format::named(&name).ok_or_else(|| {
            let why = format!("there is no format {name:?}: ask for openmetrics or prometheus");
            Refusal::new(RefusalKind::Unreadable, why)
        })?
    } else {
        let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
        Format::accepted(accept.unwrap_or_default())
    };
    let text = scrape(shared, move |shared| {
        let figures = shared.collected.figures(&shared.services.metrics);
        let figures = figures.map_err(|StillCollecting(since)| {
            let why = format!(
                "collecting metrics has taken {} s so far: a disk may hang; see `steadfast status`",
                since.as_secs()
            );
            Refusal::new(RefusalKind::Busy, why)
        })?;
        metrics::text(&figures, format).map_err(|_| {
            let why = "the metrics cannot be written: this is a bug";
            Refusal::new(RefusalKind::Failed, why)
        })
    })
    .await?;
    Ok(typed(format.content_type(), text.into_bytes()))
}

async fn clients(
    State(shared): Server,
    Extension(peer): Extension<Peer>,
    query: Result<Query<ClientFilter>, QueryRejection>,
) -> Answer<ClientsReport> {
    let filter = ClientFilter { paths: peer.may_change(), ..asked(query)? };
    let report = work(shared, move |shared| shared.services.clients.list(&filter)).await?;
    Ok(Json(if peer.may_change() { report } else { report.without_paths() }))
}

async fn expire(
    State(shared): Server,
    query: Result<Query<ClientNamed>, QueryRejection>,
) -> Answer<ClientEnded> {
    let ClientNamed { id } = asked(query)?;
    work(shared, move |shared| shared.services.clients.expire(&id)).await.map(Json)
}

async fn log(State(shared): Server) -> Result<RawJson, Refusal> {
    work(shared, |shared| RawJson::of(&shared.services.log.status()?)).await
}

#[cfg(test)]
pub(super) mod tests;
