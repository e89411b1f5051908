//! Decides which operations a caller may perform. `status` lists rights from the same
//! table that checks requests, so it shows what the daemon allows.

use gpukill_proto::status::Right;
use std::collections::BTreeSet;

/// The caller of a request, as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Effective user id of the peer at connection time.
    pub uid: u32,
    /// Primary and supplementary groups.
    pub groups: BTreeSet<u32>,
    /// Whether the caller runs in another PID namespace than the daemon. The maker of a
    /// container image chooses its users, so such callers get read access only.
    pub contained: bool,
    /// The callers that share the limits of one person with this caller.
    pub limit_group: LimitGroup,
}

/// Callers that share the limits of one person: connections, plans and concurrent
/// requests. A limit group gives no right. One person can have many user ids and be
/// several callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitGroup {
    /// The guard. It is not a client, so no client takes its slots.
    Guard,
    /// Callers of the person with this user id.
    Person(u32),
    /// Root of containers, which has the uid of the host's root.
    ContainedRoot,
    /// Callers of which only a uid is known, such as processes that ended right after
    /// connecting. They share one allotment, because a person can make such a caller
    /// for each of their subordinate uids.
    Unknown,
}

/// The kernel's evidence for the person behind a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PersonEvidence {
    /// The user of the systemd slice. Only root can move a process out of its slice.
    /// The login uid is not used: where it is unset, the kernel lets each process write
    /// it once.
    pub slice: Option<u32>,
    /// The owner of the subordinate id that the process runs as, or of the subordinate
    /// id that made its user namespace.
    pub subordinate_owner: Option<u32>,
    /// The owner of the outermost user namespace that is not the daemon's. A process of
    /// a subordinate uid can make such a namespace too, so this evidence comes last.
    pub namespace_owner: Option<u32>,
}

impl LimitGroup {
    /// Returns the limit group of a caller. `evidence` is `None` where the caller's
    /// process no longer exists.
    #[must_use]
    pub fn for_caller(uid: u32, contained: bool, evidence: Option<PersonEvidence>) -> Self {
        let Some(evidence) = evidence else {
            return Self::Unknown;
        };
        // Root starts jobs of other users in its own slice.
        let slice = evidence.slice.filter(|user| *user != 0);
        match slice
            .or(evidence.subordinate_owner)
            .or(evidence.namespace_owner)
        {
            Some(person) => Self::Person(person),
            None if uid == 0 && contained => Self::ContainedRoot,
            None => Self::Person(uid),
        }
    }
}

/// The first uid of a person where `login.defs(5)` sets no `UID_MIN`.
pub const UID_MIN: u32 = 1000;

/// The user ids of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uids {
    /// The real uid: the owner of the process.
    pub real: u32,
    /// The effective uid: the rights of the process.
    pub effective: u32,
    /// The saved uid: rights that the process can take again.
    pub saved: u32,
}

impl Uids {
    /// Ids of a process with one user, or of which only one id is known.
    #[must_use]
    pub const fn from_single(uid: u32) -> Self {
        Self {
            real: uid,
            effective: uid,
            saved: uid,
        }
    }
}

/// The groups and users to which the admin has given rights.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Roles {
    /// The group that may end any process and reset devices.
    pub operator_group: Option<u32>,
    /// The group that may edit the rules.
    pub admin_group: Option<u32>,
    /// The person who runs the daemon (`--user`). This person is its admin.
    pub owner: Option<u32>,
    /// Whether plain users cannot see the command lines and requests of other users.
    pub hide_other_users: bool,
    /// The processes that the kernel lets the daemon signal.
    pub reach: SignalReach,
}

/// The processes that the kernel lets the daemon signal. kill(2) requires CAP_KILL for
/// a process of another user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SignalReach {
    /// The daemon has CAP_KILL.
    #[default]
    AllUsers,
    /// The daemon has no CAP_KILL and can signal only processes of this user, its own.
    OneUser(u32),
}

impl SignalReach {
    const fn includes(self, uid: u32) -> bool {
        match self {
            Self::AllUsers => true,
            Self::OneUser(reached) => reached == uid,
        }
    }
}

