//! A simulated box of eight H100s: a training job of four workers, an inference server, a
//! forgotten notebook, and memory that an orphaned worker keeps.

use crate::child::{DemoChild, DemoOrphan};
use gpukill_tests::harness::binaries;
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The running simulation. It ends when dropped.
pub(crate) struct SimulatedBox {
    /// The stand-in NVML.
    pub(crate) library: PathBuf,
    /// The state file of the stand-in NVML.
    pub(crate) state: PathBuf,
    /// The processes of the box, below a directory like `/proc`.
    pub(crate) procfs: PathBuf,
    /// The first worker of the training job, and the notebook.
    pub(crate) worker: u32,
    pub(crate) notebook: u32,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The processes of the box.
struct BoxProcesses {
    workers: Vec<DemoChild>,
    server: DemoChild,
    notebook: DemoChild,
    orphan: DemoOrphan,
}

const GIB: u64 = 1 << 30;

/// How often the values change a little, and ended processes leave their GPU.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

impl SimulatedBox {
    pub(crate) fn start(directory: &Path) -> io::Result<Self> {
        let library = directory.join("libnvidia-ml.so.1");
        std::os::unix::fs::symlink(&binaries().nvml, &library)?;
        let state = directory.join("state.json");
        let mut processes = BoxProcesses {
            workers: Vec::new(),
            server: start("vllm serve meta-llama/Llama-3-8B --port 8000")?,
            notebook: start("python -m ipykernel_launcher -f kernel-9a.json")?,
            orphan: DemoOrphan::start(&["python", "evaluate.py", "--workers", "1"])?,
        };
        for rank in ["0", "1", "2", "3"] {
            let words = ["python", "train.py", "--model", "llama-70b", "--rank", rank];
            let child = DemoChild::start(&words, processes.workers.first())?;
            processes.workers.push(child);
        }
        let procfs = directory.join("proc");
        link_processes(&procfs, &processes.pids())?;
        let (worker, notebook) = (processes.workers[0].pid(), processes.notebook.pid());
        write_state(&state, &processes.next_state(0))?;
        let (stop, stopped) = channel();
        let file = state.clone();
        let writer = std::thread::spawn(move || {
            let mut moment = 0;
            while matches!(
                stopped.recv_timeout(UPDATE_INTERVAL),
                Err(RecvTimeoutError::Timeout)
            ) {
                moment += 1;
                // If the directory is gone, the demo has ended.
                if write_state(&file, &processes.next_state(moment)).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            library,
            state,
            procfs,
            worker,
            notebook,
            stop: Some(stop),
            thread: Some(writer),
        })
    }
}

impl Drop for SimulatedBox {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(writer) = self.thread.take() {
            // A panic of the thread is already reported.
            let _ = writer.join();
        }
    }
}

/// Starts a child with these words, which blanks separate.
fn start(words: &str) -> io::Result<DemoChild> {
    let words: Vec<&str> = words.split(' ').collect();
    DemoChild::start(&words, None)
}

/// A directory like `/proc` that has the facts about this host, these processes alone, and a driver
/// of the GPUs: the number of the orphan's file (1:7) is that of `/dev/nvidia7`.
fn link_processes(procfs: &Path, pids: &[u32]) -> io::Result<()> {
    std::fs::create_dir(procfs)?;
    std::fs::write(procfs.join("devices"), "Character devices:\n  1 nvidia\n")?;
    let link =
        |name: &str| std::os::unix::fs::symlink(Path::new("/proc").join(name), procfs.join(name));
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name != "devices" && !name.starts_with(|first: char| first.is_ascii_digit()) {
            link(&name)?;
        }
    }
    pids.iter().try_for_each(|pid| link(&pid.to_string()))
}

/// In one step: the stand-in must never read half a state.
fn write_state(file: &Path, state: &Value) -> io::Result<()> {
    let new = file.with_extension("new");
    std::fs::write(&new, state.to_string())?;
    std::fs::rename(new, file)
}

impl BoxProcesses {
    fn pids(&self) -> Vec<u32> {
        let children = self.workers.iter().chain([&self.server, &self.notebook]);
        children
            .map(DemoChild::pid)
            .chain([self.orphan.pid])
            .collect()
    }

    fn next_state(&mut self, moment: u64) -> Value {
        // A slow wave, the same in every run.
        let wave = [0, 1, 2, 1, 0, 2, 3, 1][(moment % 8) as usize];
        let free = || gpu(0.6, 0, 34, 72, &[]);
        // A GPU with one process that holds all used memory but 0.5 GiB.
        let used =
            |child: &mut DemoChild, gib: f64, [busy, celsius, watts]: [u64; 3], sm: Option<u64>| {
                if !child.is_running() {
                    return free();
                }
                let process = json!({"pid": child.pid(), "memory": bytes(gib), "sm": sm});
                gpu(gib + 0.5, busy, celsius, watts, &[process])
            };
        let workers = self.workers.iter_mut().map(|worker| {
            let now = [96 + wave, 69 + wave, 671 + 5 * wave];
            used(worker, 62.6, now, Some(95 + wave))
        });
        let mut gpus: Vec<Value> = workers.collect();
        let now = [12 * wave, 48 + wave, 180 + 40 * wave];
        gpus.push(used(&mut self.server, 69.9, now, Some(12 * wave)));
        gpus.push(used(&mut self.notebook, 48.3, [0, 41, 120], None));
        gpus.push(free());
        gpus.push(match self.orphan.is_running() {
            true => gpu(35.6, 0, 38, 98, &[]),
            false => free(),
        });
        for (index, gpu) in gpus.iter_mut().enumerate() {
            // No other minor may be that of a file which every process has open.
            gpu["minor"] = if index == 7 { 7 } else { 100 + index }.into();
            gpu["uuid"] = format!("GPU-8f3c9d2{index}-41d2-4f0e-9c1b-0a5e6c7d8e9{index}").into();
            gpu["pci"] = format!("00000000:{:02X}:00.0", 0x1b + 0x10 * index).into();
        }
        json!({"driver": "580.65.06", "cuda": 13000, "gpus": gpus})
    }
}

fn gpu(used: f64, utilization: u64, temperature: u64, watts: u64, processes: &[Value]) -> Value {
    json!({
        "name": "NVIDIA H100 80GB HBM3",
        "memory": {"total": bytes(79.6), "reserved": GIB / 2, "used": bytes(used)},
        "utilization": {"gpu": utilization, "memory": utilization / 2},
        "temperature": temperature,
        "power_mw": watts * 1000,
        "power_limit_mw": 700_000,
        "ecc": {"enabled": true},
        "processes": processes,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a few GiB"
)]
fn bytes(gib: f64) -> u64 {
    (gib * 1024.0) as u64 * (GIB / 1024)
}
