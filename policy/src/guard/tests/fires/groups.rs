//! What a group or a project may use as a whole.

use super::*;

#[test]
fn a_group_is_limited_as_a_whole() {
    let rules = of_group(GroupPolicy {
        total_memory: gib(19),
        ..students()
    });
    let cases = [
        ("one member", two(Some("staff")), No),
        ("two members", two(Some("students")), Yes),
        ("who may be a member", two(None), Unknown),
    ];
    check(&rules, "group students: total memory", 2, &cases);
    let rules = of_group(GroupPolicy {
        total_processes: Some(1),
        ..students()
    });
    check(&rules, "group students: total processes", 2, &cases);
    let rules = of_group(GroupPolicy {
        total_utilization: Some(Percent(99)),
        ..students()
    });
    check(&rules, "group students: total utilization", 30, &cases);
    let rules = of_group(GroupPolicy {
        total_memory: gib(20),
        total_processes: Some(2),
        total_utilization: Some(Percent(100)),
        ..students()
    });
    let (violated, _) = seen(rules, &mut two(Some("students")), 30);
    assert_eq!(violated, [""; 0], "at the limits");
}

#[test]
fn a_project_is_a_group() {
    let members = |change: fn(&mut Members)| {
        let mut members = Members::default();
        change(&mut members);
        of_group(GroupPolicy {
            name: "project".into(),
            members,
            total_memory: gib(9),
            ..GroupPolicy::default()
        })
    };
    let of_image = members(|it| it.images = globs(&["vllm/*"]));
    let of_account = members(|it| it.slurm_accounts = names(&["physics"]));
    let of_namespace = members(|it| it.kubernetes_namespaces = names(&["ml"]));
    let inside = bob(|it| {
        it.about.owner = Some(person("container vllm"));
        it.about.image = Some(Some("vllm/vllm:latest".into()));
        it.about.account = Some(Some("physics".into()));
        it.about.pod = Some(Some(("ml".into(), "train-0".into())));
    });
    let beside = bob(|it| {
        it.about.owner = Some(person("container torch"));
        it.about.image = Some(Some("pytorch".into()));
        it.about.account = Some(Some("chemistry".into()));
        it.about.pod = Some(Some(("web".into(), "ml".into())));
    });
    let unknown = bob(|it| {
        it.about.image = None;
        it.about.account = None;
        it.about.pod = None;
        it.about.unit = None;
    });
    for rules in [of_image, of_account, of_namespace] {
        let cases = [
            ("inside", inside.clone(), Yes),
            ("beside", beside.clone(), No),
            ("outside", bob(|_| ()), No),
            ("unknown", unknown.clone(), Unknown),
        ];
        check(&rules, "group project: total memory", 2, &cases);
    }
}
