//! A descriptor of a card that goes from process to process, each of which ends at once.

use super::shared_clients::CARD;
use gpukill_tests::harness::{Actor, Stage, acting_as, becomes, can_act_as_others, user};
use std::process::Command;

const HOPPER: u32 = user(171);

/// Each process of it leaves the card to a child, as long as process `$1` is there.
const HOPS: &str = r#"exec 9<>/dev/full
hop() { [ -e "/proc/$1" ] || exit 0; sleep 0.3 9>&-; hop "$1" & }
hop "$1""#;

#[test]
fn processes_that_hold_a_card_one_after_the_other_are_told_of() {
    if !can_act_as_others() {
        return;
    }
    let stage = Stage::new();
    stage.sysfs().plug(CARD);
    let daemon = stage.start();
    let clock = Actor::start("until it ends");
    let mut shell = Command::new("sh");
    shell.args(["-c", HOPS, "sh", &clock.pid().to_string()]);
    let _hopper = acting_as(HOPPER, &[], || Actor::of(&mut shell));
    // Other processes of the machine may do the same.
    let who = format!("user {HOPPER}");
    let faults = || {
        let all = stage.faults_now().into_iter();
        all.filter(|(_, what)| what.contains("one after the other") && what.contains(&who))
            .map(|(part, _)| part)
            .collect::<Vec<_>>()
    };
    becomes(&vec!["GPU 0".to_owned()], faults);
    drop(clock);
    becomes(&Vec::new(), faults);
    daemon.stop();
}
