//! The known groups of users that own processes here.

use crate::host::users::Users;
use crate::store::GroupNames;
use gpukill_proto::collect::{IntoMap as _, IntoSet as _};
use gpukill_proto::model::Snapshot;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The value is shared as long as it does not change.
#[derive(Debug, Default)]
pub(super) struct UserGroups(Arc<GroupNames>);

impl UserGroups {
    /// The groups of a snapshot's owners. Requests unknown ones and never waits.
    pub(super) fn update(&mut self, snapshot: &Snapshot, users: &Users) -> Arc<GroupNames> {
        let owners = snapshot.processes.iter();
        let owners = owners.filter_map(|process| process.owner.last_known()?.uid);
        let uids: BTreeSet<u32> = owners.into_set();
        let known = uids.into_iter();
        let known = known.filter_map(|uid| Some((uid, users.groups_of(uid)?)));
        let known: Vec<_> = known.collect();
        let is_same = known.len() == self.0.len()
            && known
                .iter()
                .all(|(uid, names)| self.0.get(uid).is_some_and(|it| **it == **names));
        if !is_same {
            let groups = known.into_iter().map(|(uid, names)| (uid, names.to_vec()));
            self.0 = Arc::new(groups.into_map());
        }
        Arc::clone(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::users::{NameService, UserRecord};
    use gpukill_proto::model::{DeviceId, GpuProcess, Owner, OwnerKind};
    use gpukill_proto::reading::Reading;
    use gpukill_proto::units::Timestamp;

    /// A name service where each user has a group of their own, and uid 9 is unknown.
    struct OwnGroupService;

    impl NameService for OwnGroupService {
        fn user(&self, _: u32) -> Result<Option<UserRecord>, String> {
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
            polls: 1,
            devices: Vec::new(),
            processes: processes.collect(),
            backends: Vec::new(),
            faults: Vec::new(),
        }
    }

    #[test]
    fn groups_appear_and_are_shared_while_equal() {
        let users = Users::new(OwnGroupService);
        let mut memberships = UserGroups::default();
        let snapshot = owned(&[Some(5), Some(6), Some(5), Some(9), None]);
        let mut expected: GroupNames = [5, 6]
            .map(|uid| (uid, vec![format!("g{uid}"), "users".to_owned()]))
            .into();
        // That a uid has no name is known, too.
        expected.insert(9, Vec::new());
        while *memberships.update(&snapshot, &users) != expected {
            std::thread::yield_now();
        }
        let one = memberships.update(&snapshot, &users);
        let other = memberships.update(&snapshot, &users);
        assert!(Arc::ptr_eq(&one, &other));
        // A user without processes here is dropped.
        let less = memberships.update(&owned(&[Some(6)]), &users);
        assert_eq!(less.keys().copied().collect::<Vec<_>>(), [6]);
    }
}
