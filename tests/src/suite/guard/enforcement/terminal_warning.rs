//! Warnings on real terminals of the warned person.

use super::GuardBox;
use gpukill_proto::text::sanitize;
use gpukill_tests::harness::{
    LoginTerminal, Script, can_run_as_other_users, eventually, run_as_user, test_uid,
};
use serde_json::json;
use std::process::Command;

/// No other test uses these users, so that no other test writes to their terminals. The test
/// does not use the current user, because their terminals may be in use.
const ALICE: u32 = test_uid(111);
const BOB: u32 = test_uid(112);

const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\ngrace_period_seconds = 600\nmax_warnings = 1\n";

/// A launcher at a terminal. The worker's name contains an escape sequence for a color. Prints
/// the worker's pid.
fn job_on_terminal(login: &LoginTerminal) -> String {
    let terminal = login.path();
    format!(
        r#"ln -sf /bin/sleep "$HOME/$(printf 'work\033[31m')"
        setsid --ctty --wait launcher -c '
            "$HOME/$(printf "work\033[31m")" 1000 & echo $!; wait' <{terminal} 2>{terminal}"#
    )
}

#[test]
fn warning_reaches_every_open_terminal() {
    if !can_run_as_other_users() {
        return;
    }
    let Some(test_box) = GuardBox::test_box_with_rules(RULES) else {
        return;
    };
    let mut daemon = test_box.daemon_command();
    daemon.env("GPUKILLD_GUARD_TERMINALS", "/dev");
    daemon.env("TZ", "UTC");
    let it = GuardBox::start(test_box, &mut daemon);
    let [own, other, silent] = [(); 3].map(|()| LoginTerminal::new(ALICE));
    silent.refuse_messages();
    let strangers = LoginTerminal::new(BOB);
    // Creates the links in the box's directory as root.
    drop(Script::run(&it.test_box, "true"));
    let home = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(home.path(), Some(ALICE), None).unwrap();
    let job = run_as_user(ALICE, &[], || {
        let mut script = Command::new("bash");
        script
            .args(["-c", &job_on_terminal(&own)])
            .env("HOME", home.path());
        Script::spawn(&it.test_box, &mut script)
    });
    let [worker] = job.next_pids();
    let terminal = std::fs::read_link(format!("/proc/{worker}/fd/2")).unwrap();
    assert_eq!(terminal.to_str(), Some(own.path()));
    it.driver.add_processes(&[worker]);

    let warned = eventually("a warning", || {
        let document = super::guard_violations(&it.test_box);
        let records = document["records"].as_array().unwrap();
        records.iter().find(|it| it["step"] == "warned").cloned()
    });
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let host = rustix::system::uname();
    let host = sanitize(host.nodename().to_bytes(), 24);
    let at = time_shown(&text(&warned["timestamp"]), &text(&warned["deadline"]));
    let job_shown = sanitize(text(&warned["evidence"]["procs"][0]["job"]).as_bytes(), 26);
    let expected = [
        String::new(),
        format!("gpukill on {host}: warning 1 of 1"),
        "  rule      default: at most 512 MiB of memory in all, now 1.0 GiB".to_owned(),
        format!("  what      pid {worker} work\\x1b[31m on GPU 0 (1.0 GiB)"),
        format!("  {at:<9} your job ({job_shown}) is ended if this goes on"),
        format!("  to do     free memory, or: gpukillctl guard snooze {worker}"),
        String::new(),
    ];
    // Two of four terminals accept the message. The entry is logged after all were tried.
    let entry = eventually("it is logged", || {
        let log = it.daemon.log();
        let mut lines = log.lines().filter(|line| line.contains(" is notified on "));
        lines.next().map(str::to_owned)
    });
    let (_, entry) = entry.split_once("  INFO ").unwrap();
    let logged = format!(
        "the user who breaks a rule is notified on their terminals rule=\"default: memory\" \
         subject={} mode=soft uid={ALICE} action=warn terminals=2",
        log_value(&text(&warned["subject"]))
    );
    assert_eq!(entry, logged);
    let shown = |login: LoginTerminal| String::from_utf8(login.into_output()).unwrap();
    for login in [own, other] {
        // The terminal adds \r before
        // , as always.
        assert_eq!(shown(login), expected.join("\r\r\n"));
    }
    assert_eq!([silent, strangers].map(shown), ["", ""]);
    // A warning has no other effect.
    assert_eq!(
        it.steps(),
        super::steps_in_mode("soft", &["violated", "warned"])
    );
    assert_eq!(it.kills(), json!([]));
    it.daemon.stop();
}

/// A value with several words as the log shows it.
fn log_value(text: &str) -> String {
    match text.contains(' ') {
        true => format!("{text:?}"),
        false => text.to_owned(),
    }
}

/// `at 14:37`, or `Tue 00:07` on another day.
fn time_shown(now: &str, deadline: &str) -> String {
    let (day, of_day) = deadline.split_once('T').unwrap();
    let clock = &of_day[..5];
    if now.starts_with(day) {
        return format!("at {clock}");
    }
    let asked = Command::new("date")
        .args(["-u", "-d", deadline, "+%a"])
        .env("LC_ALL", "C")
        .output();
    let weekday = String::from_utf8(asked.unwrap().stdout).unwrap();
    format!("{} {clock}", weekday.trim())
}
