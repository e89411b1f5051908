//! How often rules of access refused somebody a device: whoever is refused and tries
//! again means it.

use gpukill_proto::guard::OpenViolation;
use gpukill_proto::snapshot::ProcessKey;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// So long a refusal counts.
const WINDOW: Duration = Duration::from_secs(24 * 3_600);

/// So many are remembered of one person, and so many people.
const MOST: usize = 64;
const MOST_PEOPLE: usize = 1_024;

/// When whom was refused a device.
#[derive(Debug, Clone, Default)]
pub struct Refusals {
    /// By the name of whose process it was; each violation has its own moment.
    of: BTreeMap<String, BTreeSet<Timestamp>>,
    /// Who is refused one now.
    now: BTreeMap<ProcessKey, String>,
}

impl Refusals {
    /// Takes the violations that go on.
    pub fn follow(&mut self, open: &[OpenViolation], now: Timestamp) {
        self.now.clear();
        for violation in open.iter().filter(|it| it.rule.kind.is_access()) {
            for told in &violation.evidence.runs {
                let Some(owner) = &told.owner else {
                    continue;
                };
                self.now.insert(told.run.process(), owner.name.clone());
                self.remember(&owner.name, violation.violated_at);
            }
        }
        let is_old = |at: &Timestamp| *at > now || now.since(*at) >= WINDOW;
        self.of.retain(|_, times| {
            times.retain(|at| !is_old(at));
            !times.is_empty()
        });
    }

    fn remember(&mut self, name: &str, at: Timestamp) {
        if self.of.len() >= MOST_PEOPLE && !self.of.contains_key(name) {
            return;
        }
        let times = self.of.entry(name.to_owned()).or_default();
        times.insert(at);
        if times.len() > MOST {
            times.pop_first();
        }
    }

    /// How often whoever runs a process was refused a device, of a process that is refused
    /// one now; 0 of any other.
    #[must_use]
    pub fn of(&self, process: ProcessKey) -> u32 {
        let name = self.now.get(&process);
        let times = name.and_then(|name| self.of.get(name));
        times.map_or(0, |times| u32::try_from(times.len()).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::guard::{
        Evidence, GuardAction, GuardMode, JudgedRun, Person, ProcessContext, RuleKind, RuleName,
        RuleSource, Subject, Told,
    };
    use gpukill_proto::snapshot::DeviceId;

    fn open(kind: RuleKind, pid: u32, second: i64) -> OpenViolation {
        let eve = Person {
            name: "eve".into(),
            uid: Some(1004),
        };
        let run = JudgedRun {
            pid,
            start_ticks: 7,
            device: DeviceId("GPU-0".into()),
            instance: None,
        };
        OpenViolation {
            rule: RuleName {
                source: RuleSource::User("eve".into()),
                kind,
            },
            subject: Subject::Person(eve.clone()),
            mode: GuardMode::Enforce,
            action: GuardAction::Terminate,
            violated_at: Timestamp(second * 1_000),
            warned_at: None,
            warnings: 0,
            deadline: None,
            readers: Vec::new(),
            own_policy: None,
            snoozed_until: None,
            not_broken_since: None,
            ended_at: None,
            evidence: Evidence {
                measured: None,
                threat: None,
                since: Timestamp(0),
                runs: vec![Told {
                    run,
                    gpu_index: 0,
                    owner: Some(eve),
                    name: None,
                    memory: None,
                    utilization: None,
                    job: None,
                    context: ProcessContext::default(),
                }],
                count: 1,
                unknown: 0,
                is_spared_service: false,
            },
            message: None,
        }
    }

    fn key(pid: u32) -> ProcessKey {
        ProcessKey {
            pid,
            start_ticks: 7,
        }
    }

    #[test]
    fn whoever_comes_again_is_counted_and_whoever_stays_is_not() {
        let mut refusals = Refusals::default();
        let mut after = |second: i64, open: &[OpenViolation]| {
            refusals.follow(open, Timestamp(second * 1_000));
            [1, 2].map(|pid| refusals.of(key(pid)))
        };
        assert_eq!(after(10, &[open(RuleKind::Gpu, 1, 10)]), [1, 0]);
        assert_eq!(after(20, &[open(RuleKind::Gpu, 1, 10)]), [1, 0]);
        assert_eq!(after(30, &[]), [0, 0]);
        assert_eq!(after(40, &[open(RuleKind::Gpu, 2, 40)]), [0, 2]);
        // Too much is no refusal.
        assert_eq!(after(50, &[open(RuleKind::Memory, 1, 50)]), [0, 0]);
        // A day later what was before is forgotten.
        let late = 86_400 + 40;
        assert_eq!(after(late, &[open(RuleKind::Gpu, 1, late)]), [1, 0]);
    }

    #[test]
    fn no_number_of_people_or_times_is_too_much() {
        let mut refusals = Refusals::default();
        for second in 0..1_000 {
            refusals.follow(&[open(RuleKind::Gpu, 1, second)], Timestamp(second * 1_000));
        }
        assert_eq!(refusals.of(key(1)), u32::try_from(MOST).unwrap());
    }
}
