//! A disk that fills up and has room again, one that cannot be written, and a
//! directory that goes away.

use super::{events, number, records};
use gpukill_tests::harness::{Actor, Daemon, Driver, Stage, becomes, eventually, skip};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A box whose store has a small file system to itself, in the daemon's own mount
/// namespace: it is gone with the daemon.
pub(crate) struct Small {
    pub(crate) stage: Stage,
    pub(crate) daemon: Daemon,
}

/// A box that has nothing yet.
pub(super) fn small(options: &str) -> Option<Small> {
    let stage = Stage::new();
    let daemon = stage.daemon();
    small_for(stage, &daemon, options)
}

/// This box with this daemon. `None` where no file system can be mounted, which is said.
pub(crate) fn small_for(stage: Stage, daemon: &Command, options: &str) -> Option<Small> {
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
    std::fs::create_dir(stage.path("state")).unwrap();
    let mut command = mounted(&stage.path("state"), options);
    command.arg(daemon.get_program()).args(daemon.get_args());
    command.env_clear();
    for (name, value) in daemon.get_envs() {
        command.env(name, value.unwrap());
    }
    let daemon = stage.start_with(&mut command);
    Some(Small { stage, daemon })
}

impl Small {
    /// The store's directory as the daemon has it.
    pub(crate) fn state(&self) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.daemon.pid()));
        root.join(self.stage.path("state").strip_prefix("/").unwrap())
    }

    /// Takes all room but this, and all of it where that is zero.
    pub(crate) fn fill(&self, but: u64) {
        let mut filler = File::options();
        let filler = filler
            .create(true)
            .append(true)
            .open(self.state().join("filler"));
        let mut filler = filler.unwrap();
        loop {
            let room = rustix::fs::statvfs(self.state()).unwrap();
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
        let faults = self.stage.faults().into_iter();
        faults
            .filter(|(part, _)| part == "store")
            .map(|(_, what)| what.replace(&*self.stage.path("state").to_string_lossy(), "DIR"))
            .collect()
    }

    /// Asks a copy: SQLite would not stay in the daemon's namespace. One that was
    /// made while the daemon wrote may be none.
    fn number(&self, file: &str, select: &str) -> i64 {
        eventually("a copy that is whole", || {
            let copy = tempfile::tempdir().unwrap();
            for part in ["", "-wal"] {
                let name = format!("{file}{part}");
                std::fs::copy(self.state().join(&name), copy.path().join(name)).ok()?;
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

    fn samples(&self) -> i64 {
        self.number("samples.db", "SELECT count(*) FROM sample")
    }
}

const PAUSED: &str = "DIR/samples.db: too little of the disk is free (less than 64 MiB, or an eighth): samples pause";
const RESERVE: &str = "DIR/reserve: the disk is full: the record goes on from its reserve";

#[test]
fn on_a_full_disk_samples_pause_the_record_goes_on_and_all_heals_when_there_is_room() {
    // An eighth of it is 8 MiB.
    let Some(it) = small("size=64m,mode=0755") else {
        return;
    };
    let driver = Driver::start(&it.stage, Duration::ZERO);
    let reserve = it.state().join("reserve");
    becomes(&Vec::<String>::new(), || it.faults());
    eventually("some samples", || (it.samples() > 1).then_some(()));
    let made = std::fs::metadata(&reserve).unwrap();
    assert_eq!((made.len(), made.blocks() * 512), (8 * MIB, 8 * MIB));
    assert_eq!(made.permissions().mode() & 0o777, 0o600);

    it.fill(6 * MIB);
    becomes(&vec![PAUSED.to_owned()], || it.faults());
    let (samples, dropped) = (it.samples(), left_out(&it.stage));
    eventually("samples are left out", || {
        (left_out(&it.stage) > dropped + 1).then_some(())
    });
    assert_eq!(it.samples(), samples);

    it.fill(0);
    let mut ended = 0;
    // What SQLite has taken already lasts for a while.
    while reserve.exists() {
        assert!(ended < 50, "the reserve is not needed");
        end_one(&it, &driver);
        ended += 1;
    }
    let faults = vec![RESERVE.to_owned(), PAUSED.to_owned()];
    becomes(&faults, || it.faults());
    let status = it.stage.ctl(&["status"]).stdout;
    for words in ["samples pause", "the record goes on from its reserve"] {
        assert!(status.contains(words), "{status}");
    }
    // Others take the room that it gave up, but not what the log has of it.
    it.fill(0);
    for _ in 0..5 {
        end_one(&it, &driver);
        ended += 1;
    }
    assert_eq!(it.faults(), faults);
    assert_eq!(it.samples(), samples);
    // What is there can be read.
    assert!(!records(&it.stage, &[]).is_empty());

    std::fs::remove_file(it.state().join("filler")).unwrap();
    becomes(&Vec::<String>::new(), || it.faults());
    assert_eq!(std::fs::metadata(&reserve).unwrap().blocks() * 512, 8 * MIB);
    eventually("samples go on", || (it.samples() > samples).then_some(()));
    let done = "SELECT count(*) FROM action WHERE word = 'done'";
    becomes(&ended, || it.number("audit.db", done));
    it.daemon.stop();
}

/// Has a process ended, and asserts that it is recorded.
fn end_one(it: &Small, driver: &Driver) {
    let actor = Actor::start("python train.py");
    driver.lists(&[actor.pid()]);
    let report = eventually("it is ended", || {
        let ran = it
            .stage
            .ctl(&["kill", &actor.pid().to_string(), "-o", "json"]);
        let document: Value = serde_json::from_str(&ran.stdout).ok()?;
        document["outcomes"].is_array().then_some(document)
    });
    assert_eq!(report["recorded"], json!(true), "{report:#}");
    assert_eq!(report["outcomes"][0]["ending"], "ended", "{report:#}");
}

fn left_out(stage: &Stage) -> u64 {
    let status = stage.json(&["status", "-o", "json"]);
    number(&status, "store_dropped")
}

#[test]
fn a_read_only_disk_is_told_and_used_when_it_can_be_written() {
    let Some(it) = small("size=64m,mode=0755,ro") else {
        return;
    };
    let cannot = "Read-only file system (os error 30)";
    let faults = ["audit.db", "samples.db"].map(|file| format!("DIR/{file}: {cannot}"));
    becomes(&faults.to_vec(), || it.faults());
    assert_eq!(it.stage.ctl(&["list"]).code, 0);
    let mut remount = Command::new("nsenter");
    remount.args(["--mount", "--target", &it.daemon.pid().to_string()]);
    remount.args(["mount", "-o", "remount,rw"]);
    assert!(
        remount
            .arg(it.stage.path("state"))
            .status()
            .unwrap()
            .success()
    );
    becomes(&Vec::<String>::new(), || it.faults());
    eventually("a sample", || (it.samples() > 0).then_some(()));
    let started = "SELECT count(*) FROM event WHERE kind = 'started'";
    assert_eq!(it.number("audit.db", started), 1);
    it.daemon.stop();
}

#[test]
fn a_directory_that_goes_away_under_a_running_daemon_is_made_anew() {
    let stage = Stage::new();
    stage.play(&json!({"gpus": [{}]}));
    let daemon = stage.start();
    eventually("a sample", || records(&stage, &[]).pop());
    std::fs::rename(stage.path("state"), stage.path("taken away")).unwrap();
    eventually("the new directory has all that it needs", || {
        let files = ["samples.db", "audit.db", "reserve"];
        let state = stage.path("state");
        files
            .iter()
            .all(|file| state.join(file).exists())
            .then_some(())
    });
    eventually("a sample in it", || records(&stage, &[]).pop());
    becomes(&Vec::new(), || stage.faults());
    daemon.stop();
    let kinds: Vec<String> = events(&stage).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, ["stopped"]);
}
