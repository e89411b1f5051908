//! A rule on verdicts: what is nearly proved to mine, and hides, is ended with its job,
//! and nobody who only looks odd.

use super::{Box, acted, all, goes_on};
use gpukill_tests::harness::{Troupe, becomes, copy_program, eventually, is_over};
use serde_json::json;
use std::path::PathBuf;

const RULES: &str = "[global]\ndry_run = false\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n\
    [[rules]]\nname = 'miners'\nrogue_risk = 'high'\naction = 'terminate'\n";

/// A directory in shared memory. Goes when it is dropped.
struct Shared(PathBuf);

impl Shared {
    fn new() -> Self {
        let directory = format!("/dev/shm/gpukill-rogues-{}", std::process::id());
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory.into())
    }

    /// A shell of this name.
    fn shell(&self, name: &str) -> String {
        let path = self.0.join(name);
        copy_program("/bin/sh", &path);
        path.display().to_string()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // It is of no use to anybody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn whoever_is_nearly_proved_to_mine_is_ended_and_whoever_only_looks_so_is_not() {
    let Some(it) = Box::by(RULES) else { return };
    let shared = Shared::new();
    let job = |shell: &str, arguments: &str| {
        let script = format!(
            "launcher -c 'echo $$; {shell} -c \"sleep 1000; true\" x {arguments} & echo $!; wait' \
            & wait; true"
        );
        let job = Troupe::run(&it.stage, &script);
        let [launcher, worker] = job.pids();
        it.driver.lists(&[worker]);
        (job, launcher, worker)
    };
    // Near a proof, and of nothing else: the pool alone. And what only lies there.
    let (_named, _, only_told) = job("/bin/sh", "-o stratum+tcp://pool.example:4444");
    let (_hidden, _, only_hidden) = job(&shared.shell("worker"), "");
    let (miner, launcher, worker) =
        job(&shared.shell("xmrig"), "-o stratum+tcp://pool.example:4444");
    let steps = ["violated", "ended", "acted", "over"];
    becomes(&all("enforce", &steps), || it.steps());
    becomes(&Vec::new(), || miner.left());
    assert!(is_over(launcher) && is_over(worker));
    assert_eq!(acted(&it.stage)[1], json!(0));
    assert_eq!(it.acts(), json!([["guard: rule miners: rogue", "done"]]));
    goes_on(&it.stage);
    assert!(!is_over(only_told) && !is_over(only_hidden));
    assert_eq!(it.steps(), all("enforce", &steps));
    // It is told what it was taken for.
    let document = super::violations(&it.stage);
    let records = document["records"].as_array().unwrap();
    let violated = records.iter().find(|it| it["step"] == "violated").unwrap();
    assert_eq!(violated["evidence"]["threat"], "crypto_miner");
    let found = eventually("it is found, and gone", || {
        let scanned = it.stage.json(&["rogue", "scan", "-o", "json"]);
        let mut found = scanned["findings"].as_array()?.clone().into_iter();
        found.find(|found| found["pid"] == worker && found["present"] == json!(false))
    });
    assert_eq!(found["verdicts"][0]["risk"], "critical");
    it.daemon.stop();
}
