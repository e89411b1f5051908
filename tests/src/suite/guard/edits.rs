//! Rule edits: by admins only, atomic, and without lost changes.

use super::write_rules;
use gpukill_tests::harness::{
    NOBODY_UID, TestBox, can_run_as_other_users, eventually, run_as_user,
};
use rustix::process::Signal;
use serde_json::json;

fn read_rules(test_box: &TestBox) -> String {
    std::fs::read_to_string(test_box.path("guard.toml")).unwrap()
}

#[test]
fn edit_applies_at_once_and_keeps_comments() {
    let test_box = TestBox::new();
    write_rules(&test_box, "# Ours.\n[global]\nenabled = true # always\n");
    let daemon = test_box.start();
    let set = ["guard", "user", "set", "root", "--memory-limit", "8"];
    let ran = test_box.ctl(&[&set[..], &["--dry-run"]].concat());
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert!(ran.stdout.contains("+[user_policies.root]\n"), "{ran:?}");
    assert_eq!(
        read_rules(&test_box),
        "# Ours.\n[global]\nenabled = true # always\n"
    );
    let ran = test_box.ctl(&set);
    let holds = "root: at most 8 GiB; dry run, nothing will be ended before gpukillctl guard \
                 soft\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (0, holds));
    let text = read_rules(&test_box);
    assert!(
        text.starts_with("# Ours.\n[global]\nenabled = true # always\n"),
        "{text}"
    );
    assert!(text.contains("memory_limit_gb = 8"), "{text}");
    let status = test_box.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["rules"], json!(1));
    // An invalid edit writes nothing.
    let ran = test_box.ctl(&["guard", "user", "set", "root", "--memory-limit", "much"]);
    assert_eq!((ran.code, read_rules(&test_box)), (3, text), "{ran:?}");
    assert_eq!(test_box.ctl(&["guard", "user", "remove", "root"]).code, 0);
    assert_ne!(test_box.ctl(&["guard", "user", "remove", "root"]).code, 0);
    let actions = eventually("the edits are recorded", || {
        let actions = test_box.json(&["audit", "actions", "--kind", "rules_edit", "-o", "json"]);
        let actions = actions["actions"].as_array()?.clone();
        (actions.len() == 2).then_some(actions)
    });
    let results = actions
        .iter()
        .rev()
        .map(|action| json!([action["what"], action["result"]]));
    let expected = [
        json!(["user policy root: memory_limit_gb = 8", "done"]),
        json!(["remove user policy root", "done"]),
    ];
    assert_eq!(results.collect::<Vec<_>>(), expected);
    daemon.stop();
}

#[test]
fn concurrent_edits_are_all_applied() {
    let test_box = TestBox::new();
    let daemon = test_box.start();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let test_box = &test_box;
            scope.spawn(move || {
                let name = format!("user{number}");
                let set = ["guard", "user", "set", &name, "--memory-limit", "8"];
                let ran = test_box.ctl(&set);
                assert_eq!(ran.code, 0, "{ran:?}");
            });
        }
    });
    let status = test_box.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["rules"], json!(8));
    daemon.stop();
}

#[test]
fn invalid_file_keeps_the_old_rules() {
    let test_box = TestBox::new();
    write_rules(&test_box, "[user_policies.alice]\nmemory_limit_gb = 8\n");
    let daemon = test_box.start();
    write_rules(&test_box, "[user_policies.alice]\nmemory_limit = 8\n");
    daemon.signal(Signal::HUP);
    let faults = eventually("the mistake is reported", || {
        let faults = test_box.faults();
        (!faults.is_empty()).then_some(faults)
    });
    assert_eq!(faults[0].0, "guard");
    assert!(faults[0].1.contains("line 2"), "{faults:?}");
    let status = test_box.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["rules"], json!(1));
    // An edit would overwrite the changes in the invalid file.
    let ran = test_box.ctl(&["guard", "user", "set", "bob", "--memory-limit", "8"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    // The old rules stay in force after a restart.
    daemon.stop();
    let daemon = test_box.start();
    let status = test_box.json(&["guard", "status", "-o", "json"]);
    assert_eq!(status["rules"], json!(1));
    write_rules(&test_box, "[user_policies.alice]\nmemory_limit_gb = 9\n");
    daemon.signal(Signal::HUP);
    eventually("it is over", || test_box.faults().is_empty().then_some(()));
    daemon.stop();
}

#[test]
fn only_admins_change_rules() {
    if !can_run_as_other_users() {
        return;
    }
    let test_box = TestBox::new();
    write_rules(&test_box, "[user_policies.alice]\nmemory_limit_gb = 8\n");
    let daemon = test_box.start();
    test_box.make_world_accessible();
    let before = read_rules(&test_box);
    let ran = run_as_user(NOBODY_UID, &[], || {
        test_box.ctl(&["guard", "user", "set", "nobody", "--memory-limit", "80"])
    });
    let expected = "gpukillctl: cannot change the guard's rules\n\
         hint: ask root, or someone in group suite:admins\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (4, expected));
    let rogue = ["rogue", "allow", "user", "nobody"];
    assert_eq!(
        run_as_user(NOBODY_UID, &[], || test_box.ctl(&rogue)).code,
        4
    );
    eventually("both are recorded as refused", || {
        let actions = test_box.json(&["audit", "actions", "-o", "json"]);
        let refused = actions["actions"].as_array()?.iter();
        let refused = refused.filter(|it| it["result"] == "refused");
        let whats: Vec<_> = refused.map(|it| it["what"].as_str()).collect();
        let [Some(rogue), Some(guard)] = whats[..] else {
            return None;
        };
        assert_eq!(guard, "user policy nobody: memory_limit_gb = 80");
        assert!(rogue.starts_with("rogue: "), "{rogue}");
        Some(())
    });
    let ran = run_as_user(NOBODY_UID, &[], || test_box.ctl(&["guard", "config"]));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, before.as_str()));
    assert_eq!(read_rules(&test_box), before);
    daemon.stop();
}

