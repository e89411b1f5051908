//! Who is told what, and when it is too much.

use super::*;
use gpukill_proto::guard::{
    Evidence, GuardMode, JudgedJob, JudgedRun, Person, ProcessContext, Reader, RuleKind, RuleName,
    RuleSource, Subject, Told as Seen, Victim,
};
use gpukill_proto::snapshot::DeviceId;

const HOST: &str = "gpu-box-07";

fn person(uid: u32) -> Person {
    Person {
        name: format!("user{uid}"),
        uid: Some(uid),
    }
}

fn seen(pid: u32, uid: u32) -> Seen {
    Seen {
        run: JudgedRun {
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

/// For what these people's processes do on a GPU; each has its user's number for a pid.
fn record(mode: GuardMode, step: GuardStep, uids: &[u32]) -> GuardRecord {
    GuardRecord {
        at: Timestamp(0),
        rule: RuleName {
            source: RuleSource::Default,
            kind: RuleKind::Maintenance,
        },
        subject: Subject::Device(DeviceId("GPU-0".into())),
        mode,
        step,
        evidence: Evidence {
            measured: None,
            since: Timestamp(0),
            runs: uids.iter().map(|uid| seen(*uid, *uid)).collect(),
            count: u32::try_from(uids.len()).unwrap(),
            unknown: 0,
            threat: None,
            is_spared_service: false,
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
        job: JudgedJob {
            owner: person(uid),
            id: "job".into(),
            shown: "job".into(),
        },
        priority: 5,
        runs: vec![seen(uid, uid)],
        count: 1,
        is_busy: None,
        leave_to: leave_to.map(str::to_owned),
    })
}

/// To whom which first lines went. Users with an even number have two terminals.
fn told(records: &[GuardRecord]) -> (Vec<(u32, String)>, Vec<Told<'_>>) {
    let mut written = Vec::new();
    let to_say = ToSay {
        host: HOST,
        most_warnings: 3,
        open: &[],
    };
    let told = tell_each(&people(records), &to_say, |uid, text| {
        written.push((uid, text.lines().next().unwrap().to_owned()));
        if uid % 2 == 0 { 2 } else { 0 }
    });
    (written, told)
}

const WARNING: &str = "gpukill on gpu-box-07: warning 1 of 3";

const END: &str = "gpukill on gpu-box-07 ends your job (job)";

#[test]
fn each_owner_is_told_once_of_what_is_done_and_nobody_of_a_dry_run() {
    let records = [
        record(GuardMode::DryRun, warned(Some(60_000)), &[1000]),
        record(GuardMode::DryRun, ended(1000, None), &[1000]),
        record(GuardMode::Enforce, GuardStep::Violated, &[1000]),
        record(GuardMode::Soft, warned(Some(60_000)), &[1000, 1001, 1000]),
        record(GuardMode::Enforce, ended(1001, None), &[1000, 1001]),
        record(GuardMode::Soft, GuardStep::Over, &[1000]),
    ];
    let (written, told) = told(&records);
    let expected = [(1001, END), (1001, WARNING), (1000, WARNING)];
    assert_eq!(written, expected.map(|(uid, text)| (uid, text.to_owned())));
    let reached = |uid, record, terminals| Told {
        uid,
        what: What::Step(record),
        terminals,
    };
    let expected = [
        reached(1001, &records[4], 0),
        reached(1001, &records[3], 0),
        reached(1000, &records[3], 2),
    ];
    assert_eq!(told, expected);
}

#[test]
fn where_nothing_can_be_written_down_nobody_reads_of_an_end_but_by_a_scheduler() {
    let end = |leave_to| record(GuardMode::Enforce, ended(1000, leave_to), &[1000]);
    let warning = record(GuardMode::Soft, warned(Some(60_000)), &[1000]);
    let records = vec![warning.clone(), end(None), end(Some("scancel 7"))];
    let expected = vec![warning, end(Some("scancel 7"))];
    assert_eq!(but_for_ends(records), expected);
}

#[test]
fn whoever_breaks_many_rules_is_told_of_the_urgent_ones_and_how_many_others_there_are() {
    let deadlines = [None, Some(3), Some(1), None, Some(2), Some(4), None];
    let mut records: Vec<GuardRecord> = deadlines
        .iter()
        .map(|deadline| record(GuardMode::Soft, warned(*deadline), &[1000]))
        .collect();
    records.push(record(GuardMode::Enforce, ended(1000, None), &[1000]));
    let (written, told) = told(&records);
    let expected = [
        END,
        WARNING,
        WARNING,
        WARNING,
        "gpukill on gpu-box-07: 4 more like this",
    ];
    assert_eq!(written, expected.map(|text| (1000, text.to_owned())));
    let whats = [
        What::Step(&records[7]),
        What::Step(&records[2]),
        What::Step(&records[4]),
        What::Step(&records[1]),
        What::Besides(4),
    ];
    let expected = whats.map(|what| Told {
        uid: 1000,
        what,
        terminals: 2,
    });
    assert_eq!(told, expected);
}

#[test]
fn of_very_many_people_those_are_told_first_of_whom_something_ends_first() {
    let warning = |uid| {
        let deadline = i64::from(2_000 - uid);
        record(GuardMode::Soft, warned(Some(deadline)), &[uid])
    };
    let records: Vec<GuardRecord> = (1000..1100).map(warning).collect();
    let (written, _) = told(&records);
    let uids: Vec<u32> = written.into_iter().map(|(uid, _)| uid).collect();
    let expected: Vec<u32> = (1068..1100).rev().collect();
    assert_eq!(uids, expected);
}

#[test]
fn each_is_told_how_to_ask_for_time_who_may() {
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
            .map(|(uid, snoozes_left)| Reader {
                uid,
                deadline: Timestamp(60_000),
                snoozes_left,
            })
            .collect(),
        own_policy: None,
        snoozed_until: None,
        not_broken_since: None,
        ended_at: None,
        evidence: record.evidence.clone(),
        message: None,
    };
    let to_say = ToSay {
        host: HOST,
        most_warnings: 3,
        open: &[
            open(RuleKind::Idle, vec![(1000, 9), (1001, 9), (1002, 9)]),
            open(RuleKind::Maintenance, vec![(1000, 0), (1001, 2)]),
        ],
    };
    let mut asks = Vec::new();
    let records = [record.clone()];
    tell_each(&people(&records), &to_say, |uid, text| {
        asks.push((uid, text.contains(&format!("guard snooze {uid}"))));
        1
    });
    assert_eq!(asks, [(1000, false), (1001, true), (1002, false)]);
}

#[test]
fn a_job_that_others_end_is_a_warning_in_the_journal() {
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
