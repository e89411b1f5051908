//! The examples in the help of the commands that change nothing, run as a person types them.

use gpukill_tests::harness::{CommandOutput, TestBox, TestProcess, eventually};
use gpukillctl::args::examples;
use gpukillctl::exit::{Exit, command_exit_codes};
use serde_json::json;

/// The commands that only read.
const READING: &[&str] = &[
    "list",
    "status",
    "holders",
    "explain",
    "audit",
    "audit series",
    "audit actions",
    "audit timeline",
    "audit report",
    "audit export",
    "guard status",
    "guard violations",
    "guard test",
    "guard replay",
    "guard check",
    "guard config",
    "guard reference",
    "guard export",
    "rogue scan",
    "rogue config",
    "rogue check",
    "rogue reference",
    "rogue export",
    "completions",
];

/// The arguments of an example, without what belongs to the shell.
fn words(line: &str) -> Vec<String> {
    let line = line.split(" > ").next().unwrap_or_default();
    // The parts with an odd index are the quoted ones.
    let parts = line.split('"').enumerate();
    let words = parts.flat_map(|(place, part)| match place % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

#[test]
fn reading_examples_work_as_typed() {
    let test_box = TestBox::new();
    let directory = test_box.path("examples");
    std::fs::create_dir(&directory).unwrap();
    let process = TestProcess::start("python");
    let usage = json!({"pid": process.pid(), "memory": 1 << 30});
    // The examples name GPUs up to 6.
    let gpus = json!([{}, {}, {}, {}, {}, {"processes": [usage]}, {}, {}]);
    test_box.set_driver_state(&json!({"gpus": gpus}));
    let daemon = test_box.start();
    eventually("the process is listed", || {
        let list = test_box.list();
        (list["procs"][0]["pid"] == json!(process.pid())).then_some(())
    });
    eventually("a sample is recorded", || {
        let recorded = test_box.ctl(&["audit", "--samples", "--gpu", "5"]);
        (recorded.code == 0).then_some(())
    });
    let pid = process.pid().to_string();
    let (mut count, mut wrong) = (0, Vec::new());
    for path in READING {
        let names: Vec<&str> = path.split(' ').collect();
        if let kind @ ("guard" | "rogue") = names[0] {
            // The file that the examples of this kind read.
            let draft = test_box.ctl(&[kind, "reference"]).stdout;
            std::fs::write(directory.join("draft.toml"), draft).unwrap();
        }
        let documented: Vec<i32> = command_exit_codes(&names)
            .iter()
            .filter(|code| {
                let is_fault = [Exit::VendorFailed, Exit::BadUsage, Exit::Unreachable];
                !is_fault.contains(code)
            })
            .map(|code| *code as i32)
            .collect();
        for example in examples(&names) {
            let words = words(example.line);
            let arguments: Vec<&str> = words
                .iter()
                .map(|word| match word.as_str() {
                    "48213" | "51002" => pid.as_str(),
                    word => word,
                })
                // It never ends, and has scenarios of its own.
                .filter(|word| *word != "--watch")
                .collect();
            let mut client = test_box.client_command(&arguments);
            let ran = CommandOutput::run(client.current_dir(&directory));
            if !documented.contains(&ran.code) || ran.stderr.contains("Usage:") {
                wrong.push((example.line, ran));
            }
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count >= 2 * READING.len(), "only {count} were run");
    daemon.stop();
}
