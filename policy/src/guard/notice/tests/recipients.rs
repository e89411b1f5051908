//! The recipients of notices.

use super::*;
use gpukill_proto::guard::Person;

#[test]
fn only_real_steps_notify_users() {
    let mut container = reported_process(3, "alice", 0);
    container.owner = Some(Person {
        name: "bob".into(),
        uid: None,
    });
    let mut unowned = reported_process(4, "alice", 0);
    unowned.owner = None;
    let runs = vec![
        reported_process(1, "alice", 0),
        reported_process(2, "bob", 0),
        reported_process(5, "bob", 1),
        container,
        unowned,
    ];
    let warning = idle_warning(runs);
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
        assert_eq!(recipients(&record), expected, "{mode:?}");
        let silent = [
            GuardStep::Violated,
            GuardStep::Exempt("why".into()),
            GuardStep::Over,
        ];
        for step in silent {
            let record = GuardRecord {
                step,
                ..record.clone()
            };
            assert_eq!(recipients(&record), BTreeSet::new());
            assert_eq!(notice(&record, 1), None);
        }
    }
    // Only the owner of the ended job gets a notice, not everybody who breaks the rule.
    let end = end_record(warning, None);
    assert_eq!(recipients(&end), BTreeSet::from([1000]));
    assert_eq!(notice(&end, 1), None);
}
