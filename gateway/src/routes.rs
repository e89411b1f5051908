//! The one table of routes. The router, the API document and the tests of all paths are made from
//! it, so that a route is in all of them or in none.

mod history;
mod listing;
mod now;

use crate::calls::{CallFn, CallRoute};
use crate::document;
use crate::document::Document;
use crate::gateway::{Gateway, MatchedRoute};
use crate::parameters::{Parameter, ParameterKind, Parameters, Place};
use crate::problem::Problem;
use crate::upstream::Frame;
use crate::{live, metrics, openapi};
use Source::{Call, Healthy, Live, Metrics, OpenApi, Part, Ready, Snapshot};
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use axum::routing::any;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One route. All routes have the methods GET and HEAD.
#[derive(Debug)]
pub(crate) struct Route {
    /// The path, with names of parameters in braces.
    pub(crate) path: &'static str,
    /// What it answers, in the API document.
    pub(crate) summary: &'static str,
    /// The type of the answer.
    pub(crate) media_type: &'static str,
    /// The parameters.
    pub(crate) parameters: &'static [Parameter],
    /// How it is answered.
    pub(crate) source: Source,
}

/// How a route is answered.
#[derive(Debug)]
pub(crate) enum Source {
    /// With the newest snapshot as it is.
    Snapshot,
    /// With a part of the newest snapshot.
    Part(fn(&Frame, &Parameters) -> Result<Document, Problem>),
    /// By a call of the daemon.
    Call(CallRoute),
    /// With a stream of events.
    Live,
    /// With metrics.
    Metrics,
    /// With the description of the API.
    OpenApi,
    /// Whether the gateway runs.
    Healthy,
    /// Whether the gateway has current data.
    Ready,
}

/// How long a request for a part of the snapshot waits for its turn.
const MAX_PART_QUEUED: Duration = Duration::from_secs(5);

/// The methods of all routes.
const METHODS: &str = "GET, HEAD";

const JSON: &str = "application/json";

const TEXT: &str = "text/plain; charset=utf-8";

const EVENTS: &str = "text/event-stream";

/// Without `Accept`.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// `gpu`.
pub(crate) const GPU: Parameter = crate::parameters::text(
    "gpu",
    "only these GPUs: an index, a range, a UUID or its beginning, a PCI address, a name with *",
);

/// `user`.
pub(crate) const USER: Parameter =
    crate::parameters::text("user", "only of this user, by name or number");

/// `pid` in a path.
pub(crate) const PID: Parameter = Parameter {
    name: "pid",
    place: Place::Path,
    kind: ParameterKind::Number {
        min: 1,
        max: u32::MAX as u64,
        default: None,
    },
    summary: "the pid of the process",
};

/// A call that the daemon answers at once.
const fn quick(run: CallFn) -> Source {
    call(run, 1, 10, false)
}

/// A call for which the daemon scans all processes.
const fn scan(run: CallFn) -> Source {
    call(run, 5, 30, true)
}

/// A call that reads the history. A month of a large host takes seconds.
const fn past(run: CallFn) -> Source {
    call(run, 5, 60, true)
}

/// A call that scans all processes and judges the history.
const fn long_scan(run: CallFn) -> Source {
    call(run, 60, 60, true)
}

/// A call with the seconds for which its answer is kept, those that the daemon may take, and whether
/// it often takes long.
const fn call(run: CallFn, keep: u64, timeout: u64, is_slow: bool) -> Source {
    Call(CallRoute {
        keep: Duration::from_secs(keep),
        timeout: Duration::from_secs(timeout),
        is_slow,
        run,
    })
}

/// Writes the table: path, type, parameters, source, summary.
macro_rules! routes {
    ($($path:literal $media_type:ident $parameters:expr, $source:expr; $summary:literal)*) => {
        &[$(Route {
            path: $path,
            summary: $summary,
            media_type: $media_type,
            parameters: $parameters,
            source: $source,
        },)*]
    };
}

