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

mod stage;

pub use actor::Actor;
pub use build::{Built, built};
pub use daemon::Daemon;
pub use stage::{Ran, Stage};

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
