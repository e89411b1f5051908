//! Which users get which notices, and the limits.

use super::*;
use gpukill_proto::guard::{
    Evidence, EvidenceProcess as Seen, GuardMode, OwnedJob, Person, ProcessContext, RuleKind,
    RuleName, RuleSource, RunKey, Victim, ViolationSubject, WarnedOwner,
};
use gpukill_proto::model::DeviceId;

const HOST: &str = "gpu-box-07";

fn person(uid: u32) -> Person {
    Person {
        name: format!("user{uid}"),
        uid: Some(uid),
    }
}

fn evidence_process(pid: u32, uid: u32) -> Seen {
    Seen {
        run: RunKey {
            pid,
            start_ticks: 7,
            device: DeviceId("GPU-0".into()),
            instance: None,
        },
        gpu_index: 0,
        owner: Some(person(uid)),
        name: Some("python".into()),
        memory: None,
        utilization: None,
        job: None,
        context: ProcessContext::default(),
    }
}

/// A step about processes of these users on a GPU; the pid of each is the uid.
fn record(mode: GuardMode, step: GuardStep, uids: &[u32]) -> GuardRecord {
    GuardRecord {
        at: Timestamp(0),
        rule: RuleName {
            source: RuleSource::Default,
            kind: RuleKind::Maintenance,
        },
        subject: ViolationSubject::Device(DeviceId("GPU-0".into())),
        mode,
        step,
        evidence: Evidence {
            measured: None,
            since: Timestamp(0),
            runs: uids
                .iter()
                .map(|uid| evidence_process(*uid, *uid))
                .collect(),
            count: u32::try_from(uids.len()).unwrap(),
            unknown: 0,
            threat: None,
            is_service_only_warned: false,
        },
        message: None,
    }
}

fn warned(deadline: Option<i64>) -> GuardStep {
    GuardStep::Warned {
        times: 1,
        deadline: deadline.map(Timestamp),
    }
}

fn ended(uid: u32, leave_to: Option<&str>) -> GuardStep {
    GuardStep::Ended(Victim {
        job: OwnedJob {
            owner: person(uid),
            id: "job".into(),
            shown: "job".into(),
        },
        priority: 5,
        runs: vec![evidence_process(uid, uid)],
        count: 1,
        is_busy: None,
        leave_to: leave_to.map(str::to_owned),
    })
}

/// The users and the first line of each notice. Users with an even uid have two terminals.
fn sent_notices(records: &[GuardRecord]) -> (Vec<(u32, String)>, Vec<SentNotice<'_>>) {
    let mut written = Vec::new();
    let to_say = NoticeContext {
        host: HOST,
        most_warnings: 3,
        open: &[],
    };
    let notices = send_all(&group_by_user(records), &to_say, |uid, text| {
        written.push((uid, text.lines().next().unwrap().to_owned()));
        if uid % 2 == 0 { 2 } else { 0 }
    });
    (written, notices)
}

const WARNING: &str = "gpukill on gpu-box-07: warning 1 of 3";

const END: &str = "gpukill on gpu-box-07 ends your job (job)";

#[test]
fn owners_are_notified_once_but_not_of_dry_runs() {
    let records = [
        record(GuardMode::DryRun, warned(Some(60_000)), &[1000]),
        record(GuardMode::DryRun, ended(1000, None), &[1000]),
        record(GuardMode::Enforce, GuardStep::Violated, &[1000]),
        record(GuardMode::Soft, warned(Some(60_000)), &[1000, 1001, 1000]),
        record(GuardMode::Enforce, ended(1001, None), &[1000, 1001]),
        record(GuardMode::Soft, GuardStep::Over, &[1000]),
    ];
    let (written, notices) = sent_notices(&records);
    let expected = [(1001, END), (1001, WARNING), (1000, WARNING)];
    assert_eq!(written, expected.map(|(uid, text)| (uid, text.to_owned())));
    let reached = |uid, record, terminals| SentNotice {
        uid,
        what: NoticeContent::Step(record),
        terminals,
    };
    let expected = [
        reached(1001, &records[4], 0),
        reached(1001, &records[3], 0),
        reached(1000, &records[3], 2),
    ];
    assert_eq!(notices, expected);
}

