//! The timeline of a small store tells why a job ended, to the people who may know it.

use super::super::super::actions::{ActionEnd, insert as insert_action};
use super::super::super::database::{AUDIT, OpenDatabase, open};
use super::super::super::sample::{DepartedProcess, Departure};
use super::super::super::{
    Action, ActionKind, FaultChange, RecordedEvent, RuleSetKind, event_row, findings, verdicts,
};
use super::super::sample_store::{HOUR, MINUTE, MONDAY, SampleStore, device, id, owner, process};
use super::*;
use gpukill_proto::audit::{TimelineCursor, TimelineEnd, UsageState};
use gpukill_proto::guard::{
    Evidence, EvidenceProcess, GuardMode, GuardStep, OwnedJob, Person, ProcessContext, RuleKind,
    RuleName, RuleSource, RunKey, Victim, ViolationSubject,
};
use gpukill_proto::model::{EventKind, FaultCode, GpuEvent, GpuProcess, Job, ProcessKey, Unit};
use gpukill_proto::reading::Reading;
use gpukill_proto::reading::Reading::Value;
use gpukill_proto::rogue::{Risk, RogueFinding, Share, Threat, Verdict};
use proptest::prelude::*;

/// When bob's job starts, and when the guard ends it.
const START: i64 = MONDAY + HOUR;
const END: i64 = START + 2 * HOUR;

/// The notebook of bob on GPU 5.
const NOTEBOOK: u32 = 51_002;

const GUARD: u32 = 998;

/// A box with its samples and its record.
struct PastBox {
    samples: SampleStore,
    audit: OpenDatabase,
    _directory: tempfile::TempDir,
}

fn notebook(percent: u32) -> GpuProcess {
    GpuProcess {
        first_seen: Value(Timestamp(START)),
        job: Value(Job::Unit {
            unit: Unit {
                name: "nb.scope".into(),
                manager: None,
            },
            uid: 3,
        }),
        ..process(5, NOTEBOOK, "bob", percent)
    }
}

fn bob() -> Person {
    let owner = owner("bob");
    Person {
        name: owner.name,
        uid: owner.uid,
    }
}

fn decision(at: i64, step: GuardStep) -> GuardRecord {
    let process = EvidenceProcess {
        run: RunKey {
            pid: NOTEBOOK,
            start_ticks: 9,
            device: id(5),
            instance: None,
        },
        gpu_index: 5,
        owner: Some(bob()),
        name: Some("python".into()),
        memory: None,
        utilization: Some(0),
        job: Some("nb.scope".into()),
        context: ProcessContext::default(),
    };
    GuardRecord {
        at: Timestamp(at),
        rule: RuleName {
            source: RuleSource::Default,
            kind: RuleKind::Idle,
        },
        subject: ViolationSubject::Job(job()),
        mode: GuardMode::Soft,
        step,
        evidence: Evidence {
            measured: None,
            since: Timestamp(at),
            runs: vec![process],
            count: 1,
            unknown: 0,
            threat: None,
            is_service_only_warned: false,
        },
        message: None,
    }
}

fn job() -> OwnedJob {
    OwnedJob {
        owner: bob(),
        id: "nb.scope".into(),
        shown: "nb.scope".into(),
    }
}

fn fault(at: i64, code: FaultCode, part: &str, gpu: Option<u32>, is_over: bool) -> RecordedEvent {
    RecordedEvent::Fault(FaultChange {
        at: Timestamp(at),
        part: part.into(),
        device: gpu.map(id),
        code,
        what: code.name().into(),
        is_over,
        times: 1,
    })
}

