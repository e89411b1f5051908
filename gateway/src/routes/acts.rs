//! What a person does through a gateway of their own: plan a kill, carry it out by the id of its
//! plan, follow it, snooze a warning, and edit the rules. The daemon knows the person by the user id
//! of the gateway, and decides what they may do. Every gateway replays rules that a body has, which
//! changes nothing.

use super::history::replay_document;
use crate::daemon::{CallError, DaemonConnection, call, check_rows};
use crate::document::{self, Document, RouteAnswer};
use crate::gateway::Gateway;
use crate::parameters::{Parameter, ParameterKind, Parameters, Place};
use crate::problem::{Problem, exit_code};
use crate::request_check::MAX_BODY;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use gpukill_policy::kill::outcome::{KillCompletion, completion};
use gpukill_policy::select::compile_pattern;
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{GuardMode, ReplayRequest, RuleSetSource, RulesRevision, SnoozedRule};
use gpukill_proto::json::{KillPlanDocument, KillReportDocument, SCHEMA};
use gpukill_proto::kill::{
    KillPlan, KillPlanPage, KillReport, KillReportPage, KillRequest, KillScope, KillSelector,
    KillSignal, OperationId, PlanId, Stage,
};
use gpukill_proto::model::Vendor;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::MAX_PART_BYTES;
use gpukill_proto::text::sanitize;
use gpukill_proto::units::{Bytes as Size, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How long the body of a request may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The plans, and the kills, that are remembered.
const MAX_KNOWN: usize = 16;

/// The timeout of each signal if a request names none, as for `gpukillctl kill`.
const SIGNAL_TIMEOUT_SECS: u64 = 5;

const SCOPES: &[(&str, KillScope)] = &[
    ("process", KillScope::Process),
    ("tree", KillScope::Tree),
    ("job", KillScope::Job),
    ("container", KillScope::Container),
];

const SIGNALS: &[(&str, KillSignal)] = &[
    ("INT", KillSignal::Interrupt),
    ("TERM", KillSignal::Terminate),
    ("KILL", KillSignal::Kill),
];

const VENDORS: &[(&str, Vendor)] = &[
    ("nvidia", Vendor::Nvidia),
    ("amd", Vendor::Amd),
    ("intel", Vendor::Intel),
    ("apple", Vendor::Apple),
    ("other", Vendor::Other),
];

const MODES: &[(&str, GuardMode)] = &[
    ("disabled", GuardMode::Disabled),
    ("dry-run", GuardMode::DryRun),
    ("soft", GuardMode::Soft),
    ("enforce", GuardMode::Enforce),
];

/// `operation` in a path.
pub(super) const OPERATION: Parameter = Parameter {
    name: "operation",
    place: Place::Path,
    kind: ParameterKind::Number {
        min: 0,
        max: u64::MAX,
        default: None,
    },
    summary: "the operation_id of the kill",
};

/// A route that acts, or follows an action.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ActRoute {
    /// The method: POST for what acts.
    pub(crate) method: ActMethod,
    /// How long the daemon may take.
    pub(crate) timeout: Duration,
    pub(crate) run: ActFn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActMethod {
    /// Follows.
    Get,
    /// Acts.
    Post,
}

/// Does what a request with these parameters and this body wants.
pub(crate) type ActFn = fn(&mut ActContext<'_>, &Parameters, &[u8]) -> RouteAnswer;

/// What an act is made with.
pub(crate) struct ActContext<'a> {
    daemon: DaemonConnection,
    known: &'a KnownKills,
}

/// The plans that this gateway has shown, and the kills that it has started from them.
#[derive(Debug, Default)]
pub(crate) struct KnownKills {
    plans: RecentPlans,
    operations: RecentPlans,
}

/// The newest plans, by a number.
#[derive(Debug, Default)]
struct RecentPlans(Mutex<VecDeque<(u64, Arc<KillPlan>)>>);

impl RecentPlans {
    fn put(&self, id: u64, plan: Arc<KillPlan>) {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.push_back((id, plan));
        if plans.len() > MAX_KNOWN {
            plans.pop_front();
        }
    }

    fn get(&self, id: u64) -> Option<Arc<KillPlan>> {
        let plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = plans.iter().rev().find(|(known, _)| *known == id);
        found.map(|(_, plan)| Arc::clone(plan))
    }
}

/// Answers a request. What it does goes on when the client is gone.
///
/// # Errors
/// The request is not valid, or the daemon refuses it or does not answer.
pub(super) async fn respond(
    gateway: &Arc<Gateway>,
    act: ActRoute,
    parameters: Parameters,
    request: Request,
) -> Result<Response, Problem> {
    let body = match act.method {
        ActMethod::Post => read_body(request).await?,
        ActMethod::Get => Bytes::new(),
    };
    let turn = super::take_turn(&gateway.act_turns, super::MAX_QUEUED).await?;
    let gateway = Arc::clone(gateway);
    let made = tokio::task::spawn_blocking(move || {
        // The turn ends with the work, not with the wait for it.
        let _turn = turn;
        let socket = &gateway.settings.daemon_socket;
        let mut context = ActContext {
            daemon: DaemonConnection::open(socket, act.timeout)?,
            known: &gateway.known_kills,
        };
        (act.run)(&mut context, &parameters, &body)
    });
    let document = made.await.map_err(|_| Problem::internal())??;
    // The answer to an act is never "unchanged".
    Ok(document::respond(Arc::new(document), &HeaderMap::new()).await)
}

/// The body of a request. A page of another site cannot send JSON without asking first.
///
/// # Errors
/// It is not JSON, too long, or too slow.
async fn read_body(request: Request) -> Result<Bytes, Problem> {
    let media_type = request.headers().get(CONTENT_TYPE);
    let media_type = media_type.and_then(|it| it.to_str().ok()?.split(';').next());
    if !media_type.is_some_and(|it| it.trim().eq_ignore_ascii_case("application/json")) {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let problem = Problem::new(status, "the body must be application/json");
        return Err(problem.with_exit_code(exit_code::BAD_USAGE));
    }
    let limit = usize::try_from(MAX_BODY).unwrap_or(usize::MAX);
    let body = axum::body::to_bytes(request.into_body(), limit);
    match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is not complete, or longer than {MAX_BODY} bytes"),
        )),
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not come in time",
        )),
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // A list would set the members by their position.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Problem::bad_request("the body is not a JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| {
        let why = sanitize(error.to_string().as_bytes(), 300);
        Problem::bad_request(format!("the body is not valid: {why}"))
    })
}

