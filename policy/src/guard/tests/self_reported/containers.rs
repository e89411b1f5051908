//! What users say about containers that they run themselves.

use super::*;

/// bob runs containers himself and states an image and a pod, or hides both.
const OWN_CONTAINERS: [fn(&mut ProcessFacts); 2] = [
    |it| {
        it.image = Some(Some("triton:1".into()));
        it.pod = Some(Some(("prod".into(), "serve-0".into())));
    },
    |it| (it.image, it.pod) = (None, None),
];

#[test]
fn own_container_does_not_protect() {
    let mut protected = rules_protecting(&[]);
    protected.protect.images = globs(&["triton:*"]);
    let mut exempt = rules_protecting(&[]);
    exempt.groups = vec![GroupPolicy {
        name: "prod".into(),
        members: Members {
            kubernetes_namespaces: names(&["prod"]),
            images: globs(&["triton:*"]),
            ..Members::default()
        },
        limits: memory_limit(80),
        priority: Some(10),
        ..GroupPolicy::default()
    }];
    for rules in [protected, exempt] {
        for contained in OWN_CONTAINERS {
            let mut world = TestHost::new(1);
            contained(&mut world.start(100, "bob").uses(0, 20, 50).job("job").facts);
            let records = TestGuard::new(rules.clone()).evaluate_samples(&mut world, 2);
            let ended = records.iter().find_map(|it| {
                let victim = it.step.victim()?;
                Some((victim.priority, victim.leave_to.clone()))
            });
            assert_eq!(ended, Some((5, None)), "{rules:?}");
        }
    }
}

#[test]
fn names_do_not_protect_in_containers() {
    let xorg = |contained: fn(&mut ProcessFacts)| {
        is_evaluated(rules_protecting(&["Xorg"]), |it| {
            with_program("Xorg", "/usr/bin/Xorg")(it);
            // A container that root runs for others, in the user namespace of the host.
            it.unit = Some(Some("cri-containerd-0123.scope".into()));
            contained(it);
        })
    };
    assert!(!xorg(|_| ()));
    for (uid, image) in [(1001, Some("mine:1")), (0, Some("mine:1")), (1001, None)] {
        let is_evaluated = is_evaluated(rules_protecting(&["Xorg"]), |it| {
            with_program("Xorg", "/usr/bin/Xorg")(it);
            it.user = Some((None, uid));
            it.is_contained = Some(true);
            it.image = image.map(|image| Some(image.to_owned()));
            it.pod = None;
        });
        assert!(is_evaluated, "{uid} {image:?}");
    }
    // A process with an unknown executable is in the container all the same.
    assert!(xorg(
        |it| (it.is_contained, it.executable) = (Some(true), None)
    ));
    // Whether it is in one is not known.
    assert!(!xorg(|it| it.is_contained = None));
}

#[test]
fn image_protects_containers_of_root() {
    let mut rules = rules_protecting(&[]);
    rules.protect.images = globs(&["triton:*"]);
    for contained in OWN_CONTAINERS {
        let is_evaluated = |unit: &str| {
            is_evaluated(rules.clone(), |it| {
                contained(it);
                it.unit = Some(Some(unit.to_owned()));
                it.in_host_user_namespace = Some(false);
            })
        };
        assert!(!is_evaluated("docker-0123.scope"));
        assert!(is_evaluated("user@1001.service"));
    }
}

#[test]
fn own_container_may_tighten_limits() {
    let mut rules = rules_protecting(&[]);
    rules.defaults = memory_limit(40);
    rules.groups = vec![GroupPolicy {
        name: "trials".into(),
        members: Members {
            images: globs(&["triton:*"]),
            ..Members::default()
        },
        limits: memory_limit(10),
        ..GroupPolicy::default()
    }];
    assert!(is_evaluated(rules.clone(), OWN_CONTAINERS[0]));
    assert!(!is_evaluated(rules, OWN_CONTAINERS[1]));
}

proptest! {
    #[test]
    fn no_program_name_protects_its_user(
        name in "(Xorg|gnome-shell|gdm|python|.{0,15})",
        directory in "(/home/bob|/tmp|/root|/mnt/usr|/data/bin|/home/usr/bin|)",
        file in "(Xorg|gnome-shell|gdm|python|[^/]{1,20})",
        suffix in "( \\(deleted\\))?",
        is_of_host in prop::option::of(any::<bool>()),
        image in prop::option::of(prop::option::of("[a-z]{1,3}")),
    ) {
        let path = format!("{directory}/{file}{suffix}");
        let rules = rules_protecting(&["Xorg", "gnome-*", "gdm", "?*"]);
        let is_evaluated = is_evaluated(rules, |it| {
            with_program(&name, &path)(it);
            it.in_host_user_namespace = is_of_host;
            it.image = image;
        });
        prop_assert!(is_evaluated, "{} {}", name, path);
    }
}
