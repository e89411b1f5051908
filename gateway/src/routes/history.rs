//! Calls of the daemon about the past: the documents that `gpukillctl audit`, `guard violations` and
//! `guard replay` print.

use super::now::guard_rules;
use super::{GPU, USER, number};
use crate::calls::CallContext;
use crate::daemon::call;
use crate::parameters::{
    Parameter, ParameterKind, Parameters, Place, SINCE, UNTIL, hours, limit, text,
};
use crate::problem::Problem;
use gpukill_policy::guard::CompiledRules;
use gpukill_policy::guard::consequences::milder_policy_for_violation;
use gpukill_policy::guard::lookback::test_seconds;
use gpukill_policy::guard::rules::parse::parse;
use gpukill_policy::select::compile_pattern;
use gpukill_proto::audit::{
    ActionQuery, AuditFilter, AuditQuery, MAX_SERIES_BUCKETS, RunExtent, RunQuery, RunUnit,
    SeriesBy, SeriesQuery, TimelineQuery,
};
use gpukill_proto::guard::{ReplayReport, ReplayRequest, RuleSetSource, ViolationQuery};
use gpukill_proto::json::{
    ActionDocument, ActionsDocument, AuditDocument, EventsDocument, GapDocument, PeriodDocument,
    ReplayDocument, RunDocument, RunsDocument, SamplesDocument, SeriesDocument, SummaryDocument,
    TimelineDocument, ViolationsDocument, WeeklyDocument,
};
use gpukill_proto::units::Timestamp;
use std::time::SystemTime;

/// The hours of a day, of a week and of eight weeks, the defaults of the client's commands.
const DAY: Parameter = hours(24);
const WEEK: Parameter = hours(168);
const WEEKS: Parameter = hours(8 * 168);

const LIMIT: Parameter = limit(100, 1_000);

const PROCESS: Parameter = text(
    "process",
    "only processes with a name that matches this regular expression",
);
const COMMAND: Parameter = text(
    "command",
    "only processes with a command line that matches this regular expression",
);
const CONTAINER: Parameter = text("container", "only processes in this container");
const JOB: Parameter = text("job", "only processes of this job");
const GROUP: Parameter = text(
    "group",
    "only processes of members of this group, as of that time",
);

const UNIT: Parameter = Parameter {
    name: "unit",
    place: Place::Query,
    kind: ParameterKind::Choice(&["job", "process"]),
    summary: "what makes one run",
};

const BY: Parameter = Parameter {
    name: "by",
    place: Place::Query,
    kind: ParameterKind::Choice(&["gpu", "user", "job"]),
    summary: "what has a line of its own",
};

const BUCKETS: Parameter = Parameter {
    name: "buckets",
    place: Place::Query,
    kind: ParameterKind::Number {
        min: 1,
        max: MAX_SERIES_BUCKETS as u64,
        default: Some(48),
    },
    summary: "the most buckets of time",
};

const PID: Parameter = Parameter {
    place: Place::Query,
    summary: "what happened to this process",
    ..super::PID
};

/// The parameters of [`runs`].
pub(crate) const RUN_PARAMETERS: &[Parameter] = &[
    UNIT, GPU, USER, GROUP, PROCESS, COMMAND, CONTAINER, JOB, DAY, SINCE, UNTIL, LIMIT,
];

/// The parameters of [`samples`].
pub(crate) const SAMPLE_PARAMETERS: &[Parameter] = &[
    GPU, USER, GROUP, PROCESS, COMMAND, CONTAINER, JOB, DAY, SINCE, UNTIL, LIMIT,
];

/// The parameters of [`summary`].
pub(crate) const SUMMARY_PARAMETERS: &[Parameter] = &[
    GPU, USER, GROUP, PROCESS, COMMAND, CONTAINER, JOB, WEEK, SINCE, UNTIL,
];

/// The parameters of [`weekly`].
pub(crate) const WEEKLY_PARAMETERS: &[Parameter] = &[
    GPU, USER, GROUP, PROCESS, COMMAND, CONTAINER, JOB, WEEKS, SINCE, UNTIL,
];

/// The parameters of [`series`].
pub(crate) const SERIES_PARAMETERS: &[Parameter] = &[
    BY, BUCKETS, GPU, USER, GROUP, PROCESS, COMMAND, CONTAINER, JOB, DAY, SINCE, UNTIL,
];

const GPU_ID: Parameter = Parameter {
    name: "gpu_id",
    ..GPU
};

/// The parameters of [`series`] under the names of GPM.
pub(crate) const CHART_PARAMETERS: &[Parameter] = &[GPU_ID, BUCKETS, DAY, SINCE, UNTIL];

/// The parameters of [`actions`].
pub(crate) const ACTION_PARAMETERS: &[Parameter] = &[
    text("kind", "only these kinds, separated by commas: kill,reset"),
    GPU,
    USER,
    WEEK,
    SINCE,
    UNTIL,
    LIMIT,
];

/// The parameters of [`timeline`].
pub(crate) const TIMELINE_PARAMETERS: &[Parameter] =
    &[GPU, USER, JOB, PID, DAY, SINCE, UNTIL, LIMIT];

