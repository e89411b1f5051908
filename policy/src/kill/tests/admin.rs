//! What the admin protects: texts that almost name it.

use super::super::*;
use super::protected::{by_admin, by_admin_of_system, why};
use super::scene::*;
use crate::select::Glob;

#[test]
fn what_was_replaced_since_it_began_is_protected_by_its_path_all_the_same() {
    let path: fn(&mut Protection) = |p| p.names = vec!["/srv/serve/run".into()];
    let of = |executable: &'static str| {
        by_admin_of_system(path, "run", move |p| {
            p.kin.executable = Some(executable.into());
        })
    };
    let expected = Some("the admin protects what is called /srv/serve/run".to_owned());
    assert_eq!(of("/srv/serve/run"), expected);
    assert_eq!(of("/srv/serve/run (deleted)"), expected);
    assert_eq!(of("/home/eve/run"), None);
    // Whose code runs in it, a path does not say.
    let of_a_person = by_admin(path, "run", |p| {
        p.kin.executable = Some("/srv/serve/run".into());
    });
    assert_eq!(of_a_person, None);
}

#[test]
fn fewer_digits_of_a_containers_id_than_the_runtimes_print_are_none_of_it() {
    let of = |digits: fn(&mut Protection)| {
        by_admin(digits, "python", |p| {
            p.container = Reading::Value(Some(container('a', "x", None)));
        })
    };
    let expected = Some("the admin protects container aaaaaaaaaaaa".to_owned());
    assert_eq!(of(|p| p.containers = vec!["a".repeat(12)]), expected);
    assert_eq!(of(|p| p.containers = vec!["a".repeat(11)]), None);
}

#[test]
fn the_admin_protects_by_user() {
    let named: fn(&mut Protection) = |p| p.users = vec!["prod".into(), "1000".into()];
    let by_name: fn(&mut Protection) = |p| p.users = vec!["alice".into()];
    let doubt = "whose it is is not known, and the admin protects some users";
    let cases = [
        (
            "by number",
            by_admin(named, "python", |_| {}),
            Some("the admin protects what 1000 runs"),
        ),
        (
            "by name",
            by_admin(by_name, "python", |_| {}),
            Some("the admin protects what alice runs"),
        ),
        (
            "another",
            by_admin(named, "python", |p| p.kin.uid = Some(1001)),
            None,
        ),
        (
            "who made its namespace",
            by_admin(named, "python", |p| {
                p.kin.uid = Some(100_999);
                p.namespace_owner = Reading::Value(Some(1000));
            }),
            Some("the admin protects what 1000 runs"),
        ),
        (
            "a label of eve's container",
            by_admin(named, "python", |p| {
                p.kin.uid = Some(100_999);
                p.namespace_owner = Reading::Value(Some(1005));
                p.owner = Reading::Value("prod".into());
            }),
            None,
        ),
        (
            "not known",
            by_admin(named, "python", |p| p.kin.uid = None),
            Some(doubt),
        ),
    ];
    for (what, found, expected) in cases {
        assert_eq!(found.as_deref(), expected, "{what}");
    }
}

#[test]
fn the_admin_protects_by_unit_of_the_systems_own() {
    let named: fn(&mut Protection) =
        |p| p.units = Glob::parse("inference.service").into_iter().collect();
    let of = |manager, name: &'static str| {
        by_admin(named, "python", move |p| {
            p.kin.unit = Some(unit(name, manager))
        })
    };
    let expected = Some("the admin protects inference.service".to_owned());
    assert_eq!(of(None, "inference.service"), expected);
    assert_eq!(of(Some(1005), "inference.service"), None);
    assert_eq!(of(None, "my-inference.service"), None);
    assert_eq!(by_admin(named, "python", |_| {}), None);
}

#[test]
fn a_pattern_for_units_protects_no_person() {
    let of = |pattern: &str, manager, name: &'static str| {
        let mut scene = Scene::new();
        scene.protection.units = Glob::parse(pattern).into_iter().collect();
        let process = scene.add(process(300, 1, ALICE, "python"));
        process.kin.unit = Some(unit(name, manager));
        why(&scene)
    };
    for (pattern, manager, name, is_protected) in [
        ("vllm@*.service", None, "vllm@0.service", true),
        ("*.service", None, "inference.service", true),
        ("*", None, "docker.service", true),
        ("vllm@*.service", None, "my-vllm@0.service", false),
        // What she calls a unit of her own.
        ("vllm@*.service", Some(ALICE), "vllm@0.service", false),
        // What holds all that she starts.
        ("*.service", None, "user@1001.service", false),
        ("user@*", None, "user@1001.service", false),
        ("*.scope", None, "session-3.scope", false),
        ("session-?.scope", None, "session-3.scope", false),
        ("session-3.scope", None, "session-3.scope", true),
    ] {
        let expected = is_protected.then(|| format!("the admin protects {name}"));
        assert_eq!(of(pattern, manager, name), expected, "{pattern} {name}");
    }
}

#[test]
fn the_admin_protects_by_container_of_roots() {
    let named: fn(&mut Protection) = |p| p.containers = vec!["prod".into(), "a".repeat(12)];
    let of = |container: Reading<Option<Container>>, maker: Option<u32>| {
        by_admin(named, "python", |p| {
            p.container = container;
            p.namespace_owner = Reading::Value(maker);
        })
    };
    let value = |container| Reading::Value(Some(container));
    let nameless = |id| Container {
        name: Reading::Failed("x".into()),
        ..container(id, "x", None)
    };
    let prod = Some("the admin protects container prod");
    let by_id = Some("the admin protects container aaaaaaaaaaaa");
    let doubt = Some("its container is not known, and the admin protects some");
    let cases = [
        (
            "by name",
            of(value(container('b', "prod", None)), None),
            prod,
        ),
        (
            "mapped by root",
            of(value(container('b', "prod", None)), Some(0)),
            prod,
        ),
        ("by id", of(value(container('a', "x", None)), None), by_id),
        ("by id, no name", of(value(nameless('a')), None), by_id),
        (
            "rootless",
            of(value(container('b', "prod", Some(1005))), Some(1005)),
            None,
        ),
        (
            "made by eve",
            of(value(container('b', "prod", None)), Some(1005)),
            None,
        ),
        (
            "another",
            of(value(container('b', "dev", None)), None),
            None,
        ),
        (
            "of no name that is known",
            of(value(nameless('b')), None),
            doubt,
        ),
        (
            "below a user's own systemd",
            of(value(container('b', "prod", Some(1005))), None),
            None,
        ),
        ("not known", of(Reading::Failed("x".into()), None), doubt),
        ("none", of(Reading::Value(None), None), None),
    ];
    for (what, found, expected) in cases {
        assert_eq!(found.as_deref(), expected, "{what}");
    }
}
