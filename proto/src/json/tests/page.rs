//! Compares docs/json.md and the schemas with the fields of the documents.

mod guard;
mod rogue;

pub(super) use guard::{guard_summary, process_guard_status, violations};
pub(super) use rogue::{assessment, verdict_summaries};

use super::holders::{explain_document, holders_document};
use super::schemas::SchemaChecker;
use super::{NOW, device, list_document, process, snapshot};
use crate::audit::{
    ActionRecord, AuditRecord, AuditSeries, AuditSubject, AuditSummary, DeviceTime, Gap, OwnerTime,
    ProcessTime, PruneReport, RunEnd, RunRecord, SeriesBucket, SeriesLine, StoreContents,
    TimelineEntry, TimelineEvent, UsageTimes, UsageTotals, WeekTime,
};
use crate::guard::{GuardMode, GuardReport, RuleCounts};
use crate::json::kill::tests::{plan, report};
use crate::json::report::tests::bundle;
use crate::json::reset::tests as reset;
use crate::json::{
    ActionDocument, AuditDocument, GpuDocument, InstanceDocument, KillPlanDocument,
    KillReportDocument, ProcessDocument, PruneDocument, ResetPlanDocument, ResetReportDocument,
    RunDocument, SeriesDocument, StatusDocument, SummaryDocument, TimelineDocument, WeeklyDocument,
};
use crate::kill::{FuseMount, FuseServer, Outcome, UninterruptibleWait};
use crate::model::{DeviceId, Snapshot};
use crate::reading::Reading::{Unsupported, Value, Withheld};
use crate::rogue::RogueReport;
use crate::status::{
    ActionCount, AlertValue, CallerReport, ChangedSetting, CountersReport, DaemonStatus,
    DecisionCount, DeviceEnergy, PollingReport, RefusalCount, SettingValue, StoreReport, XidCount,
};
use crate::units::{Bytes, Celsius, Millijoules, Milliwatts, Percent};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

/// The names in the first column of each table of the page, by the title of the table.
fn documented_fields() -> BTreeMap<String, BTreeSet<String>> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/json.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut tables: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut title = String::new();
    let mut before = "";
    for line in page.lines() {
        let first = |line: &str| line.split('|').nth(1).unwrap_or_default().trim().to_owned();
        if line.starts_with("|---") {
            title = first(before).replace('`', "");
            tables.entry(title.clone()).or_default();
        } else if line.starts_with('|')
            && let Some(names) = tables.get_mut(&title)
        {
            let cell = first(line);
            let names_here = cell.split('`').skip(1).step_by(2).map(str::to_owned);
            names.extend(names_here);
        } else {
            title.clear();
        }
        before = line;
    }
    tables
}

/// The fields of a document; fields of nested objects follow a dot, and fields of objects in
/// lists follow `[].`.
fn fields(document: &Json) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (field, value) in document.as_object().unwrap() {
        let mut within = |sign: &str, inner: &Json| {
            names.extend(
                fields(inner)
                    .iter()
                    .map(|name| format!("{field}{sign}{name}")),
            );
        };
        match (field.as_str(), value) {
            ("reasons", _) => {}
            // These have their own tables.
            (
                "gpus" | "procs" | "backends" | "faults" | "held_gpus" | "holders" | "findings"
                | "targets" | "outcomes" | "memory" | "used_gpus" | "owners" | "processes"
                | "weeks" | "open" | "idle_services" | "would_have_ended" | "records" | "verdicts"
                | "indicators",
                Json::Array(_),
            ) => {
                names.insert(format!("{field}[]"));
            }
            ("top_proc" | "holder" | "victim" | "evidence" | "would_have_ended", _) => {
                names.insert(field.clone());
            }
            (_, Json::Object(_)) => within(".", value),
            (_, Json::Array(items)) if items.first().is_some_and(Json::is_object) => {
                within("[].", &items[0]);
            }
            _ => {
                names.insert(field.clone());
            }
        }
    }
    names
}

