//! Tests of the person that owns a tree, for any uids of its processes.

use super::*;

#[test]
fn tree_has_one_person_across_uids() {
    let inside = |pid, uid, maker| ProcessLineage {
        uid: Some(uid),
        namespace_creator: maker,
        ..lineage(pid, "python")
    };
    let line = |parent: ProcessLineage| [parent, lineage(8, "python"), lineage(7, "bash")];
    let own = Some(ALICE);
    for (process, parent, expected) in [
        (inside(100, 60_006, own), inside(9, 60_005, own), 8),
        (inside(100, 60_006, own), inside(9, ALICE, None), 8),
        (lineage(100, "python"), inside(9, 60_005, own), 8),
        // Another person, with any uids.
        (inside(100, 60_006, own), inside(9, 60_006, Some(1001)), 100),
        (inside(100, 60_006, own), inside(9, 60_006, None), 100),
        // A process that root started in the namespace.
        (inside(100, 60_006, own), inside(9, 0, own), 100),
        (inside(100, 0, own), inside(9, ALICE, None), 100),
    ] {
        assert_eq!(
            tree(&process, &line(parent.clone())),
            expected,
            "{parent:?}"
        );
    }
    // Part of a unit of the same person.
    let unit = unit("train.service", None);
    let found = job_in(Some(&unit), &inside(100, 60_006, own), &all_ancestors(&[]));
    assert_eq!(found, Reading::Value(Job::Unit { unit, uid: ALICE }));
}
