//! Who is told.

use super::*;
use gpukill_proto::guard::Person;

#[test]
fn users_of_the_box_are_told_what_is_done_and_nobody_what_is_not() {
    let mut container = told(3, "alice", 0);
    container.owner = Some(Person {
        name: "bob".into(),
        uid: None,
    });
    let mut unowned = told(4, "alice", 0);
    unowned.owner = None;
    let runs = vec![
        told(1, "alice", 0),
        told(2, "bob", 0),
        told(5, "bob", 1),
        container,
        unowned,
    ];
    let warning = idle(runs);
    let both = BTreeSet::from([1000, 1001]);
    let modes = [
        (GuardMode::Disabled, BTreeSet::new()),
        (GuardMode::DryRun, BTreeSet::new()),
        (GuardMode::Soft, both.clone()),
        (GuardMode::Enforce, both),
    ];
    for (mode, expected) in modes {
        let record = GuardRecord {
            mode,
            ..warning.clone()
        };
        assert_eq!(whom(&record), expected, "{mode:?}");
        let silent = [
            GuardStep::Violated,
            GuardStep::Spared("why".into()),
            GuardStep::Over,
        ];
        for step in silent {
            let record = GuardRecord {
                step,
                ..record.clone()
            };
            assert_eq!(whom(&record), BTreeSet::new());
            assert_eq!(notice(&record, 1), None);
        }
    }
    // Whose job is ended, and no other that breaks the rule.
    let end = ended(warning, None);
    assert_eq!(whom(&end), BTreeSet::from([1000]));
    assert_eq!(notice(&end, 1), None);
}
