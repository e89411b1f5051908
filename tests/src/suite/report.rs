//! `status --report`: a bug report has the facts that it needs, and no names.

use gpukill_tests::harness::{
    CommandOutput, TestBox, TestProcess, can_run_as_other_users, eventually, eventually_equals,
};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// A name that is part of no word of a report.
const NAME: &str = "qzmallory";

const UUID: &str = "GPU-9e1c0de5-aaaa-bbbb-cccc-0123456789ab";

const SERIAL: &str = "1652823000001";

/// Asserts that the text names neither the box nor a user or file on it.
fn assert_no_names(test_box: &TestBox, text: &str) {
    let directory = test_box.directory().display().to_string();
    let place = directory.rsplit('/').next().unwrap();
    let uuid = UUID.trim_start_matches("GPU-");
    for name in [NAME, &directory, place, uuid, SERIAL] {
        assert!(!text.contains(name), "{name} is in:\n{text}");
    }
}

/// The same command with `NAME` as host name; `None` where root may not set the host name.
fn with_host_name(command: &Command) -> Option<Command> {
    let mut unshare = Command::new("unshare");
    let called = format!("echo {NAME} >/proc/sys/kernel/hostname && exec \"$0\" \"$@\"");
    unshare.args(["--uts", "sh", "-c", &called]);
    let can = can_run_as_other_users()
        && CommandOutput::run(copy_command(&unshare).arg("true")).code == 0;
    unshare.arg(command.get_program()).args(command.get_args());
    unshare.env_clear();
    unshare.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    can.then_some(unshare)
}

fn copy_command(unshare: &Command) -> Command {
    let mut again = Command::new(unshare.get_program());
    again.args(unshare.get_args());
    again
}

/// The text and the JSON of the report, from clients that end with this code.
fn both_formats(test_box: &TestBox, code: i32) -> [String; 2] {
    [
        &["status", "--report"][..],
        &["status", "--report", "-o", "json"],
    ]
    .map(|arguments| {
        let mut client = test_box.client_command(arguments);
        client.env("HOME", test_box.path(NAME));
        let mut client = with_host_name(&client).unwrap_or(client);
        let ran = CommandOutput::run(&mut client);
        assert_eq!(ran.code, code, "{ran:?}");
        assert_no_names(test_box, &ran.stdout);
        ran.stdout
    })
}

/// Gives `NAME` to everything on the box, and starts a process with this name.
fn name_everything(test_box: &TestBox) -> TestProcess {
    let home = test_box.path(NAME);
    std::fs::create_dir(&home).unwrap();
    let program = home.join(NAME);
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let mut sleep = Command::new(program);
    let process = TestProcess::spawn(sleep.arg0(format!("{NAME} --token {NAME}")).arg("1000"));
    let usage = json!({"pid": process.pid(), "memory": 1u64 << 30, "sm": 1});
    test_box.set_driver_state(&json!({"gpus": [{
        "uuid": UUID,
        "serial": SERIAL,
        "processes": [usage],
        "errors": {"nvmlDeviceGetFanSpeed_v2": 999},
    }]}));
    let rules = format!("[user_policies.{NAME}]\nmemory_limit_gb = 1\nodd_{NAME} = 2\n");
    std::fs::write(test_box.path("guard.toml"), rules).unwrap();
    test_box.configure(&format!("[protect]\nusers = [\"{NAME}\"]\n"));
    process
}

#[test]
fn has_no_names() {
    let test_box = TestBox::new();
    let process = name_everything(&test_box);
    let daemon = test_box.daemon_command();
    let is_named = with_host_name(&daemon);
    let has_name = is_named.is_some();
    let daemon = test_box.start_with(&mut is_named.unwrap_or(daemon));
    let list = eventually("the process", || {
        let list = test_box.list();
        (list["procs"][0]["pid"] == process.pid()).then_some(list)
    });
    assert_eq!(list["procs"][0]["proc_name"], NAME);
    assert_eq!(list["host"] == NAME, has_name);
    eventually_equals(&true, || {
        let recent = test_box.json(&["status", "--report", "-o", "json"])["recent_faults"].clone();
        recent.as_array().is_some_and(|all| all.len() >= 2)
    });

    let [text, json] = both_formats(&test_box, 0);
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

/// The fields of each reported fault except its times, sorted by part.
fn faults(faults: &Value) -> Value {
    let fields = ["part", "code", "reading", "error_number"];
    let row = |fault: &Value| Value::from(fields.map(|field| fault[field].clone()).to_vec());
    let mut rows: Vec<Value> = faults.as_array().unwrap().iter().map(row).collect();
    rows.sort_by_key(ToString::to_string);
    rows.into()
}

#[test]
fn shows_why_the_daemon_is_silent() {
    let test_box = TestBox::new();
    std::fs::create_dir(test_box.path(NAME)).unwrap();
    let [text, json] = both_formats(&test_box, 6);
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
    let report = test_box.ctl(&["status", "--report"]);
    assert_eq!(report.stderr, test_box.ctl(&["status"]).stderr);
}

/// The text and the JSON of the report, with this text in the client's settings file.
fn with_settings(test_box: &TestBox, file: &str) -> [String; 2] {
    let directory = test_box.path("home/.config/gpukill");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("config.toml"), file).unwrap();
    let socket = test_box.socket();
    let socket = socket.to_str().unwrap();
    let report = ["--socket", socket, "status", "--report"];
    [&report[..], &[&report[..], &["-o", "json"]].concat()].map(|arguments| {
        let ran = test_box.ctl(arguments);
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(
            ran.stderr.contains("2 mistakes in the settings\n"),
            "{ran:?}"
        );
        assert_no_names(test_box, &ran.stdout);
        ran.stdout
    })
}

#[test]
fn client_setting_mistakes_are_counted() {
    let test_box = TestBox::new();
    let line = "- the settings of gpukillctl have 2 mistakes, and they are not used here";
    let file = format!("odd_{NAME} = 1\ntable_width = \"{NAME}\"\nshow_details = true\n");
    let [text, _] = with_settings(&test_box, &file);
    assert!(text.lines().any(|it| it == line), "{text}");
    assert!(text.contains("nothing listens"), "{text}");

    let daemon = test_box.start();
    let [text, json] = with_settings(&test_box, &file);
    assert!(text.lines().any(|it| it == line), "{text}");
    let document: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(document["client"]["settings_mistakes"], 2);
    assert_eq!(document["failure"], json!(null));
    assert!(document["daemon"]["version"].is_string());
    daemon.stop();
}
