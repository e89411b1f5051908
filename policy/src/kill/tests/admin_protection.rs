//! Tests of the admin's protection lists, mostly of entries that almost match.

use super::super::*;
use super::fixture::*;
use super::protection::{by_admin, by_admin_of_system, protection_reason};
use crate::select::Glob;

#[test]
fn replaced_executable_keeps_its_path() {
    let path: fn(&mut Protection) = |p| p.names = vec!["/srv/serve/run".into()];
    let of = |executable: &'static str| {
        by_admin_of_system(path, "run", move |p| {
            p.lineage.executable = Some(executable.into());
        })
    };
    let expected = Some("the admin protects the name /srv/serve/run".to_owned());
    assert_eq!(of("/srv/serve/run"), expected);
    assert_eq!(of("/srv/serve/run (deleted)"), expected);
    assert_eq!(of("/home/eve/run"), None);
    // A path does not show which code a person loads into the process.
    let of_a_person = by_admin(path, "run", |p| {
        p.lineage.executable = Some("/srv/serve/run".into());
    });
    assert_eq!(of_a_person, None);
}

#[test]
fn short_container_id_does_not_match() {
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
fn users_are_protected() {
    let named: fn(&mut Protection) = |p| p.users = vec!["prod".into(), "1000".into()];
    let by_name: fn(&mut Protection) = |p| p.users = vec!["alice".into()];
    let doubt = "its owner is not known, and the admin protects some users";
    let cases = [
        (
            "by number",
            by_admin(named, "python", |_| {}),
            Some("the admin protects processes of 1000"),
        ),
        (
            "by name",
            by_admin(by_name, "python", |_| {}),
            Some("the admin protects processes of alice"),
        ),
        (
            "another",
            by_admin(named, "python", |p| p.lineage.uid = Some(1001)),
            None,
        ),
        (
            "who made its namespace",
            by_admin(named, "python", |p| {
                p.lineage.uid = Some(100_999);
                p.namespace_owner = Reading::Value(Some(1000));
            }),
            Some("the admin protects processes of 1000"),
        ),
        (
            "the name of who made its namespace",
            by_admin(by_name, "python", |p| {
                p.lineage.uid = Some(100_999);
                p.namespace_owner = Reading::Value(Some(1000));
                p.owner = Reading::Value("container lab".into());
            }),
            Some("the admin protects processes of alice"),
        ),
        (
            "a namespace of an unknown name",
            by_admin(by_name, "python", |p| {
                p.lineage.uid = Some(100_999);
                p.namespace_owner = Reading::Value(Some(1000));
                p.person_name = Reading::Failed("not resolved yet".into());
            }),
            Some(doubt),
        ),
        (
            "an unknown name, which no entry needs",
            by_admin(
                |p| p.users = vec!["1005".into()],
                "python",
                |p| p.person_name = Reading::Failed("not resolved yet".into()),
            ),
            None,
        ),
        (
            "a number instead of an unknown name",
            by_admin(by_name, "python", |p| {
                p.owner = Reading::Value("1000".into());
                p.person_name = Reading::Failed("not resolved yet".into());
            }),
            Some(doubt),
        ),
        (
            "a user without a name",
            by_admin(by_name, "python", |p| {
                p.lineage.uid = Some(4242);
                p.owner = Reading::Value("4242".into());
                p.person_name = Reading::Unsupported;
            }),
            None,
        ),
        (
            "an unknown namespace",
            by_admin(named, "python", |p| {
                p.lineage.uid = Some(100_999);
                p.namespace_owner = Reading::Failed("not permitted".into());
            }),
            Some(doubt),
        ),
        (
            "a label of eve's container",
            by_admin(named, "python", |p| {
                p.lineage.uid = Some(100_999);
                p.namespace_owner = Reading::Value(Some(1005));
                p.owner = Reading::Value("prod".into());
            }),
            None,
        ),
        (
            "not known",
            by_admin(named, "python", |p| p.lineage.uid = None),
            Some(doubt),
        ),
    ];
    for (what, found, expected) in cases {
        assert_eq!(found.as_deref(), expected, "{what}");
    }
}

#[test]
fn system_units_are_protected() {
    let named: fn(&mut Protection) =
        |p| p.units = Glob::parse("inference.service").into_iter().collect();
    let of = |manager, name: &'static str| {
        by_admin(named, "python", move |p| {
            p.lineage.unit = Some(unit(name, manager))
        })
    };
    let expected = Some("the admin protects inference.service".to_owned());
    assert_eq!(of(None, "inference.service"), expected);
    assert_eq!(of(Some(1005), "inference.service"), None);
    assert_eq!(of(None, "my-inference.service"), None);
    assert_eq!(by_admin(named, "python", |_| {}), None);
}

#[test]
fn unit_pattern_protects_no_person() {
    let of = |pattern: &str, manager, name: &'static str| {
        let mut test_host = KillTestHost::new();
        test_host.protection.units = Glob::parse(pattern).into_iter().collect();
        let process = test_host.add(process(300, 1, ALICE, "python"));
        process.lineage.unit = Some(unit(name, manager));
        protection_reason(&test_host)
    };
    for (pattern, manager, name, is_protected) in [
        ("vllm@*.service", None, "vllm@0.service", true),
        ("*.service", None, "inference.service", true),
        ("*", None, "docker.service", true),
        ("vllm@*.service", None, "my-vllm@0.service", false),
        // A unit of her own systemd.
        ("vllm@*.service", Some(ALICE), "vllm@0.service", false),
        // The unit that contains all processes of a user.
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
fn root_containers_are_protected() {
    let named: fn(&mut Protection) = |p| p.containers = vec!["prod".into(), "a".repeat(12)];
    let of = |container: Reading<Option<Container>>, namespace_creator: Option<u32>| {
        by_admin(named, "python", |p| {
            p.container = container;
            p.namespace_owner = Reading::Value(namespace_creator);
        })
    };
    let value = |container| Reading::Value(Some(container));
    let nameless = |id| Container {
        name: Reading::Failed("x".into()),
        ..container(id, "x", None)
    };
    let prod = Some("the admin protects container prod");
    let by_id = Some("the admin protects container aaaaaaaaaaaa");
    let doubt = Some("its container is not known, and the admin protects some containers");
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
