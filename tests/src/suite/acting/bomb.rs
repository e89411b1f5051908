//! Fork bombs: as many processes as their user may have, each of which starts another
//! as soon as there is room for one.

use super::{Box, document, ended, recorded};
use gpukill_tests::harness::{
    Gate, Procfs, Stage, Stream, Troupe, can_act_as_others, eventually, is_over, skip, user,
};
use rustix::process::{Pid, getsid};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The most processes that a bomb's user may have.
const MOST: usize = 300;

/// A process that may have no child tries again after so many seconds, where
/// `GPUKILL_BOMB_PAUSE` does not say another number: a bomb has all processors with less.
const PAUSE: &str = "0.02";

/// The first process of the bomb's PID namespace: reaps what loses its parent, as on
/// any machine, so that each end makes room for another process.
const INIT: &str = "
    use POSIX ();
    my $first = fork // die;
    if (!$first) { POSIX::setsid(); exec @ARGV }
    while (1) { wait == -1 && sleep 1 }";

/// Every process of the bomb forks for ever, and outlives SIGTERM.
const FORKS: &str = "
    $SIG{TERM} = $SIG{CHLD} = 'IGNORE';
    while (1) { my $child = fork; select undef, undef, undef, $ENV{PAUSE} unless defined $child }";

/// In a session of its own each, so that nothing tells whose it was after its parent
/// has ended.
const SESSIONS: &str = "
    use POSIX ();
    $SIG{TERM} = $SIG{CHLD} = 'IGNORE';
    while (1) {
        my $child = fork;
        if (!defined $child) { select undef, undef, undef, $ENV{PAUSE} }
        elsif (!$child) { POSIX::setsid() }
    }";

/// Each but the first ends by itself soon, when it has started others: parents are gone
/// before their children.
const CHURNS: &str = "
    $SIG{TERM} = $SIG{CHLD} = 'IGNORE';
    my $left;
    while (!defined $left || $left--) {
        my $child = fork;
        if (!defined $child) { select undef, undef, undef, $ENV{PAUSE} }
        elsif (!$child) { $left = 100 }
    }";

/// A bomb in a PID namespace of its own, which ends with all that is in it when this is
/// dropped.
struct Bomb {
    unshare: Child,
    namespace: PathBuf,
    init: u32,
}

impl Bomb {
    /// Starts one as a user who has nothing else; `None` where that cannot be done.
    fn start(script: &str) -> Option<Self> {
        if !can_act_as_others() {
            return None;
        }
        for (program, argument) in [
            ("perl", "-v"),
            ("setpriv", "--version"),
            ("prlimit", "--version"),
        ] {
            let runs = Command::new(program).arg(argument).output();
            if !runs.is_ok_and(|it| it.status.success()) {
                skip(&format!("no {program} here"));
                return None;
            }
        }
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(["--pid", "--fork", "--kill-child"]);
            command
        };
        if !unshare().arg("true").status().is_ok_and(|it| it.success()) {
            skip("no PID namespace can be made here");
            return None;
        }
        let uid = user(210).to_string();
        let pause = std::env::var("GPUKILL_BOMB_PAUSE").unwrap_or_else(|_| PAUSE.to_owned());
        let child = unshare()
            .args(["perl", "-e", INIT])
            .args(["prlimit", &format!("--nproc={MOST}")])
            .args(["setpriv", "--reuid", &uid, "--regid", &uid])
            .args(["--clear-groups", "perl", "-e", script])
            .env("PAUSE", pause)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let parent = child.id();
        let mut bomb = Self {
            unshare: child,
            namespace: PathBuf::new(),
            init: 0,
        };
        bomb.init = eventually("the namespace has a first process", || {
            children(parent).pop()
        });
        let link = format!("/proc/{}/ns/pid", bomb.init);
        bomb.namespace = std::fs::read_link(link).unwrap();
        Some(bomb)
    }

    /// The first process of the bomb, once it has as many as it may have.
    fn full(&self) -> u32 {
        eventually("the bomb is full", || {
            (self.left().len() >= MOST - 5).then_some(())
        });
        // It leads the session; the others below the namespace's first process have lost
        // their parents, and pids begin anew after the last.
        let leads = |pid: &u32| {
            let pid = Pid::from_raw(i32::try_from(*pid).unwrap());
            pid.is_some_and(|pid| getsid(Some(pid)) == Ok(pid))
        };
        children(self.init).into_iter().find(leads).unwrap()
    }

    /// Who of it has not ended.
    fn left(&self) -> BTreeSet<u32> {
        let entries = std::fs::read_dir("/proc").unwrap();
        let pids = entries.flatten().filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            // Of one that has ended there is no namespace.
            let namespace = std::fs::read_link(entry.path().join("ns/pid")).ok()?;
            (namespace == self.namespace && pid != self.init).then_some(pid)
        });
        pids.collect()
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        // With it the first process of the namespace, and with that all others.
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

fn children(pid: u32) -> Vec<u32> {
    let file = format!("/proc/{pid}/task/{pid}/children");
    let pids = std::fs::read_to_string(file).unwrap_or_default();
    pids.split(' ').filter_map(|pid| pid.parse().ok()).collect()
}

