//! A rule on rogue verdicts: a process with strong evidence of hidden mining is ended with its
//! job; a process with weak evidence is not.

use super::{GuardBox, last_outcome, steps_in_mode, wait_for_polls};
use gpukill_tests::harness::{
    Script, copy_program, eventually, eventually_equals, process_has_ended,
};
use serde_json::json;
use std::path::PathBuf;

const RULES: &str = "[global]\ndry_run = false\n\
    [enforcement]\nsoft_enforcement = false\nhard_enforcement = true\n\
    [[rules]]\nname = 'miners'\nrogue_risk = 'high'\naction = 'terminate'\n";

/// A directory in shared memory. It is removed when dropped.
struct SharedMemoryDirectory(PathBuf);

impl SharedMemoryDirectory {
    fn new() -> Self {
        let directory = format!("/dev/shm/gpukill-rogues-{}", std::process::id());
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory.into())
    }

    /// A copy of the shell with this name.
    fn shell_named(&self, name: &str) -> String {
        let path = self.0.join(name);
        copy_program("/bin/sh", &path);
        path.display().to_string()
    }
}

impl Drop for SharedMemoryDirectory {
    fn drop(&mut self) {
        // No test needs the directory any more.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn likely_miner_is_ended_others_survive() {
    let Some(it) = GuardBox::with_rules(RULES) else {
        return;
    };
    let shared = SharedMemoryDirectory::new();
    let job = |shell: &str, arguments: &str| {
        let script = format!(
            "launcher -c 'echo $$; {shell} -c \"sleep 1000; true\" x {arguments} & echo $!; wait' \
            & wait; true"
        );
        let job = Script::run(&it.test_box, &script);
        let [launcher, worker] = job.next_pids();
        it.driver.add_processes(&[worker]);
        (job, launcher, worker)
    };
    // Two processes with one piece of evidence each: a mining pool, and an executable in shared
    // memory.
    let (_named, _, only_pool) = job("/bin/sh", "-o stratum+tcp://pool.example:4444");
    let (_hidden, _, only_hidden) = job(&shared.shell_named("worker"), "");
    let (miner, launcher, worker) = job(
        &shared.shell_named("xmrig"),
        "-o stratum+tcp://pool.example:4444",
    );
    let steps = ["violated", "ended", "outcome", "over"];
    eventually_equals(&steps_in_mode("enforce", &steps), || it.steps());
    eventually_equals(&Vec::new(), || miner.running_pids());
    assert!(process_has_ended(launcher) && process_has_ended(worker));
    assert_eq!(last_outcome(&it.test_box)[1], json!(0));
    assert_eq!(it.kills(), json!([["guard: rule miners: rogue", "done"]]));
    wait_for_polls(&it.test_box);
    assert!(!process_has_ended(only_pool) && !process_has_ended(only_hidden));
    assert_eq!(it.steps(), steps_in_mode("enforce", &steps));
    // The record names the threat.
    let document = super::guard_violations(&it.test_box);
    let records = document["records"].as_array().unwrap();
    let violated = records.iter().find(|it| it["step"] == "violated").unwrap();
    assert_eq!(violated["evidence"]["threat"], "crypto_miner");
    let found = eventually("it is found, and gone", || {
        let scanned = it.test_box.json(&["rogue", "scan", "-o", "json"]);
        let mut found = scanned["findings"].as_array()?.clone().into_iter();
        found.find(|found| found["pid"] == worker && found["present"] == json!(false))
    });
    assert_eq!(found["verdicts"][0]["risk"], "critical");
    it.daemon.stop();
}
