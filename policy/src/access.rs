//! May this caller do this? One table for asking and for telling: what `status`
//! says a person may do is what the daemon lets them do.

use gpukill_proto::status::Right;
use std::collections::BTreeSet;

/// Who asks, as the kernel says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The effective user id of the peer when it connected.
    pub uid: u32,
    /// Its primary and supplementary groups.
    pub groups: BTreeSet<u32>,
    /// Whether it runs in another PID namespace than the daemon: whoever makes the
    /// image of a container chooses its users, so that these may look and no more.
    pub contained: bool,
    /// With which callers it shares the limits of one person.
    pub limit_group: LimitGroup,
}

/// Callers that share what one person may have of connections, plans and questions at a
/// time. It gives no right: a person can have many user ids, and be more than one caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitGroup {
    /// The guard, which no client is: nobody takes its places.
    Guard,
    /// Callers of the person with this user id.
    Person(u32),
    /// Root of containers, which has the uid of the box's root.
    ContainedRoot,
    /// Callers of which only a uid is known, such as processes that ended right after
    /// they had connected. They share one allotment: a person can make such a caller for
    /// each of their subordinate uids.
    Unknown,
}

/// What the kernel says of the person behind a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PersonBehind {
    /// The user of the slice that systemd made for them: nobody leaves it without root.
    /// Who logged in says no more: where nobody did, the kernel lets each process write
    /// once who that was.
    pub slice: Option<u32>,
    /// Whose subordinate id it runs as, or whose made its user namespace.
    pub superior: Option<u32>,
    /// The owner of the outermost user namespace that is not the daemon's. A process of a
    /// subordinate uid can make one too, so that it counts last.
    pub namespace_owner: Option<u32>,
}

impl LimitGroup {
    /// The group of a caller, `behind` which is this person; `None` where its process
    /// cannot be found any more.
    #[must_use]
    pub fn of(uid: u32, contained: bool, behind: Option<PersonBehind>) -> Self {
        let Some(behind) = behind else {
            return Self::Unknown;
        };
        // In their own slice root starts others' jobs.
        let slice = behind.slice.filter(|user| *user != 0);
        match slice.or(behind.superior).or(behind.namespace_owner) {
            Some(person) => Self::Person(person),
            None if uid == 0 && contained => Self::ContainedRoot,
            None => Self::Person(uid),
        }
    }
}

/// The first uid of people where `login.defs(5)` names no other: its `UID_MIN`.
pub const UID_MIN: u32 = 1000;

/// The users a process runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uids {
    /// Whose process it is.
    pub real: u32,
    /// Whose rights it has.
    pub effective: u32,
    /// Whose rights it may take again.
    pub saved: u32,
}

impl Uids {
    /// Of a process that has one user, or of which one alone is known.
    #[must_use]
    pub const fn all(uid: u32) -> Self {
        Self {
            real: uid,
            effective: uid,
            saved: uid,
        }
    }
}

/// To whom the admin has given what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles {
    /// The group that may end anybody's processes and reset devices.
    pub operator_group: Option<u32>,
    /// The group that may edit the rules.
    pub admin_group: Option<u32>,
    /// The person for whom the daemon runs (`--user`); they are its admin.
    pub owner: Option<u32>,
    /// Whether plain users may not see others' command lines, and what others
    /// asked for.
    pub hide_other_users: bool,
    /// Whose processes the kernel lets the daemon end.
    pub reach: Reach,
}

/// Whose processes the kernel lets the daemon end: kill(2) wants CAP_KILL for those of
/// another user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reach {
    /// It has that capability.
    #[default]
    Everybody,
    /// It does not: those of the user that it runs as.
    Only(u32),
}

impl Reach {
    const fn holds(self, uid: u32) -> bool {
        match self {
            Self::Everybody => true,
            Self::Only(reached) => reached == uid,
        }
    }
}

