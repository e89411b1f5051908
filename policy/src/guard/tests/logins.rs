//! Who logged in is held to what they do, where rules go by that.

use super::super::bucket::About;
use super::words::line;
use super::*;
use gpukill_proto::guard::Person;
use gpukill_proto::snapshot::Scheduler;

/// Who logged in, what is known of their name and groups, and whose it is then.
type Case = (
    Option<Option<u32>>,
    Option<&'static str>,
    &'static [u32],
    Option<Person>,
    Option<Vec<String>>,
);

#[test]
fn it_is_of_whoever_logged_in_where_anybody_did() {
    let of = |name: &str, uid| {
        Some(Person {
            name: name.into(),
            uid: Some(uid),
        })
    };
    let ml = || Some(names(&["ml"]));
    let cases: [Case; 6] = [
        (Some(Some(1001)), Some("bob"), &[], of("bob", 1001), ml()),
        // The name service has not told, or knows nobody.
        (Some(Some(1001)), None, &[], of("1001", 1001), ml()),
        (Some(Some(1001)), None, &[1001], of("1001", 1001), ml()),
        (
            Some(Some(1000)),
            Some("al"),
            &[],
            of("alice", 1000),
            Some(vec![]),
        ),
        (Some(None), None, &[], of("alice", 1000), Some(vec![])),
        (None, None, &[], None, None),
    ];
    for (login_uid, name, nameless, owner, groups) in cases {
        let about = About {
            login_uid,
            login_name: name.map(str::to_owned),
            login_groups: ml(),
            nameless: nameless.to_vec(),
            ..about("alice")
        };
        let by = about.by(PersonBy::Login);
        assert_eq!((&by.owner, &by.groups), (&owner, &groups), "{login_uid:?}");
        assert_eq!(*about.by(PersonBy::Owner), about);
    }
    // What is of a container alone stays its own.
    let contained = About {
        login_uid: None,
        ..about("container web")
    };
    assert_eq!(*contained.by(PersonBy::Login), contained);
}

#[test]
fn who_logged_in_is_believed_only_where_somebody_did() {
    let unit = |name: &str| Some(Some(name.to_owned()));
    let carol = || About {
        login_uid: Some(Some(1001)),
        login_name: Some("bob".into()),
        login_groups: Some(Vec::new()),
        ..about("carol")
    };
    for (unit, expected) in [
        (Some(None), Some("bob")),
        (unit("session-3.scope"), Some("bob")),
        (unit("user@1001.service"), Some("bob")),
        // The kernel lets each process there write who it was, once.
        (unit("cron.service"), Some("carol")),
        (unit("slurmstepd.scope"), Some("carol")),
        (None, None),
    ] {
        let about = About { unit, ..carol() };
        let by = about.by(PersonBy::Login);
        let name = by.owner.as_ref().map(|it| it.name.as_str());
        assert_eq!(name, expected, "{:?}", about.unit);
    }
    for (scheduler, expected) in [
        (
            Some(Some((Scheduler::Slurm, "12".to_owned()))),
            Some("carol"),
        ),
        (None, None),
    ] {
        let about = About {
            scheduler,
            ..carol()
        };
        let by = about.by(PersonBy::Login);
        let name = by.owner.as_ref().map(|it| it.name.as_str());
        assert_eq!(name, expected, "{:?}", about.scheduler);
    }
}

/// Processes of 20 GiB of the service's user, that bob started, and that nobody did.
fn world() -> World {
    let mut world = World::new(1);
    for (pid, login) in [(1, Some(1001)), (2, None)] {
        let process = world.start(pid, "carol").uses(0, 20, 90);
        let process = process.job(&format!("job {pid}"));
        process.about.login_uid = Some(login);
        process.about.login_name = login.map(|_| "bob".to_owned());
        process.about.login_groups = login.map(|_| Vec::new());
    }
    world
}

#[test]
fn limits_are_of_whoever_logged_in_and_so_are_the_ends() {
    let told = |person| {
        let rules = Rules {
            person,
            users: vec![UserPolicy {
                name: "bob".into(),
                limits: memory(10),
                ..UserPolicy::default()
            }],
            ..enforcing()
        };
        let records = Guard::new(rules).watches(&mut world(), 2);
        records.iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(told(PersonBy::Owner), Vec::<String>::new());
    assert_eq!(
        told(PersonBy::Login),
        [
            "00:00:20 bob: user bob: memory: violated, 20.0 GiB of 10.0 GiB since 00:00:00 [enforce]",
            "00:00:20 bob: user bob: memory: ends job 1 of bob (priority 5, 1 on GPUs, which works) [enforce]",
        ]
    );
}

#[test]
fn who_has_a_right_has_it_as_who_logged_in() {
    let rules = |person| Rules {
        person,
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            allowed_users: names(&["carol"]),
            ..GpuPolicy::default()
        }],
        ..enforcing()
    };
    let broken = |person| {
        let records = Guard::new(rules(person)).looks(&mut world()).records;
        let pids = records.iter().flat_map(|it| &it.evidence.runs);
        pids.map(|told| told.run.pid).collect::<Vec<_>>()
    };
    assert_eq!(broken(PersonBy::Owner), Vec::<u32>::new());
    assert_eq!(broken(PersonBy::Login), [1, 1]);
}
