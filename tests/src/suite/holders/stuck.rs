//! A process in uninterruptible sleep in the kernel: no command frees what it holds.

use super::{GIB, HoldersBox};
use gpukill_tests::harness::eventually_equals;
use serde_json::json;

#[test]
fn process_stuck_in_driver_has_no_command() {
    let it = HoldersBox::new();
    it.add_process(1, "systemd", &[]);
    it.add_process(4711, "python", &["/dev/full", "/dev/tty"]);
    it.set_process_state(4711, "D");
    it.procfs.write(4711, "wchan", "nvidia_close");
    it.set_driver_state(35 * GIB, &json!([]));
    let daemon = it.start();
    eventually_equals(&json!([["uninterruptible", [4711], "wait", []]]), || {
        it.findings()
    });
    let holder = &it.first_gpu_document()["holders"][0];
    assert_eq!(holder["state"], "uninterruptible");
    assert_eq!(holder["waits_on"], "nvidia_close");
    assert_eq!(holder["reasons"]["waits_on"], json!(null));
    let screen = "  PID  USER    STATE      HOLDS                LISTED  WHAT IT IS
 4711  daemon  waits (D)  nvidia7, nvidia-uvm      no  python: stuck in nvidia_close

Most likely 1 process of daemon stuck in the kernel keeps its memory.
  - 4711 (python of daemon) waits in the kernel, in nvidia_close
  - no signal reaches it in this state
Wait: if it stays so, only a reboot frees it
";
    eventually_equals(&screen.to_owned(), || it.screen());

    // The process wakes up, and keeps its files open.
    it.set_process_state(4711, "S");
    eventually_equals(&json!([["unlisted", [4711], null, []]]), || it.findings());
    daemon.stop();
}

#[test]
fn process_waiting_for_disk_is_reported_alike() {
    let it = HoldersBox::new();
    it.add_process(4711, "python", &["/dev/full"]);
    it.set_process_state(4711, "D");
    it.procfs.write(4711, "wchan", "folio_wait_bit");
    it.set_driver_state(35 * GIB, &json!([]));
    let daemon = it.start();
    eventually_equals(&json!([["uninterruptible", [4711], "wait", []]]), || {
        it.findings()
    });
    assert!(
        it.screen()
            .ends_with("Wait: if it stays so, only a reboot frees it\n")
    );
    // While the driver lists the process with all of the memory, its waiting is no finding.
    it.set_driver_state(35 * GIB, &json!([{"pid": 4711, "memory": 35 * GIB}]));
    eventually_equals(&json!([[4711, "user"]]), || it.roles());
    assert_eq!(it.findings(), json!([]));
    daemon.stop();
}
