//! Made-up processes with made-up sockets.

use super::*;
use std::fs::{create_dir_all, write};
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

const HEADER: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
                      retrnsmt   uid  timeout inode\n";

fn line(port: u16, state: u8, inode: u64) -> String {
    to("0100007F:FFFF", port, state, inode)
}

/// A socket with this far end.
fn to(peer: &str, port: u16, state: u8, inode: u64) -> String {
    format!(
        "   0: 0100007F:{port:04X} {peer} {state:02X} 00000000:00000000 00:00000000 \
         00000000     0        0 {inode} 1\n"
    )
}

fn key(pid: u32) -> ProcessKey {
    ProcessKey {
        pid,
        start_ticks: 100,
    }
}

struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    /// A process in a network namespace, with these sockets open.
    fn process(&self, pid: u32, namespace: u32, sockets: &[u64], tcp: &str) {
        let directory = self.root().join(pid.to_string());
        for part in ["fd", "ns", "net"] {
            create_dir_all(directory.join(part)).unwrap();
        }
        let rest = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 100 0 0";
        write(directory.join("stat"), format!("{pid} (x) S 1 {rest}")).unwrap();
        symlink("/dev/null", directory.join("fd/0")).unwrap();
        for (fd, inode) in (1..).zip(sockets) {
            let link = directory.join(format!("fd/{fd}"));
            symlink(format!("socket:[{inode}]"), link).unwrap();
        }
        let namespace = format!("net:[{namespace}]");
        symlink(namespace, directory.join("ns/net")).unwrap();
        write(directory.join("net/tcp"), [HEADER, tcp].concat()).unwrap();
    }
}

#[test]
fn clients_of_each_process_are_counted_in_its_own_network() {
    let tree = Tree::new();
    let first = [line(8000, 10, 5), line(8000, 1, 6), line(8000, 1, 0)].concat();
    let second = [line(8000, 10, 7), line(8000, 1, 8)].concat();
    // A server and its child that serves; a client; and one with files alone.
    tree.process(1, 1, &[5], &first);
    tree.process(
        2,
        1,
        &[5, 6],
        "not read: the first's is of the same network",
    );
    tree.process(3, 1, &[9], "");
    tree.process(4, 1, &[], "");
    // Its inodes are of another network.
    tree.process(5, 2, &[7], &second);
    tree.process(6, 3, &[5], "no list\n");
    let connections = Connections::start(tree.root().to_owned()).unwrap();
    let all = [1, 2, 3, 4, 5, 6, 7];
    let unknown = || Reading::Failed("not looked at yet".into());
    assert_eq!(connections.of(key(1)), unknown());
    connections.want(all.map(key).into());
    connections.settle(Instant::now() + Duration::from_secs(10));
    let found = all.map(|pid| connections.of(key(pid)));
    let expected = [
        Reading::Value(2),
        Reading::Value(2),
        Reading::Unsupported,
        Reading::Unsupported,
        Reading::Value(1),
        Reading::Failed("the list of sockets is not one".into()),
        Reading::Failed("the process has ended".into()),
    ];
    assert_eq!(found, expected);
    // Whoever is not wanted any more is forgotten.
    connections.want([key(2)].into());
    assert_eq!(connections.of(key(1)), unknown());
    assert_eq!(connections.of(key(2)), Reading::Value(2));
}

#[test]
fn whoever_has_the_pid_of_another_is_not_it() {
    let tree = Tree::new();
    tree.process(1, 1, &[5], &line(8000, 10, 5));
    let other = ProcessKey {
        pid: 1,
        start_ticks: 99,
    };
    let found = Look::below(tree.root().to_owned()).at(&[other, key(1)]);
    let clients: Vec<_> = found
        .iter()
        .map(|(key, it)| (*key, it.clients.clone()))
        .collect();
    let ended = Reading::Failed("the process has ended".into());
    assert_eq!(clients, [(other, ended), (key(1), Reading::Value(0))]);
    let is_known: Vec<bool> = found.iter().map(|(_, it)| it.sockets.is_some()).collect();
    assert_eq!(is_known, [false, true]);
}

