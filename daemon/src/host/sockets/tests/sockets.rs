//! Tests of the listening ports and remote ends of processes.

use super::*;

fn sockets(listens: &[u16], peers: &[&str]) -> ProcessSockets {
    ProcessSockets {
        listens: listens.iter().copied().collect(),
        peers: peers.iter().map(|it| it.parse().unwrap()).collect(),
    }
}

fn sockets_of(tree: &FakeSocketTree, pid: u32) -> Option<ProcessSockets> {
    let known = WatcherState {
        watched: alone(&[pid]),
        ..WatcherState::default()
    };
    let found = scanner_below(tree).scan_jobs(&known.due_jobs()).pop();
    found.unwrap().1.sockets
}

#[test]
fn process_has_its_ports_and_peers() {
    let tree = FakeSocketTree::new();
    let first = [
        line(8000, 10, 5),
        line(22, 10, 6),
        // 203.0.113.7:4444, twice; 10.0.0.2:443.
        to("077100CB:115C", 40000, 1, 7),
        to("077100CB:115C", 40001, 1, 8),
        to("0200000A:01BB", 40002, 1, 9),
        // Not established, and not accepted yet.
        to("077100CB:115D", 40003, 2, 10),
        to("077100CB:115E", 8000, 1, 0),
    ]
    .concat();
    tree.process(1, 1, &[5, 7, 8, 10], &first);
    tree.process(2, 1, &[6, 5, 9], &first);
    // No sockets, and none in this table.
    tree.process(3, 1, &[], &first);
    tree.process(4, 1, &[99], &first);
    tree.process(5, 2, &[7], "no list\n");
    let connections =
        SocketWatcher::start(tree.root().to_owned(), SavedServedSockets::unsaved()).unwrap();
    let all = [1, 2, 3, 4, 5, 6];
    assert_eq!(connections.process_sockets(key(1)), None);
    connections.watch(alone(&all));
    connections.settle(Instant::now() + Duration::from_secs(10));
    let expected = [
        Some(sockets(&[8000], &["203.0.113.7:4444"])),
        Some(sockets(&[22, 8000], &["10.0.0.2:443"])),
        Some(sockets(&[], &[])),
        Some(sockets(&[], &[])),
        None,
        None,
    ];
    assert_eq!(
        all.map(|pid| connections.process_sockets(key(pid))),
        expected
    );
    // An old result is not reported.
    let Some(then) = Instant::now().checked_sub(STALE_AFTER + REFRESH_INTERVAL) else {
        eprintln!("skipped: the host has just booted");
        return;
    };
    connections.0.lock().watched.clear();
    connections.0.lock().findings.get_mut(&key(1)).unwrap().1 = then;
    assert_eq!(connections.process_sockets(key(1)), None);
}

#[test]
fn incoming_connection_has_no_peer() {
    let tree = FakeSocketTree::new();
    // 203.0.113.5 connects from port 3333 to two listening ports, and 203.0.113.6 accepts a
    // connection.
    let table = [
        line(8000, 10, 1),
        to("057100CB:0D05", 8000, 1, 5),
        to("057100CB:0D05", 8001, 1, 6),
        to("067100CB:0D05", 40_000, 1, 7),
    ];
    // Another process listens on all addresses of both families.
    let any = format!("{}:1F41", "0".repeat(32));
    let six = line(8001, 10, 2).replace("0100007F:1F41", &any);
    tree.process(1, 1, &[5, 6, 7], &table.concat());
    let path = tree.root().join("1/net/tcp6");
    write(path, [HEADER, &six].concat()).unwrap();
    let expected = sockets(&[], &["203.0.113.6:3333"]);
    assert_eq!(sockets_of(&tree, 1), Some(expected));
}

#[test]
fn external_peers_come_first() {
    let tree = FakeSocketTree::new();
    let inodes: Vec<u64> = (1..=900).collect();
    let table: String = inodes
        .iter()
        .map(|inode| match inode {
            1..=100 => line(u16::try_from(*inode).unwrap(), 10, *inode),
            // By number, 127.0.0.1 comes before 203.0.113.7.
            101..=800 => to(&format!("0100007F:{inode:04X}"), 4_000, 1, *inode),
            _ => to(&format!("077100CB:{inode:04X}"), 4_000, 1, *inode),
        })
        .collect();
    tree.process(1, 1, &inodes, &table);
    let sockets = sockets_of(&tree, 1).unwrap();
    assert_eq!(sockets.listens, (1..=64).collect());
    let is_elsewhere = |peer: &&SocketAddr| !peer.ip().is_loopback();
    let elsewhere = sockets.peers.iter().filter(is_elsewhere).count();
    assert_eq!((sockets.peers.len(), elsewhere), (256, 100));
}

/// A line of the host's list.
fn socket(uid: u32, (local, peer): (&str, &str), state: u8, inode: u64) -> String {
    format!(
        "   0: {local} {peer} {state:02X} 00000000:00000000 00:00000000 00000000 {uid:>5}        0 \
         {inode} 1 0000000000000000 100 0 0 10 0\n"
    )
}

#[test]
fn one_users_sockets_hide_no_others() {
    let tree = FakeSocketTree::new();
    let alices = "0100007F:1F40";
    let mut lines = socket(1000, (alices, "00000000:0000"), 10, 5);
    // bob's own connections with himself, more than there is room for.
    lines += &socket(1001, ("0101007F:1E61", "00000000:0000"), 10, 6);
    for number in 0..70_000 {
        let client = format!("{:02X}02007F:{:04X}", number / 50_000 + 1, number % 50_000);
        let server = "0101007F:1E61";
        lines += &socket(1001, (server, &client), 1, 1_000_000 + number);
        lines += &socket(1001, (&client, server), 1, 2_000_000 + number);
    }
    // alice's client, listed last.
    lines += &socket(1000, (alices, "097100CB:FFFF"), 1, 7);
    tree.process(10, 1, &[5, 7], &lines);
    tree.process(
        20,
        1,
        &[6, 1_000_000],
        "not read: it is of the same network",
    );
    let status = "Uid:\t1001\t1001\t1001\t1001\n";
    write(tree.root().join("20/status"), status).unwrap();
    // His in a network of his own, which is small.
    tree.process(30, 2, &[8], &line(9000, 10, 8));
    write(tree.root().join("30/status"), status).unwrap();
    let jobs = [10, 20, 30].map(|pid| WatchedJob {
        uid: None,
        owner: BudgetOwner::Unknown,
        ..tree_of(key(pid))
    });
    let found = scanner_below(&tree).scan_jobs(&jobs).into_iter();
    let found: Vec<SocketFindings> = found.map(|(_, found)| found).collect();
    let networks: Vec<_> = found.iter().map(|it| it.network.clone()).collect();
    let service = |port, clients| used(NetworkRole::Service(vec![port]), Some(clients));
    assert_eq!(
        networks,
        [
            service(8000, 1),
            failed("there are too many sockets"),
            service(9000, 0)
        ]
    );
    let are_known: Vec<bool> = found.iter().map(|it| it.sockets.is_some()).collect();
    assert_eq!(are_known, [true, false, true]);
}
