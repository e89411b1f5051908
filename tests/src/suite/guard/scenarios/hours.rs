//! Rules of hours of the week, as clocks on the wall of the box show it.

use super::super::GIB;
use super::{Cast, Part, Told, holds};
use std::time::{SystemTime, UNIX_EPOCH};

/// A zone whose clocks are five and a half hours ahead of UTC, and know no summer.
const ZONE: &str = "<+0530>-5:30";

const ZONE_MINUTES: u64 = 330;

const DAY: u64 = 24 * 60;

/// Minutes since 1970, by the clocks of that zone.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_secs() / 60 + ZONE_MINUTES
}

/// The two ends of a window, as rules have them.
fn window(from: u64, to: u64) -> String {
    let time = |minutes: u64| format!("{:02}:{:02}", minutes % DAY / 60, minutes % 60);
    let (from, to) = (time(from), time(to));
    format!("start_time = \"{from}\", end_time = \"{to}\"")
}

/// The name of a day, so many after the first of 1970, which was a Thursday.
fn day(days: u64) -> &'static str {
    let names = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    names[usize::try_from(days % 7).unwrap()]
}

#[test]
fn rules_of_hours_hold_from_their_first_minute_and_not_at_their_last() {
    let mut cast = Cast::on(4);
    cast.settings.push(("TZ", ZONE.to_owned()));
    let now = now();
    let (today, tomorrow) = (day(now / DAY), day(now / DAY + 1));
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
    cast.person("late", &[holds(0, GIB), holds(3, GIB)]);
    cast.person("in_the_way", &[holds(1, GIB)]);
    cast.person("member", &[holds(2, GIB).works(51)]);
    cast.person("stranger", &[holds(2, GIB)]);
    cast.plays(Part {
        who: "veiled",
        holds: &[holds(2, GIB)],
        hides: &["status"],
        ..Part::default()
    });
    // What the hours say of a GPU holds besides what is said of a person.
    cast.person("by_day", &[holds(3, 4 * GIB), holds(0, 4 * GIB)]);
    cast.person("by_night", &[holds(3, 2 * GIB + 1)]);
    cast.person("greedy", &[holds(3, 4 * GIB + 1)]);
    for called in ["first", "second"] {
        cast.plays(Part {
            who: "two",
            called: Some(called),
            holds: &[holds(3, GIB)],
            ..Part::default()
        });
    }
    cast.rules(&rules);
    let daemon = cast.start();
    cast.tells([
        Told::of("gpu 1: maintenance", "in_the_way"),
        Told::of("time now: hours", "late"),
        Told::of("time today: hours", "late"),
        Told::of("time members: hours", "stranger"),
        Told::of("user by_night: memory", "by_night").measured(2 * GIB + 1, 2 * GIB),
        Told::of("time work: duration", "member").beyond(0),
        Told::of("time work: duration", "stranger").beyond(0),
        Told::of("time work: idle", "stranger").beyond(2_000),
        Told::of("time work: utilization", "member")
            .measured(51, 50)
            .steps(&["violated", "told"]),
        Told::of("time limits: memory", "greedy").measured(4 * GIB + 1, 4 * GIB),
        Told::of("time limits: processes", "two")
            .by(&["first", "second"])
            .measured(2, 1),
    ]);
    cast.leaves_unjudged(&["time members: hours: whose it is, is not known"]);
    daemon.stop();
}
