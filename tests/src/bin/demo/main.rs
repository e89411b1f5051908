//! `cargo demo`: a private gpukilld over the machine's NVIDIA GPUs, or over a simulated box of
//! eight if the machine has no NVIDIA driver.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "it talks to a person"
)]

mod child;
mod shell;
mod simulated_box;
mod tour;

use gpukill_tests::harness::{binaries, build_binaries, eventually};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use simulated_box::SimulatedBox;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "\
Usage: cargo demo

Builds gpukilld and gpukillctl, starts a private gpukilld over the NVIDIA GPUs of this machine, or
over a simulated box of eight if there is no NVIDIA driver, shows some commands, and opens a shell
in which gpukillctl talks to it. Nothing is installed, and everything is gone after the shell.

Options:
  -h, --help  Print this text";

fn main() -> ExitCode {
    if let Some(role) = child::requested_name() {
        return child::run_as_child(&role);
    }
    // `cargo demo -- --help` passes the first `--` on too.
    match std::env::args_os()
        .skip(1)
        .find(|argument| argument != "--")
    {
        None => {}
        Some(help) if help == "--help" || help == "-h" => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some(other) => {
            eprintln!("demo: unexpected argument {other:?}\n\n{USAGE}");
            return ExitCode::FAILURE;
        }
    }
    match run_demo() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_demo() -> io::Result<()> {
    // From here on Ctrl-C stops the demo in order, so that it leaves nothing behind.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    println!("Building gpukilld and gpukillctl …");
    if let Err(error) = build_binaries() {
        let interrupted = stop.load(Ordering::Relaxed);
        return Err(io::Error::other(if interrupted {
            "interrupted"
        } else {
            error
        }));
    }
    let directory = tempfile::Builder::new().prefix("gpukill-demo-").tempdir()?;
    let simulated_box = if has_nvidia_driver() {
        println!("This machine has NVIDIA GPUs: what follows is real.\n");
        None
    } else {
        println!(
            "This machine has no NVIDIA driver: what follows is SIMULATED, a box of eight H100s."
        );
        println!("The processes are real children of this demo; their GPUs are not.\n");
        Some(SimulatedBox::start(directory.path())?)
    };
    let daemon = DemoDaemon::start(directory.path(), simulated_box.as_ref())?;
    let result = show_examples(&daemon, &stop, simulated_box.as_ref())
        .and_then(|()| run_shell(&daemon, &stop, directory.path(), simulated_box.as_ref()));
    // The daemon stops first, so that it does not see the simulated processes end.
    drop(daemon);
    drop(simulated_box);
    drop(directory);
    result
}

fn show_examples(
    daemon: &DemoDaemon,
    stop: &AtomicBool,
    simulated_box: Option<&SimulatedBox>,
) -> io::Result<()> {
    // After two polls utilization and user names are known.
    let until = Instant::now() + Duration::from_millis(2500);
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    for arguments in [
        &["list"][..],
        &["list", "--details"],
        tour::holders(simulated_box),
    ] {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        println!("$ gpukillctl {}", arguments.join(" "));
        let mut client = Command::new(&binaries().gpukillctl);
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

fn run_shell(
    daemon: &DemoDaemon,
    stop: &AtomicBool,
    directory: &Path,
    simulated_box: Option<&SimulatedBox>,
) -> io::Result<()> {
    let on_a_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    if on_a_terminal && !stop.load(Ordering::Relaxed) {
        let commands = directory.join("tour");
        let stops = tour::stops(simulated_box);
        tour::write_commands(&commands, &stops)?;
        tour::print(&stops);
        shell::run(&daemon.socket, &binaries().gpukillctl, &commands)?;
    }
    Ok(())
}

fn has_nvidia_driver() -> bool {
    Path::new("/proc/driver/nvidia/version").exists() || Path::new("/dev/nvidiactl").exists()
}

/// The daemon of the demo. Stopped when dropped.
struct DemoDaemon {
    child: Child,
    socket: PathBuf,
}

impl DemoDaemon {
    fn start(directory: &Path, simulated_box: Option<&SimulatedBox>) -> io::Result<Self> {
        let socket = directory.join("run/gpukill/gpukilld.sock");
        std::fs::create_dir(directory.join("run"))?;
        // Every user has this directory. The first edit of rules creates gpukill's own in it.
        std::fs::create_dir(directory.join("config"))?;
        let log = std::fs::File::create(directory.join("gpukilld.log"))?;
        let mut command = Command::new(&binaries().gpukilld);
        command
            .args(["--user", "--log-level", "warn"])
            // The user's own settings and state stay untouched.
            .env("XDG_RUNTIME_DIR", directory.join("run"))
            .env("XDG_STATE_HOME", directory.join("state"))
            .env("XDG_CONFIG_HOME", directory.join("config"))
            .env("GPUKILLD_DAEMON_POLL_INTERVAL", "1s")
            .env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "2s")
            .stdin(Stdio::null())
            .stderr(log);
        if let Some(simulated_box) = simulated_box {
            command.env("GPUKILLD_BACKENDS_NVIDIA_LIBRARY", &simulated_box.library);
            command.env("FAKE_NVML_STATE", &simulated_box.state);
            command.env("GPUKILLD_BACKENDS_PROCFS_ROOT", &simulated_box.procfs);
        }
        // Outside the terminal's process group: Ctrl-C reaches only the demo, which stops the
        // daemon.
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

impl Drop for DemoDaemon {
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
