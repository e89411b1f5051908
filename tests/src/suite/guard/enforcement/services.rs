//! Idle services are warned but not ended; an idle notebook is ended after its browser tab
//! closes.

use super::{GuardBox, steps_in_mode};
use gpukill_tests::harness::{
    TestProcess, eventually, eventually_equals, first_child, process_has_ended, skip,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const RULES: &str = "[global]\ndry_run = false\n\
    [enforcement]\ngrace_period_seconds = 3\nmax_warnings = 1\n\
    [[rules]]\nname = \"idle\"\nidle_limit_minutes = \"3s\"\n";

/// A server process that listens, and its worker, which holds the GPU.
struct InferenceEngine {
    _shell: TestProcess,
    server: u32,
    worker: u32,
    address: std::net::SocketAddr,
}

impl InferenceEngine {
    fn start(it: &GuardBox) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let program = it.test_box.path("engine");
        symlink("/bin/sh", &program).unwrap();
        // A shell separates it from the job of the tests. The worker does not inherit the
        // server's socket.
        let script = "\"$0\" -c 'sleep 1000 </dev/null & wait' <&0 & wait";
        let mut command = Command::new("bash");
        command.args(["-c", script]).arg(&program);
        let shell = TestProcess::spawn_with_input(&mut command, OwnedFd::from(listener));
        let server = eventually("the engine", || first_child(shell.pid()));
        let worker = eventually("its worker", || first_child(server));
        Self {
            _shell: shell,
            server,
            worker,
            address,
        }
    }
}

impl Drop for InferenceEngine {
    fn drop(&mut self) {
        for pid in [self.worker, self.server] {
            if let Some(raw) = Pid::from_raw(pid.cast_signed())
                && !process_has_ended(pid)
            {
                let _ = kill_process(raw, Signal::KILL);
            }
        }
    }
}

/// The row of the only process on the GPU.
fn gpu_process(it: &GuardBox) -> Value {
    let list = it.test_box.json(&["list", "-o", "json"]);
    list["procs"][0].clone()
}

