//! Processes that have ended and that nobody asks about.

use super::one::letter;
use super::{Box, endings, is_inside, sorted};
use gpukill_tests::harness::{Troupe, becomes};
use serde_json::{Value, json};

#[test]
fn a_zombie_that_a_scope_reaches_is_told_of_and_is_no_failure() {
    // Whoever is first in a namespace inherits orphans, and this test asks nobody.
    if !is_inside("acting::zombies::a_zombie_that_a_scope_reaches_is_told_of_and_is_no_failure") {
        return;
    }
    let it = Box::new();
    let troupe = Troupe::run(
        &it.stage,
        "launcher -c 'sleep 0.5 & echo $!; echo $$; exec worker 1000' & wait; true",
    );
    let [child, parent] = troupe.pids();
    becomes(&Some('Z'), || letter(child));
    it.lists(&[parent]);
    let (code, report) = it.kill(&[&parent.to_string(), "--scope", "tree", "--yes"]);
    let of = |pid: u32| match pid == child {
        true => json!([pid, "zombie", null]),
        false => json!([pid, "ended", "SIGTERM"]),
    };
    let expected: Value = sorted([child, parent]).into_iter().map(of).collect();
    assert_eq!((code, endings(&report)), (0, expected), "{report:#}");
    assert_eq!(letter(child), Some('Z'));
    assert_eq!(it.recorded()["word"], "done");
}
