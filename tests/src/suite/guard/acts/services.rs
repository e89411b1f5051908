//! Services that are idle are warned about, and not ended; a notebook whose tab is closed is
//! ended.

use super::{Box, all};
use gpukill_tests::harness::{Actor, becomes, child_of, eventually, is_over, skip};
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

/// An engine: a process that listens, and its worker, which holds the GPU.
struct Engine {
    _shell: Actor,
    server: u32,
    worker: u32,
    address: std::net::SocketAddr,
}

impl Engine {
    fn start(it: &Box) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let program = it.stage.path("engine");
        symlink("/bin/sh", &program).unwrap();
        // A shell keeps it apart from the tests. The worker has no socket of the server's.
        let script = "\"$0\" -c 'sleep 1000 </dev/null & wait' <&0 & wait";
        let mut command = Command::new("bash");
        command.args(["-c", script]).arg(&program);
        let shell = Actor::with(&mut command, OwnedFd::from(listener));
        let server = eventually("the engine", || child_of(shell.pid()));
        let worker = eventually("its worker", || child_of(server));
        Self {
            _shell: shell,
            server,
            worker,
            address,
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for pid in [self.worker, self.server] {
            if let Some(raw) = Pid::from_raw(pid.cast_signed())
                && !is_over(pid)
            {
                let _ = kill_process(raw, Signal::KILL);
            }
        }
    }
}

/// What `list` says of the only process on the GPU.
fn process(it: &Box) -> Value {
    let list = it.stage.json(&["list", "-o", "json"]);
    list["procs"][0].clone()
}

#[test]
fn an_engine_whose_parent_listens_is_warned_about_and_not_ended() {
    let Some(it) = Box::by(RULES) else { return };
    let engine = Engine::start(&it);
    it.driver.lists(&[engine.worker]);
    let used = |it: &Box| {
        let process = process(it);
        (
            process["network_role"].clone(),
            process["ports"].clone(),
            process["connections"].clone(),
        )
    };
    let port = engine.address.port();
    let service = |clients: u32| ("service".into(), vec![port].into(), clients.into());
    becomes(&service(0), || used(&it));
    let steps = ["violated", "warned"];
    becomes(&all("soft", &steps), || it.steps());
    let violation = it.stage.json(&["guard", "violations", "-o", "json"])["open"][0].clone();
    assert_eq!(violation["action"], "warn", "{violation:#}");
    assert_eq!(violation["evidence"]["service_only_warned"], true);
    let told = &violation["evidence"]["procs"][0];
    assert_eq!(told["ports"], Value::from(vec![port]), "{told:#}");
    assert_eq!(told["connections"], 0);
    // Long after the grace.
    let warned = Instant::now();
    while warned.elapsed() < Duration::from_secs(8) {
        assert!(!is_over(engine.worker) && !is_over(engine.server));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(it.steps(), all("soft", &steps));
    let pid = engine.worker.to_string();
    for args in [
        &["explain", &pid][..],
        &["guard", "violations"],
        &["guard", "status"],
    ] {
        let said = it.stage.ctl(args).stdout;
        assert!(said.contains("only warned"), "{args:?}: {said}");
    }
    let line = format!("port {port}, no client");
    for args in [&["guard", "status"][..], &["explain", &pid]] {
        let said = it.stage.ctl(args).stdout;
        assert!(said.contains(&line), "{args:?}: {said}");
    }
    // A client of the parent, which holds no GPU, counts.
    let client = TcpStream::connect(engine.address).unwrap();
    becomes(&service(1), || used(&it));
    drop(client);
    it.daemon.stop();
}

#[test]
fn a_rule_that_says_so_ends_idle_services() {
    let rules = format!("{RULES}services = \"end\"\n");
    let Some(it) = Box::by(&rules) else { return };
    let engine = Engine::start(&it);
    it.driver.lists(&[engine.worker]);
    // It is listed as idle, and that it is ended.
    let line = eventually("it is listed", || {
        let said = it.stage.ctl(&["guard", "status"]).stdout;
        let line = said.lines().find(|line| line.contains("services"));
        line.map(str::to_owned)
    });
    assert!(
        line.contains(&format!("port {}", engine.address.port())),
        "{line}"
    );
    assert!(!line.contains("only warned"), "{line}");
    let steps = ["violated", "warned", "ended", "acted", "over"];
    becomes(&all("soft", &steps), || it.steps());
    assert!(is_over(engine.worker) && is_over(engine.server));
    it.daemon.stop();
}

/// A real Jupyter server, with a kernel.
struct Jupyter {
    server: std::process::Child,
    kernel: u32,
    address: String,
}

impl Jupyter {
    /// `None` where it is not installed.
    fn start(it: &Box) -> Option<Self> {
        let paths = std::env::var_os("PATH")?;
        let mut programs = std::env::split_paths(&paths).map(|path| path.join("jupyter-server"));
        let Some(program) = programs.find(|path| path.exists()) else {
            skip("no jupyter-server in PATH (pip install jupyter-server ipykernel)");
            return None;
        };
        let home = it.stage.path("home");
        std::fs::create_dir_all(&home).unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let server = jupyter(&program, &home, port);
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
        started.kernel = eventually("a kernel", || child_of(started.server.id()));
        Some(started)
    }
}

fn jupyter(program: &PathBuf, home: &PathBuf, port: u16) -> std::process::Child {
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
        // Its kernels notice that it has gone, and end.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Takes two minutes: what was closed counts for one, and the kernel of a server that was
/// just asked is no different.
#[test]
fn a_notebook_is_in_use_while_a_browser_is_connected_to_its_server() {
    let Some(it) = Box::by(RULES) else { return };
    let Some(jupyter) = Jupyter::start(&it) else {
        return;
    };
    it.driver.lists(&[jupyter.kernel]);
    let browser = TcpStream::connect(&jupyter.address).unwrap();
    let connections = || {
        let process = process(&it);
        (process["network_role"] == "notebook").then(|| process["connections"].as_u64())?
    };
    eventually("a notebook with a client", || {
        connections().filter(|it| *it > 0)
    });
    // Its first requests are closed for more than a minute, the browser is connected still.
    std::thread::sleep(Duration::from_secs(75));
    assert_eq!((connections(), it.steps()), (Some(1), Vec::new()));
    drop(browser);
    let closed = Instant::now();
    let steps = ["violated", "warned", "ended", "acted", "over"];
    while it.steps() != all("soft", &steps) && closed.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(it.steps(), all("soft", &steps));
    assert!(is_over(jupyter.kernel) && !is_over(jupyter.server.id()));
    it.daemon.stop();
}
