//! Resetting GPUs over the real daemon, client and helper. Stand-ins replace `nvidia-smi`,
//! AMD's debugfs file, and systemd, which starts the helper for each connection.

use gpukill_tests::harness::{
    CommandOutput, Daemon, FakeProcess, FakeProcessDetails, FakeProcfs, TestBox, binaries,
    eventually, write_script,
};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod events;
mod failures;
mod free_gpus;
mod gpus_in_use;
mod helper;
mod interrupted;
mod precheck;
mod vendor_tool;
mod vendors;

/// The PCI addresses of the two NVIDIA GPUs.
const FIRST_GPU: &str = "0000:1b:00.0";
const SECOND_GPU: &str = "0000:1c:00.0";

/// A box with two NVIDIA GPUs: `/dev/full` (1:7) is the device file of the first,
/// `/dev/random` (1:8) that of the second. The daemon sees only the processes that the test
/// adds.
struct ResetBox {
    test_box: TestBox,
    procfs: FakeProcfs,
}

impl ResetBox {
    fn new() -> Self {
        let test_box = TestBox::new();
        let procfs = FakeProcfs::new(test_box.path("proc"));
        let it = Self { test_box, procfs };
        it.write_file("proc/devices", "Character devices:\n  1 nvidia\n");
        it.write_file("proc/meminfo", "MemTotal:       16777216 kB\n");
        for (address, minor) in [(FIRST_GPU, 7), (SECOND_GPU, 8)] {
            it.add_pci_device(address, "0x10de", "0x030200");
            it.write_file(
                &format!("proc/driver/nvidia/gpus/{address}/information"),
                &format!("Model: \t NVIDIA H100\nDevice Minor: \t {minor}\n"),
            );
        }
        it.install_tool("echo done");
        it.add_process(1, "systemd", &[]);
        it.write_settings();
        it
    }

    /// Makes the group of the user who runs this test the operators, and sets the helper
    /// socket of this box.
    fn write_settings(&self) {
        let group = Command::new("id").arg("-gn").output().unwrap();
        let group = String::from_utf8(group.stdout).unwrap();
        let (group, helper) = (group.trim(), self.test_box.path("reset.sock"));
        self.test_box.configure(&format!(
            "[access]\noperator_group = {group:?}\n[reset]\nhelper = {helper:?}"
        ));
    }

