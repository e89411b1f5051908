//! Names of users and members of groups, from the name service, which may be
//! LDAP and may hang for minutes.

use super::asked::{Answer, Asked, Manner};
use crate::faults::FaultCause;
use crate::procfs::file::read_at_most;
use gpukill_policy::subordinate::{Subordinates, lines};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::FaultCode;
use gpukill_proto::text::visible;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Asks the name service. Both may block for as long as they like.
pub(crate) trait NameService: Send + Sync + 'static {
    /// A user; `None` when nobody has this number.
    ///
    /// # Errors
    /// What the service says.
    fn user(&self, uid: u32) -> Result<Option<User>, String>;

    /// A group; `None` when there is none of this name.
    ///
    /// # Errors
    /// What the service says.
    fn group(&self, name: &str) -> Result<Option<Group>, String>;

    /// The names of all groups a user is in; `None` when nobody has this number.
    ///
    /// # Errors
    /// What the service says.
    fn groups_of(&self, uid: u32) -> Result<Option<Vec<String>>, String>;

    /// Whose the subordinate ids of the box are.
    ///
    /// # Errors
    /// What the service says.
    fn subordinates(&self) -> Result<Subordinates, String> {
        Ok(Subordinates::default())
    }
}

/// A user of the name service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) home: PathBuf,
}

/// A group of the name service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) gid: u32,
    /// The users it lists; those who have it as primary group are not listed.
    pub(crate) members: BTreeSet<String>,
}

/// The name service of the box, as glibc asks it.
pub(crate) struct System {
    /// Where the host's files are.
    pub(crate) host_root: PathBuf,
}

#[cfg(test)]
impl System {
    /// Of this box.
    pub(crate) fn here() -> Self {
        Self {
            host_root: "/".into(),
        }
    }
}

/// More of the file of subordinate ids is not read.
const SUBUID_MAX: u64 = 1 << 20;

impl NameService for System {
    fn user(&self, uid: u32) -> Result<Option<User>, String> {
        let found =
            nix::unistd::User::from_uid(uid.into()).map_err(|errno| errno.desc().to_owned())?;
        Ok(found.map(|user| User {
            name: user.name,
            home: user.dir,
        }))
    }

    fn group(&self, name: &str) -> Result<Option<Group>, String> {
        let found = nix::unistd::Group::from_name(name).map_err(|errno| errno.desc().to_owned())?;
        Ok(found.map(|group| Group {
            gid: group.gid.as_raw(),
            members: group.mem.into_iter().collect(),
        }))
    }

    fn groups_of(&self, uid: u32) -> Result<Option<Vec<String>>, String> {
        use nix::unistd::{Group, User, getgrouplist};
        let said = |errno: nix::errno::Errno| errno.desc().to_owned();
        let Some(user) = User::from_uid(uid.into()).map_err(said)? else {
            return Ok(None);
        };
        // A name with a NUL byte is nobody's.
        let name = CString::new(user.name).map_err(|error| error.to_string())?;
        let gids = getgrouplist(&name, user.gid).map_err(said)?;
        let names = gids.into_iter().take(MOST_GROUPS).map(|gid| {
            let group = Group::from_gid(gid).map_err(said)?;
            Ok(group.map_or_else(|| gid.to_string(), |group| group.name))
        });
        names.collect::<Result<_, String>>().map(Some)
    }

