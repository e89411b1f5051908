//! A disk that fills up and gets room again, a read-only disk, and a directory that is
//! moved away.

use super::{events, number, records};
use gpukill_tests::harness::{
    Daemon, FakeDriver, TestBox, TestProcess, eventually, eventually_equals, skip,
};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A box with a store on a small file system of its own in the mount namespace of the
/// daemon. The file system ends with the daemon.
pub(crate) struct SmallDisk {
    pub(crate) test_box: TestBox,
    pub(crate) daemon: Daemon,
}

pub(super) fn with_small_disk(options: &str) -> Option<SmallDisk> {
    let test_box = TestBox::new();
    let daemon = test_box.daemon_command();
    with_small_disk_for(test_box, &daemon, options)
}

/// Starts this daemon in this box with a small file system. `None` where no file system can
/// be mounted, and the test output reports that.
pub(crate) fn with_small_disk_for(
    test_box: TestBox,
    daemon: &Command,
    options: &str,
) -> Option<SmallDisk> {
    let script = "mount -t tmpfs -o \"$1\" tmpfs \"$0\" && shift && exec \"$@\"";
    let mounted = |directory: &Path, options: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
        command.arg(directory).arg(options);
        command
    };
    let trial = tempfile::tempdir().unwrap();
    let mut trial = mounted(trial.path(), options);
    trial.arg("true").stderr(Stdio::null());
    if !trial.status().is_ok_and(|status| status.success()) {
        skip("only root can mount a small file system");
        return None;
    }
    std::fs::create_dir(test_box.path("state")).unwrap();
    let mut command = mounted(&test_box.path("state"), options);
    command.arg(daemon.get_program()).args(daemon.get_args());
    command.env_clear();
    for (name, value) in daemon.get_envs() {
        command.env(name, value.unwrap());
    }
    let daemon = test_box.start_with(&mut command);
    Some(SmallDisk { test_box, daemon })
}

