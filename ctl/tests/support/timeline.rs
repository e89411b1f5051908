//! What happened to a notebook that the guard ended, and to its GPU.

use super::{NOW, actions, gib, id, scan, violations};
use gpukill_proto::audit::{
    ActionRecord, TimelineEnd, TimelineEntry, TimelineEvent, TimelineProcess, UsageState,
    UsageStretch,
};
use gpukill_proto::guard::{
    EnforcementOutcome, GuardMode, GuardRecord, GuardStep, OwnedJob, Person, RuleKind, Victim,
    ViolationSubject,
};
use gpukill_proto::model::{Owner, OwnerKind};
use gpukill_proto::reading::Reading::{Unsupported, Value, Withheld};
use gpukill_proto::units::{Percent, Timestamp};

/// A time of the day of [`NOW`].
fn at(hour: i64, minute: i64, second: i64) -> Timestamp {
    const NOW_SECONDS: i64 = 14 * 3600 + 2 * 60 + 31;
    NOW.plus_seconds(hour * 3600 + minute * 60 + second - NOW_SECONDS)
}

fn notebook() -> TimelineProcess {
    TimelineProcess {
        pid: 51_002,
        start_ticks: Some(4_711),
        instance: None,
        uid: Some(1001),
        user: Some("bob".into()),
        owner: Some(Owner {
            name: "bob".into(),
            uid: Some(1001),
            kind: OwnerKind::User,
        }),
        name: Some("python".into()),
        command: Value("python -m ipykernel_launcher -f kernel-9a.json".into()),
        container: None,
        job: Some("session-3.scope".into()),
    }
}

fn entry(at: Timestamp, event: TimelineEvent) -> TimelineEntry {
    TimelineEntry {
        at,
        gpus: vec![5],
        event,
    }
}

fn stretch(
    from: Timestamp,
    until: Timestamp,
    state: UsageState,
    percent: Option<u32>,
    utilization_series: &[u8],
) -> TimelineEntry {
    let usage = UsageStretch {
        until,
        state,
        utilization: percent.map(Percent),
        utilization_series: utilization_series.to_vec(),
    };
    let TimelineProcess {
        pid,
        start_ticks,
        instance,
        ..
    } = notebook();
    let event = TimelineEvent::Stretch {
        pid,
        start_ticks,
        instance,
        usage,
    };
    entry(from, event)
}

fn decision(at: Timestamp, step: GuardStep) -> TimelineEntry {
    let records = violations().records.into_iter().map(|(_, record)| record);
    let mut of_bob = records.filter(|it| {
        it.rule.kind == RuleKind::Idle && matches!(it.subject, ViolationSubject::Job(_))
    });
    let record = of_bob.next().expect("there is one");
    let record = GuardRecord {
        at,
        mode: GuardMode::Soft,
        step,
        ..record
    };
    entry(at, TimelineEvent::Guard(record))
}

fn job() -> OwnedJob {
    OwnedJob {
        owner: Person {
            name: "bob".into(),
            uid: Some(1001),
        },
        id: "session-3.scope".into(),
        shown: "session-3.scope".into(),
    }
}

fn event(at: Timestamp, kind: &str, what: &str) -> TimelineEntry {
    let record = ActionRecord {
        id: 830,
        at,
        kind: kind.into(),
        uid: None,
        user: None,
        device: Some(id(5)),
        what: Some(what.into()),
        times: 1,
        result: None,
        finished_at: None,
        why: None,
        plan: Unsupported,
        outcome: Unsupported,
    };
    entry(at, TimelineEvent::Action(record))
}

/// The kill of the notebook by the guard.
fn kill(at: Timestamp) -> TimelineEntry {
    let kills = actions().into_iter();
    let mut kills = kills.filter(|it| it.what.as_deref() == Some("guard: default: idle"));
    let memory = gib(483).0;
    let record = ActionRecord {
        id: 813,
        at,
        finished_at: Some(at.plus_seconds(1)),
        outcome: Value(format!(
            "{{\"outcomes\":[{{\"pid\":51002,\"signal\":\"SIGTERM\",\"after_ms\":800}}],\
             \"memory\":[{{\"held_bytes\":{memory},\"returned_bytes\":{memory},\"after_ms\":200}}]}}"
        )),
        ..kills.next().expect("there is one")
    };
    entry(at, TimelineEvent::Action(record))
}

/// The timeline of GPU 5, oldest first.
pub(crate) fn timeline() -> Vec<TimelineEntry> {
    let deadline = at(9, 12, 0);
    let warned = GuardStep::Warned {
        times: 1,
        deadline: Some(deadline),
    };
    let ended = GuardStep::Ended(Victim {
        job: job(),
        priority: 5,
        runs: Vec::new(),
        count: 1,
        is_busy: Some(false),
        leave_to: None,
    });
    let outcome = GuardStep::Outcome(EnforcementOutcome {
        job: job(),
        ended: 1,
        left: 0,
        why: None,
    });
    vec![
        entry(at(1, 12, 3), TimelineEvent::Started(notebook())),
        stretch(
            at(1, 12, 3),
            at(1, 31, 0),
            UsageState::Busy,
            Some(61),
            &[62, 81, 80, 58, 24],
        ),
        stretch(at(1, 31, 0), at(3, 0, 0), UsageState::Idle, Some(0), &[]),
        TimelineEntry {
            gpus: vec![],
            ..entry(at(3, 0, 0), TimelineEvent::Gap(at(3, 12, 0)))
        },
        stretch(at(3, 12, 0), at(3, 14, 0), UsageState::Unknown, None, &[]),
        stretch(at(3, 14, 0), at(9, 12, 14), UsageState::Idle, Some(1), &[]),
        decision(at(3, 31, 40), GuardStep::Violated),
        decision(at(3, 31, 41), warned),
        decision(
            at(4, 5, 10),
            GuardStep::Snoozed {
                by: 1001,
                owner: 1001,
                until: deadline,
                left: 1,
            },
        ),
        decision(at(9, 12, 10), ended),
        decision(at(9, 12, 10), outcome),
        kill(at(9, 12, 14)),
        entry(
            at(9, 12, 15),
            TimelineEvent::Ended(notebook(), TimelineEnd::Killed(Some(813))),
        ),
        event(at(9, 40, 2), "xid", "XID 79"),
        event(at(9, 40, 4), "device", "GPU gone"),
        event(at(9, 52, 31), "device", "GPU is back"),
        event(
            at(10, 0, 0),
            "alert",
            "GPU 5: temperature at or above 85 °C",
        ),
        event(
            at(10, 10, 0),
            "alert_over",
            "GPU 5: temperature at or above 85 °C",
        ),
    ]
}

