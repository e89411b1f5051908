//! Rules with hours of the week, in the local time of the box.

use super::super::GIB;
use super::{ExpectedViolation, Scenario, SimulatedProcess, memory_on};
use std::time::{SystemTime, UNIX_EPOCH};

/// A time zone 5.5 hours ahead of UTC, without daylight saving time.
const ZONE: &str = "<+0530>-5:30";

const ZONE_MINUTES: u64 = 330;

const DAY: u64 = 24 * 60;

/// Minutes since 1970 in local time of that zone.
fn local_minutes() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_secs() / 60 + ZONE_MINUTES
}

/// The start and end of a window in rule syntax.
fn window(from: u64, to: u64) -> String {
    let time = |minutes: u64| format!("{:02}:{:02}", minutes % DAY / 60, minutes % 60);
    let (from, to) = (time(from), time(to));
    format!("start_time = \"{from}\", end_time = \"{to}\"")
}

/// The weekday this many days after 1970-01-01, which was a Thursday.
fn weekday(days: u64) -> &'static str {
    let names = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    names[usize::try_from(days % 7).unwrap()]
}

#[test]
fn window_includes_start_and_excludes_end() {
    let mut scenario = Scenario::new(4);
    scenario.settings.push(("TZ", ZONE.to_owned()));
    let now = local_minutes();
    let (today, tomorrow) = (weekday(now / DAY), weekday(now / DAY + 1));
    let open = window(now, now + 60);
    let over = window(now - 60, now);
    let coming = window(now + 30, now + 60);
    let on = "days_of_week = ";
    let rules = format!(
        r#"
[enforcement]
max_warnings = 1
utilization_window_minutes = 0.042

[gpu_policies."1"]
maintenance_window = {{ {open} }}
[gpu_policies."2"]
maintenance_window = {{ {over} }}
[gpu_policies."3"]
maintenance_window = {{ {open}, {on}["{tomorrow}"] }}

[user_policies.@by_night]
memory_limit_gb = 8
time_overrides = [
    {{ {open}, {on}["{today}"], memory_limit_gb = 3 }},
    {{ {open}, memory_limit_gb = 2 }},
    {{ {over}, memory_limit_gb = 1 }},
]
[user_policies.@by_day]
memory_limit_gb = 8
time_overrides = [
    {{ {over}, memory_limit_gb = 1 }},
    {{ {open}, {on}["{tomorrow}"], memory_limit_gb = 1 }},
]
"#
    );
    let policy = |name: &str, when: &str, says: &str| {
        let when = when.replace(", ", "\n");
        format!("[[time_policies]]\nname = \"{name}\"\n{when}\n{says}\n")
    };
    let closed = "gpus = [0]\nblocked_users = [\"@late\"]";
    let rules = [
        rules,
        policy("now", &open, closed),
        policy("ended", &over, closed),
        policy("coming", &coming, closed),
        policy("today", &format!("{open}, {on}\"{today}\""), closed),
        policy("tomorrow", &format!("{open}, {on}\"{tomorrow}\""), closed),
        policy(
            "members",
            &open,
            "gpus = [2]\nallowed_users = [\"@member\"]",
        ),
        policy(
            "work",
            &open,
            "gpus = [2]\nduration_limit_hours = 0\nidle_limit_minutes = \"2s\"\n\
             utilization_limit_pct = 50",
        ),
        policy(
            "limits",
            &open,
            "gpus = [3]\nmemory_limit_gb = 4\nmax_concurrent_processes = 1\n",
        ),
    ]
    .concat();
    scenario.add_person("late", &[memory_on(0, GIB), memory_on(3, GIB)]);
    scenario.add_person("in_the_way", &[memory_on(1, GIB)]);
    scenario.add_person("member", &[memory_on(2, GIB).with_utilization(51)]);
    scenario.add_person("stranger", &[memory_on(2, GIB)]);
    scenario.add_process(SimulatedProcess {
        person: "veiled",
        usage: &[memory_on(2, GIB)],
        unreadable_files: &["status"],
        ..SimulatedProcess::default()
    });
    // A time rule for a GPU applies in addition to the limits of a person.
    scenario.add_person("by_day", &[memory_on(3, 4 * GIB), memory_on(0, 4 * GIB)]);
    scenario.add_person("by_night", &[memory_on(3, 2 * GIB + 1)]);
    scenario.add_person("greedy", &[memory_on(3, 4 * GIB + 1)]);
    for name in ["first", "second"] {
        scenario.add_process(SimulatedProcess {
            person: "two",
            name: Some(name),
            usage: &[memory_on(3, GIB)],
            ..SimulatedProcess::default()
        });
    }
    scenario.rules(&rules);
    let daemon = scenario.start_daemon();
    scenario.assert_records([
        ExpectedViolation::new("gpu 1: maintenance", "in_the_way"),
        ExpectedViolation::new("time now: hours", "late"),
        ExpectedViolation::new("time today: hours", "late"),
        ExpectedViolation::new("time members: hours", "stranger"),
        ExpectedViolation::new("user by_night: memory", "by_night")
            .with_value(2 * GIB + 1, 2 * GIB),
        ExpectedViolation::new("time work: duration", "member").at_or_over(0),
        ExpectedViolation::new("time work: duration", "stranger").at_or_over(0),
        ExpectedViolation::new("time work: idle", "stranger").at_or_over(2_000),
        ExpectedViolation::new("time work: utilization", "member")
            .with_value(51, 50)
            .with_steps(&["violated", "notified"]),
        ExpectedViolation::new("time limits: memory", "greedy").with_value(4 * GIB + 1, 4 * GIB),
        ExpectedViolation::new("time limits: processes", "two")
            .with_processes(&["first", "second"])
            .with_value(2, 1),
    ]);
    scenario.assert_unevaluated(&["time members: hours: its owner is not known"]);
    daemon.stop();
}
