//! The client over the real daemon, as people and programs use it.

mod examples;
mod exit_codes;
mod five_gpu_box;
mod screens;
mod selection;
mod settings;
mod watch;

use gpukill_tests::harness::{TestBox, skip};
use std::process::Command;

#[test]
fn each_shell_reads_its_completions() {
    let test_box = TestBox::new();
    for (shell, option) in [
        ("bash", "--watch"),
        ("zsh", "--watch"),
        ("fish", "-l watch"),
    ] {
        let ran = test_box.ctl(&["completions", shell]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{shell}");
        for word in [option, "status", "audit", "ndjson"] {
            assert!(ran.stdout.contains(word), "{shell} has no {word}");
        }
        let script = test_box.path(shell);
        std::fs::write(&script, ran.stdout).unwrap();
        match Command::new(shell).arg("-n").arg(&script).output() {
            Ok(output) => {
                let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success(), "{shell}: {complaints}");
            }
            Err(error) => skip(&format!("cannot check completions with {shell}: {error}")),
        }
    }
}
