//! Who does nothing, and for how long somebody may hold a GPU.

use super::super::GIB;
use super::{Cast, Hold, Part, Told, holds, holds_unknown};
use serde_json::json;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;

/// Of a job of several processes.
const UNIT: &str = "0::/system.slice/train.service\n";

const IDLE: &str = r#"
[global]
default_idle_limit_minutes = "3s"
default_idle_min_memory_gb = 1
[enforcement]
max_warnings = 1
idle_below_pct = 10

[user_policies.@patient]
idle_limit_minutes = 60
[user_policies.@greedy]
idle_min_memory_gb = 4
[user_policies.@greedier]
idle_limit_minutes = "4s"
idle_min_memory_gb = 4
[user_policies.@veiled]
idle_limit_minutes = "3s"
[user_policies.@vague]
idle_limit_minutes = "3s"
[user_policies.@shut]
idle_limit_minutes = "3s"

[group_policies.quick]
members = ["@quick"]
idle_limit_minutes = "2s"

[[rules]]
name = "servers"
users = ["@server", "@alone", "@sparse"]
idle_limit_minutes = "2s"
idle_min_memory_gb = 2
idle_with_connections = true
services = "end"
"#;

/// A program with a socket that listens, to which so many are connected.
fn listens(cast: &mut Cast, who: &str, holds: &[Hold], clients: usize) -> Vec<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let uid = cast.uid(who);
    let part = Part {
        who,
        holds,
        ..Part::default()
    };
    cast.plays_as(uid, part, OwnedFd::from(listener));
    let connect = |_| TcpStream::connect(address).unwrap();
    (0..clients).map(connect).collect()
}

#[test]
fn a_job_is_idle_when_all_of_it_did_nothing_all_the_time_and_nobody_is_connected() {
    let mut cast = Cast::on(2);
    cast.gpu(1, json!({"process_utilization": false}));
    let at = |percent| holds(0, GIB).works(percent);
    cast.person("idle", &[at(9)]);
    cast.person("works", &[at(10)]);
    cast.person("light", &[holds(0, GIB - 1)]);
    // What holds so much of one GPU is not idle where it works on another.
    cast.person("elsewhere", &[at(0), holds(1, GIB)]);
    cast.person("patient", &[at(0)]);
    cast.person("quick", &[at(0)]);
    cast.person("greedy", &[holds(0, 4 * GIB - 1)]);
    cast.person("greedier", &[holds(0, 4 * GIB)]);
    cast.person("veiled", &[holds(1, GIB)]);
    cast.person("vague", &[holds_unknown(0)]);
    for (who, called, percent) in [
        ("ranks", "rank 0", 0),
        ("ranks", "rank 1", 10),
        ("stuck", "stuck 0", 0),
        ("stuck", "stuck 1", 9),
    ] {
        cast.plays(Part {
            who,
            called: Some(called),
            holds: &[at(percent)],
            cgroup: UNIT,
            ..Part::default()
        });
    }
    let two = [holds(0, 2 * GIB)];
    let clients = listens(&mut cast, "server", &two, 2);
    listens(&mut cast, "alone", &two, 0);
    let more = listens(&mut cast, "sparse", &[holds(0, 2 * GIB - 1)], 1);
    cast.plays(Part {
        who: "shut",
        holds: &[at(0)],
        hides: &["fd"],
        ..Part::default()
    });
    cast.rules(IDLE);
    let daemon = cast.start();
    let told = |rule, who, seconds: u64| Told::of(rule, who).beyond(seconds * 1_000);
    cast.tells([
        told("default: idle", "idle", 3),
        told("default: idle", "stuck", 3).by(&["stuck 0", "stuck 1"]),
        // A service is warned about, and not ended.
        told("default: idle", "alone", 3).steps(&["violated", "told"]),
        told("group quick: idle", "quick", 2),
        told("user greedier: idle", "greedier", 4),
        told("rule servers: idle", "server", 2),
        told("rule servers: idle", "alone", 2),
    ]);
    cast.leaves_unjudged(&[
        "user veiled: idle: whether it worked all the time is not known",
        "user vague: idle: how much memory it holds is not known",
        "user shut: idle: whether it worked all the time is not known",
    ]);
    drop((clients, more));
    daemon.stop();
}

const DURATION: &str = r#"
[global]
default_duration_limit_hours = "2s"
[enforcement]
max_warnings = 1

[user_policies.@patient]
duration_limit_hours = 1
[user_policies.@quick]
duration_limit_hours = 0

[group_policies.class]
members = ["@pupil"]
duration_limit_hours = "3s"

[[rules]]
name = "long"
users = ["@patient"]
duration_limit_hours = "4s"
"#;

#[test]
fn how_long_somebody_holds_a_gpu_counts_from_when_they_came_whatever_they_do() {
    let mut cast = Cast::on(2);
    cast.gpu(1, json!({"process_utilization": false}));
    for who in ["early", "patient", "quick", "pupil"] {
        cast.person(who, &[holds(0, GIB).works(90)]);
    }
    cast.person("veiled", &[holds_unknown(1)]);
    cast.person("late", &[]);
    cast.rules(DURATION);
    let daemon = cast.start();
    let told = |rule, who, seconds: u64| Told::of(rule, who).beyond(seconds * 1_000);
    let first = [
        told("default: duration", "early", 2),
        told("default: duration", "veiled", 2),
        told("user quick: duration", "quick", 0),
        told("group class: duration", "pupil", 3),
        told("rule long: duration", "patient", 4),
    ];
    cast.tells(first.clone());
    // Whoever comes has their own time.
    cast.turns("late", &[holds(0, GIB)]);
    cast.show();
    let late = told("default: duration", "late", 2);
    cast.tells(first.into_iter().chain([late]));
    daemon.stop();
}
