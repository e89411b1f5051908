//! Resetting GPUs: stand-ins play `nvidia-smi`, AMD's file in debugfs, and
//! systemd, which starts the helper for each connection. The real daemon, client
//! and helper do the rest.

use gpukill_tests::harness::{Daemon, Invented, Procfs, Ran, Related, Stage, built, eventually};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod helper;

mod tool;

mod alone;

mod held;

mod broken;

mod checked;

mod events;

mod late;

mod vendors;

/// Where the two GPUs of NVIDIA sit.
const FIRST: &str = "0000:1b:00.0";
const SECOND: &str = "0000:1c:00.0";

/// A box with two GPUs of NVIDIA: `/dev/full` (1:7) is the device file of the
/// first, `/dev/random` (1:8) that of the second. Only processes that the test lets
/// in are seen.
struct Box {
    stage: Stage,
    procfs: Procfs,
}

impl Box {
    fn new() -> Self {
        let stage = Stage::new();
        let procfs = Procfs::at(stage.path("proc"));
        let it = Self { stage, procfs };
        it.write("proc/devices", "Character devices:\n  1 nvidia\n");
        it.write("proc/meminfo", "MemTotal:       16777216 kB\n");
        for (address, minor) in [(FIRST, 7), (SECOND, 8)] {
            it.plug(address, "0x10de", "0x030200");
            it.write(
                &format!("proc/driver/nvidia/gpus/{address}/information"),
                &format!("Model: \t NVIDIA H100\nDevice Minor: \t {minor}\n"),
            );
        }
        it.tool("echo done");
        it.invent(1, "systemd", &[]);
        it.configure();
        it
    }

    /// Settings: whoever runs this test is an operator, and the helper is the box's
    /// own.
    fn configure(&self) {
        let group = Command::new("id").arg("-gn").output().unwrap();
        let group = String::from_utf8(group.stdout).unwrap();
        let (group, helper) = (group.trim(), self.stage.path("reset.sock"));
        self.stage.configure(&format!(
            "[access]\noperator_group = {group:?}\n[reset]\nhelper = {helper:?}"
        ));
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.stage.path(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A PCI device.
    fn plug(&self, address: &str, vendor: &str, class: &str) {
        let directory = format!("sys/bus/pci/devices/{address}");
        self.write(&format!("{directory}/vendor"), &format!("{vendor}\n"));
        self.write(&format!("{directory}/class"), &format!("{class}\n"));
    }

    /// A process of user 1 that has these files open.
    fn invent(&self, pid: u32, name: &str, files: &[&str]) {
        let process = Invented {
            pid,
            name,
            uid: 1,
            start_ticks: 100,
            cmdline: &format!("{name}\0"),
            cgroup: "0::/\n",
        };
        let related = Related {
            parent: 1,
            group: pid,
            session: pid,
            ..Related::default()
        };
        self.procfs.invent_related(process, related);
        for (fd, file) in (5..).zip(files) {
            self.procfs.open(pid, fd, file, "pos:\t0\n");
        }
    }

    /// Its `nvidia-smi`: a script that notes what it was called with and for what
    /// it can use of its environment. It tells the persistence mode that
    /// `persistent` says, and when it is to reset, does this.
    fn tool(&self, reset: &str) {
        let directory = self.stage.directory().display();
        self.write(
            "nvidia-smi",
            &format!(
                "#!/bin/sh\ncd {directory}\necho \"$*${{HOME+ HOME}}\" >> called\n\
                 case \"$*\" in\n\
                 --query*) cat persistent 2>/dev/null || echo Disabled;;\n\
                 *-pm*) echo set;;\n\
                 *) {reset};;\n\
                 esac\n"
            ),
        );
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.stage.path("nvidia-smi"), mode).unwrap();
    }

    /// Its `nvidia-smi` is at the reset until [`Self::go_on`], and notes when it has
    /// finished it.
    fn slow_tool(&self) {
        // Nor does it wait for a test that has gone.
        let wait = "until [ -e go ] || [ ! -e nvidia-smi ]; do command -p sleep 0.05; done";
        // It says so, too: whoever had it may have gone, and that must not end it.
        self.tool(&format!("{wait}; echo reset; echo reset > finished"));
    }

    /// Lets the slow tool finish.
    fn go_on(&self) {
        self.write("go", "");
    }

    /// Waits until the tool is at a reset.
    fn is_at_it(&self) {
        eventually("the reset is under way", || {
            (!self.called().is_empty()).then_some(())
        });
    }

    /// What that tool was called with, but for questions.
    fn called(&self) -> Vec<String> {
        let called = std::fs::read_to_string(self.stage.path("called")).unwrap_or_default();
        let calls = called.lines().filter(|call| !call.starts_with("--query"));
        calls.map(str::to_owned).collect()
    }

    /// The helper, with every place it looks at in this box.
    fn helper(&self) -> Command {
        let program = built().gpukilld.with_file_name("gpukill-reset");
        let mut command = Command::new(program);
        for (option, place) in [
            ("--nvidia-smi", "nvidia-smi"),
            ("--sysfs", "sys"),
            ("--procfs", "proc"),
            ("--debugfs", "debug"),
            ("--lock", "lock"),
        ] {
            command.arg(option).arg(self.stage.path(place));
        }
        let us = rustix::process::getuid().as_raw();
        command.arg("--allow-uid").arg(us.to_string());
        command.env("HOME", "/home/somebody");
        command
    }

    fn helper_and_its_arguments(&self) -> (Vec<PathBuf>, PathBuf) {
        let helper = self.helper();
        let arguments = helper.get_args().map(PathBuf::from).collect();
        (arguments, PathBuf::from(helper.get_program()))
    }

    /// What the helper says to this request.
    fn asked(&self, request: &[u8]) -> String {
        let (ours, theirs) = UnixStream::pair().unwrap();
        asked(&mut self.helper(), request, ours, theirs)
    }

    /// The two GPUs, and what the driver says of each besides.
    fn play(&self, first: &Value, second: &Value) {
        self.stage.play(&gpus(first, second));
    }

    fn start(&self) -> Daemon {
        let mut command = self.stage.daemon();
        command
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", self.procfs.root())
            .env("GPUKILLD_BACKENDS_HOST_ROOT", self.stage.path("home"));
        self.stage.start_with(&mut command)
    }

    /// Runs `gpukillctl reset`.
    fn reset(&self, arguments: &[&str]) -> Ran {
        self.stage.ctl(&[&["reset"], arguments].concat())
    }

    /// What is planned for each GPU, as programs read it: its fate, why, and everything
    /// in its way with what takes that away.
    fn planned(&self, ran: &Ran) -> Value {
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
            json!([gpu["gpu_index"], gpu["fate"], gpu["why"], blockers])
        })
        .collect()
    }

    /// What became of each GPU, as programs read it: its ending, and why.
    fn outcomes(&self, ran: &Ran) -> Value {
        let document: Value =
            serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        let outcomes = document["outcomes"].as_array().unwrap().iter();
        outcomes
            .map(|it| json!([it["gpu_index"], it["ending"], it["why"]]))
            .collect()
    }
}

