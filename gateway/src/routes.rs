//! The one table of routes. The router, the API document and the tests of all paths are made from
//! it, so that a route is in all of them or in none.

mod acts;
pub(crate) mod history;
mod listing;
pub(crate) mod now;

use crate::access::{Access, Caller};
use crate::calls::{CallFn, CallRoute};
use crate::connections::Connection;
use crate::document;
use crate::document::Document;
use crate::gateway::{Gateway, MatchedRoute};
use crate::page::{self, Page, assets};
use crate::parameters::{Parameter, ParameterKind, Parameters, Place};
use crate::parts::{self, PartFn};
use crate::problem::{Problem, exit_code};
use crate::settings::Settings;
use crate::shares::Requester;
use crate::upstream::DaemonView;
use crate::{live, metrics, openapi, reference, websocket};
use Source::{
    Act, Call, Healthy, Html, Live, Metrics, OpenApi, PageFile, Part, Ready, Reference, Snapshot,
    WebSocket,
};
pub(crate) use acts::KnownKills;
use acts::{ActFn, ActMethod, ActRoute};
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use axum::routing::any;
use gpukill_proto::json::schema::{Components, JsonSchema};
use gpukill_proto::json::{
    ActionsDocument, CellsDocument, EventsDocument, ExplainDocument, GpuListDocument,
    GuardDocument, HoldersDocument, ListDocument, ProcessListDocument, ReplayDocument,
    RulesTextDocument, RunsDocument, SamplesDocument, ScanDocument, SeriesDocument, StatusDocument,
    SummaryDocument, ViolationsDocument, WeeklyDocument,
};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One route. Routes have the methods GET and HEAD, those that act POST, and some of other programs
/// all three.
#[derive(Debug)]
pub(crate) struct Route {
    /// The path, with names of parameters in braces.
    pub(crate) path: &'static str,
    /// What it answers, in the API document.
    pub(crate) summary: &'static str,
    pub(crate) media_type: &'static str,
    /// The JSON Schema of the answer.
    pub(crate) schema: fn(&mut Components) -> Value,
    pub(crate) parameters: &'static [Parameter],
    /// How GET and HEAD are answered.
    pub(crate) source: Source,
    /// How POST is answered, where the path of another program has it.
    pub(crate) post: Option<Post>,
}

/// How POST is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Post {
    /// As GET: it changes nothing.
    AsGet,
    /// It would change something: by this command here.
    Refused(&'static str),
    /// For the rules that the body has, instead of those in force. It changes nothing.
    Replay,
}

/// How a route is answered.
#[derive(Debug)]
pub(crate) enum Source {
    /// With the newest snapshot as it is.
    Snapshot,
    /// With a part of the newest snapshot, as far as the caller may see it.
    Part(PartFn),
    /// By a call of the daemon.
    Call(CallRoute),
    /// With a stream of events.
    Live,
    /// With the same events over a WebSocket.
    WebSocket,
    /// With metrics.
    Metrics,
    /// With the description of the API for programs.
    OpenApi,
    /// With the description of the API for people.
    Reference,
    /// By an action of the daemon, in a gateway of one person.
    Act(ActRoute),
    /// With a page for people.
    Html(&'static Page),
    /// With a file of the pages: style, script or icon.
    PageFile,
    /// Whether the gateway runs.
    Healthy,
    /// Whether the gateway has current data.
    Ready,
}

impl Route {
    pub(crate) fn methods(&self) -> &'static str {
        match (&self.source, self.post) {
            (Act(act), _) if act.method == ActMethod::Post => "POST",
            (_, Some(_)) => "GET, HEAD, POST",
            (_, None) => "GET, HEAD",
        }
    }

    /// Whether only a gateway of one person has it.
    pub(crate) fn is_personal(&self) -> bool {
        matches!(self.source, Act(_))
    }

