//! Whose is a process: whom to ask about it? This attributes and gives no right;
//! what a person may do is [`crate::access`]'s to say.

use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Container, Owner, OwnerKind};

/// What is known of a process and its people.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The real user of the process.
    pub uid: &'a Reading<u32>,
    /// The name of that user.
    pub user: &'a Reading<String>,
    /// The person behind its user, or behind who made its user namespace; `None` where
    /// that is the same. Believed where that user has no name: a range of subordinate ids
    /// may have been given by mistake.
    pub behind: &'a Reading<Option<u32>>,
    /// The name of that person.
    pub behind_user: &'a Reading<String>,
    /// Who made its user namespace; `None` where it has the daemon's own.
    pub namespace_owner: &'a Reading<Option<u32>>,
    /// The name of that user.
    pub namespace_user: &'a Reading<String>,
    /// Its container.
    pub container: &'a Reading<Option<Container>>,
    /// The person whom the label of its container names, where the admin
    /// configured such a label and the container has it.
    pub label: Option<&'a str>,
}

/// Whose the process is.
#[must_use]
pub fn owner(facts: Facts<'_>) -> Reading<Owner> {
    let Some(uid) = facts.uid.last_known().copied() else {
        return facts.uid.because();
    };
    if let Some(person) = facts.label.filter(|label| !label.is_empty()) {
        return Reading::Value(Owner {
            name: person.to_owned(),
            // A label is text: that somebody is called so makes them no user.
            uid: None,
            kind: OwnerKind::Label,
        });
    }
    // Of an unknown one the number of its user is not to be believed.
    let maker = match facts.namespace_owner {
        Reading::Failed(_) => return facts.namespace_owner.because(),
        known => known.last_known().copied().flatten(),
    };
    match maker {
        // Root makes namespaces for others: who that is, it does not say.
        Some(0) | None => {}
        Some(maker) if maker == uid => return users(uid, facts),
        Some(maker) => {
            return user(maker, facts.namespace_user, OwnerKind::Namespace, facts);
        }
    }
    match facts.container {
        // Root made it, and the number of its user is what its image says, or
        // whoever started it: 1000 in there need not be alice.
        Reading::Value(Some(container)) | Reading::Stale(Some(container), _)
            if container.manager.is_none() =>
        {
            Reading::Value(Owner {
                name: called(container),
                uid: None,
                kind: OwnerKind::Container,
            })
        }
        Reading::Value(_) | Reading::Stale(..) => users(uid, facts),
        _ if uid != 0 && maker.is_none() => users(uid, facts),
        // Root of the box, or of a container: not to be guessed.
        unknown => unknown.because(),
    }
}

/// The user who runs it.
fn users(uid: u32, facts: Facts<'_>) -> Reading<Owner> {
    user(uid, facts.user, OwnerKind::User, facts)
}

/// This user; where the box has none of this number, the person behind it: theirs are the
/// subordinate ids that they run jobs as.
fn user(uid: u32, name: &Reading<String>, kind: OwnerKind, facts: Facts<'_>) -> Reading<Owner> {
    let named = |uid: u32, name: &Reading<String>, kind| Owner {
        name: name
            .last_known()
            .cloned()
            .unwrap_or_else(|| uid.to_string()),
        uid: Some(uid),
        kind,
    };
    let own = || Reading::Value(named(uid, name, kind));
    match (name, facts.behind) {
        (Reading::Value(_) | Reading::Stale(..), _) => own(),
        (_, Reading::Value(None) | Reading::Stale(None, _) | Reading::Unsupported) => own(),
        // A name service that hangs tells of neither.
        (Reading::Failed(_) | Reading::Withheld, Reading::Failed(_) | Reading::Withheld) => own(),
        (Reading::Unsupported, Reading::Value(Some(person)) | Reading::Stale(Some(person), _)) => {
            let person = named(*person, facts.behind_user, OwnerKind::Subordinate);
            Reading::Value(person)
        }
        (Reading::Unsupported, unknown) => unknown.because(),
        // Whether it has a name is not known: not to be guessed.
        (unknown, _) => unknown.because(),
    }
}

