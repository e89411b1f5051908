//! Tests of who is there, over the real processes.

use super::*;
use crate::host::users::System;
use std::process::{Child, Stdio};
use std::time::Instant;

/// A process that is ended when dropped.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Self {
        let mut sleep = Command::new("sleep");
        Self(sleep.arg("1000").stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_child_of_ours_is_found_among_the_real_ones_as_what_it_is() {
    let users = Users::new(System::here());
    let crowds = Crowds::new("/proc".into(), "/".into(), "");
    let sleeper = Sleeper::new();
    let pid = sleeper.0.id();
    let began = Instant::now();
    // Until it executes what it is to be.
    let crowd = loop {
        let crowd = crowds.everybody(&users).unwrap();
        // It reads its own libraries at first, for which it waits in the kernel.
        let is_asleep = crowd[&pid].state == ProcessState::Sleeping;
        if is_asleep && crowd[&pid].command == Reading::Value("sleep 1000".into()) {
            break crowd;
        }
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            crowd[&pid]
        );
    };
    let us = rustix::process::getuid().as_raw();
    let (found, ours) = (&crowd[&pid], &crowd[&std::process::id()]);
    assert_eq!(found.parent, std::process::id());
    assert_eq!(found.kin.name, "sleep");
    assert_eq!(found.kin.uid, Some(us));
    assert_eq!(found.namespace_owner, Reading::Value(None));
    assert!(!found.is_kernel_thread);
    assert!(found.owner.known().is_some(), "{found:?}");
    assert_eq!(found.container, ours.container);
    let alone = crowds.one(pid).unwrap();
    assert_eq!(
        (alone.kin.key, alone.uids, alone.kin.executable),
        (
            found.kin.key,
            found.uids.clone(),
            found.kin.executable.clone()
        )
    );
}

/// `cargo test --release -p gpukilld --lib crowd -- --ignored --nocapture`
#[test]
#[ignore = "it measures, and says how long a look takes here"]
fn how_long_a_look_takes() {
    let users = Users::new(System::here());
    let crowds = Crowds::new("/proc".into(), "/".into(), "");
    for _ in 0..5 {
        let began = Instant::now();
        let crowd = crowds.everybody(&users).unwrap();
        let unknown = crowd
            .values()
            .filter(|found| found.command.failure().is_some());
        eprintln!(
            "{} processes in {:?}, {} command lines unread",
            crowd.len(),
            began.elapsed(),
            unknown.count()
        );
        let began = Instant::now();
        let one = crowds.one(std::process::id());
        eprintln!("one in {:?}: {}", began.elapsed(), one.is_ok());
    }
}
