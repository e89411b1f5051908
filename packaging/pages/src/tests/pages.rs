//! The pages of the programs.

use super::{DATE, page_text};
use crate::roff::Page;
use crate::{client, daemon, files, gateway};
use clap::{Arg, Command, ValueEnum as _};
use gpukillctl::exit::Exit;
use std::collections::BTreeSet;

/// Every visible command with its full name; a walk independent of the product code.
fn commands(command: &Command, before: &str) -> Vec<(String, Command)> {
    let path = format!("{before}{}", command.get_name());
    let mut found = vec![(path.clone(), command.clone())];
    for below in command.get_subcommands() {
        if !below.is_hide_set() && below.get_name() != "help" {
            found.extend(commands(below, &format!("{path}-")));
        }
    }
    found
}

/// The programs' commands, each with the path of its page.
fn all() -> Vec<(String, Command)> {
    let of = |command: &Command, section: u8| {
        let page = |name: String| format!("man/man{section}/{name}.{section}");
        let found = commands(command, "").into_iter();
        found
            .map(|(name, command)| (page(name), command))
            .collect::<Vec<_>>()
    };
    let mut all = of(&client::built_command(), 1);
    all.extend(of(&daemon::built_command(), 8));
    all.extend(of(&daemon::helper_command(), 8));
    all.extend(of(&gateway::built_command(), 8));
    all
}

#[test]
fn every_command_has_a_page() {
    let expected: BTreeSet<String> = all().into_iter().map(|(path, _)| path).collect();
    for path in [
        "man/man1/gpukillctl.1",
        "man/man1/gpukillctl-guard-user-set.1",
        "man/man8/gpukilld.8",
        "man/man8/gpukill-reset.8",
    ] {
        assert!(expected.contains(path), "{path}");
    }
    let pages = files(DATE).into_keys();
    let pages = pages.map(|path| path.to_str().unwrap().to_owned());
    let of_programs = |path: &String| path.starts_with("man/") && !path.starts_with("man/man5/");
    assert_eq!(pages.filter(of_programs).collect::<BTreeSet<_>>(), expected);
}

#[test]
fn page_shows_what_help_shows() {
    let mut options = 0;
    for (path, command) in all() {
        let page = page_text(&path);
        let about = command.get_about().unwrap().to_string();
        let is_root = !["gpukillctl-", "gpukill-gateway-"]
            .iter()
            .any(|program| path.contains(program));
        for argument in command.get_arguments().filter(|it| !it.is_hide_set()) {
            let long = argument.get_long();
            let is_there = long.is_none_or(|long| page.contains(&format!(r"\fB--{long}\fR")));
            assert_eq!(
                is_there,
                is_root || !argument.is_global_set() || long.is_none(),
                "{path}: {long:?}"
            );
            if is_there && !argument.is_global_set() {
                let help = argument.get_long_help().or(argument.get_help());
                let help = help.unwrap().to_string();
                let first = help.lines().next().unwrap().split('`').next().unwrap();
                assert!(page.contains(first), "{path}: {first}");
                options += 1;
            }
        }
        let first = about.split(". ").next().unwrap().trim_end_matches('.');
        assert!(page.contains(&format!(" - {first}\n")), "{path}");
    }
    assert!(options > 300, "{options}");
}

#[test]
fn hidden_parts_are_nowhere() {
    for (path, text) in files(DATE) {
        let path = path.display();
        assert!(!text.contains("sensor over this NVML"), "{path}");
        assert!(!text.replace("\\-", "-").contains("--sensor"), "{path}");
    }
    // Options of other policies are hidden here.
    assert!(!page_text("man/man1/gpukillctl-guard-gpu-set.1").contains("--slurm-accounts"));
    assert!(page_text("man/man1/gpukillctl-guard-rule-set.1").contains("--slurm-accounts"));
    let mut command = Command::new("prog")
        .about("of a test")
        .arg(Arg::new("unseen").long("secret").hide(true))
        .subcommand(Command::new("known").about("it").hide(false))
        .subcommand(Command::new("covert").about("it").hide(true));
    command.build();
    let pages = client::pages_of(&command, DATE)
        .into_iter()
        .map(Page::into_file);
    let pages: Vec<_> = pages.collect();
    let paths: Vec<_> = pages
        .iter()
        .map(|(path, _)| path.to_str().unwrap())
        .collect();
    assert_eq!(paths, ["man/man1/prog.1", "man/man1/prog-known.1"]);
    for (path, text) in pages.iter() {
        let hidden = text.contains("secret") || text.contains("covert");
        assert!(!hidden, "{}: {text}", path.display());
    }
}

