//! Samples of every request and response.

use super::sample::snapshot;
use super::{audit, audit_subjects, guard, holders, operations, record, rogue, status, timeline};
use gpukill_proto::audit::{AuditPage, AuditQuery};
use gpukill_proto::guard::RulesRevision;
use gpukill_proto::kill::{OperationId, PlanId};
use gpukill_proto::model::DeviceId;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::{GpukillRequest, GpukillResponse, SnapshotPage};
use gpukill_proto::units::Timestamp;

pub(super) fn request_name(request: &GpukillRequest) -> &'static str {
    match request {
        GpukillRequest::Snapshot { .. } => "request snapshot",
        GpukillRequest::MoreProcesses { .. } => "request more_processes",
        GpukillRequest::Status {} => "request status",
        GpukillRequest::Audit { .. } => "request audit",
        GpukillRequest::Quiesce { .. } => "request quiesce",
        GpukillRequest::Resume {} => "request resume",
        GpukillRequest::ForgetGpus { .. } => "request forget_gpus",
        GpukillRequest::Holders { .. } => "request holders",
        GpukillRequest::Explain { .. } => "request explain",
        GpukillRequest::PlanKill { .. } => "request plan_kill",
        GpukillRequest::MoreOfKillPlan { .. } => "request more_of_kill_plan",
        GpukillRequest::Kill { .. } => "request kill",
        GpukillRequest::FollowKill { .. } => "request follow_kill",
        GpukillRequest::PlanReset { .. } => "request plan_reset",
        GpukillRequest::Reset { .. } => "request reset",
        GpukillRequest::FollowReset { .. } => "request follow_reset",
        GpukillRequest::AuditSummary { .. } => "request audit_summary",
        GpukillRequest::AuditActions { .. } => "request audit_actions",
        GpukillRequest::Prune { .. } => "request prune",
        GpukillRequest::Backup { .. } => "request backup",
        GpukillRequest::PartOfBackup { .. } => "request part_of_backup",
        GpukillRequest::Violations { .. } => "request violations",
        GpukillRequest::RulesText { .. } => "request rules_text",
        GpukillRequest::OfferRules { .. } => "request offer_rules",
        GpukillRequest::EditRules { .. } => "request edit_rules",
        GpukillRequest::ReplayRules { .. } => "request replay_rules",
        GpukillRequest::Snooze { .. } => "request snooze",
        GpukillRequest::Scan { .. } => "request scan",
        GpukillRequest::RogueText { .. } => "request rogue_text",
        GpukillRequest::EditRogue { .. } => "request edit_rogue",
        GpukillRequest::AuditRuns { .. } => "request audit_runs",
        GpukillRequest::AuditSeries { .. } => "request audit_series",
        GpukillRequest::Timeline { .. } => "request timeline",
    }
}

pub(super) fn requests() -> Vec<GpukillRequest> {
    let edits = guard::edits().into_iter();
    let edits = edits.map(|edit| GpukillRequest::EditRules {
        edit: Some(edit),
        expected: None,
        is_dry_run: true,
    });
    let replays = guard::requests();
    let replays = replays.map(|request| GpukillRequest::ReplayRules { request });
    let mut all = vec![
        GpukillRequest::Snapshot { after: None },
        GpukillRequest::Snapshot { after: Some(300) },
        GpukillRequest::MoreProcesses {
            polls: 300,
            start: 70_000,
        },
        GpukillRequest::Status {},
        GpukillRequest::Audit {
            query: AuditQuery {
                filter: audit::filter(),
                before: Some(1 << 40),
                limit: 1000,
            },
        },
        GpukillRequest::Quiesce { seconds: 600 },
        GpukillRequest::Resume {},
        GpukillRequest::ForgetGpus { gpu: "2".into() },
        GpukillRequest::Holders {
            device: None,
            start: 0,
        },
        GpukillRequest::Holders {
            device: Some(DeviceId("GPU-0".into())),
            start: 70_000,
        },
        GpukillRequest::Explain { pid: 70_000 },
        GpukillRequest::PlanKill {
            request: operations::kill_request(),
        },
        GpukillRequest::MoreOfKillPlan {
            plan: PlanId(300),
            start: 70_000,
        },
        GpukillRequest::Kill { plan: PlanId(300) },
        GpukillRequest::FollowKill {
            operation: OperationId(300),
            after: Some(7),
            start: 70_000,
        },
        GpukillRequest::PlanReset {
            request: operations::reset_request(),
        },
        GpukillRequest::Reset { plan: PlanId(300) },
        GpukillRequest::FollowReset {
            operation: OperationId(300),
            after: None,
        },
        GpukillRequest::AuditSummary {
            filter: audit::filter(),
        },
        GpukillRequest::AuditActions {
            query: audit::action_query(),
        },
        GpukillRequest::Prune {
            before: Timestamp(1),
            is_dry_run: true,
        },
        GpukillRequest::Backup {},
        GpukillRequest::PartOfBackup {
            copy: audit::COPY,
            offset: 70_000,
        },
        GpukillRequest::Violations {
            query: guard::query(),
        },
        GpukillRequest::RulesText { offset: 70_000 },
        GpukillRequest::OfferRules {
            offset: 70_000,
            part: vec![1, 2, 255],
        },
        GpukillRequest::EditRules {
            edit: None,
            expected: Some(RulesRevision("59cf2a0d5c1a36ab".into())),
            is_dry_run: false,
        },
    ];
    all.extend(edits);
    all.extend(replays);
    all.push(GpukillRequest::Snooze {
        pid: 70_000,
        is_dry_run: true,
    });
    all.push(GpukillRequest::Scan { hours: 300 });
    all.push(GpukillRequest::RogueText { offset: 70_000 });
    all.extend(
        rogue::edits()
            .into_iter()
            .map(|edit| GpukillRequest::EditRogue {
                edit: Some(edit),
                expected: None,
                is_dry_run: true,
            }),
    );
    let queries = audit::run_queries().into_iter();
    all.extend(queries.map(|query| GpukillRequest::AuditRuns { query }));
    let queries = audit::series_queries().into_iter();
    all.extend(queries.map(|query| GpukillRequest::AuditSeries { query }));
    all.push(GpukillRequest::Timeline {
        query: timeline::query(),
    });
    all
}

