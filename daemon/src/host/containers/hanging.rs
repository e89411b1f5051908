//! Tests of files that never let themselves be read.

use super::tests::{Homes, contained, failed};
use super::*;

/// Containers whose files never let themselves be read, some of them.
fn hanging(of_the_box: bool, of_users: bool) -> Containers {
    fn asked<Q: Send + 'static>(hangs: bool) -> Asked<Contained, Q, Looked> {
        let manner = Manner {
            slow: Duration::from_millis(1),
            ..MANNER
        };
        let ask = move |contained: &Contained, _| {
            if hangs {
                loop {
                    std::thread::park();
                }
            }
            let told = Told::by_its_id(&contained.id.id);
            Ok(Looked::now(Look::Told(told), AGAIN))
        };
        Asked::new(manner, ask)
    }
    Containers {
        of_the_box: asked(of_the_box),
        of_users: asked(of_users),
    }
}

#[test]
fn files_that_hang_are_a_fault_that_says_whose_they_are() {
    let users = Users::new(Homes);
    users.name(1000);
    users.settle(Instant::now() + Duration::from_secs(10));
    let whose = |whose: &str| {
        format!(
            "the files of {whose} containers do not let themselves be read: their disk may hang"
        )
    };
    let cases = [
        ((true, false), vec![whose("docker")]),
        ((false, true), vec![whose("user 1000's")]),
        ((true, true), vec![whose("docker"), whose("user 1000's")]),
        ((false, false), vec![]),
    ];
    for ((of_the_box, of_users), expected) in cases {
        let containers = hanging(of_the_box, of_users);
        let of_each =
            [Teller::System, Teller::User(1000)].map(|teller| contained("docker", teller));
        for contained in &of_each {
            containers.of(contained, &users);
        }
        containers.settle(Instant::now() + Duration::from_millis(20));
        let deadline = Instant::now() + Duration::from_secs(10);
        while containers.faults() != expected {
            assert!(Instant::now() < deadline, "{:?}", containers.faults());
            std::thread::yield_now();
        }
        let unknown = |contained: &Contained| {
            let name = containers.of(contained, &users).0.name;
            name == failed("not read yet")
        };
        assert_eq!(of_each.each_ref().map(unknown), [of_the_box, of_users]);
    }
}
