//! Who holds more and more.

use super::super::GIB;
use super::{Cast, Part, Told, holds, holds_unknown};

const UNIT: &str = "0::/system.slice/train.service\n";

const RULES: &str = r#"
[enforcement]
max_warnings = 1

[[rules]]
name = "leak"
growth_gb = 2
growth_hours = "5s"
"#;

#[test]
fn who_grows_in_each_quarter_and_by_so_much_leaks() {
    let mut cast = Cast::on(1);
    for who in ["leaks", "slow", "stair"] {
        cast.person(who, &[holds(0, GIB)]);
    }
    cast.person("steady", &[holds(0, 40 * GIB)]);
    cast.person("vague", &[holds_unknown(0)]);
    // Of a job it is one process that does.
    for called in ["leaking part", "other part"] {
        cast.plays(Part {
            who: "job",
            called: Some(called),
            holds: &[holds(0, GIB)],
            cgroup: UNIT,
            ..Part::default()
        });
    }
    cast.rules(RULES);
    let daemon = cast.start();
    let told = |who| Told::of("rule leak: growth", who).beyond(2 * GIB);
    let mut turn = 0;
    cast.tells_while([told("leaks"), told("job").by(&["leaking part"])], |cast| {
        turn += 1;
        cast.turns("leaks", &[holds(0, GIB + turn * GIB)]);
        cast.turns("leaking part", &[holds(0, GIB + turn * GIB)]);
        // In five seconds less than two.
        cast.turns("slow", &[holds(0, GIB + turn * GIB / 16)]);
        // Much at once, and nothing after.
        let step = if turn > 3 { 8 * GIB } else { 0 };
        cast.turns("stair", &[holds(0, GIB + step)]);
    });
    cast.leaves_unjudged(&["rule leak: growth: how much memory it held all the time is not known"]);
    daemon.stop();
}