fn by_name<T: Copy>(key: &str, name: &str, known: &[(&str, T)]) -> Result<T, Problem> {
    let found = known.iter().find(|(it, _)| *it == name);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let typed = sanitize(name.as_bytes(), 80);
        let names = names.join(", ");
        Problem::bad_request(format!("{key} is {typed:?}, which is not one of {names}"))
    })
}

/// The conditions and options of `gpukillctl kill`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PlanBody {
    pids: Vec<u32>,
    filter: Option<String>,
    command: Option<String>,
    gpu: Option<String>,
    user: Option<String>,
    container: Option<String>,
    image: Option<String>,
    job: Option<String>,
    min_memory_bytes: Option<u64>,
    vendors: Vec<String>,
    scope: Option<String>,
    signal: Option<String>,
    force: bool,
    timeout_secs: Option<u64>,
}

impl PlanBody {
    /// # Errors
    /// The first mistake.
    fn into_request(self) -> Result<KillRequest, Problem> {
        let vendors = self.vendors.iter();
        let vendors: Result<BTreeSet<Vendor>, Problem> = vendors
            .map(|name| by_name("vendors", name, VENDORS))
            .try_fold(BTreeSet::new(), |mut all, vendor| {
                all.insert(vendor?);
                Ok(all)
            });
        let scope = self.scope.as_deref();
        let signal = self.signal.as_deref();
        let seconds = self.timeout_secs.unwrap_or(SIGNAL_TIMEOUT_SECS);
        let request = KillRequest {
            selector: KillSelector {
                pids: self.pids,
                filter: self.filter,
                command: self.command,
                gpu: self.gpu,
                user: self.user,
                container: self.container,
                image: self.image,
                job: self.job,
                min_memory: None,
                vendors: BTreeSet::new(),
            },
            scope: scope.map_or(Ok(KillScope::Process), |name| {
                by_name("scope", name, SCOPES)
            })?,
            signal: signal
                .map(|name| by_name("signal", name, SIGNALS))
                .transpose()?,
            force: self.force,
            signal_timeout_ms: seconds.saturating_mul(1_000),
            ..KillRequest::default()
        };
        // Alone, the other two would select the processes of everybody.
        if request.selector.is_empty() {
            return Err(Problem::bad_request(
                "no process is selected: give pids, filter, command, gpu, user, container, image or \
                 job; min_memory_bytes and vendors only narrow these",
            ));
        }
        let selector = KillSelector {
            min_memory: self.min_memory_bytes.map(Size),
            vendors: vendors?,
            ..request.selector
        };
        let request = KillRequest {
            selector,
            ..request
        };
        request.validate().map_err(Problem::bad_request)?;
        let patterns = [&request.selector.filter, &request.selector.command];
        for pattern in patterns.into_iter().flatten() {
            compile_pattern(pattern).map_err(Problem::bad_request)?;
        }
        Ok(request)
    }
}