    /// The least access that a caller needs. Whatever is not known to be without names of people
    /// and processes needs all.
    pub(crate) fn needed_access(&self) -> Access {
        match self.source {
            // The files are the same everywhere, and a page without data needs them too.
            Healthy | Ready | PageFile => Access::None,
            // Without names of people below [`Access::Metrics`].
            Metrics | OpenApi | Reference => Access::Numbers,
            // Without processes below [`Access::Look`].
            Part(_) if matches!(self.path, "/api/v1/gpus" | "/api/realtime") => Access::Numbers,
            Snapshot | Part(_) | Call(_) | Live | WebSocket | Html(_) => Access::Look,
            Act(_) => Access::Act,
        }
    }
}

/// How long a request for a part of the snapshot, or an act, waits for its turn.
pub(crate) const MAX_QUEUED: Duration = Duration::from_secs(5);

const JSON: &str = "application/json";

const HTML: &str = "text/html; charset=utf-8";

const TEXT: &str = "text/plain; charset=utf-8";

const EVENTS: &str = "text/event-stream";

/// A file names its own type.
const FILE: &str = "application/octet-stream";

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

/// A number of 32 bits, or the default of its parameter.
fn number(parameters: &Parameters, parameter: Parameter) -> Option<u32> {
    let number = parameters.number(parameter);
    number.and_then(|number| u32::try_from(number).ok())
}

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

/// A call that scans all processes, or evaluates the history.
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

/// An act with the seconds that the daemon may take.
const fn post(run: ActFn, timeout: u64) -> Source {
    act(ActMethod::Post, run, timeout)
}

const fn act(method: ActMethod, run: ActFn, timeout: u64) -> Source {
    Act(ActRoute {
        method,
        timeout: Duration::from_secs(timeout),
        run,
    })
}

/// The function of a call: it serializes what another one returns.
macro_rules! json {
    ($make:path) => {
        |context, parameters| Document::json(&$make(context, parameters)?)
    };
}

/// Writes the table: path, media type and document, parameters, source, how POST is answered,
/// summary.
macro_rules! routes {
    (@schema) => {
        String::schema
    };
    (@schema $document:ty) => {
        <$document>::schema
    };
    (@post) => {
        None
    };
    (@post $post:expr) => {
        Some($post)
    };
    ($(
        $path:literal $media_type:ident $(: $document:ty)?, $parameters:expr, $source:expr
            $(, $post:expr)?;
        $summary:literal
    )*) => {
        &[$(Route {
            path: $path,
            summary: $summary,
            media_type: $media_type,
            schema: routes!(@schema $($document)?),
            parameters: $parameters,
            source: $source,
            post: routes!(@post $($post)?),
        },)*]
    };
}

