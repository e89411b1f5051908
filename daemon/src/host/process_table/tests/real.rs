//! Tests of the process table over the real `/proc`.

use super::*;
use crate::host::test_process::TestProcess;
use crate::host::users::SystemNameService;
use std::time::Instant;

#[test]
fn child_is_found_in_the_real_table() {
    let users = Users::new(SystemNameService::for_this_host());
    let reader = ProcessTableReader::new("/proc".into(), "/".into(), "");
    let sleeper = TestProcess::start("sleep", &["1000"]);
    let pid = sleeper.0.id();
    let start = Instant::now();
    // Until the exec.
    let table = loop {
        let table = reader.read_all(&users).unwrap();
        // It reads its libraries first, and waits in the kernel for that.
        let is_asleep = table[&pid].state == ProcessState::Sleeping;
        if is_asleep && table[&pid].command == Reading::Value("sleep 1000".into()) {
            break table;
        }
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{:?}",
            table[&pid]
        );
    };
    let us = rustix::process::getuid().as_raw();
    let (found, ours) = (&table[&pid], &table[&std::process::id()]);
    assert_eq!(found.parent, std::process::id());
    assert_eq!(found.lineage.name, "sleep");
    assert_eq!(found.lineage.uid, Some(us));
    assert_eq!(found.namespace_owner, Reading::Value(None));
    assert!(!found.is_kernel_thread);
    assert!(found.owner.known().is_some(), "{found:?}");
    assert_eq!(found.container, ours.container);
    let alone = reader.read_one(pid).unwrap();
    assert_eq!(
        (alone.lineage.key, alone.uids, alone.lineage.executable),
        (
            found.lineage.key,
            found.uids.clone(),
            found.lineage.executable.clone()
        )
    );
}

/// `cargo test --release -p gpukilld --lib process_table -- --ignored --nocapture`
#[test]
#[ignore = "a measurement: prints how long a read takes here"]
fn read_duration() {
    let users = Users::new(SystemNameService::for_this_host());
    let reader = ProcessTableReader::new("/proc".into(), "/".into(), "");
    for _ in 0..5 {
        let start = Instant::now();
        let table = reader.read_all(&users).unwrap();
        let unknown = table
            .values()
            .filter(|found| found.command.failure().is_some());
        eprintln!(
            "{} processes in {:?}, {} command lines unread",
            table.len(),
            start.elapsed(),
            unknown.count()
        );
        let start = Instant::now();
        let one = reader.read_one(std::process::id());
        eprintln!("one in {:?}: {}", start.elapsed(), one.is_ok());
    }
}
