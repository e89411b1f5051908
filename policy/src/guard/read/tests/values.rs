//! How values are written, where they stand, and the printed reference.

use super::*;
use crate::guard::schedule::{Day, Hours};
use gpukill_proto::units::{Bytes, Percent};
use proptest::prelude::*;
use std::time::Duration;

#[test]
fn numbers_are_in_the_unit_of_their_key_or_have_their_own() {
    let read = |value: &str| {
        let text = format!("[user_policies.a]\n{value}\n");
        let mut rules = read_well(&text);
        rules.users.remove(0).limits
    };
    for (value, bytes) in [
        ("0.5", 1 << 29),
        ("8", 8 << 30),
        ("8.0", 8 << 30),
        ("0x10", 16 << 30),
        ("1_000", 1_000 << 30),
        ("\"512MiB\"", 512 << 20),
        ("\"8GB\"", 8 << 30),
        ("0", 0),
    ] {
        let limits = read(&format!("memory_limit_gb = {value}"));
        assert_eq!(limits.memory, Some(Bytes(bytes)), "{value}");
    }
    for (value, seconds) in [("12.5", 45_000), ("\"90m\"", 5_400), ("1", 3_600), ("0", 0)] {
        let limits = read(&format!("duration_limit_hours = {value}"));
        assert_eq!(
            limits.duration,
            Some(Duration::from_secs(seconds)),
            "{value}"
        );
    }
    for (value, percent) in [
        ("70", 70),
        ("70.0", 70),
        ("\"70%\"", 70),
        ("0", 0),
        ("100", 100),
    ] {
        let limits = read(&format!("utilization_limit_pct = {value}"));
        assert_eq!(limits.utilization, Some(Percent(percent)), "{value}");
    }
}

#[test]
fn policies_are_called_by_what_can_be_a_name() {
    assert_eq!(
        wrong("[user_policies]\n'' = {}\n'a?' = {}\n\"b\\u0000\" = {}\n[gpu_policies]\n' ' = {}\n"),
        [
            "line 2, column 1: user_policies.\"\": a name has 1 to 255 bytes",
            "line 3, column 1: user_policies.\"a?\": names have no * and ? in them; everybody is meant where nobody is named",
            "line 4, column 1: user_policies.\"b\\0\": a name has no control characters in it",
            "line 6, column 1: gpu_policies.\" \": a name has 1 to 255 bytes",
            "line 6, column 1: gpu_policies.\" \": \" \" does not name a GPU",
        ]
    );
    assert_eq!(
        read_well("gpu_policies.'*H100*' = {}").gpus[0].gpus,
        gpus(&["*H100*"])
    );
}

#[test]
fn days_are_called_as_people_call_them() {
    let days = |typed: &str| {
        let text = format!("[[time_policies]]\nname = 'a'\ndays_of_week = {typed}\n");
        read_well(&text).times.remove(0).hours
    };
    use Day::{Friday, Monday, Saturday, Sunday, Thursday, Tuesday};
    for (typed, expected) in [
        ("['Monday']", vec![Monday]),
        ("['monday', 'MON', 'tues']", vec![Monday, Tuesday]),
        ("['thurs', 'Thu']", vec![Thursday]),
        ("'mon-fri'", Day::ALL[..5].to_vec()),
        ("['fri - mon']", vec![Monday, Friday, Saturday, Sunday]),
        ("'weekdays'", Day::ALL[..5].to_vec()),
        ("'weekday'", Day::ALL[..5].to_vec()),
        ("['weekend']", vec![Saturday, Sunday]),
        ("[]", vec![]),
    ] {
        let hours = Hours {
            from: 0,
            to: 1_440,
            days: expected,
        };
        assert_eq!(days(typed), hours, "{typed}");
    }
}

#[test]
fn times_are_written_as_people_and_as_toml_write_them() {
    for (from, to, expected) in [
        ("'9:00'", "'17:30'", (540, 1_050)),
        ("'00:00'", "'24:00'", (0, 1_440)),
        ("09:00:00", "17:30:00", (540, 1_050)),
        ("'22:00'", "'06:00'", (1_320, 360)),
    ] {
        let text = format!("[[time_policies]]\nname = 'a'\nstart_time = {from}\nend_time = {to}\n");
        let hours = read_well(&text).times.remove(0).hours;
        assert_eq!((hours.from, hours.to), expected, "{from} {to}");
    }
}

