//! Who holds much and does little, and who works without end.

use super::super::GIB;
use super::{Cast, Part, Told, holds, holds_unknown};
use serde_json::json;

const UNIT: &str = "0::/system.slice/train.service\n";

const WASTE: &str = r#"
[enforcement]
max_warnings = 1

[[rules]]
name = "waste"
except_users = ["@excepted", "@veiled", "@vague"]
waste_below_pct = 10
waste_min_memory_gb = 2
waste_hours = "3s"

[[rules]]
name = "veiled"
users = ["@veiled"]
waste_below_pct = 10
waste_hours = "3s"

[[rules]]
name = "vague"
users = ["@vague"]
waste_below_pct = 10
waste_min_memory_gb = 2
waste_hours = "3s"
"#;

#[test]
fn a_job_that_holds_much_and_does_little_on_the_whole_wastes() {
    let mut cast = Cast::on(2);
    cast.gpu(1, json!({"process_utilization": false}));
    let at = |percent| holds(0, 2 * GIB).works(percent);
    cast.person("wastes", &[at(9)]);
    cast.person("works", &[at(10)]);
    cast.person("lean", &[holds(0, 2 * GIB - 1)]);
    cast.person("excepted", &[at(0)]);
    cast.person("veiled", &[holds(1, 2 * GIB)]);
    cast.person("vague", &[holds_unknown(0)]);
    // Of a job the memory is the sum, and the work the mean.
    for (who, called, percent) in [
        ("halves", "half 0", 0),
        ("halves", "half 1", 18),
        ("whole", "whole 0", 0),
        ("whole", "whole 1", 20),
    ] {
        cast.plays(Part {
            who,
            called: Some(called),
            holds: &[holds(0, GIB).works(percent)],
            cgroup: UNIT,
            ..Part::default()
        });
    }
    cast.rules(WASTE);
    let daemon = cast.start();
    cast.tells([
        Told::of("rule waste: waste", "wastes").measured(9, 10),
        Told::of("rule waste: waste", "halves")
            .by(&["half 0", "half 1"])
            .measured(9, 10),
    ]);
    cast.leaves_unjudged(&[
        "rule veiled: waste: whether it worked all the time is not known",
        "rule vague: waste: how much memory it held all the time is not known",
    ]);
    daemon.stop();
}

const RUNAWAY: &str = r#"
[enforcement]
max_warnings = 1

[[rules]]
name = "runaway"
except_users = ["@orphan", "@child", "@veiled", "@vague"]
runaway_above_pct = 90
runaway_minutes = "4s"

[[rules]]
name = "orphans"
users = ["@orphan", "@child", "@calm"]
runaway_above_pct = 90
runaway_minutes = "2s"
runaway_orphaned = true

[[rules]]
name = "veiled"
users = ["@veiled", "@vague"]
runaway_above_pct = 90
runaway_minutes = "2s"
"#;

#[test]
fn who_works_without_end_and_frees_nothing_runs_away() {
    let mut cast = Cast::on(2);
    cast.gpu(1, json!({"process_utilization": false}));
    // All of them together have no more than the card.
    let at = |percent| holds(0, 10 * GIB).works(percent);
    cast.person("hot", &[at(91)]);
    cast.person("warm", &[at(90)]);
    cast.person("frees", &[at(100)]);
    cast.person("breathes", &[at(100)]);
    cast.person("child", &[at(100)]);
    for (who, percent) in [("orphan", 100), ("calm", 50)] {
        cast.plays(Part {
            who,
            holds: &[at(percent)],
            is_orphan: true,
            ..Part::default()
        });
    }
    cast.person("veiled", &[holds(1, GIB)]);
    cast.person("vague", &[holds_unknown(0).works(100)]);
    cast.rules(RUNAWAY);
    let daemon = cast.start();
    let (mut memory, mut turn) = (10 * GIB, 0);
    let told = [
        Told::of("rule runaway: runaway", "hot").beyond(4_000),
        Told::of("rule runaway: runaway", "breathes").beyond(4_000),
        Told::of("rule orphans: runaway", "orphan").beyond(2_000),
    ];
    cast.tells_while(told, |cast| {
        // A tenth less each time; and a fortieth, which comes back.
        memory -= memory / 10;
        cast.turns("frees", &[holds(0, memory).works(100)]);
        turn += 1;
        let little = turn % 2 * GIB / 4;
        cast.turns("breathes", &[holds(0, 10 * GIB - little).works(100)]);
    });
    cast.leaves_unjudged(&["rule veiled: runaway: whether it worked all the time is not known"]);
    daemon.stop();
}