    fn subordinates(&self) -> Result<Subordinates, String> {
        let bytes = match read_at_most(&self.host_root.join("etc/subuid"), SUBUID_MAX + 1) {
            Ok(bytes) if bytes.len() as u64 <= SUBUID_MAX => bytes,
            Ok(_) => return Err("/etc/subuid is too large".to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(format!("/etc/subuid: {error}")),
        };
        let text = String::from_utf8_lossy(&bytes);
        let mut people: BTreeMap<&str, Option<u32>> = BTreeMap::new();
        let mut given = Vec::new();
        for line in lines(&text) {
            let person = match people.get(line.person) {
                Some(known) => *known,
                None => {
                    let found = uid_of(line.person)?;
                    people.insert(line.person, found);
                    found
                }
            };
            given.extend(person.map(|person| (person, line.ids)));
        }
        Ok(Subordinates::new(given))
    }
}

/// The number of a user, who may be called by it.
fn uid_of(person: &str) -> Result<Option<u32>, String> {
    if let Ok(uid) = person.parse() {
        return Ok(Some(uid));
    }
    let found = nix::unistd::User::from_name(person).map_err(|errno| errno.desc().to_owned())?;
    Ok(found.map(|user| user.uid.as_raw()))
}

/// So many groups of a user are told of: each may be a question to a server.
const MOST_GROUPS: usize = 64;

/// What is known of users and groups by now. Clones share it.
#[derive(Clone)]
pub(crate) struct Users {
    users: Asked<u32, (), Option<User>>,
    groups: Asked<String, (), Option<Group>>,
    memberships: Asked<u32, (), Option<Arc<[String]>>>,
    subordinates: Asked<(), (), Arc<Subordinates>>,
}

const USERS: Manner = Manner {
    thread: "names",
    // What hangs is the service, whoever is asked for.
    threads: 1,
    queue: 256,
    // Real boxes have tens, but anybody with user namespaces can come as many.
    most: 10_000,
    keep: Duration::from_secs(300),
    slow: Duration::from_secs(5),
};

const GROUPS: Manner = Manner {
    thread: "groups",
    // Members are added while we run.
    keep: Duration::from_secs(30),
    ..USERS
};

const MEMBERSHIPS: Manner = Manner {
    thread: "memberships",
    // It asks for many groups each time.
    slow: Duration::from_secs(30),
    ..USERS
};

const SUBORDINATES: Manner = Manner {
    thread: "subordinates",
    most: 1,
    // Ranges are given while we run, and each has a person to ask for.
    keep: Duration::from_secs(60),
    slow: Duration::from_secs(30),
    ..USERS
};

impl Users {
    /// Nobody is known yet; this service is asked.
    pub(crate) fn new(service: impl NameService) -> Self {
        let for_users = Arc::new(service);
        let for_groups = Arc::clone(&for_users);
        let for_memberships = Arc::clone(&for_users);
        let for_subordinates = Arc::clone(&for_users);
        let user = move |uid: &u32, ()| {
            let found = for_users.user(*uid)?;
            Ok(found.map(|user| User {
                name: visible(user.name.as_bytes(), 64),
                ..user
            }))
        };
        let group = move |name: &String, ()| for_groups.group(name);
        let membership = move |uid: &u32, ()| {
            let names = for_memberships.groups_of(*uid)?;
            Ok(names.map(|names| {
                let mut names: Vec<String> = names
                    .into_iter()
                    .take(MOST_GROUPS)
                    .map(|name| visible(name.as_bytes(), 64))
                    .collect();
                names.sort_indirect();
                names.dedup();
                names.into()
            }))
        };
        Self {
            users: Asked::new(USERS, user),
            groups: Asked::new(GROUPS, group),
            memberships: Asked::new(MEMBERSHIPS, membership),
            subordinates: Asked::new(SUBORDINATES, move |(), ()| {
                for_subordinates.subordinates().map(Arc::new)
            }),
        }
    }

    /// The name of a user. Asks for it where it is not known, and never waits.
    pub(crate) fn name(&self, uid: u32) -> Reading<String> {
        self.ask(uid, |user| user.name)
    }

    /// The name of a user where there is one.
    pub(crate) fn name_of_some(&self, uid: &Reading<Option<u32>>) -> Reading<String> {
        match uid.known() {
            Some(Some(uid)) => self.name(*uid),
            Some(None) | None => Reading::Unsupported,
        }
    }

    /// Asks whose the subordinate ids are, and does not wait.
    pub(crate) fn learn_subordinates(&self) {
        self.subordinates.of(&(), || ());
    }

    /// The person whose subordinate id this is.
    fn superior(&self, uid: u32) -> Reading<Option<u32>> {
        match self.subordinates.of(&(), || ()) {
            Answer::Given(all) => Reading::Value(all.person_of(uid)),
            // Nobody is known to have any.
            Answer::Failed => Reading::Value(None),
            Answer::Pending => Reading::Failed("not resolved yet".into()),
        }
    }

    /// The person behind a process that runs as this user, in a namespace that this one
    /// made and in this user's slice; `None` where that is who runs it or made the
    /// namespace. In their own slice root starts others' jobs.
    pub(crate) fn behind(
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
            None => self.superior(user),
        };
        behind.map(|person| person.filter(|it| *it != user))
    }