impl PastBox {
    /// bob works for 20 minutes and is idle for 90. Then the daemon does not run for 10 minutes
    /// and the guard ends the job. alice works on GPU 4 all the time.
    fn new() -> Self {
        let mut samples = SampleStore::new();
        let alice = || GpuProcess {
            first_seen: Value(Timestamp(START - 5 * MINUTE)),
            ..process(4, 48_213, "alice", 97)
        };
        let mut at = START - 5 * MINUTE;
        while at < END + 5 * MINUTE {
            let percent = if at < START + 20 * MINUTE { 60 } else { 0 };
            let is_gap = (START + 110 * MINUTE..END).contains(&at);
            let devices = || vec![device(4, 97, 100), device(5, percent, 100)];
            if at == END {
                let departed = DepartedProcess {
                    process: notebook(0),
                    departure: Departure::Ended,
                    last_seen: Timestamp(END + 14_000),
                };
                let span = (at, MINUTE);
                samples.sample_with_departed(
                    span,
                    devices(),
                    vec![alice(), notebook(0)],
                    vec![departed],
                );
            } else if !is_gap {
                let mut present = vec![alice()];
                let is_there = (START..END).contains(&at);
                present.extend(is_there.then(|| notebook(percent)));
                samples.sample(at, MINUTE, devices(), present);
            }
            at += MINUTE;
        }
        let directory = tempfile::tempdir().unwrap();
        let audit = open(directory.path(), &AUDIT).unwrap();
        let mut it = Self {
            samples,
            audit,
            _directory: directory,
        };
        it.record();
        it
    }

    /// Records what the guard, people and the hardware did.
    fn record(&mut self) {
        let connection = &self.audit.connection;
        let event = |at: i64, event: &RecordedEvent, boot: &str| {
            event_row::insert(connection, Timestamp(at), event, boot).unwrap();
        };
        let rules = |revision: &str| RecordedEvent::Rules {
            rule_set: RuleSetKind::Guard,
            revision: Some(revision.into()),
            text: "x".into(),
        };
        for (at, boot) in [(START - 6 * MINUTE, "a"), (END - 5 * MINUTE, "b")] {
            event(at, &RecordedEvent::Started("1.2.3"), boot);
            event(at, &rules("first"), boot);
        }
        event(END + MINUTE, &rules("second"), "b");
        for gpu in [4, 5] {
            let xid = GpuEvent {
                device: Some(id(gpu)),
                instance: None,
                at: Timestamp(END + 2 * MINUTE),
                kind: EventKind::Xid(79),
            };
            event(0, &RecordedEvent::Device(xid, 1), "b");
        }
        let hot = FaultCode::TemperatureAlert;
        event(
            0,
            &fault(END + 3 * MINUTE, hot, "GPU 5", Some(5), false),
            "b",
        );
        event(
            0,
            &fault(END + 3 * MINUTE, FaultCode::DiskFull, "store", None, false),
            "b",
        );
        let ended = GuardStep::Ended(Victim {
            job: job(),
            priority: 5,
            runs: Vec::new(),
            count: 1,
            is_busy: Some(false),
            leave_to: None,
        });
        let warned = GuardStep::Warned {
            times: 1,
            deadline: Some(Timestamp(END)),
        };
        let mut other = decision(START + 80 * MINUTE, GuardStep::Violated);
        other.subject = ViolationSubject::Person(Person {
            name: "alice".into(),
            uid: Some(5),
        });
        other.evidence.runs.clear();
        let decisions = [
            decision(START + 80 * MINUTE, GuardStep::Violated),
            decision(START + 80 * MINUTE, warned),
            other,
            decision(END, ended),
        ];
        verdicts::insert(connection, &decisions).unwrap();
        let target = |pid: u32, gpu: u32, owner: &str| {
            format!(
                "{{\"targets\":[{{\"pid\":{pid},\"start_ticks\":9,\"owner\":\"{owner}\",\"job\":null,\
                 \"holds\":[{{\"gpu_index\":{gpu},\"gpu_id\":\"GPU-{gpu}\"}}]}}]}}"
            )
        };
        let act = |at: i64, kind, uid, request: &str, plan: String| {
            let action = Action {
                kind,
                uid,
                request: request.into(),
                plan,
            };
            let end = ActionEnd {
                at: Timestamp(at + 900),
                result: "done",
                outcome: Some("{}".into()),
                why: None,
                ended: Vec::new(),
            };
            insert_action(connection, "run", &action, Timestamp(at), Some(&end)).unwrap()
        };
        let kill = act(
            END + 10_000,
            ActionKind::Kill,
            GUARD,
            "guard: default: idle",
            target(NOTEBOOK, 5, "bob"),
        );
        act(
            END + 20_000,
            ActionKind::Kill,
            5,
            "7",
            target(7, 4, "alice"),
        );
        act(
            END + 30_000,
            ActionKind::EditRules,
            0,
            "guard soft",
            "{}".into(),
        );
        act(
            END + 40_000,
            ActionKind::Prune,
            0,
            "--before 9d",
            "{}".into(),
        );
        let finding = RogueFinding {
            process: ProcessKey {
                pid: NOTEBOOK,
                start_ticks: 9,
            },
            owner: Some(bob()),
            uid: bob().uid,
            name: Some("python".into()),
            executable: None,
            gpus: vec![5],
            since: Timestamp(START),
            last_seen: Timestamp(START + 30 * MINUTE),
            is_present: true,
            verdicts: vec![Verdict {
                threat: Threat::CryptoMiner,
                confidence: Share::ONE,
                score: Share::ONE,
                risk: Risk::Critical,
                indicators: Vec::new(),
            }],
        };
        findings::insert(connection, "b", &[finding]).unwrap();
        self.samples.execute(&format!(
            "UPDATE run SET ending = 'killed', action = {kill} WHERE ended_at IS NOT NULL"
        ));
    }