/// `container train`, `pod team/train-0`, or `container 0123456789ab`.
fn called(container: &Container) -> String {
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
    use gpukill_proto::snapshot::{ContainerId, Pod};
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

    /// What decides, with names that follow from numbers: user 1000 is `u1000`.
    struct Case {
        uid: Reading<u32>,
        namespace_owner: Reading<Option<u32>>,
        container: Reading<Option<Container>>,
        label: Option<&'static str>,
        behind: Reading<Option<u32>>,
        user: Option<Reading<String>>,
    }

    impl Case {
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
            let maker = self.namespace_owner.last_known().copied().flatten();
            owner(Facts {
                uid: &self.uid,
                user: &self.user.clone().unwrap_or_else(|| {
                    let uid = self.uid.last_known();
                    uid.map_or(Reading::Unsupported, |uid| name(*uid))
                }),
                behind: &self.behind,
                behind_user: &match self.behind.last_known() {
                    Some(Some(person)) => name(*person),
                    Some(None) | None => Reading::Unsupported,
                },
                namespace_owner: &self.namespace_owner,
                namespace_user: &maker.map_or(Reading::Unsupported, name),
                container: &self.container,
                label: self.label,
            })
        }
    }

    fn is(name: &str, uid: Option<u32>, kind: OwnerKind) -> Reading<Owner> {
        Reading::Value(Owner {
            name: name.into(),
            uid,
            kind,
        })
    }

    #[test]
    fn a_process_is_whose_who_runs_it_or_made_its_namespace_or_its_containers() {
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
            ("a user", Case::of(1000), is("alice", Some(1000), User)),
            ("a number", Case::of(4242), is("4242", Some(4242), User)),
            ("root of the box", Case::of(0), is("root", Some(0), User)),
            (
                "a rootless container",
                Case {
                    namespace_owner: made_by(1000),
                    container: in_docker(),
                    ..Case::of(100_999)
                },
                is("alice", Some(1000), Namespace),
            ),
            (
                "a nameless maker",
                Case {
                    namespace_owner: made_by(7),
                    ..Case::of(100_999)
                },
                is("7", Some(7), Namespace),
            ),
            (
                "root of a rootless container is its maker",
                Case {
                    namespace_owner: made_by(1000),
                    container: in_docker(),
                    ..Case::of(1000)
                },
                is("alice", Some(1000), User),
            ),
            (
                "root in a container",
                Case {
                    container: in_docker(),
                    ..Case::of(0)
                },
                is("container train", None, Contained),
            ),
            (
                "a container whose users are mapped by root",
                Case {
                    namespace_owner: made_by(0),
                    container: in_docker(),
                    ..Case::of(165_536)
                },
                is("container train", None, Contained),
            ),
            (
                "a namespace of root's without a container",
                Case {
                    namespace_owner: made_by(0),
                    ..Case::of(1000)
                },
                is("alice", Some(1000), User),
            ),
            // Its image says so, `USER 1000`, or `runAsUser`, or as in Jupyter's:
            // that is not the box's alice.
            (
                "a container of the box that runs as some number",
                Case {
                    container: in_docker(),
                    ..Case::of(1000)
                },
                is("container train", None, Contained),
            ),
            (
                "the same where kernels have no such namespaces",
                Case {
                    namespace_owner: Reading::Unsupported,
                    container: in_docker(),
                    ..Case::of(1000)
                },
                is("container train", None, Contained),
            ),
            (
                "a container below a user's own systemd",
                Case {
                    container: managed(),
                    ..Case::of(1000)
                },
                is("alice", Some(1000), User),
            ),
            (
                "root who has themselves called a container",
                Case {
                    container: managed(),
                    ..Case::of(0)
                },
                is("root", Some(0), User),
            ),
            (
                "a rootless container below a user's own systemd",
                Case {
                    namespace_owner: made_by(1000),
                    container: managed(),
                    ..Case::of(100_999)
                },
                is("alice", Some(1000), Namespace),
            ),
            (
                "a label",
                Case {
                    container: in_docker(),
                    label: Some("bob"),
                    ..Case::of(0)
                },
                is("bob", None, Label),
            ),
            (
                "a label before a user",
                Case {
                    container: in_docker(),
                    label: Some("bob"),
                    ..Case::of(1000)
                },
                is("bob", None, Label),
            ),
            (
                "an empty label",
                Case {
                    container: in_docker(),
                    label: Some(""),
                    ..Case::of(0)
                },
                is("container train", None, Contained),
            ),
            (
                "an unknown namespace",
                Case {
                    namespace_owner: Reading::Failed("x".into()),
                    ..Case::of(1000)
                },
                Reading::Failed("x".into()),
            ),
            (
                "a user who may be in a container",
                Case {
                    container: Reading::Failed("x".into()),
                    ..Case::of(1000)
                },
                is("alice", Some(1000), User),
            ),
            (
                "root who may be in a container",
                Case {
                    container: Reading::Failed("x".into()),
                    ..Case::of(0)
                },
                Reading::Failed("x".into()),
            ),
            (
                "nobody known",
                Case {
                    uid: Reading::Failed("x".into()),
                    ..Case::of(0)
                },
                Reading::Failed("x".into()),
            ),
        ];
        for (what, case, expected) in cases {
            assert_eq!(case.owner(), expected, "{what}");
        }
    }

    #[test]
    fn a_number_that_nobody_has_is_the_person_behind_it() {
        use OwnerKind::{Container as Contained, Subordinate, User};
        let of_alice = |uid| Case {
            behind: Reading::Value(Some(1000)),
            ..Case::of(uid)
        };
        let not_yet = || Reading::Failed("not resolved yet".to_owned());
        let named = |user: Reading<String>| Case {
            user: Some(user),
            ..of_alice(60_019)
        };
        let alice = || is("alice", Some(1000), Subordinate);
        let cases = [
            ("a subordinate id", of_alice(60_019), alice()),
            (
                "a namespace that a subordinate id made",
                Case {
                    namespace_owner: Reading::Value(Some(60_019)),
                    ..of_alice(60_020)
                },
                alice(),
            ),
            (
                "a user who has a name",
                named(Reading::Value("bob".into())),
                is("bob", Some(60_019), User),
            ),
            (
                "a user of whom it is not known whether they have one",
                named(not_yet()),
                Reading::Failed("not resolved yet".into()),
            ),
            (
                "nobody known to be behind it",
                Case {
                    behind: not_yet().because(),
                    ..Case::of(60_019)
                },
                Reading::Failed("not resolved yet".into()),
            ),
            (
                "a name service that hangs",
                Case {
                    behind: not_yet().because(),
                    ..named(not_yet())
                },
                is("60019", Some(60_019), User),
            ),
            (
                "a container of the box",
                Case {
                    container: Reading::Value(Some(container(Some("train")))),
                    ..of_alice(60_019)
                },
                is("container train", None, Contained),
            ),
        ];
        for (what, case, expected) in cases {
            assert_eq!(case.owner(), expected, "{what}");
        }
    }

    #[test]
    fn a_container_is_called_by_its_pod_its_name_or_its_id() {
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
            called(&pod(Reading::Value("train-0".into()))),
            "pod team/train-0"
        );
        assert_eq!(called(&pod(Reading::Unsupported)), "container trainer");
        assert_eq!(called(&container(None)), "container 0123456789ab");
        let mut lxc = container(None);
        lxc.id.id = "web01".into();
        assert_eq!(called(&lxc), "container web01");
    }

    proptest! {
        #[test]
        fn only_who_runs_it_made_its_namespace_or_is_behind_it_is_ever_named_as_a_user(
            uid in prop_oneof![Just(0u32), Just(1000), any::<u32>()],
            maker in prop_oneof![Just(None), Just(Some(0u32)), Just(Some(1000)), any::<Option<u32>>()],
            contained: bool,
            labelled: bool,
            behind: Option<u32>,
        ) {
            let case = Case {
                namespace_owner: Reading::Value(maker),
                container: Reading::Value(contained.then(|| container(None))),
                label: labelled.then_some("bob"),
                behind: Reading::Value(behind),
                ..Case::of(uid)
            };
            let found = case.owner();
            let found = found.known().unwrap();
            if labelled {
                prop_assert_eq!((found.uid, found.kind), (None, OwnerKind::Label));
            } else if found.kind == OwnerKind::Subordinate {
                prop_assert_eq!(found.uid, behind);
                // Who has a name is themselves.
                prop_assert!(![0, 1000].contains(&maker.filter(|it| *it != 0).unwrap_or(uid)));
            } else if let Some(named) = found.uid {
                prop_assert!(named == uid || Some(named) == maker);
            } else {
                prop_assert!(contained && matches!(maker, None | Some(0)));
            }
        }
    }
}
