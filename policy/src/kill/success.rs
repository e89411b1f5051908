//! How a kill went as a whole.

use gpukill_proto::kill::{Ending, KillReport};

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

/// How it went. One that was gone by itself is no failure, and no success either.
#[must_use]
pub fn success(report: &KillReport) -> Success {
    let (mut ended, mut refused, mut failed) = (0, 0, 0);
    for outcome in &report.outcomes {
        match outcome.ending {
            Ending::Ended(..) => ended += 1,
            Ending::Gone => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::kill::{KillOutcome, KillSignal, Stage};
    use gpukill_proto::reading::Reading;
    use gpukill_proto::snapshot::ProcessKey;

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
            let outcome = |ending| KillOutcome {
                key: ProcessKey {
                    pid: 7,
                    start_ticks: 1,
                },
                name: "python".into(),
                command: Reading::Unsupported,
                ending,
            };
            let report = KillReport {
                version: 1,
                stage: Stage::Done,
                outcomes: endings.into_iter().map(outcome).collect(),
                memory: Vec::new(),
                respawned: Vec::new(),
                unrecorded: None,
            };
            assert_eq!(success(&report), expected, "{report:?}");
        }
    }
}