#[test]
fn those_who_are_known_are_looked_at_again_after_a_while_and_new_ones_at_once() {
    let mut known = Known {
        wanted: [key(1), key(2), key(3)].into(),
        ..Known::default()
    };
    assert_eq!(known.due(), [key(1), key(2), key(3)]);
    let Some(then) = Instant::now().checked_sub(EVERY) else {
        eprintln!("skipped: the box has just booted");
        return;
    };
    let found = Found {
        clients: Reading::Value(1),
        sockets: None,
    };
    known.found = [
        (key(1), (found.clone(), then)),
        (key(2), (found, Instant::now())),
    ]
    .into();
    assert_eq!(known.due(), [key(1), key(3)]);
    assert!(known.is_worth_waiting());
    // A look that takes long is not waited for.
    known.since = Some(then);
    assert!(!known.is_worth_waiting());
}

fn sockets(listens: &[u16], peers: &[&str]) -> Sockets {
    Sockets {
        listens: listens.iter().copied().collect(),
        peers: peers.iter().map(|it| it.parse().unwrap()).collect(),
    }
}

#[test]
fn each_process_is_told_where_it_listens_and_with_whom_it_is_connected() {
    let tree = Tree::new();
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
    tree.process(2, 1, &[6, 5, 9], "");
    // No sockets, and none in this table.
    tree.process(3, 1, &[], "");
    tree.process(4, 1, &[99], "");
    tree.process(5, 2, &[7], "no list\n");
    let connections = Connections::start(tree.root().to_owned()).unwrap();
    let all = [1, 2, 3, 4, 5, 6];
    assert_eq!(connections.sockets_of(key(1)), None);
    connections.want(all.map(key).into());
    connections.settle(Instant::now() + Duration::from_secs(10));
    let expected = [
        Some(sockets(&[8000], &["203.0.113.7:4444"])),
        Some(sockets(&[22, 8000], &["10.0.0.2:443"])),
        Some(sockets(&[], &[])),
        Some(sockets(&[], &[])),
        None,
        None,
    ];
    assert_eq!(all.map(|pid| connections.sockets_of(key(pid))), expected);
    // What is too old is not told.
    let Some(then) = Instant::now().checked_sub(OLD + EVERY) else {
        eprintln!("skipped: the box has just booted");
        return;
    };
    connections.0.lock().wanted.clear();
    connections.0.lock().found.get_mut(&key(1)).unwrap().1 = then;
    assert_eq!(connections.sockets_of(key(1)), None);
}

#[test]
fn who_was_connected_to_is_not_told_by_whoever_did_it() {
    let tree = Tree::new();
    // 203.0.113.5 comes from port 3333 to two that listen, and 203.0.113.6 is connected to.
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
    let found = Look::below(tree.root().to_owned()).at(&[key(1)]);
    let expected = sockets(&[], &["203.0.113.6:3333"]);
    assert_eq!(found[0].1.sockets, Some(expected));
}

#[test]
fn who_has_many_connections_tells_of_some_and_of_those_to_elsewhere_first() {
    let tree = Tree::new();
    let inodes: Vec<u64> = (1..=900).collect();
    let table: String = inodes
        .iter()
        .map(|inode| match inode {
            1..=100 => line(u16::try_from(*inode).unwrap(), 10, *inode),
            // By its number, 127.0.0.1 comes before 203.0.113.7.
            101..=800 => to(&format!("0100007F:{inode:04X}"), 4_000, 1, *inode),
            _ => to(&format!("077100CB:{inode:04X}"), 4_000, 1, *inode),
        })
        .collect();
    tree.process(1, 1, &inodes, &table);
    let found = Look::below(tree.root().to_owned()).at(&[key(1)]);
    let sockets = found[0].1.sockets.clone().unwrap();
    assert_eq!(sockets.listens, (1..=64).collect());
    let is_elsewhere = |peer: &&SocketAddr| !peer.ip().is_loopback();
    let elsewhere = sockets.peers.iter().filter(is_elsewhere).count();
    assert_eq!((sockets.peers.len(), elsewhere), (256, 100));
}
