//! Made-up processes with made-up sockets.

use super::*;
use std::fs::{create_dir_all, write};
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

const HEADER: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
                      retrnsmt   uid  timeout inode\n";

fn line(port: u16, state: u8, inode: u64) -> String {
    format!(
        "   0: 0100007F:{port:04X} 0100007F:FFFF {state:02X} 00000000:00000000 00:00000000 \
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
    let counts = Look::below(tree.root().to_owned()).at(&[other, key(1)]);
    let ended = Reading::Failed("the process has ended".into());
    assert_eq!(counts, [(other, ended), (key(1), Reading::Value(0))]);
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
    known.counts = [
        (key(1), (Reading::Value(1), then)),
        (key(2), (Reading::Value(1), Instant::now())),
    ]
    .into();
    assert_eq!(known.due(), [key(1), key(3)]);
    assert!(known.is_worth_waiting());
    // A look that takes long is not waited for.
    known.since = Some(then);
    assert!(!known.is_worth_waiting());
}