pub(crate) static ROUTES: &[Route] = routes! {
    "/api/v1/snapshot" JSON: ListDocument, &[], Snapshot;
        "the GPUs and the processes that use them, as gpukillctl list -o json"
    "/api/v1/gpus" JSON: GpuListDocument, &[GPU], Part(listing::gpus);
        "the GPUs of the snapshot, without the list of processes"
    "/api/v1/cells" JSON: CellsDocument, &[], Part(listing::cells);
        "some readings of each GPU in columns, for a map of many GPUs"
    "/api/v1/processes" JSON: ProcessListDocument, listing::PROCESS_PARAMETERS, Part(listing::processes);
        "the processes of the snapshot"
    "/api/v1/status" JSON: StatusDocument, &[], quick(json!(now::status));
        "the state of gpukilld, as gpukillctl status -o json"
    "/api/v1/holders" JSON: HoldersDocument, &[GPU], scan(json!(now::holders));
        "the processes that have GPUs open, as gpukillctl holders -o json"
    "/api/v1/explain/{pid}" JSON: ExplainDocument, &[PID], scan(json!(now::explain));
        "all that is known of one process, as gpukillctl explain -o json"
    "/api/v1/rogue" JSON: ScanDocument, &[now::SCAN_HOURS], long_scan(json!(now::rogue));
        "suspicious processes with the evidence, as gpukillctl rogue scan -o json"
    "/api/v1/guard/status" JSON: GuardDocument, &[], quick(json!(now::guard_status));
        "the state of the guard, as gpukillctl guard status -o json"
    "/api/v1/guard/rules" JSON: RulesTextDocument, &[], quick(json!(now::guard_rules));
        "the rules in force as text, with their revision"
    "/api/v1/guard/replay" JSON: ReplayDocument, history::REPLAY_PARAMETERS,
        long_scan(json!(history::guard_replay)), Post::Replay;
        "what rules would have done, as gpukillctl guard replay -o json: those in force, or with POST \
         {\"rules\": TEXT, \"hours\": HOURS}"
    "/api/v1/guard/test" JSON: ReplayDocument, &[], long_scan(json!(history::guard_test));
        "what the rules in force would do now, as gpukillctl guard test -o json"
    "/api/v1/guard/violations" JSON: ViolationsDocument, history::VIOLATION_PARAMETERS, past(json!(history::violations));
        "open violations and decisions, as gpukillctl guard violations -o json"
    "/api/v1/audit/runs" JSON: RunsDocument, history::RUN_PARAMETERS, past(json!(history::runs));
        "the runs of jobs or processes, as gpukillctl audit -o json"
    "/api/v1/audit/samples" JSON: SamplesDocument, history::SAMPLE_PARAMETERS, past(json!(history::samples));
        "the samples of GPUs and processes, as gpukillctl audit --samples -o json"
    "/api/v1/audit/weekly" JSON: WeeklyDocument, history::WEEKLY_PARAMETERS, past(json!(history::weekly));
        "a line for each week, as gpukillctl audit --weekly -o json"
    "/api/v1/audit/summary" JSON: SummaryDocument, history::SUMMARY_PARAMETERS, past(json!(history::summary));
        "sums over a period, as gpukillctl audit --summary -o json"
    "/api/v1/audit/series" JSON: SeriesDocument, history::SERIES_PARAMETERS, past(json!(history::series));
        "usage over time in buckets, as gpukillctl audit series -o json"
    "/api/v1/audit/actions" JSON: ActionsDocument, history::ACTION_PARAMETERS, past(json!(history::actions));
        "recorded actions and events, as gpukillctl audit actions -o json"
    "/api/v1/audit/timeline" JSON: EventsDocument, history::TIMELINE_PARAMETERS, past(json!(history::timeline));
        "everything that happened, oldest first, as gpukillctl audit timeline -o json"
    "/api/v1/live" EVENTS, &[live::DATA], Live;
        "each new snapshot as a server-sent event, or over a WebSocket for a client that asks for one"
    "/ws" TEXT, &[], WebSocket;
        "each new snapshot as a message of a WebSocket: event, id and data"
    "/api/v1/openapi.json" JSON: Map<String, Value>, &[], OpenApi;
        "this description"
    "/api/v1/reference" HTML, &[], Reference;
        "this description for people"
    "/api/v1/kill/plan" JSON: Map<String, Value>, &[], post(acts::plan_kill, 30);
        "plans a kill, as gpukillctl kill --dry-run -o json; a personal gateway alone acts"
    "/api/v1/kill/act" JSON: Map<String, Value>, &[], post(acts::kill, 10);
        "carries out a plan of this gateway: {\"plan_id\": ID}"
    "/api/v1/kill/report/{operation}" JSON: Map<String, Value>, &[acts::OPERATION],
        act(ActMethod::Get, acts::kill_report, 10);
        "how far a kill is, as gpukillctl kill -o json"
    "/api/v1/guard/snooze" JSON: Map<String, Value>, &[], post(acts::snooze, 10);
        "postpones the end of a job, as gpukillctl guard snooze: {\"pid\": PID}"
    "/api/v1/guard/mode" JSON: Map<String, Value>, &[], post(acts::set_mode, 10);
        "sets the mode of the guard: {\"mode\": \"soft\"}"
    "/api/v1/guard/set" JSON: Map<String, Value>, &[], post(acts::set_key, 10);
        "sets a key of the rules, as gpukillctl guard set: {\"key\": KEY, \"value\": VALUE}"
    "/" HTML, page::OVERVIEW_PARAMETERS, Html(&page::OVERVIEW);
        "the page: who uses the GPUs now"
    "/gpu/{gpu}" HTML, page::GPU_PARAMETERS, Html(&page::GPU);
        "the page of a GPU, by index or UUID"
    "/person/{user}" HTML, page::PERSON_PARAMETERS, Html(&page::PERSON);
        "the page of a person, by the name that processes have as owner"
    "/job/{job}" HTML, page::JOB_PARAMETERS, Html(&page::JOB);
        "the page of a job, by the name that processes have as job"
    "/process/{process}" HTML, page::PROCESS_PARAMETERS, Html(&page::PROCESS);
        "the page of a process: PID, or PID-START"
    "/history" HTML, page::HISTORY_PARAMETERS, Html(&page::HISTORY);
        "the page of the past: charts, sums and runs"
    "/guard" HTML, page::PLAIN_PARAMETERS, Html(&page::GUARD);
        "the page of the guard: its rules and violations"
    "/rogue" HTML, page::PLAIN_PARAMETERS, Html(&page::ROGUE);
        "the page of suspicious processes"
    "/actions" HTML, page::ACTION_PARAMETERS, Html(&page::ACTIONS);
        "the page of recorded actions and events"
    "/status" HTML, page::PLAIN_PARAMETERS, Html(&page::STATUS);
        "the page of gpukilld and its parts"
    "/assets/{file}" FILE, &[assets::FILE], PageFile;
        "a file of the pages, under a name that changes with its content"
    "/metrics" METRICS, &[metrics::VIEW], Metrics;
        "metrics for Prometheus; OpenMetrics if Accept prefers it"
    "/-/healthy" TEXT, &[], Healthy;
        "200 while the gateway runs"
    "/-/ready" TEXT, &[], Ready;
        "200 while the gateway has current data of gpukilld, else 503"

    // Paths of gpu-kill and GPM, with the documents of gpukill.
    "/health" TEXT, &[], Healthy;
        "as /-/healthy"
    "/api/info" JSON: StatusDocument, &[], quick(json!(now::status));
        "as /api/v1/status"
    "/api/realtime" JSON: GpuListDocument, &[GPU], Part(listing::gpus);
        "as /api/v1/gpus"
    "/api/historical" JSON: SeriesDocument, history::SERIES_PARAMETERS, past(json!(history::series));
        "as /api/v1/audit/series"
    "/api/chart" JSON: SeriesDocument, history::CHART_PARAMETERS, past(json!(history::series));
        "as /api/v1/audit/series, with gpu_id in place of gpu"
    "/api/guard/config" JSON: RulesTextDocument, &[], quick(json!(now::guard_rules)),
        Post::Refused("gpukillctl guard set KEY VALUE, or gpukillctl guard import FILE");
        "as /api/v1/guard/rules"
    "/api/guard/policies" JSON: RulesTextDocument, &[], quick(json!(now::guard_rules)),
        Post::Refused("gpukillctl guard user set NAME, and the same for group, gpu and time");
        "as /api/v1/guard/rules"
    "/api/guard/status" JSON: GuardDocument, &[], quick(json!(now::guard_status));
        "as /api/v1/guard/status"
    "/api/guard/toggle-dry-run" JSON: GuardDocument, &[], quick(json!(now::guard_status)),
        Post::Refused("gpukillctl guard toggle-dry-run");
        "as /api/v1/guard/status: GET changes nothing"
    "/api/guard/test-policies" JSON: ReplayDocument, &[], long_scan(json!(history::guard_test)), Post::AsGet;
        "as /api/v1/guard/test"
};

