//! How much memory a person may hold: of whom which limit is.

use super::super::GIB;
use super::{Cast, Part, Told, holds, holds_unknown};

const RULES: &str = r#"
[global]
default_memory_limit_gb = 2
[enforcement]
max_warnings = 1

[user_policies.@own]
memory_limit_gb = 8
[user_policies.@own_over]
memory_limit_gb = "1536MiB"
[user_policies.@nobody_knows]
memory_limit_gb = 2
[user_policies.@enough_known]
memory_limit_gb = 2

[group_policies.lab]
members = ["@pupil", "@tutor", "@both", "@own"]
memory_limit_gb = 4
[group_policies.strict]
members = ["@both"]
memory_limit_gb = 3
"#;

#[test]
fn memory_is_judged_by_each_persons_own_limit_and_only_beyond_it() {
    let mut cast = Cast::on(3);
    // All GPUs count together, also those whose memory is the host's.
    cast.gpu(2, serde_json::json!({"memory": {"total": 0}}));
    for (called, holds) in [("here", holds(0, GIB)), ("there", holds(1, GIB + 1))] {
        cast.plays(Part {
            who: "over",
            called: Some(called),
            holds: &[holds],
            ..Part::default()
        });
    }
    cast.person("over_unified", &[holds(2, 2 * GIB + 1)]);
    cast.person("exact", &[holds(0, GIB), holds(1, GIB)]);
    cast.person("under", &[holds(0, 2 * GIB - 1)]);
    // A user's own limit is in place of all others.
    cast.person("own", &[holds(0, 8 * GIB)]);
    cast.person("own_over", &[holds(1, 3 * GIB / 2 + 1)]);
    // A group's is in place of the default; of several the strictest.
    cast.person("pupil", &[holds(1, 4 * GIB)]);
    cast.person("tutor", &[holds(1, 4 * GIB + 1)]);
    cast.person("both", &[holds(1, 3 * GIB + 1)]);
    cast.person("nobody_knows", &[holds_unknown(0)]);
    for (called, holds) in [("more", holds(1, 3 * GIB)), ("some", holds_unknown(0))] {
        cast.plays(Part {
            who: "enough_known",
            called: Some(called),
            holds: &[holds],
            ..Part::default()
        });
    }
    cast.rules(RULES);
    let daemon = cast.start();
    let told = |rule, who, value, limit| Told::of(rule, who).measured(value, limit);
    cast.tells([
        told("default: memory", "over", 2 * GIB + 1, 2 * GIB).by(&["here", "there"]),
        told("default: memory", "over_unified", 2 * GIB + 1, 2 * GIB),
        told(
            "user own_over: memory",
            "own_over",
            3 * GIB / 2 + 1,
            3 * GIB / 2,
        ),
        told("group lab: memory", "tutor", 4 * GIB + 1, 4 * GIB),
        told("group strict: memory", "both", 3 * GIB + 1, 3 * GIB),
        told(
            "user enough_known: memory",
            "enough_known",
            3 * GIB,
            2 * GIB,
        )
        .by(&["more", "some"])
        .unknown(1),
    ]);
    cast.leaves_unjudged(&[
        "user nobody_knows: memory: how much memory 1 of its processes hold is not known",
    ]);
    daemon.stop();
}
