//! Tests with fake processes and sockets.

mod floods;
mod private;
mod sockets;

use super::*;
use std::fs::{create_dir_all, write};
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

const HEADER: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
                      retrnsmt   uid  timeout inode\n";

/// A socket at this port with a peer at 203.0.113.9.
fn line(port: u16, state: u8, inode: u64) -> String {
    to("097100CB:FFFF", port, state, inode)
}

/// A socket with this remote end.
fn to(peer: &str, port: u16, state: u8, inode: u64) -> String {
    format!(
        "   0: 0100007F:{port:04X} {peer} {state:02X} 00000000:00000000 00:00000000 \
         00000000     0        0 {inode} 1\n"
    )
}

/// Both ends of a connection between these ports.
fn pair(client: (u16, u64), server: (u16, u64)) -> String {
    let end = |port: u16| format!("0100007F:{port:04X}");
    [
        to(&end(client.0), server.0, 1, server.1),
        to(&end(server.0), client.0, 1, client.1),
    ]
    .concat()
}

fn key(pid: u32) -> ProcessKey {
    ProcessKey::new(pid, 100)
}

/// Processes that are each a job.
fn alone(pids: &[u32]) -> BTreeMap<ProcessKey, ProcessAttribution> {
    let attribution = |pid: &u32| {
        let attribution = ProcessAttribution {
            job: Some(Job::Tree(key(*pid))),
            uid: Some(1000),
            person: Some(1000),
            notebook_servers: Vec::new(),
            is_notebook_kernel: false,
        };
        (key(*pid), attribution)
    };
    pids.iter().map(attribution).collect()
}

struct FakeSocketTree(TempDir);

impl FakeSocketTree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    /// A process in a network namespace with these open sockets.
    fn process(&self, pid: u32, namespace: u32, sockets: &[u64], tcp: &str) {
        let directory = self.root().join(pid.to_string());
        for part in ["fd", "ns", "net"] {
            create_dir_all(directory.join(part)).unwrap();
        }
        self.parent(pid, 1);
        write(directory.join("status"), "Uid:\t1000\t1000\t1000\t1000\n").unwrap();
        symlink("/dev/null", directory.join("fd/0")).unwrap();
        for (fd, inode) in (1..).zip(sockets) {
            let link = directory.join(format!("fd/{fd}"));
            symlink(format!("socket:[{inode}]"), link).unwrap();
        }
        let namespace = format!("net:[{namespace}]");
        symlink(namespace, directory.join("ns/net")).unwrap();
        self.sockets(pid, tcp);
        self.addresses(pid, "127.0.0.0\n           /8 host LOCAL");
    }

    /// Sets the address of its network namespace, and the kind.
    fn addresses(&self, pid: u32, address: &str) {
        let text = format!("Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- {address}\n");
        write(self.root().join(format!("{pid}/net/fib_trie")), text).unwrap();
    }

    fn sockets(&self, pid: u32, tcp: &str) {
        let file = self.root().join(format!("{pid}/net/tcp"));
        write(file, [HEADER, tcp].concat()).unwrap();
    }

    fn parent(&self, pid: u32, parent: u32) {
        let rest = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 100 0 0";
        let stat = format!("{pid} (x) S {parent} {rest}");
        write(self.root().join(format!("{pid}/stat")), stat).unwrap();
    }
}

/// The network use of a job.
fn used(role: NetworkRole, clients: Option<u32>) -> NetworkUse {
    NetworkUse {
        role: Reading::Value(role),
        clients: clients.map_or(Reading::Unsupported, Reading::Value),
    }
}

fn failed(why: &str) -> NetworkUse {
    NetworkUse::unknown(&Reading::Failed(why.into()))
}

#[test]
fn clients_are_counted_in_the_jobs_network() {
    let tree = FakeSocketTree::new();
    let second_peer = to("087100CB:0001", 8000, 1, 0);
    let first = [line(8000, 10, 5), line(8000, 1, 6), second_peer].concat();
    let second = [line(8000, 10, 7), line(8000, 1, 8)].concat();
    // A server, another process that has the server's socket, a client, and a process with files
    // only.
    tree.process(11, 1, &[5], &first);
    tree.process(
        12,
        1,
        &[5, 6],
        "not read: the first's is of the same network",
    );
    tree.process(13, 1, &[9], "");
    tree.process(14, 1, &[], "");
    // Its inodes are of another network.
    tree.process(15, 2, &[7], &second);
    tree.process(16, 3, &[5], "no list\n");
    let connections =
        SocketWatcher::start(tree.root().to_owned(), SavedServedSockets::unsaved()).unwrap();
    let all = [11, 12, 13, 14, 15, 16, 17];
    assert_eq!(connections.network_use(key(11)), failed("not scanned yet"));
    connections.watch(alone(&all));
    connections.settle(Instant::now() + Duration::from_secs(10));
    let found = all.map(|pid| connections.network_use(key(pid)));
    let service = |clients| used(NetworkRole::Service(vec![8000]), Some(clients));
    let private = || used(NetworkRole::Private, None);
    let expected = [
        service(2),
        service(2),
        private(),
        private(),
        service(1),
        failed("the list of sockets is malformed"),
        failed("the process has ended"),
    ];
    assert_eq!(found, expected);
    // A process that is no longer watched is dropped.
    connections.watch(alone(&[12]));
    assert_eq!(connections.network_use(key(11)), failed("not scanned yet"));
    assert_eq!(connections.network_use(key(12)), service(2));
}