pub(super) fn response_name(response: &GpukillResponse) -> &'static str {
    match response {
        GpukillResponse::Snapshot(_) => "response snapshot",
        GpukillResponse::MoreProcesses(_) => "response more_processes",
        GpukillResponse::Status(_) => "response status",
        GpukillResponse::Audit(_) => "response audit",
        GpukillResponse::Quiesce(_) => "response quiesce",
        GpukillResponse::Resume(_) => "response resume",
        GpukillResponse::ForgetGpus(_) => "response forget_gpus",
        GpukillResponse::Holders(_) => "response holders",
        GpukillResponse::Explain(_) => "response explain",
        GpukillResponse::PlanKill(_) => "response plan_kill",
        GpukillResponse::MoreOfKillPlan(_) => "response more_of_kill_plan",
        GpukillResponse::Kill(_) => "response kill",
        GpukillResponse::FollowKill(_) => "response follow_kill",
        GpukillResponse::PlanReset(_) => "response plan_reset",
        GpukillResponse::Reset(_) => "response reset",
        GpukillResponse::FollowReset(_) => "response follow_reset",
        GpukillResponse::AuditSummary(_) => "response audit_summary",
        GpukillResponse::AuditActions(_) => "response audit_actions",
        GpukillResponse::Prune(_) => "response prune",
        GpukillResponse::Backup(_) => "response backup",
        GpukillResponse::PartOfBackup(_) => "response part_of_backup",
        GpukillResponse::Violations(_) => "response violations",
        GpukillResponse::RulesText(_) => "response rules_text",
        GpukillResponse::OfferRules(_) => "response offer_rules",
        GpukillResponse::EditRules(_) => "response edit_rules",
        GpukillResponse::ReplayRules(_) => "response replay_rules",
        GpukillResponse::Snooze(_) => "response snooze",
        GpukillResponse::Scan(_) => "response scan",
        GpukillResponse::RogueText(_) => "response rogue_text",
        GpukillResponse::EditRogue(_) => "response edit_rogue",
        GpukillResponse::AuditRuns(_) => "response audit_runs",
        GpukillResponse::AuditSeries(_) => "response audit_series",
        GpukillResponse::Timeline(_) => "response timeline",
    }
}

pub(super) fn responses() -> Vec<GpukillResponse> {
    let page = SnapshotPage {
        snapshot: snapshot(),
        next: Some(7),
        guard: guard::guard_summary(),
        verdicts: rogue::verdict_summaries(),
    };
    vec![
        GpukillResponse::Snapshot(Ok(page.clone())),
        GpukillResponse::MoreProcesses(Ok(page)),
        GpukillResponse::MoreProcesses(Err(Refusal::Expired)),
        GpukillResponse::Status(Ok(status())),
        GpukillResponse::Quiesce(Ok(Timestamp(1))),
        GpukillResponse::Resume(Ok(())),
        GpukillResponse::ForgetGpus(Ok(vec![holders::label()])),
        GpukillResponse::Holders(Ok(holders::page())),
        GpukillResponse::Explain(Ok(holders::explanation())),
        GpukillResponse::PlanKill(Ok(operations::kill_plan_page())),
        GpukillResponse::MoreOfKillPlan(Ok(operations::kill_plan_page())),
        GpukillResponse::Kill(Ok(OperationId(300))),
        GpukillResponse::FollowKill(Ok(operations::kill_report_page())),
        GpukillResponse::PlanReset(Ok((Some(PlanId(300)), operations::reset_plan()))),
        GpukillResponse::Reset(Ok(OperationId(300))),
        GpukillResponse::FollowReset(Ok(operations::reset_report())),
        GpukillResponse::Audit(Ok(AuditPage {
            records: audit_subjects().map(record).to_vec(),
            next: Some(9),
            first_rows: vec![1, 300],
        })),
        GpukillResponse::AuditSummary(Ok(audit::summary())),
        GpukillResponse::AuditActions(Ok(audit::actions())),
        GpukillResponse::Prune(Ok(audit::prune_report())),
        GpukillResponse::Backup(Ok(audit::backup())),
        GpukillResponse::PartOfBackup(Ok(vec![1, 2, 255])),
        GpukillResponse::Violations(Ok(guard::page())),
        GpukillResponse::RulesText(Ok(guard::text())),
        GpukillResponse::OfferRules(Ok(())),
        GpukillResponse::EditRules(Ok(guard::edit_report())),
        GpukillResponse::ReplayRules(Ok(guard::replay_report())),
        GpukillResponse::Snooze(Ok(guard::snoozed_rules())),
        GpukillResponse::Scan(Ok(rogue::scan_report())),
        GpukillResponse::RogueText(Ok(guard::text())),
        GpukillResponse::EditRogue(Ok(guard::edit_report())),
        GpukillResponse::AuditRuns(Ok(audit::run_page())),
        GpukillResponse::AuditSeries(Ok(audit::series())),
        GpukillResponse::Timeline(Ok(timeline::page())),
    ]
}
