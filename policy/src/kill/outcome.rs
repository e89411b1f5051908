//! The overall result of a kill.

use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::{KillPlan, KillReport, MemoryReclaim, Outcome};
use gpukill_proto::model::ProcessKey;
use std::collections::BTreeSet;

/// The overall result of a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillCompletion {
    /// All processes have ended, and no memory of theirs is known to be missing.
    All,
    /// Some processes have ended; others have not, or their memory did not return.
    Partial,
    /// None has ended: they are protected or belong to others.
    Refused,
    /// No process was left to end.
    NothingToEnd,
    /// None has ended, for other reasons.
    Failed,
}

/// Returns the overall result. A process that was already gone is neither a failure nor
/// a success. Neither is a zombie that a scope reached and that holds no device: it
/// cannot be ended, and it holds nothing to reclaim.
#[must_use]
pub fn completion(plan: &KillPlan, report: &KillReport) -> KillCompletion {
    let wanted = intended_targets(plan);
    let (mut ended, mut refused, mut failed) = (0, 0, 0_u32);
    for outcome in &report.outcomes {
        match outcome.outcome {
            Outcome::Ended(..) => ended += 1,
            Outcome::Gone => {}
            Outcome::Zombie(_) if !wanted.contains(&outcome.key) => {}
            Outcome::Protected(_) | Outcome::Denied(_) => refused += 1,
            Outcome::Survived(..)
            | Outcome::Changed(_)
            | Outcome::Unclear(_)
            | Outcome::Uninterruptible(_)
            | Outcome::Zombie(_)
            | Outcome::Failed(_) => failed += 1,
        }
    }
    // Processes that nobody has seen may be left.
    failed += u32::from(report.unchecked.is_some());
    // Memory is what a process is ended for.
    failed += u32::from(ended > 0 && report.memory.iter().any(is_missing));
    match (ended, refused, failed) {
        (0, 0, 0) => KillCompletion::NothingToEnd,
        (_, 0, 0) => KillCompletion::All,
        (0, _, 0) => KillCompletion::Refused,
        (0, _, _) => KillCompletion::Failed,
        (_, _, _) => KillCompletion::Partial,
    }
}

/// Whether memory that ended processes held is known not to be free again.
#[must_use]
pub fn is_missing(memory: &MemoryReclaim) -> bool {
    let amounts = memory.returned.known().zip(memory.held.known());
    amounts.is_some_and(|(returned, held)| returned < held)
}