/// Something a caller wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// See devices, processes and history.
    Look,
    /// Let go of a driver, and take it again.
    Quiesce,
    /// Reset devices.
    Reset,
    /// Copy the whole store, and delete what is old from it.
    KeepStore,
    /// Drop the rows of devices that are gone.
    ForgetDevices,
    /// Change the guard's rules.
    EditRules,
    /// Ask for more time before a job is ended. Who is not known is nobody.
    Snooze {
        /// Whose process it is, as the rules see it.
        owner: Option<u32>,
    },
    /// See the command line of a process. Who is not known is nobody.
    ReadCommand {
        /// The real user id of the process.
        owner: Option<u32>,
        /// Who made its user namespace, where it is not the box's own: the
        /// kernel lets them do with it as they like.
        namespace_owner: Option<u32>,
    },
    /// See what somebody asked for, what was planned and what came of it; that it
    /// was done is no secret. Who is not known is nobody.
    ReadAct {
        /// Who asked.
        by: Option<u32>,
    },
    /// End a process. Who is not known is nobody.
    End {
        /// As whom it runs: one that has another's rights, or may take them, is
        /// not whose it was.
        uids: Option<Uids>,
        /// As in [`Operation::ReadCommand`].
        namespace_owner: Option<u32>,
    },
}

/// One of those who may do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Person {
    /// This user.
    User(u32),
    /// Whoever is in this group.
    Group(u32),
}

/// The answer.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// Let it be done.
    Allow,
    /// Do not; this right is missing.
    Deny(Right),
}

/// Whether the caller is root of this box, and not of a container on it.
#[must_use]
pub fn is_root_of_the_box(caller: &Caller) -> bool {
    // A user namespace's root arrives here as the uid it is mapped to.
    caller.uid == 0 && !caller.contained
}

/// Everything the caller may do, in the order of [`Right`].
#[must_use]
pub fn rights(caller: &Caller, roles: &Roles) -> Vec<Right> {
    // Its image says who somebody in a container is, and in which groups.
    if caller.contained {
        return vec![Right::Look];
    }
    let mut rights = vec![Right::Look];
    if roles.reach.holds(caller.uid) {
        rights.push(Right::EndOwn);
    }
    if roles.reach == Reach::Everybody && is_one_of(caller, roles.owner, roles.operator_group) {
        rights.push(Right::EndAny);
    }
    if is_one_of(caller, roles.owner, roles.admin_group) {
        rights.push(Right::EditRules);
    }
    rights
}

/// Root of the box, the person for whom the daemon runs, and who is in this group.
fn is_one_of(caller: &Caller, owner: Option<u32>, group: Option<u32>) -> bool {
    let in_group = group.is_some_and(|group| caller.groups.contains(&group));
    let owns_daemon = owner == Some(caller.uid);
    !caller.contained && (is_root_of_the_box(caller) || owns_daemon || in_group)
}

/// May the caller do this?
pub fn check(caller: &Caller, operation: Operation, roles: &Roles) -> Ruling {
    let rights = rights(caller, roles);
    let owns_some = !caller.contained;
    let is_trusted = [Right::EndAny, Right::EditRules]
        .iter()
        .any(|right| rights.contains(right));
    let sees_all = !roles.hide_other_users || is_trusted;
    let allowed = match operation {
        Operation::Look => true,
        Operation::Quiesce | Operation::Reset => {
            is_one_of(caller, roles.owner, roles.operator_group)
        }
        Operation::KeepStore | Operation::ForgetDevices | Operation::EditRules => {
            rights.contains(&Right::EditRules)
        }
        Operation::ReadCommand {
            owner,
            namespace_owner,
        } => sees_all || (owns_some && [owner, namespace_owner].contains(&Some(caller.uid))),
        Operation::Snooze { owner } => (owns_some && owner == Some(caller.uid)) || is_trusted,
        Operation::ReadAct { by } => sees_all || (owns_some && by == Some(caller.uid)),
        Operation::End {
            uids,
            namespace_owner,
        } => {
            let is_all = uids == Some(Uids::all(caller.uid));
            let is_theirs =
                rights.contains(&Right::EndOwn) && (is_all || namespace_owner == Some(caller.uid));
            is_theirs || rights.contains(&Right::EndAny)
        }
    };
    if allowed {
        Ruling::Allow
    } else {
        Ruling::Deny(lacking(operation))
    }
}

