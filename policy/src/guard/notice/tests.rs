//! The texts that people read, for each kind of rule and step.

mod hostile;
mod recipients;

use super::super::testing::{GIB, person};
use super::*;
use crate::golden::compare;
use gpukill_proto::guard::{
    Evidence, Measurement, OwnedJob, RuleKind, RuleName, RuleSource, RunKey, WarnedOwner,
};
use gpukill_proto::model::DeviceId;
use gpukill_proto::rogue::Threat;

const MINUTE: i64 = 60_000;
/// 12:00 on a Thursday.
const NOON: Timestamp = Timestamp(12 * 60 * MINUTE);

fn civil(moment: Timestamp) -> LocalTime {
    let minutes = moment.0.div_euclid(MINUTE);
    let days = minutes.div_euclid(1_440).rem_euclid(7);
    LocalTime {
        day: Weekday::ALL[usize::try_from(days + 3).unwrap() % 7],
        minute: u16::try_from(minutes.rem_euclid(1_440)).unwrap(),
    }
}

/// A process on a device that holds 12 GiB of it.
fn reported_process(pid: u32, owner: &str, gpu_index: u32) -> EvidenceProcess {
    EvidenceProcess {
        run: RunKey {
            pid,
            start_ticks: u64::from(pid) * 10,
            device: DeviceId(format!("GPU-{gpu_index}")),
            instance: None,
        },
        gpu_index,
        owner: Some(person(owner)),
        name: Some("python".into()),
        memory: Some(12 * GIB),
        utilization: Some(0),
        job: Some("session 3".into()),
        context: Default::default(),
    }
}

fn job(owner: &str) -> OwnedJob {
    OwnedJob {
        owner: person(owner),
        id: "session 3".into(),
        shown: "session 3".into(),
    }
}

/// The second of three warnings, at noon, 40 minutes before the end.
fn warning_record(
    source: RuleSource,
    kind: RuleKind,
    subject: ViolationSubject,
    runs: Vec<EvidenceProcess>,
) -> GuardRecord {
    GuardRecord {
        at: NOON,
        rule: RuleName { source, kind },
        subject,
        mode: GuardMode::Soft,
        step: GuardStep::Warned {
            times: 2,
            deadline: Some(Timestamp(NOON.0 + 40 * MINUTE)),
        },
        evidence: Evidence {
            measured: None,
            since: Timestamp(0),
            count: u32::try_from(runs.len()).unwrap(),
            runs,
            unknown: 0,
            threat: None,
            is_service_only_warned: false,
        },
        message: None,
    }
}

fn idle_warning(runs: Vec<EvidenceProcess>) -> GuardRecord {
    let source = RuleSource::User("bob".into());
    let record = warning_record(
        source,
        RuleKind::Idle,
        ViolationSubject::Job(job("bob")),
        runs,
    );
    with_measurement(125, 120, MINUTE.unsigned_abs(), record)
}

fn with_measurement(value: u64, limit: u64, unit: u64, mut record: GuardRecord) -> GuardRecord {
    record.evidence.measured = Some(Measurement {
        value: value * unit,
        limit: limit * unit,
    });
    record
}

fn with_threat(threat: Threat, mut record: GuardRecord) -> GuardRecord {
    record.evidence.threat = Some(threat);
    record
}

fn end_record(record: GuardRecord, leave_to: Option<&str>) -> GuardRecord {
    let victim = Victim {
        job: job("bob"),
        priority: 5,
        runs: vec![record.evidence.runs[0].clone()],
        count: 1,
        is_busy: Some(false),
        leave_to: leave_to.map(str::to_owned),
    };
    GuardRecord {
        step: GuardStep::Ended(victim),
        ..record
    }
}

fn with_deadline(record: GuardRecord, deadline: Option<i64>) -> GuardRecord {
    let deadline = deadline.map(|minutes| Timestamp(NOON.0 + minutes * MINUTE));
    GuardRecord {
        step: GuardStep::Warned { times: 2, deadline },
        ..record
    }
}

fn with_message(record: GuardRecord, message: &str) -> GuardRecord {
    GuardRecord {
        message: Some(message.to_owned()),
        ..record
    }
}

const fn first_deadline(record: &GuardRecord) -> Option<Timestamp> {
    match record.step {
        GuardStep::Warned { deadline, .. } => deadline,
        _ => None,
    }
}

/// The notice for bob.
fn notice(record: &GuardRecord, snoozes_left: u32) -> Option<String> {
    let notice = Notice {
        record,
        uid: 1001,
        host: "gpu-box-07",
        max_warnings: 3,
        reader: first_deadline(record).map(|deadline| WarnedOwner {
            uid: 1001,
            deadline,
            snoozes_left,
        }),
    };
    notice.text(civil)
}

