//! Who may what: by groups of the system, as the kernel tells them.

use gpukill_tests::harness::{
    Actor, NOBODY, Stage, acting_as, can_act_as_others, eventually, skip, user,
};
use serde_json::{Value, json};

/// Two groups that every Linux has, and their numbers.
fn two_groups() -> Option<[(String, u32); 2]> {
    let text = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let mut groups = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, gid) = (fields.next()?, fields.nth(1)?.parse().ok()?);
        // Not root's, and not the one that acting as nobody brings along.
        (gid != 0 && gid != NOBODY).then(|| (name.to_owned(), gid))
    });
    let found = groups.next().zip(groups.next());
    if found.is_none() {
        skip("this system has no two groups");
    }
    found.map(|(first, second)| [first, second])
}

#[test]
fn groups_give_rights_and_uids_do_not() {
    if !can_act_as_others() {
        return;
    }
    let Some([(operators, operator), (admins, admin)]) = two_groups() else {
        return;
    };
    let stage = Stage::new();
    stage.open_to_all();
    stage.configure(&format!(
        "[access]\noperator_group = {operators:?}\nadmin_group = {admins:?}"
    ));
    let daemon = stage.start();
    let all = json!(["look", "end_own", "end_any", "edit_rules"]);
    let cases: [(&[u32], Value); 4] = [
        (&[], json!(["look", "end_own"])),
        (&[operator], json!(["look", "end_own", "end_any"])),
        (&[admin], json!(["look", "end_own", "edit_rules"])),
        (&[operator, admin], all.clone()),
    ];
    for (groups, rights) in cases {
        let status = acting_as(NOBODY, groups, || stage.json(&["status", "-o", "json"]));
        assert_eq!(status["uid"], NOBODY);
        assert_eq!(status["rights"], rights, "{groups:?}");
    }
    let root = stage.json(&["status", "-o", "json"]);
    assert_eq!((&root["uid"], &root["rights"]), (&json!(0), &all));
    daemon.stop();
}

#[test]
fn groups_that_do_not_exist_give_rights_to_nobody() {
    if !can_act_as_others() {
        return;
    }
    let stage = Stage::new();
    stage.open_to_all();
    stage.configure("[access]\noperator_group = \"no-such-group\"\nadmin_group = \"0\"");
    let daemon = stage.start();
    let status = acting_as(NOBODY, &[0, 1, 2], || stage.json(&["status", "-o", "json"]));
    assert_eq!(status["rights"], json!(["look", "end_own"]));
    daemon.stop();
}

#[test]
fn hidden_command_lines_are_shown_to_their_owner_and_to_root() {
    if !can_act_as_others() {
        return;
    }
    let stage = Stage::new();
    stage.open_to_all();
    stage.configure("[access]\nhide_other_users = true");
    let roots = Actor::start("python --token=secret");
    let theirs = acting_as(NOBODY, &[], || Actor::start("python --token=theirs"));
    stage.play(&json!({"gpus": [{"processes": [
        {"pid": roots.pid(), "memory": 1}, {"pid": theirs.pid(), "memory": 2},
    ]}]}));
    let daemon = stage.start();
    let of = |pid: u32, records: &Value| -> Value {
        let records = records.as_array().unwrap();
        let found = records.iter().find(|record| record["pid"] == pid);
        let found = found.unwrap_or_else(|| panic!("{pid}: {records:?}"));
        json!([found["command"], found["reasons"]["command"]])
    };
    let withheld = json!([null, "withheld: it belongs to another user"]);
    let shown = |command: &str| json!([command, null]);
    let expected = [
        (
            0,
            shown("python --token=secret 1000"),
            shown("python --token=theirs 1000"),
        ),
        (
            NOBODY,
            withheld.clone(),
            shown("python --token=theirs 1000"),
        ),
        (user(0), withheld.clone(), withheld),
    ];
    eventually("a sample", || {
        (stage.ctl(&["audit", "--gpu", "0"]).code == 0).then_some(())
    });
    for (uid, of_root, of_theirs) in expected {
        let (list, history, raw) = acting_as(uid, &[], || {
            let list = stage.list();
            let history = stage.json(&["audit", "-o", "json"]);
            (
                list,
                history,
                stage.ctl(&["list", "-d", "-o", "csv"]).stdout,
            )
        });
        for records in [&list["procs"], &history["records"]] {
            assert_eq!(of(roots.pid(), records), of_root, "{uid}");
            assert_eq!(of(theirs.pid(), records), of_theirs, "{uid}");
        }
        assert_eq!(raw.contains("secret"), uid == 0);
        // Everything else is to be seen.
        let process = &list["procs"][0];
        assert!(!process["uid"].is_null() && !process["used_mem_bytes"].is_null());
    }
    daemon.stop();
}
