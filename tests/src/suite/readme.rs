//! What README and docs tell people to type works, or at least is a command.

use clap::Parser as _;
use clap::error::ErrorKind;
use gpukill_tests::harness::{Actor, Stage};
use gpukillctl::args::Cli;
use serde_json::json;
use std::path::{Path, PathBuf};

#[test]
fn the_first_five_commands_work_as_they_stand_there() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let section = readme.split("## The first five commands").nth(1).unwrap();
    let block = section.split("```").nth(1).unwrap();
    let commands: Vec<Vec<String>> = block.lines().filter_map(words).collect();
    assert_eq!(commands.len(), 5, "{commands:?}");

    let stage = Stage::new();
    let actor = Actor::start("python");
    let process = json!({"pid": actor.pid(), "memory": 1 << 30});
    stage.play(&json!({"gpus": [{"processes": [process]}, {}, {}, {}, {}, {}, {}]}));
    let daemon = stage.start();
    let pid = actor.pid().to_string();
    for command in commands {
        // It would never end; what it shows has stories of its own.
        // Whose job a test's process is part of may be the whole run of tests.
        assert!(command[0] != "kill" || command.contains(&"--dry-run".to_owned()));
        let arguments: Vec<&str> = command
            .iter()
            .map(|word| if word == "48213" { &pid } else { word.as_str() })
            .filter(|word| *word != "--watch")
            .collect();
        let ran = stage.ctl(&arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    }
    daemon.stop();
}

#[test]
fn every_command_that_people_read_of_is_one() {
    let (mut read, mut wrong) = (0, Vec::new());
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for (command, is_whole) in commands(&text) {
            read += 1;
            if let Some(why) = mistake(&command, is_whole) {
                wrong.push((page.clone(), command, why));
            }
        }
    }
    assert_eq!(wrong, Vec::new());
    assert!(read > 50, "only {read} were found");
}

/// Why this is no command, if it is none. One that is not told as a whole may lack
/// what it is about.
fn mistake(command: &[String], is_whole: bool) -> Option<ErrorKind> {
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

/// README and what lies in `docs`.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = std::fs::read_dir(root.join("docs")).unwrap();
    let docs = docs.map(|entry| entry.unwrap().path());
    let pages = docs.filter(|page| page.extension().is_some_and(|it| it == "md"));
    pages.chain([root.join("README.md")]).collect()
}

/// The commands of a page, and whether each is told as one to be typed: in a block
/// of lines it is, within a sentence it may be cut short.
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
        // What follows is the shell's.
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

/// The arguments of a line that shows a command; what follows two blanks is
/// its description.
fn words(line: &str) -> Option<Vec<String>> {
    let command = line.strip_prefix("gpukillctl ")?;
    let command = command.split("  ").next().unwrap_or_default();
    // Quoted parts stand at odd places.
    let parts = command.split('"').enumerate();
    let words = parts.flat_map(|(place, part)| match place % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    Some(words.collect())
}
