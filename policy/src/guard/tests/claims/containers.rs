//! What users say of containers that they run themselves.

use super::*;

/// Where bob runs containers himself, he says which image and pod that is, or lets
/// nobody know.
const OWN_CONTAINERS: [fn(&mut About); 2] = [
    |it| {
        it.image = Some(Some("triton:1".into()));
        it.pod = Some(Some(("prod".into(), "serve-0".into())));
    },
    |it| (it.image, it.pod) = (None, None),
];

#[test]
fn a_container_of_ones_own_spares_nobody() {
    let mut protected = protecting(&[]);
    protected.protect.images = globs(&["triton:*"]);
    let mut spared = protecting(&[]);
    spared.groups = vec![GroupPolicy {
        name: "prod".into(),
        members: Members {
            kubernetes_namespaces: names(&["prod"]),
            images: globs(&["triton:*"]),
            ..Members::default()
        },
        limits: memory(80),
        priority: Some(10),
        ..GroupPolicy::default()
    }];
    for rules in [protected, spared] {
        for contained in OWN_CONTAINERS {
            let mut world = World::new(1);
            contained(&mut world.start(100, "bob").uses(0, 20, 50).job("job").about);
            let records = Guard::new(rules.clone()).watches(&mut world, 2);
            let ended = records.iter().find_map(|it| {
                let victim = it.step.victim()?;
                Some((victim.priority, victim.leave_to.clone()))
            });
            assert_eq!(ended, Some((5, None)), "{rules:?}");
        }
    }
}

#[test]
fn no_name_protects_in_a_container_where_files_lie_as_its_image_says() {
    let xorg = |contained: fn(&mut About)| {
        is_judged(protecting(&["Xorg"]), |it| {
            called("Xorg", "/usr/bin/Xorg")(it);
            // What root runs for others, in the box's own user namespace.
            it.unit = Some(Some("cri-containerd-0123.scope".into()));
            contained(it);
        })
    };
    assert!(!xorg(|_| ()));
    for (uid, image) in [(1001, Some("mine:1")), (0, Some("mine:1")), (1001, None)] {
        let is_judged = is_judged(protecting(&["Xorg"]), |it| {
            called("Xorg", "/usr/bin/Xorg")(it);
            it.user = Some((None, uid));
            it.is_contained = Some(true);
            it.image = image.map(|image| Some(image.to_owned()));
            it.pod = None;
        });
        assert!(is_judged, "{uid} {image:?}");
    }
    // One whose executable is not known is in there all the same.
    assert!(xorg(
        |it| (it.is_contained, it.executable) = (Some(true), None)
    ));
    // Whether it is in one is not known.
    assert!(!xorg(|it| it.is_contained = None));
}

#[test]
fn an_image_protects_what_root_runs_whatever_namespace_it_made() {
    let mut rules = protecting(&[]);
    rules.protect.images = globs(&["triton:*"]);
    for contained in OWN_CONTAINERS {
        let is_judged = |unit: &str| {
            is_judged(rules.clone(), |it| {
                contained(it);
                it.unit = Some(Some(unit.to_owned()));
                it.is_of_the_box = Some(false);
            })
        };
        assert!(!is_judged("docker-0123.scope"));
        assert!(is_judged("user@1001.service"));
    }
}

#[test]
fn what_is_said_of_a_container_of_ones_own_may_make_limits_stricter() {
    let mut rules = protecting(&[]);
    rules.defaults = memory(40);
    rules.groups = vec![GroupPolicy {
        name: "trials".into(),
        members: Members {
            images: globs(&["triton:*"]),
            ..Members::default()
        },
        limits: memory(10),
        ..GroupPolicy::default()
    }];
    assert!(is_judged(rules.clone(), OWN_CONTAINERS[0]));
    assert!(!is_judged(rules, OWN_CONTAINERS[1]));
}

proptest! {
    #[test]
    fn nobody_is_spared_for_what_they_call_a_program_of_their_own(
        name in "(Xorg|gnome-shell|gdm|python|.{0,15})",
        directory in "(/home/bob|/tmp|/root|/mnt/usr|/data/bin|/home/usr/bin|)",
        file in "(Xorg|gnome-shell|gdm|python|[^/]{1,20})",
        suffix in "( \\(deleted\\))?",
        is_of_the_box in prop::option::of(any::<bool>()),
        image in prop::option::of(prop::option::of("[a-z]{1,3}")),
    ) {
        let path = format!("{directory}/{file}{suffix}");
        let rules = protecting(&["Xorg", "gnome-*", "gdm", "?*"]);
        let is_judged = is_judged(rules, |it| {
            called(&name, &path)(it);
            it.is_of_the_box = is_of_the_box;
            it.image = image;
        });
        prop_assert!(is_judged, "{} {}", name, path);
    }
}