impl SmallDisk {
    /// The directory of the store as the daemon sees it.
    pub(crate) fn state_directory(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.daemon.pid()));
        root.join(self.test_box.path("state").strip_prefix("/").unwrap())
    }

    /// Fills the disk until `but` bytes are free, or completely where `but` is zero.
    pub(crate) fn fill(&self, but: u64) {
        let mut filler = File::options();
        let filler = filler
            .create(true)
            .append(true)
            .open(self.state_directory().join("filler"));
        let mut filler = filler.unwrap();
        loop {
            let room = rustix::fs::statvfs(self.state_directory()).unwrap();
            let free = room.f_bavail * room.f_frsize;
            if but > 0 && free <= but {
                return;
            }
            let step = usize::try_from(MIB.min(free.saturating_sub(but)).max(4_096)).unwrap();
            match filler.write(&vec![b'x'; step]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn faults(&self) -> Vec<String> {
        let faults = self.test_box.faults().into_iter();
        faults
            .filter(|(part, _)| part == "store")
            .map(|(_, what)| what.replace(&*self.test_box.path("state").to_string_lossy(), "DIR"))
            .collect()
    }

    /// Queries a copy, because SQLite would leave the namespace of the daemon. A copy made
    /// while the daemon writes may be invalid.
    fn query_copy(&self, file: &str, select: &str) -> i64 {
        eventually("a copy that is whole", || {
            let copy = tempfile::tempdir().unwrap();
            for part in ["", "-wal"] {
                let name = format!("{file}{part}");
                std::fs::copy(self.state_directory().join(&name), copy.path().join(name)).ok()?;
            }
            let database = Connection::open(copy.path().join(file)).unwrap();
            let check = database.pragma_query_value(None, "integrity_check", |row| row.get(0));
            let found: String = check.ok()?;
            let is_whole = found == "ok";
            database
                .query_row(select, [], |row| row.get(0))
                .ok()
                .filter(|_| is_whole)
        })
    }

    fn sample_count(&self) -> i64 {
        self.query_copy("samples.db", "SELECT count(*) FROM sample")
    }
}

const SAMPLES_PAUSED: &str = "DIR/samples.db: too little disk space is free (less than 64 MiB, or \
an eighth): samples are paused";
const RESERVE_IN_USE: &str = "DIR/reserve: the disk is full: recording continues from the reserve";

#[test]
fn full_disk_pauses_samples_and_uses_reserve() {
    // An eighth of it is 8 MiB.
    let Some(it) = with_small_disk("size=64m,mode=0755") else {
        return;
    };
    let driver = FakeDriver::start(&it.test_box, Duration::ZERO);
    let reserve = it.state_directory().join("reserve");
    eventually_equals(&Vec::<String>::new(), || it.faults());
    eventually("some samples", || (it.sample_count() > 1).then_some(()));
    let made = std::fs::metadata(&reserve).unwrap();
    assert_eq!((made.len(), made.blocks() * 512), (8 * MIB, 8 * MIB));
    assert_eq!(made.permissions().mode() & 0o777, 0o600);

    it.fill(6 * MIB);
    eventually_equals(&vec![SAMPLES_PAUSED.to_owned()], || it.faults());
    let (samples, dropped) = (it.sample_count(), dropped_samples(&it.test_box));
    eventually("samples are left out", || {
        (dropped_samples(&it.test_box) > dropped + 1).then_some(())
    });
    assert_eq!(it.sample_count(), samples);

    it.fill(0);
    let mut ended = 0;
    // Pages that SQLite has allocated already last for a while.
    while reserve.exists() {
        assert!(ended < 50, "the reserve is not needed");
        kill_one(&it, &driver);
        ended += 1;
    }
    let faults = vec![RESERVE_IN_USE.to_owned(), SAMPLES_PAUSED.to_owned()];
    eventually_equals(&faults, || it.faults());
    let status = it.test_box.ctl(&["status"]).stdout;
    for words in ["samples are paused", "recording continues from the reserve"] {
        assert!(status.contains(words), "{status}");
    }
    // Other files take the room that the reserve freed, except for what the write-ahead log
    // has of it.
    it.fill(0);
    for _ in 0..5 {
        kill_one(&it, &driver);
        ended += 1;
    }
    assert_eq!(it.faults(), faults);
    assert_eq!(it.sample_count(), samples);
    // The stored records can be read.
    assert!(!records(&it.test_box, &[]).is_empty());

    std::fs::remove_file(it.state_directory().join("filler")).unwrap();
    eventually_equals(&Vec::<String>::new(), || it.faults());
    assert_eq!(std::fs::metadata(&reserve).unwrap().blocks() * 512, 8 * MIB);
    eventually("samples go on", || {
        (it.sample_count() > samples).then_some(())
    });
    let done = "SELECT count(*) FROM action WHERE result = 'done'";
    eventually_equals(&ended, || it.query_copy("audit.db", done));
    it.daemon.stop();
}

/// Kills a process, and asserts that the kill is recorded.
fn kill_one(it: &SmallDisk, driver: &FakeDriver) {
    let process = TestProcess::start("python train.py");
    driver.add_processes(&[process.pid()]);
    let report = eventually("it is ended", || {
        let ran = it
            .test_box
            .ctl(&["kill", &process.pid().to_string(), "-o", "json"]);
        let document: Value = serde_json::from_str(&ran.stdout).ok()?;
        document["outcomes"].is_array().then_some(document)
    });
    assert_eq!(report["recorded"], json!(true), "{report:#}");
    assert_eq!(report["outcomes"][0]["outcome"], "ended", "{report:#}");
}

fn dropped_samples(test_box: &TestBox) -> u64 {
    let status = test_box.json(&["status", "-o", "json"]);
    number(&status, "store_dropped")
}

#[test]
fn read_only_disk_is_reported_until_writable() {
    let Some(it) = with_small_disk("size=64m,mode=0755,ro") else {
        return;
    };
    let cannot = "Read-only file system (os error 30)";
    let faults = ["audit.db", "samples.db"].map(|file| format!("DIR/{file}: {cannot}"));
    eventually_equals(&faults.to_vec(), || it.faults());
    assert_eq!(it.test_box.ctl(&["list"]).code, 0);
    let mut remount = Command::new("nsenter");
    remount.args(["--mount", "--target", &it.daemon.pid().to_string()]);
    remount.args(["mount", "-o", "remount,rw"]);
    assert!(
        remount
            .arg(it.test_box.path("state"))
            .status()
            .unwrap()
            .success()
    );
    eventually_equals(&Vec::<String>::new(), || it.faults());
    eventually("a sample", || (it.sample_count() > 0).then_some(()));
    let started = "SELECT count(*) FROM event WHERE kind = 'started'";
    assert_eq!(it.query_copy("audit.db", started), 1);
    it.daemon.stop();
}

#[test]
fn moved_directory_is_created_again() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&json!({"gpus": [{}]}));
    let daemon = test_box.start();
    eventually("a sample", || records(&test_box, &[]).pop());
    std::fs::rename(test_box.path("state"), test_box.path("taken away")).unwrap();
    eventually("the new directory has all that it needs", || {
        let files = ["samples.db", "audit.db", "reserve"];
        let state = test_box.path("state");
        files
            .iter()
            .all(|file| state.join(file).exists())
            .then_some(())
    });
    eventually("a sample in it", || records(&test_box, &[]).pop());
    eventually_equals(&Vec::new(), || test_box.faults());
    daemon.stop();
    let kinds: Vec<String> = events(&test_box)
        .into_iter()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(kinds, ["stopped"]);
}