/// The documents that no other document of the page contains, with the names of their schemas.
const SCHEMAS: [(&str, &str); 21] = [
    ("document", "ListDocument"),
    ("records[]", "AuditDocument"),
    ("status", "StatusDocument"),
    ("status report", "ReportDocument"),
    ("holders", "HoldersDocument"),
    ("explain", "ExplainDocument"),
    ("plan", "KillPlanDocument"),
    ("report", "KillReportDocument"),
    ("reset plan", "ResetPlanDocument"),
    ("reset report", "ResetReportDocument"),
    ("runs[]", "RunDocument"),
    ("series[]", "SeriesLineDocument"),
    ("actions[]", "ActionDocument"),
    ("entries[]", "TimelineDocument"),
    ("prune", "PruneDocument"),
    ("summary", "SummaryDocument"),
    ("weeks[]", "WeekDocument"),
    ("open[] of the guard", "OpenViolationDocument"),
    ("records[] of the guard", "GuardRecordDocument"),
    ("replay", "ReplayDocument"),
    ("rogue scan", "ScanDocument"),
];

#[test]
fn page_and_schemas_have_exactly_the_fields() {
    let list = list_document(device(), process());
    let record = AuditDocument::from(&AuditRecord {
        id: 1,
        at: NOW,
        covers_ms: 10_000,
        device: device().id,
        gpu_index: 0,
        gpu_name: None,
        memory: Value(Bytes(1)),
        utilization: Value(Percent(1)),
        subject: AuditSubject::Device {
            temperature: Value(Celsius(1)),
            power: Value(Milliwatts(1)),
        },
    });
    let held = holders_document();
    let plan = serde_json::to_value(KillPlanDocument::from(&plan())).unwrap();
    let mut report = report();
    report.outcomes[0].outcome = Outcome::Uninterruptible(UninterruptibleWait {
        waits_on: None,
        fuse: Some(FuseMount {
            path: "/home/bob/data".into(),
            servers: vec![FuseServer {
                pid: 4711,
                owner: Value("bob".into()),
            }],
        }),
    });
    let report = serde_json::to_value(KillReportDocument::from(&report)).unwrap();
    let reset_plan = serde_json::to_value(ResetPlanDocument::from(&reset::plan())).unwrap();
    let reset_report = serde_json::to_value(ResetReportDocument::from(&reset::report())).unwrap();
    let summary = serde_json::to_value(SummaryDocument::from(&summary())).unwrap();
    let weekly = serde_json::to_value(WeeklyDocument::from(&self::summary())).unwrap();
    let of_weekly: Vec<&String> = weekly.as_object().unwrap().keys().collect();
    assert_eq!(of_weekly, ["gaps", "schema", "since", "until", "weeks"]);
    let violations = violations();
    let replay = guard::replay();
    let scan = rogue::scan();
    let suspect = &scan["findings"][0];
    let bundle = serde_json::to_value(bundle("alice")).unwrap();
    let documents = [
        ("document", list.clone()),
        ("gpus[]", list["gpus"][0].clone()),
        ("procs[]", list["procs"][0].clone()),
        ("backends[]", list["backends"][0].clone()),
        ("faults[]", list["faults"][0].clone()),
        ("records[]", serde_json::to_value(record).unwrap()),
        (
            "status",
            serde_json::to_value(StatusDocument::from(&status())).unwrap(),
        ),
        ("status report", bundle.clone()),
        (
            "backends[] of a report",
            bundle["daemon"]["backends"][0].clone(),
        ),
        (
            "faults[] of a report",
            bundle["daemon"]["faults"][0].clone(),
        ),
        ("holders", held.clone()),
        ("held_gpus[]", held["held_gpus"][0].clone()),
        ("holders[]", held["held_gpus"][0]["holders"][0].clone()),
        ("findings[]", held["held_gpus"][0]["findings"][0].clone()),
        ("explain", explain_document()),
        ("plan", plan.clone()),
        ("targets[]", plan["targets"][0].clone()),
        ("report", report.clone()),
        ("outcomes[]", report["outcomes"][0].clone()),
        ("memory[]", report["memory"][0].clone()),
        ("reset plan", reset_plan.clone()),
        ("gpus[] of a reset", reset_plan["gpus"][0].clone()),
        ("reset report", reset_report.clone()),
        ("outcomes[] of a reset", reset_report["outcomes"][0].clone()),
        ("runs[]", run()),
        ("series[]", series()),
        ("actions[]", action()),
        ("entries[]", timeline_entry()),
        ("prune", prune()),
        ("summary", summary.clone()),
        ("used_gpus[]", summary["used_gpus"][0].clone()),
        ("owners[]", summary["owners"][0].clone()),
        ("processes[]", summary["processes"][0].clone()),
        ("weeks[]", summary["weeks"][0].clone()),
        ("open[] of the guard", violations["open"][0].clone()),
        ("evidence", violations["open"][0]["evidence"].clone()),
        (
            "procs[] of the guard",
            violations["open"][0]["evidence"]["procs"][0].clone(),
        ),
        ("records[] of the guard", violations["records"][0].clone()),
        ("victim", violations["records"][0]["victim"].clone()),
        ("replay", replay.clone()),
        ("outcomes[] of a replay", replay["outcomes"][0].clone()),
        ("rogue scan", scan.clone()),
        ("findings[] of a scan", suspect.clone()),
        ("verdicts[]", suspect["verdicts"][0].clone()),
        (
            "indicators[]",
            suspect["verdicts"][0]["indicators"][0].clone(),
        ),
    ];
    let schemas = SchemaChecker::new();
    for (title, schema) in SCHEMAS {
        let document = documents.iter().find(|(name, _)| *name == title);
        schemas.assert_valid(schema, &document.unwrap().1);
    }
    let documents = documents.map(|(title, json)| (title.to_owned(), fields(&json)));
    assert_eq!(documented_fields(), BTreeMap::from(documents));
}