/// The parameters of [`violations`].
pub(crate) const VIOLATION_PARAMETERS: &[Parameter] = &[USER, WEEK, SINCE, UNTIL, LIMIT];

/// The parameters of [`guard_replay`].
pub(crate) const REPLAY_PARAMETERS: &[Parameter] = &[WEEK, SINCE, UNTIL];

type Span = (Timestamp, Timestamp);

fn span(parameters: &Parameters, hours: Parameter) -> Result<Span, Problem> {
    parameters.span(hours, SystemTime::now().into())
}

/// The filter of a request. A pattern is checked here for a better message.
fn filter(parameters: &Parameters, (since, until): Span) -> Result<AuditFilter, Problem> {
    for name in [PROCESS.name, COMMAND.name] {
        if let Some(pattern) = parameters.text(name) {
            compile_pattern(pattern).map_err(Problem::bad_request)?;
        }
    }
    Ok(AuditFilter {
        since,
        until,
        user: parameters.owned("user"),
        process: parameters.owned("process"),
        command: parameters.owned("command"),
        gpu: parameters
            .owned(GPU.name)
            .or_else(|| parameters.owned(GPU_ID.name)),
        container: parameters.owned("container"),
        job: parameters.owned("job"),
        group: parameters.owned(GROUP.name),
    })
}

/// Requests pages until there are `limit` entries or no more. `request` makes the call for at most
/// this many entries from this cursor on, and returns the number of entries and the next cursor.
/// Returns whether there are more entries.
fn collect_pages<C: PartialEq + Copy>(
    parameters: &Parameters,
    mut request: impl FnMut(Option<C>, u32) -> Result<(usize, Option<C>), Problem>,
) -> Result<bool, Problem> {
    let mut left = number(parameters, LIMIT).unwrap_or_default();
    let mut cursor = None;
    loop {
        let (count, next) = request(cursor, left)?;
        left = left.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        match next {
            None => return Ok(false),
            Some(_) if left == 0 => return Ok(true),
            // A page that does not advance would be requested for ever.
            Some(_) if next == cursor => return Err(Problem::internal()),
            Some(_) => cursor = next,
        }
    }
}

pub(crate) fn runs(
    context: &mut CallContext,
    parameters: &Parameters,
) -> Result<RunsDocument, Problem> {
    let span = span(parameters, DAY)?;
    let filter = filter(parameters, span)?;
    let unit = match parameters.text(UNIT.name) {
        Some("process") => RunUnit::Process,
        Some(_) | None => RunUnit::Job,
    };
    let mut document = RunsDocument {
        period: PeriodDocument::new(span.0, span.1),
        runs: Vec::new(),
        gaps: Vec::new(),
        recorded_since: None,
        more: false,
    };
    document.more = collect_pages(parameters, |before, limit| {
        let query = RunQuery {
            filter: filter.clone(),
            unit,
            extent: RunExtent::Whole,
            before,
            limit,
        };
        let page = call!(context.daemon, AuditRuns { query })?;
        if before.is_none() {
            document.gaps = page.gaps.iter().map(GapDocument::from).collect();
            document.recorded_since = page.recorded_since.map(Timestamp::to_rfc3339);
        }
        document
            .runs
            .extend(page.runs.iter().map(RunDocument::from));
        Ok((page.runs.len(), page.next))
    })?;
    Ok(document)
}

pub(crate) fn samples(
    context: &mut CallContext,
    parameters: &Parameters,
) -> Result<SamplesDocument, Problem> {
    let span = span(parameters, DAY)?;
    let filter = filter(parameters, span)?;
    let mut document = SamplesDocument {
        period: PeriodDocument::new(span.0, span.1),
        records: Vec::new(),
        gaps: None,
        recorded_since: None,
        more: false,
    };
    document.more = collect_pages(parameters, |before, limit| {
        let query = AuditQuery {
            filter: filter.clone(),
            before,
            limit,
        };
        let page = call!(context.daemon, Audit { query })?;
        let records = page.records.iter().map(AuditDocument::from);
        document.records.extend(records);
        Ok((page.records.len(), page.next))
    })?;
    // Pages of samples do not have these, so they come with a run.
    let query = RunQuery {
        filter: AuditFilter::for_period(span.0, span.1),
        unit: RunUnit::Process,
        extent: RunExtent::Whole,
        before: None,
        limit: 1,
    };
    if let Ok(page) = call!(context.daemon, AuditRuns { query }) {
        document.gaps = Some(page.gaps.iter().map(GapDocument::from).collect());
        document.recorded_since = page.recorded_since.map(Timestamp::to_rfc3339);
    }
    Ok(document)
}

pub(crate) fn weekly(
    context: &mut CallContext,
    parameters: &Parameters,
) -> Result<WeeklyDocument, Problem> {
    let filter = filter(parameters, span(parameters, WEEKS)?)?;
    let summary = call!(context.daemon, AuditSummary { filter })?;
    Ok(WeeklyDocument::from(&summary))
}

