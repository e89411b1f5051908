//! Who may see what of a holder: its own user, others, and those who run the
//! box.

use super::{Box, GIB, user_called};
use gpukill_tests::harness::{Actor, acting_as, becomes, can_act_as_others, group, skip, user};
use serde_json::{Value, json};
use std::process::Command;

const OWNER: u32 = user(0);
const OTHER: u32 = user(1);

#[test]
fn a_hidden_command_line_is_shown_to_its_own_user_and_to_operators_only() {
    if !can_act_as_others() {
        return;
    }
    let Some(operators) = group("daemon") else {
        return skip("this system has no group daemon");
    };
    let it = Box::new();
    it.stage.open_to_all();
    it.stage
        .configure("[access]\nhide_other_users = true\noperator_group = \"daemon\"");
    // Its secret is an argument that nobody else should read.
    let script = "exec 5</dev/full; exec sleep 1000.424242";
    let actor = acting_as(OWNER, &[], || {
        Actor::of(Command::new("sh").args(["-c", script]))
    });
    let pid = actor.pid();
    it.procfs.link(pid);
    it.play(35 * GIB, &json!([{"pid": pid, "memory": 35 * GIB}]));
    let daemon = it.start();
    let secret = json!("sleep 1000.424242");
    becomes(&secret, || it.held()["holders"][0]["command"].clone());

    let number = pid.to_string();
    let arguments = ["explain", &number, "-o", "json"];
    let never = it.stage.json(&["status", "-o", "json"])["will_not_act"].clone();
    let name = user_called(OWNER);
    let is_number = name == OWNER.to_string();
    let owner = if is_number {
        format!("uid {name}")
    } else {
        name
    };
    // Who asks; what they read, and whether they may end it.
    let cases: [(u32, &[u32], &Value, bool); 4] = [
        (OWNER, &[], &secret, true),
        (OTHER, &[], &Value::Null, false),
        (OTHER, &[operators], &secret, true),
        (0, &[], &secret, true),
    ];
    for (uid, groups, command, may) in cases {
        let (explained, holders, texts) = acting_as(uid, groups, || {
            let text = |arguments: &[&str]| it.stage.ctl(arguments).stdout;
            (
                it.stage.json(&arguments),
                it.held(),
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
        // The rest of it is for everybody: who to ask.
        assert_eq!(holders["holders"][0]["uid"], OWNER);
    }
    daemon.stop();
}
