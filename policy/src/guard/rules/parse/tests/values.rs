//! Spelling of values, their positions, and the printed reference.

use super::*;
use crate::guard::schedule::{Hours, Weekday};
use gpukill_proto::units::{Bytes, Percent};
use proptest::prelude::*;
use std::time::Duration;

#[test]
fn numbers_may_have_a_unit() {
    let read = |value: &str| {
        let text = format!("[user_policies.a]\n{value}\n");
        let mut rules = parse_valid(&text);
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
fn checks_policy_names() {
    assert_eq!(
        mistakes_in(
            "[user_policies]\n'' = {}\n'a?' = {}\n\"b\\u0000\" = {}\n[gpu_policies]\n' ' = {}\n"
        ),
        [
            "line 2, column 1: user_policies.\"\": a name must have 1 to 255 bytes",
            "line 3, column 1: user_policies.\"a?\": a name must not contain * or ?; to apply it \
            to everybody, list no names",
            "line 4, column 1: user_policies.\"b\\0\": a name must not contain control characters",
            "line 6, column 1: gpu_policies.\" \": a name must have 1 to 255 bytes",
            "line 6, column 1: gpu_policies.\" \": \" \" does not name a GPU",
        ]
    );
    assert_eq!(
        parse_valid("gpu_policies.'*H100*' = {}").gpus[0].gpus,
        gpus(&["*H100*"])
    );
}

#[test]
fn accepts_day_names_and_ranges() {
    let days = |typed: &str| {
        let text = format!("[[time_policies]]\nname = 'a'\ndays_of_week = {typed}\n");
        parse_valid(&text).times.remove(0).hours
    };
    use Weekday::{Friday, Monday, Saturday, Sunday, Thursday, Tuesday};
    for (typed, expected) in [
        ("['Monday']", vec![Monday]),
        ("['monday', 'MON', 'tues']", vec![Monday, Tuesday]),
        ("['thurs', 'Thu']", vec![Thursday]),
        ("'mon-fri'", Weekday::ALL[..5].to_vec()),
        ("['fri - mon']", vec![Monday, Friday, Saturday, Sunday]),
        ("'weekdays'", Weekday::ALL[..5].to_vec()),
        ("'weekday'", Weekday::ALL[..5].to_vec()),
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
fn accepts_text_and_toml_times() {
    for (from, to, expected) in [
        ("'9:00'", "'17:30'", (540, 1_050)),
        ("'00:00'", "'24:00'", (0, 1_440)),
        ("09:00:00", "17:30:00", (540, 1_050)),
        ("'22:00'", "'06:00'", (1_320, 360)),
    ] {
        let text = format!("[[time_policies]]\nname = 'a'\nstart_time = {from}\nend_time = {to}\n");
        let hours = parse_valid(&text).times.remove(0).hours;
        assert_eq!((hours.from, hours.to), expected, "{from} {to}");
    }
}

#[test]
fn records_positions() {
    let rules =
        parse("[global]\nenabled = true\n\n[[rules]]\n  name = 'a b'\n  growth_gb = 1\n").unwrap();
    let positions: Vec<_> = rules
        .positions
        .iter()
        .map(|(path, position)| (path.as_str(), position.line, position.column))
        .collect();
    assert_eq!(
        positions,
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
fn reference_equals_the_defaults() {
    assert_eq!(parse_valid(&print_reference()), RuleSet::default());
}

/// The help of a key in the reference, on one line.
fn help_of(table: &str, key: &str) -> String {
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
fn reference_explains_protection_in_doubt() {
    let expected = "A regular expression for command lines. Any user can write matching text into \
                    their own command line. A command line that cannot be read counts as matching: \
                    in doubt no rule applies.";
    assert_eq!(help_of("[protect]", "command"), expected);
    let expected = "Whole names of processes, with * and ?. A name protects processes of root and \
                    system accounts (below UID_MIN of login.defs), and the display server of the \
                    person at a seat. It protects no other process of a person and none in a \
                    container: images, units and users protect those.";
    assert_eq!(help_of("[protect]", "processes"), expected);
}

/// The reference with its examples uncommented.
fn reference_with_examples() -> String {
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
fn reference_examples_have_an_effect() {
    let text = reference_with_examples();
    let whole = parse_valid(&text);
    let lines: Vec<&str> = text.lines().collect();
    let mut tried = 0;
    for (number, line) in lines.iter().enumerate() {
        let Some((key, value)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) else {
            continue;
        };
        // A key that repeats the name changes nothing, and a rule needs its name.
        let says_names = ["name", "username", "group_name", "gpu_index"];
        let is_default = print_reference().lines().any(|it| it == *line);
        if says_names.contains(&key) || is_default {
            continue;
        }
        let mut without = lines.clone();
        without.remove(number);
        match parse(&without.join("\n")) {
            Ok(rules) => assert_ne!(
                RuleSet {
                    positions: BTreeMap::new(),
                    ..rules
                },
                whole,
                "{key} = {value} changes nothing"
            ),
            // Without this key, a window or a rule is incomplete.
            Err(mistakes) => assert!(!mistakes.is_empty()),
        }
        tried += 1;
    }
    assert!(tried > 70, "only {tried} examples were found");
}

proptest! {
    #[test]
    fn any_text_is_parsed_without_panic(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn any_value_is_parsed_without_panic(
        line in 0_usize..200,
        value in prop::sample::select(vec![
            "-1", "nan", "9e99", "''", "\"\\u0000\"", "[]", "[[]]", "{}", "[{}]", "true",
            "1979-05-27", "07:32:00", "9223372036854775807", "'*'", "'0-4294967295'", "\"é\"",
        ]),
    ) {
        let text = reference_with_examples();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let line = line % lines.len();
        let changed = lines[line].split_once(" = ").map(|(key, _)| format!("{key} = {value}"));
        lines[line] = changed.unwrap_or_else(|| value.to_owned());
        let lines = lines.join("\n");
        if let Err(mistakes) = parse(&lines) {
            prop_assert!(!mistakes.is_empty());
            for mistake in mistakes {
                prop_assert!(!mistake.to_string().contains('\n'));
            }
        }
    }
}
