//! A warning on the terminals of whoever is warned, real ones, by the real daemon.

use super::Box;
use gpukill_proto::text::visible;
use gpukill_tests::harness::{Login, Troupe, acting_as, can_act_as_others, eventually, user};
use serde_json::json;
use std::process::Command;

/// Nobody else of the tests: what is written to their terminals is this story's alone.
/// For the same reason it does not run as oneself, whose terminals may be anybody's.
const ALICE: u32 = user(111);
const BOB: u32 = user(112);

const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\ngrace_period_seconds = 600\nmax_warnings = 1\n";

/// A launcher at a terminal, whose worker calls itself what would colour that. Says the
/// worker's pid.
fn job_at(login: &Login) -> String {
    let terminal = login.path();
    format!(
        r#"ln -sf /bin/sleep "$HOME/$(printf 'work\033[31m')"
        setsid --ctty --wait launcher -c '
            "$HOME/$(printf "work\033[31m")" 1000 & echo $!; wait' <{terminal} 2>{terminal}"#
    )
}

#[test]
fn who_is_warned_reads_all_of_it_on_each_terminal_that_takes_messages() {
    if !can_act_as_others() {
        return;
    }
    let Some(stage) = Box::stage(RULES) else {
        return;
    };
    let mut daemon = stage.daemon();
    daemon.env("GPUKILLD_GUARD_TERMINALS", "/dev");
    daemon.env("TZ", "UTC");
    let it = Box::of(stage, &mut daemon);
    let [own, other, silent] = [(); 3].map(|()| Login::of(ALICE));
    silent.takes_no_messages();
    let strangers = Login::of(BOB);
    // What a troupe makes in the box's directory, root makes.
    drop(Troupe::run(&it.stage, "true"));
    let home = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(home.path(), Some(ALICE), None).unwrap();
    let job = acting_as(ALICE, &[], || {
        let mut script = Command::new("bash");
        script.args(["-c", &job_at(&own)]).env("HOME", home.path());
        Troupe::of(&it.stage, &mut script)
    });
    let [worker] = job.pids();
    let terminal = std::fs::read_link(format!("/proc/{worker}/fd/2")).unwrap();
    assert_eq!(terminal.to_str(), Some(own.path()));
    it.driver.lists(&[worker]);

    let warned = eventually("a warning", || {
        let document = super::violations(&it.stage);
        let records = document["records"].as_array().unwrap();
        records.iter().find(|it| it["step"] == "warned").cloned()
    });
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let host = rustix::system::uname();
    let host = visible(host.nodename().to_bytes(), 24);
    let at = when(&text(&warned["timestamp"]), &text(&warned["deadline"]));
    let job_shown = visible(text(&warned["evidence"]["procs"][0]["job"]).as_bytes(), 26);
    let expected = [
        String::new(),
        format!("gpukill on {host}: warning 1 of 1"),
        "  rule      default: at most 512 MiB of memory in all, now 1.0 GiB".to_owned(),
        format!("  what      pid {worker} work\\x1b[31m on GPU 0 (1.0 GiB)"),
        format!("  {at:<9} your job ({job_shown}) is ended if this goes on"),
        format!("  to do     free memory, or: gpukillctl guard snooze {worker}"),
        String::new(),
    ];
    // Two of four terminals took it: written to the log once all were tried.
    let told = eventually("it is logged", || {
        let log = it.daemon.log();
        let mut lines = log.lines().filter(|line| line.contains(" is told on "));
        lines.next().map(str::to_owned)
    });
    let (_, told) = told.split_once("  INFO ").unwrap();
    let logged = format!(
        "whoever breaks a rule is told on their terminals rule=\"default: memory\" \
         subject={} mode=soft uid={ALICE} action=warn terminals=2",
        quoted(&text(&warned["subject"]))
    );
    assert_eq!(told, logged);
    let shown = |login: Login| String::from_utf8(login.shown()).unwrap();
    for login in [own, other] {
        // The terminal itself makes \r\n of \n, as it does for everybody.
        assert_eq!(shown(login), expected.join("\r\r\n"));
    }
    assert_eq!([silent, strangers].map(shown), ["", ""]);
    // Nothing was done but that.
    assert_eq!(it.steps(), super::all("soft", &["violated", "warned"]));
    assert_eq!(it.acts(), json!([]));
    it.daemon.stop();
}

/// As a value of several words stands in the log.
fn quoted(text: &str) -> String {
    match text.contains(' ') {
        true => format!("{text:?}"),
        false => text.to_owned(),
    }
}

/// `at 14:37`, or `Tue 00:07` where that is another day's.
fn when(now: &str, deadline: &str) -> String {
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
