//! `cargo demo`, off a terminal: tells its story, and leaves nothing behind.

use gpukill_tests::harness::{Stream, built, eventually, skip};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

/// A demo whose files lie in `directory` alone; none where it would show the
/// machine's own GPUs.
fn demo(directory: &Path) -> Option<Stream> {
    if Path::new("/proc/driver/nvidia/version").exists() || Path::new("/dev/nvidiactl").exists() {
        skip("this machine has real GPUs, which the demo shows instead of its story");
        return None;
    }
    // Built now, so that the demo itself has nothing to build.
    built();
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.env("TMPDIR", directory).env("LC_ALL", "C.UTF-8");
    Some(Stream::start(&mut command))
}

/// Waits until no process of the demo is left; all of them have its directory
/// in their environment.
fn nothing_is_left(directory: &Path) {
    eventually("every process of the demo ends", || {
        processes_with(directory).is_empty().then_some(())
    });
    let files: Vec<_> = std::fs::read_dir(directory).unwrap().collect();
    assert!(files.is_empty(), "{files:?}");
}

fn processes_with(directory: &Path) -> Vec<String> {
    let mark = directory.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let environment = |path: &Path| std::fs::read(path.join("environ")).unwrap_or_default();
    processes
        .map(|process| process.path())
        .filter(|path| String::from_utf8_lossy(&environment(path)).contains(mark))
        .map(|path| path.display().to_string())
        .collect()
}

#[test]
fn the_demo_tells_its_story_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let Some(demo) = demo(directory.path()) else {
        return;
    };
    assert!(demo.line().starts_with("Building"));
    assert!(
        !processes_with(directory.path()).is_empty(),
        "the mark does not work"
    );
    let (code, lines, complaints) = demo.end();
    assert_eq!((code, complaints), (0, Vec::new()));
    assert!(lines[0].contains("SIMULATED"), "{lines:#?}");
    let row = |begin: &str| {
        let found = lines.iter().find(|line| line.starts_with(begin));
        let found = found.unwrap_or_else(|| panic!("no {begin:?} in {lines:#?}"));
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("$ gpukillctl list"), "$ gpukillctl list --details");
    assert!(row("   0 ").ends_with("python train.py --model llama-70b --rank 0"));
    assert!(row("   5 ").ends_with("python -m ipykernel_launcher -f kernel-9a.json"));
    assert_eq!(row("   6 "), "6 – – 35.6G – – unattributed holders --gpu 6");
    assert!(row(" nvidia ").starts_with("nvidia 8 GPUs, driver 580.65.06, CUDA 13.0, "));
    assert!(row(" polling ").starts_with("polling every 1 s, "));
    assert!(
        !lines.iter().any(|line| line.contains("fault")),
        "{lines:#?}"
    );
    nothing_is_left(directory.path());
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing_behind_either() {
    for (signal, moment) in [
        (Signal::INT, "SIMULATED"),
        (Signal::TERM, "$ gpukillctl list"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let Some(demo) = demo(directory.path()) else {
            return;
        };
        while !demo.line().contains(moment) {}
        demo.signal(signal);
        let (code, _, complaints) = demo.end();
        assert_eq!((code, complaints), (0, Vec::new()), "{moment}");
        nothing_is_left(directory.path());
    }
}
