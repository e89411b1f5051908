//! Who would be ended for others, who is left to a scheduler, and who is spared.

use super::super::GIB;
use super::{Cast, Hold, Part, Told, holds};

const RULES: &str = r#"
[global]
default_memory_limit_gb = 4
[enforcement]
soft_enforcement = false
hard_enforcement = true
cooldown_seconds = 0

[protect]
command = '0\.75$'

[user_policies.@low]
priority = 1
memory_limit_gb = 80
[user_policies.@high]
memory_limit_gb = 80

[group_policies.important]
members = ["@high"]
priority = 9
[group_policies.crowd]
members = ["@low", "@high"]
total_memory_limit_gb = 8

[gpu_policies."1"]
blocked_users = ["@torn", "@kept"]
"#;

fn part<'a>(who: &'a str, called: &'a str, holds: &'a [Hold]) -> Part<'a> {
    Part {
        who,
        called: Some(called),
        holds,
        ..Part::default()
    }
}

#[test]
fn the_lowest_and_newest_whole_job_is_ended_and_no_more_than_must_be() {
    let mut cast = Cast::on(2);
    let much = |gib| [holds(0, gib * GIB)];
    cast.plays(part("low", "low old", &much(3)));
    cast.plays(part("low", "low new", &much(3)));
    cast.plays(part("high", "high", &much(6)));
    // Either would do: the newest.
    cast.plays(part("two", "two old", &much(3)));
    cast.plays(part("two", "two new", &much(2)));
    // The newest would not do.
    cast.plays(part("three", "three old", &much(5)));
    cast.plays(part("three", "three new", &much(1)));
    let unit = "0::/system.slice/train.service\n";
    for (who, called, argument, gpu) in [
        ("torn", "torn here", "0", 0),
        ("torn", "torn there", "0", 1),
        ("kept", "kept", "0", 1),
        // Protected.
        ("kept", "keeper", "0.75", 0),
    ] {
        let unit = format!("{}\n", unit.trim().replace("train", who));
        cast.plays(Part {
            cgroup: &unit,
            argument,
            ..part(who, called, &[holds(gpu, GIB)])
        });
    }
    cast.plays(Part {
        cgroup: "0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_0\n",
        ..part("batch", "batch", &much(5))
    });
    cast.rules(RULES);
    let daemon = cast.start();
    let crowd = |by: &[&str], gib, steps: &[&str]| {
        let told = Told::of("group crowd: total memory", "group crowd");
        told.by(by).measured(gib * GIB, 8 * GIB).steps(steps)
    };
    let memory = |who, by: &[&str], gib, steps: &[&str]| {
        let told = Told::of("default: memory", who);
        told.by(by).measured(gib * GIB, 4 * GIB).steps(steps)
    };
    cast.tells([
        crowd(
            &["low old", "low new", "high"],
            12,
            &["violated", "ended low new", "ended low old"],
        ),
        memory(
            "two",
            &["two old", "two new"],
            5,
            &["violated", "ended two new"],
        ),
        memory(
            "three",
            &["three old", "three new"],
            6,
            &["violated", "ended three old"],
        ),
        Told::of("gpu 1: user", "torn")
            .by(&["torn there"])
            .steps(&["violated", "ended torn here torn there"]),
        Told::of("gpu 1: user", "kept").steps(&["violated", "spared"]),
        memory(
            "batch",
            &["batch"],
            5,
            &["violated", "left batch to scancel 1234"],
        ),
    ]);
    daemon.stop();
}