pub(crate) fn routes(settings: &Settings) -> impl Iterator<Item = &'static Route> {
    let is_personal = settings.is_personal;
    let routes = ROUTES.iter();
    routes.filter(move |route| is_personal || !route.is_personal())
}

pub(crate) fn router(gateway: &Arc<Gateway>) -> Router {
    let of_fallback = Arc::clone(gateway);
    let mut router = Router::new().fallback(move |request: Request| async move {
        // Who may see nothing learns no paths either.
        let caller = caller(&request);
        let access = caller.and_then(|it| of_fallback.authorize(&it, Access::Numbers));
        let problem = access.map_or_else(|problem| problem, |_| not_found());
        match page::is_wanted(request.headers()) {
            true => page::respond_problem(&of_fallback, problem),
            false => problem.into_response(),
        }
    });
    for route in routes(&gateway.settings) {
        let gateway = Arc::clone(gateway);
        let handler = move |path: PathParameters, request: Request| async move {
            let is_page = matches!(route.source, Html(_)) && !page::is_fragment(request.uri());
            let mut response = match answer(&gateway, route, path, request).await {
                Ok(response) => response,
                Err(problem) if is_page => page::respond_problem(&gateway, problem),
                Err(problem) => problem.into_response(),
            };
            response.extensions_mut().insert(MatchedRoute(route.path));
            response
        };
        router = router.route(route.path, any(handler));
    }
    router
}