/// Every kind of entry on several GPUs and days, oldest first.
pub(crate) fn host_timeline() -> Vec<TimelineEntry> {
    let yesterday = |seconds| NOW.plus_seconds(seconds - 86_400);
    let other = || TimelineProcess {
        pid: 7,
        owner: None,
        user: None,
        name: None,
        command: Withheld,
        container: Some("docker/0123456789ab".into()),
        job: None,
        ..notebook()
    };
    let ends = [
        TimelineEnd::Exited,
        TimelineEnd::Released,
        TimelineEnd::Killed(None),
        TimelineEnd::Unobserved,
        TimelineEnd::Rebooted,
    ];
    let events = [
        ("booted", "boot b, after a"),
        ("started", "0.1.0"),
        ("settings", "59cf2a0d5c1a36ab"),
        ("rules", "89651ac3f4cb7cc7"),
        ("rogue_rules", "built-in"),
        ("fault", "store: the disk is full"),
        ("fault_over", "store: the disk is full"),
        ("stopped", ""),
    ];
    let mut all = vec![entry(yesterday(0), TimelineEvent::Started(other()))];
    let number = |at: usize| i64::try_from(at).unwrap_or(0);
    all.extend(
        events
            .iter()
            .enumerate()
            .map(|(at, (kind, what))| TimelineEntry {
                gpus: vec![],
                ..event(yesterday(number(at) + 1), kind, what)
            }),
    );
    let ended = ends.iter().enumerate();
    all.extend(ended.map(|(at, end)| {
        let event = TimelineEvent::Ended(other(), *end);
        entry(yesterday(number(at) + 20), event)
    }));
    let findings = scan().findings.into_iter();
    all.extend(findings.map(|finding| TimelineEntry {
        gpus: finding.gpus.clone(),
        ..entry(yesterday(40), TimelineEvent::Finding(finding))
    }));
    let mut records = actions();
    records.reverse();
    all.extend(records.into_iter().enumerate().map(|(at, record)| {
        let gpus = if record.kind == "reset" {
            vec![3]
        } else {
            vec![]
        };
        let at = yesterday(number(at) + 50);
        let event = TimelineEvent::Action(ActionRecord {
            // Actions have odd ids.
            id: record.id * 2 + u64::from(record.uid.is_some()),
            at,
            ..record
        });
        TimelineEntry { at, gpus, event }
    }));
    let mut decisions = violations().records;
    decisions.reverse();
    all.extend(decisions.into_iter().map(|(_, record)| TimelineEntry {
        at: record.at.max(yesterday(100)),
        gpus: record.evidence.runs.iter().map(|it| it.gpu_index).collect(),
        event: TimelineEvent::Guard(record),
    }));
    let until = NOW.plus_seconds(-100);
    all.push(entry(yesterday(7_000), TimelineEvent::Gap(until)));
    all.sort_by_key(|entry| entry.at);
    all
}

/// The timeline of the host with every text replaced by `text`.
pub(crate) fn hostile_timeline(text: &str) -> Vec<TimelineEntry> {
    let some = || Some(text.to_owned());
    let (hostile, ..) = super::hostile(text);
    let mut decisions = hostile.records.into_iter();
    let mut all = host_timeline();
    for entry in &mut all {
        match &mut entry.event {
            TimelineEvent::Started(process) | TimelineEvent::Ended(process, _) => {
                for field in [
                    &mut process.user,
                    &mut process.name,
                    &mut process.container,
                    &mut process.job,
                ] {
                    *field = some();
                }
                process.command = Value(text.into());
                process.owner = Some(Owner {
                    name: text.into(),
                    uid: None,
                    kind: OwnerKind::Label,
                });
            }
            TimelineEvent::Guard(record) => {
                if let Some((_, hostile)) = decisions.next() {
                    *record = hostile;
                }
            }
            TimelineEvent::Action(record) => {
                record.user = some();
                record.what = some();
                record.why = some();
                record.result = record.result.as_ref().and(some());
                record.outcome = Value(
                    serde_json::json!({"outcomes": [{"signal": text, "after_ms": 1}]}).to_string(),
                );
                if record.kind != "kill" {
                    record.kind = text.into();
                }
            }
            TimelineEvent::Finding(finding) => {
                finding.name = some();
                finding.executable = some();
                finding.owner = Some(Person {
                    name: text.into(),
                    uid: None,
                });
            }
            TimelineEvent::Stretch { .. } | TimelineEvent::Gap(_) => {}
        }
    }
    all
}
