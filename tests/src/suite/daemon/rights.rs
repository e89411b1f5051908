//! Rights of callers by their groups, as the kernel reports these, and the command lines that
//! the admin hides from plain users.

use gpukill_tests::harness::{
    NOBODY_UID, TestBox, TestProcess, can_run_as_other_users, eventually, eventually_equals,
    group_id, run_as_user, skip, test_uid,
};
use serde_json::{Value, json};

/// Two groups of this system, and their numbers.
fn two_groups() -> Option<[(String, u32); 2]> {
    let text = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let mut groups = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, gid) = (fields.next()?, fields.nth(1)?.parse().ok()?);
        // Neither the group of root nor the one that a test as `nobody` has anyway.
        (gid != 0 && gid != NOBODY_UID).then(|| (name.to_owned(), gid))
    });
    let found = groups.next().zip(groups.next());
    if found.is_none() {
        skip("this system has no two groups");
    }
    found.map(|(first, second)| [first, second])
}

#[test]
fn groups_give_rights_and_uids_do_not() {
    if !can_run_as_other_users() {
        return;
    }
    let Some([(operators, operator), (admins, admin)]) = two_groups() else {
        return;
    };
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    test_box.configure(&format!(
        "[access]\noperator_group = {operators:?}\nadmin_group = {admins:?}"
    ));
    let daemon = test_box.start();
    let all = json!(["look", "end_own", "end_any", "edit_rules"]);
    let cases: [(&[u32], Value); 4] = [
        (&[], json!(["look", "end_own"])),
        (&[operator], json!(["look", "end_own", "end_any"])),
        (&[admin], json!(["look", "end_own", "edit_rules"])),
        (&[operator, admin], all.clone()),
    ];
    for (groups, rights) in cases {
        let status = run_as_user(NOBODY_UID, groups, || {
            test_box.json(&["status", "-o", "json"])
        });
        assert_eq!(status["uid"], NOBODY_UID);
        assert_eq!(status["rights"], rights, "{groups:?}");
    }
    let root = test_box.json(&["status", "-o", "json"]);
    assert_eq!((&root["uid"], &root["rights"]), (&json!(0), &all));
    daemon.stop();
}

#[test]
fn missing_groups_give_no_rights() {
    if !can_run_as_other_users() {
        return;
    }
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    test_box.configure("[access]\noperator_group = \"no-such-group\"\nadmin_group = \"0\"");
    let daemon = test_box.start();
    let status = run_as_user(NOBODY_UID, &[0, 1, 2], || {
        test_box.json(&["status", "-o", "json"])
    });
    assert_eq!(status["rights"], json!(["look", "end_own"]));
    daemon.stop();
}

#[test]
fn hidden_command_lines_are_for_owner_and_root() {
    if !can_run_as_other_users() {
        return;
    }
    let test_box = TestBox::new();
    test_box.make_world_accessible();
    test_box.configure("[access]\nhide_other_users = true");
    let roots = TestProcess::start("python --token=secret");
    let theirs = run_as_user(NOBODY_UID, &[], || {
        TestProcess::start("python --token=theirs")
    });
    test_box.set_driver_state(&json!({"gpus": [{"processes": [
        {"pid": roots.pid(), "memory": 1}, {"pid": theirs.pid(), "memory": 2},
    ]}]}));
    let daemon = test_box.start();
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
            NOBODY_UID,
            withheld.clone(),
            shown("python --token=theirs 1000"),
        ),
        (test_uid(0), withheld.clone(), withheld),
    ];
    eventually("a sample", || {
        (test_box.ctl(&["audit", "--gpu", "0"]).code == 0).then_some(())
    });
    for (uid, of_root, of_theirs) in expected {
        let (list, history, raw) = run_as_user(uid, &[], || {
            let list = test_box.list();
            let history = test_box.json(&["audit", "--samples", "-o", "json"]);
            (
                list,
                history,
                test_box.ctl(&["list", "-d", "-o", "csv"]).stdout,
            )
        });
        // For a caller who does not see all, none is not zero.
        for command in [
            &["status"][..],
            &["guard", "status"],
            &["guard", "violations"],
        ] {
            let shown = run_as_user(uid, &[], || test_box.ctl(command)).stdout;
            let note = "only your own violations: those of other users are hidden";
            assert_eq!(shown.contains(note), uid != 0, "{uid} {shown}");
        }
        for records in [&list["procs"], &history["records"]] {
            assert_eq!(of(roots.pid(), records), of_root, "{uid}");
            assert_eq!(of(theirs.pid(), records), of_theirs, "{uid}");
        }
        assert_eq!(raw.contains("secret"), uid == 0);
        // All other fields are visible.
        let process = &list["procs"][0];
        assert!(!process["uid"].is_null() && !process["used_mem_bytes"].is_null());
    }
    daemon.stop();
}

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
    let usage = json!({"pid": process.pid(), "memory": 1});
    test_box.set_driver_state(&json!({"gpus": [{"processes": [usage]}]}));
    let daemon = test_box.start();
    let shown = json!("python --token=secret 1000");
    eventually_equals(&shown, || test_box.list()["procs"][0]["command"].clone());
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
