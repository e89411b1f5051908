//! Limits what the guard's decisions add to the record in an hour. Any user can break rules as
//! often as they like, with many processes at once. Beyond the allowance of a person the record
//! lacks their violations and warnings, but never what the guard did. The log has all decisions.

use super::byte_allowance::{AllowanceHolder, ByteAllowance};
use super::verdicts::affected_person;
use crate::log_events::event;
use gpukill_policy::guard::PersonKey;
use gpukill_proto::guard::{GuardMode, GuardRecord, GuardStep, ViolationSubject};
use std::time::Instant;

/// The bytes an hour for one person, about a thousand decisions, and for all but root.
const MAX_BYTES_PER_PERSON: usize = 1 << 20;
const MAX_BYTES: usize = 8 << 20;

/// Beyond the allowance, a record of what the guard did has this many processes.
const MAX_SHORT_PROCESSES: usize = 4;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum VerdictHolder {
    /// As [`PersonKey::share`]: containers that root started have one allowance.
    Person(Option<u32>),
    /// A violation of no single person: the rules limit the number of these subjects.
    Subject(ViolationSubject),
}

impl AllowanceHolder for VerdictHolder {
    fn is_exempt_from_total(&self) -> bool {
        matches!(self, Self::Person(Some(0)))
    }
}

/// The part of the hour's allowance that was used.
pub(super) struct VerdictAllowance(ByteAllowance<VerdictHolder>);

impl Default for VerdictAllowance {
    fn default() -> Self {
        Self(ByteAllowance::new(MAX_BYTES_PER_PERSON, MAX_BYTES))
    }
}

/// The importance of a decision for the record.
enum Importance {
    /// There are few: each is kept as it is.
    Whole,
    /// The guard acted: beyond the allowance it is kept in a short form.
    Act,
    /// Beyond the allowance it is only in the log.
    Note,
}

impl VerdictAllowance {
    /// Shortens or drops what exceeds the allowance.
    pub(super) fn limit_records(
        &mut self,
        records: Vec<GuardRecord>,
        now: Instant,
    ) -> Vec<GuardRecord> {
        let all = records.len();
        let kept = records.into_iter();
        let kept = kept.filter_map(|record| self.limit_record(record, now));
        let kept: Vec<GuardRecord> = kept.collect();
        let count = all - kept.len();
        if count > 0 {
            event!(
                NotRecorded, count;
                "people break rules too often: these decisions of the guard are only in the log"
            );
        }
        kept
    }

    fn limit_record(&mut self, record: GuardRecord, now: Instant) -> Option<GuardRecord> {
        let importance = importance(&record);
        if matches!(importance, Importance::Whole) {
            return Some(record);
        }
        let bytes = serde_json::to_string(&record).map_or(0, |text| text.len());
        let holder = match (affected_person(&record), &record.subject) {
            (Some(person), _) => VerdictHolder::Person(PersonKey::from(person).share()),
            (None, ViolationSubject::Run(_)) => VerdictHolder::Person(None),
            (None, subject) => VerdictHolder::Subject(subject.clone()),
        };
        match (self.0.use_bytes(holder, bytes, now), importance) {
            (true, _) => Some(record),
            (false, Importance::Note) => None,
            (false, Importance::Act | Importance::Whole) => Some(shorten(record)),
        }
    }
}

fn importance(record: &GuardRecord) -> Importance {
    match &record.step {
        GuardStep::Snoozed { .. }
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Tripped { .. } => Importance::Whole,
        GuardStep::Outcome(_) => Importance::Act,
        GuardStep::Ended(victim)
            if record.mode > GuardMode::DryRun && victim.leave_to.is_none() =>
        {
            Importance::Act
        }
        GuardStep::Ended(_)
        | GuardStep::Violated
        | GuardStep::Warned { .. }
        | GuardStep::Exempt(_)
        | GuardStep::Over
        | GuardStep::Outdated => Importance::Note,
    }
}