#[test]
fn worker_of_a_server_is_only_warned() {
    let Some(it) = GuardBox::with_rules(RULES) else {
        return;
    };
    let engine = InferenceEngine::start(&it);
    it.driver.add_processes(&[engine.worker]);
    let used = |it: &GuardBox| {
        let process = gpu_process(it);
        (
            process["network_role"].clone(),
            process["ports"].clone(),
            process["connections"].clone(),
        )
    };
    let port = engine.address.port();
    let service = |clients: u32| ("service".into(), vec![port].into(), clients.into());
    eventually_equals(&service(0), || used(&it));
    let steps = ["violated", "warned"];
    eventually_equals(&steps_in_mode("soft", &steps), || it.steps());
    let violation = it.test_box.json(&["guard", "violations", "-o", "json"])["open"][0].clone();
    assert_eq!(violation["action"], "warn", "{violation:#}");
    assert_eq!(violation["evidence"]["service_only_warned"], true);
    let evidence = &violation["evidence"]["procs"][0];
    assert_eq!(evidence["ports"], Value::from(vec![port]), "{evidence:#}");
    assert_eq!(evidence["connections"], 0);
    // Long after the grace period.
    let warned = Instant::now();
    while warned.elapsed() < Duration::from_secs(8) {
        assert!(!process_has_ended(engine.worker) && !process_has_ended(engine.server));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(it.steps(), steps_in_mode("soft", &steps));
    let pid = engine.worker.to_string();
    for args in [
        &["explain", &pid][..],
        &["guard", "violations"],
        &["guard", "status"],
    ] {
        let output = it.test_box.ctl(args).stdout;
        assert!(output.contains("only warned"), "{args:?}: {output}");
    }
    let line = format!("port {port}, no client");
    for args in [&["guard", "status"][..], &["explain", &pid]] {
        let output = it.test_box.ctl(args).stdout;
        assert!(output.contains(&line), "{args:?}: {output}");
    }
    // A client of the parent counts, although the parent holds no GPU.
    let client = TcpStream::connect(engine.address).unwrap();
    eventually_equals(&service(1), || used(&it));
    drop(client);
    it.daemon.stop();
}

#[test]
fn rule_can_end_idle_services() {
    let rules = format!("{RULES}services = \"end\"\n");
    let Some(it) = GuardBox::with_rules(&rules) else {
        return;
    };
    let engine = InferenceEngine::start(&it);
    it.driver.add_processes(&[engine.worker]);
    // The list shows the service without the note that it is only warned.
    let line = eventually("it is listed", || {
        let output = it.test_box.ctl(&["guard", "status"]).stdout;
        let mut lines = output.lines();
        let line = lines.find(|line| line.trim_start().starts_with("services"));
        line.map(str::to_owned)
    });
    assert!(
        line.contains(&format!("port {}", engine.address.port())),
        "{line}"
    );
    assert!(!line.contains("only warned"), "{line}");
    let steps = ["violated", "warned", "ended", "outcome", "over"];
    eventually_equals(&steps_in_mode("soft", &steps), || it.steps());
    assert!(process_has_ended(engine.worker) && process_has_ended(engine.server));
    it.daemon.stop();
}

/// A real Jupyter server with a kernel.
struct Jupyter {
    server: std::process::Child,
    kernel: u32,
    address: String,
}

impl Jupyter {
    /// Starts the server. Returns `None` where Jupyter is not installed.
    fn start(it: &GuardBox) -> Option<Self> {
        let paths = std::env::var_os("PATH")?;
        let mut programs = std::env::split_paths(&paths).map(|path| path.join("jupyter-server"));
        let Some(program) = programs.find(|path| path.exists()) else {
            skip("no jupyter-server in PATH (pip install jupyter-server ipykernel)");
            return None;
        };
        let home = it.test_box.path("home");
        std::fs::create_dir_all(&home).unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let server = start_jupyter(&program, &home, port);
        let address = format!("127.0.0.1:{port}");
        let mut started = Self {
            server,
            kernel: 0,
            address,
        };
        let asked = "POST /api/kernels HTTP/1.0\r\nAuthorization: token secret\r\n\
            Content-Length: 2\r\nContent-Type: application/json\r\n\r\n{}";
        eventually("the server answers", || {
            use std::io::{Read as _, Write as _};
            let mut stream = TcpStream::connect(&started.address).ok()?;
            stream.write_all(asked.as_bytes()).ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.contains("201 Created").then_some(())
        });
        started.kernel = eventually("a kernel", || first_child(started.server.id()));
        Some(started)
    }
}

fn start_jupyter(program: &PathBuf, home: &PathBuf, port: u16) -> std::process::Child {
    let mut command = Command::new(program);
    command
        .args([
            "--no-browser",
            "--allow-root",
            "--IdentityProvider.token=secret",
        ])
        .arg(format!("--port={port}"))
        .arg(format!("--ServerApp.root_dir={}", home.display()))
        .env("HOME", home)
        .env("JUPYTER_RUNTIME_DIR", home.join("runtime"))
        .env("IPYTHONDIR", home.join("ipython"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().expect("it starts")
}

impl Drop for Jupyter {
    fn drop(&mut self) {
        // The kernels notice the end of their server and end.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Takes two minutes: a closed connection counts for one minute, and a kernel appears busy just
/// after a query to its server.
#[test]
fn connected_browser_keeps_the_notebook() {
    let Some(it) = GuardBox::with_rules(RULES) else {
        return;
    };
    let Some(jupyter) = Jupyter::start(&it) else {
        return;
    };
    it.driver.add_processes(&[jupyter.kernel]);
    let browser = TcpStream::connect(&jupyter.address).unwrap();
    let connections = || {
        let process = gpu_process(&it);
        (process["network_role"] == "notebook").then(|| process["connections"].as_u64())?
    };
    eventually("a notebook with a client", || {
        connections().filter(|it| *it > 0)
    });
    // The first requests have been closed for more than a minute; the browser is still
    // connected.
    std::thread::sleep(Duration::from_secs(75));
    assert_eq!((connections(), it.steps()), (Some(1), Vec::new()));
    drop(browser);
    let closed = Instant::now();
    let steps = ["violated", "warned", "ended", "outcome", "over"];
    while it.steps() != steps_in_mode("soft", &steps) && closed.elapsed() < Duration::from_secs(120)
    {
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(it.steps(), steps_in_mode("soft", &steps));
    assert!(process_has_ended(jupyter.kernel) && !process_has_ended(jupyter.server.id()));
    it.daemon.stop();
}