#[test]
fn check_locates_every_mistake_without_daemon() {
    let test_box = TestBox::new();
    let file = test_box.path("draft.toml");
    std::fs::write(
        &file,
        "[global]\nenabeld = true\ndefault_memory_limit_gb = -1\n",
    )
    .unwrap();
    let name = file.to_str().unwrap();
    let ran = test_box.ctl(&["guard", "check", name]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(
        lines[0].starts_with("line 2, column 1: global.enabeld: "),
        "{ran:?}"
    );
    assert!(lines[0].contains("enabled"), "{ran:?}");
    assert!(
        lines.iter().any(|line| line.starts_with("line 3, column ")),
        "{ran:?}"
    );
    let presets = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/guard");
    let interns =
        "line 30: group_policies.interns.unix_groups: unknown group on this host: interns";
    let students =
        "line 42: group_policies.students.unix_groups: unknown group on this host: students";
    for (preset, odd) in [
        ("lab", None),
        ("team", Some(interns)),
        ("strict", Some(students)),
    ] {
        let ran = test_box.ctl(&["guard", "check", &format!("{presets}/{preset}.toml")]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        let mut lines: Vec<&str> = ran.stdout.lines().collect();
        let verdict = lines.pop().unwrap();
        // The test machine may have these groups.
        let expected = match odd.filter(|_| !lines.is_empty()) {
            Some(odd) => (vec![odd], "no mistake, 1 warning"),
            None => (vec![], "no mistake"),
        };
        assert_eq!(lines, expected.0, "{ran:?}");
        assert!(verdict.ends_with(expected.1), "{ran:?}");
    }
}

#[test]
fn export_and_import_in_all_formats() {
    let test_box = TestBox::new();
    write_rules(&test_box, "[user_policies.alice]\nmemory_limit_gb = 8\n");
    let daemon = test_box.start();
    for form in ["toml", "json", "yaml"] {
        let file = test_box.path(&format!("rules.{form}"));
        let name = file.to_str().unwrap();
        std::fs::write(&file, "mine").unwrap();
        let ran = test_box.ctl(&["guard", "export", name]);
        let refused = format!("gpukillctl: {name} is there already\nhint: --force replaces it\n");
        assert_eq!((ran.code, ran.stderr), (1, refused));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
        assert_eq!(test_box.ctl(&["guard", "export", "--force", name]).code, 0);
        let set = ["guard", "user", "set", "alice", "--memory-limit", "9"];
        assert_eq!(test_box.ctl(&set).code, 0);
        let ran = test_box.ctl(&["guard", "import", name]);
        assert_eq!(ran.code, 3, "{ran:?}");
        // The question shows what would change.
        for line in ["-memory_limit_gb = 9\n", "+memory_limit_gb = 8\n"] {
            assert!(ran.stdout.contains(line), "{ran:?}");
        }
        let ran = test_box.ctl(&["guard", "import", name, "--yes"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(
            read_rules(&test_box).contains("memory_limit_gb = 8"),
            "{}",
            read_rules(&test_box)
        );
    }
    daemon.stop();
}

#[test]
fn empty_file_is_the_defaults() {
    let test_box = TestBox::new();
    write_rules(&test_box, "[user_policies.alice]\nmemory_limit_gb = 8\n");
    let daemon = test_box.start();
    let file = test_box.path("empty.toml");
    std::fs::write(&file, "").unwrap();
    let name = file.to_str().unwrap();
    let ran = test_box.ctl(&["guard", "check", name]);
    let checked = format!("{name}: 0 rules, dry-run; no mistake\n");
    assert_eq!((ran.code, ran.stdout), (0, checked));
    let warned = "warning: the only rule is removed: there are no more limits\n";
    for how in ["--dry-run", "--yes"] {
        let ran = test_box.ctl(&["guard", "import", name, how]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, warned), "{how}");
        let is_gone = read_rules(&test_box).is_empty();
        assert_eq!(is_gone, how == "--yes");
    }
    let ran = test_box.ctl(&["guard", "replay", "--rules", name, "--since", "1h"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    daemon.stop();
}