/// The tree of a process that holds a GPU.
fn tree_of(key: ProcessKey) -> WatchedJob {
    WatchedJob {
        job: Job::Tree(key),
        uid: Some(1000),
        owner: BudgetOwner::Person(1000),
        processes: [key].into(),
        notebook_servers: BTreeSet::new(),
        kernels: BTreeSet::new(),
    }
}

/// The tree of process 10, in which process 100 holds a GPU.
fn job(servers: &[u32]) -> WatchedJob {
    WatchedJob {
        job: Job::Tree(key(10)),
        notebook_servers: servers.iter().map(|pid| key(*pid)).collect(),
        ..tree_of(key(100))
    }
}

fn scanner_below(tree: &FakeSocketTree) -> SocketScanner {
    SocketScanner::below(tree.root().to_owned(), SavedServedSockets::unsaved())
}

/// The result of a scan after the sockets have changed.
fn scan_job(scanner: &mut SocketScanner, job: &WatchedJob) -> NetworkUse {
    scanner.forget_namespaces();
    let found = scanner.scan_jobs(std::slice::from_ref(job)).pop();
    found.unwrap().1.network
}

#[test]
fn parents_listener_counts_for_the_engine() {
    let tree = FakeSocketTree::new();
    let table = [line(8000, 10, 5), line(8000, 1, 6)].concat();
    tree.process(10, 1, &[5, 6], &table);
    tree.process(100, 1, &[], &table);
    tree.parent(100, 10);
    let mut scanner = scanner_below(&tree);
    let service = |clients| used(NetworkRole::Service(vec![8000]), Some(clients));
    assert_eq!(scan_job(&mut scanner, &job(&[])), service(1));
    // No client is connected now.
    for pid in [10, 100] {
        tree.sockets(pid, &line(8000, 10, 5));
    }
    assert_eq!(scan_job(&mut scanner, &job(&[])), service(0));
    // A client was connected a moment ago: it closed first, on this host.
    let closed = [line(8000, 10, 5), to("0100007F:1F40", 40_000, 6, 0)].concat();
    for pid in [10, 100] {
        tree.sockets(pid, &closed);
    }
    assert_eq!(scan_job(&mut scanner, &job(&[])), service(1));
}

#[test]
fn later_processes_of_the_job_are_found() {
    let tree = FakeSocketTree::new();
    tree.process(10, 1, &[], "");
    tree.process(100, 1, &[], "");
    tree.parent(100, 10);
    let mut scanner = scanner_below(&tree);
    assert_eq!(
        scan_job(&mut scanner, &job(&[])),
        used(NetworkRole::Private, None)
    );
    tree.process(101, 1, &[5], &line(8000, 10, 5));
    tree.parent(101, 10);
    for pid in [10, 100] {
        tree.sockets(pid, &line(8000, 10, 5));
    }
    // Not at once: listing all processes costs time.
    assert_eq!(
        scan_job(&mut scanner, &job(&[])),
        used(NetworkRole::Private, None)
    );
    scanner.survey_pace = job_processes::SurveyPace::default();
    let service = used(NetworkRole::Service(vec![8000]), Some(0));
    assert_eq!(scan_job(&mut scanner, &job(&[])), service);
    // The listening sockets are known by now, and not searched again.
    scanner.survey_pace = job_processes::SurveyPace::default();
    std::fs::remove_dir_all(tree.root().join("101")).unwrap();
    assert_eq!(scan_job(&mut scanner, &job(&[])), service);
}

