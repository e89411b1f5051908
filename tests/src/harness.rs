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

mod build;

mod daemon;

mod procfs;

mod stage;

mod stream;

mod terminal;

mod user;

pub use actor::Actor;
pub use build::{Built, build, built};
pub use daemon::Daemon;
pub use procfs::{Invented, Procfs};
pub use stage::{Ran, Stage};
pub use stream::Stream;
pub use terminal::Terminal;
pub use user::{NOBODY, acting_as, can_act_as_others};

use std::time::{Duration, Instant};

/// How long [`eventually`] waits: far longer than anything should take, for
/// test machines are slow and shared.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `look` finds something.
///
/// # Panics
/// When it finds nothing for half a minute.
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
/// When it gives something else for half a minute; shows the last.
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

/// Says why a test does not look at something on this machine.
#[expect(clippy::print_stderr, reason = "whoever reads a test run should know")]
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
}
