//! Jobs that are their own clients, and whether others are clients of them too.

use super::*;

/// A job of whose clients this many may be another's.
fn in_doubt(clients: u32) -> NetworkUse {
    NetworkUse {
        clients: Reading::Value(clients),
        ..failed("a client of it may be another's")
    }
}

#[test]
fn a_port_that_the_job_alone_uses_makes_no_service() {
    let tree = Tree::new();
    let own = [line(29500, 10, 5), pair((40_000, 7), (29500, 6))].concat();
    tree.process(10, 1, &[5, 6], &own);
    tree.process(100, 1, &[7], "");
    tree.parent(100, 10);
    let mut look = look_below(&tree);
    let private = used(NetworkRole::Private, None);
    assert_eq!(look_at(&mut look, &job(&[])), private);
    // A client that is no part of it: once seen, it stays a service.
    let others = [own.clone(), pair((40_001, 9), (29500, 8))].concat();
    let service = |clients| used(NetworkRole::Service(vec![29500]), Some(clients));
    tree.sockets(100, &others);
    tree.sockets(10, &others);
    // Before it is known whose it is, the port is not private any more.
    assert_eq!(look_at(&mut look, &job(&[])), in_doubt(1));
    look.pace = members::Pace::default();
    assert_eq!(look_at(&mut look, &job(&[])), service(1));
    tree.sockets(100, &own);
    tree.sockets(10, &own);
    assert_eq!(look_at(&mut look, &job(&[])), service(0));
    // An engine that once asked itself is a service all the same.
    let mut look = look_below(&tree);
    assert_eq!(look_at(&mut look, &job(&[])), private);
    tree.sockets(100, &line(29500, 10, 5));
    tree.sockets(10, &line(29500, 10, 5));
    assert_eq!(look_at(&mut look, &job(&[])), service(0));
}

#[test]
fn a_server_that_is_its_own_client_is_not_private_while_others_come_and_go() {
    let tree = Tree::new();
    let own = [line(8000, 10, 5), pair((40_000, 7), (8000, 6))].concat();
    tree.process(100, 1, &[5, 6, 7], &own);
    tree.parent(100, 10);
    let mut look = look_below(&tree);
    let mut with = |closed: &[String]| {
        tree.sockets(100, &[std::slice::from_ref(&own), closed].concat().concat());
        look_at(&mut look, &job(&[]))
    };
    let private = used(NetworkRole::Private, None);
    assert_eq!(with(&[]), private);
    // Closed within the last minute: by whom is not known.
    let closed = [40_001, 40_002].map(|port: u16| {
        let client = format!("0100007F:{port:04X}");
        to(&client, 8000, 6, 0)
    });
    assert_eq!(with(&closed), in_doubt(2));
    assert_eq!(with(&[]), private);
}

#[test]
fn that_others_were_clients_of_a_job_is_known_after_a_restart_of_the_daemon() {
    let tree = Tree::new();
    let own = [line(8000, 10, 5), pair((40_000, 7), (8000, 6))].concat();
    let others = [own.clone(), pair((40_001, 9), (8000, 8))].concat();
    tree.process(100, 1, &[5, 6, 7, 8], &others);
    tree.parent(100, 10);
    let written = Arc::new(Mutex::new(Vec::new()));
    let daemon = |sockets: &[u64]| {
        let written = Arc::clone(&written);
        let kept = Kept {
            sockets: sockets.iter().copied().collect(),
            keep: Box::new(move |sockets| written.lock().unwrap().push(sockets.clone())),
        };
        Look::below(tree.root().to_owned(), kept)
    };
    let service = |clients| used(NetworkRole::Service(vec![8000]), Some(clients));
    let mut look = daemon(&[]);
    assert_eq!(look_at(&mut look, &job(&[])), service(1));
    assert_eq!(look_at(&mut look, &job(&[])), service(1));
    assert_eq!(*written.lock().unwrap(), [BTreeSet::from([5])]);
    tree.sockets(100, &own);
    assert_eq!(look_at(&mut daemon(&[5]), &job(&[])), service(0));
    // Of another socket it says nothing.
    let private = used(NetworkRole::Private, None);
    assert_eq!(look_at(&mut daemon(&[4]), &job(&[])), private);
}

#[test]
fn a_strangers_socket_at_a_clients_address_makes_no_service_private() {
    let tree = Tree::new();
    let any = |lines: String| lines.replace("0100007F:1F40 00000000", "00000000:1F40 00000000");
    let own = [line(8000, 10, 5), pair((40_000, 7), (8000, 6))].concat();
    // 203.0.113.9 is connected, and a stranger listens there: the box need not have it.
    let freebind = to("00000000:0000", 7_777, 10, 99).replace("0100007F", "097100CB");
    let remote = [any(own.clone()), line(8000, 1, 8), freebind.clone()].concat();
    tree.process(100, 1, &[5, 6, 7, 8], &remote);
    tree.parent(100, 10);
    let mut look = look_below(&tree);
    let service = |clients| used(NetworkRole::Service(vec![8000]), Some(clients));
    assert_eq!(look_at(&mut look, &job(&[])), service(1));
    tree.sockets(100, &[own.clone(), freebind].concat());
    assert_eq!(look_at(&mut look, &job(&[])), service(0));
    // Where the box has that address it may be a process of the job.
    tree.addresses(100, "203.0.113.9\n           /32 host LOCAL");
    tree.sockets(100, &remote);
    assert_eq!(look_at(&mut look_below(&tree), &job(&[])), in_doubt(1));
    // Where nobody knows which it has, nothing is known.
    std::fs::remove_file(tree.root().join("100/net/fib_trie")).unwrap();
    let unknown = failed("the list of sockets cannot be read: entity not found");
    assert_eq!(look_at(&mut look_below(&tree), &job(&[])), unknown);
}
