//! Attribution by login: rules apply to the user who logged in, if the rules say so.

use super::super::sample::ProcessFacts;
use super::record_text::record_line;
use super::*;
use gpukill_proto::guard::Person;
use gpukill_proto::model::Scheduler;

/// The login uid, the known name, the uids without a name, and the expected owner and
/// groups.
type LoginCase = (
    Option<Option<u32>>,
    Option<&'static str>,
    &'static [u32],
    Option<Person>,
    Option<Vec<String>>,
);

#[test]
fn owner_is_the_login_user() {
    let of = |name: &str, uid| {
        Some(Person {
            name: name.into(),
            uid: Some(uid),
        })
    };
    let ml = || Some(names(&["ml"]));
    let cases: [LoginCase; 6] = [
        (Some(Some(1001)), Some("bob"), &[], of("bob", 1001), ml()),
        // The name service has not answered yet, or knows no such user.
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
        let facts = ProcessFacts {
            login_uid,
            login_name: name.map(str::to_owned),
            login_groups: ml(),
            nameless_uids: nameless.to_vec(),
            ..process_facts("alice")
        };
        let by = facts.attributed_to(PersonAttribution::Login);
        assert_eq!((&by.owner, &by.groups), (&owner, &groups), "{login_uid:?}");
        assert_eq!(*facts.attributed_to(PersonAttribution::Owner), facts);
    }
    // A container without a login keeps its owner.
    let contained = ProcessFacts {
        login_uid: None,
        ..process_facts("container web")
    };
    assert_eq!(
        *contained.attributed_to(PersonAttribution::Login),
        contained
    );
}

#[test]
fn login_uid_is_trusted_in_sessions_only() {
    let unit = |name: &str| Some(Some(name.to_owned()));
    let carol = || ProcessFacts {
        login_uid: Some(Some(1001)),
        login_name: Some("bob".into()),
        login_groups: Some(Vec::new()),
        ..process_facts("carol")
    };
    for (unit, expected) in [
        (Some(None), Some("bob")),
        (unit("session-3.scope"), Some("bob")),
        (unit("user@1001.service"), Some("bob")),
        // In such units, the kernel lets each process set its login uid once.
        (unit("cron.service"), Some("carol")),
        (unit("slurmstepd.scope"), Some("carol")),
        (None, None),
    ] {
        let facts = ProcessFacts { unit, ..carol() };
        let by = facts.attributed_to(PersonAttribution::Login);
        let name = by.owner.as_ref().map(|it| it.name.as_str());
        assert_eq!(name, expected, "{:?}", facts.unit);
    }
    for (scheduler, expected) in [
        (
            Some(Some((Scheduler::Slurm, "12".to_owned()))),
            Some("carol"),
        ),
        (None, None),
    ] {
        let facts = ProcessFacts {
            scheduler,
            ..carol()
        };
        let by = facts.attributed_to(PersonAttribution::Login);
        let name = by.owner.as_ref().map(|it| it.name.as_str());
        assert_eq!(name, expected, "{:?}", facts.scheduler);
    }
}

/// Processes of 20 GiB that run as a service user: one that bob started, and one without a
/// login.
fn world() -> TestHost {
    let mut world = TestHost::new(1);
    for (pid, login) in [(1, Some(1001)), (2, None)] {
        let process = world.start(pid, "carol").uses(0, 20, 90);
        let process = process.job(&format!("job {pid}"));
        process.facts.login_uid = Some(login);
        process.facts.login_name = login.map(|_| "bob".to_owned());
        process.facts.login_groups = login.map(|_| Vec::new());
    }
    world
}

#[test]
fn limits_apply_to_the_login_user() {
    let records_for = |person| {
        let rules = RuleSet {
            person,
            users: vec![UserPolicy {
                name: "bob".into(),
                limits: memory_limit(10),
                ..UserPolicy::default()
            }],
            ..enforce_rules()
        };
        let records = TestGuard::new(rules).evaluate_samples(&mut world(), 2);
        records.iter().map(record_line).collect::<Vec<_>>()
    };
    assert_eq!(records_for(PersonAttribution::Owner), Vec::<String>::new());
    assert_eq!(
        records_for(PersonAttribution::Login),
        [
            "00:00:20 bob: user bob: memory: violated, 20.0 GiB of 10.0 GiB since 00:00:00 [enforce]",
            "00:00:20 bob: user bob: memory: ends job 1 of bob (priority 5, 1 on GPUs, which works) [enforce]",
        ]
    );
}

#[test]
fn access_applies_to_the_login_user() {
    let rules = |person| RuleSet {
        person,
        gpus: vec![GpuPolicy {
            name: "0".into(),
            gpus: gpus("0"),
            allowed_users: names(&["carol"]),
            ..GpuPolicy::default()
        }],
        ..enforce_rules()
    };
    let broken = |person| {
        let records = TestGuard::new(rules(person))
            .evaluate_next(&mut world())
            .records;
        let pids = records.iter().flat_map(|it| &it.evidence.runs);
        pids.map(|process| process.run.pid).collect::<Vec<_>>()
    };
    assert_eq!(broken(PersonAttribution::Owner), Vec::<u32>::new());
    assert_eq!(broken(PersonAttribution::Login), [1, 1]);
}
