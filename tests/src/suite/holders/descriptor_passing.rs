//! A descriptor of a card that passes from one short-lived process to the next.

use super::shared_clients::CARD;
use gpukill_tests::harness::{
    TestBox, TestProcess, can_run_as_other_users, eventually_equals, run_as_user, test_uid,
};
use std::process::Command;

const HOPPER_UID: u32 = test_uid(171);

/// A script in which each process passes the card to a child and ends, as long as process
/// `$1` exists.
const PASS_DESCRIPTOR_SCRIPT: &str = r#"exec 9<>/dev/full
hop() { [ -e "/proc/$1" ] || exit 0; sleep 0.3 9>&-; hop "$1" & }
hop "$1""#;

#[test]
fn successive_short_lived_holders_are_a_fault() {
    if !can_run_as_other_users() {
        return;
    }
    let test_box = TestBox::new();
    test_box.sysfs().add_card(CARD);
    let daemon = test_box.start();
    let clock = TestProcess::start("until it ends");
    let mut shell = Command::new("sh");
    shell.args(["-c", PASS_DESCRIPTOR_SCRIPT, "sh", &clock.pid().to_string()]);
    let _hopper = run_as_user(HOPPER_UID, &[], || TestProcess::spawn(&mut shell));
    // Other processes of the machine may do the same.
    let user = format!("user {HOPPER_UID}");
    let faults = || {
        let all = test_box.faults_now().into_iter();
        all.filter(|(_, what)| what.contains("one after the other") && what.contains(&user))
            .map(|(part, _)| part)
            .collect::<Vec<_>>()
    };
    eventually_equals(&vec!["GPU 0".to_owned()], faults);
    drop(clock);
    eventually_equals(&Vec::new(), faults);
    daemon.stop();
}
