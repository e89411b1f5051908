//! `cargo demo`: a gpukilld of one's own, over the machine's GPUs where it has
//! any and over a simulated box of eight where it has none.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it talks to a person"
)]

mod role;

mod shell;

mod story;

use gpukill_tests::harness::{build, built, eventually};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use story::Story;

fn main() -> ExitCode {
    if let Some(role) = role::asked_for() {
        return role::play(&role);
    }
    match demo() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn demo() -> io::Result<()> {
    // From here on Ctrl-C ends the demo in order, so that nothing is left.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    println!("Building gpukilld and gpukillctl …");
    if let Err(error) = build() {
        let interrupted = stop.load(Ordering::Relaxed);
        return Err(io::Error::other(if interrupted {
            "interrupted"
        } else {
            error
        }));
    }
    let directory = tempfile::Builder::new().prefix("gpukill-demo-").tempdir()?;
    let story = if has_nvidia_driver() {
        println!("This machine has NVIDIA GPUs: what follows is real.\n");
        None
    } else {
        println!(
            "This machine has no NVIDIA driver: what follows is SIMULATED, a box of eight H100s."
        );
        println!("The processes are real children of this demo; their GPUs are not.\n");
        Some(Story::begin(directory.path())?)
    };
    let daemon = Daemon::start(directory.path(), story.as_ref())?;
    let result = show(&daemon, &stop).and_then(|()| stay(&daemon, &stop));
    // In this order: the daemon first, so that it does not see the story end.
    drop(daemon);
    drop(story);
    drop(directory);
    result
}

fn show(daemon: &Daemon, stop: &AtomicBool) -> io::Result<()> {
    // Two polls: utilisation and names of users are known by then.
    let until = Instant::now() + Duration::from_millis(2500);
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    for arguments in [&["list", "--details"][..], &["status"]] {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        println!("$ gpukillctl {}", arguments.join(" "));
        let mut client = Command::new(&built().gpukillctl);
        let status = client
            .args(arguments)
            .env("GPUKILL_SOCKET", &daemon.socket)
            .status()?;
        if !status.success() {
            return Err(io::Error::other(format!("gpukillctl ended with {status}")));
        }
        println!();
    }
    Ok(())
}

fn stay(daemon: &Daemon, stop: &AtomicBool) -> io::Result<()> {
    let on_a_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if on_a_terminal && !stop.load(Ordering::Relaxed) {
        shell::run(&daemon.socket, &built().gpukillctl)?;
    }
    Ok(())
}

fn has_nvidia_driver() -> bool {
    Path::new("/proc/driver/nvidia/version").exists() || Path::new("/dev/nvidiactl").exists()
}

/// The daemon of the demo. Stopped when dropped.
struct Daemon {
    child: Child,
    socket: PathBuf,
}

impl Daemon {
    fn start(directory: &Path, story: Option<&Story>) -> io::Result<Self> {
        let socket = directory.join("run/gpukill/gpukilld.sock");
        std::fs::create_dir(directory.join("run"))?;
        // A person has one; in it the first edit of rules makes gpukill's own.
        std::fs::create_dir(directory.join("config"))?;
        let log = std::fs::File::create(directory.join("gpukilld.log"))?;
        let mut command = Command::new(&built().gpukilld);
        command
            .args(["--user", "--log-level", "warn"])
            // Nothing of the person's own settings and state is touched.
            .env("XDG_RUNTIME_DIR", directory.join("run"))
            .env("XDG_STATE_HOME", directory.join("state"))
            .env("XDG_CONFIG_HOME", directory.join("config"))
            .env("GPUKILLD_DAEMON_POLL_INTERVAL", "1s")
            .env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "2s")
            .stdin(Stdio::null())
            .stderr(log);
        if let Some(story) = story {
            command.env("GPUKILLD_BACKENDS_NVIDIA_LIBRARY", &story.library);
            command.env("FAKE_NVML_STATE", &story.state);
        }
        // Not in the terminal's group: Ctrl-C is for the demo, which stops the
        // daemon itself.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut daemon = Self {
            child: command.spawn()?,
            socket,
        };
        let ended = eventually("the daemon listens", || match daemon.child.try_wait() {
            Ok(None) => daemon.socket.exists().then_some(None),
            Ok(Some(status)) => Some(Some(io::Error::other(format!(
                "gpukilld ended with {status}"
            )))),
            Err(error) => Some(Some(error)),
        });
        ended.map_or(Ok(daemon), Err)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        for _ in 0..100 {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
