//! Whose a process is, where that goes by who logged in.

use super::super::GIB;
use super::{Cast, Part, Told, holds};

const RULES: &str = r#"
[global]
person = "login"
default_memory_limit_gb = 3
[enforcement]
max_warnings = 1

[user_policies."@bob"]
memory_limit_gb = 1
"#;

#[test]
fn whoever_logged_in_is_held_to_what_they_run_as_others() {
    let mut cast = Cast::on(1);
    let (alice, bob) = (cast.uid("alice"), cast.uid("bob"));
    let much = [holds(0, 2 * GIB)];
    let docker = format!("0::/system.slice/docker-{}.scope\n", "7".repeat(64));
    let parts = [
        ("alice", "own", Some(alice), "0::/\n"),
        // By sudo.
        ("service", "lent", Some(alice), "0::/\n"),
        ("carol", "borrowed", Some(bob), "0::/\n"),
        // Nobody logged in for a service: what it holds itself is not too much.
        ("service", "served", Some(u32::MAX), "0::/\n"),
        // What is in a container is its container's.
        ("dave", "boxed", Some(alice), docker.as_str()),
    ];
    for (who, called, login, cgroup) in parts {
        cast.plays(Part {
            who,
            called: Some(called),
            holds: &much,
            login,
            cgroup,
            ..Part::default()
        });
    }
    cast.plays(Part {
        who: "erin",
        holds: &[holds(0, 4 * GIB)],
        hides: &["loginuid"],
        ..Part::default()
    });
    cast.rules(RULES);
    let daemon = cast.start();
    cast.tells(vec![
        Told::of("default: memory", "alice")
            .by(&["own", "lent"])
            .measured(4 * GIB, 3 * GIB),
        Told::of("user bob: memory", "bob")
            .by(&["borrowed"])
            .measured(2 * GIB, GIB),
    ]);
    cast.leaves_unjudged(&["default: memory: whose it is, is not known"]);
    daemon.stop();
}