    fn page(
        &mut self,
        query: &TimelineQuery,
        rights: &PastRights,
    ) -> Result<TimelinePage, Refusal> {
        let uids = match query.user.as_deref() {
            Some("bob") => [3].into(),
            Some(_) | None => BTreeSet::new(),
        };
        let connection = &mut self.samples.opened.connection;
        // The end of the last sample.
        let now = Timestamp(END + 5 * MINUTE);
        let samples = timeline_samples(connection, query, uids, rights, now)?;
        timeline_page(&mut self.audit.connection, query, samples, rights)
    }

    fn whole(&mut self, query: &TimelineQuery) -> TimelinePage {
        let page = self.page(query, &all_rights()).unwrap();
        assert_eq!(page.next, None);
        page
    }
}

fn all_rights() -> PastRights {
    PastRights {
        may_read_command: Box::new(|_, _| true),
        may_read_action: Box::new(|_| true),
        redact_decision: Box::new(Some),
    }
}

/// The rights of bob where other users are hidden.
fn rights_of_bob() -> PastRights {
    PastRights {
        may_read_command: Box::new(|owner, _| owner == Some(3)),
        may_read_action: Box::new(|by| by == Some(3)),
        redact_decision: Box::new(|record| {
            let is_own =
                matches!(&record.subject, ViolationSubject::Job(job) if job.owner == bob());
            is_own.then_some(record)
        }),
    }
}

fn all() -> TimelineQuery {
    TimelineQuery {
        since: Timestamp(MONDAY),
        until: Timestamp(MONDAY + 24 * HOUR),
        gpu: None,
        user: None,
        job: None,
        pid: None,
        from: None,
        limit: u32::MAX,
    }
}

fn of_notebook() -> TimelineQuery {
    TimelineQuery {
        pid: Some(NOTEBOOK),
        ..all()
    }
}

