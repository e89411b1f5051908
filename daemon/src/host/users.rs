//! User names and group members from the name service, which may be LDAP and may hang for minutes.

use super::background_cache::{BackgroundCache, CachedValue, FetchPolicy};
use crate::fault::FaultCause;
use crate::procfs::read_at_most;
use gpukill_policy::subordinate::{SubordinateMap, parse_lines};
use gpukill_proto::collect::{IntoSet as _, SortIndirect as _};
use gpukill_proto::model::FaultCode;
use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Queries the name service. Each call may block without limit.
pub(crate) trait NameService: Send + Sync + 'static {
    /// A user; `None` where no user has this uid.
    fn user(&self, uid: u32) -> Result<Option<UserRecord>, String>;

    /// A group; `None` where none has this name.
    fn group(&self, name: &str) -> Result<Option<GroupRecord>, String> {
        let _ = name;
        Ok(None)
    }

    /// The names of all groups of a user; `None` where no user has this uid.
    fn groups_of(&self, uid: u32) -> Result<Option<Vec<String>>, String> {
        let _ = uid;
        Ok(None)
    }

    /// The owners of the host's subordinate ids.
    fn subordinates(&self) -> Result<SubordinateMap, String> {
        Ok(SubordinateMap::default())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserRecord {
    pub(crate) name: String,
    pub(crate) home: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupRecord {
    pub(crate) gid: u32,
    /// The listed users; users with it as their primary group are not listed.
    pub(crate) members: BTreeSet<String>,
}

/// The name service of the host through glibc.
pub(crate) struct SystemNameService {
    /// The root of the host's files.
    pub(crate) host_root: PathBuf,
}

#[cfg(test)]
impl SystemNameService {
    pub(crate) fn for_this_host() -> Self {
        Self {
            host_root: "/".into(),
        }
    }
}

/// How much of the file of subordinate ids is read.
const SUBUID_MAX: u64 = 1 << 20;

impl NameService for SystemNameService {
    fn user(&self, uid: u32) -> Result<Option<UserRecord>, String> {
        let found =
            nix::unistd::User::from_uid(uid.into()).map_err(|errno| errno.desc().to_owned())?;
        Ok(found.map(|user| UserRecord {
            name: user.name,
            home: user.dir,
        }))
    }

    fn group(&self, name: &str) -> Result<Option<GroupRecord>, String> {
        let found = nix::unistd::Group::from_name(name).map_err(|errno| errno.desc().to_owned())?;
        Ok(found.map(|group| GroupRecord {
            gid: group.gid.as_raw(),
            members: group.mem.into_iter().into_set(),
        }))
    }

    fn groups_of(&self, uid: u32) -> Result<Option<Vec<String>>, String> {
        use nix::unistd::{Group, User, getgrouplist};
        let describe = |errno: nix::errno::Errno| errno.desc().to_owned();
        let Some(user) = User::from_uid(uid.into()).map_err(describe)? else {
            return Ok(None);
        };
        // A name with a NUL byte belongs to no user.
        let name = CString::new(user.name).map_err(|error| error.to_string())?;
        let gids = getgrouplist(&name, user.gid).map_err(describe)?;
        let names = gids.into_iter().take(MAX_GROUPS).map(|gid| {
            let group = Group::from_gid(gid).map_err(describe)?;
            Ok(group.map_or_else(|| gid.to_string(), |group| group.name))
        });
        names.collect::<Result<_, String>>().map(Some)
    }

    fn subordinates(&self) -> Result<SubordinateMap, String> {
        let bytes = match read_at_most(&self.host_root.join("etc/subuid"), SUBUID_MAX + 1) {
            Ok(bytes) if bytes.len() as u64 <= SUBUID_MAX => bytes,
            Ok(_) => return Err("/etc/subuid is too large".to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(format!("/etc/subuid: {error}")),
        };
        let text = String::from_utf8_lossy(&bytes);
        let mut uids: BTreeMap<&str, Option<u32>> = BTreeMap::new();
        let mut given = Vec::new();
        for line in parse_lines(&text) {
            let person = match uids.get(line.person) {
                Some(known) => *known,
                None => {
                    let found = parse_user(line.person)?;
                    uids.insert(line.person, found);
                    found
                }
            };
            given.extend(person.map(|person| (person, line.ids)));
        }
        Ok(SubordinateMap::new(given))
    }
}

/// The uid of a user, who may be given by name or by uid.
fn parse_user(person: &str) -> Result<Option<u32>, String> {
    if let Ok(uid) = person.parse() {
        return Ok(Some(uid));
    }
    let found = nix::unistd::User::from_name(person).map_err(|errno| errno.desc().to_owned())?;
    Ok(found.map(|user| user.uid.as_raw()))
}

/// How many groups of a user are read: each may be a query to a server.
const MAX_GROUPS: usize = 64;

/// Cached users and groups. Clones share them.
#[derive(Clone)]
pub(crate) struct Users {
    users: BackgroundCache<u32, (), Option<UserRecord>>,
    groups: BackgroundCache<String, (), Option<GroupRecord>>,
    memberships: BackgroundCache<u32, (), Option<Arc<[String]>>>,
    subordinates: BackgroundCache<(), (), Arc<SubordinateMap>>,
}

const USER_POLICY: FetchPolicy = FetchPolicy {
    thread: "names",
    // The service hangs as a whole, whichever user is queried.
    threads: 1,
    queue: 256,
    // Real hosts have tens of users, but a user with user namespaces can use as many uids.
    max_entries: 10_000,
    refresh_after: Duration::from_secs(300),
    stuck_after: Duration::from_secs(5),
};

const GROUP_POLICY: FetchPolicy = FetchPolicy {
    thread: "groups",
    // Members may be added while the daemon runs.
    refresh_after: Duration::from_secs(30),
    ..USER_POLICY
};

const MEMBERSHIP_POLICY: FetchPolicy = FetchPolicy {
    thread: "memberships",
    // Each fetch queries many groups.
    stuck_after: Duration::from_secs(30),
    ..USER_POLICY
};

const SUBORDINATE_POLICY: FetchPolicy = FetchPolicy {
    thread: "subordinates",
    max_entries: 1,
    // Ranges may be assigned while the daemon runs, and each has a user to look up.
    refresh_after: Duration::from_secs(60),
    stuck_after: Duration::from_secs(30),
    ..USER_POLICY
};

impl Users {
    /// An empty cache over this service.
    pub(crate) fn new(service: impl NameService) -> Self {
        let for_users = Arc::new(service);
        let for_groups = Arc::clone(&for_users);
        let for_memberships = Arc::clone(&for_users);
        let for_subordinates = Arc::clone(&for_users);
        let user = move |uid: &u32, ()| {
            let found = for_users.user(*uid)?;
            Ok(found.map(|user| UserRecord {
                name: sanitize(user.name.as_bytes(), 64),
                ..user
            }))
        };
        let group = move |name: &String, ()| for_groups.group(name);
        let membership = move |uid: &u32, ()| {
            let names = for_memberships.groups_of(*uid)?;
            Ok(names.map(|names| {
                let mut names: Vec<String> = names
                    .into_iter()
                    .take(MAX_GROUPS)
                    .map(|name| sanitize(name.as_bytes(), 64))
                    .collect();
                names.sort_indirect();
                names.dedup();
                names.into()
            }))
        };
        Self {
            users: BackgroundCache::new(USER_POLICY, user),
            groups: BackgroundCache::new(GROUP_POLICY, group),
            memberships: BackgroundCache::new(MEMBERSHIP_POLICY, membership),
            subordinates: BackgroundCache::new(SUBORDINATE_POLICY, move |(), ()| {
                for_subordinates.subordinates().map(Arc::new)
            }),
        }
    }

    /// The name of a user. Requests it where it is unknown, and never waits.
    pub(crate) fn name(&self, uid: u32) -> Reading<String> {
        self.look_up(uid, |user| user.name)
    }

    /// The name of a user, if there is a user.
    pub(crate) fn name_of_optional(&self, uid: &Reading<Option<u32>>) -> Reading<String> {
        match uid.known() {
            Some(Some(uid)) => self.name(*uid),
            Some(None) | None => Reading::Unsupported,
        }
    }

    /// Requests the owners of the subordinate ids, and does not wait.
    pub(crate) fn request_subordinates(&self) {
        self.subordinates.get(&(), || ());
    }

    /// The person that owns this subordinate id.
    fn subordinate_owner(&self, uid: u32) -> Reading<Option<u32>> {
        match self.subordinates.get(&(), || ()) {
            CachedValue::Ready(all) => Reading::Value(all.person_of(uid)),
            // No owner of a subordinate id is known.
            CachedValue::Failed => Reading::Value(None),
            CachedValue::Pending => Reading::Failed("not resolved yet".into()),
        }
    }

    /// The person behind a process with this uid, in a namespace of this creator and in this user's
    /// slice; `None` where that is the process's user or the creator of the namespace. In its own
    /// slice root starts jobs of other users.
    pub(crate) fn person_behind(
        &self,
        uid: &Reading<u32>,
        namespace_owner: &Reading<Option<u32>>,
        slice: Option<u32>,
    ) -> Reading<Option<u32>> {
        let maker = namespace_owner.last_known().copied().flatten();
        let Some(user) = maker.filter(|it| *it != 0).or(uid.last_known().copied()) else {
            return Reading::Value(None);
        };
        let behind = match slice.filter(|it| *it != 0) {
            Some(slice) => Reading::Value(Some(slice)),
            None => self.subordinate_owner(user),
        };
        behind.map(|person| person.filter(|it| *it != user))
    }

    /// The person behind a process, or its user where no other person is known.
    pub(crate) fn person(
        &self,
        uid: &Reading<u32>,
        namespace_owner: &Reading<Option<u32>>,
        slice: Option<u32>,
    ) -> Option<u32> {
        let behind = self.person_behind(uid, namespace_owner, slice);
        let maker = namespace_owner.last_known().copied().flatten();
        let maker = maker.filter(|maker| *maker != 0);
        let behind = behind.known().copied().flatten();
        behind.or(maker).or(uid.last_known().copied())
    }

    /// The person that owns this subordinate id, as far as known: an id with a user name has no
    /// such owner.
    pub(crate) fn owner_of_nameless(&self, uid: u32) -> Option<u32> {
        let owner = self.subordinate_owner(uid).known().copied().flatten()?;
        self.name(uid).known().is_none().then_some(owner)
    }

    /// The home directory of a user, likewise.
    pub(super) fn home(&self, uid: u32) -> Reading<PathBuf> {
        self.look_up(uid, |user| user.home)
    }

    fn look_up<T>(&self, uid: u32, pick: impl FnOnce(UserRecord) -> T) -> Reading<T> {
        match self.users.get(&uid, || ()) {
            CachedValue::Ready(Some(user)) => Reading::Value(pick(user)),
            CachedValue::Ready(None) => Reading::Unsupported,
            CachedValue::Failed => Reading::Failed("the name service fails".into()),
            CachedValue::Pending => Reading::Failed("not resolved yet".into()),
        }
    }

    /// Whether the name of a user is requested and not answered. Requests it where that was not
    /// done.
    pub(crate) fn is_name_pending(&self, uid: u32) -> bool {
        self.users.get(&uid, || ()) == CachedValue::Pending
    }

    /// A group, if it is known. Requests it where it is not, and never waits.
    pub(crate) fn group(&self, name: &str) -> Option<GroupRecord> {
        match self.groups.get(&name.to_owned(), || ()) {
            CachedValue::Ready(group) => group,
            CachedValue::Failed | CachedValue::Pending => None,
        }
    }

    /// The names of a user's groups in order, if they are known; none for a uid without a user.
    /// Requests them where they are unknown or old, and never waits.
    pub(crate) fn groups_of(&self, uid: u32) -> Option<Arc<[String]>> {
        match self.memberships.get(&uid, || ()) {
            CachedValue::Ready(names) => Some(names.unwrap_or_default()),
            CachedValue::Failed | CachedValue::Pending => None,
        }
    }

    /// Waits until all requests for users and groups are answered, at most until `deadline`.
    pub(crate) fn settle(&self, deadline: Instant) {
        self.users.settle(deadline);
        self.groups.settle(deadline);
        self.subordinates.settle(deadline);
    }

    /// Grows with each change of a cached user.
    pub(super) fn changes(&self) -> u64 {
        self.users.changes() + self.subordinates.changes()
    }

    /// The current fault of the name service.
    pub(crate) fn fault(&self) -> Option<FaultCause> {
        if !self.users.stuck().is_empty() || !self.groups.stuck().is_empty() {
            let what = "the name service does not answer: users are shown by number";
            return Some(FaultCause::new(FaultCode::UserNamesUnanswered, what));
        }
        if !self.memberships.stuck().is_empty() {
            let what = "the name service does not answer: groups of users are not known";
            return Some(FaultCause::new(FaultCode::GroupNamesUnanswered, what));
        }
        let failure = self.users.failure().or_else(|| self.groups.failure());
        let failure = failure.or_else(|| self.memberships.failure());
        let failure = failure.or_else(|| self.subordinates.failure());
        failure.map(|failure| {
            let what = format!("the name service fails: {failure}");
            FaultCause::new(FaultCode::NameServiceFailed, what)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};

    /// A name service that answers only when the test allows it.
    struct BlockingNameService(Mutex<Receiver<()>>);

    impl NameService for BlockingNameService {
        fn user(&self, uid: u32) -> Result<Option<UserRecord>, String> {
            let receiver = self.0.lock().unwrap();
            receiver.recv().map_err(|error| error.to_string())?;
            Ok((uid == 1000).then(|| UserRecord {
                name: "ali\u{1b}ce".to_owned(),
                home: "/home/alice".into(),
            }))
        }

        fn group(&self, _: &str) -> Result<Option<GroupRecord>, String> {
            Ok(Some(GroupRecord {
                gid: 800,
                members: ["alice".to_owned()].into(),
            }))
        }

        fn groups_of(&self, uid: u32) -> Result<Option<Vec<String>>, String> {
            let names = (0..100).map(|number| format!("g\u{1b}{:02}", 99 - number));
            Ok((uid == 1000).then(|| names.collect()))
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn hung_name_service_delays_no_caller() {
        let (sender, receiver) = channel();
        let users = Users::new(BlockingNameService(Mutex::new(receiver)));
        let not_yet = Reading::Failed("not resolved yet".into());
        assert_eq!(users.name(1000), not_yet);
        assert_eq!(users.name(1000), not_yet);
        assert!(users.is_name_pending(1000));
        // Nor do groups wait for users.
        users.group("operators");
        while users.group("operators").is_none() {
            std::thread::yield_now();
        }
        sender.send(()).unwrap();
        users.settle(soon());
        assert_eq!(users.name(1000), Reading::Value("ali\\x1bce".into()));
        assert_eq!(users.home(1000), Reading::Value("/home/alice".into()));
        assert!(!users.is_name_pending(1000));
    }

    #[test]
    fn groups_are_sorted_and_bounded() {
        let (_sender, receiver) = channel();
        let users = Users::new(BlockingNameService(Mutex::new(receiver)));
        let groups = |uid| {
            users.groups_of(uid);
            users.memberships.settle(soon());
            users.groups_of(uid)
        };
        let expected: Vec<String> = (36..100).map(|at| format!("g\\x1b{at}")).collect();
        assert_eq!(groups(1000).as_deref(), Some(expected.as_slice()));
        assert_eq!(groups(1001).as_deref(), Some(&[][..]));
        // The list is shared, not copied, while it is unchanged.
        let (one, other) = (groups(1000).unwrap(), groups(1000).unwrap());
        assert!(Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn unknown_user_is_no_fault() {
        let (sender, receiver) = channel();
        let users = Users::new(BlockingNameService(Mutex::new(receiver)));
        users.name(4_000_000);
        sender.send(()).unwrap();
        users.settle(soon());
        assert_eq!(users.name(4_000_000), Reading::Unsupported);
        assert_eq!(users.fault(), None);
    }

    #[test]
    fn failing_name_service_is_a_fault() {
        let (sender, receiver) = channel();
        let users = Users::new(BlockingNameService(Mutex::new(receiver)));
        users.name(1000);
        drop(sender);
        users.settle(soon());
        let failed = Reading::Failed("the name service fails".into());
        assert_eq!(users.name(1000), failed);
        assert_eq!(
            users.fault().map(|fault| fault.what).as_deref(),
            Some("the name service fails: receiving on a closed channel")
        );
    }

    #[test]
    fn subordinate_ids_come_from_the_file() {
        let root = tempfile::tempdir().unwrap();
        let host_root = || root.path().to_path_buf();
        let none = SystemNameService {
            host_root: host_root(),
        };
        assert_eq!(none.subordinates(), Ok(SubordinateMap::default()));
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let text = "1002:60000:200\nroot:70000:9\nno-such-user:80000:9\n1003:0:2\n1003:1:1\n";
        let file = root.path().join("etc/subuid");
        std::fs::write(&file, text).unwrap();
        let users = Users::new(SystemNameService {
            host_root: host_root(),
        });
        let owner = |uid| {
            users.subordinate_owner(uid);
            users.owner_of_nameless(uid);
            users.settle(soon());
            (
                users.subordinate_owner(uid).known().copied(),
                users.owner_of_nameless(uid),
            )
        };
        assert_eq!(owner(60_019), (Some(Some(1002)), Some(1002)));
        for uid in [59_999, 60_200, 70_000, 80_000] {
            assert_eq!(owner(uid), (Some(None), None), "{uid}");
        }
        let user = Reading::Value(60_019);
        let behind = |slice| users.person_behind(&user, &Reading::Value(None), slice);
        assert_eq!(behind(None), Reading::Value(Some(1002)));
        assert_eq!(behind(Some(0)), Reading::Value(Some(1002)));
        assert_eq!(behind(Some(1003)), Reading::Value(Some(1003)));
        assert_eq!(behind(Some(60_019)), Reading::Value(None));
        let maker = users.person_behind(&user, &Reading::Value(Some(1002)), None);
        assert_eq!(maker, Reading::Value(None));
        std::fs::write(file, "1:60000:1\n".repeat(200_000)).unwrap();
        let too_large = SystemNameService {
            host_root: host_root(),
        };
        assert!(too_large.subordinates().is_err());
    }

    #[test]
    fn real_user_is_no_subordinate_id() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        std::fs::write(root.path().join("etc/subuid"), "1002:1:9\n").unwrap();
        let host_root = root.path().to_path_buf();
        let users = Users::new(SystemNameService { host_root });
        let (daemon, _) = (1, users.subordinate_owner(1));
        users.name(daemon);
        users.settle(soon());
        assert_eq!(users.subordinate_owner(daemon), Reading::Value(Some(1002)));
        assert_eq!(users.owner_of_nameless(daemon), None);
    }

    #[test]
    fn host_knows_root() {
        let users = Users::new(SystemNameService::for_this_host());
        users.name(0);
        users.settle(soon());
        assert_eq!(users.name(0), Reading::Value("root".into()));
        users.groups_of(0);
        users.memberships.settle(soon());
        let groups = users.groups_of(0).unwrap();
        assert!(groups.iter().any(|name| name == "root"), "{groups:?}");
    }
}