    /// The person behind a process, or its user as long as nobody else is known to be.
    pub(crate) fn person(
        &self,
        uid: &Reading<u32>,
        namespace_owner: &Reading<Option<u32>>,
        slice: Option<u32>,
    ) -> Option<u32> {
        let behind = self.behind(uid, namespace_owner, slice);
        let maker = namespace_owner.last_known().copied().flatten();
        let maker = maker.filter(|maker| *maker != 0);
        let behind = behind.known().copied().flatten();
        behind.or(maker).or(uid.last_known().copied())
    }

    /// The person whose subordinate id this is, as far as that is known: who has a name
    /// is nobody's.
    pub(crate) fn superior_of_nameless(&self, uid: u32) -> Option<u32> {
        let superior = self.superior(uid).known().copied().flatten()?;
        self.name(uid).known().is_none().then_some(superior)
    }

    /// The home directory of a user, likewise.
    pub(super) fn home(&self, uid: u32) -> Reading<PathBuf> {
        self.ask(uid, |user| user.home)
    }

    fn ask<T>(&self, uid: u32, pick: impl FnOnce(User) -> T) -> Reading<T> {
        match self.users.of(&uid, || ()) {
            Answer::Given(Some(user)) => Reading::Value(pick(user)),
            Answer::Given(None) => Reading::Unsupported,
            Answer::Failed => Reading::Failed("the name service fails".into()),
            Answer::Pending => Reading::Failed("not resolved yet".into()),
        }
    }

    /// Whether the name of a user is asked for and not answered yet. Asks for it
    /// where it was not asked for.
    pub(crate) fn is_asking_for(&self, uid: u32) -> bool {
        self.users.of(&uid, || ()) == Answer::Pending
    }

    /// A group, if it is known. Asks for it where it is not, and never waits.
    pub(crate) fn group(&self, name: &str) -> Option<Group> {
        match self.groups.of(&name.to_owned(), || ()) {
            Answer::Given(group) => group,
            Answer::Failed | Answer::Pending => None,
        }
    }

    /// The names of the groups a user is in, in order, if they are known: none of a
    /// number that nobody has. Asks for them where they are not or are old, and never
    /// waits.
    pub(crate) fn groups_of(&self, uid: u32) -> Option<Arc<[String]>> {
        match self.memberships.of(&uid, || ()) {
            Answer::Given(names) => Some(names.unwrap_or_default()),
            Answer::Failed | Answer::Pending => None,
        }
    }

    /// Waits until every user and group asked for so far is answered, but not past
    /// `deadline`.
    pub(crate) fn settle(&self, deadline: Instant) {
        self.users.settle(deadline);
        self.groups.settle(deadline);
        self.subordinates.settle(deadline);
    }

    /// Grows whenever something else is known of a user than before.
    pub(super) fn changes(&self) -> u64 {
        self.users.changes() + self.subordinates.changes()
    }

    /// What is wrong with the name service now.
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

    /// Answers only when told to.
    struct Slow(Mutex<Receiver<()>>);

    impl NameService for Slow {
        fn user(&self, uid: u32) -> Result<Option<User>, String> {
            let told = self.0.lock().unwrap();
            told.recv().map_err(|error| error.to_string())?;
            Ok((uid == 1000).then(|| User {
                name: "ali\u{1b}ce".to_owned(),
                home: "/home/alice".into(),
            }))
        }

