//! `cargo demo` without a terminal: it runs to its end and leaves nothing behind.

use gpukill_tests::harness::{RunningProgram, Terminal, binaries, eventually, skip};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

/// Starts a demo with all its files in `directory`. Returns `None` where it would show the
/// machine's own GPUs.
fn start_demo(directory: &Path) -> Option<RunningProgram> {
    if has_real_gpus() {
        return None;
    }
    // Built before, so that the demo itself has nothing to build.
    binaries();
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.env("TMPDIR", directory).env("LC_ALL", "C.UTF-8");
    Some(RunningProgram::start(&mut command))
}

/// Whether the demo would show the machine's own GPUs.
fn has_real_gpus() -> bool {
    let files = ["/proc/driver/nvidia/version", "/dev/nvidiactl"];
    let has_driver = files.iter().any(|file| Path::new(file).exists());
    if has_driver {
        skip("this machine has real GPUs, which the demo shows instead of simulated ones");
    }
    has_driver
}

/// Waits until no process of the demo is left. All of them have its directory in their
/// environment.
fn wait_until_nothing_is_left(directory: &Path) {
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
fn demo_runs_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let Some(demo) = start_demo(directory.path()) else {
        return;
    };
    assert!(demo.next_line().starts_with("Building"));
    assert!(
        !processes_with(directory.path()).is_empty(),
        "the mark does not work"
    );
    let (code, lines, complaints) = demo.wait();
    assert_eq!((code, complaints), (0, Vec::new()));
    assert!(lines[0].contains("SIMULATED"), "{lines:#?}");
    // The lines after each command.
    let mut shown = lines.split(|line| line.starts_with("$ gpukillctl "));
    let row = |table: &[String], begin: &str| {
        let found = table.iter().find(|line| line.starts_with(begin));
        let found = found.unwrap_or_else(|| panic!("no {begin:?} in {table:#?}"));
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let [_, list, details, holders] = std::array::from_fn(|_| shown.next().unwrap_or_default());
    assert!(row(list, "   0 ").contains('█'), "{list:#?}");
    assert!(row(list, "   7 ").contains("35.6G unattributed"));
    assert!(row(details, "   0 ").ends_with("python train.py --model llama-70b --rank 0"));
    assert!(row(details, "   5 ").ends_with("python -m ipykernel_launcher -f kernel-9a.json"));
    assert_eq!(
        row(details, "   7 "),
        "7 – – 35.6G unattributed: gpukillctl holders --gpu 7"
    );
    let orphan = holders.iter().find(|line| line.contains("orphaned worker"));
    assert!(orphan.is_some(), "{holders:#?}");
    assert!(
        !lines.iter().any(|line| line.contains("fault")),
        "{lines:#?}"
    );
    wait_until_nothing_is_left(directory.path());
}

#[test]
fn interrupted_demo_leaves_nothing_behind() {
    for (signal, moment) in [
        (Signal::INT, "SIMULATED"),
        (Signal::TERM, "$ gpukillctl list"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let Some(demo) = start_demo(directory.path()) else {
            return;
        };
        while !demo.next_line().contains(moment) {}
        demo.signal(signal);
        let (code, _, complaints) = demo.wait();
        assert_eq!((code, complaints), (0, Vec::new()), "{moment}");
        wait_until_nothing_is_left(directory.path());
    }
}

#[test]
fn tour_runs_real_commands() {
    let directory = tempfile::tempdir().unwrap();
    if has_real_gpus() {
        return;
    }
    binaries();
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command
        .env("TMPDIR", directory.path())
        .env("LC_ALL", "C.UTF-8");
    command.env("SHELL", "/bin/sh");
    let Some(mut terminal) = Terminal::start(&command, 120, 40) else {
        return skip("this system has no setsid");
    };
    // 80 columns hold each line of the tour.
    let shown = terminal.read_until("Type a number for a tour");
    let tour = shown.lines().map(str::trim_end);
    let tour = tour.filter(|line| line.starts_with("  ") && line.contains("  gpukillctl "));
    let lengths: Vec<usize> = tour.map(|line| line.chars().count()).collect();
    assert!(
        lengths.len() == 7 && lengths.iter().all(|it| *it <= 80),
        "{shown}"
    );
    for (number, shown) in [
        ("3", "orphaned worker"),
        ("4", "ipykernel_launcher"),
        ("5", "train.py"),
        ("7", "polling"),
    ] {
        terminal.type_keys(&format!("{number}\n"));
        terminal.read_until("\n# ");
        terminal.read_until("$ gpukillctl ");
        terminal.read_until(shown);
    }
    terminal.type_keys("exit\n");
    assert_eq!(terminal.wait().code, 0);
    wait_until_nothing_is_left(directory.path());
}
