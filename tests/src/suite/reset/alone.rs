//! GPUs that nobody holds: reset, verified, recorded.

use super::{Box, FIRST, SECOND, Systemd};
use gpukill_tests::harness::{NOBODY, acting_as, becomes, can_act_as_others};
use serde_json::{Value, json};

pub(super) fn names(it: &Box) -> Value {
    let list = it.stage.list();
    let gpus = list["gpus"].as_array().unwrap().iter();
    gpus.map(|gpu| gpu["id"].clone()).collect()
}

/// What the record of acts says of resets: asked, and the last word.
pub(super) fn recorded(it: &Box) -> Vec<(String, Option<String>)> {
    let database = rusqlite::Connection::open(it.stage.path("state/audit.db")).unwrap();
    let mut statement = database
        .prepare("SELECT asked, word FROM action WHERE kind = 'reset' ORDER BY id")
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_free_gpu_is_reset_and_answers_again() {
    let it = Box::new();
    it.play(&json!({}), &json!({}));
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    becomes(&json!(["GPU-a", "GPU-b"]), || names(&it));
    let sensor = daemon.sensor();
    let ran = it.reset(&["--gpu", "0", "--yes", "-o", "json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert_eq!(it.outcomes(&ran), json!([[0, "reset", null]]));
    assert_eq!(it.called(), [format!("--gpu-reset -i {FIRST}")]);
    // The sensor was ended for it, and there is another one.
    assert_ne!(daemon.sensor(), sensor);
    assert_eq!(it.stage.faults(), []);
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
        recorded(&it),
        [
            ("--gpu \"0\"".to_owned(), Some("done".to_owned())),
            ("--gpu \"1\"".to_owned(), Some("done".to_owned()))
        ]
    );
}

#[test]
fn all_gpus_are_reset_one_by_one_and_one_that_fails_leaves_a_part() {
    let it = Box::new();
    it.tool(&format!(
        "case \"$*\" in *{SECOND}) echo no; exit 3;; esac; echo done"
    ));
    it.play(&json!({}), &json!({}));
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    becomes(&json!(["GPU-a", "GPU-b"]), || names(&it));
    let ran = it.reset(&["--all", "--yes", "-o", "json"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    let why = "nvidia-smi ended with 3: this GPU, or its driver, has no reset: no";
    assert_eq!(
        it.outcomes(&ran),
        json!([[0, "reset", null], [1, "failed", why]])
    );
    let calls = [FIRST, SECOND].map(|address| format!("--gpu-reset -i {address}"));
    assert_eq!(it.called(), calls);
    daemon.stop();
}

#[test]
fn a_dry_run_tells_everything_and_does_nothing() {
    let it = Box::new();
    it.invent(4711, "python", &["/dev/full"]);
    it.play(&json!({"persistence": true}), &json!({"mig": true}));
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    becomes(&json!(["GPU-a", "GPU-b"]), || names(&it));
    let plan = it
        .stage
        .json(&["reset", "--all", "--dry-run", "-o", "json"]);
    let gpus = plan["gpus"].as_array().unwrap();
    let told: Vec<Value> = gpus
        .iter()
        .map(|gpu| {
            let blockers = gpu["blockers"].as_array().unwrap().iter();
            let blockers: Vec<Value> = blockers
                .map(|it| json!([it["pid"], it["what"], it["remedy"]]))
                .collect();
            json!([gpu["gpu_index"], gpu["fate"], blockers])
        })
        .collect();
    let mig =
        format!("MIG mode: a reset may end it; switch it off first: nvidia-smi -i {SECOND} -mig 0");
    let user = it.stage.json(&["holders", "--gpu", "0", "-o", "json"]);
    let user = user["held_gpus"][0]["holders"][0]["user"].as_str().unwrap();
    assert_eq!(
        told,
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
    assert_eq!(it.called(), [""; 0]);
    daemon.stop();
    assert_eq!(recorded(&it), []);
}

#[test]
fn without_a_terminal_and_without_yes_nothing_is_reset() {
    let it = Box::new();
    it.play(&json!({}), &json!({}));
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    becomes(&json!(["GPU-a", "GPU-b"]), || names(&it));
    let ran = it.reset(&["--gpu", "0"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.stderr
            .contains("nothing was reset: nobody can be asked here")
    );
    assert_eq!(it.called(), [""; 0]);
    let none = it.reset(&["--gpu", "7", "--yes"]);
    assert_eq!(none.code, 8, "{none:?}");
    daemon.stop();
}

#[test]
fn whoever_may_not_end_others_processes_may_not_reset_and_that_is_recorded() {
    if !can_act_as_others() {
        return;
    }
    let it = Box::new();
    it.play(&json!({}), &json!({}));
    it.stage.open_to_all();
    let _systemd = Systemd::of(&it);
    let daemon = it.start();
    becomes(&json!(["GPU-a", "GPU-b"]), || names(&it));
    let ran = acting_as(NOBODY, &[], || it.reset(&["--gpu", "0", "--yes"]));
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(
        ran.stderr.starts_with("gpukillctl: cannot reset a GPU\n"),
        "{ran:?}"
    );
    assert_eq!(it.called(), [""; 0]);
    daemon.stop();
    assert_eq!(
        recorded(&it),
        [("--gpu \"0\"".to_owned(), Some("refused".to_owned()))]
    );
}