pub(crate) fn summary(
    context: &mut CallContext,
    parameters: &Parameters,
) -> Result<SummaryDocument, Problem> {
    let filter = filter(parameters, span(parameters, WEEK)?)?;
    let summary = call!(context.daemon, AuditSummary { filter })?;
    Ok(SummaryDocument::from(&summary))
}

pub(crate) fn series(
    context: &mut CallContext,
    parameters: &Parameters,
) -> Result<SeriesDocument, Problem> {
    let query = SeriesQuery {
        filter: filter(parameters, span(parameters, DAY)?)?,
        by: match parameters.text(BY.name) {
            Some("user") => SeriesBy::Owner,
            Some("job") => SeriesBy::Job,
            Some(_) | None => SeriesBy::Gpu,
        },
        buckets: number(parameters, BUCKETS).unwrap_or_default(),
    };
    let series = call!(context.daemon, AuditSeries { query })?;
    Ok(SeriesDocument::from(&series))
}

pub(crate) fn actions(
    context: &mut CallContext,
    parameters: &Parameters,
) -> Result<ActionsDocument, Problem> {
    let span = span(parameters, WEEK)?;
    let mut document = ActionsDocument {
        period: PeriodDocument::new(span.0, span.1),
        actions: Vec::new(),
        more: false,
    };
    document.more = collect_pages(parameters, |before, limit| {
        let query = ActionQuery {
            since: span.0,
            until: span.1,
            user: parameters.owned("user"),
            kind: parameters.owned("kind"),
            gpu: parameters.owned("gpu"),
            before,
            limit,
        };
        let page = call!(context.daemon, AuditActions { query })?;
        document
            .actions
            .extend(page.records.iter().map(ActionDocument::from));
        Ok((page.records.len(), page.next))
    })?;
    Ok(document)
}

pub(crate) fn timeline(
    context: &mut CallContext,
    parameters: &Parameters,
) -> Result<EventsDocument, Problem> {
    let span = span(parameters, DAY)?;
    let pid = number(parameters, PID);
    let mut document = EventsDocument {
        period: PeriodDocument::new(span.0, span.1),
        entries: Vec::new(),
        stretches_omitted: false,
        more: false,
    };
    document.more = collect_pages(parameters, |from, limit| {
        let query = TimelineQuery {
            since: span.0,
            until: span.1,
            gpu: parameters.owned("gpu"),
            user: parameters.owned("user"),
            job: parameters.owned("job"),
            pid,
            from,
            limit,
        };
        let page = call!(context.daemon, Timeline { query })?;
        document.stretches_omitted |= page.stretches_omitted;
        document
            .entries
            .extend(page.entries.iter().map(TimelineDocument::from));
        Ok((page.entries.len(), page.next))
    })?;
    Ok(document)
}

pub(crate) fn violations(
    context: &mut CallContext,
    parameters: &Parameters,
) -> Result<ViolationsDocument, Problem> {
    let span = span(parameters, WEEK)?;
    let mut whole = None;
    // As for the client, `more` is not a member of this document.
    collect_pages(parameters, |before, limit| {
        let query = ViolationQuery {
            since: span.0,
            until: span.1,
            user: parameters.owned("user"),
            before,
            limit,
        };
        let page = call!(context.daemon, Violations { query })?;
        let end = (page.records.len(), page.next);
        // The open violations come with the first page.
        match &mut whole {
            None => whole = Some(page),
            Some(whole) => whole.records.extend(page.records),
        }
        Ok(end)
    })?;
    Ok(ViolationsDocument::from(&whole.unwrap_or_default()))
}

/// What the rules in force would have done in a period.
pub(crate) fn guard_replay(
    context: &mut CallContext,
    parameters: &Parameters,
) -> Result<ReplayDocument, Problem> {
    let span = span(parameters, WEEK)?;
    let report = replay_rules(context, span)?;
    let text = guard_rules(context, parameters)?.text;
    Ok(replay_document(report, &text))
}

/// What the rules in force would do now.
pub(crate) fn guard_test(
    context: &mut CallContext,
    parameters: &Parameters,
) -> Result<ReplayDocument, Problem> {
    let text = guard_rules(context, parameters)?.text;
    let now = Timestamp::from(SystemTime::now());
    let report = replay_rules(context, (now.plus_seconds(-test_seconds(&text)), now))?;
    Ok(replay_document(report, &text))
}

fn replay_rules(context: &mut CallContext, (since, until): Span) -> Result<ReplayReport, Problem> {
    let request = ReplayRequest {
        rules: RuleSetSource::InForce,
        since,
        until,
    };
    Ok(call!(context.daemon, ReplayRules { request })?)
}

/// The document. A replay ignores the milder policies of users, so they are applied here, as the
/// client does.
pub(super) fn replay_document(mut report: ReplayReport, text: &str) -> ReplayDocument {
    if let Ok(rules) = parse(text) {
        let rules = CompiledRules::new(rules);
        for open in &mut report.open {
            open.own_policy = milder_policy_for_violation(open, &rules);
        }
    }
    ReplayDocument::from(&report)
}
