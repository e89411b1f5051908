//! Starts the real binaries in a temporary directory.
//!
//! ```no_run
//! use gpukill_tests::harness::{TestBox, TestProcess};
//! let test_box = TestBox::new();
//! let process = TestProcess::start("python");
//! test_box.set_driver_state(&serde_json::json!({"gpus": [{"processes":
//! [{"pid": process.pid(), "memory": 1 << 30}]}]}));
//! let daemon = test_box.start();
//! assert_eq!(test_box.ctl(&["list"]).code, 0);
//! daemon.stop();
//! ```

mod binaries;
mod booted_box;
mod browser;
mod daemon;
mod fake_driver;
mod fake_procfs;
mod fake_sysfs;
mod gateway;
mod journald;
mod login_terminal;
#[path = "../fake-nvml/older.rs"]
mod older;
mod otlp_server;
mod packages;
mod process_churn;
mod program;
mod running_program;
mod scan_gate;
mod script;
mod terminal;
mod test_box;
mod test_process;
mod user;
mod user_namespaces;

pub use binaries::{Binaries, binaries, build_binaries};
pub use booted_box::BootedBox;
pub use browser::Browser;
pub use daemon::Daemon;
pub use fake_driver::{FakeDriver, process_has_ended, start_ticks};
pub use fake_procfs::{FakeProcess, FakeProcessDetails, FakeProcfs};
pub use fake_sysfs::{FakeCard, FakeSysfs, captures_directory};
pub use gateway::{Gateway, HttpResponse, LiveEvents};
pub use journald::Journald;
pub use login_terminal::LoginTerminal;
pub use otlp_server::{OtlpPoint, OtlpPush, OtlpServer};
pub use packages::{Packages, packages};
pub use process_churn::ProcessChurn;
pub use program::{copy_program, write_script};
pub use running_program::RunningProgram;
pub use scan_gate::{ProcessRelay, ScanGate};
pub use script::Script;
pub use terminal::Terminal;
pub use test_box::{CommandOutput, TestBox};
pub use test_process::{TestProcess, first_child};
pub use user::{
    NOBODY_UID, can_run_as_other_users, can_use_several_persons, gateway_uid, give_to_gateway,
    group_id, run_as_user, test_uid,
};
pub use user_namespaces::python_with_namespaces;

use std::time::{Duration, Instant};

/// How long [`eventually`] waits. It is far longer than any step takes, because test machines
/// are slow and shared.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The first pause between two calls of `check`. Each further pause is twice as long, because
/// most of these functions run the client, and scenarios that wait for long would take the
/// processor from others.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause: the poll interval of the test boxes.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// Waits until `check` returns a value.
///
/// # Panics
/// When it returns `None` for a minute.
pub fn eventually<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    eventually_within(TIMEOUT, what, check)
}

fn eventually_within<T>(timeout: Duration, what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + timeout;
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < deadline, "did not happen: {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Waits until `check` returns the expected value.
///
/// # Panics
/// When it returns another value for a minute; shows the last one.
pub fn eventually_equals<T: PartialEq + std::fmt::Debug>(
    expected: &T,
    mut check: impl FnMut() -> T,
) {
    let deadline = Instant::now() + TIMEOUT;
    let mut pause = FIRST_PAUSE;
    loop {
        let found = check();
        if found == *expected {
            return;
        }
        if Instant::now() >= deadline {
            assert_eq!(
                &found, expected,
                "the value did not change to the expected one"
            );
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Returns the milliseconds between two timestamps of a JSON document.
///
/// # Panics
/// When a value is no timestamp.
#[must_use]
pub fn milliseconds_between(from: &serde_json::Value, to: &serde_json::Value) -> i64 {
    const DAY: i64 = 86_400_000;
    let moment = |moment: &serde_json::Value| {
        // `2026-11-22T04:33:06.123Z`
        let text = moment.as_str().expect("a timestamp");
        let digits = |from: usize, to: usize| text[from..to].parse::<i64>().expect("a number");
        let minutes = digits(11, 13) * 60 + digits(14, 16);
        (minutes * 60 + digits(17, 19)) * 1_000 + digits(20, 23)
    };
    // No scenario takes half a day.
    (moment(to) - moment(from) + DAY / 2).rem_euclid(DAY) - DAY / 2
}

/// Returns the entries of a document's `reasons` that are failures: `unsupported` readings are
/// left out.
///
/// # Panics
/// When the document has no `reasons`.
#[must_use]
pub fn failed_readings(document: &serde_json::Value) -> serde_json::Value {
    let reasons = document["reasons"].as_object().expect("reasons");
    let wrong = reasons.iter().filter(|(_, why)| *why != "unsupported");
    wrong
        .map(|(field, why)| (field.clone(), why.clone()))
        .collect()
}

/// Whether the cgroups of all processes are visible: they are not in a container with its own
/// cgroup namespace. Reports the skip when they are not.
#[must_use]
pub fn can_see_all_cgroups() -> bool {
    // The inode number of the kernel's initial cgroup namespace.
    let own = std::fs::read_link("/proc/self/ns/cgroup");
    let sees = own.is_ok_and(|own| own.as_os_str() == "cgroup:[4026531835]");
    if !sees {
        skip("this cgroup namespace hides where a process runs");
    }
    sees
}

/// Whether this machine has a program that answers `--version`.
fn has_program(tool: &str) -> bool {
    let asked = std::process::Command::new(tool).arg("--version").output();
    asked.is_ok()
}

/// Reports why a test skips a check on this machine.
#[expect(
    clippy::print_stderr,
    reason = "people who read a test run should see it"
)]
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
}
