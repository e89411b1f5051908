//! Which callers see what of a holder: its own user, other users and operators.

use super::{GIB, HoldersBox, user_name};
use gpukill_tests::harness::{
    TestProcess, can_run_as_other_users, eventually_equals, group_id, run_as_user, skip, test_uid,
};
use serde_json::{Value, json};
use std::process::Command;

const OWNER_UID: u32 = test_uid(0);
const OTHER_UID: u32 = test_uid(1);

#[test]
fn hidden_command_line_is_for_owner_and_operators() {
    if !can_run_as_other_users() {
        return;
    }
    let Some(operators) = group_id("daemon") else {
        return skip("this system has no group daemon");
    };
    let it = HoldersBox::new();
    it.test_box.make_world_accessible();
    it.test_box
        .configure("[access]\nhide_other_users = true\noperator_group = \"daemon\"");
    // The last argument is a secret that other users must not read.
    let script = "exec 5</dev/full; exec sleep 1000.424242";
    let process = run_as_user(OWNER_UID, &[], || {
        TestProcess::spawn(Command::new("sh").args(["-c", script]))
    });
    let pid = process.pid();
    it.procfs.link_real_process(pid);
    it.set_driver_state(35 * GIB, &json!([{"pid": pid, "memory": 35 * GIB}]));
    let daemon = it.start();
    let secret = json!("sleep 1000.424242");
    eventually_equals(&secret, || {
        it.first_gpu_document()["holders"][0]["command"].clone()
    });

    let number = pid.to_string();
    let arguments = ["explain", &number, "-o", "json"];
    let never = it.test_box.json(&["status", "-o", "json"])["will_not_act"].clone();
    let name = user_name(OWNER_UID);
    let is_number = name == OWNER_UID.to_string();
    let owner = if is_number {
        format!("uid {name}")
    } else {
        name
    };
    // The caller and its groups; the command line that it reads, and whether it may end the
    // process.
    let cases: [(u32, &[u32], &Value, bool); 4] = [
        (OWNER_UID, &[], &secret, true),
        (OTHER_UID, &[], &Value::Null, false),
        (OTHER_UID, &[operators], &secret, true),
        (0, &[], &secret, true),
    ];
    for (uid, groups, command, may) in cases {
        let (explained, holders, texts) = run_as_user(uid, groups, || {
            let text = |arguments: &[&str]| it.test_box.ctl(arguments).stdout;
            (
                it.test_box.json(&arguments),
                it.first_gpu_document(),
                [text(&["explain", &number]), text(&["holders"])],
            )
        });
        let seen = [
            &explained["procs"][0]["command"],
            &explained["holds"][0]["holder"]["command"],
            &holders["holders"][0]["command"],
        ];
        assert_eq!(seen, [command; 3], "{uid} {groups:?}");
        assert_eq!(explained["you_may_end"], may, "{uid} {groups:?}");
        assert_eq!(explained["never_ended"], never);
        let people = json!([owner, "group daemon", "root"]);
        assert_eq!(explained["may_end"], people);
        let shown = texts.iter().filter(|text| text.contains("424242")).count();
        assert_eq!(shown, if command.is_null() { 0 } else { 2 }, "{texts:?}");
        let why = &holders["holders"][0]["reasons"]["command"];
        let withheld = json!("withheld: it belongs to another user");
        assert_eq!(why == &withheld, command.is_null(), "{why}");
        // Every caller sees the rest, so that they know which user to contact.
        assert_eq!(holders["holders"][0]["uid"], OWNER_UID);
    }
    daemon.stop();
}
