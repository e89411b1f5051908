//! Settings from the flag, the environment and the file, end to end.

use super::five_gpu_box;
use gpukill_tests::harness::{CommandOutput, TestBox};

/// Runs the client with these flags, variables and this settings file.
fn run(
    test_box: &TestBox,
    flags: &[&str],
    variables: &[(&str, &str)],
    file: &str,
) -> CommandOutput {
    write_settings(test_box, file);
    let mut client = test_box.client_command(&[&["list"], flags].concat());
    CommandOutput::run(client.envs(variables.iter().copied()))
}

fn write_settings(test_box: &TestBox, file: &str) {
    let directory = test_box.path("home/.config/gpukill");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("config.toml"), file).unwrap();
}

/// A setting: its flag, its variable and its line in the file, each with a different value,
/// and what a screen shows for each value.
struct Setting {
    flag: &'static [&'static str],
    variable: (&'static str, &'static str),
    file: &'static str,
    shown: fn(&CommandOutput) -> String,
    expected: [&'static str; 4],
}

#[test]
fn flag_beats_environment_beats_file() {
    let (test_box, daemon) = five_gpu_box::start();
    let form = |ran: &CommandOutput| ran.stdout.chars().take(2).collect();
    let width = |ran: &CommandOutput| {
        let widest = ran.stdout.lines().map(|line| line.chars().count()).max();
        widest.unwrap_or(0).to_string()
    };
    let details = |ran: &CommandOutput| ran.stdout.contains("  PID  ").to_string();
    let processes = |ran: &CommandOutput| {
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
        let all = run(&test_box, flag, &[variable], file);
        assert_eq!((all.code, shown(&all).as_str()), (0, by_flag), "{flag:?}");
        let without_flag = run(&test_box, &[], &[variable], file);
        assert_eq!(shown(&without_flag), by_variable, "{variable:?}");
        let only_file = run(&test_box, &[], &[], file);
        assert_eq!(shown(&only_file), by_file, "{file}");
        // An empty variable counts as unset.
        let empty = run(&test_box, &[], &[(variable.0, "")], file);
        assert_eq!(shown(&empty), by_file, "{variable:?}");
        if !by_default.is_empty() {
            assert_eq!(shown(&run(&test_box, &[], &[], "")), by_default);
        }
    }
    daemon.stop();
}

#[test]
fn socket_from_flag_environment_file() {
    let (test_box, daemon) = five_gpu_box::start();
    let socket = test_box.socket();
    let socket = socket.to_str().unwrap();
    let in_file = format!("socket = {socket:?}\n");
    let code = |flags: &[&str], variable: Option<&str>, file: &str| {
        write_settings(&test_box, file);
        let mut client = test_box.client_command(&[&["list"], flags].concat());
        match variable {
            Some(socket) => client.env("GPUKILL_SOCKET", socket),
            None => client.env_remove("GPUKILL_SOCKET"),
        };
        CommandOutput::run(&mut client).code
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
    // A file given with `--config` is read instead of the default one.
    write_settings(&test_box, &nowhere_in_file);
    let named = test_box.path("named.toml");
    std::fs::write(&named, in_file).unwrap();
    let mut client = test_box.client_command(&["--config", named.to_str().unwrap(), "list"]);
    assert_eq!(
        CommandOutput::run(client.env_remove("GPUKILL_SOCKET")).code,
        0
    );
    daemon.stop();
}

#[test]
fn all_mistakes_are_reported_with_lines() {
    let test_box = TestBox::new();
    let file = "table_width = \"wide\"\noutput_fromat = \"json\"\n\nuse_colors = 2\n";
    let ran = run(&test_box, &[], &[("GPUKILL_WATCH_INTERVAL", "0")], file);
    let path = test_box.path("home/.config/gpukill/config.toml");
    let path = path.display();
    let expected = format!(
        "gpukillctl: 4 mistakes in the settings\n  \
         {path}, line 1: table_width: \"wide\" is not a whole number from 20 to 1000\n  \
         {path}, line 2: unknown key output_fromat; did you mean output_format?\n  \
         {path}, line 4: use_colors: 2 is not valid: write true or false\n  \
         GPUKILL_WATCH_INTERVAL: \"0\" is not a whole number from 1 to 86400\n"
    );
    assert_eq!(
        ran,
        CommandOutput {
            code: 3,
            stdout: String::new(),
            stderr: expected
        }
    );
    // Commands that need no settings work nevertheless.
    assert_eq!(test_box.ctl(&["completions", "bash"]).code, 0);
    assert_eq!(test_box.ctl(&["--help"]).code, 0);
}