fn text(record: &GuardRecord) -> String {
    notice(record, 1).expect("it is bob's business")
}

/// Each kind of rule, with a subject that it can have and a measured value in its unit.
fn warnings_of_each_kind() -> Vec<GuardRecord> {
    use RuleKind::*;
    let bob = || person("bob");
    let default = || RuleSource::Default;
    let gpu = || RuleSource::Gpu("5".into());
    let ml = || RuleSource::Group("ml".into());
    let mine = || vec![reported_process(51_002, "bob", 5)];
    let ours = || {
        vec![
            reported_process(60_000, "alice", 5),
            reported_process(51_002, "bob", 5),
        ]
    };
    let device = || DeviceId("GPU-5".into());
    let all = || ViolationSubject::Person(bob());
    let on_device = || ViolationSubject::PersonOn(bob(), device());
    let run = || ViolationSubject::Run(reported_process(51_002, "bob", 5).run);
    let group = || ViolationSubject::Group("ml".into());
    let group_on = || ViolationSubject::GroupOn("ml".into(), device());
    let minutes = MINUTE.unsigned_abs();
    vec![
        with_measurement(
            61,
            40,
            GIB,
            warning_record(default(), Memory, all(), mine()),
        ),
        with_measurement(
            95,
            80,
            1,
            warning_record(default(), Utilization, on_device(), mine()),
        ),
        with_measurement(
            500,
            480,
            minutes,
            warning_record(default(), Duration, run(), mine()),
        ),
        with_measurement(2, 1, 1, warning_record(default(), Processes, all(), mine())),
        with_measurement(
            210,
            200,
            GIB,
            warning_record(ml(), TotalMemory, group(), ours()),
        ),
        with_measurement(
            95,
            80,
            1,
            warning_record(ml(), TotalUtilization, group_on(), ours()),
        ),
        with_measurement(
            12,
            10,
            1,
            warning_record(ml(), TotalProcesses, group(), ours()),
        ),
        with_measurement(
            24,
            20,
            GIB,
            warning_record(gpu(), ProcessMemory, run(), mine()),
        ),
        with_measurement(
            99,
            90,
            1,
            warning_record(
                gpu(),
                GpuUtilization,
                ViolationSubject::Device(device()),
                ours(),
            ),
        ),
        with_measurement(
            4,
            10,
            GIB,
            warning_record(
                gpu(),
                ReservedMemory,
                ViolationSubject::Device(device()),
                ours(),
            ),
        ),
        warning_record(RuleSource::User("bob".into()), Gpu, run(), mine()),
        warning_record(gpu(), User, run(), mine()),
        warning_record(gpu(), Process, run(), mine()),
        warning_record(gpu(), Maintenance, run(), mine()),
        warning_record(RuleSource::Time("lectures".into()), Hours, run(), mine()),
        idle_warning(mine()),
        with_measurement(
            1,
            5,
            1,
            warning_record(
                RuleSource::Rule("parked".into()),
                Waste,
                ViolationSubject::Job(job("bob")),
                mine(),
            ),
        ),
        with_measurement(
            1_500,
            1_440,
            minutes,
            warning_record(
                default(),
                Runaway,
                ViolationSubject::Job(job("bob")),
                mine(),
            ),
        ),
        with_measurement(
            12,
            10,
            GIB,
            warning_record(default(), Growth, ViolationSubject::Job(job("bob")), mine()),
        ),
        with_threat(
            Threat::CryptoMiner,
            with_measurement(
                4,
                3,
                1,
                warning_record(
                    RuleSource::Rule("rogues".into()),
                    Rogue,
                    ViolationSubject::Job(job("bob")),
                    mine(),
                ),
            ),
        ),
    ]
}

#[test]
fn words_of_each_rule_kind() {
    let actual: Vec<String> = warnings_of_each_kind()
        .iter()
        .map(|record| format!("-- {}\n{}", record.rule.kind.name(), text(record)))
        .collect();
    compare("guard/notices-of-rules", &actual.join("\n"));
}

