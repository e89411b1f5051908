//! The status of the guard: its state after the last sample, by the rules in force.

use super::daily_counts::DailyCounts;
use gpukill_policy::guard::consequences::violation_under;
use gpukill_policy::guard::enforcement::ended_jobs::SimulatedEnd;
use gpukill_policy::guard::{CompiledRules, SnoozeGrant};
use gpukill_proto::guard::{OpenViolation, RulesDoubt};
use gpukill_proto::units::Timestamp;
use std::sync::Arc;

/// The status of the guard.
#[derive(Debug, Clone, Default)]
pub(crate) struct GuardStatus {
    /// The end of the last evaluated sample.
    pub(crate) evaluated_at: Option<Timestamp>,
    pub(crate) open: Vec<OpenViolation>,
    /// The jobs that a dry run counts as ended and that still run.
    pub(crate) simulated: Vec<SimulatedEnd>,
    /// How much of the last sample exceeded the limits.
    pub(crate) overflow: u64,
    pub(crate) counts: DailyCounts,
    /// When the circuit breaker tripped; from then on no job is ended.
    pub(crate) tripped_at: Option<Timestamp>,
    /// The circuit breaker tripped in a dry run.
    pub(crate) is_trip_simulated: bool,
    /// The circuit breaker tripped for owners who are no user of the host.
    pub(crate) has_tripped_for_others: bool,
    /// The rules in force when the last sample was evaluated.
    pub(crate) evaluated_by: Option<Arc<CompiledRules>>,
    /// Rules on behaviour may not fit this host.
    pub(crate) doubt: Option<RulesDoubt>,
    /// The snoozes of the last day.
    pub(crate) snoozes: Vec<SnoozeGrant>,
    /// The state cannot be saved: no job is ended either.
    pub(crate) is_unsaved: bool,
    /// The state is too large: a part of it is saved.
    pub(crate) is_saved_in_part: bool,
    /// The saved states that were refused and that no admin has removed since, as faults.
    pub(crate) refused_files: Vec<String>,
}

impl GuardStatus {
    /// The violations of rules that are broken now.
    pub(crate) fn broken(&self) -> impl Iterator<Item = &OpenViolation> {
        self.open.iter().filter(|it| it.not_broken_since.is_none())
    }

    /// The status by rules that came into force after the last sample was evaluated: earlier rules
    /// no longer warn or end anything. `None` if nothing changes.
    pub(super) fn under_rules(&self, rules: &CompiledRules) -> Option<Self> {
        let evaluated_by = self.evaluated_by.as_ref();
        let evaluated_by = evaluated_by.filter(|before| !before.is_same(rules))?;
        let now = |open: &OpenViolation| violation_under(open, evaluated_by, rules);
        let is_same = |end: &&SimulatedEnd| now(&end.violation).as_ref() == Some(&end.violation);
        Some(Self {
            open: self.open.iter().filter_map(now).collect(),
            simulated: self.simulated.iter().filter(is_same).cloned().collect(),
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_policy::guard::rules::parse::parse;
    use gpukill_proto::guard::{
        Evidence, GuardAction, GuardMode, OwnedJob, Person, RuleKind, RuleName, RuleSource,
        ViolationSubject,
    };

    fn compiled(global: &str) -> CompiledRules {
        let text = format!("[global]\n{global}\ndefault_memory_limit_gb = 1\n");
        CompiledRules::new(parse(&text).unwrap())
    }

    /// Bob exceeded the limit in a dry run, which counts his job as ended.
    fn dry_run() -> OpenViolation {
        let bob = Person {
            name: "bob".into(),
            uid: Some(1_001),
        };
        OpenViolation {
            rule: RuleName {
                source: RuleSource::Default,
                kind: RuleKind::Memory,
            },
            subject: ViolationSubject::Job(OwnedJob {
                owner: bob,
                id: "one".into(),
                shown: "one".into(),
            }),
            mode: GuardMode::DryRun,
            action: GuardAction::Terminate,
            violated_at: Timestamp(1),
            warned_at: Some(Timestamp(1)),
            warnings: 1,
            deadline: Some(Timestamp(2)),
            readers: Vec::new(),
            ended_at: Some(Timestamp(2)),
            unfinished_end: None,
            evidence: Evidence {
                measured: None,
                since: Timestamp(0),
                runs: Vec::new(),
                count: 0,
                unknown: 0,
                threat: None,
                is_service_only_warned: false,
            },
            message: None,
            own_policy: None,
            snoozed_until: None,
            not_broken_since: None,
        }
    }

    #[test]
    fn new_rules_apply_before_the_next_sample() {
        let dry = "dry_run = true";
        let status = GuardStatus {
            open: vec![dry_run()],
            simulated: vec![SimulatedEnd {
                violation: dry_run(),
                processes: Default::default(),
            }],
            evaluated_by: Some(Arc::new(compiled(dry))),
            ..GuardStatus::default()
        };
        assert!(status.under_rules(&compiled(dry)).is_none());
        let soft = status.under_rules(&compiled("dry_run = false")).unwrap();
        let open: Vec<_> = soft.open.iter().map(|it| (it.mode, it.deadline)).collect();
        assert_eq!(open, [(GuardMode::Soft, None)]);
        assert_eq!(soft.simulated, []);
        let off = status.under_rules(&compiled("enabled = false")).unwrap();
        assert_eq!((off.open.len(), off.simulated.len()), (0, 0));
        // Another limit of another person changes nothing.
        let other = "dry_run = true\n[user_policies.carol]\nmemory_limit_gb = 4\n[global]";
        let text = other.replace("\n[global]", "");
        let text = format!("[global]\ndefault_memory_limit_gb = 1\n{text}\n");
        let same = status
            .under_rules(&CompiledRules::new(parse(&text).unwrap()))
            .unwrap();
        assert_eq!((same.open, same.simulated), (status.open, status.simulated));
    }
}