/// Every route.
pub(crate) static ROUTES: &[Route] = routes! {
    "/api/v1/snapshot" JSON &[], Snapshot;
        "the GPUs and the processes that use them, as gpukillctl list -o json"
    "/api/v1/gpus" JSON &[GPU], Part(listing::gpus);
        "the GPUs of the snapshot, without the list of processes"
    "/api/v1/processes" JSON listing::PROCESS_PARAMETERS, Part(listing::processes);
        "the processes of the snapshot"
    "/api/v1/status" JSON &[], quick(now::status);
        "the state of gpukilld, as gpukillctl status -o json"
    "/api/v1/holders" JSON &[GPU], scan(now::holders);
        "the processes that have GPUs open, as gpukillctl holders -o json"
    "/api/v1/explain/{pid}" JSON &[PID], scan(now::explain);
        "all that is known of one process, as gpukillctl explain -o json"
    "/api/v1/rogue" JSON &[now::SCAN_HOURS], long_scan(now::rogue);
        "suspicious processes with the evidence, as gpukillctl rogue scan -o json"
    "/api/v1/guard/status" JSON &[], quick(now::guard_status);
        "the state of the guard, as gpukillctl guard status -o json"
    "/api/v1/guard/rules" JSON &[], quick(now::guard_rules);
        "the rules in force as text, with their revision"
    "/api/v1/guard/violations" JSON history::VIOLATION_PARAMETERS, past(history::violations);
        "open violations and decisions, as gpukillctl guard violations -o json"
    "/api/v1/audit/runs" JSON history::RUN_PARAMETERS, past(history::runs);
        "the runs of jobs or processes, as gpukillctl audit -o json"
    "/api/v1/audit/samples" JSON history::SAMPLE_PARAMETERS, past(history::samples);
        "the samples of GPUs and processes, as gpukillctl audit --samples -o json"
    "/api/v1/audit/weekly" JSON history::WEEKLY_PARAMETERS, past(history::weekly);
        "a line for each week, as gpukillctl audit --weekly -o json"
    "/api/v1/audit/summary" JSON history::SUMMARY_PARAMETERS, past(history::summary);
        "sums over a period, as gpukillctl audit --summary -o json"
    "/api/v1/audit/series" JSON history::SERIES_PARAMETERS, past(history::series);
        "usage over time in buckets, as gpukillctl audit series -o json"
    "/api/v1/audit/actions" JSON history::ACTION_PARAMETERS, past(history::actions);
        "recorded actions and events, as gpukillctl audit actions -o json"
    "/api/v1/audit/timeline" JSON history::TIMELINE_PARAMETERS, past(history::timeline);
        "everything that happened, oldest first, as gpukillctl audit timeline -o json"
    "/api/v1/live" EVENTS &[], Live;
        "each new snapshot as a server-sent event"
    "/api/v1/openapi.json" JSON &[], OpenApi;
        "this description"
    "/metrics" METRICS &[], Metrics;
        "metrics for Prometheus; OpenMetrics if Accept prefers it"
    "/-/healthy" TEXT &[], Healthy;
        "200 while the gateway runs"
    "/-/ready" TEXT &[], Ready;
        "200 while the gateway has current data of gpukilld, else 503"
};

/// The router of the table.
pub(crate) fn router(gateway: &Arc<Gateway>) -> Router {
    let mut router = Router::new().fallback(not_found);
    for route in ROUTES {
        let gateway = Arc::clone(gateway);
        let handler = move |path: PathParameters, request: Request| async move {
            let mut response = match answer(&gateway, route, path, request).await {
                Ok(response) => response,
                Err(problem) => problem.into_response(),
            };
            response.extensions_mut().insert(MatchedRoute(route.path));
            response
        };
        router = router.route(route.path, any(handler));
    }
    router
}

