//! Mistakes and how they are reported.

use super::*;

#[test]
fn rejects_values_out_of_bounds() {
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
            let unquoted = match (key, *value) {
                ("memory_limit_gb", "\"8\"") => "; write 8 without quotes",
                ("utilization_limit_pct", "\"70\"") => "; write 70 without quotes",
                ("duration_limit_hours", "\"12\"") => "; write 12 without quotes",
                ("max_concurrent_processes", "\"3\"") => "; write 3 without quotes",
                _ => "",
            };
            let expected =
                format!("line 2, column {column}: user_policies.a.{key}: {value} {what}{unquoted}");
            assert_eq!(mistakes_in(&text), [expected]);
        }
    }
}

#[test]
fn reports_all_mistakes_with_suggestions() {
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
    let expected = include_str!("mistakes.txt");
    let found = mistakes_in(text).join("\n") + "\n";
    assert_eq!(found, expected);
}

#[test]
fn key_of_another_table_is_recognized() {
    let text = "default_memory_limit_gb = 8\ndefualt_idle_limit_minutes = 5\n\
        [global]\nmemory_limit_gb = 8\n[enforcement]\ndefault_memory_limit_gb = 8\n\
        [user_policies]\nmemory_limit_gb = 8\n\
        [user_policies.alice]\nreserved_memory_gb = 8\nallowed_gpus = 0\n\
        [group_policies.lab]\nmax_concurent_procesess_each = 1\nsnooze_minutes = 1\n\
        snoze_minutes = 1\n";
    let expected = [
        "line 1, column 1: default_memory_limit_gb: unknown key; default_memory_limit_gb belongs \
         in [global]",
        "line 2, column 1: defualt_idle_limit_minutes: unknown key; did you mean \
         default_idle_limit_minutes? It belongs in [global]",
        "line 4, column 1: global.memory_limit_gb: unknown key; did you mean \
         default_memory_limit_gb? memory_limit_gb belongs in [user_policies.NAME] or \
         [group_policies.NAME] or [[time_policies]]",
        "line 6, column 1: enforcement.default_memory_limit_gb: unknown key; \
         default_memory_limit_gb belongs in [global]",
        "line 8, column 19: user_policies.memory_limit_gb: 8 is not a table; write \
         [user_policies.NAME] above the keys of a policy",
        "line 10, column 1: user_policies.alice.reserved_memory_gb: unknown key; \
         reserved_memory_gb belongs in [gpu_policies.NAME]",
        "line 11, column 16: user_policies.alice.allowed_gpus: 0 is not a list; write [0]",
        "line 13, column 1: group_policies.lab.max_concurent_procesess_each: unknown key; did you \
         mean max_concurrent_processes_each?",
        "line 14, column 1: group_policies.lab.snooze_minutes: unknown key; snooze_minutes \
         belongs in [enforcement]",
        "line 15, column 1: group_policies.lab.snoze_minutes: unknown key; did you mean \
         snooze_minutes? It belongs in [enforcement]",
    ];
    assert_eq!(mistakes_in(text), expected);
}

#[test]
fn rejects_idle_rules_without_grace() {
    for (key, value) in [("idle_limit_minutes", 5), ("waste_below_pct", 5)] {
        let text = format!("[[rules]]\nname = 'r'\n{key} = {value}\ngrace = '0s'\n");
        let expected = format!(
            "line 1, column 1: rules.r: {key} needs a grace period: the owner may be about to use \
             the GPU; write a grace of a minute or more, or omit it for the default"
        );
        assert_eq!(mistakes_in(&text), [expected]);
        parse_valid(&text.replace("0s", "1m"));
    }
    // A runaway process is at work, so it needs no grace period.
    let runaway = "[[rules]]\nname = 'r'\nrunaway_above_pct = 95\ngrace = '0s'\n";
    parse_valid(runaway);
}

#[test]
fn cpu_share_is_a_known_step() {
    let text = "[[rules]]\nname = 'r'\nidle_limit_minutes = 5\nidle_cpu_below_pct = 15\n\
        [[rules]]\nname = 's'\nwaste_below_pct = 5\nidle_cpu_below_pct = 10\n";
    let expected = [
        "line 4, column 22: rules.r.idle_cpu_below_pct: 15 is not valid: write 1, 2, 5, 10, 20, 50 \
         or 100",
        "line 5, column 1: rules.s: has idle_cpu_below_pct without idle_limit_minutes",
    ];
    assert_eq!(mistakes_in(text), expected);
}

