//! A full disk while a job is due to end, and free space afterwards.

use super::{
    GuardBox, MEMORY_RELEASE_TIME, RESPAWNING_JOB, guard_steps, guard_violations, last_outcome,
    recorded_kills, wait_for_polls,
};
use crate::store::disk_full::with_small_disk_for;
use gpukill_tests::harness::{
    FakeDriver, LoginTerminal, Script, can_run_as_other_users, eventually, eventually_equals,
    process_has_ended, run_as_user, test_uid,
};
use rustix::system::uname;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// No other test uses this user, so that no other test writes to these terminals.
const ALICE: u32 = test_uid(113);

const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";

/// The guard retries an enforcement that could not start after one minute. The test checks most
/// of this minute, and tolerates a delay after it.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(55);

#[test]
fn full_disk_delays_the_end() {
    if !can_run_as_other_users() {
        return;
    }
    let Some(test_box) = GuardBox::test_box_with_rules(RULES) else {
        return;
    };
    let mut daemon = test_box.daemon_command();
    daemon.env("GPUKILLD_GUARD_TERMINALS", "/dev");
    let Some(it) = with_small_disk_for(test_box, &daemon, "size=64m,mode=0755") else {
        return;
    };
    let driver = FakeDriver::start(&it.test_box, MEMORY_RELEASE_TIME);
    let login = LoginTerminal::new(ALICE);
    // Creates the links in the box's directory as root.
    drop(Script::run(&it.test_box, "true"));
    let job = run_as_user(ALICE, &[], || Script::run(&it.test_box, RESPAWNING_JOB));
    let [launcher, worker] = job.next_pids();
    let reserve = it.state_directory().join("reserve");
    eventually("the record has its reserve", || {
        reserve.exists().then_some(())
    });
    // The disk reserve is gone too.
    it.fill(0);
    std::fs::remove_file(&reserve).unwrap();
    it.fill(0);
    let started_at = Instant::now();
    driver.add_processes(&[worker]);

    let why = "its state cannot be saved: it ends no job, and a restart begins with an empty state";
    let open = || {
        let open = guard_violations(&it.test_box)["open"]
            .as_array()
            .unwrap()
            .clone();
        let fields = |it: &Value| json!([it["rule"], it["owner_uid"], it["ended_at"]]);
        open.iter().map(fields).collect::<Vec<_>>()
    };
    let of_guard = || {
        // No violation is shown as ended while no end is possible, neither before nor after the
        // attempt.
        assert!(open().iter().all(|it| it[2].is_null()), "{:?}", open());
        let faults = it.test_box.faults().into_iter();
        let of_guard = faults.filter(|(part, _)| part == "guard");
        of_guard.map(|(_, what)| what).collect::<Vec<_>>()
    };
    eventually_equals(&vec![why.to_owned()], of_guard);
    wait_for_polls(&it.test_box);
    assert!(!process_has_ended(launcher) && !process_has_ended(worker));
    let status = it.test_box.ctl(&["status"]).stdout;
    assert!(status.contains(why), "{status}");
    // The violation is shown without an end, and nothing is shown as recorded.
    assert_eq!(open(), [json!(["default: memory", ALICE, null])]);
    let document = guard_violations(&it.test_box);
    assert_eq!(document["records"], json!([]));
    assert_eq!(recorded_kills(&it.test_box), json!([]));

    std::fs::remove_file(it.state_directory().join("filler")).unwrap();
    eventually_equals(&Vec::<(String, String)>::new(), || it.test_box.faults());
    let not_done = "the current rules do not end it any more, or the decision cannot be stored";
    assert_eq!(last_outcome(&it.test_box), json!([0, 1, not_done]));
    while started_at.elapsed() < MIN_RETRY_DELAY {
        assert!(
            !process_has_ended(launcher) && !process_has_ended(worker),
            "it is too soon"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let all = super::steps_in_mode(
        "enforce",
        &["violated", "ended", "outcome", "ended", "outcome", "over"],
    );
    eventually_equals(&all, || guard_steps(&it.test_box));
    assert!(process_has_ended(launcher) && process_has_ended(worker));
    assert_eq!(last_outcome(&it.test_box), json!([2, 0, null]));
    assert_eq!(
        recorded_kills(&it.test_box),
        json!([["guard: default: memory", "done"]])
    );
    let output = String::from_utf8(login.into_output()).unwrap();
    let expected = [
        String::new(),
        format!(
            "gpukill on {} ends your job (tree {launcher})",
            host_name_on_terminal()
        ),
        "  rule      default: at most 512 MiB of memory in all, now 1.0 GiB".to_owned(),
        format!("  what      pid {worker} worker on GPU 0 (1.0 GiB)"),
        "  more      gpukillctl guard violations".to_owned(),
        String::new(),
    ];
    assert_eq!(output, expected.join("\r\r\n"));
    it.daemon.stop();
}

/// The host name as a message on a terminal shows it.
fn host_name_on_terminal() -> String {
    gpukill_proto::text::sanitize(uname().nodename().to_bytes(), 24)
}
