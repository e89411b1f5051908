//! The commands in README and docs work, or at least parse.

use clap::Parser as _;
use clap::error::ErrorKind;
use gpukill_tests::harness::{TestBox, TestProcess};
use gpukillctl::args::Cli;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[test]
fn first_five_commands_work() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let section = readme.split("## The first five commands").nth(1).unwrap();
    let block = section.split("```").nth(1).unwrap();
    let commands: Vec<Vec<String>> = block.lines().filter_map(words).collect();
    assert_eq!(commands.len(), 5, "{commands:?}");

    let test_box = TestBox::new();
    let process = TestProcess::start("python");
    let usage = json!({"pid": process.pid(), "memory": 1 << 30});
    test_box.set_driver_state(&json!({"gpus": [{"processes": [usage]}, {}, {}, {}, {}, {}, {}]}));
    let daemon = test_box.start();
    let pid = process.pid().to_string();
    for command in commands {
        // `--watch` never ends and has scenarios of its own. The job of a test process may
        // be the whole test run, so `kill` must be a dry run.
        assert!(command[0] != "kill" || command.contains(&"--dry-run".to_owned()));
        let arguments: Vec<&str> = command
            .iter()
            .map(|word| if word == "48213" { &pid } else { word.as_str() })
            .filter(|word| *word != "--watch")
            .collect();
        let ran = test_box.ctl(&arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    }
    daemon.stop();
}

#[test]
fn every_documented_command_parses() {
    let (mut read, mut wrong) = (0, Vec::new());
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for (command, is_whole) in commands(&text) {
            read += 1;
            if let Some(why) = parse_error(&command, is_whole) {
                wrong.push((page.clone(), command, why));
            }
        }
    }
    assert_eq!(wrong, Vec::new());
    assert!(read > 50, "only {read} were found");
}

/// Why this is no valid command, or `None`. A command shown only in part may lack required
/// arguments.
fn parse_error(command: &[String], is_whole: bool) -> Option<ErrorKind> {
    let program = "gpukillctl".to_owned();
    let typed = std::iter::once(&program).chain(command);
    let kind = Cli::try_parse_from(typed).err()?.kind();
    let is_fine = match kind {
        ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => !is_whole,
        _ => false,
    };
    (!is_fine).then_some(kind)
}

/// README and the pages in `docs`.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = std::fs::read_dir(root.join("docs")).unwrap();
    let docs = docs.map(|entry| entry.unwrap().path());
    let pages = docs.filter(|page| page.extension().is_some_and(|it| it == "md"));
    pages.chain([root.join("README.md")]).collect()
}

/// The commands of a page, and whether each is complete: a command in a code block is, a
/// command within a sentence may be cut short.
fn commands(page: &str) -> Vec<(Vec<String>, bool)> {
    let mut found = Vec::new();
    for (place, part) in page.split("```").enumerate() {
        if place % 2 == 1 {
            let lines = part
                .lines()
                .map(|line| line.trim_start_matches(['$', '#', ' ']));
            found.extend(lines.filter_map(words).map(|command| (command, true)));
        } else {
            let spans = part.split('`').skip(1).step_by(2);
            found.extend(spans.filter_map(words).map(|command| (command, false)));
        }
    }
    found.retain(|(command, _)| !command.iter().any(|word| word.contains('…')));
    for (command, _) in &mut found {
        // The rest belongs to the shell.
        let end = command.iter().position(|word| word == ">" || word == "|");
        command.truncate(end.unwrap_or(command.len()));
    }
    for word in found.iter_mut().flat_map(|(command, _)| command) {
        if word == "PID" || word == "N" {
            "1".clone_into(word);
        }
    }
    found
}

/// The arguments of a line that shows a command. Two blanks start its description.
fn words(line: &str) -> Option<Vec<String>> {
    let command = line.strip_prefix("gpukillctl ")?;
    let command = command.split("  ").next().unwrap_or_default();
    // The parts with an odd index are the quoted ones.
    let parts = command.split('"').enumerate();
    let words = parts.flat_map(|(place, part)| match place % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    Some(words.collect())
}

/// The options of gpu-kill 0.1, from the command reference in its `DETAILED.md`, with `--dry-run`,
/// `--safe` and `--open` from its `--help`.
const OPTIONS_OF_GPU_KILL: &str = "
    all audit audit-hours audit-process audit-summary audit-user batch config containers details
    dry-run filter force gpu guard guard-add-gpu guard-add-group guard-add-user guard-config
    guard-disable guard-dry-run guard-enable guard-enforce guard-export-config
    guard-gpu-allowed-users guard-gpu-memory-limit guard-gpu-reserved-memory
    guard-gpu-utilization-limit guard-group-members guard-group-memory-limit
    guard-group-process-limit guard-group-utilization-limit guard-import-config guard-memory-limit
    guard-process-limit guard-remove-gpu guard-remove-group guard-remove-user guard-test-policies
    guard-toggle-dry-run guard-utilization-limit help kill list log-level open output pid
    register-node remote reset rogue rogue-confidence-threshold rogue-config
    rogue-duration-threshold rogue-export-config rogue-import-config rogue-memory-threshold
    rogue-unwhitelist-process rogue-unwhitelist-user rogue-utilization-threshold
    rogue-whitelist-process rogue-whitelist-user safe server server-host server-port ssh-key
    ssh-password ssh-port ssh-timeout ssh-user timeout-secs vendor version watch";

#[test]
fn every_option_of_gpu_kill_is_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/from-gpu-kill.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut documented = BTreeSet::new();
    for title in ["\n## Commands\n", "\n## Options\n"] {
        let (_, section) = page.split_once(title).unwrap();
        let section = section.split("\n## ").next().unwrap();
        for row in section.lines().filter(|line| line.starts_with("| ")) {
            // The first cell is gpu-kill's; the last one must say something.
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            assert!(cells.len() == 2 && !cells[1].is_empty(), "{row}");
            let words = cells[0].split([' ', '`', ',']);
            documented.extend(words.filter_map(|word| word.strip_prefix("--")));
        }
    }
    let theirs: BTreeSet<&str> = OPTIONS_OF_GPU_KILL.split_whitespace().collect();
    assert_eq!(documented, theirs);
}
