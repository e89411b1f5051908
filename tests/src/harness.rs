//! Starts the real binaries in a directory of their own.
//!
//! ```no_run
//! use gpukill_tests::harness::{Actor, Stage};
//! let stage = Stage::new();
//! let actor = Actor::start("python");
//! stage.play(&serde_json::json!({"gpus": [{"processes": [{"pid": actor.pid(), "memory": 1 << 30}]}]}));
//! let daemon = stage.start();
//! assert_eq!(stage.ctl(&["list"]).code, 0);
//! daemon.stop();
//! ```

mod actor;

mod booted;

mod build;

mod churn;

mod daemon;

mod driver;

mod gate;

mod journald;
mod login;

#[path = "../fake-nvml/older.rs"]
mod older;

mod mapped;

mod package;

mod procfs;

mod program;

mod stage;

mod stream;

mod sysfs;

mod terminal;

mod troupe;

mod user;

pub use actor::{Actor, child_of};
pub use booted::Booted;
pub use build::{Built, build, built};
pub use churn::Churn;
pub use daemon::Daemon;
pub use driver::{Driver, is_over};
pub use gate::Gate;
pub use journald::Journald;
pub use login::Login;
pub use mapped::python_with_namespaces;
pub use package::{Package, package};
pub use procfs::{Invented, Procfs, Related};
pub use program::copy_program;
pub use stage::{Ran, Stage};
pub use stream::Stream;
pub use sysfs::{Card, Sysfs, captures};
pub use terminal::Terminal;
pub use troupe::Troupe;
pub use user::{NOBODY, acting_as, can_act_as_others, can_be_several_people, group, user};

use std::time::{Duration, Instant};

/// How long [`eventually`] waits: far longer than anything should take, for
/// test machines are slow and shared.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `look` finds something.
///
/// # Panics
/// When it finds nothing for a minute.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "did not happen: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until `look` gives what is expected.
///
/// # Panics
/// When it gives something else for a minute; shows the last.
pub fn becomes<T: PartialEq + std::fmt::Debug>(expected: &T, mut look: impl FnMut() -> T) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = look();
        if found == *expected {
            return;
        }
        if Instant::now() >= deadline {
            assert_eq!(&found, expected, "it stayed so");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The milliseconds from one moment of a document to another.
///
/// # Panics
/// When they are none.
#[must_use]
pub fn between(from: &serde_json::Value, to: &serde_json::Value) -> i64 {
    /// Milliseconds of a day.
    const DAY: i64 = 86_400_000;
    let moment = |moment: &serde_json::Value| {
        // `2026-11-22T04:33:06.123Z`
        let text = moment.as_str().expect("a moment");
        let digits = |from: usize, to: usize| text[from..to].parse::<i64>().expect("a number");
        let minutes = digits(11, 13) * 60 + digits(14, 16);
        (minutes * 60 + digits(17, 19)) * 1_000 + digits(20, 23)
    };
    // Half a day is longer than any scenario.
    (moment(to) - moment(from) + DAY / 2).rem_euclid(DAY) - DAY / 2
}

/// Those of a document's `reasons` that tell of something wrong: what a device
/// just does not have is left out.
///
/// # Panics
/// When it has no `reasons`.
#[must_use]
pub fn wrong(document: &serde_json::Value) -> serde_json::Value {
    let reasons = document["reasons"].as_object().expect("reasons");
    let wrong = reasons.iter().filter(|(_, why)| *why != "unsupported");
    wrong
        .map(|(field, why)| (field.clone(), why.clone()))
        .collect()
}

/// Whether the cgroups of all processes can be seen here: not in a container
/// with a cgroup namespace of its own. Says so when they cannot.
#[must_use]
pub fn sees_all_cgroups() -> bool {
    // The number that the first such namespace of a kernel has.
    let own = std::fs::read_link("/proc/self/ns/cgroup");
    let sees = own.is_ok_and(|own| own.as_os_str() == "cgroup:[4026531835]");
    if !sees {
        skip("where a process runs is out of sight in this cgroup namespace");
    }
    sees
}

/// Whether this machine has a program that tells its version.
fn has(tool: &str) -> bool {
    let asked = std::process::Command::new(tool).arg("--version").output();
    asked.is_ok()
}

/// Says why a test does not look at something on this machine.
#[expect(clippy::print_stderr, reason = "whoever reads a test run should know")]
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
}
