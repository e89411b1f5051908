//! How the guard stands: what it knew at the last sample, by the rules in force.

use super::today::Today;
use gpukill_policy::guard::affected::under;
use gpukill_policy::guard::{Grant, Rulebook, SimulatedEnd};
use gpukill_proto::guard::{OpenViolation, RulesDoubt};
use gpukill_proto::units::Timestamp;
use std::sync::Arc;

/// What the guard knows of now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing {
    /// When the last sample ended that was judged.
    pub(crate) judged_at: Option<Timestamp>,
    pub(crate) open: Vec<OpenViolation>,
    /// The jobs that would have been ended in a dry run, and are there still.
    pub(crate) simulated: Vec<SimulatedEnd>,
    /// How much of the last sample there was no room for.
    pub(crate) beyond: u64,
    pub(crate) today: Today,
    /// Since when nobody is ended any more, as too many were.
    pub(crate) tripped_at: Option<Timestamp>,
    /// That was in a dry run.
    pub(crate) is_trip_simulated: bool,
    /// The rules in force when the last sample was judged.
    pub(crate) judged_by: Option<Arc<Rulebook>>,
    /// That rules on behaviour may not fit this box.
    pub(crate) doubt: Option<RulesDoubt>,
    /// The snoozes of the last day.
    pub(crate) snoozes: Vec<Grant>,
    /// What is remembered cannot be written down: nobody is ended either.
    pub(crate) is_unkept: bool,
}

impl Standing {
    /// The violations of rules that are broken now.
    pub(crate) fn broken(&self) -> impl Iterator<Item = &OpenViolation> {
        self.open.iter().filter(|it| it.not_broken_since.is_none())
    }

    /// The same by rules that came into force since the last sample was judged: nobody is
    /// warned or ended by those before any more.
    pub(super) fn under(&self, rules: &Rulebook) -> Option<Self> {
        let judged_by = self.judged_by.as_ref();
        let judged_by = judged_by.filter(|before| !before.says_the_same(rules))?;
        let now = |open: &OpenViolation| under(open, judged_by, rules);
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
    use gpukill_policy::guard::read::read;
    use gpukill_proto::guard::{
        Evidence, GuardAction, GuardMode, JudgedJob, Person, RuleKind, RuleName, RuleSource,
        Subject,
    };

    fn book(global: &str) -> Rulebook {
        let text = format!("[global]\n{global}\ndefault_memory_limit_gb = 1\n");
        Rulebook::of(read(&text).unwrap())
    }

    /// Bob broke the limit in a dry run, which would have ended his job.
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
            subject: Subject::Job(JudgedJob {
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
            evidence: Evidence {
                measured: None,
                since: Timestamp(0),
                runs: Vec::new(),
                count: 0,
                unknown: 0,
                threat: None,
                is_spared_service: false,
            },
            message: None,
            own_policy: None,
            snoozed_until: None,
            not_broken_since: None,
        }
    }

    #[test]
    fn until_the_next_sample_nothing_is_told_by_rules_that_hold_no_more() {
        let dry = "dry_run = true";
        let standing = Standing {
            open: vec![dry_run()],
            simulated: vec![SimulatedEnd {
                violation: dry_run(),
                processes: Default::default(),
            }],
            judged_by: Some(Arc::new(book(dry))),
            ..Standing::default()
        };
        assert!(standing.under(&book(dry)).is_none());
        let soft = standing.under(&book("dry_run = false")).unwrap();
        let open: Vec<_> = soft.open.iter().map(|it| (it.mode, it.deadline)).collect();
        assert_eq!(open, [(GuardMode::Soft, None)]);
        assert_eq!(soft.simulated, []);
        let off = standing.under(&book("enabled = false")).unwrap();
        assert_eq!((off.open.len(), off.simulated.len()), (0, 0));
        // Another limit of another person changes nothing.
        let other = "dry_run = true\n[user_policies.carol]\nmemory_limit_gb = 4\n[global]";
        let text = other.replace("\n[global]", "");
        let text = format!("[global]\ndefault_memory_limit_gb = 1\n{text}\n");
        let same = standing.under(&Rulebook::of(read(&text).unwrap())).unwrap();
        assert_eq!(
            (same.open, same.simulated),
            (standing.open, standing.simulated)
        );
    }
}
