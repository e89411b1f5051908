//! The plan contains what the helper would refuse, so that no process is ended in vain.

use super::gpus_in_use::{holder_pids, start_holder};
use super::{FIRST_GPU, FakeSystemd, ResetBox};
use gpukill_tests::harness::{Terminal, eventually_equals};
use serde_json::{Value, json};

/// Asserts that the plan resets nothing for a GPU with a holder that `--force` would end: the
/// client reports `why`, and the holder lives on.
fn assert_holder_survives(it: &ResetBox, why: &str) {
    let mut process = start_holder("exec sleep 1000");
    it.procfs.link_real_process(process.pid());
    it.set_driver_state(&json!({}), &json!({}));
    let _systemd = FakeSystemd::new(it);
    let daemon = it.start();
    eventually_equals(&json!([process.pid()]), || holder_pids(it));
    let blockers = json!([
        [process.pid(), "force"],
        ["gpukilld's own sensor", "daemon"]
    ]);
    let planned = json!([[0, "unsupported", why, blockers]]);
    for more in ["--dry-run", "--yes"] {
        let ran = it.reset(&["--gpu", "0", "--force", more, "-o", "json"]);
        assert_eq!((ran.code, it.planned(&ran)), (5, planned.clone()), "{more}");
        let ran = it.reset(&["--gpu", "0", "--force", more]);
        let shown = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            shown.contains(&format!("cannot be reset: {why}")),
            "{ran:?}"
        );
    }
    assert!(process.is_alive());
    assert_eq!(it.recorded_calls(), [""; 0]);
    daemon.stop();
}

#[test]
fn force_spares_holders_without_pci_device() {
    let it = ResetBox::new();
    std::fs::remove_dir_all(
        it.test_box
            .path(&format!("sys/bus/pci/devices/{FIRST_GPU}")),
    )
    .unwrap();
    assert_holder_survives(&it, &format!("there is no PCI device {FIRST_GPU}"));
}

#[test]
fn force_spares_holders_without_vendor_tool() {
    let it = ResetBox::new();
    let tool = it.test_box.path("nvidia-smi");
    std::fs::remove_file(&tool).unwrap();
    let why = "cannot be run: No such file or directory (os error 2)";
    assert_holder_survives(&it, &format!("{} {why}", tool.display()));
}

#[test]
fn force_spares_holders_when_the_helper_is_lost() {
    let it = ResetBox::new();
    let mut process = start_holder("exec sleep 1000");
    it.procfs.link_real_process(process.pid());
    it.set_driver_state(&json!({}), &json!({}));
    let systemd = FakeSystemd::new(&it);
    let daemon = it.start();
    eventually_equals(&json!([process.pid()]), || holder_pids(&it));
    // The client shows the plan, and then asks for consent.
    let client = it
        .test_box
        .client_command(&["reset", "--gpu", "0", "--force"]);
    let mut terminal = Terminal::start(&client, 120, 40).expect("setsid is here");
    terminal.read_until("Reset it?");
    drop(systemd);
    terminal.type_keys("y\r");
    let ran = terminal.wait();
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(
        ran.stdout.contains("gpukill-reset does not answer"),
        "{ran:?}"
    );
    assert!(process.is_alive());
    daemon.stop();
}

#[test]
fn dry_run_without_helper_names_all_blockers() {
    let it = ResetBox::new();
    it.add_process(4711, "python", &["/dev/full"]);
    it.set_driver_state(&json!({"persistence": true}), &json!({"mig": true}));
    let daemon = it.start();
    eventually_equals(&json!([4711]), || holder_pids(&it));
    let ran = it.reset(&["--all", "--dry-run", "-o", "json"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    let planned = it.planned(&ran);
    let why = format!(
        "gpukill-reset is not installed or not started: there is no socket {}",
        it.test_box.path("reset.sock").display()
    );
    let sensor = json!(["gpukilld's own sensor", "daemon"]);
    let of_first = json!([[4711, "force"], ["persistence mode", "daemon"], sensor]);
    assert_eq!(planned[0], json!([0, "unsupported", why, of_first]));
    let mig = planned[1][3][0][0].as_str().unwrap();
    assert!(mig.starts_with("MIG mode: "), "{planned}");
    assert_eq!(planned[1][2], json!(why));
    let ran = it.reset(&["--all", "--dry-run"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    let shown = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        shown.matches("gpukill-reset is not installed").count(),
        1,
        "{ran:?}"
    );
    assert!(
        shown.contains("GPUs 0, 1 cannot be reset: gpukill-reset"),
        "{ran:?}"
    );
    assert!(shown.contains("python (pid 4711)"), "{ran:?}");
    // Without --dry-run the result is the same.
    let ran = it.reset(&["--gpu", "0", "--yes", "-o", "json"]);
    let refused: Value = it.planned(&ran);
    assert_eq!((ran.code, &refused[0][2]), (5, &json!(why)));
    daemon.stop();
}
