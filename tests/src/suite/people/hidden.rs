//! Command lines that the admin lets nobody see but those who run the box.

use super::{one_gpu, row_when};
use gpukill_tests::harness::{Actor, Stage, acting_as, can_act_as_others, group, skip, user};
use serde_json::{Value, json};

#[test]
fn hidden_command_lines_are_shown_to_operators_and_admins() {
    if !can_act_as_others() {
        return;
    }
    // Groups that every Linux has.
    let (Some(operators), Some(admins)) = (group("daemon"), group("bin")) else {
        return skip("this system has no group daemon or bin");
    };
    let stage = Stage::new();
    stage.open_to_all();
    stage.configure(
        "[access]\nhide_other_users = true\noperator_group = \"daemon\"\nadmin_group = \"bin\"",
    );
    let actor = Actor::start("python --token=secret");
    stage.play(&one_gpu(&[actor.pid()]));
    let daemon = stage.start();
    let shown = json!("python --token=secret 1000");
    row_when(&stage, actor.pid(), |row| row["command"] == shown);
    let cases: [(&[u32], &Value); 3] = [
        (&[operators], &shown),
        (&[admins], &shown),
        (&[], &Value::Null),
    ];
    for (groups, expected) in cases {
        let list = acting_as(user(0), groups, || stage.list());
        assert_eq!(&list["procs"][0]["command"], expected, "{groups:?}");
    }
    daemon.stop();
}
