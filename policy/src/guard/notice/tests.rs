//! What people read, each kind of it.

mod whom;

mod hostile;

use super::super::testing::{GIB, person};
use super::*;
use crate::golden::compare;
use gpukill_proto::guard::{
    Evidence, JudgedJob, JudgedRun, Measured, Reader, RuleKind, RuleName, RuleSource,
};
use gpukill_proto::rogue::Threat;
use gpukill_proto::snapshot::DeviceId;

const MINUTE: i64 = 60_000;
/// 12:00 on a Thursday.
const NOON: Timestamp = Timestamp(12 * 60 * MINUTE);

fn civil(moment: Timestamp) -> Civil {
    let minutes = moment.0.div_euclid(MINUTE);
    let days = minutes.div_euclid(1_440).rem_euclid(7);
    Civil {
        day: Day::ALL[usize::try_from(days + 3).unwrap() % 7],
        minute: u16::try_from(minutes.rem_euclid(1_440)).unwrap(),
    }
}

/// A process of somebody on a device, that holds 12 GiB of it.
fn told(pid: u32, owner: &str, gpu_index: u32) -> Told {
    Told {
        run: JudgedRun {
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

fn job(owner: &str) -> JudgedJob {
    JudgedJob {
        owner: person(owner),
        id: "session 3".into(),
        shown: "session 3".into(),
    }
}

/// A second warning at noon of three, 40 minutes before the end.
fn warned(source: RuleSource, kind: RuleKind, subject: Subject, runs: Vec<Told>) -> GuardRecord {
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
            is_spared_service: false,
        },
        message: None,
    }
}

fn idle(runs: Vec<Told>) -> GuardRecord {
    let source = RuleSource::User("bob".into());
    let record = warned(source, RuleKind::Idle, Subject::Job(job("bob")), runs);
    of(125, 120, MINUTE.unsigned_abs(), record)
}

fn of(value: u64, limit: u64, unit: u64, mut record: GuardRecord) -> GuardRecord {
    record.evidence.measured = Some(Measured {
        value: value * unit,
        limit: limit * unit,
    });
    record
}

fn taken_for(threat: Threat, mut record: GuardRecord) -> GuardRecord {
    record.evidence.threat = Some(threat);
    record
}

fn ended(record: GuardRecord, leave_to: Option<&str>) -> GuardRecord {
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

fn deadline(record: GuardRecord, deadline: Option<i64>) -> GuardRecord {
    let deadline = deadline.map(|minutes| Timestamp(NOON.0 + minutes * MINUTE));
    GuardRecord {
        step: GuardStep::Warned { times: 2, deadline },
        ..record
    }
}

fn message(record: GuardRecord, message: &str) -> GuardRecord {
    GuardRecord {
        message: Some(message.to_owned()),
        ..record
    }
}

const fn first_end(record: &GuardRecord) -> Option<Timestamp> {
    match record.step {
        GuardStep::Warned { deadline, .. } => deadline,
        _ => None,
    }
}

/// As bob reads it.
fn notice(record: &GuardRecord, snoozes_left: u32) -> Option<String> {
    let notice = Notice {
        record,
        uid: 1001,
        host: "gpu-box-07",
        most_warnings: 3,
        reader: first_end(record).map(|deadline| Reader {
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

/// Each kind of rule, of the subject that it has, where what is measured has this unit.
fn kinds() -> Vec<GuardRecord> {
    use RuleKind::*;
    let bob = || person("bob");
    let default = || RuleSource::Default;
    let gpu = || RuleSource::Gpu("5".into());
    let ml = || RuleSource::Group("ml".into());
    let mine = || vec![told(51_002, "bob", 5)];
    let ours = || vec![told(60_000, "alice", 5), told(51_002, "bob", 5)];
    let device = || DeviceId("GPU-5".into());
    let all = || Subject::Person(bob());
    let on_device = || Subject::PersonOn(bob(), device());
    let run = || Subject::Run(told(51_002, "bob", 5).run);
    let group = || Subject::Group("ml".into());
    let group_on = || Subject::GroupOn("ml".into(), device());
    let minutes = MINUTE.unsigned_abs();
    vec![
        of(61, 40, GIB, warned(default(), Memory, all(), mine())),
        of(
            95,
            80,
            1,
            warned(default(), Utilization, on_device(), mine()),
        ),
        of(
            500,
            480,
            minutes,
            warned(default(), Duration, run(), mine()),
        ),
        of(2, 1, 1, warned(default(), Processes, all(), mine())),
        of(210, 200, GIB, warned(ml(), TotalMemory, group(), ours())),
        of(
            95,
            80,
            1,
            warned(ml(), TotalUtilization, group_on(), ours()),
        ),
        of(12, 10, 1, warned(ml(), TotalProcesses, group(), ours())),
        of(24, 20, GIB, warned(gpu(), ProcessMemory, run(), mine())),
        of(
            99,
            90,
            1,
            warned(gpu(), GpuUtilization, Subject::Device(device()), ours()),
        ),
        of(
            4,
            10,
            GIB,
            warned(gpu(), ReservedMemory, Subject::Device(device()), ours()),
        ),
        warned(RuleSource::User("bob".into()), Gpu, run(), mine()),
        warned(gpu(), User, run(), mine()),
        warned(gpu(), Process, run(), mine()),
        warned(gpu(), Maintenance, run(), mine()),
        warned(RuleSource::Time("lectures".into()), Hours, run(), mine()),
        idle(mine()),
        of(
            1,
            5,
            1,
            warned(
                RuleSource::Rule("parked".into()),
                Waste,
                Subject::Job(job("bob")),
                mine(),
            ),
        ),
        of(
            1_500,
            1_440,
            minutes,
            warned(default(), Runaway, Subject::Job(job("bob")), mine()),
        ),
        of(
            12,
            10,
            GIB,
            warned(default(), Growth, Subject::Job(job("bob")), mine()),
        ),
        taken_for(
            Threat::CryptoMiner,
            of(
                4,
                3,
                1,
                warned(
                    RuleSource::Rule("rogues".into()),
                    Rogue,
                    Subject::Job(job("bob")),
                    mine(),
                ),
            ),
        ),
    ]
}

#[test]
fn each_kind_of_rule_has_its_words() {
    let told: Vec<String> = kinds()
        .iter()
        .map(|record| format!("-- {}\n{}", record.rule.kind.name(), text(record)))
        .collect();
    compare("guard/notices-of-rules", &told.join("\n"));
}

#[test]
fn each_step_and_each_end_has_its_words() {
    let mine = || vec![told(51_002, "bob", 5)];
    let other_job = |pid| Told {
        job: Some("container jupyter".into()),
        ..told(pid, "bob", 0)
    };
    let alone = |runs| {
        let source = RuleSource::User("bob".into());
        let subject = Subject::Person(person("bob"));
        of(61, 40, GIB, warned(source, RuleKind::Memory, subject, runs))
    };
    let on_four = (0..4).chain([6]).map(|gpu| told(51_002, "bob", gpu));
    let nameless = Told {
        name: None,
        memory: None,
        job: None,
        ..told(51_002, "bob", 5)
    };
    let of_group = |runs| {
        let subject = Subject::Group("ml".into());
        let source = RuleSource::Group("ml".into());
        of(
            210,
            200,
            GIB,
            warned(source, RuleKind::TotalMemory, subject, runs),
        )
    };
    let mut many = alone((1..=16).map(|pid| told(pid, "bob", 0)).collect());
    many.evidence.count = 40;
    let mut crowd = of_group(vec![told(51_002, "bob", 5)]);
    crowd.evidence.count = 40;
    let long = "kubectl delete pod --namespace machine-learning notebook-bob-7d9f8b6c5d-x2x4z";
    let pod = format!("kubectl delete pod --namespace ml {}", "a".repeat(80));
    let words = "notebooks that nobody uses are ended at night: please save what you need, \
                 or ask in #gpu for a week of your own on one of the small boxes";
    let mut later = idle(mine());
    later.step = GuardStep::Warned {
        times: 4,
        deadline: Some(NOON.plus_seconds(90)),
    };
    let cases = [
        ("a job", idle(mine())),
        ("a short grace, for whoever comes later", later),
        ("no end", deadline(idle(mine()), None)),
        ("tomorrow", deadline(idle(mine()), Some(13 * 60))),
        (
            "tomorrow at the same time",
            deadline(idle(mine()), Some(24 * 60)),
        ),
        ("in a week", deadline(idle(mine()), Some(7 * 24 * 60 + 65))),
        ("a process on five GPUs", idle(on_four.collect())),
        ("of which little is known", alone(vec![nameless])),
        (
            "two jobs",
            alone(vec![told(51_002, "bob", 5), other_job(7)]),
        ),
        ("more than are told of", many),
        ("a group that is bob", of_group(mine())),
        ("a group of many", crowd),
        ("the admin's words", message(idle(mine()), words)),
        ("the end", ended(message(idle(mine()), words), None)),
        (
            "the end for a group",
            ended(
                of_group(vec![told(51_002, "bob", 5), told(9, "alice", 0)]),
                None,
            ),
        ),
        ("Slurm's", ended(idle(mine()), Some("scancel 1234_7"))),
        ("Kubernetes'", ended(idle(mine()), Some(long))),
        (
            "a command that is too long",
            ended(idle(mine()), Some(&pod)),
        ),
    ];
    let told: Vec<String> = cases
        .iter()
        .map(|(name, record)| format!("-- {name}\n{}", text(record)))
        .collect();
    compare("guard/notices-of-steps", &told.join("\n"));
}

#[test]
fn whoever_may_not_put_the_end_off_is_not_told_how_to() {
    let record = idle(vec![told(51_002, "bob", 5)]);
    let expected = text(&record).replace(", or: gpukillctl guard snooze 51002", "");
    assert_eq!(notice(&record, 0), Some(expected));
    assert_ne!(notice(&record, 0), notice(&record, 1));
    let no_end = deadline(record, None);
    assert_eq!(notice(&no_end, 0), notice(&no_end, 1));
}

#[test]
fn what_there_is_more_of_is_told_by_its_number() {
    let expected =
        "gpukill on gpu-box-07: 37 more like this\n  more      gpukillctl guard violations\n";
    assert_eq!(besides("gpu-box-07", 37), expected);
}

#[test]
fn a_message_is_broken_at_blanks_and_its_last_line_cut() {
    let cases = [
        ("", 2, vec![]),
        ("  ", 2, vec![]),
        ("one", 0, vec![]),
        ("one two", 2, vec!["  one two".to_owned()]),
        // A blank right behind the line, and one before its last word.
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
        // No blank, and characters that do not end where the line does.
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
        assert_eq!(wrapped(text, lines), expected, "{text}");
    }
    let long = message(idle(vec![told(1, "bob", 0)]), &"word ".repeat(100));
    let shown = text(&long);
    let last = shown.lines().last().unwrap();
    assert!(last.ends_with('…') && last.len() <= MOST_COLUMNS, "{last}");
}
