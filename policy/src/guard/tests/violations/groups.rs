//! Totals of a group or a project.

use super::*;

#[test]
fn group_has_totals() {
    let rules = rules_with_group(GroupPolicy {
        total_memory: gib(19),
        ..group_policy()
    });
    let cases = [
        ("one member", host_with_bob_and_alice(Some("staff")), No),
        (
            "two members",
            host_with_bob_and_alice(Some("students")),
            Yes,
        ),
        (
            "who may be a member",
            host_with_bob_and_alice(None),
            Unknown,
        ),
    ];
    check(&rules, "group students: total memory", 2, &cases);
    let rules = rules_with_group(GroupPolicy {
        total_processes: Some(1),
        ..group_policy()
    });
    check(&rules, "group students: total processes", 2, &cases);
    let rules = rules_with_group(GroupPolicy {
        total_utilization: Some(Percent(99)),
        ..group_policy()
    });
    check(&rules, "group students: total utilization", 30, &cases);
    let rules = rules_with_group(GroupPolicy {
        total_memory: gib(20),
        total_processes: Some(2),
        total_utilization: Some(Percent(100)),
        ..group_policy()
    });
    let (violated, _) = evaluate_rules(rules, &mut host_with_bob_and_alice(Some("students")), 30);
    assert_eq!(violated, [""; 0], "at the limits");
}

#[test]
fn project_is_a_group() {
    let members = |change: fn(&mut Members)| {
        let mut members = Members::default();
        change(&mut members);
        rules_with_group(GroupPolicy {
            name: "project".into(),
            members,
            total_memory: gib(9),
            ..GroupPolicy::default()
        })
    };
    let of_image = members(|it| it.images = globs(&["vllm/*"]));
    let of_account = members(|it| it.slurm_accounts = names(&["physics"]));
    let of_namespace = members(|it| it.kubernetes_namespaces = names(&["ml"]));
    let inside = host_with_bob(|it| {
        it.facts.owner = Some(person("container vllm"));
        it.facts.image = Some(Some("vllm/vllm:latest".into()));
        it.facts.account = Some(Some("physics".into()));
        it.facts.pod = Some(Some(("ml".into(), "train-0".into())));
    });
    let beside = host_with_bob(|it| {
        it.facts.owner = Some(person("container torch"));
        it.facts.image = Some(Some("pytorch".into()));
        it.facts.account = Some(Some("chemistry".into()));
        it.facts.pod = Some(Some(("web".into(), "ml".into())));
    });
    let unknown = host_with_bob(|it| {
        it.facts.image = None;
        it.facts.account = None;
        it.facts.pod = None;
        it.facts.unit = None;
    });
    for rules in [of_image, of_account, of_namespace] {
        let cases = [
            ("inside", inside.clone(), Yes),
            ("beside", beside.clone(), No),
            ("outside", host_with_bob(|_| ()), No),
            ("unknown", unknown.clone(), Unknown),
        ];
        check(&rules, "group project: total memory", 2, &cases);
    }
}
