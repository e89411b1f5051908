//! The settings of the daemon, from each of their sources.

use gpukill_tests::harness::{
    CommandOutput, NOBODY_UID, TestBox, TestProcess, can_run_as_other_users, eventually,
    eventually_equals, run_as_user, skip,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

const MISTAKES: &str = "[daemon]\npoll_interval = \"1ms\"\nsokcet = \"/x\"\n\n[backends]\nenabled \
= [\"nvidia\", \"nvidea\"]\n[nonsense]\n";

/// The expected messages for [`MISTAKES`], one mistake on each line.
fn expected_mistakes(test_box: &TestBox) -> String {
    [
        "2: daemon.poll_interval: \"1ms\" is not a duration from \"100ms\" to \"1h\", like \"2s\" \
        or \"7d\"",
        "3: unknown key daemon.sokcet; did you mean daemon.socket?",
        "6: backends.enabled: \"nvidea\" is not valid: write nvidia, amd, intel, drm or apple",
        "7: unknown key nonsense",
    ]
    .map(|mistake| format!("{}:{mistake}\n", test_box.path("gpukilld.toml").display()))
    .concat()
}

fn check_command(test_box: &TestBox) -> Command {
    let mut command = test_box.daemon_command();
    command.arg("--check-config");
    command
}

/// The output of a run that prints nothing and finds no mistake.
fn success() -> CommandOutput {
    CommandOutput {
        code: 0,
        stdout: String::new(),
        stderr: String::new(),
    }
}

fn failure(stderr: String) -> CommandOutput {
    CommandOutput {
        code: 3,
        stdout: String::new(),
        stderr,
    }
}

/// Mistakes as the daemon prints them.
fn expected_error(lines: &str) -> String {
    lines
        .lines()
        .map(|line| format!("gpukilld: {line}\n"))
        .collect()
}

#[test]
fn check_reports_every_mistake_with_line() {
    let test_box = TestBox::new();
    assert_eq!(CommandOutput::run(&mut check_command(&test_box)), success());
    std::fs::write(test_box.path("gpukilld.toml"), MISTAKES).unwrap();
    let expected = failure(expected_error(&expected_mistakes(&test_box)));
    assert_eq!(CommandOutput::run(&mut check_command(&test_box)), expected);
    // The daemon does not start with these settings either.
    assert_eq!(CommandOutput::run(&mut test_box.daemon_command()), expected);
    assert!(!test_box.socket().exists());
}

#[test]
fn printed_defaults_are_valid() {
    let test_box = TestBox::new();
    let printed = CommandOutput::run(test_box.daemon_command().arg("--print-default-config"));
    assert_eq!((printed.code, printed.stderr.as_str()), (0, ""));
    std::fs::write(test_box.path("gpukilld.toml"), &printed.stdout).unwrap();
    assert_eq!(CommandOutput::run(&mut check_command(&test_box)), success());
}

#[test]
fn unreadable_settings_file_is_an_error() {
    let test_box = TestBox::new();
    let file = test_box.path("gpukilld.toml");
    std::fs::write(&file, b"[daemon]\nsocket = \"/\xff\"\n").unwrap();
    let unreadable = |why: &str| {
        let what = format!("cannot read {}: {why}", file.display());
        failure(expected_error(&what))
    };
    let expected = unreadable("stream did not contain valid UTF-8");
    assert_eq!(CommandOutput::run(&mut check_command(&test_box)), expected);
    std::fs::remove_file(&file).unwrap();
    let expected = unreadable("No such file or directory (os error 2)");
    assert_eq!(CommandOutput::run(&mut check_command(&test_box)), expected);
}

#[test]
fn invalid_variable_is_an_error() {
    let test_box = TestBox::new();
    let cases: [(&str, &[u8], &str); 4] = [
        (
            "GPUKILLD_DAEMON_SOKCET",
            b"/x",
            "GPUKILLD_DAEMON_SOKCET overrides no setting",
        ),
        (
            "GPUKILLD_ACCESS_HIDE_OTHER_USERS",
            b"perhaps",
            "GPUKILLD_ACCESS_HIDE_OTHER_USERS: \"perhaps\" is not valid: write true or false",
        ),
        (
            "GPUKILLD_DAEMON_POLL_INTERVAL",
            b"",
            "GPUKILLD_DAEMON_POLL_INTERVAL: \"\" is not a duration from \"100ms\" to \"1h\", like \
            \"2s\" or \"7d\"",
        ),
        (
            "GPUKILLD_DAEMON_STATE_DIR",
            b"/x/\xff",
            "GPUKILLD_DAEMON_STATE_DIR: is not valid UTF-8",
        ),
    ];
    for (name, value, mistake) in cases {
        let mut command = check_command(&test_box);
        command.env(name, OsStr::from_bytes(value));
        assert_eq!(
            CommandOutput::run(&mut command),
            failure(expected_error(mistake)),
            "{name}"
        );
    }
}

#[test]
fn environment_overrides_file() {
    let test_box = TestBox::new();
    let socket = test_box.path("other/s.sock");
    let mut command = test_box.daemon_command();
    command
        .env("GPUKILLD_DAEMON_SOCKET", &socket)
        .env("GPUKILLD_DAEMON_STATE_DIR", test_box.path("elsewhere"))
        .env("GPUKILLD_DAEMON_POLL_INTERVAL", "150ms")
        .env("GPUKILLD_BACKENDS_ENABLED", "nvidia, drm");
    let daemon = test_box.launch(&mut command, &socket);
    let status = eventually("the first poll", || {
        let mut client = test_box.client_command(&["status", "-o", "json"]);
        let ran = CommandOutput::run(client.env("GPUKILL_SOCKET", &socket));
        let status: Value = serde_json::from_str(&ran.stdout).unwrap();
        (status["polls"] != 0).then_some(status)
    });
    assert_eq!(status["poll_interval_ms"], 150);
    assert_eq!(
        status["store_directory"],
        test_box.path("elsewhere").to_str().unwrap()
    );
    let backends = status["backends"].as_array().unwrap();
    let names: Vec<&Value> = backends.iter().map(|backend| &backend["name"]).collect();
    assert_eq!(names, ["nvidia", "drm"]);
    assert!(!test_box.socket().exists());
    assert!(!test_box.path("state").exists());
    daemon.stop();
}

#[test]
fn reload_takes_effect() {
    let test_box = TestBox::new();
    let process = TestProcess::start("python secret.py");
    let usage = json!({"pid": process.pid(), "memory": 1});
    test_box.set_driver_state(&json!({"gpus": [{"processes": [usage]}]}));
    let file = test_box.path("gpukilld.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"100ms\"", "\"1h\"")).unwrap();
    let daemon = test_box.start();
    let interval = |expected: u64| {
        eventually("another interval", || {
            let status = test_box.json(&["status", "-o", "json"]);
            (status["poll_interval_ms"] == expected).then_some(status)
        })
    };
    interval(3_600_000);

    test_box.configure("[access]\nhide_other_users = true");
    daemon.signal(Signal::HUP);
    let before = interval(100)["polls"].as_u64().unwrap();
    eventually("the faster polls", || {
        let status = test_box.json(&["status", "-o", "json"]);
        (status["polls"].as_u64().unwrap() > before + 5).then_some(())
    });
    if can_run_as_other_users() {
        test_box.make_world_accessible();
        let hidden = run_as_user(NOBODY_UID, &[], || test_box.list());
        assert_eq!(hidden["procs"][0]["command"], Value::Null);
        test_box.configure("");
        daemon.signal(Signal::HUP);
        eventually("nothing is hidden any more", || {
            let shown = run_as_user(NOBODY_UID, &[], || test_box.list());
            (shown["procs"][0]["command"] == "python secret.py 1000").then_some(())
        });
    }
    daemon.stop();
}