/// The minutes from the start of bob's job to an entry, and the entry in a word or two.
fn words(page: &TimelinePage) -> Vec<String> {
    let word = |entry: &TimelineEntry| {
        let minutes = (entry.at.0 - START).div_euclid(MINUTE);
        let text = match &entry.event {
            TimelineEvent::Started(process) => format!("started {}", process.pid),
            TimelineEvent::Ended(process, end) => format!("{} {}", end.name(), process.pid),
            TimelineEvent::Stretch { usage, .. } => {
                let length = (usage.until.0 - entry.at.0) / MINUTE;
                format!("{} {length} min", usage.state.name())
            }
            TimelineEvent::Guard(record) => format!("guard {}", record.step.name()),
            TimelineEvent::Action(record) => record.kind.clone(),
            TimelineEvent::Finding(finding) => format!("rogue {}", finding.process.pid),
            TimelineEvent::Gap(until) => format!("gap {} min", (until.0 - entry.at.0) / MINUTE),
        };
        format!("{minutes} {text}")
    };
    page.entries.iter().map(word).collect()
}

#[test]
fn timeline_of_a_process_tells_why_it_ended() {
    let page = PastBox::new().whole(&of_notebook());
    assert!(!page.stretches_omitted);
    let expected = [
        "0 started 51002",
        "0 busy 20 min",
        "20 idle 90 min",
        "30 rogue 51002",
        "80 guard violated",
        "80 guard warned",
        "110 gap 10 min",
        "115 booted",
        "115 started",
        "120 idle 0 min",
        "120 guard ended",
        "120 kill",
        "120 killed 51002",
        "120 rules_edit",
        "121 rules",
        "122 xid",
        "123 alert",
        "123 fault",
    ];
    assert_eq!(words(&page), expected);
    let killed = page.entries.iter().find_map(|entry| match &entry.event {
        TimelineEvent::Ended(_, end) => Some(*end),
        _ => None,
    });
    let action = page.entries.iter().find_map(|entry| match &entry.event {
        TimelineEvent::Action(record) if record.kind == "kill" => Some(record.id),
        _ => None,
    });
    assert_eq!(killed, Some(TimelineEnd::Killed(action)));
    let is_of_notebook = |entry: &TimelineEntry| match &entry.event {
        TimelineEvent::Stretch {
            pid, start_ticks, ..
        } => (*pid, *start_ticks) == (NOTEBOOK, Some(9)),
        _ => true,
    };
    assert!(page.entries.iter().all(is_of_notebook));
    let busy = page.entries.iter().find_map(|entry| match &entry.event {
        TimelineEvent::Stretch { usage, .. } => Some(usage.clone()),
        _ => None,
    });
    let busy = busy.unwrap();
    assert_eq!(busy.state, UsageState::Busy);
    assert_eq!(busy.utilization.map(|it| it.0), Some(60));
    assert_eq!(busy.utilization_series, [60; 20]);
    assert!(
        page.entries
            .iter()
            .all(|it| it.gpus.is_empty() || it.gpus == [5])
    );
}

#[test]
fn selections_of_a_job_agree() {
    let mut it = PastBox::new();
    let by_pid = words(&it.whole(&of_notebook()));
    // A user and a GPU exist before and after the job.
    let before = ["-6 started", "-6 rules"].map(ToOwned::to_owned);
    let selections = [
        TimelineQuery {
            job: Some("nb.scope".into()),
            ..all()
        },
        TimelineQuery {
            user: Some("bob".into()),
            ..all()
        },
        TimelineQuery {
            gpu: Some("5".into()),
            ..all()
        },
    ];
    for query in selections {
        let mut found = words(&it.whole(&query));
        if query.job.is_some() {
            // A finding does not have the job.
            found.insert(3, "30 rogue 51002".into());
        } else {
            let all = found.split_off(before.len());
            assert_eq!(std::mem::replace(&mut found, all), before, "{query:?}");
        }
        assert_eq!(found, by_pid, "{query:?}");
    }
    let unknown = TimelineQuery {
        pid: Some(7),
        ..all()
    };
    let refused = it.page(&unknown, &all_rights());
    assert!(matches!(refused, Err(Refusal::NoMatch(_))), "{refused:?}");
    let unknown = TimelineQuery {
        gpu: Some("7".into()),
        ..all()
    };
    assert!(it.page(&unknown, &all_rights()).is_err());
}

