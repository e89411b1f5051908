//! The groups of those who own processes here or logged in to start them, as far as they
//! are known.

use crate::audit::Groups;
use crate::host::users::Users;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::snapshot::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The same value for as long as nothing in it changes.
#[derive(Debug, Default)]
pub(super) struct Memberships(Arc<Groups>);

impl Memberships {
    /// The groups of a snapshot's owners, and of those who logged in. Asks for those that
    /// are not known, and never waits.
    pub(super) fn of(&mut self, snapshot: &Snapshot, users: &Users) -> Arc<Groups> {
        let people = snapshot.processes.iter().flat_map(|process| {
            let owner = process.owner.last_known().and_then(|owner| owner.uid);
            owner.into_iter().chain(process.login())
        });
        let people: BTreeSet<u32> = people.into_set();
        let known = people.into_iter();
        let known = known.filter_map(|uid| Some((uid, users.groups_of(uid)?)));
        let known: Vec<_> = known.collect();
        let is_same = known.len() == self.0.len()
            && known
                .iter()
                .all(|(uid, names)| self.0.get(uid).is_some_and(|it| **it == **names));
        if !is_same {
            let groups = known.into_iter().map(|(uid, names)| (uid, names.to_vec()));
            self.0 = Arc::new(groups.collect());
        }
        Arc::clone(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::users::{Group, NameService, User};
    use gpukill_proto::reading::Reading;
    use gpukill_proto::snapshot::{DeviceId, GpuProcess, Owner, OwnerKind};
    use gpukill_proto::units::Timestamp;

    /// Everybody is in a group of their own, but nobody knows number 9.
    struct Own;

    impl NameService for Own {
        fn user(&self, _: u32) -> Result<Option<User>, String> {
            Ok(None)
        }

        fn group(&self, _: &str) -> Result<Option<Group>, String> {
            Ok(None)
        }

        fn groups_of(&self, uid: u32) -> Result<Option<Vec<String>>, String> {
            Ok((uid != 9).then(|| vec![format!("g{uid}"), "users".to_owned()]))
        }
    }

    fn owned(uids: &[Option<u32>]) -> Snapshot {
        let processes = uids.iter().map(|uid| GpuProcess {
            owner: Reading::Value(Owner {
                name: "x".into(),
                uid: *uid,
                kind: OwnerKind::User,
            }),
            ..GpuProcess::unknown(DeviceId("G".into()), 7, Timestamp(0), &Reading::Unsupported)
        });
        Snapshot {
            host: String::new(),
            taken_at: Timestamp(0),
            tick: 1,
            devices: Vec::new(),
            processes: processes.collect(),
            backends: Vec::new(),
            faults: Vec::new(),
        }
    }

    #[test]
    fn groups_of_owners_are_told_when_they_have_come_and_shared_while_they_are_the_same() {
        let users = Users::new(Own);
        let mut memberships = Memberships::default();
        let snapshot = owned(&[Some(5), Some(6), Some(5), Some(9), None]);
        let mut expected: Groups = [5, 6]
            .map(|uid| (uid, vec![format!("g{uid}"), "users".to_owned()]))
            .into();
        // That nobody is called so is known too.
        expected.insert(9, Vec::new());
        while *memberships.of(&snapshot, &users) != expected {
            std::thread::yield_now();
        }
        let one = memberships.of(&snapshot, &users);
        let other = memberships.of(&snapshot, &users);
        assert!(Arc::ptr_eq(&one, &other));
        // Who owns nothing here any more is not told of.
        let less = memberships.of(&owned(&[Some(6)]), &users);
        assert_eq!(less.keys().copied().collect::<Vec<_>>(), [6]);
    }
}
