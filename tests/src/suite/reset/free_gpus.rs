//! GPUs without holders: reset, verified, recorded.

use super::{FIRST_GPU, FakeSystemd, ResetBox, SECOND_GPU};
use gpukill_tests::harness::{NOBODY_UID, can_run_as_other_users, eventually_equals, run_as_user};
use serde_json::{Value, json};

pub(super) fn gpu_ids(it: &ResetBox) -> Value {
    let list = it.test_box.list();
    let gpus = list["gpus"].as_array().unwrap().iter();
    gpus.map(|gpu| gpu["id"].clone()).collect()
}

/// The recorded resets: the request, and the result.
pub(super) fn recorded_resets(it: &ResetBox) -> Vec<(String, Option<String>)> {
    let database = crate::store::open_database(&it.test_box, "audit.db");
    let mut statement = database
        .prepare("SELECT request, result FROM action WHERE kind = 'reset' ORDER BY id")
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn free_gpu_is_reset_and_answers() {
    let it = ResetBox::new();
    it.set_driver_state(&json!({}), &json!({}));
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    eventually_equals(&json!(["GPU-a", "GPU-b"]), || gpu_ids(&it));
    let sensor = daemon.sensor_pid();
    let ran = it.reset(&["--gpu", "0", "--yes", "-o", "json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert_eq!(it.outcomes(&ran), json!([[0, "reset", null]]));
    assert_eq!(it.recorded_calls(), [format!("--gpu-reset -i {FIRST_GPU}")]);
    // The daemon ended the sensor for the reset and started another one.
    assert_ne!(daemon.sensor_pid(), sensor);
    assert_eq!(it.test_box.faults(), []);
    let people = it.reset(&["--gpu", "1", "--yes"]);
    assert_eq!(people.code, 0, "{people:?}");
    assert!(
        people
            .stdout
            .starts_with("GPU 1: reset, and it answers, after "),
        "{people:?}"
    );
    daemon.stop();
    assert_eq!(
        recorded_resets(&it),
        [
            ("--gpu \"0\"".to_owned(), Some("done".to_owned())),
            ("--gpu \"1\"".to_owned(), Some("done".to_owned()))
        ]
    );
}

#[test]
fn gpus_are_reset_in_turn_one_fails() {
    let it = ResetBox::new();
    it.install_tool(&format!(
        "case \"$*\" in *{SECOND_GPU}) echo no; exit 3;; esac; echo done"
    ));
    it.set_driver_state(&json!({}), &json!({}));
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    eventually_equals(&json!(["GPU-a", "GPU-b"]), || gpu_ids(&it));
    let ran = it.reset(&["--all", "--yes", "-o", "json"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    let why = "nvidia-smi ended with 3: this GPU, or its driver, has no reset: no";
    assert_eq!(
        it.outcomes(&ran),
        json!([[0, "reset", null], [1, "failed", why]])
    );
    let calls = [FIRST_GPU, SECOND_GPU].map(|address| format!("--gpu-reset -i {address}"));
    assert_eq!(it.recorded_calls(), calls);
    daemon.stop();
}

#[test]
fn dry_run_shows_everything_and_does_nothing() {
    let it = ResetBox::new();
    it.add_process(4711, "python", &["/dev/full"]);
    it.set_driver_state(&json!({"persistence": true}), &json!({"mig": true}));
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    eventually_equals(&json!(["GPU-a", "GPU-b"]), || gpu_ids(&it));
    let plan = it
        .test_box
        .json(&["reset", "--all", "--dry-run", "-o", "json"]);
    let gpus = plan["gpus"].as_array().unwrap();
    let reported: Vec<Value> = gpus
        .iter()
        .map(|gpu| {
            let blockers = gpu["blockers"].as_array().unwrap().iter();
            let blockers: Vec<Value> = blockers
                .map(|it| json!([it["pid"], it["what"], it["remedy"]]))
                .collect();
            json!([gpu["gpu_index"], gpu["planned_action"], blockers])
        })
        .collect();
    let mig = format!(
        "MIG mode: a reset may end it; switch it off first: nvidia-smi -i {SECOND_GPU} -mig 0"
    );
    let user = it.test_box.json(&["holders", "--gpu", "0", "-o", "json"]);
    let user = user["held_gpus"][0]["holders"][0]["user"].as_str().unwrap();
    assert_eq!(
        reported,
        [
            json!([
                0,
                "blocked",
                [
                    [4711, format!("{user}'s python (pid 4711)"), "force"],
                    [null, "persistence mode", "daemon"],
                    [null, "gpukilld's own sensor", "daemon"],
                ]
            ]),
            json!([
                1,
                "blocked",
                [
                    [null, mig, "person"],
                    [null, "gpukilld's own sensor", "daemon"],
                ]
            ]),
        ]
    );
    assert_eq!(it.recorded_calls(), [""; 0]);
    daemon.stop();
    assert_eq!(recorded_resets(&it), []);
}

#[test]
fn reset_without_terminal_needs_yes() {
    let it = ResetBox::new();
    it.set_driver_state(&json!({}), &json!({}));
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    eventually_equals(&json!(["GPU-a", "GPU-b"]), || gpu_ids(&it));
    let ran = it.reset(&["--gpu", "0"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.stderr
            .contains("nothing was reset: there is no terminal to ask on")
    );
    assert_eq!(it.recorded_calls(), [""; 0]);
    let none = it.reset(&["--gpu", "7", "--yes"]);
    assert_eq!(none.code, 3, "{none:?}");
    let none = it.reset(&["--gpu", "*no such*", "--yes"]);
    assert_eq!(none.code, 8, "{none:?}");
    daemon.stop();
}

#[test]
fn reset_needs_the_right_to_end_any() {
    if !can_run_as_other_users() {
        return;
    }
    let it = ResetBox::new();
    it.set_driver_state(&json!({}), &json!({}));
    it.test_box.make_world_accessible();
    let _systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    eventually_equals(&json!(["GPU-a", "GPU-b"]), || gpu_ids(&it));
    let ran = run_as_user(NOBODY_UID, &[], || it.reset(&["--gpu", "0", "--yes"]));
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(
        ran.stderr.starts_with("gpukillctl: cannot reset a GPU\n"),
        "{ran:?}"
    );
    assert_eq!(it.recorded_calls(), [""; 0]);
    daemon.stop();
    assert_eq!(
        recorded_resets(&it),
        [("--gpu \"0\"".to_owned(), Some("refused".to_owned()))]
    );
}
