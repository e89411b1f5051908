//! Determines the owner of a process: the person to ask about it. Ownership attributes
//! and gives no right; [`crate::access`] decides rights.

use gpukill_proto::model::{Container, Owner, OwnerKind};
use gpukill_proto::reading::Reading;

/// The facts that determine the owner.
#[derive(Debug, Clone, Copy)]
pub struct OwnerFacts<'a> {
    /// The real user of the process.
    pub uid: &'a Reading<u32>,
    /// The name of that user.
    pub user: &'a Reading<String>,
    /// The person behind that user, or behind the creator of its user namespace; `None`
    /// where it is the same person. Used only where that user has no name: a range of
    /// subordinate ids may have been assigned by mistake.
    pub person_behind: &'a Reading<Option<u32>>,
    /// The name of that person.
    pub person_behind_name: &'a Reading<String>,
    /// The creator of its user namespace; `None` where it is the daemon's own.
    pub namespace_owner: &'a Reading<Option<u32>>,
    /// The name of that user.
    pub namespace_user: &'a Reading<String>,
    /// Its container.
    pub container: &'a Reading<Option<Container>>,
    /// The person named by the label of its container, where the admin configured such
    /// a label and the container has it.
    pub label: Option<&'a str>,
}

/// Returns the owner of the process.
#[must_use]
pub fn determine_owner(facts: OwnerFacts<'_>) -> Reading<Owner> {
    let Some(uid) = facts.uid.last_known().copied() else {
        return facts.uid.as_unknown();
    };
    if let Some(person) = facts.label.filter(|label| !label.is_empty()) {
        return Reading::Value(Owner {
            name: person.to_owned(),
            // A label is text: it does not prove that such a user exists.
            uid: None,
            kind: OwnerKind::Label,
        });
    }
    // Without the creator of the namespace, the uid proves nothing.
    let namespace_creator = match facts.namespace_owner {
        Reading::Failed(_) => return facts.namespace_owner.as_unknown(),
        known => known.last_known().copied().flatten(),
    };
    match namespace_creator {
        // Root creates namespaces for others without naming them.
        Some(0) | None => {}
        Some(namespace_creator) if namespace_creator == uid => return owner_by_uid(uid, facts),
        Some(namespace_creator) => {
            return resolve_user(
                namespace_creator,
                facts.namespace_user,
                OwnerKind::Namespace,
                facts,
            );
        }
    }
    match facts.container {
        // Root made the container, and its image or its starter chose the uid: uid 1000
        // in it need not be alice.
        Reading::Value(Some(container)) | Reading::Stale(Some(container), _)
            if container.manager.is_none() =>
        {
            Reading::Value(Owner {
                name: container_label(container),
                uid: None,
                kind: OwnerKind::Container,
            })
        }
        Reading::Value(_) | Reading::Stale(..) => owner_by_uid(uid, facts),
        _ if uid != 0 && namespace_creator.is_none() => owner_by_uid(uid, facts),
        // Root of the host or of a container: this is not guessed.
        unknown => unknown.as_unknown(),
    }
}

/// The user who runs the process.
fn owner_by_uid(uid: u32, facts: OwnerFacts<'_>) -> Reading<Owner> {
    resolve_user(uid, facts.user, OwnerKind::User, facts)
}

/// Returns this user, or, where the host has no user of this uid, the person behind it:
/// subordinate ids belong to the person who runs jobs as them.
fn resolve_user(
    uid: u32,
    name: &Reading<String>,
    kind: OwnerKind,
    facts: OwnerFacts<'_>,
) -> Reading<Owner> {
    let named = |uid: u32, name: &Reading<String>, kind| Owner {
        name: name
            .last_known()
            .cloned()
            .unwrap_or_else(|| uid.to_string()),
        uid: Some(uid),
        kind,
    };
    let own = || Reading::Value(named(uid, name, kind));
    match (name, facts.person_behind) {
        (Reading::Value(_) | Reading::Stale(..), _) => own(),
        (_, Reading::Value(None) | Reading::Stale(None, _) | Reading::Unsupported) => own(),
        // A name service that hangs reports neither name.
        (Reading::Failed(_) | Reading::Withheld, Reading::Failed(_) | Reading::Withheld) => own(),
        (Reading::Unsupported, Reading::Value(Some(person)) | Reading::Stale(Some(person), _)) => {
            let person = named(*person, facts.person_behind_name, OwnerKind::Subordinate);
            Reading::Value(person)
        }
        (Reading::Unsupported, unknown) => unknown.as_unknown(),
        // Whether the user has a name is unknown: this is not guessed.
        (unknown, _) => unknown.as_unknown(),
    }
}

