//! Whose a tree is: a person's, whatever the numbers of its users.

use super::*;

#[test]
fn a_tree_has_one_person_whatever_numbers_they_use_in_their_namespaces() {
    let inside = |pid, uid, maker| Kin {
        uid: Some(uid),
        maker,
        ..kin(pid, "python")
    };
    let line = |parent: Kin| [parent, kin(8, "python"), kin(7, "bash")];
    let own = Some(ALICE);
    for (process, parent, expected) in [
        (inside(100, 60_006, own), inside(9, 60_005, own), 8),
        (inside(100, 60_006, own), inside(9, ALICE, None), 8),
        (kin(100, "python"), inside(9, 60_005, own), 8),
        // Somebody else's, whatever their numbers there.
        (inside(100, 60_006, own), inside(9, 60_006, Some(1001)), 100),
        (inside(100, 60_006, own), inside(9, 60_006, None), 100),
        // Root that came in.
        (inside(100, 60_006, own), inside(9, 0, own), 100),
        (inside(100, 0, own), inside(9, ALICE, None), 100),
    ] {
        assert_eq!(
            tree(&process, &line(parent.clone())),
            expected,
            "{parent:?}"
        );
    }
    // A unit's part is theirs, too.
    let unit = unit("train.service", None);
    let found = job_in(Some(&unit), &inside(100, 60_006, own), &whole(&[]));
    assert_eq!(found, Reading::Value(Job::Unit { unit, uid: ALICE }));
}