/// An operation that a caller requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// See devices, processes and history.
    View,
    /// Release a driver, and take it again.
    Quiesce,
    /// Reset devices.
    Reset,
    /// Copy the whole store, and delete old data from it.
    MaintainStore,
    /// Delete the rows of devices that are gone.
    ForgetDevices,
    /// Change the guard's rules.
    EditRules,
    /// Postpone the end of a job. No user is the owner where the owner is unknown.
    Snooze {
        /// The owner of the process, as the rules see it.
        owner: Option<u32>,
    },
    /// See the command line of a process. No user is the owner where the owner is
    /// unknown.
    ReadCommand {
        /// The real user id of the process.
        owner: Option<u32>,
        /// The owner of its user namespace, where that is not the host's. The kernel
        /// lets the owner of a namespace control every process in it.
        namespace_owner: Option<u32>,
    },
    /// See the request, plan and outcome of an action. That the action took place is
    /// not secret. No user is the requester where the requester is unknown.
    ReadAction {
        /// The uid of the requester.
        requester: Option<u32>,
    },
    /// End a process. No user is the owner where the owner is unknown.
    End {
        /// All its user ids. A process that has the rights of another user, or can take
        /// them, does not belong to its real user alone.
        uids: Option<Uids>,
        /// As in [`Operation::ReadCommand`].
        namespace_owner: Option<u32>,
    },
}

/// A user or group that may do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Principal {
    /// This user.
    User(u32),
    /// Every member of this group.
    Group(u32),
}

/// The answer to a request.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruling {
    /// The operation is allowed.
    Allow,
    /// The operation is denied. This right is missing.
    Deny(Right),
}

/// Whether the caller is root of the host, and not root of a container.
#[must_use]
pub fn is_host_root(caller: &Caller) -> bool {
    // The root of a user namespace arrives here as the uid it is mapped to.
    caller.uid == 0 && !caller.contained
}

/// Returns every right of the caller, in the order of [`Right`].
#[must_use]
pub fn rights(caller: &Caller, roles: &Roles) -> Vec<Right> {
    // The image of a container decides its users and groups.
    if caller.contained {
        return vec![Right::Look];
    }
    let mut rights = vec![Right::Look];
    if roles.reach.includes(caller.uid) {
        rights.push(Right::EndOwn);
    }
    if roles.reach == SignalReach::AllUsers && has_role(caller, roles.owner, roles.operator_group) {
        rights.push(Right::EndAny);
    }
    if has_role(caller, roles.owner, roles.admin_group) {
        rights.push(Right::EditRules);
    }
    rights
}

/// Whether the caller is root of the host, the person who runs the daemon, or a member
/// of `group`.
fn has_role(caller: &Caller, owner: Option<u32>, group: Option<u32>) -> bool {
    let in_group = group.is_some_and(|group| caller.groups.contains(&group));
    let owns_daemon = owner == Some(caller.uid);
    !caller.contained && (is_host_root(caller) || owns_daemon || in_group)
}

/// Whether the caller may see the command line of a process of `owner` in a user namespace of
/// `namespace_owner`: [`Operation::ReadCommand`].
#[must_use]
pub fn may_read_command(
    caller: &Caller,
    (owner, namespace_owner): (Option<u32>, Option<u32>),
    roles: &Roles,
) -> bool {
    let read = Operation::ReadCommand {
        owner,
        namespace_owner,
    };
    check(caller, read, roles) == Ruling::Allow
}

/// Decides whether the caller may perform this operation.
pub fn check(caller: &Caller, operation: Operation, roles: &Roles) -> Ruling {
    let rights = rights(caller, roles);
    let owns_some = !caller.contained;
    let is_trusted = [Right::EndAny, Right::EditRules]
        .iter()
        .any(|right| rights.contains(right));
    let sees_all = !roles.hide_other_users || is_trusted;
    let allowed = match operation {
        Operation::View => true,
        Operation::Quiesce | Operation::Reset => {
            has_role(caller, roles.owner, roles.operator_group)
        }
        Operation::MaintainStore | Operation::ForgetDevices | Operation::EditRules => {
            rights.contains(&Right::EditRules)
        }
        Operation::ReadCommand {
            owner,
            namespace_owner,
        } => sees_all || (owns_some && [owner, namespace_owner].contains(&Some(caller.uid))),
        Operation::Snooze { owner } => (owns_some && owner == Some(caller.uid)) || is_trusted,
        Operation::ReadAction { requester: by } => {
            sees_all || (owns_some && by == Some(caller.uid))
        }
        Operation::End {
            uids,
            namespace_owner,
        } => {
            let is_all = uids == Some(Uids::from_single(caller.uid));
            let is_theirs =
                rights.contains(&Right::EndOwn) && (is_all || namespace_owner == Some(caller.uid));
            is_theirs || rights.contains(&Right::EndAny)
        }
    };
    if allowed {
        Ruling::Allow
    } else {
        Ruling::Deny(missing_right(operation))
    }
}