#[test]
fn words_of_each_step() {
    let mine = || vec![reported_process(51_002, "bob", 5)];
    let other_job = |pid| EvidenceProcess {
        job: Some("container jupyter".into()),
        ..reported_process(pid, "bob", 0)
    };
    let alone = |runs| {
        let source = RuleSource::User("bob".into());
        let subject = ViolationSubject::Person(person("bob"));
        with_measurement(
            61,
            40,
            GIB,
            warning_record(source, RuleKind::Memory, subject, runs),
        )
    };
    let on_four = (0..4)
        .chain([6])
        .map(|gpu| reported_process(51_002, "bob", gpu));
    let nameless = EvidenceProcess {
        name: None,
        memory: None,
        job: None,
        ..reported_process(51_002, "bob", 5)
    };
    let of_group = |runs| {
        let subject = ViolationSubject::Group("ml".into());
        let source = RuleSource::Group("ml".into());
        with_measurement(
            210,
            200,
            GIB,
            warning_record(source, RuleKind::TotalMemory, subject, runs),
        )
    };
    let mut many = alone(
        (1..=16)
            .map(|pid| reported_process(pid, "bob", 0))
            .collect(),
    );
    many.evidence.count = 40;
    let mut group_of_many = of_group(vec![reported_process(51_002, "bob", 5)]);
    group_of_many.evidence.count = 40;
    let long = "kubectl delete pod --namespace machine-learning notebook-bob-7d9f8b6c5d-x2x4z";
    let pod = format!("kubectl delete pod --namespace ml {}", "a".repeat(80));
    let words = "notebooks that nobody uses are ended at night: please save what you need, \
                 or ask in #gpu for a week of your own on one of the small boxes";
    let mut later = idle_warning(mine());
    later.step = GuardStep::Warned {
        times: 4,
        deadline: Some(NOON.plus_seconds(90)),
    };
    let cases = [
        ("a job", idle_warning(mine())),
        ("a short grace period for a late violator", later),
        ("no end", with_deadline(idle_warning(mine()), None)),
        (
            "tomorrow",
            with_deadline(idle_warning(mine()), Some(13 * 60)),
        ),
        (
            "tomorrow at the same time",
            with_deadline(idle_warning(mine()), Some(24 * 60)),
        ),
        (
            "in a week",
            with_deadline(idle_warning(mine()), Some(7 * 24 * 60 + 65)),
        ),
        ("a process on five GPUs", idle_warning(on_four.collect())),
        ("of which little is known", alone(vec![nameless])),
        (
            "two jobs",
            alone(vec![reported_process(51_002, "bob", 5), other_job(7)]),
        ),
        ("more than are reported", many),
        ("a group that is bob", of_group(mine())),
        ("a group of many", group_of_many),
        (
            "the admin's words",
            with_message(idle_warning(mine()), words),
        ),
        (
            "the end",
            end_record(with_message(idle_warning(mine()), words), None),
        ),
        (
            "the end for a group",
            end_record(
                of_group(vec![
                    reported_process(51_002, "bob", 5),
                    reported_process(9, "alice", 0),
                ]),
                None,
            ),
        ),
        (
            "Slurm's",
            end_record(idle_warning(mine()), Some("scancel 1234_7")),
        ),
        ("Kubernetes'", end_record(idle_warning(mine()), Some(long))),
        (
            "a command that is too long",
            end_record(idle_warning(mine()), Some(&pod)),
        ),
    ];
    let actual: Vec<String> = cases
        .iter()
        .map(|(name, record)| format!("-- {name}\n{}", text(record)))
        .collect();
    compare("guard/notices-of-steps", &actual.join("\n"));
}

#[test]
fn no_snooze_hint_without_snoozes_left() {
    let record = idle_warning(vec![reported_process(51_002, "bob", 5)]);
    let expected = text(&record).replace(", or: gpukillctl guard snooze 51002", "");
    assert_eq!(notice(&record, 0), Some(expected));
    assert_ne!(notice(&record, 0), notice(&record, 1));
    let no_end = with_deadline(record, None);
    assert_eq!(notice(&no_end, 0), notice(&no_end, 1));
}

#[test]
fn further_notices_are_counted() {
    let expected =
        "gpukill on gpu-box-07: 37 more like this\n  more      gpukillctl guard violations\n";
    assert_eq!(summarize_rest("gpu-box-07", 37), expected);
}

#[test]
fn wraps_messages_and_cuts_the_last_line() {
    let cases = [
        ("", 2, vec![]),
        ("  ", 2, vec![]),
        ("one", 0, vec![]),
        ("one two", 2, vec!["  one two".to_owned()]),
        // A blank right after the line, and a blank before its last word.
        (
            &format!("{} b", "a".repeat(76)),
            2,
            vec![format!("  {}", "a".repeat(76)), "  b".to_owned()],
        ),
        (
            &format!("{} bb", "a".repeat(75)),
            2,
            vec![format!("  {}", "a".repeat(75)), "  bb".to_owned()],
        ),
        // No blanks, and characters that do not end where the line does.
        (
            &"模".repeat(30),
            2,
            vec![
                format!("  {}", "模".repeat(25)),
                format!("  {}", "模".repeat(5)),
            ],
        ),
    ];
    for (text, lines, expected) in cases {
        assert_eq!(wrap(text, lines), expected, "{text}");
    }
    let long = with_message(
        idle_warning(vec![reported_process(1, "bob", 0)]),
        &"word ".repeat(100),
    );
    let shown = text(&long);
    let last = shown.lines().last().unwrap();
    assert!(last.ends_with('…') && last.len() <= MAX_COLUMNS, "{last}");
}