#[test]
fn notebook_server_is_no_client_browser_is() {
    let tree = FakeSocketTree::new();
    let quiet = [
        line(8888, 10, 1),
        line(50_000, 10, 2),
        line(50_001, 10, 3),
        pair((40_000, 11), (50_000, 12)),
    ]
    .concat();
    let browser = [quiet.clone(), pair((40_001, 21), (8888, 22))].concat();
    let remote = [quiet.clone(), line(8888, 1, 23)].concat();
    let closed = [quiet.clone(), to("0100007F:9C41", 8888, 6, 0)].concat();
    tree.process(10, 1, &[1, 11, 22, 23], &quiet);
    tree.process(100, 1, &[2, 3, 12], "");
    tree.process(30, 1, &[21], "");
    tree.parent(100, 10);
    let mut kernel = job(&[10]);
    kernel.job = Job::Tree(key(100));
    let mut scanner = scanner_below(&tree);
    let notebook = |clients| used(NetworkRole::Notebook(vec![8888]), Some(clients));
    for (table, clients) in [
        (&quiet, 0),
        (&browser, 1),
        (&closed, 1),
        (&remote, 1),
        (&quiet, 0),
    ] {
        tree.sockets(100, table);
        assert_eq!(
            scan_job(&mut scanner, &kernel),
            notebook(clients),
            "{table}"
        );
    }
    // The same in a container, where the server is a part of the job.
    let mut scanner = scanner_below(&tree);
    for (table, clients) in [(&quiet, 0), (&browser, 1)] {
        tree.sockets(100, table);
        assert_eq!(
            scan_job(&mut scanner, &job(&[10])),
            notebook(clients),
            "{table}"
        );
    }
}

#[test]
fn ports_of_a_kernel_make_no_service() {
    let tree = FakeSocketTree::new();
    let table = [
        line(50_000, 10, 2),
        line(50_001, 10, 3),
        pair((40_000, 11), (50_000, 12)),
    ]
    .concat();
    // A launcher that is no known server is a part of the job.
    tree.process(10, 1, &[11], &table);
    tree.process(100, 1, &[2, 3, 12], &table);
    tree.parent(100, 10);
    let mut kernel = job(&[]);
    for (kernels, expected) in [
        (vec![], used(NetworkRole::Service(vec![50_001]), Some(0))),
        (vec![key(100)], used(NetworkRole::Private, None)),
    ] {
        kernel.kernels = kernels.into_iter().collect();
        let mut scanner = scanner_below(&tree);
        assert_eq!(scan_job(&mut scanner, &kernel), expected);
    }
}

#[test]
fn own_network_counts_connections_between_scans() {
    let tree = FakeSocketTree::new();
    tree.process(1, 1, &[], "");
    tree.process(10, 2, &[], "");
    tree.process(100, 2, &[5], &line(8000, 10, 5));
    tree.parent(100, 10);
    let snmp = |opens: u32| {
        let text = format!(
            "Ip: Forwarding\n\
             Ip: 1\n\
             Tcp: ActiveOpens PassiveOpens\n\
             Tcp: 900 {opens}\n\
             Udp: X\n\
             Udp: 1\n"
        );
        for pid in [10, 100] {
            write(tree.root().join(format!("{pid}/net/snmp")), &text).unwrap();
        }
    };
    let mut scanner = scanner_below(&tree);
    let clients = [7, 7, 9, 9].map(|opens| {
        snmp(opens);
        scan_job(&mut scanner, &job(&[])).clients
    });
    assert_eq!(clients, [0, 0, 1, 0].map(Reading::Value));
}

#[test]
fn reused_pid_is_another_process() {
    let tree = FakeSocketTree::new();
    tree.process(1, 1, &[5], &line(8000, 10, 5));
    let other = ProcessKey::new(1, 99);
    let mut scanner = scanner_below(&tree);
    let found = scanner.scan_jobs(&[tree_of(other), tree_of(key(1))]);
    let uses: Vec<_> = found
        .iter()
        .map(|(key, it)| (*key, it.network.clients.clone(), it.sockets.is_some()))
        .collect();
    let ended = Reading::Failed("the process has ended".into());
    let expected = [(other, ended, false), (key(1), Reading::Value(0), true)];
    assert_eq!(uses, expected);
}

#[test]
fn known_jobs_are_rescanned_new_ones_at_once() {
    let mut known = WatcherState {
        watched: alone(&[1, 2, 3]),
        ..WatcherState::default()
    };
    let due = |known: &WatcherState| -> Vec<u32> {
        let due = known.due_jobs().into_iter();
        due.flat_map(|job| job.processes)
            .map(|key| key.pid)
            .collect()
    };
    assert_eq!(due(&known), [1, 2, 3]);
    let Some(then) = Instant::now().checked_sub(REFRESH_INTERVAL) else {
        eprintln!("skipped: the host has just booted");
        return;
    };
    let found = SocketFindings {
        network: used(NetworkRole::Private, None),
        sockets: None,
    };
    known.findings = [
        (key(1), (found.clone(), then)),
        (key(2), (found, Instant::now())),
    ]
    .into();
    assert_eq!(due(&known), [1, 3]);
    assert!(known.is_worth_waiting());
    // A slow scan is not waited for.
    known.scanning_since = Some(then);
    assert!(!known.is_worth_waiting());
}
