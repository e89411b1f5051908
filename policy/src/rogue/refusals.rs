//! Counts how often access rules refused a device to a person: repeated attempts after
//! a refusal are deliberate.

use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::guard::{GuardAction, GuardMode, OpenViolation};
use gpukill_proto::model::ProcessKey;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time for which a refusal counts.
const WINDOW: Duration = Duration::from_secs(24 * 3_600);

/// Maximum number of remembered refusals of a person, and of people.
const MAX_REFUSALS: usize = 64;
const MAX_PEOPLE: usize = 1_024;

/// The times at which people were refused a device.
#[derive(Debug, Clone, Default)]
pub struct Refusals {
    /// The times by owner name. Violations of one sample have one time, and count once.
    times_by_owner: BTreeMap<String, BTreeSet<Timestamp>>,
    /// The processes that are refused a device now, with their owners.
    refused_now: BTreeMap<ProcessKey, String>,
}

impl Refusals {
    /// Updates the state from the open violations.
    pub fn update(&mut self, open: &[OpenViolation], now: Timestamp) {
        self.refused_now.clear();
        for violation in open.iter().filter(|it| is_refusal(it)) {
            for process in &violation.evidence.runs {
                let Some(owner) = &process.owner else {
                    continue;
                };
                self.refused_now
                    .insert(process.run.process(), owner.name.clone());
                self.record(&owner.name, violation.violated_at);
            }
        }
        let is_old = |at: &Timestamp| *at > now || now.since(*at) >= WINDOW;
        self.times_by_owner.retain_entries(|_, times| {
            times.retain(|at| !is_old(at));
            !times.is_empty()
        });
    }

    fn record(&mut self, name: &str, at: Timestamp) {
        if self.times_by_owner.len() >= MAX_PEOPLE && !self.times_by_owner.contains_key(name) {
            return;
        }
        let times = self.times_by_owner.entry(name.to_owned()).or_default();
        times.insert(at);
        if times.len() > MAX_REFUSALS {
            times.pop_first();
        }
    }

    /// Returns how often the owner of a process was refused a device, where the process
    /// is refused a device now; 0 otherwise.
    #[must_use]
    pub fn count_for(&self, process: ProcessKey) -> u32 {
        let name = self.refused_now.get(&process);
        let times = name.and_then(|name| self.times_by_owner.get(name));
        times.map_or(0, |times| u32::try_from(times.len()).unwrap_or(u32::MAX))
    }
}

/// Whether the guard enforces an access rule. In a dry run, and with a rule that only warns, the
/// device is not refused.
const fn is_refusal(violation: &OpenViolation) -> bool {
    let is_enforced = matches!(violation.mode, GuardMode::Soft | GuardMode::Enforce);
    let ends = matches!(violation.action, GuardAction::Terminate);
    violation.rule.kind.is_access() && is_enforced && ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::guard::{
        Evidence, EvidenceProcess, Person, ProcessContext, RuleKind, RuleName, RuleSource, RunKey,
        ViolationSubject,
    };
    use gpukill_proto::model::DeviceId;

    fn open(kind: RuleKind, pid: u32, second: i64) -> OpenViolation {
        let eve = Person {
            name: "eve".into(),
            uid: Some(1004),
        };
        let run = RunKey {
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
            subject: ViolationSubject::Person(eve.clone()),
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
            unfinished_end: None,
            evidence: Evidence {
                measured: None,
                threat: None,
                since: Timestamp(0),
                runs: vec![EvidenceProcess {
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
                is_service_only_warned: false,
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
    fn repeated_attempts_count() {
        let mut refusals = Refusals::default();
        let mut after = |second: i64, open: &[OpenViolation]| {
            refusals.update(open, Timestamp(second * 1_000));
            [1, 2].map(|pid| refusals.count_for(key(pid)))
        };
        assert_eq!(after(10, &[open(RuleKind::Gpu, 1, 10)]), [1, 0]);
        assert_eq!(after(20, &[open(RuleKind::Gpu, 1, 10)]), [1, 0]);
        assert_eq!(after(30, &[]), [0, 0]);
        assert_eq!(after(40, &[open(RuleKind::Gpu, 2, 40)]), [0, 2]);
        // Exceeding a limit is no refusal.
        assert_eq!(after(50, &[open(RuleKind::Memory, 1, 50)]), [0, 0]);
        // A day later, earlier refusals are forgotten.
        let late = 86_400 + 40;
        assert_eq!(after(late, &[open(RuleKind::Gpu, 1, late)]), [1, 0]);
    }

    #[test]
    fn only_enforced_rules_refuse() {
        let mut refusals = Refusals::default();
        for (second, mode, action, count) in [
            (10, GuardMode::DryRun, GuardAction::Terminate, 0),
            (20, GuardMode::Disabled, GuardAction::Terminate, 0),
            (30, GuardMode::Enforce, GuardAction::Warn, 0),
            (40, GuardMode::Soft, GuardAction::Terminate, 1),
            (50, GuardMode::Enforce, GuardAction::Terminate, 2),
        ] {
            let violation = OpenViolation {
                mode,
                action,
                ..open(RuleKind::Gpu, 1, second)
            };
            refusals.update(&[violation], Timestamp(second * 1_000));
            assert_eq!(refusals.count_for(key(1)), count, "{mode:?} {action:?}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut refusals = Refusals::default();
        for second in 0..1_000 {
            refusals.update(&[open(RuleKind::Gpu, 1, second)], Timestamp(second * 1_000));
        }
        assert_eq!(
            refusals.count_for(key(1)),
            u32::try_from(MAX_REFUSALS).unwrap()
        );
    }
}
