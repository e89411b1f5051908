//! What the README tells people to type works.

use gpukill_tests::harness::{Actor, Stage};
use serde_json::json;
use std::path::Path;

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