#[test]
fn events_of_a_device_belong_to_the_time_of_its_use() {
    let mut it = PastBox::new();
    // An hour earlier, the job had ended and another may have used its device.
    let end = END - 60 * MINUTE;
    it.samples.execute(&format!(
        "UPDATE run SET ended_at = {end} WHERE ended_at IS NOT NULL"
    ));
    let of_bob = TimelineQuery {
        user: Some("bob".into()),
        ..all()
    };
    let found = words(&it.whole(&of_bob));
    assert!(!found.contains(&"122 xid".to_owned()), "{found:?}");
    assert!(found.contains(&"123 fault".to_owned()), "{found:?}");
    // What happened to the host long after the end of a process is not about the process.
    let found = words(&it.whole(&of_notebook()));
    let last = found.last().map(String::as_str);
    assert_eq!(last, Some("60 killed 51002"), "{found:?}");
    let of_gpu = TimelineQuery {
        gpu: Some("5".into()),
        ..all()
    };
    let found = words(&it.whole(&of_gpu));
    assert!(found.contains(&"122 xid".to_owned()), "{found:?}");
}

#[test]
fn reboot_ends_what_was_not_observed() {
    let mut it = PastBox::new();
    let end = START + 110 * MINUTE;
    it.samples.execute(&format!(
        "UPDATE run SET ending = 'unobserved', action = NULL, ended_at = {end}
         WHERE ended_at IS NOT NULL"
    ));
    // The next start is in boot b.
    for (boot, expected) in [("b", "unobserved"), ("a", "rebooted")] {
        it.samples
            .execute(&format!("UPDATE process SET boot = '{boot}'"));
        let words = words(&it.whole(&of_notebook()));
        let expected = format!("110 {expected} {NOTEBOOK}");
        assert!(words.contains(&expected), "{expected}: {words:?}");
    }
}

#[test]
fn timeline_of_the_host_has_everything_but_stretches() {
    let page = PastBox::new().whole(&all());
    assert!(page.stretches_omitted);
    let words = words(&page);
    for expected in [
        "-5 started 48213",
        "120 prune",
        "80 guard violated",
        "110 gap 10 min",
    ] {
        assert!(
            words.iter().any(|it| it == expected),
            "{expected} {words:?}"
        );
    }
    let count = |what: &str| words.iter().filter(|it| it.ends_with(what)).count();
    let counts = ["xid", "kill", "violated", " min"].map(count);
    assert_eq!(counts, [2, 2, 2, 1]);
}

#[test]
fn gap_that_began_before_the_period_is_shown() {
    let query = TimelineQuery {
        since: Timestamp(START + 112 * MINUTE),
        ..of_notebook()
    };
    let found = words(&PastBox::new().whole(&query));
    assert_eq!(
        found.first().map(String::as_str),
        Some("112 gap 8 min"),
        "{found:?}"
    );
}

#[test]
fn period_bounds_the_entries() {
    let mut it = PastBox::new();
    let query = TimelineQuery {
        since: Timestamp(START + 10 * MINUTE),
        until: Timestamp(START + 80 * MINUTE),
        ..of_notebook()
    };
    let found = words(&it.whole(&query));
    assert_eq!(
        found,
        ["10 busy 10 min", "20 idle 60 min", "30 rogue 51002"]
    );
}

#[test]
fn runs_of_others_do_not_shorten_a_page() {
    let mut it = PastBox::new();
    let expected = words(&it.whole(&of_notebook()));
    it.samples.execute(&format!(
        "WITH RECURSIVE each(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM each LIMIT 12000)
         INSERT INTO process (boot, pid, start_ticks, uid, user)
         SELECT 'boot', 100000 + n, 1, 4000, 'zoe' FROM each;
         INSERT INTO run (process, device, instance, first_at, last_at, first_sample,
             last_sample, ended_at, ending)
         SELECT id, 1, '', {START}, {START}, 1, 1, {START}, 'ended'
         FROM process WHERE user = 'zoe';"
    ));
    assert_eq!(words(&it.whole(&of_notebook())), expected);
}