/// What whoever may not do this lacks.
const fn lacking(operation: Operation) -> Right {
    match operation {
        Operation::KeepStore | Operation::ForgetDevices | Operation::EditRules => Right::EditRules,
        Operation::Look
        | Operation::Quiesce
        | Operation::Reset
        | Operation::Snooze { .. }
        | Operation::ReadCommand { .. }
        | Operation::ReadAct { .. }
        | Operation::End { .. } => Right::EndAny,
    }
}

/// Everybody who may end this process, by the same rule: whose it is first, root
/// last. What the daemon cannot do they do themselves.
#[must_use]
pub fn who_may_end(uids: Option<Uids>, namespace_owner: Option<u32>, roles: &Roles) -> Vec<Person> {
    let by_themselves = match roles.reach {
        Reach::Everybody => roles.clone(),
        Reach::Only(_) => Roles::default(),
    };
    let roles = &by_themselves;
    let everybody = [
        uids.map(|uids| Person::User(uids.real)),
        namespace_owner.map(Person::User),
        roles.owner.map(Person::User),
        roles.operator_group.map(Person::Group),
        Some(Person::User(0)),
    ];
    let mut people: Vec<Person> = Vec::new();
    for person in everybody.into_iter().flatten() {
        let (uid, groups) = match person {
            Person::User(uid) => (uid, BTreeSet::new()),
            // Somebody who is nobody but for the group.
            Person::Group(group) => (u32::MAX, [group].into()),
        };
        let operation = Operation::End {
            uids,
            namespace_owner,
        };
        let ruling = check(
            &Caller {
                uid,
                groups,
                contained: false,
                limit_group: LimitGroup::Person(uid),
            },
            operation,
            roles,
        );
        if ruling == Ruling::Allow && !people.contains(&person) {
            people.push(person);
        }
    }
    people
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OPERATORS: u32 = 800;
    const ADMINS: u32 = 801;

    fn caller(uid: u32, groups: &[u32]) -> Caller {
        Caller {
            uid,
            groups: groups.iter().copied().collect(),
            contained: false,
            limit_group: LimitGroup::Person(uid),
        }
    }

    #[test]
    fn limits_count_the_person_behind_a_subordinate_uid() {
        let alone = PersonBehind::default();
        let slice = |uid| PersonBehind {
            slice: Some(uid),
            superior: Some(1001),
            namespace_owner: Some(100_001),
        };
        let superior = PersonBehind {
            slice: None,
            ..slice(0)
        };
        let namespace = PersonBehind {
            superior: None,
            ..superior
        };
        let of_roots = PersonBehind {
            slice: Some(0),
            ..alone
        };
        use LimitGroup::{ContainedRoot, Person, Unknown};
        for (uid, contained, behind, expected) in [
            (1000, false, Some(alone), Person(1000)),
            (100_002, true, Some(slice(1000)), Person(1000)),
            (100_002, false, Some(superior), Person(1001)),
            (100_002, true, Some(namespace), Person(100_001)),
            (0, true, Some(alone), ContainedRoot),
            (0, false, Some(alone), Person(0)),
            (0, false, Some(of_roots), Person(0)),
            (1000, false, Some(of_roots), Person(1000)),
            (100_002, true, None, Unknown),
        ] {
            let found = LimitGroup::of(uid, contained, behind);
            assert_eq!(found, expected, "{uid} {behind:?}");
        }
    }

    proptest! {
        #[test]
        fn no_client_is_counted_with_the_guard(
            uid: u32,
            contained: bool,
            slice: Option<u32>,
            superior: Option<u32>,
            namespace_owner: Option<u32>,
            is_found: bool,
        ) {
            let behind = PersonBehind { slice, superior, namespace_owner };
            let group = LimitGroup::of(uid, contained, is_found.then_some(behind));
            prop_assert_ne!(group, LimitGroup::Guard);
        }
    }

    fn of(uid: u32) -> Option<Uids> {
        Some(Uids::all(uid))
    }

    fn roles() -> Roles {
        Roles {
            operator_group: Some(OPERATORS),
            admin_group: Some(ADMINS),
            owner: None,
            hide_other_users: true,
            reach: Reach::Everybody,
        }
    }

    #[test]
    fn rights_come_from_uid_and_groups_alone() {
        use Right::{EditRules, EndAny, EndOwn, Look};
        let cases = [
            ("a plain user", caller(1000, &[1000]), vec![Look, EndOwn]),
            (
                "an operator",
                caller(1000, &[1000, OPERATORS]),
                vec![Look, EndOwn, EndAny],
            ),
            (
                "an admin",
                caller(1000, &[1000, ADMINS]),
                vec![Look, EndOwn, EditRules],
            ),
            (
                "root",
                caller(0, &[0]),
                vec![Look, EndOwn, EndAny, EditRules],
            ),
            (
                "group root is nobody special",
                caller(1000, &[0]),
                vec![Look, EndOwn],
            ),
        ];
        for (who, caller, expected) in cases {
            assert_eq!(rights(&caller, &roles()), expected, "{who}");
        }
    }

    #[test]
    fn the_person_who_runs_their_own_daemon_is_its_admin() {
        let mine = Roles {
            owner: Some(1000),
            ..roles()
        };
        assert_eq!(rights(&caller(1000, &[]), &mine).len(), 4);
        assert_eq!(rights(&caller(1001, &[]), &mine).len(), 2);
    }

    #[test]
    fn a_daemon_without_the_capability_lets_nobody_end_what_is_anothers() {
        use Right::{EditRules, EndOwn, Look};
        let mine = Roles {
            owner: Some(1000),
            reach: Reach::Only(1000),
            ..roles()
        };
        let alice = caller(1000, &[1000]);
        assert_eq!(rights(&alice, &mine), [Look, EndOwn, EditRules]);
        assert_eq!(rights(&caller(0, &[0]), &mine), [Look, EditRules]);
        let end = |caller: &Caller, uids| {
            let operation = Operation::End {
                uids,
                namespace_owner: None,
            };
            check(caller, operation, &mine) == Ruling::Allow
        };
        for (whose, expected) in [(of(1000), true), (of(1001), false), (None, false)] {
            assert_eq!(end(&alice, whose), expected, "{whose:?}");
        }
        assert!(!end(&caller(0, &[0]), of(1000)));
        assert!(!end(&caller(1001, &[]), of(1001)));
        // The driver that it reads is its own, and so is the choice to reset.
        for operation in [Operation::Quiesce, Operation::Reset] {
            assert_eq!(check(&alice, operation, &mine), Ruling::Allow);
        }
        // Whom to ask for what it cannot do.
        use Person::User;
        let people = |uids| who_may_end(uids, None, &mine);
        assert_eq!(people(of(1001)), [User(1001), User(0)]);
        assert_eq!(people(of(1000)), [User(1000), User(0)]);
    }

    #[test]
    fn a_group_that_does_not_exist_gives_nobody_a_right() {
        let none = Roles {
            operator_group: None,
            admin_group: None,
            ..roles()
        };
        assert_eq!(rights(&caller(1000, &[OPERATORS, ADMINS]), &none).len(), 2);
    }

    #[test]
    fn command_lines_are_hidden_only_from_plain_users_and_only_when_the_admin_says_so() {
        let read = |caller: &Caller, owner, roles: &Roles| {
            let namespace_owner = None;
            let operation = Operation::ReadCommand {
                owner,
                namespace_owner,
            };
            check(caller, operation, roles)
        };
        let hidden = roles();
        let open = Roles {
            hide_other_users: false,
            ..roles()
        };
        let personal = Roles {
            owner: Some(1000),
            ..roles()
        };
        let deny = Ruling::Deny(Right::EndAny);
        let cases = [
            (
                "nothing is hidden",
                &open,
                caller(1000, &[1000]),
                Some(1001),
                Ruling::Allow,
            ),
            (
                "one's own",
                &hidden,
                caller(1000, &[1000]),
                Some(1000),
                Ruling::Allow,
            ),
            (
                "another's",
                &hidden,
                caller(1000, &[1000]),
                Some(1001),
                deny,
            ),
            ("nobody's", &hidden, caller(1000, &[1000]), None, deny),
            (
                "an operator",
                &hidden,
                caller(1000, &[OPERATORS]),
                Some(1001),
                Ruling::Allow,
            ),
            (
                "an admin",
                &hidden,
                caller(1000, &[ADMINS]),
                Some(1001),
                Ruling::Allow,
            ),
            (
                "an operator, nobody's",
                &hidden,
                caller(1000, &[OPERATORS]),
                None,
                Ruling::Allow,
            ),
            (
                "an admin, nobody's",
                &hidden,
                caller(1000, &[ADMINS]),
                None,
                Ruling::Allow,
            ),
            ("root", &hidden, caller(0, &[]), None, Ruling::Allow),
            (
                "whose daemon it is",
                &personal,
                caller(1000, &[]),
                Some(1001),
                Ruling::Allow,
            ),
        ];
        for (who, roles, caller, owner, expected) in cases {
            assert_eq!(read(&caller, owner, roles), expected, "{who}");
        }
    }

    #[test]
    fn what_others_asked_for_is_hidden_only_when_the_admin_says_so_and_from_plain_users() {
        let contained = Caller {
            contained: true,
            ..caller(1000, &[])
        };
        let callers = [
            caller(1000, &[1000]),
            contained,
            caller(1002, &[OPERATORS]),
            caller(1003, &[ADMINS]),
            caller(0, &[]),
        ];
        let open = Roles {
            hide_other_users: false,
            ..roles()
        };
        let read = |caller: &Caller, by, roles: &Roles| {
            check(caller, Operation::ReadAct { by }, roles) == Ruling::Allow
        };
        let own = callers.each_ref().map(|it| read(it, Some(1000), &roles()));
        assert_eq!(own, [true, false, true, true, true]);
        for by in [Some(1001), None] {
            let hidden = callers.each_ref().map(|it| read(it, by, &roles()));
            assert_eq!(hidden, [false, false, true, true, true], "{by:?}");
            let shown = callers.each_ref().map(|it| read(it, by, &open));
            assert_eq!(shown, [true; 5], "{by:?}");
        }
    }

    #[test]
    fn who_made_a_rootless_container_sees_what_runs_in_it() {
        let read = |uid, namespace_owner| {
            let operation = Operation::ReadCommand {
                owner: Some(100_999),
                namespace_owner,
            };
            check(&caller(uid, &[]), operation, &roles())
        };
        assert_eq!(read(1000, Some(1000)), Ruling::Allow);
        assert_eq!(read(1001, Some(1000)), Ruling::Deny(Right::EndAny));
        assert_eq!(read(1000, None), Ruling::Deny(Right::EndAny));
    }

    #[test]
    fn the_store_is_kept_by_admins_alone() {
        let keep = |caller: &Caller| check(caller, Operation::KeepStore, &roles());
        assert_eq!(keep(&caller(1003, &[ADMINS])), Ruling::Allow);
        assert_eq!(keep(&caller(0, &[])), Ruling::Allow);
        let denied = Ruling::Deny(Right::EditRules);
        assert_eq!(keep(&caller(1002, &[OPERATORS])), denied);
        assert_eq!(keep(&caller(1000, &[1000])), denied);
    }

    #[test]
    fn a_process_is_ended_by_its_user_by_who_made_its_namespace_and_by_operators() {
        let end = |uid, groups: &[u32], owner, namespace_owner| {
            let operation = Operation::End {
                uids: owner,
                namespace_owner,
            };
            check(&caller(uid, groups), operation, &roles())
        };
        let denied = Ruling::Deny(Right::EndAny);
        let cases = [
            ("their own", end(1000, &[], of(1000), None), Ruling::Allow),
            ("another's", end(1000, &[], of(1001), None), denied),
            ("nobody's", end(1000, &[], None, None), denied),
            ("root's", end(1000, &[0], of(0), None), denied),
            (
                "in their container",
                end(1000, &[], of(100_999), Some(1000)),
                Ruling::Allow,
            ),
            (
                "an operator",
                end(1000, &[OPERATORS], None, None),
                Ruling::Allow,
            ),
            ("an admin", end(1000, &[ADMINS], of(1001), None), denied),
            ("root", end(0, &[], None, None), Ruling::Allow),
        ];
        for (who, ruling, expected) in cases {
            assert_eq!(ruling, expected, "{who}");
        }
    }

    #[test]
    fn everybody_who_may_end_a_process_is_named_once() {
        use Person::{Group, User};
        let mine = Roles {
            owner: Some(1000),
            operator_group: None,
            ..roles()
        };
        let cases = [
            (
                who_may_end(of(1001), None, &roles()),
                vec![User(1001), Group(OPERATORS), User(0)],
            ),
            (
                who_may_end(of(100_999), Some(1004), &roles()),
                vec![User(100_999), User(1004), Group(OPERATORS), User(0)],
            ),
            (who_may_end(of(0), None, &mine), vec![User(0), User(1000)]),
            (who_may_end(None, None, &mine), vec![User(1000), User(0)]),
        ];
        for (people, expected) in cases {
            assert_eq!(people, expected);
        }
    }

    #[test]
    fn a_process_that_has_anothers_rights_is_not_its_users_to_end() {
        let end = |uids| {
            let operation = Operation::End {
                uids: Some(uids),
                namespace_owner: None,
            };
            check(&caller(1000, &[]), operation, &roles())
        };
        let own = Uids::all(1000);
        assert_eq!(end(own), Ruling::Allow);
        let others = [
            Uids { real: 0, ..own },
            Uids {
                effective: 0,
                ..own
            },
            Uids { saved: 0, ..own },
        ];
        for uids in others {
            assert_eq!(end(uids), Ruling::Deny(Right::EndAny), "{uids:?}");
            let people = who_may_end(Some(uids), None, &roles());
            assert!(!people.contains(&Person::User(1000)), "{people:?}");
            assert_eq!(people.len(), 2, "{people:?}");
        }
    }

    /// Everybody who may ask.
    fn callers() -> Vec<(&'static str, Caller)> {
        let contained = |caller: Caller| Caller {
            contained: true,
            ..caller
        };
        vec![
            ("alice, 1000", caller(1000, &[1000])),
            ("alice, in group root", caller(1000, &[1000, 0])),
            ("an operator, 1002", caller(1002, &[1002, OPERATORS])),
            ("an admin, 1003", caller(1003, &[1003, ADMINS])),
            ("root", caller(0, &[0])),
            ("root of a container", contained(caller(0, &[0, OPERATORS]))),
            ("alice in a container", contained(caller(1000, &[1000]))),
            (
                "alice in a container, as an operator",
                contained(caller(1000, &[OPERATORS, ADMINS])),
            ),
            ("nobody, -1", caller(u32::MAX, &[u32::MAX])),
        ]
    }

    /// Whom a process may run as, and who made its namespace.
    fn owners() -> Vec<(&'static str, Option<Uids>, Option<u32>)> {
        let own = Uids::all(1000);
        vec![
            ("alice's", of(1000), None),
            ("bob's", of(1001), None),
            ("root's", of(0), None),
            (
                "alice's, effective root",
                Some(Uids {
                    effective: 0,
                    ..own
                }),
                None,
            ),
            ("alice's, saved root", Some(Uids { saved: 0, ..own }), None),
            (
                "alice's, saved bob",
                Some(Uids { saved: 1001, ..own }),
                None,
            ),
            (
                "root's, effective alice",
                Some(Uids {
                    effective: 1000,
                    ..Uids::all(0)
                }),
                None,
            ),
            ("100999's, in alice's namespace", of(100_999), Some(1000)),
            ("bob's, in alice's namespace", of(1001), Some(1000)),
            ("alice's, in bob's namespace", of(1000), Some(1001)),
            ("165536's, in root's namespace", of(165_536), Some(0)),
            ("nobody's that is known", None, None),
            (
                "nobody's that is known, in alice's namespace",
                None,
                Some(1000),
            ),
        ]
    }

    /// Who may do what, in a line each.
    fn table() -> String {
        use std::fmt::Write as _;
        let group = roles();
        let personal = Roles {
            operator_group: None,
            admin_group: None,
            owner: Some(1000),
            hide_other_users: true,
            reach: Reach::Everybody,
        };
        let without_capability = Roles {
            reach: Reach::Only(1000),
            ..personal.clone()
        };
        let of_root = Roles {
            owner: Some(0),
            ..personal.clone()
        };
        let named = [
            ("a daemon with groups", &group),
            ("a daemon of alice's own", &personal),
            ("a daemon of root's own", &of_root),
            (
                "a daemon of alice's own, without CAP_KILL",
                &without_capability,
            ),
        ];
        let said = |ruling: Ruling| match ruling {
            Ruling::Allow => "yes",
            Ruling::Deny(_) => "no",
        };
        let mut table = String::new();
        for (daemon, roles) in named {
            writeln!(table, "{daemon}").unwrap();
            for (who, caller) in callers() {
                let rights = rights(&caller, roles);
                let look = said(check(&caller, Operation::Look, roles));
                let quiesce = said(check(&caller, Operation::Quiesce, roles));
                let keep = said(check(&caller, Operation::KeepStore, roles));
                let reset = said(check(&caller, Operation::Reset, roles));
                let all =
                    format!("look {look}, quiesce {quiesce}, reset {reset}, keep the store {keep}");
                writeln!(table, "  {who}: {rights:?}; {all}").unwrap();
                let acts = [Some(1000), Some(1001), Some(0), None].map(|by| {
                    let whose = by.map_or_else(|| "nobody".to_owned(), |uid| uid.to_string());
                    let read = check(&caller, Operation::ReadAct { by }, roles);
                    format!("{whose} {}", said(read))
                });
                writeln!(
                    table,
                    "    acts that were asked for by: {}",
                    acts.join(", ")
                )
                .unwrap();
                for (whose, uids, namespace_owner) in owners() {
                    let owner = uids.map(|uids| uids.real);
                    let read = Operation::ReadCommand {
                        owner,
                        namespace_owner,
                    };
                    let end = Operation::End {
                        uids,
                        namespace_owner,
                    };
                    let (read, end) = (check(&caller, read, roles), check(&caller, end, roles));
                    let (read, end) = (said(read), said(end));
                    writeln!(table, "    {whose:<45} read {read:<4} end {end}").unwrap();
                }
            }
            for (whose, uids, namespace_owner) in owners() {
                let people = who_may_end(uids, namespace_owner, roles);
                writeln!(table, "  {whose:<47} is ended by {people:?}").unwrap();
            }
        }
        table
    }

    #[test]
    fn who_may_do_what_with_whose_process_is_one_table() {
        crate::golden::compare("access", &table());
    }
}