#[test]
fn no_notice_of_an_end_if_state_is_unsaved() {
    let end = |leave_to| record(GuardMode::Enforce, ended(1000, leave_to), &[1000]);
    let warning = record(GuardMode::Soft, warned(Some(60_000)), &[1000]);
    let records = vec![warning.clone(), end(None), end(Some("scancel 7"))];
    let expected = vec![warning, end(Some("scancel 7"))];
    assert_eq!(without_ends(records), expected);
}

#[test]
fn many_notices_end_with_a_count() {
    let deadlines = [None, Some(3), Some(1), None, Some(2), Some(4), None];
    let mut records: Vec<GuardRecord> = deadlines
        .iter()
        .map(|deadline| record(GuardMode::Soft, warned(*deadline), &[1000]))
        .collect();
    records.push(record(GuardMode::Enforce, ended(1000, None), &[1000]));
    let (written, notices) = sent_notices(&records);
    let expected = [
        END,
        WARNING,
        WARNING,
        WARNING,
        "gpukill on gpu-box-07: 4 more like this",
    ];
    assert_eq!(written, expected.map(|text| (1000, text.to_owned())));
    let whats = [
        NoticeContent::Step(&records[7]),
        NoticeContent::Step(&records[2]),
        NoticeContent::Step(&records[4]),
        NoticeContent::Step(&records[1]),
        NoticeContent::More(4),
    ];
    let expected = whats.map(|what| SentNotice {
        uid: 1000,
        what,
        terminals: 2,
    });
    assert_eq!(notices, expected);
}

#[test]
fn nearest_ends_are_notified_first() {
    let warning = |uid| {
        let deadline = i64::from(2_000 - uid);
        record(GuardMode::Soft, warned(Some(deadline)), &[uid])
    };
    let records: Vec<GuardRecord> = (1000..1100).map(warning).collect();
    let (written, _) = sent_notices(&records);
    let uids: Vec<u32> = written.into_iter().map(|(uid, _)| uid).collect();
    let expected: Vec<u32> = (1068..1100).rev().collect();
    assert_eq!(uids, expected);
}

#[test]
fn notice_says_how_to_snooze() {
    let record = record(GuardMode::Soft, warned(Some(60_000)), &[1000, 1001, 1002]);
    let open = |kind, readers: Vec<(u32, u32)>| OpenViolation {
        rule: RuleName {
            kind,
            ..record.rule.clone()
        },
        subject: record.subject.clone(),
        mode: record.mode,
        action: GuardAction::Terminate,
        violated_at: Timestamp(0),
        warned_at: None,
        warnings: 1,
        deadline: None,
        readers: readers
            .into_iter()
            .map(|(uid, snoozes_left)| WarnedOwner {
                uid,
                deadline: Timestamp(60_000),
                snoozes_left,
            })
            .collect(),
        own_policy: None,
        snoozed_until: None,
        not_broken_since: None,
        ended_at: None,
        unfinished_end: None,
        evidence: record.evidence.clone(),
        message: None,
    };
    let to_say = NoticeContext {
        host: HOST,
        most_warnings: 3,
        open: &[
            open(RuleKind::Idle, vec![(1000, 9), (1001, 9), (1002, 9)]),
            open(RuleKind::Maintenance, vec![(1000, 0), (1001, 2)]),
        ],
    };
    let mut asks = Vec::new();
    let records = [record.clone()];
    send_all(&group_by_user(&records), &to_say, |uid, text| {
        asks.push((uid, text.contains(&format!("guard snooze {uid}"))));
        1
    });
    assert_eq!(asks, [(1000, false), (1001, true), (1002, false)]);
}

#[test]
fn end_left_to_a_scheduler_is_logged_as_warning() {
    let cases = [
        (warned(None), Some("warn")),
        (ended(1000, None), Some("terminate")),
        (ended(1000, Some("scancel 7")), Some("warn")),
        (GuardStep::Violated, None),
    ];
    for (step, expected) in cases {
        assert_eq!(action(&step), expected, "{step:?}");
    }
}
