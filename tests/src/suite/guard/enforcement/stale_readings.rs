//! A driver that hangs, or fails to list processes: the guard ends no process because of an
//! earlier reading.

use super::{GuardBox, RESPAWNING_JOB, guard_steps};
use gpukill_tests::harness::{Script, eventually, process_has_ended};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const RULES: &str = "[global]\ndry_run = false\n\
    [enforcement]\ngrace_period_seconds = 6\nmax_warnings = 1\n\
    [[rules]]\nname = \"idle\"\nidle_limit_minutes = \"2s\"\nservices = \"end\"\n";

#[test]
fn stale_readings_end_no_process() {
    let hangs = json!({"hang": ["nvmlDeviceGetTemperature"]});
    let fails = json!({"errors": {
        "nvmlDeviceGetComputeRunningProcesses_v3": 999,
        "nvmlDeviceGetGraphicsRunningProcesses_v3": 999,
    }});
    for broken in [hangs, fails] {
        let Some(test_box) = GuardBox::test_box_with_rules(RULES) else {
            return;
        };
        let job = Script::run(&test_box, RESPAWNING_JOB);
        let [_, worker] = job.next_pids();
        let gpu = json!({"processes": [{"pid": worker, "memory": super::super::GIB}]});
        let with = |more: &Value| {
            let mut gpu = gpu.clone();
            let fields = more.as_object().unwrap().clone();
            gpu.as_object_mut().unwrap().extend(fields);
            json!({"gpus": [gpu]})
        };
        test_box.set_driver_state(&with(&json!({})));
        let daemon = test_box.start();
        let is_step = |name: &str| guard_steps(&test_box).iter().any(|step| step[0] == name);
        eventually("a warning", || is_step("warned").then_some(()));
        let warned = Instant::now();
        test_box.set_driver_state(&with(&broken));
        // Long after the grace period, but before idleness would start again.
        while warned.elapsed() < Duration::from_secs(14) {
            assert!(!process_has_ended(worker), "it was ended: {broken}");
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(!is_step("ended"), "{:?}: {broken}", guard_steps(&test_box));
        test_box.set_driver_state(&with(&json!({})));
        eventually("it is ended by what is read then", || {
            process_has_ended(worker).then_some(())
        });
        daemon.stop();
    }
}