fn run() -> Json {
    let run = RunDocument::from(&RunRecord {
        id: 1,
        from: NOW,
        until: NOW,
        gpus: vec![],
        pids: vec![],
        processes: 1,
        label: String::new(),
        command: Unsupported,
        name: None,
        uid: None,
        user: None,
        owner: None,
        container: None,
        job: None,
        used: UsageTotals::default(),
        utilization: None,
        end: RunEnd::Running,
    });
    serde_json::to_value(run).unwrap()
}

fn series() -> Json {
    let series = SeriesDocument::from(&AuditSeries {
        since: NOW,
        step_ms: 1,
        lines: vec![SeriesLine {
            gpu: None,
            owner: None,
            job: None,
            buckets: vec![SeriesBucket::default()],
        }],
        more_lines: 0,
    });
    serde_json::to_value(&series.series[0]).unwrap()
}

fn prune() -> Json {
    let report = PruneReport {
        deleted: StoreContents::default(),
        left: StoreContents::default(),
    };
    serde_json::to_value(PruneDocument::new(&report, NOW, false)).unwrap()
}

fn action() -> Json {
    let action = ActionDocument::from(&ActionRecord {
        id: 1,
        at: NOW,
        kind: "kill".into(),
        uid: None,
        user: None,
        device: None,
        what: None,
        times: 1,
        result: None,
        finished_at: None,
        why: None,
        // A plan is described with its command.
        plan: Unsupported,
        outcome: Unsupported,
    });
    serde_json::to_value(action).unwrap()
}

fn timeline_entry() -> Json {
    let entry = TimelineDocument::from(&TimelineEntry {
        at: NOW,
        gpus: vec![0],
        event: TimelineEvent::Gap(NOW),
    });
    serde_json::to_value(entry).unwrap()
}

/// A summary with one entry of each kind.
fn summary() -> AuditSummary {
    let (times, used) = (UsageTimes::default(), UsageTotals::default());
    AuditSummary {
        since: NOW,
        until: NOW,
        devices: vec![DeviceTime {
            device: device().id,
            index: 0,
            name: None,
            times,
            memory_max: None,
            memory_max_at: None,
            hottest: None,
            energy_j: None,
        }],
        owners: vec![OwnerTime { owner: None, used }],
        more_owners: 0,
        processes: vec![ProcessTime {
            label: "python".into(),
            used,
        }],
        more_processes: 0,
        hours: vec![times],
        days: vec![times],
        weeks: vec![WeekTime {
            monday: "2026-11-16".into(),
            times,
            top_owner: None,
        }],
        gaps: vec![Gap {
            from: NOW,
            until: NOW,
        }],
    }
}

