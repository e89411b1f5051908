//! Tests of jobs that are their own clients, with and without external clients.

use super::*;

/// A job with this many clients that may be external.
fn in_doubt(clients: u32) -> NetworkUse {
    NetworkUse {
        clients: Reading::Value(clients),
        ..failed("one of its clients may be external")
    }
}

#[test]
fn port_with_own_clients_is_no_service() {
    let tree = FakeSocketTree::new();
    let own = [line(29500, 10, 5), pair((40_000, 7), (29500, 6))].concat();
    tree.process(10, 1, &[5, 6], &own);
    tree.process(100, 1, &[7], "");
    tree.parent(100, 10);
    let mut scanner = scanner_below(&tree);
    let private = used(NetworkRole::Private, None);
    assert_eq!(scan_job(&mut scanner, &job(&[])), private);
    // An external client: once observed, the job stays a service.
    let others = [own.clone(), pair((40_001, 9), (29500, 8))].concat();
    let service = |clients| used(NetworkRole::Service(vec![29500]), Some(clients));
    tree.sockets(100, &others);
    tree.sockets(10, &others);
    // Before its owner is known, the port is no longer private.
    assert_eq!(scan_job(&mut scanner, &job(&[])), in_doubt(1));
    scanner.survey_pace = job_processes::SurveyPace::default();
    assert_eq!(scan_job(&mut scanner, &job(&[])), service(1));
    tree.sockets(100, &own);
    tree.sockets(10, &own);
    assert_eq!(scan_job(&mut scanner, &job(&[])), service(0));
    // An engine that once queried itself is a service all the same.
    let mut scanner = scanner_below(&tree);
    assert_eq!(scan_job(&mut scanner, &job(&[])), private);
    tree.sockets(100, &line(29500, 10, 5));
    tree.sockets(10, &line(29500, 10, 5));
    assert_eq!(scan_job(&mut scanner, &job(&[])), service(0));
}

#[test]
fn own_client_does_not_hide_external_ones() {
    let tree = FakeSocketTree::new();
    let own = [line(8000, 10, 5), pair((40_000, 7), (8000, 6))].concat();
    tree.process(100, 1, &[5, 6, 7], &own);
    tree.parent(100, 10);
    let mut scanner = scanner_below(&tree);
    let mut with = |closed: &[String]| {
        tree.sockets(100, &[std::slice::from_ref(&own), closed].concat().concat());
        scan_job(&mut scanner, &job(&[]))
    };
    let private = used(NetworkRole::Private, None);
    assert_eq!(with(&[]), private);
    // Closed within the last minute, by an unknown client.
    let closed = [40_001, 40_002].map(|port: u16| {
        let client = format!("0100007F:{port:04X}");
        to(&client, 8000, 6, 0)
    });
    assert_eq!(with(&closed), in_doubt(2));
    assert_eq!(with(&[]), private);
}

#[test]
fn served_sockets_survive_a_restart() {
    let tree = FakeSocketTree::new();
    let own = [line(8000, 10, 5), pair((40_000, 7), (8000, 6))].concat();
    let others = [own.clone(), pair((40_001, 9), (8000, 8))].concat();
    tree.process(100, 1, &[5, 6, 7, 8], &others);
    tree.parent(100, 10);
    let written = Arc::new(Mutex::new(Vec::new()));
    let daemon = |sockets: &[u64]| {
        let written = Arc::clone(&written);
        let kept = SavedServedSockets {
            sockets: sockets.iter().copied().collect(),
            save: Box::new(move |sockets| written.lock().unwrap().push(sockets.clone())),
        };
        SocketScanner::below(tree.root().to_owned(), kept)
    };
    let service = |clients| used(NetworkRole::Service(vec![8000]), Some(clients));
    let mut scanner = daemon(&[]);
    assert_eq!(scan_job(&mut scanner, &job(&[])), service(1));
    assert_eq!(scan_job(&mut scanner, &job(&[])), service(1));
    assert_eq!(*written.lock().unwrap(), [BTreeSet::from([5])]);
    tree.sockets(100, &own);
    assert_eq!(scan_job(&mut daemon(&[5]), &job(&[])), service(0));
    // It says nothing about another socket.
    let private = used(NetworkRole::Private, None);
    assert_eq!(scan_job(&mut daemon(&[4]), &job(&[])), private);
}

#[test]
fn foreign_listener_at_client_address_is_ignored() {
    let tree = FakeSocketTree::new();
    let any = |lines: String| lines.replace("0100007F:1F40 00000000", "00000000:1F40 00000000");
    let own = [line(8000, 10, 5), pair((40_000, 7), (8000, 6))].concat();
    // 203.0.113.9 is connected, and a stranger listens there: the host may not have that address.
    let freebind = to("00000000:0000", 7_777, 10, 99).replace("0100007F", "097100CB");
    let remote = [any(own.clone()), line(8000, 1, 8), freebind.clone()].concat();
    tree.process(100, 1, &[5, 6, 7, 8], &remote);
    tree.parent(100, 10);
    let mut scanner = scanner_below(&tree);
    let service = |clients| used(NetworkRole::Service(vec![8000]), Some(clients));
    assert_eq!(scan_job(&mut scanner, &job(&[])), service(1));
    tree.sockets(100, &[own.clone(), freebind].concat());
    assert_eq!(scan_job(&mut scanner, &job(&[])), service(0));
    // Where the host has that address, the client may be a process of the job.
    tree.addresses(100, "203.0.113.9\n           /32 host LOCAL");
    tree.sockets(100, &remote);
    assert_eq!(scan_job(&mut scanner_below(&tree), &job(&[])), in_doubt(1));
    // Where the addresses are unknown, nothing is known.
    std::fs::remove_file(tree.root().join("100/net/fib_trie")).unwrap();
    let unknown = failed("the list of sockets cannot be read: entity not found");
    assert_eq!(scan_job(&mut scanner_below(&tree), &job(&[])), unknown);
}