impl Route {
    /// Refuses a method that the route does not have, or that would change something.
    ///
    /// # Errors
    /// Why it is refused, and what to do instead.
    fn check_method(&self, method: &Method) -> Result<(), Problem> {
        if let (&Method::POST, Some(Post::Refused(command))) = (method, self.post) {
            let problem = Problem::new(StatusCode::FORBIDDEN, "this path changes nothing");
            return Err(problem
                .with_exit_code(exit_code::NOT_PERMITTED)
                .with_hint(format!("run {command}")));
        }
        let methods = self.methods();
        match methods.split(", ").any(|it| method == it) {
            true => Ok(()),
            false => Err(Problem::method_not_allowed(methods)),
        }
    }
}

type PathParameters = Result<RawPathParams, RawPathParamsRejection>;

/// The sender of a request.
///
/// # Errors
/// The gateway has not identified it, which is a bug.
fn caller(request: &Request) -> Result<Caller, Problem> {
    let caller = request.extensions().get::<Caller>();
    caller.copied().ok_or_else(Problem::internal)
}

/// The connection of a request.
///
/// # Errors
/// The request has none, which is a bug.
pub(crate) fn connection(request: &Request) -> Result<Arc<Connection>, Problem> {
    let connection = request.extensions().get::<Arc<Connection>>();
    connection.cloned().ok_or_else(Problem::internal)
}

fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "there is no such path")
        .with_hint("/api/v1/openapi.json lists all paths")
}