/// What a kill by force came to: its exit code, its report, how many of the bomb were
/// left when it said that it was done.
#[expect(clippy::print_stdout, reason = "its figures")]
fn killed(name: &str, script: &str, scope: &str) -> Option<(i32, Value, BTreeSet<u32>)> {
    const MORE: &[&str] = &[
        "--timeout-secs",
        "1",
        "--request-timeout",
        "60",
        "-o",
        "json",
    ];
    let it = Box::new();
    let bomb = Bomb::start(script)?;
    let first = bomb.full();
    it.lists(&[first]);
    let named = first.to_string();
    let arguments = [&named, "--scope", scope, "--force", "--yes"];
    let (_, plan) = it.kill(&[&arguments[..], &["--dry-run"]].concat());
    if ended(&plan).contains(&std::process::id()) {
        skip("the tests run in a service or a container, which is the job of all of them");
        return None;
    }
    let begun = Instant::now();
    let ran = it.says(&[&arguments[..], MORE].concat());
    let took = begun.elapsed();
    let left = bomb.left();
    let (code, report) = document(&ran);
    let outcomes = report["outcomes"].as_array().unwrap().len();
    println!(
        "bomb that {name}: exit {code}, {outcomes} outcomes, {} left, {:.1} s",
        left.len(),
        took.as_secs_f64()
    );
    Some((code, report, left))
}

/// Those that a report says have not ended.
fn named_as_left(report: &Value) -> BTreeSet<u32> {
    let outcomes = report["outcomes"].as_array().unwrap().iter();
    let left = outcomes.filter(|it| it["ending"] != "ended" && it["ending"] != "gone");
    left.map(|it| u32::try_from(it["pid"].as_u64().unwrap()).unwrap())
        .collect()
}

#[test]
fn fork_bombs_end_whole_by_force_or_the_report_names_who_is_left() {
    // One after the other: each has all processors.
    for (name, script, scope) in [
        ("forks", FORKS, "tree"),
        ("forks sessions", SESSIONS, "tree"),
        ("loses its parents", CHURNS, "job"),
    ] {
        let Some((code, report, left)) = killed(name, script, scope) else {
            return;
        };
        let expected = if left.is_empty() { 0 } else { 7 };
        assert_eq!(code, expected, "{name}: {left:?} {report:#}");
        assert!(
            left.is_subset(&named_as_left(&report)),
            "{name}: {left:?} {report:#}"
        );
    }
}

/// So many come to a tree, one at each look: more than there are looks.
const COME: usize = 120;

/// So many looks in a row find somebody new, and nobody is killed yet.
const LOOKS: usize = 24;

#[test]
fn nobody_is_killed_while_looks_find_somebody_new_and_who_is_found_too_late_is_named() {
    let stage = Stage::new();
    let procfs = Procfs::at(stage.path("proc"));
    let mut daemon = stage.daemon();
    daemon.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
    let it = Box::of(stage, daemon);
    // A session of its own tells whose they are after it has ended.
    let script = format!(
        "setsid launcher -c 'echo $$; i=0
            while [ $i -lt {COME} ]; do worker 1000 & echo $!; i=$((i + 1)); done; wait' & wait; true"
    );
    let troupe = Troupe::run(&it.stage, &script);
    let [launcher] = troupe.pids();
    let workers: [u32; COME] = troupe.pids();
    procfs.link(launcher);
    it.lists(&[launcher]);
    let gate = Gate::new(&procfs);
    let named = launcher.to_string();
    let arguments = ["kill", &named, "--scope", "tree", "--force", "--signal"];
    let arguments = [&arguments[..], &["KILL", "--yes", "-o", "json"]].concat();
    let client = Stream::start(&mut it.stage.client(&arguments));
    let is_settled = || {
        recorded(&it.stage)
            .pop()
            .is_some_and(|act| !act["word"].is_null())
    };
    for (looks, worker) in workers.into_iter().enumerate() {
        let look = eventually("a look, or the end", || {
            let look = gate.hold();
            (look.is_some() || is_settled()).then_some(look)
        });
        let Some(look) = look else {
            break;
        };
        // This look has its list of processes already: the next one finds it.
        procfs.link(worker);
        gate.open().unwrap();
        drop(look);
        if looks < LOOKS {
            assert!(!workers.into_iter().any(is_over), "after {looks} looks");
        }
    }
    gate.remove();
    let (code, said, complaints) = client.end();
    let report: Value = serde_json::from_str(&said.concat()).unwrap();
    assert_eq!(code, 7, "{complaints:?} {report:#}");
    let outcomes = report["outcomes"].as_array().unwrap();
    let (found_late, others): (Vec<&Value>, Vec<&Value>) =
        outcomes.iter().partition(|it| it["ending"] == "unclear");
    let [late] = found_late[..] else {
        panic!("{report:#}");
    };
    assert_eq!(late["why"], "it came while the others were ended");
    let pid = u32::try_from(late["pid"].as_u64().unwrap()).unwrap();
    assert!(workers.contains(&pid) && !is_over(pid));
    assert!(others.len() > LOOKS);
    assert!(
        others.iter().all(|it| it["ending"] == "ended"),
        "{report:#}"
    );
}
