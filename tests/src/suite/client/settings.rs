//! Settings from the flag, the environment and the file, end to end.

use super::box_of_five;
use gpukill_tests::harness::{Ran, Stage};

/// What runs a client with these flags, variables and this settings file.
fn run(stage: &Stage, flags: &[&str], variables: &[(&str, &str)], file: &str) -> Ran {
    write(stage, file);
    let mut client = stage.client(&[&["list"], flags].concat());
    Ran::of(client.envs(variables.iter().copied()))
}

fn write(stage: &Stage, file: &str) {
    let directory = stage.path("home/.config/gpukill");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("config.toml"), file).unwrap();
}

/// A setting: its flag, its variable and its line in the file, each for a value
/// of its own, and what a screen shows of the value.
struct Setting {
    flag: &'static [&'static str],
    variable: (&'static str, &'static str),
    file: &'static str,
    shown: fn(&Ran) -> String,
    expected: [&'static str; 4],
}

#[test]
fn a_flag_wins_over_the_environment_which_wins_over_the_file() {
    let (stage, daemon) = box_of_five::start();
    let form = |ran: &Ran| ran.stdout.chars().take(2).collect();
    let width = |ran: &Ran| {
        let widest = ran.stdout.lines().map(|line| line.chars().count()).max();
        widest.unwrap_or(0).to_string()
    };
    let details = |ran: &Ran| ran.stdout.contains("  PID  ").to_string();
    let processes = |ran: &Ran| {
        let rows = ran.stdout.lines().filter(|line| line.starts_with("   0  "));
        rows.count().to_string()
    };
    let settings = [
        Setting {
            flag: &["-o", "json"],
            variable: ("GPUKILL_OUTPUT_FORMAT", "csv"),
            file: "output_format = \"ndjson\"",
            shown: form,
            expected: ["{\n", "ts", "{\"", ""],
        },
        Setting {
            flag: &["--width", "70"],
            variable: ("GPUKILL_TABLE_WIDTH", "85"),
            file: "table_width = 90",
            shown: width,
            expected: ["70", "85", "90", ""],
        },
        Setting {
            flag: &["--no-details"],
            variable: ("GPUKILL_SHOW_DETAILS", "true"),
            file: "show_details = true",
            shown: details,
            expected: ["false", "true", "true", "false"],
        },
        Setting {
            flag: &["-d", "--max-processes", "0"],
            variable: ("GPUKILL_MAX_PROCESSES", "1"),
            file: "max_processes_summary = 2\nshow_details = true",
            shown: processes,
            expected: ["3", "2", "3", ""],
        },
    ];
    for Setting {
        flag,
        variable,
        file,
        shown,
        expected: [by_flag, by_variable, by_file, by_default],
    } in settings
    {
        let all = run(&stage, flag, &[variable], file);
        assert_eq!((all.code, shown(&all).as_str()), (0, by_flag), "{flag:?}");
        let without_flag = run(&stage, &[], &[variable], file);
        assert_eq!(shown(&without_flag), by_variable, "{variable:?}");
        let only_file = run(&stage, &[], &[], file);
        assert_eq!(shown(&only_file), by_file, "{file}");
        // An empty variable is as good as none.
        let empty = run(&stage, &[], &[(variable.0, "")], file);
        assert_eq!(shown(&empty), by_file, "{variable:?}");
        if !by_default.is_empty() {
            assert_eq!(shown(&run(&stage, &[], &[], "")), by_default);
        }
    }
    daemon.stop();
}

#[test]
fn the_socket_is_the_flags_then_the_environments_then_the_files() {
    let (stage, daemon) = box_of_five::start();
    let socket = stage.socket();
    let socket = socket.to_str().unwrap();
    let in_file = format!("socket = {socket:?}\n");
    let code = |flags: &[&str], variable: Option<&str>, file: &str| {
        write(&stage, file);
        let mut client = stage.client(&[&["list"], flags].concat());
        match variable {
            Some(socket) => client.env("GPUKILL_SOCKET", socket),
            None => client.env_remove("GPUKILL_SOCKET"),
        };
        Ran::of(&mut client).code
    };
    let nowhere = "/nonexistent/x.sock";
    let nowhere_in_file = format!("socket = {nowhere:?}\n");
    assert_eq!(
        code(&["--socket", socket], Some(nowhere), &nowhere_in_file),
        0
    );
    assert_eq!(code(&[], Some(socket), &nowhere_in_file), 0);
    assert_eq!(code(&[], None, &in_file), 0);
    assert_eq!(code(&["--socket", nowhere], Some(socket), &in_file), 6);
    assert_eq!(code(&[], Some(nowhere), &in_file), 6);
    assert_eq!(code(&[], None, &nowhere_in_file), 6);
    // A file that is named is read instead of the usual one.
    write(&stage, &nowhere_in_file);
    let named = stage.path("named.toml");
    std::fs::write(&named, in_file).unwrap();
    let mut client = stage.client(&["--config", named.to_str().unwrap(), "list"]);
    assert_eq!(Ran::of(client.env_remove("GPUKILL_SOCKET")).code, 0);
    daemon.stop();
}

#[test]
fn every_mistake_is_told_at_once_with_its_line() {
    let stage = Stage::new();
    let file = "table_width = \"wide\"\noutput_fromat = \"json\"\n\nuse_colors = 1\n";
    let ran = run(&stage, &[], &[("GPUKILL_WATCH_INTERVAL", "0")], file);
    let path = stage.path("home/.config/gpukill/config.toml");
    let path = path.display();
    let expected = format!(
        "gpukillctl: 4 mistakes in the settings\n  \
         {path}, line 1: table_width: \"wide\" is not a whole number from 20 to 1000\n  \
         {path}, line 2: unknown key output_fromat; did you mean output_format?\n  \
         {path}, line 4: use_colors: 1 is neither true nor false\n  \
         GPUKILL_WATCH_INTERVAL: \"0\" is not a whole number from 1 to 86400\n"
    );
    assert_eq!(
        ran,
        Ran {
            code: 3,
            stdout: String::new(),
            stderr: expected
        }
    );
    // What needs no settings is not stopped by them.
    assert_eq!(stage.ctl(&["completions", "bash"]).code, 0);
    assert_eq!(stage.ctl(&["--help"]).code, 0);
}