/// The counts of the record still name all processes.
fn shorten(mut record: GuardRecord) -> GuardRecord {
    record.evidence.runs.truncate(MAX_SHORT_PROCESSES);
    if let GuardStep::Ended(victim) = &mut record.step {
        victim.runs.truncate(MAX_SHORT_PROCESSES);
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::guard::{
        Evidence, EvidenceProcess, OwnedJob, Person, ProcessContext, RuleKind, RuleName,
        RuleSource, RunKey, Victim,
    };
    use gpukill_proto::model::DeviceId;
    use gpukill_proto::units::Timestamp;

    fn person(uid: u32) -> Person {
        Person {
            name: format!("user{uid}"),
            uid: Some(uid),
        }
    }

    fn process(owner: u32) -> EvidenceProcess {
        EvidenceProcess {
            run: RunKey {
                device: DeviceId("GPU-0".into()),
                pid: 7,
                start_ticks: 9,
                instance: None,
            },
            gpu_index: 0,
            owner: Some(person(owner)),
            name: Some("x".repeat(1_000)),
            memory: None,
            utilization: None,
            job: None,
            context: ProcessContext::default(),
        }
    }

    fn job(owner: u32) -> OwnedJob {
        OwnedJob {
            owner: person(owner),
            id: "job".into(),
            shown: "job".into(),
        }
    }

    /// A record of about ten kilobytes.
    fn record(subject: ViolationSubject, owner: u32, step: GuardStep) -> GuardRecord {
        GuardRecord {
            at: Timestamp(1),
            rule: RuleName {
                source: RuleSource::Default,
                kind: RuleKind::Memory,
            },
            subject,
            mode: GuardMode::Enforce,
            step,
            evidence: Evidence {
                measured: None,
                since: Timestamp(0),
                runs: vec![process(owner); 10],
                count: 10,
                unknown: 0,
                threat: None,
                is_service_only_warned: false,
            },
            message: None,
        }
    }

    fn violated(owner: u32) -> GuardRecord {
        record(
            ViolationSubject::Job(job(owner)),
            owner,
            GuardStep::Violated,
        )
    }

    fn ended(owner: u32, leave_to: Option<&str>) -> GuardRecord {
        let victim = Victim {
            job: job(owner),
            priority: 5,
            runs: vec![process(owner); 10],
            count: 10,
            is_busy: None,
            leave_to: leave_to.map(str::to_owned),
        };
        let device = ViolationSubject::Device(DeviceId("GPU-0".into()));
        record(device, owner, GuardStep::Ended(victim))
    }

    fn stored_bytes(records: &[GuardRecord]) -> usize {
        let texts = records.iter().map(|it| serde_json::to_string(it).unwrap());
        texts.map(|text| text.len()).sum()
    }

    #[test]
    fn person_cannot_fill_the_record() {
        let (mut allowance, now) = (VerdictAllowance::default(), Instant::now());
        let kept = allowance.limit_records(vec![violated(1_000); 1_000], now);
        assert!(kept.len() > 50 && stored_bytes(&kept) <= MAX_BYTES_PER_PERSON);
        assert!(kept.iter().all(|it| *it == violated(1_000)));
        // Others and the same person an hour later have room.
        assert_eq!(allowance.limit_records(vec![violated(1_001)], now).len(), 1);
        let later = now + super::super::byte_allowance::HOUR;
        assert!(
            allowance
                .limit_records(vec![violated(1_000)], now)
                .is_empty()
        );
        assert_eq!(
            allowance.limit_records(vec![violated(1_000)], later).len(),
            1
        );
        // Any number of containers has the allowance of one person.
        let of_container = |nth: usize| {
            let mut job = job(1);
            job.owner = Person {
                name: format!("container {nth}"),
                uid: None,
            };
            record(ViolationSubject::Job(job), 1, GuardStep::Violated)
        };
        let of_containers = (0..1_000).map(of_container).collect();
        let kept = allowance.limit_records(of_containers, now);
        assert!(kept.len() > 50 && stored_bytes(&kept) <= MAX_BYTES_PER_PERSON);
        // All together are limited, except for root.
        let all = (1..20).flat_map(|uid| vec![violated(uid); 100]).collect();
        assert!(stored_bytes(&allowance.limit_records(all, later)) <= MAX_BYTES);
        assert!(
            allowance
                .limit_records(vec![violated(5_000)], later)
                .is_empty()
        );
        assert_eq!(allowance.limit_records(vec![violated(0)], later).len(), 1);
    }

    #[test]
    fn acts_of_the_guard_are_always_recorded() {
        let (mut allowance, now) = (VerdictAllowance::default(), Instant::now());
        allowance.limit_records(vec![violated(1_000); 1_000], now);
        let kept = allowance.limit_records(vec![ended(1_000, None); 3], now);
        assert_eq!(kept.len(), 3);
        let GuardStep::Ended(victim) = &kept[0].step else {
            panic!("{:?}", kept[0].step);
        };
        assert_eq!((victim.runs.len(), victim.count), (MAX_SHORT_PROCESSES, 10));
        assert_eq!(kept[0].evidence.runs.len(), MAX_SHORT_PROCESSES);
        let tripped = || {
            let device = ViolationSubject::Device(DeviceId("GPU-0".into()));
            record(device, 1_000, GuardStep::Tripped { ended: 6 })
        };
        let kept = allowance.limit_records(vec![tripped()], now);
        assert_eq!(kept, [tripped()]);
        // A dry run ends nothing, and a job of a scheduler is left to it.
        let simulated = GuardRecord {
            mode: GuardMode::DryRun,
            ..ended(1_000, None)
        };
        let left = ended(1_000, Some("scancel 7"));
        assert!(
            allowance
                .limit_records(vec![simulated, left], now)
                .is_empty()
        );
    }
}