#[test]
fn reload_keeps_old_settings_on_mistakes() {
    let test_box = TestBox::new();
    let daemon = test_box.start();
    std::fs::write(test_box.path("gpukilld.toml"), MISTAKES).unwrap();
    daemon.signal(Signal::HUP);
    let logged = || {
        let line = |line: &str| {
            let (_, mistake) = line.split_once(" mistake=")?;
            assert!(line.contains("ERROR settings not reloaded, the previous ones stay"));
            // The log quotes a field that has blanks, as all of these have.
            let mistake: String = serde_json::from_str(mistake).unwrap();
            Some(mistake + "\n")
        };
        daemon.log().lines().filter_map(line).collect::<String>()
    };
    eventually("each mistake is logged", || {
        (logged() == expected_mistakes(&test_box)).then_some(())
    });
    let status = test_box.json(&["status", "-o", "json"]);
    assert_eq!(status["poll_interval_ms"], 100);
    let kept = "mistakes in the settings: 4; the previous settings stay: gpukilld --check-config";
    eventually_equals(&vec![kept.to_owned()], || settings_faults(&test_box));
    test_box.configure("");
    daemon.signal(Signal::HUP);
    eventually("good settings are taken again", || {
        daemon.log().contains("settings reloaded").then_some(())
    });
    eventually_equals(&Vec::new(), || settings_faults(&test_box));
    test_box.configure("[access]\nowner_label = \"a.b\"\nhide_other_users = true\n");
    for _ in 0..2 {
        // The second reload changes nothing more, and the fault stays.
        daemon.signal(Signal::HUP);
        let waits = "changed, and applied at the next start: access.owner_label: systemctl \
        restart gpukilld";
        eventually_equals(&vec![waits.to_owned()], || settings_faults(&test_box));
    }
    daemon.stop();
}

