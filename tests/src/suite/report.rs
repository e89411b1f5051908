//! `status --report`: what a report of a bug needs, and nothing that names anybody.

use gpukill_tests::harness::{Actor, Ran, Stage, becomes, can_act_as_others, eventually};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// A name that no word of ours has in it.
const NAME: &str = "qzmallory";

const UUID: &str = "GPU-9e1c0de5-aaaa-bbbb-cccc-0123456789ab";

const SERIAL: &str = "1652823000001";

/// Asserts that it names neither the box nor anybody or anything on it.
fn names_nobody(stage: &Stage, text: &str) {
    let directory = stage.directory().display().to_string();
    let place = directory.rsplit('/').next().unwrap();
    let uuid = UUID.trim_start_matches("GPU-");
    for name in [NAME, &directory, place, uuid, SERIAL] {
        assert!(!text.contains(name), "{name} is in:\n{text}");
    }
}

/// The same command on a box that is called by the name, where root may call it so.
fn on_a_named_box(command: &Command) -> Option<Command> {
    let mut unshare = Command::new("unshare");
    let called = format!("echo {NAME} >/proc/sys/kernel/hostname && exec \"$0\" \"$@\"");
    unshare.args(["--uts", "sh", "-c", &called]);
    let can = can_act_as_others() && Ran::of(unshare_of(&unshare).arg("true")).code == 0;
    unshare.arg(command.get_program()).args(command.get_args());
    unshare.env_clear();
    unshare.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    can.then_some(unshare)
}

fn unshare_of(unshare: &Command) -> Command {
    let mut again = Command::new(unshare.get_program());
    again.args(unshare.get_args());
    again
}

/// Both forms of the report, which end with this code.
fn forms(stage: &Stage, code: i32) -> [String; 2] {
    [
        &["status", "--report"][..],
        &["status", "--report", "-o", "json"],
    ]
    .map(|arguments| {
        let mut client = stage.client(arguments);
        client.env("HOME", stage.path(NAME));
        let mut client = on_a_named_box(&client).unwrap_or(client);
        let ran = Ran::of(&mut client);
        assert_eq!(ran.code, code, "{ran:?}");
        names_nobody(stage, &ran.stdout);
        ran.stdout
    })
}

/// A box where everything has the name.
fn named(stage: &Stage) -> Actor {
    let home = stage.path(NAME);
    std::fs::create_dir(&home).unwrap();
    let program = home.join(NAME);
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let mut sleep = Command::new(program);
    let actor = Actor::of(sleep.arg0(format!("{NAME} --token {NAME}")).arg("1000"));
    let process = json!({"pid": actor.pid(), "memory": 1u64 << 30, "sm": 1});
    stage.play(&json!({"gpus": [{
        "uuid": UUID,
        "serial": SERIAL,
        "processes": [process],
        "errors": {"nvmlDeviceGetFanSpeed_v2": 999},
    }]}));
    let rules = format!("[user_policies.{NAME}]\nmemory_limit_gb = 1\nodd_{NAME} = 2\n");
    std::fs::write(stage.path("guard.toml"), rules).unwrap();
    stage.configure(&format!("[protect]\nusers = [\"{NAME}\"]\n"));
    actor
}

#[test]
fn a_report_of_a_box_full_of_names_has_none_of_them() {
    let stage = Stage::new();
    let actor = named(&stage);
    let daemon = stage.daemon();
    let is_named = on_a_named_box(&daemon);
    let has_name = is_named.is_some();
    let daemon = stage.start_with(&mut is_named.unwrap_or(daemon));
    let list = eventually("the process", || {
        let list = stage.list();
        (list["procs"][0]["pid"] == actor.pid()).then_some(list)
    });
    assert_eq!(list["procs"][0]["proc_name"], NAME);
    assert_eq!(list["host"] == NAME, has_name);
    becomes(&true, || {
        let recent = stage.json(&["status", "--report", "-o", "json"])["recent_faults"].clone();
        recent.as_array().is_some_and(|all| all.len() >= 2)
    });

    let [text, json] = forms(&stage, 0);
    assert!(text.starts_with("# gpukill report\n"), "{text}");
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["failure"], json!(null));
    assert_eq!(document["processes"], 1);
    assert_eq!(document["devices"][0]["pids"], 1);
    let expected = json!([
        ["GPU 0", "reading_failed", "fan", 999],
        ["guard", "rules_mistaken", null, null],
    ]);
    assert_eq!(faults(&document["daemon"]["faults"]), expected);
    assert_eq!(faults(&document["recent_faults"]), expected);
    let line = "- GPU 0: reading_failed of fan (error 999), since ";
    assert!(text.lines().any(|it| it.starts_with(line)), "{text}");
    let settings = document["daemon"]["settings"].as_array().unwrap();
    assert!(settings.contains(&json!({"key": "daemon.poll_interval", "value": 100})));
    assert!(settings.contains(&json!({"key": "protect.users", "value": null})));
    daemon.stop();
}

/// What a report has of each fault but its times, in the order of the parts.
fn faults(faults: &Value) -> Value {
    let fields = ["part", "code", "reading", "error_number"];
    let row = |fault: &Value| Value::from(fields.map(|field| fault[field].clone()).to_vec());
    let mut rows: Vec<Value> = faults.as_array().unwrap().iter().map(row).collect();
    rows.sort_by_key(ToString::to_string);
    rows.into()
}

#[test]
fn where_the_daemon_does_not_answer_the_report_says_why_and_ends_as_status_does() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path(NAME)).unwrap();
    let [text, json] = forms(&stage, 6);
    for line in [
        "- **gpukilld does not answer: nothing listens** (exit code 6)",
        "- why it does not: see `systemctl status gpukilld`",
        "- socket: a named one: missing",
    ] {
        assert!(text.lines().any(|it| it == line), "{text}");
    }
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["daemon"], json!(null));
    assert_eq!(document["failure"]["exit"], 6);
    let report = stage.ctl(&["status", "--report"]);
    assert_eq!(report.stderr, stage.ctl(&["status"]).stderr);
}

/// The same forms with this text in the client's settings file, which name nobody either.
fn with_settings(stage: &Stage, file: &str) -> [String; 2] {
    let directory = stage.path("home/.config/gpukill");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("config.toml"), file).unwrap();
    let socket = stage.socket();
    let socket = socket.to_str().unwrap();
    let report = ["--socket", socket, "status", "--report"];
    [&report[..], &[&report[..], &["-o", "json"]].concat()].map(|arguments| {
        let ran = stage.ctl(arguments);
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(
            ran.stderr.contains("2 mistakes in the settings\n"),
            "{ran:?}"
        );
        names_nobody(stage, &ran.stdout);
        ran.stdout
    })
}

#[test]
fn mistakes_in_the_clients_settings_are_counted_and_stop_no_report() {
    let stage = Stage::new();
    let line = "- the settings of gpukillctl have 2 mistakes, and none of them holds here";
    let file = format!("odd_{NAME} = 1\ntable_width = \"{NAME}\"\nshow_details = true\n");
    let [text, _] = with_settings(&stage, &file);
    assert!(text.lines().any(|it| it == line), "{text}");
    assert!(text.contains("nothing listens"), "{text}");

    let daemon = stage.start();
    let [text, json] = with_settings(&stage, &file);
    assert!(text.lines().any(|it| it == line), "{text}");
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["client"]["settings_mistakes"], 2);
    assert_eq!(document["failure"], json!(null));
    assert!(document["daemon"]["version"].is_string());
    daemon.stop();
}