/// The right that a denied caller lacks.
const fn missing_right(operation: Operation) -> Right {
    match operation {
        Operation::MaintainStore | Operation::ForgetDevices | Operation::EditRules => {
            Right::EditRules
        }
        Operation::View
        | Operation::Quiesce
        | Operation::Reset
        | Operation::Snooze { .. }
        | Operation::ReadCommand { .. }
        | Operation::ReadAction { .. }
        | Operation::End { .. } => Right::EndAny,
    }
}

/// Returns every user and group that may end this process, by the same rule as
/// [`check`]: the owner first, root last. Where the daemon cannot signal a process, its
/// users end it themselves.
#[must_use]
pub fn principals_allowed_to_end(
    uids: Option<Uids>,
    namespace_owner: Option<u32>,
    roles: &Roles,
) -> Vec<Principal> {
    let by_themselves = match roles.reach {
        SignalReach::AllUsers => roles.clone(),
        SignalReach::OneUser(_) => Roles::default(),
    };
    let roles = &by_themselves;
    let everybody = [
        uids.map(|uids| Principal::User(uids.real)),
        namespace_owner.map(Principal::User),
        roles.owner.map(Principal::User),
        roles.operator_group.map(Principal::Group),
        Some(Principal::User(0)),
    ];
    let mut people: Vec<Principal> = Vec::new();
    for person in everybody.into_iter().flatten() {
        let (uid, groups) = match person {
            Principal::User(uid) => (uid, BTreeSet::new()),
            // A caller that has no right but through the group.
            Principal::Group(group) => (u32::MAX, [group].into()),
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
    fn limits_count_the_person_behind_a_subuid() {
        let alone = PersonEvidence::default();
        let slice = |uid| PersonEvidence {
            slice: Some(uid),
            subordinate_owner: Some(1001),
            namespace_owner: Some(100_001),
        };
        let superior = PersonEvidence {
            slice: None,
            ..slice(0)
        };
        let namespace = PersonEvidence {
            subordinate_owner: None,
            ..superior
        };
        let of_roots = PersonEvidence {
            slice: Some(0),
            ..alone
        };
        use LimitGroup::{ContainedRoot, Person, Unknown};
        for (uid, contained, evidence, expected) in [
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
            let found = LimitGroup::for_caller(uid, contained, evidence);
            assert_eq!(found, expected, "{uid} {evidence:?}");
        }
    }

    proptest! {
        #[test]
        fn no_client_shares_the_guard_limits(
            uid: u32,
            contained: bool,
            slice: Option<u32>,
            subordinate_owner: Option<u32>,
            namespace_owner: Option<u32>,
            is_found: bool,
        ) {
            let evidence = PersonEvidence { slice, subordinate_owner, namespace_owner };
            let group = LimitGroup::for_caller(uid, contained, is_found.then_some(evidence));
            prop_assert_ne!(group, LimitGroup::Guard);
        }
    }

    fn single_uid(uid: u32) -> Option<Uids> {
        Some(Uids::from_single(uid))
    }

    fn roles() -> Roles {
        Roles {
            operator_group: Some(OPERATORS),
            admin_group: Some(ADMINS),
            owner: None,
            hide_other_users: true,
            reach: SignalReach::AllUsers,
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
        for (case, caller, expected) in cases {
            assert_eq!(rights(&caller, &roles()), expected, "{case}");
        }
    }

    #[test]
    fn daemon_owner_is_its_admin() {
        let mine = Roles {
            owner: Some(1000),
            ..roles()
        };
        assert_eq!(rights(&caller(1000, &[]), &mine).len(), 4);
        assert_eq!(rights(&caller(1001, &[]), &mine).len(), 2);
    }

    #[test]
    fn without_cap_kill_only_own_processes_end() {
        use Right::{EditRules, EndOwn, Look};
        let mine = Roles {
            owner: Some(1000),
            reach: SignalReach::OneUser(1000),
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
        for (process_owner, expected) in [
            (single_uid(1000), true),
            (single_uid(1001), false),
            (None, false),
        ] {
            assert_eq!(end(&alice, process_owner), expected, "{process_owner:?}");
        }
        assert!(!end(&caller(0, &[0]), single_uid(1000)));
        assert!(!end(&caller(1001, &[]), single_uid(1001)));
        // The daemon owns the driver that it reads and decides on a reset itself.
        for operation in [Operation::Quiesce, Operation::Reset] {
            assert_eq!(check(&alice, operation, &mine), Ruling::Allow);
        }
        // The users to ask where the daemon lacks the capability.
        use Principal::User;
        let people = |uids| principals_allowed_to_end(uids, None, &mine);
        assert_eq!(people(single_uid(1001)), [User(1001), User(0)]);
        assert_eq!(people(single_uid(1000)), [User(1000), User(0)]);
    }

    #[test]
    fn missing_group_gives_no_right() {
        let none = Roles {
            operator_group: None,
            admin_group: None,
            ..roles()
        };
        assert_eq!(rights(&caller(1000, &[OPERATORS, ADMINS]), &none).len(), 2);
    }

    #[test]
    fn command_lines_are_hidden_from_plain_users() {
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
                "the user of the daemon",
                &personal,
                caller(1000, &[]),
                Some(1001),
                Ruling::Allow,
            ),
        ];
        for (case, roles, caller, owner, expected) in cases {
            assert_eq!(read(&caller, owner, roles), expected, "{case}");
        }
    }

    #[test]
    fn requests_are_hidden_from_plain_users() {
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
            check(caller, Operation::ReadAction { requester: by }, roles) == Ruling::Allow
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
    fn rootless_container_owner_sees_its_processes() {
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
    fn only_admins_maintain_the_store() {
        let keep = |caller: &Caller| check(caller, Operation::MaintainStore, &roles());
        assert_eq!(keep(&caller(1003, &[ADMINS])), Ruling::Allow);
        assert_eq!(keep(&caller(0, &[])), Ruling::Allow);
        let denied = Ruling::Deny(Right::EditRules);
        assert_eq!(keep(&caller(1002, &[OPERATORS])), denied);
        assert_eq!(keep(&caller(1000, &[1000])), denied);
    }

    #[test]
    fn owner_namespace_owner_and_operators_end() {
        let end = |uid, groups: &[u32], owner, namespace_owner| {
            let operation = Operation::End {
                uids: owner,
                namespace_owner,
            };
            check(&caller(uid, groups), operation, &roles())
        };
        let denied = Ruling::Deny(Right::EndAny);
        let cases = [
            (
                "their own",
                end(1000, &[], single_uid(1000), None),
                Ruling::Allow,
            ),
            ("another's", end(1000, &[], single_uid(1001), None), denied),
            ("nobody's", end(1000, &[], None, None), denied),
            ("root's", end(1000, &[0], single_uid(0), None), denied),
            (
                "in their container",
                end(1000, &[], single_uid(100_999), Some(1000)),
                Ruling::Allow,
            ),
            (
                "an operator",
                end(1000, &[OPERATORS], None, None),
                Ruling::Allow,
            ),
            (
                "an admin",
                end(1000, &[ADMINS], single_uid(1001), None),
                denied,
            ),
            ("root", end(0, &[], None, None), Ruling::Allow),
        ];
        for (case, ruling, expected) in cases {
            assert_eq!(ruling, expected, "{case}");
        }
    }

    #[test]
    fn principals_are_listed_once() {
        use Principal::{Group, User};
        let mine = Roles {
            owner: Some(1000),
            operator_group: None,
            ..roles()
        };
        let cases = [
            (
                principals_allowed_to_end(single_uid(1001), None, &roles()),
                vec![User(1001), Group(OPERATORS), User(0)],
            ),
            (
                principals_allowed_to_end(single_uid(100_999), Some(1004), &roles()),
                vec![User(100_999), User(1004), Group(OPERATORS), User(0)],
            ),
            (
                principals_allowed_to_end(single_uid(0), None, &mine),
                vec![User(0), User(1000)],
            ),
            (
                principals_allowed_to_end(None, None, &mine),
                vec![User(1000), User(0)],
            ),
        ];
        for (people, expected) in cases {
            assert_eq!(people, expected);
        }
    }

    #[test]
    fn process_with_foreign_uids_is_not_owned() {
        let end = |uids| {
            let operation = Operation::End {
                uids: Some(uids),
                namespace_owner: None,
            };
            check(&caller(1000, &[]), operation, &roles())
        };
        let own = Uids::from_single(1000);
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
            let people = principals_allowed_to_end(Some(uids), None, &roles());
            assert!(!people.contains(&Principal::User(1000)), "{people:?}");
            assert_eq!(people.len(), 2, "{people:?}");
        }
    }

    /// Every kind of caller.
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

    /// Every combination of process uids and namespace owner.
    fn owners() -> Vec<(&'static str, Option<Uids>, Option<u32>)> {
        let own = Uids::from_single(1000);
        vec![
            ("alice's", single_uid(1000), None),
            ("bob's", single_uid(1001), None),
            ("root's", single_uid(0), None),
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
                    ..Uids::from_single(0)
                }),
                None,
            ),
            (
                "100999's, in alice's namespace",
                single_uid(100_999),
                Some(1000),
            ),
            ("bob's, in alice's namespace", single_uid(1001), Some(1000)),
            ("alice's, in bob's namespace", single_uid(1000), Some(1001)),
            (
                "165536's, in root's namespace",
                single_uid(165_536),
                Some(0),
            ),
            ("nobody's that is known", None, None),
            (
                "nobody's that is known, in alice's namespace",
                None,
                Some(1000),
            ),
        ]
    }

    /// The access table, one line for each combination.
    fn table() -> String {
        use std::fmt::Write as _;
        let group = roles();
        let personal = Roles {
            operator_group: None,
            admin_group: None,
            owner: Some(1000),
            hide_other_users: true,
            reach: SignalReach::AllUsers,
        };
        let without_capability = Roles {
            reach: SignalReach::OneUser(1000),
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
        let ruling_text = |ruling: Ruling| match ruling {
            Ruling::Allow => "yes",
            Ruling::Deny(_) => "no",
        };
        let mut table = String::new();
        for (daemon, roles) in named {
            writeln!(table, "{daemon}").unwrap();
            for (name, caller) in callers() {
                let rights = rights(&caller, roles);
                let view = ruling_text(check(&caller, Operation::View, roles));
                let quiesce = ruling_text(check(&caller, Operation::Quiesce, roles));
                let keep = ruling_text(check(&caller, Operation::MaintainStore, roles));
                let reset = ruling_text(check(&caller, Operation::Reset, roles));
                let all =
                    format!("look {view}, quiesce {quiesce}, reset {reset}, keep the store {keep}");
                writeln!(table, "  {name}: {rights:?}; {all}").unwrap();
                let acts = [Some(1000), Some(1001), Some(0), None].map(|by| {
                    let requester = by.map_or_else(|| "nobody".to_owned(), |uid| uid.to_string());
                    let read = check(&caller, Operation::ReadAction { requester: by }, roles);
                    format!("{requester} {}", ruling_text(read))
                });
                writeln!(
                    table,
                    "    acts that were asked for by: {}",
                    acts.join(", ")
                )
                .unwrap();
                for (case, uids, namespace_owner) in owners() {
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
                    let (read, end) = (ruling_text(read), ruling_text(end));
                    writeln!(table, "    {case:<45} read {read:<4} end {end}").unwrap();
                }
            }
            for (case, uids, namespace_owner) in owners() {
                let people = principals_allowed_to_end(uids, namespace_owner, roles);
                writeln!(table, "  {case:<47} is ended by {people:?}").unwrap();
            }
        }
        table
    }

    #[test]
    fn access_table_is_golden() {
        crate::golden::compare("access", &table());
    }
}
