//! Completions.

use gpukill_tests::harness::{Stage, skip};
use std::process::Command;

#[test]
fn each_shell_gets_completions_that_it_can_read() {
    let stage = Stage::new();
    for (shell, option) in [
        ("bash", "--watch"),
        ("zsh", "--watch"),
        ("fish", "-l watch"),
    ] {
        let ran = stage.ctl(&["completions", shell]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{shell}");
        for word in [option, "status", "audit", "ndjson"] {
            assert!(ran.stdout.contains(word), "{shell} has no {word}");
        }
        let script = stage.path(shell);
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
