//! A saved state that gpukilld refuses is replaced by one that it reads, and is a fault until an
//! admin has seen it.

use super::{GIB, guard_violations, set_gpu_processes, write_rules};
use gpukill_tests::harness::{TestBox, TestProcess, eventually, eventually_equals};
use rustix::process::geteuid;
use std::os::unix::fs::{MetadataExt as _, chown};

const FOREIGN_ID: u32 = 65_534;

#[test]
fn foreign_state_is_a_fault_until_it_is_removed() {
    let test_box = TestBox::new();
    let process = TestProcess::start("busy");
    write_rules(&test_box, "[global]\ndefault_memory_limit_gb = 2\n");
    set_gpu_processes(&test_box, &[(process.pid(), 3 * GIB)]);
    let daemon = test_box.start();
    eventually("the violation is open", || {
        let open = guard_violations(&test_box)["open"][0].clone();
        (open["rule"] == "default: memory").then_some(())
    });
    daemon.stop();
    let state = test_box.path("state/guard.json");
    if chown(&state, Some(FOREIGN_ID), Some(FOREIGN_ID)).is_err() {
        // Only root can give a file away.
        std::fs::write(&state, "theirs").unwrap();
    }
    let theirs = std::fs::read(&state).unwrap();

    let refused = test_box.path("state/guard.json.refused");
    let refusals = || {
        let faults = test_box.faults().into_iter();
        let refusals =
            faults.filter(|(part, what)| part == "guard" && what.contains("was refused"));
        refusals.map(|(_, what)| what).collect::<Vec<_>>()
    };
    // The second start reads the new state, and the fault is still there.
    for _ in 0..2 {
        let daemon = test_box.start();
        let found = eventually("the fault", || {
            let found = refusals();
            (!found.is_empty()).then_some(found)
        });
        let name = refused.display().to_string();
        assert!(found.len() == 1 && found[0].contains(&name), "{found:?}");
        let status = test_box.ctl(&["status"]).stdout;
        assert!(status.contains(&found[0]), "{status}");
        daemon.stop();
        assert_eq!(std::fs::read(&refused).unwrap(), theirs);
        let written = state.metadata().unwrap();
        let expected = (geteuid().as_raw(), 0o600);
        assert_eq!((written.uid(), written.mode() & 0o777), expected);
    }
    let daemon = test_box.start();
    eventually_equals(&1, || refusals().len());
    std::fs::remove_file(&refused).unwrap();
    eventually_equals(&0, || refusals().len());
    daemon.stop();
}