async fn answer(
    gateway: &Arc<Gateway>,
    route: &'static Route,
    path: PathParameters,
    request: Request,
) -> Result<Response, Problem> {
    let caller = caller(&request)?;
    let needed = route.needed_access();
    let access = gateway.authorize(&caller, needed)?;
    let connection = connection(&request)?;
    if needed > Access::None {
        connection.admit()?;
    }
    route.check_method(request.method())?;
    let path = path.map_err(|_| Problem::bad_request("the path is not UTF-8"))?;
    let query = request.uri().query().unwrap_or_default();
    let parameters = match route.source {
        Html(_) => {
            let query = page::without_empty_fields(query);
            Parameters::parse(route.parameters, &path, &query)?
        }
        _ => Parameters::parse(route.parameters, &path, query)?,
    };
    if let Act(act) = route.source {
        return acts::respond(gateway, act, parameters, request).await;
    }
    if request.method() == Method::POST && route.post == Some(Post::Replay) {
        return acts::respond(gateway, acts::REPLAY, parameters, request).await;
    }
    let headers = request.headers();
    let view = gateway.view();
    let document = match route.source {
        Snapshot => Arc::clone(&view.current()?.document),
        Part(make) => {
            let requester = requester(gateway, &caller, &connection, &view)?;
            // A request that waits keeps no old snapshot in memory.
            drop(view);
            parts::answer(gateway, route.path, make, parameters, access, requester).await?
        }
        Call(call) => {
            let requester = requester(gateway, &caller, &connection, &view)?;
            let calls = &gateway.calls;
            // A request that waits keeps no old snapshot in memory.
            drop(view);
            let view = gateway.view.clone();
            calls
                .answer(requester, route.path, call, parameters, view)
                .await?
        }
        OpenApi => openapi::document(&gateway.settings)?,
        Reference => reference::document(&gateway.settings),
        WebSocket => return websocket::respond(gateway, caller, request),
        Live if websocket::is_requested(headers) => {
            return websocket::respond(gateway, caller, request);
        }
        Live if request.method() == Method::HEAD => return Ok(text(route, "")),
        Live => return live::respond(gateway, caller, headers, &parameters),
        Html(page) => {
            let requester = requester(gateway, &caller, &connection, &view)?;
            return page::respond(gateway, page, parameters, headers, requester).await;
        }
        PageFile => return assets::respond(&parameters, headers),
        Metrics => {
            return Ok(metrics::respond(
                gateway,
                &view,
                &parameters,
                headers,
                access,
            ));
        }
        // Answered above.
        Act(_) => return Err(Problem::internal()),
        Healthy => return Ok(text(route, "healthy\n")),
        Ready => {
            view.current()?;
            return Ok(text(route, "ready\n"));
        }
    };
    Ok(document::respond(document, headers).await)
}

/// The sender of a request as [`Calls`](crate::calls::Calls) counts it.
///
/// # Errors
/// gpukilld has not said yet what the gateway may see. It is asked for nothing else before.
fn requester(
    gateway: &Gateway,
    caller: &Caller,
    connection: &Connection,
    view: &DaemonView,
) -> Result<Requester, Problem> {
    if view.status.is_none() {
        view.current()?;
    }
    let token = caller.token.filter(|_| !gateway.tokens.is_empty());
    Ok(token.map_or(Requester::Peer(connection.peer()), Requester::Token))
}

/// Waits for the turn to act.
///
/// # Errors
/// The turn does not come in this time.
pub(crate) async fn take_turn(
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
    async fn requests_that_act_wait_for_their_turn_and_not_forever() {
        let turns = Arc::new(Semaphore::new(1));
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(60));
        let turn = take_turn(&turns, long).await.unwrap();
        let response = take_turn(&turns, short).await.unwrap_err().into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(turn);
        assert!(take_turn(&turns, long).await.is_ok());
    }

    #[test]
    fn post_changes_nothing() {
        let problem = |path: &str, method: Method| {
            let route = ROUTES.iter().find(|route| route.path == path).unwrap();
            let refused = route.check_method(&method).err()?;
            let hint = refused.hint().map(str::to_owned);
            let response = refused.into_response();
            let allow = response.headers().get("allow");
            let allow = allow.map(|it| it.to_str().unwrap().to_owned());
            Some((response.status().as_u16(), hint, allow))
        };
        let toggle = "/api/guard/toggle-dry-run";
        let hint = Some("run gpukillctl guard toggle-dry-run".to_owned());
        assert_eq!(problem(toggle, Method::GET), None);
        assert_eq!(problem(toggle, Method::POST), Some((403, hint, None)));
        let allow = |methods: &str| Some((405, None, Some(methods.to_owned())));
        assert_eq!(problem(toggle, Method::PUT), allow("GET, HEAD, POST"));
        let tests = "/api/guard/test-policies";
        assert_eq!(problem(tests, Method::POST), None);
        assert_eq!(problem(tests, Method::DELETE), allow("GET, HEAD, POST"));
        assert_eq!(problem("/metrics", Method::POST), allow("GET, HEAD"));
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
