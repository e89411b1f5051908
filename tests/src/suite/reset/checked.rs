//! What the helper would refuse is known before anybody is ended.

use super::held::{holder, holders};
use super::{Box, FIRST, Systemd};
use gpukill_tests::harness::{Terminal, becomes};
use serde_json::{Value, json};

/// A GPU whose holder `--force` would end, and a plan that resets nothing: the
/// client says why, and nobody is ended.
fn ends_nobody(it: &Box, why: &str) {
    let mut actor = holder("exec sleep 1000");
    it.procfs.link(actor.pid());
    it.play(&json!({}), &json!({}));
    let _systemd = Systemd::of(it);
    let daemon = it.start();
    becomes(&json!([actor.pid()]), || holders(it));
    let blockers = json!([[actor.pid(), "force"], ["gpukilld's own sensor", "daemon"]]);
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
    assert!(actor.is_alive());
    assert_eq!(it.called(), [""; 0]);
    daemon.stop();
}

#[test]
fn force_ends_nobody_for_a_gpu_that_has_no_pci_device() {
    let it = Box::new();
    std::fs::remove_dir_all(it.stage.path(&format!("sys/bus/pci/devices/{FIRST}"))).unwrap();
    ends_nobody(&it, &format!("there is no PCI device {FIRST}"));
}

#[test]
fn force_ends_nobody_where_the_vendors_tool_is_not_there() {
    let it = Box::new();
    let tool = it.stage.path("nvidia-smi");
    std::fs::remove_file(&tool).unwrap();
    let why = "cannot be run: No such file or directory (os error 2)";
    ends_nobody(&it, &format!("{} {why}", tool.display()));
}

#[test]
fn force_ends_nobody_when_the_helper_can_reset_no_more_after_the_plan() {
    let it = Box::new();
    let mut actor = holder("exec sleep 1000");
    it.procfs.link(actor.pid());
    it.play(&json!({}), &json!({}));
    let systemd = Systemd::of(&it);
    let daemon = it.start();
    becomes(&json!([actor.pid()]), || holders(&it));
    // The plan is made, and then a person is asked.
    let client = it.stage.client(&["reset", "--gpu", "0", "--force"]);
    let mut terminal = Terminal::start(&client, 120, 40).expect("setsid is here");
    terminal.until("Reset it?");
    drop(systemd);
    terminal.types("y\r");
    let ran = terminal.end();
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(
        ran.stdout.contains("gpukill-reset does not answer"),
        "{ran:?}"
    );
    assert!(actor.is_alive());
    daemon.stop();
}

#[test]
fn without_the_helper_a_dry_run_names_who_and_what_is_in_the_way_and_the_helper_once() {
    let it = Box::new();
    it.invent(4711, "python", &["/dev/full"]);
    it.play(&json!({"persistence": true}), &json!({"mig": true}));
    let daemon = it.start();
    becomes(&json!([4711]), || holders(&it));
    let ran = it.reset(&["--all", "--dry-run", "-o", "json"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    let planned = it.planned(&ran);
    let why = format!(
        "gpukill-reset is not installed or not started: there is no socket {}",
        it.stage.path("reset.sock").display()
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
    // Without --dry-run it ends in the same way.
    let ran = it.reset(&["--gpu", "0", "--yes", "-o", "json"]);
    let refused: Value = it.planned(&ran);
    assert_eq!((ran.code, &refused[0][2]), (5, &json!(why)));
    daemon.stop();
}