    fn write_file(&self, file: &str, text: &str) {
        let path = self.test_box.path(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn add_pci_device(&self, address: &str, vendor: &str, class: &str) {
        let directory = format!("sys/bus/pci/devices/{address}");
        self.write_file(&format!("{directory}/vendor"), &format!("{vendor}\n"));
        self.write_file(&format!("{directory}/class"), &format!("{class}\n"));
    }

    /// Adds a process of user 1 that has these files open.
    fn add_process(&self, pid: u32, name: &str, files: &[&str]) {
        let process = FakeProcess {
            pid,
            name,
            uid: 1,
            start_ticks: 100,
            cmdline: &format!("{name}\0"),
            cgroup: "0::/\n",
        };
        let related = FakeProcessDetails {
            parent: 1,
            group: pid,
            session: pid,
            ..FakeProcessDetails::default()
        };
        self.procfs.add_process_with_details(process, related);
        for (fd, file) in (5..).zip(files) {
            self.procfs.add_descriptor(pid, fd, file, "pos:\t0\n");
        }
    }

    /// Installs an `nvidia-smi` script that writes its arguments to `called`, with a mark
    /// where it inherits `HOME`. It reports the persistence mode in the file `persistent`,
    /// and runs `reset` when it is to reset a GPU.
    fn install_tool(&self, reset: &str) {
        let directory = self.test_box.directory().display();
        write_script(
            self.test_box.path("nvidia-smi"),
            &format!(
                "#!/bin/sh\ncd {directory}\necho \"$*${{HOME+ HOME}}\" >> called\n\
                 case \"$*\" in\n\
                 --query*) cat persistent 2>/dev/null || echo Disabled;;\n\
                 *-pm*) echo set;;\n\
                 *) {reset};;\n\
                 esac\n"
            ),
        );
    }

    /// Installs an `nvidia-smi` that stays in the reset until [`Self::finish_reset`], and
    /// then creates the file `finished`.
    fn install_slow_tool(&self) {
        // The script ends with the box of its test too.
        let wait = "until [ -e go ] || [ ! -e nvidia-smi ]; do command -p sleep 0.05; done";
        // Its output must not end it, even if the process that started it has ended.
        self.install_tool(&format!("{wait}; echo reset; echo reset > finished"));
    }

    /// Lets the slow tool finish.
    fn finish_reset(&self) {
        self.write_file("go", "");
    }

    fn wait_for_reset_start(&self) {
        eventually("the reset is under way", || {
            (!self.recorded_calls().is_empty()).then_some(())
        });
    }

    /// The recorded arguments of the tool, without queries.
    fn recorded_calls(&self) -> Vec<String> {
        let called = std::fs::read_to_string(self.test_box.path("called")).unwrap_or_default();
        let calls = called.lines().filter(|call| !call.starts_with("--query"));
        calls.map(str::to_owned).collect()
    }

    /// The helper, with every path in this box.
    fn helper_command(&self) -> Command {
        let program = binaries().gpukilld.with_file_name("gpukill-reset");
        let mut command = Command::new(program);
        for (option, place) in [
            ("--nvidia-smi", "nvidia-smi"),
            ("--sysfs", "sys"),
            ("--procfs", "proc"),
            ("--debugfs", "debug"),
            ("--lock", "lock"),
        ] {
            command.arg(option).arg(self.test_box.path(place));
        }
        let us = rustix::process::getuid().as_raw();
        command.arg("--allow-uid").arg(us.to_string());
        command.env("HOME", "/home/somebody");
        command
    }

    fn helper_and_its_arguments(&self) -> (Vec<PathBuf>, PathBuf) {
        let helper = self.helper_command();
        let arguments = helper.get_args().map(PathBuf::from).collect();
        (arguments, PathBuf::from(helper.get_program()))
    }

    fn request_helper(&self, request: &[u8]) -> String {
        let (ours, theirs) = UnixStream::pair().unwrap();
        request_helper_over(&mut self.helper_command(), request, ours, theirs)
    }

    /// Sets the two GPUs, each with these additions to its state.
    fn set_driver_state(&self, first: &Value, second: &Value) {
        self.test_box.set_driver_state(&gpu_states(first, second));
    }

    fn start(&self) -> Daemon {
        let mut command = self.test_box.daemon_command();
        command
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", self.procfs.root())
            .env("GPUKILLD_BACKENDS_HOST_ROOT", self.test_box.path("home"));
        self.test_box.start_with(&mut command)
    }

    /// Runs `gpukillctl reset`.
    fn reset(&self, arguments: &[&str]) -> CommandOutput {
        self.test_box.ctl(&[&["reset"], arguments].concat())
    }

    /// The plan of each GPU in JSON output: the planned action, the reason, and each
    /// blocker with its remedy.
    fn planned(&self, ran: &CommandOutput) -> Value {
        let plan: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        let gpus = plan["gpus"].as_array().unwrap().iter();
        gpus.map(|gpu| {
            let blockers = gpu["blockers"].as_array().unwrap().iter();
            let blockers: Vec<Value> = blockers
                .map(|it| match it["pid"].as_u64() {
                    Some(pid) => json!([pid, it["remedy"]]),
                    None => json!([it["what"], it["remedy"]]),
                })
                .collect();
            json!([
                gpu["gpu_index"],
                gpu["planned_action"],
                gpu["why"],
                blockers
            ])
        })
        .collect()
    }

    /// The outcome of each GPU in JSON output, and the reason.
    fn outcomes(&self, ran: &CommandOutput) -> Value {
        let document: Value =
            serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        let outcomes = document["outcomes"].as_array().unwrap().iter();
        outcomes
            .map(|it| json!([it["gpu_index"], it["outcome"], it["why"]]))
            .collect()
    }
}

/// The state of the two GPUs, each with these additions.
fn gpu_states(first: &Value, second: &Value) -> Value {
    let gpu = |uuid: &str, pci: &str, minor: u32, more: &Value| {
        let mut gpu = json!({
            "uuid": uuid, "pci": format!("0000{pci}"), "minor": minor, "persistence": false,
        });
        for (key, value) in more.as_object().unwrap() {
            gpu[key] = value.clone();
        }
        gpu
    };
    json!({"gpus": [gpu("GPU-a", FIRST_GPU, 7, first), gpu("GPU-b", SECOND_GPU, 8, second)]})
}

/// Sends a request to the helper over this socket pair and returns its answer.
fn request_helper_over(
    helper: &mut Command,
    request: &[u8],
    mut ours: UnixStream,
    theirs: UnixStream,
) -> String {
    let mut child = start_helper(helper, theirs);
    // The helper may end before it has read everything.
    let _ = ours.write_all(request);
    let _ = ours.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = ours.read_to_end(&mut answer);
    let _ = child.wait();
    String::from_utf8(answer).unwrap()
}

/// Starts the helper as systemd does: the connection is its input and output.
fn start_helper(helper: &mut Command, connection: UnixStream) -> Child {
    let output = connection.try_clone().unwrap();
    let child = helper
        .stdin(Stdio::from(OwnedFd::from(connection)))
        .stdout(Stdio::from(OwnedFd::from(output)))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Otherwise the `Command` keeps its ends of the connection open.
    helper.stdin(Stdio::null()).stdout(Stdio::null());
    child
}

/// Serves this connection, and kills the helper as soon as the tool has recorded a reset in
/// `called`. Returns whether the helper was killed.
fn serve_and_kill_helper(helper: &mut Command, connection: UnixStream, called: &Path) -> bool {
    let mut child = start_helper(helper, connection);
    let is_killed = eventually("the helper ends, or is at a reset", || {
        if child.try_wait().unwrap().is_some() {
            return Some(false);
        }
        let called = std::fs::read_to_string(called).unwrap_or_default();
        called.contains("--gpu-reset").then_some(true)
    });
    if is_killed {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    is_killed
}

/// Stands in for systemd's socket unit: starts a helper for each connection, until it is
/// dropped.
struct FakeSystemd {
    ended: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl FakeSystemd {
    /// Starts the helper of this box for each connection.
    fn new(it: &ResetBox) -> Self {
        let socket = it.test_box.path("reset.sock");
        let (arguments, program) = it.helper_and_its_arguments();
        Self::new_with_handler(&socket, move |connection| {
            let mut helper = Command::new(&program);
            helper.args(&arguments);
            let _ = start_helper(&mut helper, connection).wait();
        })
    }

    fn new_with_handler(socket: &Path, each: impl Fn(UnixStream) + Send + 'static) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let is_ended = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            while !is_ended.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((connection, _)) => {
                        connection.set_nonblocking(false).unwrap();
                        each(connection);
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(10)),
                }
            }
        });
        Self {
            ended,
            thread: Some(thread),
        }
    }
}

impl Drop for FakeSystemd {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has failed the test already.
            let _ = thread.join();
        }
    }
}
