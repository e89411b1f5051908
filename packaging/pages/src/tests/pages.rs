//! The pages of the programs.

use super::{DATE, said};
use crate::roff::Page;
use crate::{client, daemon, files};
use clap::{Arg, Command, ValueEnum as _};
use gpukillctl::exit::Exit;
use std::collections::BTreeSet;

/// Every command that the help shows, with the names before it: walked here by itself.
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
    let mut all = of(&client::built(), 1);
    all.extend(of(&daemon::built(), 8));
    all.extend(of(&daemon::helper(), 8));
    all
}

#[test]
fn there_is_a_page_for_every_command_and_no_other() {
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
fn what_the_help_shows_is_on_the_page() {
    let mut options = 0;
    for (path, command) in all() {
        let page = said(&path);
        let about = command.get_about().unwrap().to_string();
        let is_root = !path.contains("gpukillctl-");
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
fn what_the_help_hides_is_nowhere() {
    for (path, text) in files(DATE) {
        let path = path.display();
        assert!(!text.contains("sensor over this NVML"), "{path}");
        assert!(!text.replace("\\-", "-").contains("--sensor"), "{path}");
    }
    // What other policies have, this one hides.
    assert!(!said("man/man1/gpukillctl-guard-gpu-set.1").contains("--slurm-accounts"));
    assert!(said("man/man1/gpukillctl-guard-rule-set.1").contains("--slurm-accounts"));
    let mut command = Command::new("prog")
        .about("of a test")
        .arg(Arg::new("unseen").long("secret").hide(true))
        .subcommand(Command::new("known").about("it").hide(false))
        .subcommand(Command::new("covert").about("it").hide(true));
    command.build();
    let pages = client::of(&command, DATE).into_iter().map(Page::into_file);
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
fn every_exit_code_is_told_as_the_readme_has_it() {
    let readme = include_str!("../../../../README.md");
    let told = readme
        .lines()
        .find_map(|it| it.strip_prefix("Exit codes: "));
    let in_readme: Vec<u8> = told
        .unwrap()
        .split(" · ")
        .map(|it| it.split_once(' ').unwrap().0.parse().unwrap())
        .collect();
    let codes: Vec<(u8, String)> = client::codes(Exit::value_variants()).collect();
    assert_eq!(
        in_readme,
        codes.iter().map(|(code, _)| *code).collect::<Vec<_>>()
    );
    assert_eq!(codes.len(), Exit::value_variants().len());
    let told = |path: &str| -> Vec<u8> {
        let page = said(path);
        let is_told = |(code, meaning): &&(u8, String)| {
            assert!(meaning.len() > 5, "{code}");
            page.contains(&format!(".TP\n\\fB{code}\\fR\n{meaning}\n"))
        };
        codes
            .iter()
            .filter(is_told)
            .map(|(code, _)| *code)
            .collect()
    };
    assert_eq!(told("man/man1/gpukillctl.1"), in_readme);
    // Of a command those that it can give.
    for (name, expected) in [
        ("completions", &[0, 1, 3][..]),
        ("guard-check", &[0, 1, 3]),
        ("guard-user-set", &[0, 1, 3, 4, 6]),
        ("audit", &[0, 1, 3, 4, 6, 8]),
        ("kill", &[0, 1, 2, 3, 4, 6, 7, 8]),
    ] {
        let path = format!("man/man1/gpukillctl-{name}.1");
        assert_eq!(told(&path), expected, "{name}");
    }
}

#[test]
fn every_command_that_does_something_has_its_examples() {
    let mut pages = 0;
    for (path, command) in all() {
        let does_something = !command.is_subcommand_required_set();
        if !path.contains("gpukillctl-") || !does_something {
            continue;
        }
        let page = said(&path);
        let (_, examples) = page.split_once(".SH \"EXAMPLES\"\n").unwrap();
        let name = path.trim_start_matches("man/man1/").trim_end_matches(".1");
        let first = examples.lines().nth(1).unwrap();
        // A command's own name may have a dash.
        let first = first.replace([' ', '-'], ".");
        assert!(
            first.starts_with(&format!("\\fB{}", name.replace('-', "."))),
            "{first}"
        );
        pages += 1;
    }
    assert!(pages > 40, "{pages}");
    let page = said("man/man8/gpukilld.8");
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
fn every_page_that_another_points_to_is_there() {
    let files = files(DATE);
    let mut pointers = 0;
    for (path, _) in files.iter().filter(|(path, _)| path.starts_with("man")) {
        let page = said(path.to_str().unwrap());
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
    let page = said("man/man1/gpukillctl-guard-user.1");
    let (_, others) = page.split_once(".SH \"SEE ALSO\"\n").unwrap();
    let others: Vec<&str> = others
        .lines()
        .map(|it| it.trim_start_matches(".BR "))
        .collect();
    // Above, below, beside.
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
fn variables_and_files_are_those_of_the_programs() {
    let page = said("man/man1/gpukillctl.1");
    assert!(gpukillctl::told().count() >= 9);
    for told in gpukillctl::told() {
        assert!(page.contains(&format!("\\fB{}\\fR\n{}", told.variable, told.help)));
    }
    let of_help = |command: &Command, file: &str| {
        let mut arguments = command.get_arguments();
        let config = arguments.find(|it| it.get_id() == "config").unwrap();
        config.get_help().unwrap().to_string().contains(file)
    };
    assert!(of_help(&client::command(), client::SETTINGS));
    assert!(of_help(&daemon::command(), daemon::SETTINGS));
    let page = said("man/man8/gpukilld.8");
    for place in daemon::PLACES {
        let (path, _) = daemon::place(place).unwrap();
        assert!(path.starts_with('/'), "{path}");
        assert!(page.contains(&format!("\\fI{path}\\fR")), "{path}");
    }
}
