//! What never reaches a terminal, whatever processes, rules and admins contain.

use super::*;
use gpukill_proto::guard::{MAX_EVIDENCE_PROCESSES, WarnedOwner};
use proptest::prelude::*;

fn hostile_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        ".{0,300}",
        "[ -~]{0,300}",
        "[\u{0}-\u{1f}\u{7f}-\u{9f}\u{1b}\u{202e}\u{200b}]{0,40}",
        "[a\u{300}-\u{310}模\n\r ]{0,200}",
        Just("\u{1b}]0;owned\u{7}\u{1b}[2J".to_owned()),
        Just("x".repeat(5_000)),
    ]
}

/// Processes of bob and of others. Every text of the others' processes is [`OTHERS`].
fn runs() -> impl Strategy<Value = Vec<EvidenceProcess>> {
    let one = (
        any::<bool>(),
        0..4_u32,
        any::<u32>(),
        hostile_text(),
        hostile_text(),
    )
        .prop_flat_map(|(is_bobs, device, gpu, name, job)| {
            let memory = prop::option::of(any::<u64>());
            let reported = (any::<u32>(), memory, any::<bool>());
            reported.prop_map(move |(pid, memory, has_job)| {
                let mut reported = reported_process_of(is_bobs, pid, device);
                reported.gpu_index = gpu;
                reported.memory = memory;
                if is_bobs {
                    reported.name = Some(name.clone());
                    reported.job = has_job.then(|| job.clone());
                }
                reported
            })
        });
    prop::collection::vec(one, 0..=MAX_EVIDENCE_PROCESSES)
}

const OTHERS: &str = "SECRET";

fn reported_process_of(is_bobs: bool, pid: u32, device: u32) -> EvidenceProcess {
    let mut reported = reported_process(pid, if is_bobs { "bob" } else { "alice" }, device);
    if !is_bobs {
        reported.name = Some(OTHERS.into());
        reported.job = Some(OTHERS.into());
    }
    reported
}

fn subject() -> impl Strategy<Value = ViolationSubject> {
    prop_oneof![
        Just(ViolationSubject::Person(person("bob"))),
        Just(ViolationSubject::PersonOn(
            person("bob"),
            DeviceId("GPU-1".into())
        )),
        hostile_text().prop_map(ViolationSubject::Group),
        hostile_text().prop_map(|name| ViolationSubject::GroupOn(name, DeviceId("GPU-1".into()))),
        hostile_text().prop_map(|id| ViolationSubject::Device(DeviceId(id))),
        Just(ViolationSubject::Job(job("bob"))),
        Just(ViolationSubject::Run(
            reported_process(51_002, "bob", 1).run
        )),
    ]
}

fn step() -> impl Strategy<Value = GuardStep> {
    let deadline = || prop::option::of(any::<i64>().prop_map(Timestamp));
    let victim = (
        runs(),
        hostile_text(),
        prop::option::of(hostile_text()),
        any::<u32>(),
    );
    prop_oneof![
        (any::<u32>(), deadline())
            .prop_map(|(times, deadline)| GuardStep::Warned { times, deadline }),
        victim.prop_map(|(runs, shown, leave_to, count)| GuardStep::Ended(Victim {
            job: OwnedJob {
                shown,
                ..job("bob")
            },
            priority: 5,
            runs,
            count,
            is_busy: None,
            leave_to,
        })),
    ]
}

fn record() -> impl Strategy<Value = GuardRecord> {
    let measured = prop::option::of((any::<u64>(), any::<u64>()));
    let kind = prop::sample::select(
        warnings_of_each_kind()
            .into_iter()
            .map(|it| it.rule.kind)
            .collect::<Vec<_>>(),
    );
    let evidence = (runs(), any::<u32>(), measured, any::<i64>());
    (
        evidence,
        kind,
        hostile_text(),
        subject(),
        step(),
        prop::option::of(hostile_text()),
    )
        .prop_map(
            |((runs, count, measured, at), kind, source, subject, step, message)| {
                let source = RuleSource::Rule(source);
                let mut record = warning_record(source, kind, subject, runs);
                record.evidence.count = count;
                record.evidence.measured =
                    measured.map(|(value, limit)| Measurement { value, limit });
                GuardRecord {
                    at: Timestamp(at),
                    step,
                    message,
                    ..record
                }
            },
        )
}

proptest! {
    #[test]
    fn text_is_short_and_harmless(
        record in record(),
        host in hostile_text(),
        max_warnings: u32,
        reader in proptest::option::of((any::<i64>(), 0..3_u32)),
        minute: u16,
    ) {
        let reader = reader.map(|(deadline, snoozes_left)| WarnedOwner {
            uid: 1001,
            deadline: Timestamp(deadline),
            snoozes_left,
        });
        let notice = Notice { record: &record, uid: 1001, host: &host, max_warnings, reader };
        let text = notice.text(|_| LocalTime { day: Weekday::Monday, minute });
        prop_assert_eq!(text.is_some(), recipients(&record).contains(&1001));
        let Some(text) = text else {
            return Ok(());
        };
        prop_assert!(text.ends_with('\n'));
        prop_assert!(text.lines().count() <= MAX_LINES, "{}", text);
        for line in text.split_terminator('\n') {
            prop_assert!(line.len() <= MAX_COLUMNS, "{}", line);
            // Nothing is left to escape: no control characters, and nothing that hides or
            // reorders text.
            prop_assert_eq!(&sanitize(line.as_bytes(), MAX_COLUMNS), line);
        }
    }

    #[test]
    fn hides_processes_of_others(mut record in record()) {
        // No other text may contain these.
        record.message = None;
        record.rule.source = RuleSource::Default;
        let bobs = |reported: &mut EvidenceProcess| {
            if owner_uid(reported) == Some(1001) {
                reported.name = Some("python".into());
                reported.job = None;
                reported.run.pid %= 1_000;
                reported.gpu_index %= 8;
                reported.memory = None;
            } else {
                reported.run.pid = 777_777;
            }
        };
        record.evidence.measured = None;
        record.evidence.runs.iter_mut().for_each(bobs);
        if let GuardStep::Ended(victim) = &mut record.step {
            victim.runs.iter_mut().for_each(bobs);
            victim.job.shown = "session 3".into();
            victim.leave_to = None;
        }
        let text = notice(&record, 1).unwrap_or_default();
        prop_assert!(!text.contains(OTHERS) && !text.contains("777777"), "{}", text);
    }
}
