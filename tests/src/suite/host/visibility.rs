//! Command lines that the admin hides from plain users.

use super::{gpu_with_processes, row_when};
use gpukill_tests::harness::{
    TestBox, TestProcess, can_run_as_other_users, group_id, run_as_user, skip, test_uid,
};
use serde_json::{Value, json};

#[test]
fn hidden_command_lines_are_for_operators_and_admins() {
    if !can_run_as_other_users() {
        return;
    }
    // Groups that every Linux has.
    let (Some(operators), Some(admins)) = (group_id("daemon"), group_id("bin")) else {
        return skip("this system has no group daemon or bin");
    };
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    test_box.configure(
        "[access]\nhide_other_users = true\noperator_group = \"daemon\"\nadmin_group = \"bin\"",
    );
    let process = TestProcess::start("python --token=secret");
    test_box.set_driver_state(&gpu_with_processes(&[process.pid()]));
    let daemon = test_box.start();
    let shown = json!("python --token=secret 1000");
    row_when(&test_box, process.pid(), |row| row["command"] == shown);
    let cases: [(&[u32], &Value); 3] = [
        (&[operators], &shown),
        (&[admins], &shown),
        (&[], &Value::Null),
    ];
    for (groups, expected) in cases {
        let list = run_as_user(test_uid(0), groups, || test_box.list());
        assert_eq!(&list["procs"][0]["command"], expected, "{groups:?}");
    }
    daemon.stop();
}
