//! What rules say, field by field, and what is wrong with them.

use super::*;
use crate::guard::rules::{
    Behaviour, Conduct, Enforcement, Glob, GpuPolicy, GpuSelector, GroupPolicy, Limits, Measures,
    Members, Override, Pattern, Protect, Rehearsed, TimePolicy, UserPolicy,
};
use crate::guard::schedule::{Day, Hours};
use crate::select;
use gpukill_proto::guard::{GuardAction, GuardMode};
use gpukill_proto::units::{Bytes, Percent};
use proptest::prelude::*;
use std::time::Duration;

const EVERY_FIELD: &str = include_str!("tests/every_field.toml");
const SEEDS: &str = include_str!("tests/documented.toml");

fn gib(n: u64) -> Option<Bytes> {
    Some(Bytes::mib(n * 1024))
}

fn minutes(n: u64) -> Duration {
    Duration::from_secs(n * 60)
}

fn hours(n: u64) -> Duration {
    minutes(n * 60)
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn gpus(names: &[&str]) -> Vec<GpuSelector> {
    texts(names).into_iter().map(GpuSelector).collect()
}

fn globs(patterns: &[&str]) -> Vec<Glob> {
    let glob = |typed: &&str| Glob {
        typed: typed.to_string(),
        regex: select::glob(typed).unwrap(),
    };
    patterns.iter().map(glob).collect()
}

fn pattern(typed: &str) -> Option<Pattern> {
    Some(Pattern {
        typed: typed.to_owned(),
        regex: select::pattern(typed).unwrap(),
    })
}

fn read_well(text: &str) -> Rules {
    let rules = read(text).unwrap_or_else(|mistakes| panic!("{}", told(&mistakes).join("\n")));
    Rules {
        places: BTreeMap::new(),
        ..rules
    }
}

fn told(mistakes: &[Mistake]) -> Vec<String> {
    mistakes.iter().map(ToString::to_string).collect()
}

/// What is wrong with a text.
fn wrong(text: &str) -> Vec<String> {
    match read(text) {
        Ok(rules) => panic!("nothing is wrong with {rules:#?}"),
        Err(mistakes) => told(&mistakes),
    }
}

#[test]
fn nothing_said_is_what_holds_by_default() {
    assert_eq!(read_well(""), Rules::default());
    assert_eq!(Rules::default().mode, GuardMode::DryRun);
}

#[test]
fn every_field_means_something() {
    let measures = Measures {
        action: Some(GuardAction::Terminate),
        mode: Some(GuardMode::Soft),
        grace: Some(minutes(10)),
        message: Some("ask in #gpus".into()),
    };
    let limits = |n: u64| Limits {
        memory: gib(n),
        utilization: Some(Percent(70)),
        duration: Some(hours(n)),
        processes: Some(3),
        idle: Some(minutes(n)),
        idle_min_memory: Some(Bytes::mib(512)),
    };
    let night = Hours {
        from: 20 * 60,
        to: 8 * 60 + 30,
        days: vec![Day::Monday, Day::Friday],
    };
    let members = Members {
        users: texts(&["alice", "1001"]),
        unix_groups: texts(&["students"]),
        slurm_accounts: texts(&["vision"]),
        kubernetes_namespaces: texts(&["training"]),
        images: globs(&["*/pytorch:*"]),
    };
    let rule = |name: &str, conduct: Conduct| Behaviour {
        name: name.into(),
        members: Members::default(),
        except_users: Vec::new(),
        gpus: Vec::new(),
        processes: Vec::new(),
        command: None,
        conduct,
        measures: Measures::default(),
    };
    let expected = Rules {
        mode: GuardMode::Enforce,
        rehearsed: Rehearsed::Enforce,
        contradiction: None,
        defaults: limits(16),
        enforcement: Enforcement {
            grace: Duration::from_secs(90),
            max_warnings: 7,
            utilization_window: minutes(15),
            idle_below: Percent(2),
            settled_after: minutes(20),
        },
        protect: Protect {
            users: texts(&["gdm", "120"]),
            processes: globs(&["Xorg", "gnome-*"]),
            command: pattern("--production"),
            images: globs(&["*/triton:*"]),
            units: texts(&["inference.service"]),
        },
        users: vec![UserPolicy {
            name: "alice".into(),
            limits: limits(8),
            priority: Some(9),
            allowed_gpus: gpus(&["0", "2", "3", "GPU-8f3c"]),
            blocked_gpus: gpus(&["*A100*", "0000:1b:00.0"]),
            overrides: vec![Override {
                hours: night.clone(),
                limits: limits(64),
            }],
            measures: measures.clone(),
        }],
        groups: vec![GroupPolicy {
            name: "researchers".into(),
            members: members.clone(),
            total_memory: gib(32),
            total_utilization: Some(Percent(80)),
            total_processes: Some(10),
            limits: limits(4),
            priority: Some(3),
            allowed_gpus: gpus(&["0", "1"]),
            blocked_gpus: gpus(&["7"]),
            measures: measures.clone(),
        }],
        gpus: vec![
            GpuPolicy {
                name: "0".into(),
                gpus: gpus(&["0"]),
                max_memory: gib(24),
                max_utilization: Some(Percent(90)),
                reserved_memory: gib(2),
                allowed_users: texts(&["alice", "bob"]),
                blocked_users: texts(&["carol"]),
                allowed_processes: globs(&["python*"]),
                blocked_processes: globs(&["xmrig"]),
                maintenance: Some(night.clone()),
                measures: measures.clone(),
            },
            GpuPolicy {
                name: "big".into(),
                gpus: gpus(&["1", "*H100*"]),
                ..GpuPolicy::default()
            },
        ],
        times: vec![TimePolicy {
            name: "business_hours".into(),
            hours: night,
            limits: limits(12),
            allowed_users: texts(&["alice"]),
            blocked_users: texts(&["bob"]),
            gpus: gpus(&["0"]),
            measures: measures.clone(),
        }],
        behaviours: vec![
            Behaviour {
                name: "long".into(),
                members,
                except_users: texts(&["carol"]),
                gpus: gpus(&["1"]),
                processes: globs(&["jupyter*"]),
                command: pattern("ipykernel"),
                conduct: Conduct::Duration(hours(48)),
                measures,
            },
            rule(
                "idle",
                Conduct::Idle {
                    limit: minutes(120),
                    min_memory: Bytes::mib(1024),
                    with_connections: true,
                },
            ),
            rule(
                "waste",
                Conduct::Waste {
                    below: Percent(10),
                    min_memory: Bytes::mib(20 * 1024),
                    hours: hours(4),
                },
            ),
            rule(
                "runaway",
                Conduct::Runaway {
                    above: Percent(95),
                    limit: minutes(30),
                    orphaned: true,
                },
            ),
            rule(
                "growth",
                Conduct::Growth {
                    by: Bytes::mib(4096),
                    within: hours(6),
                },
            ),
        ],
        places: BTreeMap::new(),
    };
    assert_eq!(read_well(EVERY_FIELD), expected);
}

#[test]
fn what_a_rule_does_not_say_is_as_the_reference_has_it() {
    let text = "rules = [{ name = 'i', idle_limit_minutes = 5 }, { name = 'w', waste_below_pct = 5 },\n\
                { name = 'r', runaway_above_pct = 95 }, { name = 'g', growth_gb = 1 }]\n";
    let conducts: Vec<Conduct> = read_well(text)
        .behaviours
        .into_iter()
        .map(|it| it.conduct)
        .collect();
    let expected = [
        Conduct::Idle {
            limit: minutes(5),
            min_memory: Bytes(0),
            with_connections: false,
        },
        Conduct::Waste {
            below: Percent(5),
            min_memory: Bytes(0),
            hours: hours(1),
        },
        Conduct::Runaway {
            above: Percent(95),
            limit: minutes(5),
            orphaned: false,
        },
        Conduct::Growth {
            by: Bytes::mib(1024),
            within: hours(1),
        },
    ];
    assert_eq!(conducts, expected);
}

#[test]
fn the_documented_policies_are_read() {
    let rules = read_well(SEEDS);
    let developer = UserPolicy {
        name: "developer".into(),
        limits: Limits {
            memory: gib(8),
            utilization: Some(Percent(70)),
            duration: Some(hours(12)),
            processes: Some(3),
            ..Limits::default()
        },
        priority: Some(5),
        ..UserPolicy::default()
    };
    assert_eq!(rules.users, [developer]);
    let researchers = GroupPolicy {
        name: "researchers".into(),
        members: Members {
            users: texts(&["alice", "bob", "charlie"]),
            ..Members::default()
        },
        total_memory: gib(32),
        total_utilization: Some(Percent(80)),
        total_processes: Some(10),
        priority: Some(3),
        allowed_gpus: gpus(&["0", "1"]),
        ..GroupPolicy::default()
    };
    assert_eq!(rules.groups, [researchers]);
    let first = GpuPolicy {
        name: "0".into(),
        gpus: gpus(&["0"]),
        max_memory: gib(24),
        max_utilization: Some(Percent(90)),
        reserved_memory: gib(2),
        allowed_users: texts(&["alice", "bob"]),
        ..GpuPolicy::default()
    };
    assert_eq!(rules.gpus, [first]);
    let business = TimePolicy {
        name: "business_hours".into(),
        hours: Hours {
            from: 9 * 60,
            to: 17 * 60,
            days: Day::ALL[..5].to_vec(),
        },
        limits: Limits {
            memory: gib(16),
            utilization: Some(Percent(80)),
            processes: Some(5),
            ..Limits::default()
        },
        ..TimePolicy::default()
    };
    assert_eq!(rules.times, [business]);
}

#[test]
fn how_far_the_guard_goes_is_said_by_four_switches() {
    use GuardMode::{Disabled, DryRun, Enforce, Soft};
    for (switches, mode, rehearsed) in [
        ("", DryRun, Rehearsed::Soft),
        (
            "global.enabled = false\nglobal.dry_run = false",
            Disabled,
            Rehearsed::Soft,
        ),
        ("global.dry_run = false", Soft, Rehearsed::Soft),
        (
            "enforcement.hard_enforcement = true",
            DryRun,
            Rehearsed::Enforce,
        ),
        (
            "global.dry_run = false\nenforcement.hard_enforcement = true",
            Enforce,
            Rehearsed::Enforce,
        ),
        (
            "global.dry_run = false\nenforcement = { hard_enforcement = true, soft_enforcement = true }",
            Soft,
            Rehearsed::Soft,
        ),
        (
            "global.dry_run = false\nenforcement = { hard_enforcement = true, soft_enforcement = false }",
            Enforce,
            Rehearsed::Enforce,
        ),
        (
            "global.dry_run = false\nenforcement = { soft_enforcement = false }",
            DryRun,
            Rehearsed::Soft,
        ),
    ] {
        let rules = read_well(switches);
        assert_eq!(
            (rules.mode, rules.rehearsed),
            (mode, rehearsed),
            "{switches}"
        );
    }
}

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
fn values_out_of_their_bounds_are_mistakes() {
    for (key, values, what) in [
        (
            "memory_limit_gb",
            &[
                "-1", "nan", "inf", "1048577", "\"8\"", "\"-8G\"", "true", "[8]", "1e300",
            ][..],
            "is not a number of GiB from 0 to 1048576, nor a text like \"512MiB\"",
        ),
        (
            "utilization_limit_pct",
            &["101", "-1", "70.5", "nan", "\"70\"", "\"170%\""],
            "is not a whole number of percent from 0 to 100",
        ),
        (
            "duration_limit_hours",
            &["-1", "87601", "\"12\"", "nan", "1979-05-27"],
            "is not a number of hours, nor a text like \"90m\", from 0s to 10y",
        ),
        (
            "idle_limit_minutes",
            &["0", "-0.5", "10081"],
            "is not a number of minutes, nor a text like \"90m\", from 1s to 7d",
        ),
        (
            "max_concurrent_processes",
            &["-1", "3.0", "\"3\"", "99999999999999999999"],
            "is not a whole number from 0 to 4194304",
        ),
        (
            "priority",
            &["101", "-1"],
            "is not a whole number from 0 to 100",
        ),
        (
            "grace",
            &["10", "\"10\"", "\"31d\""],
            "is not a text like \"90m\", from 0s to 30d",
        ),
    ] {
        for value in values {
            let text = format!("[user_policies.a]\n{key} = {value}\n");
            let column = key.len() + 4;
            let expected =
                format!("line 2, column {column}: user_policies.a.{key}: {value} {what}");
            assert_eq!(wrong(&text), [expected]);
        }
    }
}

#[test]
fn every_mistake_is_found_at_once_with_what_was_meant() {
    let text = r#"[global]
enabeld = true
check_interval_seconds = 60
default_memory_limit = 8

[enforcment]
max_warnings = "x"

[user_policies.alice]
username = "bob"
memory_limt_gb = 8
action = "Warn"
mode = "hard"
allowed_gpus = ["3-1", 4.5, "", "0-9999999"]
time_overrides = [{ start_time = "25:00", end_time = "9:60" }, { memory_limit_gb = 1 }, 7]

[user_policies."*"]
memory_limit_gb = 1

[group_policies.lab]
group_name = "labs"
members = "alice"
images = ["x"]
total_memory_gb = 1

[gpu_policies.0]
gpu_index = 1
allowed_users = ["*", "a\u0007b", -1]
maintenance_window = { end_time = "04:00", days_of_week = ["Funday", "Mon-Fry", 1] }

[[time_policies]]
start_time = "24:00"
end_time = 09:00:30

[[time_policies]]
name = "night"
days_of_week = "weekend"

[[time_policies]]
name = "night"
days_of_week = "mo"

[[rules]]
name = "all"
command = "("
duration_limit_hours = 1
idle_limit_minutes = 5
waste_hours = 3

[[rules]]
name = "none"
message = ""
"#;
    let expected = include_str!("tests/mistakes.txt");
    let found = wrong(text).join("\n") + "\n";
    assert_eq!(found, expected);
}

#[test]
fn what_is_no_toml_is_told_by_line_and_column() {
    assert_eq!(
        wrong("[global\nenabled = true\n[gpu_policies.0]\nmaintenance_window = null\n"),
        [
            "line 1, column 8: unclosed table, expected `]`",
            "line 4, column 22: there is no null; leave the key out",
        ]
    );
}

#[test]
fn a_section_that_is_none_is_told() {
    assert_eq!(
        wrong(
            "global = 1\nuser_policies = [1]\nrules = 3\nuser_policies2 = 1\n[time_policies]\na = 1\n"
        ),
        [
            "line 1, column 10: global: 1 is no table",
            "line 2, column 17: user_policies: is no table; write [user_policies.NAME]",
            "line 3, column 9: rules: is no list of tables; write [[rules]]",
            "line 4, column 1: user_policies2: unknown key; did you mean user_policies?",
            "line 5, column 2: time_policies: is no list of tables; write [[time_policies]]",
        ]
    );
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
fn a_file_has_its_bounds() {
    let found = wrong(&"#".repeat(LARGEST + 1));
    assert_eq!(
        found,
        ["line 1, column 1: is 1048577 bytes long: at most 1048576 are read"]
    );
    let many = |n: usize| {
        let policy = |n| format!("[user_policies.u{n}]\npriority = 1\n");
        (0..n).map(policy).collect::<String>()
    };
    assert_eq!(read_well(&many(MOST_POLICIES)).users.len(), MOST_POLICIES);
    let found = wrong(&many(MOST_POLICIES + 1));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].ends_with("is one too many: at most 10000 are read"),
        "{found:?}"
    );
    let patterns = format!(
        "protect.processes = [{}]",
        "'a',".repeat(bounds::PATTERNS + 1)
    );
    let found = wrong(&patterns);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].ends_with("is one pattern too many: at most 2000 are read"),
        "{found:?}"
    );
    let users = format!("protect.users = [{}]", "1,".repeat(bounds::LIST + 1));
    assert_eq!(
        wrong(&users),
        ["line 1, column 17: protect.users: is a list of 10001: at most 10000"]
    );
    let slips = "a.b = 1\n".repeat(3);
    assert_eq!(wrong(&slips).len(), 2);
    let unknown: String = (0..2_000).map(|n| format!("k{n} = 1\n")).collect();
    assert_eq!(wrong(&unknown).len(), at::MOST_MISTAKES);
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