fn settings_faults(test_box: &TestBox) -> Vec<String> {
    let status = test_box.json(&["status", "-o", "json"]);
    let faults = status["faults"].as_array().unwrap().iter();
    let faults = faults.filter(|fault| fault["part"] == "settings");
    faults
        .map(|fault| fault["what"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn personal_daemon_needs_no_root() {
    let test_box = TestBox::new();
    let root = rustix::process::geteuid().is_root();
    if root && !can_run_as_other_users() {
        return;
    }
    if !root {
        skip("not root: the personal daemon runs as this user only");
    }
    let process = TestProcess::start("python of.somebody");
    let usage = json!({"pid": process.pid(), "memory": 7});
    test_box.set_driver_state(&json!({"gpus": [{"processes": [usage]}]}));
    test_box.make_world_accessible();
    let (runtime, state, config) = (
        test_box.path("home/runtime"),
        test_box.path("home/state"),
        test_box.path("home/config"),
    );
    let socket = runtime.join("gpukill/gpukilld.sock");
    let begin = || {
        for directory in [&runtime, &config.join("gpukill")] {
            std::fs::create_dir_all(directory).unwrap();
        }
        let settings = format!(
            "[daemon]\npoll_interval = \"100ms\"\nforeign_pids = true\n[backends]\nnvidia_library \
            = {:?}\n",
            test_box.library()
        );
        std::fs::write(config.join("gpukill/gpukilld.toml"), settings).unwrap();
        // Without the settings of the test box.
        let mut command = Command::new(test_box.daemon_command().get_program());
        command
            .arg("--user")
            .env_clear()
            .env("HOME", test_box.path("home"))
            .env("XDG_RUNTIME_DIR", &runtime)
            .env("XDG_STATE_HOME", &state)
            .env("XDG_CONFIG_HOME", &config)
            .env("FAKE_NVML_STATE", test_box.path("state.json"));
        test_box.launch(&mut command, &socket)
    };
    let ask = |arguments: &[&str]| {
        let mut client = test_box.client_command(arguments);
        client.env_remove("GPUKILL_SOCKET");
        let ran = CommandOutput::run(client.env("XDG_RUNTIME_DIR", &runtime));
        assert_eq!(ran.code, 0, "{ran:?}");
        serde_json::from_str::<Value>(&ran.stdout).unwrap()
    };
    let owner = if root {
        for place in [test_box.directory(), &test_box.path("home")] {
            std::os::unix::fs::chown(place, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
        }
        NOBODY_UID
    } else {
        rustix::process::geteuid().as_raw()
    };
    let as_owner = |work: &(dyn Fn() -> Value + Sync)| {
        if root {
            run_as_user(owner, &[], work)
        } else {
            work()
        }
    };
    let daemon = if root {
        run_as_user(owner, &[], begin)
    } else {
        begin()
    };
    let list = as_owner(&|| {
        eventually("the first poll", || {
            let list = ask(&["list", "-o", "json"]);
            (list["gpus"] != json!([])).then_some(list)
        })
    });
    assert_eq!(list["procs"][0]["pid"], process.pid());
    assert_eq!(list["procs"][0]["used_mem_bytes"], 7);
    let status = as_owner(&|| ask(&["status", "-o", "json"]));
    assert_eq!(status["personal"], true);
    assert_eq!(status["uid"], owner);
    // The personal daemon has no right over processes of other users, so it gives none to
    // its callers.
    assert_eq!(status["rights"], json!(["look", "end_own", "edit_rules"]));
    if root {
        let refused = as_owner(&|| {
            let mut client = test_box.client_command(&["kill", &process.pid().to_string()]);
            client.env_remove("GPUKILL_SOCKET");
            let ran = CommandOutput::run(client.env("XDG_RUNTIME_DIR", &runtime));
            let hint = ran.stderr.lines().last().map(str::to_owned);
            json!([ran.code, hint])
        });
        assert_eq!(refused, json!([4, "hint: ask root"]));
    }
    assert_eq!(
        status["store_directory"],
        state.join("gpukill").to_str().unwrap()
    );
    assert_eq!(status["faults"], json!([]));
    let mode = std::fs::metadata(runtime.join("gpukill"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    daemon.stop();
    assert!(!socket.exists());
    assert!(state.join("gpukill/audit.db").exists());
}