type PathParameters = Result<RawPathParams, RawPathParamsRejection>;

async fn not_found() -> Response {
    Problem::new(StatusCode::NOT_FOUND, "there is no such path")
        .with_hint("/api/v1/openapi.json lists all paths")
        .into_response()
}

async fn answer(
    gateway: &Arc<Gateway>,
    route: &'static Route,
    path: PathParameters,
    request: Request,
) -> Result<Response, Problem> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Problem::method_not_allowed(METHODS));
    }
    let path = path.map_err(|_| Problem::bad_request("the path is not UTF-8"))?;
    let query = request.uri().query().unwrap_or_default();
    let parameters = Parameters::parse(route.parameters, &path, query)?;
    let headers = request.headers();
    let view = gateway.view();
    let document = match route.source {
        Snapshot => Arc::clone(&view.current()?.document),
        Part(select) => {
            view.current()?;
            // A request that waits keeps no old snapshot in memory.
            drop(view);
            let turn = part_turn(&gateway.part_turns, MAX_PART_QUEUED).await?;
            let frame = Arc::clone(gateway.view().current()?);
            // A large snapshot takes a while to copy and to serialize.
            let selected = tokio::task::spawn_blocking(move || {
                // The turn ends with the work, also when the client is gone.
                let _turn = turn;
                select(&frame, &parameters)
            });
            Arc::new(selected.await.map_err(|_| Problem::internal())??)
        }
        Call(call) => {
            gateway
                .calls
                .answer(route.path, call, parameters, view)
                .await?
        }
        OpenApi => openapi::document()?,
        Live if request.method() == Method::HEAD => return Ok(text(route, "")),
        Live => return live::respond(gateway, headers),
        Metrics => return Ok(metrics::respond(gateway, &view, headers)),
        Healthy => return Ok(text(route, "healthy\n")),
        Ready => {
            view.current()?;
            return Ok(text(route, "ready\n"));
        }
    };
    Ok(document::respond(document, headers).await)
}

/// Waits for the turn to make a part of the snapshot.
///
/// # Errors
/// The turn does not come in this time.
async fn part_turn(
    turns: &Arc<Semaphore>,
    longest: Duration,
) -> Result<OwnedSemaphorePermit, Problem> {
    let turn = Arc::clone(turns).acquire_owned();
    match tokio::time::timeout(longest, turn).await {
        Ok(Ok(turn)) => Ok(turn),
        Ok(Err(_)) | Err(_) => Err(Problem::busy("the gateway has too many requests", 2)),
    }
}

/// A constant answer.
fn text(route: &Route, body: &'static str) -> Response {
    let mut response = Response::new(Body::from(body));
    let media_type = HeaderValue::from_static(route.media_type);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_for_parts_wait_for_their_turn_and_not_forever() {
        let turns = Arc::new(Semaphore::new(1));
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(60));
        let turn = part_turn(&turns, long).await.unwrap();
        let response = part_turn(&turns, short).await.unwrap_err().into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(turn);
        assert!(part_turn(&turns, long).await.is_ok());
    }

    #[test]
    fn paths_name_their_parameters() {
        for route in ROUTES {
            let in_path = route.path.split('/').filter_map(|part| {
                part.strip_prefix('{')
                    .and_then(|part| part.strip_suffix('}'))
            });
            let named = route.parameters.iter().filter(|it| it.place == Place::Path);
            let named: Vec<&str> = named.map(|it| it.name).collect();
            assert_eq!(in_path.collect::<Vec<_>>(), named, "{}", route.path);
        }
    }

    #[test]
    fn paths_and_parameters_are_unique() {
        let mut paths: Vec<&str> = ROUTES.iter().map(|route| route.path).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), ROUTES.len());
        for route in ROUTES {
            let mut names: Vec<&str> = route.parameters.iter().map(|it| it.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), route.parameters.len(), "{}", route.path);
        }
    }
}