/// Example: `container train`, `pod team/train-0`, or `container 0123456789ab`.
fn container_label(container: &Container) -> String {
    if let Some(pod) = &container.pod
        && let (Some(namespace), Some(name)) = (pod.namespace.last_known(), pod.name.last_known())
    {
        return format!("pod {namespace}/{name}");
    }
    let id = &container.id.id;
    let short = || id.get(..12).filter(|_| id.len() == 64).unwrap_or(id);
    let name = container
        .name
        .last_known()
        .map_or_else(short, String::as_str);
    format!("container {name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::model::{ContainerId, Pod};
    use proptest::prelude::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn container(name: Option<&str>) -> Container {
        let name = name.map_or(Reading::Unsupported, |name| Reading::Value(name.to_owned()));
        Container {
            manager: None,
            id: ContainerId {
                runtime: "docker".into(),
                id: ID.into(),
            },
            name,
            image: Reading::Unsupported,
            pod: None,
        }
    }

    /// The facts, with names that follow from uids: user 1000 is `u1000`.
    struct OwnerCase {
        uid: Reading<u32>,
        namespace_owner: Reading<Option<u32>>,
        container: Reading<Option<Container>>,
        label: Option<&'static str>,
        behind: Reading<Option<u32>>,
        user: Option<Reading<String>>,
    }

    impl OwnerCase {
        fn of(uid: u32) -> Self {
            Self {
                uid: Reading::Value(uid),
                namespace_owner: Reading::Value(None),
                container: Reading::Value(None),
                label: None,
                behind: Reading::Value(None),
                user: None,
            }
        }

        fn owner(&self) -> Reading<Owner> {
            let name = |uid: u32| match uid {
                0 => Reading::Value("root".to_owned()),
                1000 => Reading::Value("alice".to_owned()),
                _ => Reading::Unsupported,
            };
            let namespace_creator = self.namespace_owner.last_known().copied().flatten();
            determine_owner(OwnerFacts {
                uid: &self.uid,
                user: &self.user.clone().unwrap_or_else(|| {
                    let uid = self.uid.last_known();
                    uid.map_or(Reading::Unsupported, |uid| name(*uid))
                }),
                person_behind: &self.behind,
                person_behind_name: &match self.behind.last_known() {
                    Some(Some(person)) => name(*person),
                    Some(None) | None => Reading::Unsupported,
                },
                namespace_owner: &self.namespace_owner,
                namespace_user: &namespace_creator.map_or(Reading::Unsupported, name),
                container: &self.container,
                label: self.label,
            })
        }
    }

    fn expected_owner(name: &str, uid: Option<u32>, kind: OwnerKind) -> Reading<Owner> {
        Reading::Value(Owner {
            name: name.into(),
            uid,
            kind,
        })
    }

    #[test]
    fn owner_is_user_creator_or_container() {
        use OwnerKind::{Container as Contained, Label, Namespace, User};
        let in_docker = || Reading::Value(Some(container(Some("train"))));
        let managed = || {
            Reading::Value(Some(Container {
                manager: Some(1000),
                ..container(Some("train"))
            }))
        };
        let made_by = |uid| Reading::Value(Some(uid));
        let cases = [
            (
                "a user",
                OwnerCase::of(1000),
                expected_owner("alice", Some(1000), User),
            ),
            (
                "a number",
                OwnerCase::of(4242),
                expected_owner("4242", Some(4242), User),
            ),
            (
                "root of the box",
                OwnerCase::of(0),
                expected_owner("root", Some(0), User),
            ),
            (
                "a rootless container",
                OwnerCase {
                    namespace_owner: made_by(1000),
                    container: in_docker(),
                    ..OwnerCase::of(100_999)
                },
                expected_owner("alice", Some(1000), Namespace),
            ),
            (
                "a nameless maker",
                OwnerCase {
                    namespace_owner: made_by(7),
                    ..OwnerCase::of(100_999)
                },
                expected_owner("7", Some(7), Namespace),
            ),
            (
                "root of a rootless container is its maker",
                OwnerCase {
                    namespace_owner: made_by(1000),
                    container: in_docker(),
                    ..OwnerCase::of(1000)
                },
                expected_owner("alice", Some(1000), User),
            ),
            (
                "root in a container",
                OwnerCase {
                    container: in_docker(),
                    ..OwnerCase::of(0)
                },
                expected_owner("container train", None, Contained),
            ),
            (
                "a container whose users are mapped by root",
                OwnerCase {
                    namespace_owner: made_by(0),
                    container: in_docker(),
                    ..OwnerCase::of(165_536)
                },
                expected_owner("container train", None, Contained),
            ),
            (
                "a namespace of root's without a container",
                OwnerCase {
                    namespace_owner: made_by(0),
                    ..OwnerCase::of(1000)
                },
                expected_owner("alice", Some(1000), User),
            ),
            // The image decides the uid, by `USER 1000`, `runAsUser`, or as Jupyter's
            // images do: this is not the host's alice.
            (
                "a container of the box that runs as some number",
                OwnerCase {
                    container: in_docker(),
                    ..OwnerCase::of(1000)
                },
                expected_owner("container train", None, Contained),
            ),
            (
                "the same where kernels have no such namespaces",
                OwnerCase {
                    namespace_owner: Reading::Unsupported,
                    container: in_docker(),
                    ..OwnerCase::of(1000)
                },
                expected_owner("container train", None, Contained),
            ),
            (
                "a container below a user's own systemd",
                OwnerCase {
                    container: managed(),
                    ..OwnerCase::of(1000)
                },
                expected_owner("alice", Some(1000), User),
            ),
            (
                "root who has themselves called a container",
                OwnerCase {
                    container: managed(),
                    ..OwnerCase::of(0)
                },
                expected_owner("root", Some(0), User),
            ),
            (
                "a rootless container below a user's own systemd",
                OwnerCase {
                    namespace_owner: made_by(1000),
                    container: managed(),
                    ..OwnerCase::of(100_999)
                },
                expected_owner("alice", Some(1000), Namespace),
            ),
            (
                "a label",
                OwnerCase {
                    container: in_docker(),
                    label: Some("bob"),
                    ..OwnerCase::of(0)
                },
                expected_owner("bob", None, Label),
            ),
            (
                "a label before a user",
                OwnerCase {
                    container: in_docker(),
                    label: Some("bob"),
                    ..OwnerCase::of(1000)
                },
                expected_owner("bob", None, Label),
            ),
            (
                "an empty label",
                OwnerCase {
                    container: in_docker(),
                    label: Some(""),
                    ..OwnerCase::of(0)
                },
                expected_owner("container train", None, Contained),
            ),
            (
                "an unknown namespace",
                OwnerCase {
                    namespace_owner: Reading::Failed("x".into()),
                    ..OwnerCase::of(1000)
                },
                Reading::Failed("x".into()),
            ),
            (
                "a user who may be in a container",
                OwnerCase {
                    container: Reading::Failed("x".into()),
                    ..OwnerCase::of(1000)
                },
                expected_owner("alice", Some(1000), User),
            ),
            (
                "root who may be in a container",
                OwnerCase {
                    container: Reading::Failed("x".into()),
                    ..OwnerCase::of(0)
                },
                Reading::Failed("x".into()),
            ),
            (
                "nobody known",
                OwnerCase {
                    uid: Reading::Failed("x".into()),
                    ..OwnerCase::of(0)
                },
                Reading::Failed("x".into()),
            ),
        ];
        for (what, case, expected) in cases {
            assert_eq!(case.owner(), expected, "{what}");
        }
    }

    #[test]
    fn unnamed_uid_belongs_to_the_person_behind() {
        use OwnerKind::{Container as Contained, Subordinate, User};
        let of_alice = |uid| OwnerCase {
            behind: Reading::Value(Some(1000)),
            ..OwnerCase::of(uid)
        };
        let not_yet = || Reading::Failed("not resolved yet".to_owned());
        let named = |user: Reading<String>| OwnerCase {
            user: Some(user),
            ..of_alice(60_019)
        };
        let alice = || expected_owner("alice", Some(1000), Subordinate);
        let cases = [
            ("a subordinate id", of_alice(60_019), alice()),
            (
                "a namespace that a subordinate id made",
                OwnerCase {
                    namespace_owner: Reading::Value(Some(60_019)),
                    ..of_alice(60_020)
                },
                alice(),
            ),
            (
                "a user who has a name",
                named(Reading::Value("bob".into())),
                expected_owner("bob", Some(60_019), User),
            ),
            (
                "a user with an unresolved name",
                named(not_yet()),
                Reading::Failed("not resolved yet".into()),
            ),
            (
                "nobody known to be behind it",
                OwnerCase {
                    behind: not_yet().as_unknown(),
                    ..OwnerCase::of(60_019)
                },
                Reading::Failed("not resolved yet".into()),
            ),
            (
                "a name service that hangs",
                OwnerCase {
                    behind: not_yet().as_unknown(),
                    ..named(not_yet())
                },
                expected_owner("60019", Some(60_019), User),
            ),
            (
                "a container of the box",
                OwnerCase {
                    container: Reading::Value(Some(container(Some("train")))),
                    ..of_alice(60_019)
                },
                expected_owner("container train", None, Contained),
            ),
        ];
        for (what, case, expected) in cases {
            assert_eq!(case.owner(), expected, "{what}");
        }
    }

    #[test]
    fn container_label_is_pod_name_or_id() {
        let pod = |name: Reading<String>| Container {
            manager: None,
            pod: Some(Pod {
                uid: "u".into(),
                name,
                namespace: Reading::Value("team".into()),
            }),
            ..container(Some("trainer"))
        };
        assert_eq!(
            container_label(&pod(Reading::Value("train-0".into()))),
            "pod team/train-0"
        );
        assert_eq!(
            container_label(&pod(Reading::Unsupported)),
            "container trainer"
        );
        assert_eq!(container_label(&container(None)), "container 0123456789ab");
        let mut lxc = container(None);
        lxc.id.id = "web01".into();
        assert_eq!(container_label(&lxc), "container web01");
    }

    proptest! {
        #[test]
        fn only_known_people_are_named(
            uid in prop_oneof![Just(0u32), Just(1000), any::<u32>()],
            namespace_creator in prop_oneof![
                Just(None),
                Just(Some(0u32)),
                Just(Some(1000)),
                any::<Option<u32>>(),
            ],
            contained: bool,
            labelled: bool,
            behind: Option<u32>,
        ) {
            let case = OwnerCase {
                namespace_owner: Reading::Value(namespace_creator),
                container: Reading::Value(contained.then(|| container(None))),
                label: labelled.then_some("bob"),
                behind: Reading::Value(behind),
                ..OwnerCase::of(uid)
            };
            let found = case.owner();
            let found = found.known().unwrap();
            if labelled {
                prop_assert_eq!((found.uid, found.kind), (None, OwnerKind::Label));
            } else if found.kind == OwnerKind::Subordinate {
                prop_assert_eq!(found.uid, behind);
                // A user with a name is never attributed to the person behind it.
                let person = namespace_creator.filter(|it| *it != 0).unwrap_or(uid);
                prop_assert!(![0, 1000].contains(&person));
            } else if let Some(named) = found.uid {
                prop_assert!(named == uid || Some(named) == namespace_creator);
            } else {
                prop_assert!(contained && matches!(namespace_creator, None | Some(0)));
            }
        }
    }
}
