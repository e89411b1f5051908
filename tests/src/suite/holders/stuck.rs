//! A process that is stuck in the kernel: no command frees what it holds.

use super::{Box, GIB};
use gpukill_tests::harness::becomes;
use serde_json::json;

#[test]
fn one_that_is_stuck_in_the_driver_is_named_and_no_command_is_printed() {
    let it = Box::new();
    it.invent(1, "systemd", &[]);
    it.invent(4711, "python", &["/dev/full", "/dev/tty"]);
    it.turn(4711, "D");
    it.procfs.write(4711, "wchan", "nvidia_close");
    it.play(35 * GIB, &json!([]));
    let daemon = it.start();
    becomes(&json!([["uninterruptible", [4711], "wait", []]]), || {
        it.findings()
    });
    let holder = &it.held()["holders"][0];
    assert_eq!(holder["state"], "uninterruptible");
    assert_eq!(holder["waits_on"], "nvidia_close");
    assert_eq!(holder["reasons"]["waits_on"], json!(null));
    let screen = "  PID  USER    STATE      HOLDS                LISTED  WHAT IT IS
 4711  daemon  waits (D)  nvidia7, nvidia-uvm      no  python: stuck in nvidia_close

Most likely 1 process of daemon stuck in the kernel keeps its memory.
  - 4711 (python of daemon) waits in the kernel, in nvidia_close
  - no signal reaches it there
Wait: if it stays so, only a reboot frees it
";
    becomes(&screen.to_owned(), || it.screen());

    // It comes out of it, and does not close what it has open.
    it.turn(4711, "S");
    becomes(&json!([["unlisted", [4711], null, []]]), || it.findings());
    daemon.stop();
}

#[test]
fn one_that_waits_for_a_disk_is_told_of_like_one_that_waits_for_the_driver() {
    let it = Box::new();
    it.invent(4711, "python", &["/dev/full"]);
    it.turn(4711, "D");
    it.procfs.write(4711, "wchan", "folio_wait_bit");
    it.play(35 * GIB, &json!([]));
    let daemon = it.start();
    becomes(&json!([["uninterruptible", [4711], "wait", []]]), || {
        it.findings()
    });
    assert!(
        it.screen()
            .ends_with("Wait: if it stays so, only a reboot frees it\n")
    );
    // While the driver lists it with all of it, waiting is nobody's fault.
    it.play(35 * GIB, &json!([{"pid": 4711, "memory": 35 * GIB}]));
    becomes(&json!([[4711, "user"]]), || it.roles());
    assert_eq!(it.findings(), json!([]));
    daemon.stop();
}