#[test]
fn where_everything_stands_is_known() {
    let rules =
        read("[global]\nenabled = true\n\n[[rules]]\n  name = 'a b'\n  growth_gb = 1\n").unwrap();
    let places: Vec<_> = rules
        .places
        .iter()
        .map(|(path, place)| (path.as_str(), place.line, place.column))
        .collect();
    assert_eq!(
        places,
        [
            ("global", 1, 2),
            ("global.enabled", 2, 1),
            ("rules", 4, 3),
            ("rules.\"a b\"", 4, 1),
            ("rules.\"a b\".growth_gb", 6, 3),
            ("rules.\"a b\".name", 5, 3),
        ]
    );
}

#[test]
fn the_reference_says_what_holds_without_a_file() {
    assert_eq!(read_well(&print_reference()), Rules::default());
}

/// What the reference says of a key of this table, on one line.
fn told_of(table: &str, key: &str) -> String {
    let reference = print_reference();
    let (_, table) = reference.split_once(table).expect("it is there");
    let mut comment = Vec::new();
    for line in table.lines() {
        let line = line.trim_start_matches("# ");
        match line.split_once(" = ") {
            Some((name, _)) if name == key => return comment.join(" "),
            Some(_) => comment.clear(),
            None => comment.push(line.to_owned()),
        }
    }
    panic!("{key} is not there");
}

#[test]
fn the_reference_says_whom_doubt_protects() {
    let expected = "A regular expression for command lines, into which anybody can write it. As \
        long as one cannot be read it protects too: in doubt nobody is judged.";
    assert_eq!(told_of("[protect]", "command"), expected);
    let expected = "Whole names of processes, with * and ?. A name counts for root and system \
                    accounts (below UID_MIN of login.defs), and for the display server of the \
                    person at a seat. No other process of a person is protected by name, nor any \
                    in a container: images, units and users protect those.";
    assert_eq!(told_of("[protect]", "processes"), expected);
}

#[test]
fn the_reference_says_whose_the_work_in_a_shared_server_is() {
    let expected = "Whose what a process does is: \"owner\", whom it runs as or whose its \
        container is; or \"login\", who logged in to start it, also through sudo and su (needs \
        pam_loginuid wherever people log in: without it they can say that they are anybody). \
        What runs in a server that several share, as tmux, Jupyter or a cron started by hand, \
        is then of whoever logged in to start that server.";
    assert_eq!(told_of("[global]", "person"), expected);
}

/// The reference with its examples as they would be written.
fn examples() -> String {
    let is_example = |line: &str| {
        let line = line.trim_start_matches("# ");
        line.starts_with('[')
            || line
                .split_once(" = ")
                .is_some_and(|(key, _)| !key.contains(' '))
    };
    let write = |line: &str| match line.strip_prefix("# ") {
        Some(example) if is_example(line) => format!("{example}\n"),
        _ => format!("{line}\n"),
    };
    print_reference().lines().map(write).collect()
}

#[test]
fn each_example_of_the_reference_is_read_and_changes_something() {
    let text = examples();
    let whole = read_well(&text);
    let lines: Vec<&str> = text.lines().collect();
    let mut tried = 0;
    for (number, line) in lines.iter().enumerate() {
        let Some((key, value)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) else {
            continue;
        };
        // What says the name again changes nothing, and a rule needs its name.
        let says_names = ["name", "username", "group_name", "gpu_index"];
        let is_default = print_reference().lines().any(|it| it == *line);
        if says_names.contains(&key) || is_default {
            continue;
        }
        let mut without = lines.clone();
        without.remove(number);
        match read(&without.join("\n")) {
            Ok(rules) => assert_ne!(
                Rules {
                    places: BTreeMap::new(),
                    ..rules
                },
                whole,
                "{key} = {value} changes nothing"
            ),
            // Without it a window or a rule is not whole.
            Err(mistakes) => assert!(!mistakes.is_empty()),
        }
        tried += 1;
    }
    assert!(tried > 70, "only {tried} examples were found");
}

proptest! {
    #[test]
    fn no_text_is_too_strange_to_read(text in "\\PC{0,200}") {
        let _ = read(&text);
    }

    #[test]
    fn no_value_is_too_strange_to_read(
        line in 0_usize..200,
        value in prop::sample::select(vec![
            "-1", "nan", "9e99", "''", "\"\\u0000\"", "[]", "[[]]", "{}", "[{}]", "true",
            "1979-05-27", "07:32:00", "9223372036854775807", "'*'", "'0-4294967295'", "\"é\"",
        ]),
    ) {
        let text = examples();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let line = line % lines.len();
        let changed = lines[line].split_once(" = ").map(|(key, _)| format!("{key} = {value}"));
        lines[line] = changed.unwrap_or_else(|| value.to_owned());
        let lines = lines.join("\n");
        if let Err(mistakes) = read(&lines) {
            prop_assert!(!mistakes.is_empty());
            for mistake in mistakes {
                prop_assert!(!mistake.to_string().contains('\n'));
            }
        }
    }
}
