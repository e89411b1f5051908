//! What is not allowed at all: GPUs, persons and programs on them, and times.

use super::super::GIB;
use super::{Cast, Hold, Part, Told, holds};

const ON: [Hold; 8] = {
    let mut on = [holds(0, GIB); 8];
    let mut gpu = 0;
    while gpu < on.len() {
        on[gpu].gpu = gpu;
        gpu += 1;
    }
    on
};

const RULES: &str = r#"
[enforcement]
max_warnings = 1

[user_policies.@confined]
allowed_gpus = [0]
[user_policies.@let_in]
allowed_gpus = ["0-1"]
[user_policies.@barred]
allowed_gpus = [0, 1]
blocked_gpus = ["GPU-00000000-0000-0000-0000-000000000001"]
[user_policies.@elsewhere]
blocked_gpus = ["0000:1c:00.0"]

[group_policies.class]
members = ["@pupil", "@away", "@let_in"]
blocked_gpus = [1]
[group_policies.guests]
members = ["@visitor"]
allowed_gpus = [0]

[gpu_policies."2"]
allowed_users = ["@guest", "@unwanted"]
blocked_users = ["@unwanted"]

[gpu_policies."3"]
allowed_processes = ["trainer", "miner*"]
blocked_processes = ["miner-of-old-coins"]
"#;

#[test]
fn gpus_people_and_programs_that_are_not_allowed_are_told_of_at_once() {
    let mut cast = Cast::on(4);
    cast.person("confined", &[ON[0], ON[1]]);
    cast.person("let_in", &[ON[0], ON[1]]);
    cast.person("barred", &[ON[0], ON[1]]);
    cast.person("elsewhere", &[ON[0]]);
    cast.person("pupil", &[ON[1]]);
    cast.person("away", &[ON[0]]);
    cast.person("visitor", &[ON[0], ON[1]]);
    for who in ["guest", "unwanted", "stranger"] {
        cast.person(who, &[ON[2]]);
    }
    cast.plays(Part {
        who: "veiled",
        holds: &[ON[2]],
        hides: &["status"],
        ..Part::default()
    });
    let programs = ["trainer", "train", "miner2", "miner-of-old-coins"];
    for (who, program) in ["trains", "nearly", "mines", "mines_old"]
        .iter()
        .zip(programs)
    {
        cast.plays(Part {
            who,
            holds: &[ON[3]],
            program,
            ..Part::default()
        });
    }
    cast.rules(RULES);
    let daemon = cast.start();
    cast.tells([
        Told::of("user confined: gpu", "confined"),
        Told::of("user barred: gpu", "barred"),
        Told::of("group class: gpu", "pupil"),
        Told::of("group guests: gpu", "visitor"),
        Told::of("gpu 2: user", "unwanted"),
        Told::of("gpu 2: user", "stranger"),
        Told::of("gpu 3: process", "nearly"),
        // The kernel cuts names to fifteen bytes: its file has the whole.
        Told::of("gpu 3: process", "mines_old"),
    ]);
    cast.leaves_unjudged(&["gpu 2: user: whose it is, is not known"]);
    daemon.stop();
}