#[derive(Serialize)]
struct PlannedKill {
    /// By which the plan can be carried out; `null` if it would end nothing. A text, because
    /// JavaScript has no such large numbers.
    plan_id: Option<String>,
    #[serde(flatten)]
    plan: KillPlanDocument,
}

pub(super) fn plan_kill(context: &mut ActContext<'_>, _: &Parameters, body: &[u8]) -> RouteAnswer {
    let request = parse::<PlanBody>(body)?.into_request()?;
    let page = call!(context.daemon, PlanKill { request })?;
    let KillPlanPage {
        id,
        mut plan,
        mut next,
    } = page;
    while let Some(start) = next {
        let id = id.unwrap_or(PlanId::LAST);
        let page = call!(context.daemon, MoreOfKillPlan { plan: id, start })?;
        plan.targets.extend(page.plan.targets);
        check_rows(plan.targets.len())?;
        next = advance(start, page.next)?;
    }
    let document = PlannedKill {
        plan_id: id.map(|id| id.0.to_string()),
        plan: KillPlanDocument::from(&plan),
    };
    if let Some(id) = id {
        context.known.plans.put(id.0, Arc::new(plan));
    }
    Document::json(&document)
}

/// The next page, which must be a later one: a part of a plan is no plan.
fn advance(start: u32, next: Option<u32>) -> Result<Option<u32>, Problem> {
    match next {
        Some(next) if next <= start => Err(Problem::internal()),
        next => Ok(next),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActBody {
    plan_id: String,
}

/// Carries out a plan that this gateway has shown.
pub(super) fn kill(context: &mut ActContext<'_>, _: &Parameters, body: &[u8]) -> RouteAnswer {
    let id = plan_number(&parse::<ActBody>(body)?.plan_id);
    let known = id.and_then(|id| Some((id, context.known.plans.get(id)?)));
    let (id, plan) = known.ok_or_else(unknown_plan)?;
    let operation = match call!(context.daemon, Kill { plan: PlanId(id) }) {
        Err(CallError::Refused(Refusal::Expired)) => return Err(unknown_plan()),
        started => started?,
    };
    context.known.operations.put(operation.0, plan);
    follow(context, operation).map_err(|problem| without_report(&problem, operation))
}

/// The number of a plan, as this gateway has written it.
fn plan_number(text: &str) -> Option<u64> {
    let number = text.parse::<u64>().ok();
    number.filter(|number| number.to_string() == text)
}

/// The problem of a plan that cannot be carried out any more.
fn unknown_plan() -> Problem {
    let what = "the plan is unknown, has expired, or was carried out";
    Problem::new(StatusCode::NOT_FOUND, what)
        .with_exit_code(exit_code::FAILED)
        .with_hint("plan again: POST /api/v1/kill/plan")
}

/// The problem of a kill that has started, and goes on without its first report. It says so: another
/// attempt would be refused.
fn without_report(problem: &Problem, operation: OperationId) -> Problem {
    let why = problem.detail();
    let what = format!("the kill has started, but its first report did not come: {why}");
    let id = operation.0;
    Problem::new(StatusCode::BAD_GATEWAY, what)
        .with_exit_code(exit_code::FAILED)
        .with_hint(format!("see how far it is: GET /api/v1/kill/report/{id}"))
}

/// How far a kill is.
pub(super) fn kill_report(
    context: &mut ActContext<'_>,
    parameters: &Parameters,
    _: &[u8],
) -> RouteAnswer {
    let operation = parameters.number(OPERATION).ok_or_else(Problem::internal)?;
    follow(context, OperationId(operation))
}

#[derive(Serialize)]
struct FollowedKill {
    operation_id: String,
    /// The exit code of `gpukillctl kill`; `null` until the kill is over, and for one that this
    /// gateway has not started.
    exit_code: Option<u8>,
    #[serde(flatten)]
    report: KillReportDocument,
}

fn follow(context: &mut ActContext<'_>, operation: OperationId) -> RouteAnswer {
    let KillReportPage {
        mut report,
        mut next,
    } = report_page(context, operation, 0)?;
    while let Some(start) = next {
        let page = report_page(context, operation, start)?;
        if page.report.version != report.version {
            return Err(Refusal::Expired.into());
        }
        report.outcomes.extend(page.report.outcomes);
        check_rows(report.outcomes.len())?;
        next = advance(start, page.next)?;
    }
    let plan = context.known.operations.get(operation.0);
    Document::json(&FollowedKill {
        operation_id: operation.0.to_string(),
        exit_code: plan.and_then(|plan| final_exit_code(&plan, &report)),
        report: KillReportDocument::from(&report),
    })
}

/// A page of a report, as it is now.
fn report_page(
    context: &mut ActContext<'_>,
    operation: OperationId,
    start: u32,
) -> Result<KillReportPage, Problem> {
    let after = None;
    let page = call!(
        context.daemon,
        FollowKill {
            operation,
            after,
            start
        }
    )?;
    Ok(page)
}

/// The exit code with which `gpukillctl kill` would end; `None` while the kill goes on.
fn final_exit_code(plan: &KillPlan, report: &KillReport) -> Option<u8> {
    let code = match completion(plan, report) {
        KillCompletion::All => exit_code::DONE,
        KillCompletion::Partial => exit_code::PARTLY_DONE,
        KillCompletion::Refused => exit_code::NOT_PERMITTED,
        KillCompletion::NothingToEnd => exit_code::NO_MATCH,
        KillCompletion::Failed => exit_code::FAILED,
    };
    match (report.stage, code) {
        (Stage::Ending | Stage::Reclaiming, _) => None,
        (Stage::Done, code) => Some(code),
        // The processes that are not settled are missing in the report.
        (Stage::Interrupted, exit_code::DONE | exit_code::PARTLY_DONE) => {
            Some(exit_code::PARTLY_DONE)
        }
        (Stage::Interrupted, _) => Some(exit_code::FAILED),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SnoozeBody {
    pid: u32,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize)]
struct SnoozeDocument {
    schema: u32,
    dry_run: bool,
    rules: Vec<SnoozedRuleDocument>,
}

#[derive(Serialize)]
struct SnoozedRuleDocument {
    rule: String,
    mode: &'static str,
    /// Until when no job of the owner is ended for the rule.
    until: String,
    /// The number of remaining snoozes.
    snoozes_left: u32,
}

impl From<&SnoozedRule> for SnoozedRuleDocument {
    fn from(snoozed: &SnoozedRule) -> Self {
        Self {
            rule: snoozed.rule.to_string(),
            mode: snoozed.mode.name(),
            until: snoozed.until.to_rfc3339(),
            snoozes_left: snoozed.left,
        }
    }
}

/// Postpones the end of a job after its owner was warned.
pub(super) fn snooze(context: &mut ActContext<'_>, _: &Parameters, body: &[u8]) -> RouteAnswer {
    let SnoozeBody { pid, dry_run } = parse(body)?;
    let is_dry_run = dry_run;
    let snoozed = call!(context.daemon, Snooze { pid, is_dry_run })?;
    Document::json(&SnoozeDocument {
        schema: SCHEMA,
        dry_run,
        rules: snoozed.iter().map(SnoozedRuleDocument::from).collect(),
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModeBody {
    mode: String,
    revision: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetBody {
    key: String,
    value: String,
    revision: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

pub(super) fn set_mode(context: &mut ActContext<'_>, _: &Parameters, body: &[u8]) -> RouteAnswer {
    let body: ModeBody = parse(body)?;
    let mode = by_name("mode", &body.mode, MODES)?;
    edit_rules(
        context,
        GuardEdit::SetMode(mode),
        body.revision,
        body.dry_run,
    )
}

/// Sets one key of the guard's rules.
pub(super) fn set_key(context: &mut ActContext<'_>, _: &Parameters, body: &[u8]) -> RouteAnswer {
    let body: SetBody = parse(body)?;
    let edit = GuardEdit::SetKey {
        path: body.key,
        value: body.value,
    };
    edit_rules(context, edit, body.revision, body.dry_run)
}

#[derive(Serialize)]
struct EditDocument {
    schema: u32,
    dry_run: bool,
    previous_revision: Option<String>,
    revision: String,
    /// As of `diff -u`.
    difference: String,
    warnings: Vec<String>,
}

/// Edits the rules. With a revision, only if they still have it.
fn edit_rules(
    context: &mut ActContext<'_>,
    edit: GuardEdit,
    revision: Option<String>,
    dry_run: bool,
) -> RouteAnswer {
    let report = call!(
        context.daemon,
        EditRules {
            edit: Some(edit),
            expected: revision.map(RulesRevision),
            is_dry_run: dry_run
        }
    )?;
    Document::json(&EditDocument {
        schema: SCHEMA,
        dry_run,
        previous_revision: report.before.map(|before| before.0),
        revision: report.after.0,
        difference: report.difference,
        warnings: report.warnings,
    })
}

/// Replays the rules of a body. One connection uploads them and asks, because they belong to it.
pub(super) const REPLAY: ActRoute = ActRoute {
    method: ActMethod::Post,
    timeout: Duration::from_secs(60),
    run: replay,
};

/// The longest period of a replay in hours: ten years.
const MAX_REPLAY_HOURS: u32 = 87_600;

/// The period if a body names none: a week.
const REPLAY_HOURS: u32 = 168;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayBody {
    /// The text of a rule file.
    rules: String,
    hours: Option<u32>,
}

fn replay(context: &mut ActContext<'_>, _: &Parameters, body: &[u8]) -> Result<Document, Problem> {
    let ReplayBody { rules, hours } = parse(body)?;
    let hours = hours.unwrap_or(REPLAY_HOURS);
    if !(1..=MAX_REPLAY_HOURS).contains(&hours) {
        let what = format!("hours is {hours}, which is not a number from 1 to {MAX_REPLAY_HOURS}");
        return Err(Problem::bad_request(what));
    }
    let mut offset = 0;
    // Empty rules are valid: they mean the built-in defaults.
    let nothing: &[u8] = &[];
    let first = rules.is_empty().then_some(nothing);
    for part in first
        .into_iter()
        .chain(rules.as_bytes().chunks(MAX_PART_BYTES))
    {
        let next = offset + part.len() as u64;
        let part = part.to_vec();
        call!(context.daemon, OfferRules { offset, part })?;
        offset = next;
    }
    let until = Timestamp::from(SystemTime::now());
    let request = ReplayRequest {
        rules: RuleSetSource::Offered,
        since: until.plus_seconds(-3_600 * i64::from(hours)),
        until,
    };
    let report = call!(context.daemon, ReplayRules { request })?;
    Document::json(&replay_document(report, &rules))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::kill::{Outcome, ProcessOutcome};
    use gpukill_proto::model::ProcessKey;
    use gpukill_proto::reading::Reading;

    #[test]
    fn plan_is_named_as_it_was_written() {
        assert_eq!(plan_number("704"), Some(704));
        for text in ["+704", "0704", "704 ", "", "-1", "18446744073709551616"] {
            assert_eq!(plan_number(text), None, "{text}");
        }
    }

    #[test]
    fn kill_without_its_first_report_names_its_operation() {
        let problem = without_report(&Refusal::Expired.into(), OperationId(7));
        assert_eq!(
            problem.detail(),
            "the kill has started, but its first report did not come: the rest of the answer has \
             expired"
        );
        let hint = "see how far it is: GET /api/v1/kill/report/7";
        assert_eq!(problem.hint(), Some(hint));
        let response = problem.into_response();
        assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
        // Nothing invites a client to send the act again.
        assert!(response.headers().get("retry-after").is_none());
    }

    fn request(body: &str) -> Result<KillRequest, String> {
        let parsed = parse::<PlanBody>(body.as_bytes()).and_then(PlanBody::into_request);
        parsed.map_err(|problem| problem.detail().to_owned())
    }

    #[test]
    fn body_is_the_request_of_the_client() {
        let body = r#"{"pids": [7, 9], "gpu": "0-3", "min_memory_bytes": 1024, "vendors": ["amd"],
                       "scope": "job", "signal": "INT", "force": true, "timeout_secs": 30}"#;
        let expected = KillRequest {
            selector: KillSelector {
                pids: vec![7, 9],
                gpu: Some("0-3".into()),
                min_memory: Some(Size(1_024)),
                vendors: [Vendor::Amd].into(),
                ..KillSelector::default()
            },
            scope: KillScope::Job,
            signal: Some(KillSignal::Interrupt),
            force: true,
            signal_timeout_ms: 30_000,
            ..KillRequest::default()
        };
        assert_eq!(request(body), Ok(expected));
        let plain = request(r#"{"pids": [7]}"#).unwrap();
        assert_eq!(plain.signal_timeout_ms, 5_000);
        assert!(!plain.dry_run && !plain.any_process && !plain.override_protected);
    }

    #[test]
    fn mistakes_of_a_body_are_refused() {
        for (body, expected) in [
            ("", "the body is not a JSON object"),
            ("[[7]]", "the body is not a JSON object"),
            ("{", "the body is not valid: EOF"),
            (
                r#"{"pid": 7}"#,
                "the body is not valid: unknown field `pid`",
            ),
            (r#"{"pids": [-1]}"#, "the body is not valid: invalid value"),
            ("{}", "no process is selected: give pids"),
            (
                r#"{"vendors": ["amd"]}"#,
                "no process is selected: give pids",
            ),
            (
                r#"{"pids": [7], "vendors": ["all"]}"#,
                "vendors is \"all\", which is not one of",
            ),
            (
                r#"{"pids": [7], "scope": "host"}"#,
                "scope is \"host\", which is not one of",
            ),
            (
                r#"{"pids": [7], "signal": "KILL"}"#,
                "--signal KILL needs --force",
            ),
            (
                r#"{"pids": [7], "timeout_secs": 0}"#,
                "the signal timeout of 0 ms",
            ),
            (r#"{"filter": "("}"#, "\"(\" is not a regular expression"),
        ] {
            let why = request(body).unwrap_err();
            assert!(why.starts_with(expected), "{body}: {why}");
        }
    }

    #[test]
    fn exit_code_is_that_of_the_client() {
        let report = |stage, outcomes: &[Outcome]| KillReport {
            version: 1,
            stage,
            outcomes: outcomes
                .iter()
                .map(|outcome| ProcessOutcome {
                    key: ProcessKey {
                        pid: 7,
                        start_ticks: 1,
                    },
                    name: "python".into(),
                    command: Reading::Unsupported,
                    outcome: outcome.clone(),
                })
                .collect(),
            memory: Vec::new(),
            respawned: Vec::new(),
            unchecked: None,
            unrecorded: None,
        };
        let ended = Outcome::Ended(KillSignal::Terminate, 3);
        let denied = Outcome::Denied("bob".into());
        let plan = KillPlan::default();
        for (stage, outcomes, expected) in [
            (Stage::Ending, vec![ended.clone()], None),
            (Stage::Done, vec![ended.clone()], Some(0)),
            (Stage::Done, vec![ended.clone(), denied.clone()], Some(7)),
            (Stage::Done, vec![denied.clone()], Some(4)),
            (Stage::Done, vec![Outcome::Gone], Some(8)),
            (Stage::Done, vec![Outcome::Failed("x".into())], Some(1)),
            (Stage::Interrupted, vec![ended], Some(7)),
            (Stage::Interrupted, vec![denied], Some(1)),
        ] {
            let report = report(stage, &outcomes);
            assert_eq!(final_exit_code(&plan, &report), expected, "{outcomes:?}");
        }
    }

    #[test]
    fn only_the_newest_plans_are_known() {
        let plans = RecentPlans::default();
        for id in 0..20 {
            plans.put(id, Arc::default());
        }
        assert!(plans.get(3).is_none() && plans.get(4).is_some() && plans.get(19).is_some());
    }
}
