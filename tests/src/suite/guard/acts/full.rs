//! A disk that is full while a job is to be ended, and has room again.

use super::{Box, JOB, TEARDOWN, acted, acts, goes_on, steps, violations};
use crate::store::full::small_for;
use gpukill_tests::harness::{
    Driver, Login, Troupe, acting_as, becomes, can_act_as_others, eventually, is_over, user,
};
use rustix::system::uname;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Nobody else of the tests: what is written to their terminals is this story's alone.
const ALICE: u32 = user(113);

const RULES: &str = "[global]\ndry_run = false\ndefault_memory_limit_gb = 0.5\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n";

/// What could not be begun is chosen again a minute later: this story waits for the most
/// of it, and is patient with the rest.
const NEARLY_A_MINUTE: Duration = Duration::from_secs(55);

#[test]
fn while_the_disk_is_full_nobody_is_ended_and_once_there_is_room_the_job_is_once() {
    if !can_act_as_others() {
        return;
    }
    let Some(stage) = Box::stage(RULES) else {
        return;
    };
    let mut daemon = stage.daemon();
    daemon.env("GPUKILLD_GUARD_TERMINALS", "/dev");
    let Some(it) = small_for(stage, &daemon, "size=64m,mode=0755") else {
        return;
    };
    let driver = Driver::start(&it.stage, TEARDOWN);
    let login = Login::of(ALICE);
    // What a troupe makes in the box's directory, root makes.
    drop(Troupe::run(&it.stage, "true"));
    let job = acting_as(ALICE, &[], || Troupe::run(&it.stage, JOB));
    let [launcher, worker] = job.pids();
    let reserve = it.state().join("reserve");
    eventually("the record has its reserve", || {
        reserve.exists().then_some(())
    });
    // Not even what is kept for such a day is there.
    it.fill(0);
    std::fs::remove_file(&reserve).unwrap();
    it.fill(0);
    let begun = Instant::now();
    driver.lists(&[worker]);

    let why = "what it remembers cannot be written down: it ends nobody, and a restart begins anew";
    let open = || {
        let open = violations(&it.stage)["open"].as_array().unwrap().clone();
        let fields = |it: &Value| json!([it["rule"], it["owner_uid"], it["ended_at"]]);
        open.iter().map(fields).collect::<Vec<_>>()
    };
    let of_guard = || {
        // Nothing is said to be ended that is not: neither now nor before it is tried.
        assert!(open().iter().all(|it| it[2].is_null()), "{:?}", open());
        let faults = it.stage.faults().into_iter();
        let of_guard = faults.filter(|(part, _)| part == "guard");
        of_guard.map(|(_, what)| what).collect::<Vec<_>>()
    };
    becomes(&vec![why.to_owned()], of_guard);
    goes_on(&it.stage);
    assert!(!is_over(launcher) && !is_over(worker));
    let status = it.stage.ctl(&["status"]).stdout;
    assert!(status.contains(why), "{status}");
    // The violation is shown, and no end; nothing is said to be recorded that is not.
    assert_eq!(open(), [json!(["default: memory", ALICE, null])]);
    let document = violations(&it.stage);
    assert_eq!(document["records"], json!([]));
    assert_eq!(acts(&it.stage), json!([]));

    std::fs::remove_file(it.state().join("filler")).unwrap();
    becomes(&Vec::<(String, String)>::new(), || it.stage.faults());
    let not_done = "it is not to be ended any more by the rules as they are now, \
                    or that cannot be written down";
    assert_eq!(acted(&it.stage), json!([0, 1, not_done]));
    while begun.elapsed() < NEARLY_A_MINUTE {
        assert!(!is_over(launcher) && !is_over(worker), "it is too soon");
        std::thread::sleep(Duration::from_millis(100));
    }
    let all = super::all(
        "enforce",
        &["violated", "ended", "acted", "ended", "acted", "over"],
    );
    becomes(&all, || steps(&it.stage));
    assert!(is_over(launcher) && is_over(worker));
    assert_eq!(acted(&it.stage), json!([2, 0, null]));
    assert_eq!(acts(&it.stage), json!([["guard: default: memory", "done"]]));
    let told = String::from_utf8(login.shown()).unwrap();
    let expected = [
        String::new(),
        format!("gpukill on {} ends your job (tree {launcher})", host()),
        "  rule      default: at most 512 MiB of memory in all, now 1.0 GiB".to_owned(),
        format!("  what      pid {worker} worker on GPU 0 (1.0 GiB)"),
        "  more      gpukillctl guard violations".to_owned(),
        String::new(),
    ];
    assert_eq!(told, expected.join("\r\r\n"));
    it.daemon.stop();
}

/// As a text on a terminal has it.
fn host() -> String {
    gpukill_proto::text::visible(uname().nodename().to_bytes(), 24)
}
