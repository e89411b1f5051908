//! Processes in new user namespaces with id maps that root writes.

use super::{can_run_as_other_users, skip};
use std::process::Command;

/// Python functions; `mapped` runs a function as root of a new user namespace that `user`
/// creates, with `lines` as its id maps.
const PYTHON_HELPERS: &str = "
import ctypes, os, signal, time
libc = ctypes.CDLL(None)
USERS, PIDS, DUMPABLE = 0x10000000, 0x20000000, 4

def become(user, saved=None):
    os.setresgid(user, user, user)
    os.setresuid(user, user, user if saved is None else saved)

def mapped(flags, user, lines, inside):
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        if user:
            os.setgroups([])
            become(user)
        libc.prctl(DUMPABLE, 1, 0, 0, 0)
        if libc.unshare(flags): os._exit(3)
        os.write(ready[1], b'.')
        os.read(go[0], 1)
        become(0)
        libc.prctl(DUMPABLE, 1, 0, 0, 0)
        inside()
        os._exit(0)
    os.read(ready[0], 1)
    for name in 'uid_map', 'gid_map':
        with open(f'/proc/{child}/{name}', 'w') as file: file.write(lines)
    os.write(go[1], b'.')
    os.waitpid(child, 0)

def tell(*pids):
    for pid in pids: os.write(1, b'%d\\n' % pid)

def rest():
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True: time.sleep(1000)
";

/// Runs a Python script that may call `mapped`. Returns `None` and reports the skip where no
/// user namespace can be created.
#[must_use]
pub fn python_with_namespaces(script: &str) -> Option<Command> {
    let python = |script: &str| {
        let mut command = Command::new("python3");
        command.args(["-c", &format!("{PYTHON_HELPERS}\n{script}")]);
        command
    };
    if !can_run_as_other_users() {
        return None;
    }
    let tried = python("mapped(USERS, 60901, '0 60901 1\\n1 60000 9\\n', lambda: tell(1))");
    if !{ tried }.output().is_ok_and(|it| it.stdout == b"1\n") {
        skip("no python3 here, or no user namespace can be made");
        return None;
    }
    Some(python(script))
}
