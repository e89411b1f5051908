//! Reads the generated files with the real tools. A tool that is not installed is skipped with
//! a message.

use super::DATE;
use crate::files;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// All files, written to a directory.
fn write_all() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in files(DATE) {
        let path = directory.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    directory
}

fn pages(directory: &Path) -> Vec<PathBuf> {
    let pages = files(DATE).into_keys().filter(|it| it.starts_with("man"));
    pages.map(|it| directory.join(it)).collect()
}

/// The stdout and stderr of a program; `None` when it is not installed. The program gets only
/// the environment variables for the search path and the home directory, because `COLUMNS`,
/// `MANWIDTH`, `MANOPT` and others change its output.
fn run(program: &str, arguments: &[&OsStr]) -> Option<(String, String)> {
    let kept = ["PATH", "HOME"].into_iter();
    let kept = kept.filter_map(|name| Some((name, std::env::var_os(name)?)));
    let ran = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(kept)
        .env("LC_ALL", "C.UTF-8")
        .output();
    match ran {
        Ok(output) => {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            Some((text(&output.stdout), text(&output.stderr)))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("left out: {program} is not installed");
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

/// Runs a program over every page.
fn over_pages(program: &str, options: &[&str]) -> Option<(String, String)> {
    let directory = write_all();
    let pages = pages(directory.path());
    assert!(pages.len() > 50);
    let options = options.iter().map(OsStr::new);
    let arguments: Vec<&OsStr> = options
        .chain(pages.iter().map(|it| it.as_os_str()))
        .collect();
    run(program, &arguments)
}

#[test]
fn mandoc_reports_nothing() {
    if let Some(said) = over_pages("mandoc", &["-T", "lint", "-W", "warning"]) {
        assert_eq!(said, (String::new(), String::new()));
    }
}

#[test]
fn man_warns_of_nothing() {
    let options = ["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"];
    if let Some((pages, warnings)) = over_pages("man", &options) {
        assert_eq!(warnings, "");
        assert!(pages.starts_with("x T utf8"), "{pages:.40}");
    }
}

#[test]
fn whatis_reads_every_name() {
    let Some((names, errors)) = over_pages("lexgrog", &[]) else {
        return;
    };
    assert_eq!(errors, "");
    assert_eq!(names.lines().count(), pages(Path::new("")).len());
    let expected = ": \"gpukillctl-list - List the GPUs and the processes that use them\"";
    assert!(names.lines().any(|it| it.ends_with(expected)), "{names}");
}

/// Typed text, and the word that completes it.
const TYPED: [(&str, &str); 4] = [
    ("gpukillctl gu", "guard"),
    ("gpukillctl guard us", "user"),
    ("gpukillctl kill --sco", "--scope"),
    ("gpukillctl guard gpu set 0 --reserv", "--reserved-memory"),
];

const BASH: &str = r#"
source "$1"
read -ra COMP_WORDS <<<"$2"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_gpukillctl gpukillctl "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

#[test]
fn bash_completes() {
    let directory = write_all();
    let script = directory.path().join("completions/gpukillctl.bash");
    for (typed, word) in TYPED {
        let arguments = ["--norc", "-c", BASH, "bash"].map(OsStr::new);
        let arguments = [&arguments[..], &[script.as_os_str(), OsStr::new(typed)]].concat();
        if let Some(said) = run("bash", &arguments) {
            assert_eq!(said, (format!("{word}\n"), String::new()), "{typed}");
        }
    }
}

/// The candidates of fish, without their descriptions.
fn fish_candidates(script: &Path, typed: &str) -> Option<Vec<String>> {
    let command = "source $argv[1]; complete -C $argv[2]";
    let arguments = ["-N", "-c", command].map(OsStr::new);
    let arguments = [&arguments[..], &[script.as_os_str(), OsStr::new(typed)]].concat();
    let (said, errors) = run("fish", &arguments)?;
    assert_eq!(errors, "", "{typed}");
    let words = said.lines().filter_map(|it| it.split('\t').next());
    Some(words.map(str::to_owned).collect())
}

#[test]
fn fish_completes_at_any_depth() {
    let directory = write_all();
    let script = directory.path().join("completions/gpukillctl.fish");
    let typed = TYPED
        .iter()
        .map(|(typed, word)| (*typed, std::slice::from_ref(word)));
    let more = [
        ("gpukillctl guard user ", &["remove", "set"][..]),
        (
            "gpukillctl guard user set bob --memory-l",
            &["--memory-limit"],
        ),
        ("gpukillctl --socket /x kill --scope j", &["job"]),
        ("gpukillctl completions fi", &["fish"]),
        ("gpukillctl rogue allow pro", &["process"]),
        // Options of another command and hidden options.
        ("gpukillctl guard gpu set 0 --slurm", &[]),
        ("gpukillctl kill --memory-l", &[]),
    ];
    for (typed, expected) in typed.chain(more) {
        let Some(offered) = fish_candidates(&script, typed) else {
            return;
        };
        assert_eq!(offered, expected, "{typed}");
    }
    // Files are offered only where an argument is a file.
    let words = |typed| fish_candidates(&script, typed).unwrap_or_default();
    assert_eq!(
        words("gpukillctl guard check /etc/host.con"),
        ["/etc/host.conf"]
    );
    assert_eq!(words("gpukillctl explain /etc/host.con"), [""; 0]);
}

#[test]
fn zsh_completes() {
    let directory = write_all();
    let completions = directory.path().join("completions");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/complete.zsh");
    for (typed, word) in TYPED {
        let arguments = [
            OsStr::new("-f"),
            script.as_os_str(),
            completions.as_os_str(),
        ];
        let arguments = [&arguments[..], &["gpukillctl", typed].map(OsStr::new)].concat();
        let Some((said, errors)) = run("zsh", &arguments) else {
            return;
        };
        let (before, _) = typed.rsplit_once(' ').unwrap();
        assert_eq!(
            (said, errors.as_str()),
            (format!("{before} {word}\n"), ""),
            "{typed}"
        );
    }
}

#[test]
fn daemon_completions_are_loaded() {
    let directory = write_all();
    let completions = directory.path().join("completions");
    for (shell, file) in [
        ("bash", "gpukilld.bash"),
        ("zsh", "_gpukilld"),
        ("fish", "gpukilld.fish"),
    ] {
        let file = completions.join(file);
        if let Some((_, errors)) = run(shell, &[OsStr::new("-n"), file.as_os_str()]) {
            assert_eq!(errors, "", "{shell}");
        }
    }
}
