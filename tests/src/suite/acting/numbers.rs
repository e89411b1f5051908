//! Processes that change the number of their user for ever.

use super::{Box, all, endings};
use gpukill_tests::harness::{Troupe, becomes, is_over, python_with_namespaces};

/// Python for a process in a namespace of user 60901's that is each of its users in turn,
/// and for one outside of any that takes turns with two, as a program with the set-user-ID
/// bit can.
pub(crate) const TURNS: &str = "
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
fn changing_its_user_for_ever_keeps_nobody_from_their_end() {
    let both = format!("{TURNS}\nif not os.fork(): toggles()\nin_namespace()");
    let Some(mut python) = python_with_namespaces(&both) else {
        return;
    };
    let it = Box::new();
    let troupe = Troupe::of(&it.stage, &mut python);
    let pids: [u32; 2] = troupe.pids();
    it.lists(&pids);
    for pid in pids {
        let (code, report) = it.kill(&[&pid.to_string(), "--yes"]);
        let ended = all(&[pid], "ended", "SIGTERM");
        assert_eq!((code, endings(&report)), (0, ended), "{report:#}");
        becomes(&true, || is_over(pid));
    }
}
