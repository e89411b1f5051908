//! How a kill went as a whole.

use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::{Ending, KillPlan, KillReport};
use gpukill_proto::snapshot::ProcessKey;
use std::collections::BTreeSet;

/// How it went as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Success {
    /// All have ended.
    All,
    /// Some have ended, and some have not.
    Part,
    /// None has ended: they are protected, or others'.
    Refused,
    /// There was nobody any more.
    Nobody,
    /// None has ended, for other reasons.
    Failed,
}

/// How it went. One that was gone by itself is no failure, and no success either;
/// nor is a zombie that a scope reached and that holds no device: nobody can end
/// it, and there is nothing to be had from it.
#[must_use]
pub fn success(plan: &KillPlan, report: &KillReport) -> Success {
    let wanted = wanted(plan);
    let (mut ended, mut refused, mut failed) = (0, 0, 0);
    for outcome in &report.outcomes {
        match outcome.ending {
            Ending::Ended(..) => ended += 1,
            Ending::Gone => {}
            Ending::Zombie(_) if !wanted.contains(&outcome.key) => {}
            Ending::Protected(_) | Ending::Denied(_) => refused += 1,
            Ending::Survived(..)
            | Ending::Changed(_)
            | Ending::Unclear(_)
            | Ending::Uninterruptible(_)
            | Ending::Zombie(_)
            | Ending::Failed(_) => failed += 1,
        }
    }
    match (ended, refused, failed) {
        (0, 0, 0) => Success::Nobody,
        (_, 0, 0) => Success::All,
        (0, _, 0) => Success::Refused,
        (0, _, _) => Success::Failed,
        (_, _, _) => Success::Part,
    }
}

/// Those for whose sake the plan was made: it names them, or a device is to be
/// free of them.
fn wanted(plan: &KillPlan) -> BTreeSet<ProcessKey> {
    let targets = plan.targets.iter();
    let wanted = targets.filter(|target| target.named || !target.holds.is_empty());
    wanted.map(|target| target.key).into_set()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::kill::{Fate, KillHold, KillOutcome, KillSignal, KillTarget, Reaper, Stage};
    use gpukill_proto::reading::Reading;
    use gpukill_proto::snapshot::DeviceId;

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

    /// A plan of these: whether each is named, and whether it holds a device.
    fn plan(targets: &[(bool, bool)]) -> KillPlan {
        let hold = KillHold {
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
            fate: Fate::End(Vec::new()),
            overridden: None,
        });
        KillPlan {
            targets: targets.collect(),
            ..KillPlan::default()
        }
    }

    /// What became of them, in the same order.
    fn report(endings: Vec<Ending>) -> KillReport {
        let outcome = |(pid, ending)| KillOutcome {
            key: key(pid),
            name: "python".into(),
            command: Reading::Unsupported,
            ending,
        };
        KillReport {
            version: 1,
            stage: Stage::Done,
            outcomes: (0..).zip(endings).map(outcome).collect(),
            memory: Vec::new(),
            respawned: Vec::new(),
            unrecorded: None,
        }
    }

    #[test]
    fn a_kill_is_as_good_as_its_worst_part() {
        let ended = || Ending::Ended(KillSignal::Terminate, 3);
        let survived = || Ending::Survived(KillSignal::Terminate, 3);
        let denied = || Ending::Denied("alice".into());
        let protected = || Ending::Protected("it is process 1".into());
        let cases = [
            (vec![ended(), ended()], Success::All),
            (vec![ended(), Ending::Gone], Success::All),
            (vec![ended(), survived()], Success::Part),
            (vec![ended(), denied()], Success::Part),
            (vec![denied(), protected()], Success::Refused),
            (vec![denied(), Ending::Gone], Success::Refused),
            (vec![denied(), survived()], Success::Failed),
            (vec![Ending::Gone], Success::Nobody),
            (vec![], Success::Nobody),
        ];
        for (endings, expected) in cases {
            let plan = plan(&vec![(true, true); endings.len()]);
            let report = report(endings);
            assert_eq!(success(&plan, &report), expected, "{report:?}");
        }
    }

    #[test]
    fn a_zombie_is_a_failure_where_it_was_meant_or_has_a_device() {
        let cases = [
            ((false, false), Success::All),
            ((true, false), Success::Part),
            ((false, true), Success::Part),
            ((true, true), Success::Part),
        ];
        for (zombie, expected) in cases {
            let plan = plan(&[(true, true), zombie]);
            let ended = Ending::Ended(KillSignal::Terminate, 3);
            let report = report(vec![ended, Ending::Zombie(reaper())]);
            assert_eq!(success(&plan, &report), expected, "{zombie:?}");
        }
        // The one that was meant had gone, and only what was reached is there.
        let plan = plan(&[(true, true), (false, false)]);
        let report = report(vec![Ending::Gone, Ending::Zombie(reaper())]);
        assert_eq!(success(&plan, &report), Success::Nobody);
    }
}
