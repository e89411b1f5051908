//! Verdicts of the built-in rules on real processes.

use super::{RogueBox, sleep_command};
use gpukill_tests::harness::eventually_equals;

#[test]
fn known_miner_is_high_deleted_helper_is_medium() {
    let mut rogue_box = RogueBox::new();
    let miner = rogue_box.create_program("bin", "kdevtmpfsi");
    rogue_box.start_on_gpu("miner", &mut sleep_command(&miner));
    let helper = rogue_box.create_program("bin", "systemd-helper");
    rogue_box.start_on_gpu("helper", &mut sleep_command(&helper));
    std::fs::remove_file(&helper).unwrap();
    let daemon = rogue_box.test_box.start();
    let expected = [("helper", "medium"), ("miner", "high")];
    let expected = expected.map(|(name, risk)| (name, Some(risk.to_owned())));
    eventually_equals(&expected.into(), || rogue_box.listed_risks());
    daemon.stop();
}
