//! The boxes for measurements of the daemon: eight GPUs with eight processes each.

use gpukill_tests::harness::{FakeCard, FakeProcess, FakeProcfs, TestBox};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::linux::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const GPUS: usize = 8;
const USERS: usize = 8;

/// The hardware of a box.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BoxHardware {
    /// The stand-in NVML reports the processes, so no file descriptor scan runs.
    Nvidia,
    /// Simulated cards. Their device files are terminals that real processes have open. The
    /// file descriptor scan finds these processes, which turn out not to be GPU clients.
    Amd,
    /// Four of each.
    Mixed,
    /// Simulated cards with simulated clients, and no other process: the whole cost of cards
    /// except the scan.
    AmdClients,
}

impl BoxHardware {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
            Self::Mixed => "mixed",
            Self::AmdClients => "clients",
        }
    }
}

/// The processes that use GPUs, and the files that they have open.
pub(crate) struct GpuUsers {
    terminals: Vec<TerminalPair>,
    processes: Vec<Vec<GpuUser>>,
}

struct TerminalPair {
    _ours: OwnedFd,
    path: PathBuf,
}

struct GpuUser(Child);

impl GpuUsers {
    pub(crate) fn start() -> Self {
        let terminals: Vec<TerminalPair> = (0..GPUS).map(|_| TerminalPair::new()).collect();
        let of =
            |terminal: &TerminalPair| (0..USERS).map(|_| GpuUser::start_on(terminal)).collect();
        let processes = terminals.iter().map(of).collect();
        Self {
            terminals,
            processes,
        }
    }

    /// The daemon of such a box, not yet started.
    pub(crate) fn daemon_command(&self, kind: BoxHardware, test_box: &TestBox) -> Command {
        let nvidia = match kind {
            BoxHardware::Nvidia => GPUS,
            BoxHardware::Mixed => GPUS / 2,
            BoxHardware::Amd | BoxHardware::AmdClients => 0,
        };
        let gpus: Vec<Value> = self.processes[..nvidia].iter().map(|it| gpu(it)).collect();
        test_box.set_driver_state(&json!({"gpus": gpus}));
        for at in nvidia..GPUS {
            self.add_card(test_box, at);
        }
        let mut command = test_box.daemon_command();
        command
            .env("GPUKILLD_DAEMON_POLL_INTERVAL", "2s")
            .env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "10s");
        if kind == BoxHardware::AmdClients {
            let procfs = self.add_clients(test_box);
            command.env("GPUKILLD_BACKENDS_PROCFS_ROOT", procfs.root());
        }
        command
    }

    fn add_card(&self, test_box: &TestBox, at: usize) {
        let number = self.terminals[at].device_number();
        test_box.sysfs().add_card(FakeCard {
            name: &format!("card{at}"),
            driver: "amdgpu",
            pci: Some((&pci_slot(at), "1002:744C")),
            nodes: &[(&format!("renderD{}", 128 + at), &number)],
            files: &[
                ("gpu_busy_percent", "42\n"),
                ("mem_info_vram_total", "25753026560\n"),
                ("mem_info_vram_used", "1073741824\n"),
                ("hwmon/hwmon0/name", "amdgpu\n"),
                ("hwmon/hwmon0/temp1_input", "61000\n"),
                ("hwmon/hwmon0/power1_average", "212000000\n"),
                ("hwmon/hwmon0/power1_cap", "327000000\n"),
            ],
        });
    }

    /// Adds simulated processes, each a client of a card, to a simulated `/proc`.
    fn add_clients(&self, test_box: &TestBox) -> FakeProcfs {
        let procfs = FakeProcfs::new(test_box.path("proc"));
        let meminfo = "MemTotal:       16777216 kB\n";
        std::fs::write(procfs.root().join("meminfo"), meminfo).unwrap();
        for client in 0..GPUS * USERS {
            let at = client / USERS;
            let pid = u32::try_from(1_000 + client).unwrap();
            procfs.add_process(FakeProcess {
                pid,
                name: "python",
                uid: 1,
                start_ticks: 100,
                cmdline: "python\0train.py\0--model\0llama-70b\0",
                cgroup: "0::/\n",
            });
            let terminal = self.terminals[at].path.to_str().unwrap();
            procfs.add_descriptor(pid, 5, terminal, &fdinfo(at, client));
        }
        procfs
    }
}

fn gpu(users: &[GpuUser]) -> Value {
    let process = |user: &GpuUser| json!({"pid": user.0.id(), "memory": 1u64 << 30, "sm": 12});
    let processes: Vec<Value> = users.iter().map(process).collect();
    json!({"processes": processes})
}

fn pci_slot(at: usize) -> String {
    format!("0000:{:02x}:00.0", at + 1)
}

/// The text that amdgpu writes for a client, with its own keys and order.
fn fdinfo(at: usize, client: usize) -> String {
    let slot = pci_slot(at);
    format!(
        "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t7\ndrm-driver:\tamdgpu\n\
         drm-client-id:\t{client}\ndrm-pdev:\t{slot}\npasid:\t32770\n\
         drm-total-cpu:\t0\ndrm-shared-cpu:\t0\ndrm-active-cpu:\t0\ndrm-resident-cpu:\t0\n\
         drm-total-gtt:\t20480 KiB\ndrm-shared-gtt:\t0\ndrm-resident-gtt:\t20480 KiB\n\
         drm-total-vram:\t1048576 KiB\ndrm-shared-vram:\t0\ndrm-resident-vram:\t1048576 KiB\n\
         drm-memory-vram:\t1048576 KiB\ndrm-memory-gtt: \t20480 KiB\ndrm-memory-cpu: \t0 KiB\n\
         amd-evicted-vram:\t0 KiB\namd-requested-vram:\t1048576 KiB\n\
         drm-engine-gfx:\t123456789 ns\ndrm-engine-compute:\t987654321 ns\n"
    )
}

impl TerminalPair {
    fn new() -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let path = ptsname(&ours, Vec::new()).unwrap();
        Self {
            _ours: ours,
            path: path.to_str().unwrap().into(),
        }
    }

    /// The device number, such as `136:5`.
    fn device_number(&self) -> String {
        let device = std::fs::metadata(&self.path).unwrap().st_rdev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        format!("{major}:{minor}\n")
    }
}

impl GpuUser {
    fn start_on(terminal: &TerminalPair) -> Self {
        let output = File::options().write(true).open(&terminal.path).unwrap();
        let child = Command::new("sleep")
            .arg("100000")
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for GpuUser {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
