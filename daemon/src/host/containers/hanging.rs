//! Tests of files with reads that never return.

use super::tests::{HomesNameService, contained, failed};
use super::*;

/// A cache in which the reads of some files never return.
fn hanging(of_host: bool, of_users: bool) -> ContainerCache {
    fn cache<Q: Send + 'static>(
        hangs: bool,
    ) -> BackgroundCache<CgroupContainer, Q, CachedContainer> {
        let policy = FetchPolicy {
            stuck_after: Duration::from_millis(1),
            ..FETCH_POLICY
        };
        let ask = move |contained: &CgroupContainer, _| {
            if hangs {
                loop {
                    std::thread::park();
                }
            }
            let facts = ContainerFacts::from_id(&contained.id.id);
            Ok(CachedContainer::from_lookup(
                ContainerLookup::Found(facts),
                RETRY_AFTER,
            ))
        };
        BackgroundCache::new(policy, ask)
    }
    ContainerCache {
        system: cache(of_host),
        user_owned: cache(of_users),
    }
}

#[test]
fn hanging_files_are_a_fault_with_their_owner() {
    let users = Users::new(HomesNameService);
    users.name(1000);
    users.settle(Instant::now() + Duration::from_secs(10));
    let fault =
        |fault: &str| format!("cannot read the files of {fault} containers: their disk may hang");
    let cases = [
        ((true, false), vec![fault("docker")]),
        ((false, true), vec![fault("user 1000's")]),
        ((true, true), vec![fault("docker"), fault("user 1000's")]),
        ((false, false), vec![]),
    ];
    for ((of_host, of_users), expected) in cases {
        let containers = hanging(of_host, of_users);
        let of_each = [ContainerManager::System, ContainerManager::User(1000)]
            .map(|manager| contained("docker", manager));
        for contained in &of_each {
            containers.get(contained, &users);
        }
        containers.settle(Instant::now() + Duration::from_millis(20));
        let deadline = Instant::now() + Duration::from_secs(10);
        while containers.faults() != expected {
            assert!(Instant::now() < deadline, "{:?}", containers.faults());
            std::thread::yield_now();
        }
        let unknown = |contained: &CgroupContainer| {
            let name = containers.get(contained, &users).0.name;
            name == failed("not read yet")
        };
        assert_eq!(of_each.each_ref().map(unknown), [of_host, of_users]);
    }
}
