//! A process that waits for a FUSE filesystem: its server never answers.

use super::{KillBox, is_in_test_namespaces};
use gpukill_tests::harness::{
    Script, TestProcess, eventually, eventually_equals, process_has_ended, skip,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::process::Command;

/// Serves one file, `file`, and answers every request except reads.
const SERVER: &str = "
import ctypes, os, struct, sys
fuse = os.open('/dev/fuse', os.O_RDWR)
options = b'fd=%d,rootmode=40000,user_id=0,group_id=0' % fuse
if ctypes.CDLL(None, use_errno=True).mount(b'none', sys.argv[1].encode(), b'fuse', 0, options):
    sys.exit(os.strerror(ctypes.get_errno()))
print(os.getpid(), flush=True)
def attributes(node):
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack('<6Q10I', node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
INIT, LOOKUP, GETATTR, OPEN, READ, FORGET, INTERRUPT = 26, 1, 3, 14, 15, 2, 36
while True:
    request = os.read(fuse, 1 << 18)
    length, what, unique, node = struct.unpack_from('<IIQQ', request)
    if what in (READ, FORGET, INTERRUPT):
        continue
    error, answer = 0, b''
    if what == INIT:
        answer = struct.pack('<4I2H2I2H8I', 7, 31, 4096, 0, 1, 1, 4096, 1, 0, 0, *[0] * 8)
    elif what == LOOKUP:
        answer = struct.pack('<4Q2I', 2, 0, 3600, 3600, 0, 0) + attributes(2)
    elif what == GETATTR:
        answer = struct.pack('<QII', 3600, 0, 0) + attributes(node)
    elif what == OPEN:
        # Past the page cache, where a reader would wait for a page.
        answer = struct.pack('<QII', 1, 1, 0)
    else:
        error = -38
    os.write(fuse, struct.pack('<IiQ', 16 + len(answer), error, unique) + answer)";

#[test]
fn report_names_the_fuse_server() {
    if !is_in_test_namespaces("kill::fuse::report_names_the_fuse_server") {
        return;
    }
    let opens = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    let python = Command::new("python3")
        .args(["-c", "import ctypes"])
        .status();
    if opens.is_err() || !python.is_ok_and(|status| status.success()) {
        return skip("no /dev/fuse can be opened here, or no python3 with ctypes is here");
    }
    let it = KillBox::new();
    let mount = it.test_box.path("a mount");
    std::fs::create_dir(&mount).unwrap();
    // The mount disappears with the namespaces of the test.
    let mut server = Command::new("python3");
    let server = Script::spawn(&it.test_box, server.args(["-c", SERVER]).arg(&mount));
    let [serves] = server.next_pids();
    let reader = TestProcess::spawn(Command::new("cat").arg(mount.join("file")));
    // The server is dropped before the reader, which cannot end before the server.
    let _server = server;
    let pid = reader.pid();
    let waits = format!("/proc/{pid}/wchan");
    eventually_equals(&"request_wait_answer".to_owned(), || {
        std::fs::read_to_string(&waits).unwrap()
    });
    it.add_gpu_processes(&[pid]);
    let named = pid.to_string();
    let (code, report) = it.kill_json(&[&named, "--timeout-secs", "1", "--force"]);
    let outcome = &report["outcomes"][0];
    let fields = ["outcome", "why", "fuse_mount"].map(|field| outcome[field].clone());
    let path = json!(mount.to_str().unwrap());
    assert_eq!(code, 1, "{report:#}");
    assert_eq!(
        fields,
        [json!("uninterruptible"), json!("request_wait_answer"), path]
    );
    let tells = std::fs::read_dir(format!("/proc/{serves}/fdinfo")).unwrap();
    let tells = tells.flatten().any(|entry| {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        text.contains("fuse_connection:")
    });
    if tells {
        assert_eq!(outcome["fuse_servers"][0]["pid"], serves, "{report:#}");
        assert!(
            outcome["fuse_servers"][0]["owner"].is_string(),
            "{report:#}"
        );
        let ran = it.kill_output(&[&named, "--timeout-secs", "1"]);
        let printed = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            printed.contains(&format!("it ends when that does: kill {serves}")),
            "{ran:?}"
        );
    }
    assert!(!process_has_ended(pid));
    let serves = i32::try_from(serves).ok().and_then(Pid::from_raw).unwrap();
    kill_process(serves, Signal::KILL).unwrap();
    eventually("it ends", || process_has_ended(pid).then_some(()));
}