#[test]
fn exit_codes_match_the_docs() {
    let docs = include_str!("../../../../docs/client.md");
    let table = docs.split("## Exit codes").nth(1).unwrap();
    let in_docs: Vec<u8> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok())
        .collect();
    let codes: Vec<(u8, String)> = client::codes(Exit::value_variants()).collect();
    assert_eq!(
        in_docs,
        codes.iter().map(|(code, _)| *code).collect::<Vec<_>>()
    );
    assert_eq!(codes.len(), Exit::value_variants().len());
    let content = |path: &str| -> Vec<u8> {
        let page = page_text(path);
        let is_described = |(code, meaning): &&(u8, String)| {
            assert!(meaning.len() > 5, "{code}");
            page.contains(&format!(".TP\n\\fB{code}\\fR\n{meaning}\n"))
        };
        codes
            .iter()
            .filter(is_described)
            .map(|(code, _)| *code)
            .collect()
    };
    assert_eq!(content("man/man1/gpukillctl.1"), in_docs);
    // Each command lists only the codes that it can return.
    for (name, expected) in [
        ("completions", &[0, 1, 3][..]),
        ("guard-check", &[0, 1, 3]),
        ("guard-user-set", &[0, 1, 3, 4, 6]),
        ("audit", &[0, 1, 3, 4, 6, 8]),
        ("kill", &[0, 1, 2, 3, 4, 6, 7, 8]),
    ] {
        let path = format!("man/man1/gpukillctl-{name}.1");
        assert_eq!(content(&path), expected, "{name}");
    }
}

#[test]
fn every_runnable_command_has_examples() {
    let mut pages = 0;
    for (path, command) in all() {
        let does_something = !command.is_subcommand_required_set();
        if !path.contains("gpukillctl-") || !does_something {
            continue;
        }
        let page = page_text(&path);
        let (_, examples) = page.split_once(".SH \"EXAMPLES\"\n").unwrap();
        let name = path.trim_start_matches("man/man1/").trim_end_matches(".1");
        let first = examples.lines().nth(1).unwrap();
        // The name of a command may contain a dash.
        let first = first.replace([' ', '-'], ".");
        assert!(
            first.starts_with(&format!("\\fB{}", name.replace('-', "."))),
            "{first}"
        );
        pages += 1;
    }
    assert!(pages > 40, "{pages}");
    let page = page_text("man/man8/gpukilld.8");
    for (line, does) in daemon::EXAMPLES {
        assert!(
            daemon::command()
                .try_get_matches_from(["gpukilld", line])
                .is_ok(),
            "{line}"
        );
        assert!(
            page.contains(&format!(".TP\n\\fBgpukilld {line}\\fR\n{does}\n")),
            "{page}"
        );
    }
}

#[test]
fn every_referenced_page_exists() {
    let files = files(DATE);
    let mut pointers = 0;
    for (path, _) in files.iter().filter(|(path, _)| path.starts_with("man")) {
        let page = page_text(path.to_str().unwrap());
        assert!(
            page.contains("\n.SH \"SEE ALSO\"\n.BR "),
            "{}",
            path.display()
        );
        for line in page.lines().filter_map(|it| it.strip_prefix(".BR ")) {
            let (name, section) = line.split_once(" (").unwrap();
            let section = section.trim_end_matches([')', ',']);
            let other = format!("man/man{section}/{name}.{section}");
            assert!(files.contains_key(std::path::Path::new(&other)), "{other}");
            pointers += 1;
        }
    }
    assert!(pointers > 200, "{pointers}");
    let page = page_text("man/man1/gpukillctl-guard-user.1");
    let (_, others) = page.split_once(".SH \"SEE ALSO\"\n").unwrap();
    let others: Vec<&str> = others
        .lines()
        .map(|it| it.trim_start_matches(".BR "))
        .collect();
    // Parents, children and siblings.
    assert_eq!(
        others[..3],
        [
            "gpukillctl-guard (1),",
            "gpukillctl-guard-user-set (1),",
            "gpukillctl-guard-user-remove (1),"
        ]
    );
    assert!(others.contains(&"gpukillctl-guard-group (1),"));
    assert!(!others.contains(&"gpukillctl-guard-user (1),"));
}

#[test]
fn variables_and_files_match_the_programs() {
    let page = page_text("man/man1/gpukillctl.1");
    assert!(gpukillctl::setting_docs().count() >= 9);
    for documented in gpukillctl::setting_docs() {
        assert!(page.contains(&format!(
            "\\fB{}\\fR\n{}",
            documented.variable, documented.help
        )));
    }
    let of_help = |command: &Command, file: &str| {
        let mut arguments = command.get_arguments();
        let config = arguments.find(|it| it.get_id() == "config").unwrap();
        config.get_help().unwrap().to_string().contains(file)
    };
    assert!(of_help(&client::command(), client::SETTINGS));
    assert!(of_help(&daemon::command(), daemon::SETTINGS));
    let page = page_text("man/man8/gpukilld.8");
    for place in daemon::PATH_KEYS {
        let (path, _) = daemon::default_path(place).unwrap();
        assert!(path.starts_with('/'), "{path}");
        assert!(page.contains(&format!("\\fI{path}\\fR")), "{path}");
    }
}