/// A status with one entry of each kind.
pub(in crate::json) fn status() -> DaemonStatus {
    let Snapshot {
        backends, faults, ..
    } = snapshot(device(), process());
    DaemonStatus {
        version: "0.1.0".into(),
        protocol: crate::PROTOCOL_VERSION,
        host: "box".into(),
        started_at: NOW,
        now: NOW,
        caller: CallerReport {
            uid: 1000,
            user: Value("alice".into()),
            rights: vec![],
            log_in_again_for: None,
        },
        personal: false,
        will_not_act: None,
        backends,
        faults,
        alerts: vec![AlertValue {
            part: "GPU 0".into(),
            code: crate::model::FaultCode::TemperatureAlert,
            what: "temperature at or above 85 °C".into(),
            since: NOW,
            limit: 85,
            value: Some(86),
            unit: "°C".into(),
        }],
        polling: PollingReport {
            interval_ms: 2000,
            set_interval_ms: 2000,
            last_at: None,
            polls: 0,
            late: 0,
        },
        store: StoreReport {
            directory: "/var/lib/gpukill".into(),
            samples: Bytes(0),
            audit: Bytes(0),
            recorded_since: None,
            written_at: None,
            written: 0,
            dropped: 0,
        },
        guard: GuardReport {
            mode: GuardMode::DryRun,
            armed_mode: GuardMode::Soft,
            rules: RuleCounts::default(),
            file: "/etc/gpukill/rules/guard.toml".into(),
            revision: None,
            mistakes: Vec::new(),
            is_file_changed: Some(false),
            evaluated_at: None,
            dropped: 0,
            overflow: 0,
            tripped_at: None,
            doubt: None,
            open: 0,
            would_have_ended: 0,
            warned_today: 0,
            ended_today: 0,
            simulated_warned_today: 0,
            simulated_ended_today: 0,
            is_trip_simulated: false,
            idle_services: Vec::new(),
        },
        rogue: RogueReport::default(),
        settings: vec![ChangedSetting {
            key: "access.hide_other_users".into(),
            value: SettingValue::Bool(true),
        }],
        counters: counters(),
    }
}

fn counters() -> CountersReport {
    let device = || DeviceId("GPU-0".into());
    CountersReport {
        actions: vec![ActionCount {
            kind: "kill".into(),
            result: "done".into(),
            count: 1,
        }],
        decisions: Value(vec![DecisionCount {
            decision: "warned".into(),
            count: 1,
        }]),
        refusals: vec![RefusalCount {
            reason: "denied".into(),
            count: 1,
        }],
        xids: vec![XidCount {
            device: Some(device()),
            xid: Some(79),
            count: 1,
        }],
        energy: vec![DeviceEnergy {
            device: device(),
            drawn: Millijoules(7_200_500),
        }],
    }
}

#[test]
fn withheld_decisions_have_a_reason() {
    let mut status = status();
    let counters = serde_json::to_value(StatusDocument::from(&status)).unwrap();
    assert_eq!(counters["counters"]["energy"][0]["energy_j"], 7_200.5);
    status.counters.decisions = Withheld;
    let document = serde_json::to_value(StatusDocument::from(&status)).unwrap();
    let counters = &document["counters"];
    assert_eq!(counters["decisions"], Json::Null);
    assert_eq!(
        counters["reasons"]["decisions"],
        "withheld: it belongs to another user"
    );
}

#[test]
fn field_lists_match_the_documents() {
    let list = list_document(device(), process());
    for (names, document) in [
        (GpuDocument::FIELDS, &list["gpus"][0]),
        (InstanceDocument::FIELDS, &list["gpus"][0]["instances"][0]),
        (ProcessDocument::FIELDS, &list["procs"][0]),
    ] {
        let names = names.iter().copied().chain(["reasons"]);
        let fields = document.as_object().unwrap().keys().map(String::as_str);
        assert_eq!(names.collect::<BTreeSet<_>>(), fields.collect());
    }
}
