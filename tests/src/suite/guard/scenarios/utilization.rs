//! How hard persons, groups and all together work, by the mean over the window.

use super::super::GIB;
use super::{Cast, Part, Told, holds};
use serde_json::json;

const RULES: &str = r#"
[global]
default_utilization_limit_pct = 50
[enforcement]
max_warnings = 1
# Between the second sample and the third, so that the third is the first of all.
utilization_window_minutes = 0.042

[user_policies.@own]
utilization_limit_pct = 90
[user_policies.@own_over]
utilization_limit_pct = 20
action = "terminate"
[user_policies.@veiled]
utilization_limit_pct = 50

[group_policies.pupils]
members = ["@pupil"]
utilization_limit_pct = 10

[group_policies.crew]
members = ["@bob", "@carol"]
total_utilization_limit_pct = 70

[gpu_policies.hot]
gpus = ["3-5"]
max_utilization_pct = 90
"#;

#[test]
fn work_is_judged_on_each_gpu_by_itself_and_only_told_of() {
    let mut cast = Cast::on(6);
    cast.gpu(2, json!({"process_utilization": false}));
    let busy = |percent| json!({"utilization": {"gpu": percent}});
    cast.gpu(3, busy(json!(91)));
    cast.gpu(4, busy(json!(90)));
    cast.gpu(5, json!({"utilization": null}));
    let at = |gpu, percent| holds(gpu, GIB).works(percent);
    cast.person("over", &[at(0, 51)]);
    cast.person("exact", &[at(0, 50)]);
    cast.person("spread", &[at(0, 40), at(1, 40)]);
    for (called, percent) in [("one", 26), ("other", 25)] {
        cast.plays(Part {
            who: "pair",
            called: Some(called),
            holds: &[at(1, percent)],
            ..Part::default()
        });
    }
    cast.person("own", &[at(0, 90)]);
    cast.person("own_over", &[at(1, 21)]);
    cast.person("pupil", &[at(1, 11)]);
    cast.person("veiled", &[at(2, 99)]);
    cast.person("bob", &[at(0, 40), at(1, 40)]);
    cast.person("carol", &[at(0, 31), at(1, 30)]);
    for (gpu, who) in [(3, "on_hot"), (4, "on_warm"), (5, "on_blind")] {
        cast.person(who, &[at(gpu, 1)]);
    }
    cast.rules(RULES);
    let daemon = cast.start();
    let told = |rule, who, value, limit| {
        let told = Told::of(rule, who).measured(value, limit);
        told.steps(&["violated", "told"])
    };
    cast.tells([
        told("default: utilization", "over", 51, 50),
        told("default: utilization", "pair", 51, 50).by(&["one", "other"]),
        told("user own_over: utilization", "own_over", 21, 20).steps(&["violated", "warned"]),
        told("group pupils: utilization", "pupil", 11, 10),
        told(
            "group crew: total utilization",
            "group crew on gpu 0",
            71,
            70,
        )
        .by(&["bob", "carol"]),
        told("gpu hot: gpu utilization", "gpu 3", 91, 90).by(&["on_hot"]),
    ]);
    cast.leaves_unjudged(&[
        "user veiled: utilization: how much 1 of the processes work is not known",
        "gpu hot: gpu utilization: how busy it was is not known",
    ]);
    daemon.stop();
}

const LONG: &str = r#"
[global]
default_utilization_limit_pct = 50
[gpu_policies."0"]
max_utilization_pct = 50
[enforcement]
utilization_window_minutes = 1
"#;

#[test]
fn a_few_seconds_of_work_are_not_much_of_a_minute() {
    let mut cast = Cast::on(1);
    cast.gpu(0, json!({"utilization": {"gpu": 100}}));
    cast.person("eager", &[holds(0, GIB).works(100)]);
    cast.rules(LONG);
    let daemon = cast.start();
    cast.samples(1);
    cast.tells([]);
    daemon.stop();
}