        fn group(&self, _: &str) -> Result<Option<Group>, String> {
            Ok(Some(Group {
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
    fn a_name_service_that_hangs_delays_nobody() {
        let (tell, told) = channel();
        let users = Users::new(Slow(Mutex::new(told)));
        let not_yet = Reading::Failed("not resolved yet".into());
        assert_eq!(users.name(1000), not_yet);
        assert_eq!(users.name(1000), not_yet);
        assert!(users.is_asking_for(1000));
        // Nor do groups wait behind users.
        users.group("operators");
        while users.group("operators").is_none() {
            std::thread::yield_now();
        }
        tell.send(()).unwrap();
        users.settle(soon());
        assert_eq!(users.name(1000), Reading::Value("ali\\x1bce".into()));
        assert_eq!(users.home(1000), Reading::Value("/home/alice".into()));
        assert!(!users.is_asking_for(1000));
    }

    #[test]
    fn the_groups_of_a_user_are_told_in_order_and_not_without_end() {
        let (_tell, told) = channel();
        let users = Users::new(Slow(Mutex::new(told)));
        let groups = |uid| {
            users.groups_of(uid);
            users.memberships.settle(soon());
            users.groups_of(uid)
        };
        let expected: Vec<String> = (36..100).map(|at| format!("g\\x1b{at}")).collect();
        assert_eq!(groups(1000).as_deref(), Some(expected.as_slice()));
        assert_eq!(groups(1001).as_deref(), Some(&[][..]));
        // They are shared, and not copied, while they are the same.
        let (one, other) = (groups(1000).unwrap(), groups(1000).unwrap());
        assert!(Arc::ptr_eq(&one, &other));
    }

    #[test]
    fn a_user_nobody_knows_has_no_name_and_is_no_fault() {
        let (tell, told) = channel();
        let users = Users::new(Slow(Mutex::new(told)));
        users.name(4_000_000);
        tell.send(()).unwrap();
        users.settle(soon());
        assert_eq!(users.name(4_000_000), Reading::Unsupported);
        assert_eq!(users.fault(), None);
    }

    #[test]
    fn a_name_service_that_fails_is_a_fault() {
        let (tell, told) = channel();
        let users = Users::new(Slow(Mutex::new(told)));
        users.name(1000);
        drop(tell);
        users.settle(soon());
        let failed = Reading::Failed("the name service fails".into());
        assert_eq!(users.name(1000), failed);
        assert_eq!(
            users.fault().map(|fault| fault.what).as_deref(),
            Some("the name service fails: receiving on a closed channel")
        );
    }

    #[test]
    fn subordinate_ids_are_those_of_the_file_but_for_a_users_own() {
        let root = tempfile::tempdir().unwrap();
        let host_root = || root.path().to_path_buf();
        let none = System {
            host_root: host_root(),
        };
        assert_eq!(none.subordinates(), Ok(Subordinates::default()));
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let text = "1002:60000:200\nroot:70000:9\nno-such-user:80000:9\n1003:0:2\n1003:1:1\n";
        let file = root.path().join("etc/subuid");
        std::fs::write(&file, text).unwrap();
        let users = Users::new(System {
            host_root: host_root(),
        });
        let superior = |uid| {
            users.superior(uid);
            users.superior_of_nameless(uid);
            users.settle(soon());
            (
                users.superior(uid).known().copied(),
                users.superior_of_nameless(uid),
            )
        };
        assert_eq!(superior(60_019), (Some(Some(1002)), Some(1002)));
        for uid in [59_999, 60_200, 70_000, 80_000] {
            assert_eq!(superior(uid), (Some(None), None), "{uid}");
        }
        let user = Reading::Value(60_019);
        let behind = |slice| users.behind(&user, &Reading::Value(None), slice);
        assert_eq!(behind(None), Reading::Value(Some(1002)));
        assert_eq!(behind(Some(0)), Reading::Value(Some(1002)));
        assert_eq!(behind(Some(1003)), Reading::Value(Some(1003)));
        assert_eq!(behind(Some(60_019)), Reading::Value(None));
        let maker = users.behind(&user, &Reading::Value(Some(1002)), None);
        assert_eq!(maker, Reading::Value(None));
        std::fs::write(file, "1:60000:1\n".repeat(200_000)).unwrap();
        let too_large = System {
            host_root: host_root(),
        };
        assert!(too_large.subordinates().is_err());
    }

    #[test]
    fn a_user_of_the_box_is_nobodys_subordinate() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        std::fs::write(root.path().join("etc/subuid"), "1002:1:9\n").unwrap();
        let host_root = root.path().to_path_buf();
        let users = Users::new(System { host_root });
        let (daemon, _) = (1, users.superior(1));
        users.name(daemon);
        users.settle(soon());
        assert_eq!(users.superior(daemon), Reading::Value(Some(1002)));
        assert_eq!(users.superior_of_nameless(daemon), None);
    }

    #[test]
    fn the_box_knows_root() {
        let users = Users::new(System::here());
        users.name(0);
        users.settle(soon());
        assert_eq!(users.name(0), Reading::Value("root".into()));
        users.groups_of(0);
        users.memberships.settle(soon());
        let groups = users.groups_of(0).unwrap();
        assert!(groups.iter().any(|name| name == "root"), "{groups:?}");
    }
}