/// The two GPUs, each with what the driver says of it besides.
fn gpus(first: &Value, second: &Value) -> Value {
    let gpu = |uuid: &str, pci: &str, minor: u32, more: &Value| {
        let mut gpu = json!({
            "uuid": uuid, "pci": format!("0000{pci}"), "minor": minor, "persistence": false,
        });
        for (key, value) in more.as_object().unwrap() {
            gpu[key] = value.clone();
        }
        gpu
    };
    json!({"gpus": [gpu("GPU-a", FIRST, 7, first), gpu("GPU-b", SECOND, 8, second)]})
}

/// What the helper says to this request, over these two ends.
fn asked(helper: &mut Command, request: &[u8], mut ours: UnixStream, theirs: UnixStream) -> String {
    let mut child = serve(helper, theirs);
    // It may have ended before it has read all.
    let _ = ours.write_all(request);
    let _ = ours.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = ours.read_to_end(&mut answer);
    let _ = child.wait();
    String::from_utf8(answer).unwrap()
}

/// Starts the helper as systemd does: the connection is its input and output.
fn serve(helper: &mut Command, connection: UnixStream) -> Child {
    let output = connection.try_clone().unwrap();
    let child = helper
        .stdin(Stdio::from(OwnedFd::from(connection)))
        .stdout(Stdio::from(OwnedFd::from(output)))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The command keeps its own ends open otherwise.
    helper.stdin(Stdio::null()).stdout(Stdio::null());
    child
}

/// Serves this connection, and kills the helper when the tool is at a reset, which
/// notes that here; whether it came to that.
fn serve_and_kill(helper: &mut Command, connection: UnixStream, called: &Path) -> bool {
    let mut child = serve(helper, connection);
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

/// Plays systemd's socket unit: whoever connects gets a helper. Ends when dropped.
struct Systemd {
    ended: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Systemd {
    /// Starts this box's helper for each connection.
    fn of(it: &Box) -> Self {
        let socket = it.stage.path("reset.sock");
        let (arguments, program) = it.helper_and_its_arguments();
        Self::serving(&socket, move |connection| {
            let mut helper = Command::new(&program);
            helper.args(&arguments);
            let _ = serve(&mut helper, connection).wait();
        })
    }

    fn serving(socket: &Path, each: impl Fn(UnixStream) + Send + 'static) -> Self {
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

impl Drop for Systemd {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A helper that panicked has failed its test.
            let _ = thread.join();
        }
    }
}
