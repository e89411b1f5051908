//! A driver that hangs, or whose list of processes fails: nobody is ended for what was read
//! before.

use super::{Box, JOB, steps};
use gpukill_tests::harness::{Troupe, eventually, is_over};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const RULES: &str = "[global]\ndry_run = false\n\
    [enforcement]\ngrace_period_seconds = 6\nmax_warnings = 1\n\
    [[rules]]\nname = \"idle\"\nidle_limit_minutes = \"2s\"\nservices = \"end\"\n";

#[test]
fn nobody_is_ended_while_the_driver_tells_nothing() {
    let hangs = json!({"hang": ["nvmlDeviceGetTemperature"]});
    let fails = json!({"errors": {
        "nvmlDeviceGetComputeRunningProcesses_v3": 999,
        "nvmlDeviceGetGraphicsRunningProcesses_v3": 999,
    }});
    for broken in [hangs, fails] {
        let Some(stage) = Box::stage(RULES) else {
            return;
        };
        let job = Troupe::run(&stage, JOB);
        let [_, worker] = job.pids();
        let gpu = json!({"processes": [{"pid": worker, "memory": super::super::GIB}]});
        let with = |more: &Value| {
            let mut gpu = gpu.clone();
            let fields = more.as_object().unwrap().clone();
            gpu.as_object_mut().unwrap().extend(fields);
            json!({"gpus": [gpu]})
        };
        stage.play(&with(&json!({})));
        let daemon = stage.start();
        let is_step = |name: &str| steps(&stage).iter().any(|step| step[0] == name);
        eventually("a warning", || is_step("warned").then_some(()));
        let warned = Instant::now();
        stage.play(&with(&broken));
        // Long after the grace, and not so long that idleness would begin anew.
        while warned.elapsed() < Duration::from_secs(14) {
            assert!(!is_over(worker), "it was ended: {broken}");
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(!is_step("ended"), "{:?}: {broken}", steps(&stage));
        stage.play(&with(&json!({})));
        eventually("it is ended by what is read then", || {
            is_over(worker).then_some(())
        });
        daemon.stop();
    }
}