#[test]
fn checks_risks_and_threats() {
    let text = "[[rules]]\nname = 'r'\nrogue_risk = \"High\"\nrogue_threats = [\"crypto_miner\", \"miner\", 1]\n\
        [[rules]]\nname = 's'\nrogue_risk = 3\n\
        [[rules]]\nname = 't'\nrogue_threats = \"crypto_miner\"\n\
        [[rules]]\nname = 'u'\nrogue_risk = \"high\"\ngrowth_gb = 1\n";
    let threats = "crypto_miner, suspicious_process, resource_abuser or data_exfiltrator";
    let conducts = "duration_limit_hours, idle_limit_minutes, waste_below_pct, runaway_above_pct, \
        growth_gb, rogue_risk";
    let expected = [
        "line 3, column 14: rules.r.rogue_risk: \"High\" is not valid: write low, medium, high or \
         critical; did you mean \"high\"?"
            .to_owned(),
        format!(
            "line 4, column 34: rules.r.rogue_threats[1]: \"miner\" is not valid: write {threats}"
        ),
        "line 4, column 43: rules.r.rogue_threats[2]: 1 is not a text in quotes; write \"1\""
            .to_owned(),
        "line 7, column 14: rules.s.rogue_risk: 3 is not a text in quotes; write \"3\"".to_owned(),
        "line 8, column 1: rules.t: has rogue_threats without rogue_risk".to_owned(),
        format!(
            "line 8, column 1: rules.t: does not forbid any behaviour; write one of {conducts}"
        ),
        "line 10, column 17: rules.t.rogue_threats: \"crypto_miner\" is not a list; \
         write [\"crypto_miner\"]"
            .to_owned(),
        "line 11, column 1: rules.u: forbids several behaviours: growth_gb, rogue_risk; \
         write a rule for each"
            .to_owned(),
    ];
    assert_eq!(mistakes_in(text), expected);
}

#[test]
fn reports_syntax_errors_with_position() {
    assert_eq!(
        mistakes_in("[global\nenabled = true\n[gpu_policies.0]\nmaintenance_window = null\n"),
        [
            "line 1, column 8: unclosed table, expected `]`",
            "line 4, column 22: null is not a value; leave the key out",
        ]
    );
}

#[test]
fn reports_sections_of_wrong_type() {
    assert_eq!(
        mistakes_in(
            "global = 1\nuser_policies = [1]\nrules = 3\nuser_policies2 = 1\n[time_policies]\na = 1\n"
        ),
        [
            "line 1, column 10: global: 1 is not a table",
            "line 2, column 17: user_policies: is not a table; write [user_policies.NAME]",
            "line 3, column 9: rules: is not a list of tables; write [[rules]]",
            "line 4, column 1: user_policies2: unknown key; did you mean user_policies?",
            "line 5, column 2: time_policies: is not a list of tables; write [[time_policies]]",
        ]
    );
}

#[test]
fn limits_the_size_of_a_file() {
    let found = mistakes_in(&"#".repeat(MAX_RULES_BYTES + 1));
    assert_eq!(
        found,
        ["line 1, column 1: is 1048577 bytes long: at most 1048576 are allowed"]
    );
    let many = |n: usize| {
        let policy = |n| format!("[user_policies.u{n}]\npriority = 1\n");
        (0..n).map(policy).collect::<String>()
    };
    assert_eq!(parse_valid(&many(MAX_POLICIES)).users.len(), MAX_POLICIES);
    let found = mistakes_in(&many(MAX_POLICIES + 1));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].ends_with("exceeds the limit of 10000 policies and rules"),
        "{found:?}"
    );
    let patterns = format!(
        "protect.processes = [{}]",
        "'a',".repeat(bounds::MAX_PATTERNS + 1)
    );
    let found = mistakes_in(&patterns);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].ends_with("exceeds the limit of 1000 patterns"),
        "{found:?}"
    );
    let users = format!(
        "protect.users = [{}]",
        "1,".repeat(bounds::MAX_LIST_LENGTH + 1)
    );
    assert_eq!(
        mistakes_in(&users),
        ["line 1, column 17: protect.users: is a list of 10001: at most 10000"]
    );
    let slips = "a.b = 1\n".repeat(3);
    // The key is a duplicate twice, and unknown once.
    assert_eq!(mistakes_in(&slips).len(), 3);
    let unknown: String = (0..2_000).map(|n| format!("k{n} = 1\n")).collect();
    assert_eq!(mistakes_in(&unknown).len(), value_reader::MAX_MISTAKES);
}

#[test]
fn duplicate_keys_hide_no_mistakes() {
    let text = "[global]\ndry_run = true\ndry_run = false\ndefault_idle_limt_minutes = 5\n\
        [enforcement]\nmax_warnings = -1\n";
    let wrong = mistakes_in(text);
    assert_eq!(
        wrong,
        [
            "line 3, column 1: duplicate key dry_run",
            "line 4, column 1: global.default_idle_limt_minutes: unknown key; did you mean \
             default_idle_limit_minutes?",
            "line 6, column 16: enforcement.max_warnings: -1 is not a whole number from 0 to 1000",
        ]
    );
    // The text after a syntax error is not checked: its meaning would be a guess.
    let broken = "[global]\ndry_run = = false\ndefault_idle_limt_minutes = 5\n";
    assert_eq!(mistakes_in(broken).len(), 1);
}