#[test]
fn run_that_ended_before_its_start_by_the_clock_is_shown() {
    let mut it = PastBox::new();
    let end = START - 10 * MINUTE;
    it.samples.execute(&format!(
        "UPDATE run SET ended_at = {end} WHERE ended_at IS NOT NULL"
    ));
    for (since, until, expected) in [
        (START - 5 * MINUTE, END, format!("0 started {NOTEBOOK}")),
        (MONDAY, START - 5 * MINUTE, format!("-10 killed {NOTEBOOK}")),
    ] {
        let query = TimelineQuery {
            since: Timestamp(since),
            until: Timestamp(until),
            ..of_notebook()
        };
        let found = words(&it.whole(&query));
        assert!(found.contains(&expected), "{expected}: {found:?}");
    }
}

#[test]
fn hidden_actions_and_commands_stay_hidden() {
    let mut it = PastBox::new();
    let hidden = it.page(&of_notebook(), &rights_of_bob()).unwrap();
    // The kill is known from the run that it ended.
    assert_eq!(words(&hidden), words(&it.whole(&of_notebook())));
    let kill = hidden.entries.iter().find_map(|entry| match &entry.event {
        TimelineEvent::Action(record) if record.kind == "kill" => Some(record),
        _ => None,
    });
    let kill = kill.unwrap();
    assert_eq!(
        (kill.uid, &kill.what, &kill.plan),
        (Some(GUARD), &None, &Reading::Withheld)
    );
    let other = TimelineQuery {
        gpu: Some("4".into()),
        ..all()
    };
    let page = it.page(&other, &rights_of_bob()).unwrap();
    let commands = page.entries.iter().filter_map(|entry| match &entry.event {
        TimelineEvent::Started(process) => Some(&process.command),
        _ => None,
    });
    assert_eq!(commands.collect::<Vec<_>>(), [&Reading::Withheld]);
    let words = words(&page);
    let has = |what: &str| words.iter().any(|it| it.contains(what));
    assert!(!has("kill") && !has("violated"), "{words:?}");
}

#[test]
fn hours_are_used_for_a_long_time() {
    let mut it = PastBox::new();
    let later = MONDAY + 96 * HOUR;
    let idle = || vec![device(4, 0, 0), device(5, 0, 0)];
    let carol = || GpuProcess {
        first_seen: Value(Timestamp(MONDAY + 2 * HOUR)),
        ..process(5, 9, "carol", 50)
    };
    // One minute in each hour.
    for at in (MONDAY + 10 * HOUR..later).step_by(usize::try_from(HOUR).unwrap()) {
        it.samples.sample(at, MINUTE, idle(), vec![carol()]);
    }
    let query = TimelineQuery {
        until: Timestamp(later),
        pid: Some(9),
        ..all()
    };
    let page = it.whole(&query);
    let stretches = page.entries.iter();
    let stretches = stretches.filter(|it| matches!(it.event, TimelineEvent::Stretch { .. }));
    assert_eq!(stretches.count(), 86);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn pages_join_to_the_whole(limit in 1..9_u32, has_pid in any::<bool>()) {
        let mut it = PastBox::new();
        let mut query = TimelineQuery { pid: has_pid.then_some(NOTEBOOK), ..all() };
        let whole = it.whole(&query);
        query.limit = limit;
        let (mut joined, mut before) = (Vec::new(), None::<TimelineCursor>);
        loop {
            let page = it.page(&query, &all_rights()).unwrap();
            prop_assert!(page.entries.len() <= limit as usize);
            prop_assert!(page.next.is_none() || page.next > before);
            joined.extend(page.entries);
            (before, query.from) = (page.next, page.next);
            if before.is_none() {
                break;
            }
        }
        prop_assert_eq!(joined, whole.entries);
    }
}
