//! Processes that change their uid continuously.

use super::{KillBox, all_with_ending, outcomes};
use gpukill_tests::harness::{
    Script, eventually_equals, process_has_ended, python_with_namespaces,
};

/// Python functions for a process that takes the uid of each user of its namespace in turn (the
/// namespace belongs to user 60901), and for a process without a namespace that alternates
/// between two uids, as a set-user-ID program can.
pub(crate) const UID_CHANGE_FUNCTIONS: &str = "
def turns():
    tell(os.getpid())
    at = 0
    while True:
        at = at % 199 + 1
        os.setresuid(at, at, 0)
        time.sleep(0.002)
        os.setresuid(0, 0, 0)

def toggles():
    os.setgroups([])
    become(60901, 60020)
    tell(os.getpid())
    while True:
        os.setresuid(60020, 60020, 60901)
        time.sleep(0.003)
        os.setresuid(60901, 60901, 60020)
        time.sleep(0.003)

def in_namespace(): mapped(USERS, 60901, '0 60901 1\\n1 60100 200\\n', turns)";

#[test]
fn changing_uids_does_not_prevent_the_end() {
    let both = format!("{UID_CHANGE_FUNCTIONS}\nif not os.fork(): toggles()\nin_namespace()");
    let Some(mut python) = python_with_namespaces(&both) else {
        return;
    };
    let it = KillBox::new();
    let script = Script::spawn(&it.test_box, &mut python);
    let pids: [u32; 2] = script.next_pids();
    it.add_gpu_processes(&pids);
    for pid in pids {
        let (code, report) = it.kill_json(&[&pid.to_string(), "--yes"]);
        let ended = all_with_ending(&[pid], "ended", "SIGTERM");
        assert_eq!((code, outcomes(&report)), (0, ended), "{report:#}");
        eventually_equals(&true, || process_has_ended(pid));
    }
}