/// The processes that the plan is made for: they are named, or they hold a device.
fn intended_targets(plan: &KillPlan) -> BTreeSet<ProcessKey> {
    let targets = plan.targets.iter();
    let wanted = targets.filter(|target| target.named || !target.holds.is_empty());
    wanted.map(|target| target.key).into_set()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::kill::{
        KillSignal, KillTarget, PlannedAction, ProcessOutcome, Reaper, Stage, TargetMemory,
        UninterruptibleWait,
    };
    use gpukill_proto::model::DeviceId;
    use gpukill_proto::reading::Reading;
    use gpukill_proto::units::Bytes;

    fn key(pid: u32) -> ProcessKey {
        ProcessKey {
            pid,
            start_ticks: 1,
        }
    }

    fn reaper() -> Reaper {
        Reaper {
            pid: 1,
            name: Reading::Unsupported,
        }
    }

    /// A plan with these targets: whether each is named, and whether it holds a device.
    fn plan(targets: &[(bool, bool)]) -> KillPlan {
        let hold = TargetMemory {
            device: DeviceId("GPU-0".into()),
            index: 0,
            memory: Reading::Unsupported,
        };
        let targets = (0..).zip(targets).map(|(pid, (named, holds))| KillTarget {
            key: key(pid),
            name: "python".into(),
            command: Reading::Unsupported,
            uid: Reading::Unsupported,
            owner: Reading::Unsupported,
            holds: holds.then(|| hold.clone()).into_iter().collect(),
            named: *named,
            job: Reading::Unsupported,
            action: PlannedAction::End(Vec::new()),
            overridden: None,
        });
        KillPlan {
            targets: targets.collect(),
            ..KillPlan::default()
        }
    }

    /// A report with these outcomes, in the same order.
    fn report(endings: Vec<Outcome>) -> KillReport {
        let outcome = |(pid, ending)| ProcessOutcome {
            key: key(pid),
            name: "python".into(),
            command: Reading::Unsupported,
            outcome: ending,
        };
        KillReport {
            version: 1,
            stage: Stage::Done,
            outcomes: (0..).zip(endings).map(outcome).collect(),
            memory: Vec::new(),
            respawned: Vec::new(),
            unchecked: None,
            unrecorded: None,
        }
    }

    #[test]
    fn worst_outcome_decides() {
        let ended = || Outcome::Ended(KillSignal::Terminate, 3);
        let survived = || Outcome::Survived(KillSignal::Terminate, 3);
        let stuck = || Outcome::Uninterruptible(UninterruptibleWait::default());
        let denied = || Outcome::Denied("alice".into());
        let protected = || Outcome::Protected("it is process 1".into());
        let cases = [
            (vec![ended(), ended()], KillCompletion::All),
            (vec![ended(), Outcome::Gone], KillCompletion::All),
            (vec![ended(), survived()], KillCompletion::Partial),
            (vec![ended(), denied()], KillCompletion::Partial),
            (vec![denied(), protected()], KillCompletion::Refused),
            (vec![denied(), Outcome::Gone], KillCompletion::Refused),
            (vec![denied(), survived()], KillCompletion::Failed),
            // Without any end, nothing is done.
            (vec![survived()], KillCompletion::Failed),
            (vec![stuck()], KillCompletion::Failed),
            (vec![stuck(), Outcome::Gone], KillCompletion::Failed),
            (vec![ended(), stuck()], KillCompletion::Partial),
            (vec![Outcome::Gone], KillCompletion::NothingToEnd),
            (vec![], KillCompletion::NothingToEnd),
        ];
        for (endings, expected) in cases {
            let plan = plan(&vec![(true, true); endings.len()]);
            let report = report(endings);
            assert_eq!(completion(&plan, &report), expected, "{report:?}");
        }
    }

    #[test]
    fn unseen_processes_are_failures() {
        let ended = || Outcome::Ended(KillSignal::Kill, 3);
        for (endings, expected) in [
            (vec![ended()], KillCompletion::Partial),
            (vec![Outcome::Gone], KillCompletion::Failed),
        ] {
            let plan = plan(&[(true, true)]);
            let mut report = report(endings);
            report.unchecked = Some("the process table cannot be read".into());
            assert_eq!(completion(&plan, &report), expected, "{report:?}");
        }
    }

    #[test]
    fn missing_memory_is_a_failure() {
        let gib = |count: u64| Reading::Value(Bytes(count << 30));
        let unknown = || Reading::Failed("the driver does not answer".into());
        for (held, returned, expected) in [
            (gib(2), gib(2), KillCompletion::All),
            (gib(2), gib(1), KillCompletion::Partial),
            // An unknown amount is not known to be missing.
            (gib(2), unknown(), KillCompletion::All),
            (unknown(), gib(0), KillCompletion::All),
        ] {
            let mut report = report(vec![Outcome::Ended(KillSignal::Terminate, 3)]);
            report.memory.push(MemoryReclaim {
                device: DeviceId("GPU-0".into()),
                index: 0,
                held,
                returned,
                after_ms: None,
                still_held_by: Vec::new(),
            });
            let plan = plan(&[(true, true)]);
            assert_eq!(completion(&plan, &report), expected, "{report:?}");
        }
    }

    #[test]
    fn named_zombie_is_a_failure() {
        let cases = [
            ((false, false), KillCompletion::All),
            ((true, false), KillCompletion::Partial),
            ((false, true), KillCompletion::Partial),
            ((true, true), KillCompletion::Partial),
        ];
        for (zombie, expected) in cases {
            let plan = plan(&[(true, true), zombie]);
            let ended = Outcome::Ended(KillSignal::Terminate, 3);
            let report = report(vec![ended, Outcome::Zombie(reaper())]);
            assert_eq!(completion(&plan, &report), expected, "{zombie:?}");
        }
        // The named process was already gone, and only the reached one is left.
        let plan = plan(&[(true, true), (false, false)]);
        let report = report(vec![Outcome::Gone, Outcome::Zombie(reaper())]);
        assert_eq!(completion(&plan, &report), KillCompletion::NothingToEnd);
    }
}
