//! A host with processes, for tests.

use super::super::*;
use crate::access::LimitGroup;
use crate::job::{Ancestors, JobFacts, determine_job};
use gpukill_proto::holders::Holder;
use gpukill_proto::kill::{KillPlan, KillRequest, KillScope, KillSelector};
use gpukill_proto::model::{
    ContainerId, Device, DeviceId, GpuProcess, GpuUse, Owner, OwnerKind, ProcessKey, Scheduler,
    SchedulerJob, Unit, Vendor,
};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::{Bytes, Timestamp};

pub(super) const ALICE: u32 = 1000;
pub(super) const BOB: u32 = 1001;
pub(super) const OPERATORS: u32 = 800;
pub(super) const GIB: u64 = 1 << 30;

pub(super) fn name_of(uid: u32) -> String {
    match uid {
        0 => "root".into(),
        ALICE => "alice".into(),
        BOB => "bob".into(),
        1002 => "olga".into(),
        other => other.to_string(),
    }
}

pub(super) fn caller(uid: u32, groups: &[u32]) -> Caller {
    Caller {
        uid,
        groups: groups.iter().copied().collect(),
        contained: false,
        limit_group: LimitGroup::Person(uid),
    }
}

pub(super) fn alice() -> Caller {
    caller(ALICE, &[ALICE])
}

pub(super) fn bob() -> Caller {
    caller(BOB, &[BOB])
}

/// Olga is in the group of operators.
pub(super) fn olga() -> Caller {
    caller(1002, &[OPERATORS])
}

pub(super) fn roles() -> Roles {
    Roles {
        operator_group: Some(OPERATORS),
        admin_group: Some(801),
        hide_other_users: false,
        ..Roles::default()
    }
}

/// A process of this user without special properties, in a session and group of its
/// own, without a container.
pub(super) fn process(pid: u32, parent: u32, uid: u32, name: &str) -> ProcessInfo {
    let program = match name {
        "python" | "train" => "python3.12",
        "tmux: server" => "tmux",
        "X" => "Xorg",
        name => name,
    };
    ProcessInfo {
        lineage: ProcessLineage {
            key: ProcessKey {
                pid,
                start_ticks: u64::from(pid),
            },
            uid: Some(uid),
            uid_min: 1000,
            namespace_creator: None,
            name: name.chars().take(15).collect(),
            group: pid,
            session: pid,
            on_terminal: false,
            executable: Some(format!("/usr/bin/{program}")),
            arguments: None,
            unit: None,
        },
        parent,
        is_kernel_thread: false,
        state: ProcessState::Sleeping,
        uids: Reading::Value(Uids::from_single(uid)),
        namespace_owner: Reading::Value(None),
        namespace_root: None,
        pid_namespace: None,
        is_namespace_init: false,
        owner: Reading::Value(name_of(uid)),
        person_name: Reading::Value(name_of(uid)),
        command: Reading::Value(format!("{name} of {}", name_of(uid))),
        container: Reading::Value(None),
        job: Reading::Unsupported,
        program: Reading::Value(ProgramOrigin::Host),
        at_seat: Reading::Value(false),
    }
}

pub(super) fn container(id: char, name: &str, manager: Option<u32>) -> Container {
    Container {
        id: ContainerId {
            runtime: if manager.is_some() {
                "podman"
            } else {
                "docker"
            }
            .into(),
            id: id.to_string().repeat(64),
        },
        manager,
        name: Reading::Value(name.to_owned()),
        image: Reading::Value(format!("lab/{name}:1")),
        pod: None,
    }
}

pub(super) fn unit(name: &str, manager: Option<u32>) -> Unit {
    Unit {
        name: name.to_owned(),
        manager,
    }
}

pub(super) struct KillTestHost {
    pub(super) process_table: ProcessTable,
    pub(super) snapshot: Snapshot,
    pub(super) holders: Vec<DeviceHolders>,
    pub(super) roles: Roles,
    pub(super) protection: Protection,
    schedulers: BTreeMap<u32, SchedulerJob>,
}

impl KillTestHost {
    /// Four NVIDIA GPUs, one AMD GPU, and the processes of every host.
    pub(super) fn new() -> Self {
        let devices = (0..5).map(|index| {
            let vendor = if index == 4 {
                Vendor::Amd
            } else {
                Vendor::Nvidia
            };
            let id = DeviceId(format!("GPU-{index}000aaaa"));
            let mut device = Device::unknown(id, index, vendor, &Reading::Unsupported);
            device.memory_unattributed = Reading::Value(Bytes(0));
            device
        });
        let devices: Vec<Device> = devices.collect();
        let held = devices.iter().map(|device| DeviceHolders {
            id: device.id.clone(),
            index: device.index,
            name: Reading::Unsupported,
            memory_total: Reading::Unsupported,
            memory_used: Reading::Unsupported,
            memory_unattributed: Reading::Unsupported,
            utilization: Reading::Unsupported,
            busy_without_holder_since: None,
            holders: Vec::new(),
            ended: Vec::new(),
            incomplete_reason: None,
        });
        let mut test_host = Self {
            holders: held.collect(),
            process_table: ProcessTable::new(),
            snapshot: Snapshot {
                host: "box".into(),
                taken_at: Timestamp(0),
                polls: 7,
                devices,
                processes: Vec::new(),
                backends: Vec::new(),
                faults: Vec::new(),
            },
            roles: roles(),
            protection: Protection {
                daemon: 90,
                ..Protection::default()
            },
            schedulers: BTreeMap::new(),
        };
        test_host.add(process(1, 0, 0, "systemd"));
        test_host.add(process(90, 1, 90, "gpukilld"));
        test_host.add(process(91, 90, 90, "gpukilld: nvml"));
        test_host
    }

    pub(super) fn add(&mut self, process: ProcessInfo) -> &mut ProcessInfo {
        let pid = process.lineage.key.pid;
        self.process_table.insert(pid, process);
        self.process_mut(pid)
    }

    /// A child in the group, session, unit and container of its parent.
    pub(super) fn fork(&mut self, pid: u32, parent: u32, name: &str) -> &mut ProcessInfo {
        let above = self.process_mut(parent).clone();
        let mut child = process(pid, parent, above.lineage.uid.unwrap(), name);
        child.lineage.group = above.lineage.group;
        child.lineage.session = above.lineage.session;
        child.lineage.unit = above.lineage.unit;
        child.uids = above.uids;
        child.container = above.container;
        child.namespace_owner = above.namespace_owner;
        child.lineage.namespace_creator = above.lineage.namespace_creator;
        child.owner = above.owner;
        if let Some(job) = self.schedulers.get(&parent).cloned() {
            self.schedulers.insert(pid, job);
        }
        self.add(child)
    }

    /// As [`KillTestHost::fork`], in a group of its own, as shells start commands.
    pub(super) fn command(&mut self, pid: u32, parent: u32, name: &str) -> &mut ProcessInfo {
        let child = self.fork(pid, parent, name);
        child.lineage.group = pid;
        child
    }

    pub(super) fn process_mut(&mut self, pid: u32) -> &mut ProcessInfo {
        self.process_table.get_mut(&pid).unwrap()
    }

    pub(super) fn slurm(&mut self, pid: u32, job: &str, step: &str) {
        let job = SchedulerJob {
            scheduler: Scheduler::Slurm,
            job: job.to_owned(),
            step: Some(step.to_owned()),
        };
        self.schedulers.insert(pid, job);
    }

    /// An ssh session of this user: sshd below root's sshd, and a shell with the pid
    /// two higher.
    pub(super) fn login(&mut self, pid: u32, uid: u32) {
        self.add(process(pid, 1, 0, "sshd"));
        let mut session = process(pid + 1, pid, uid, "sshd");
        session.lineage.unit = Some(unit("session-3.scope", None));
        self.add(session);
        let shell = self.command(pid + 2, pid + 1, "bash");
        shell.lineage.session = pid + 2;
        shell.lineage.on_terminal = true;
    }

    /// The driver lists the process with `gib` GiB of this GPU.
    pub(super) fn list_process(&mut self, pid: u32, gpu: usize, gib: u64) {
        let process = &self.process_table[&pid];
        let device = self.snapshot.devices[gpu].id.clone();
        let mut used = GpuProcess::unknown(device, pid, Timestamp(0), &Reading::Unsupported);
        used.start_ticks = Reading::Value(process.lineage.key.start_ticks);
        used.memory = Reading::Value(Bytes(gib * GIB));
        let uid = process.lineage.uid.unwrap();
        used.uid = Reading::Value(uid);
        used.user = Reading::Value(name_of(uid));
        self.snapshot.processes.push(used);
    }

    /// The process has this GPU open, and no driver lists it.
    pub(super) fn open_device(&mut self, pid: u32, gpu: usize) -> &mut Holder {
        let process = &self.process_table[&pid];
        let uid = process.lineage.uid.unwrap();
        let holder = Holder {
            pid,
            start_ticks: Reading::Value(process.lineage.key.start_ticks),
            uid: Reading::Value(uid),
            user: Reading::Value(name_of(uid)),
            owner: Reading::Value(Owner {
                name: name_of(uid),
                uid: Some(uid),
                kind: OwnerKind::User,
            }),
            namespace_owner: process.namespace_owner.clone(),
            name: Reading::Value(process.lineage.name.clone()),
            command: process.command.clone(),
            state: Reading::Value(process.state.clone()),
            parent: Reading::Value(process.parent),
            parent_name: Reading::Unsupported,
            group: Reading::Value(process.lineage.group),
            group_leader_is_here: Reading::Unsupported,
            inner_pid: Reading::Unsupported,
            container: process.container.clone(),
            holds: vec![format!("nvidia{gpu}")],
            holds_this_device: true,
            listed: false,
            shares_with: None,
            passed_from: None,
            used_for: GpuUse::default(),
            memory: Reading::Unsupported,
        };
        let holders = &mut self.holders[gpu].holders;
        holders.push(holder);
        holders.last_mut().unwrap()
    }

    /// Sets the jobs as the daemon determines them.
    pub(super) fn with_jobs(mut self) -> Self {
        let jobs: Vec<(u32, Reading<Job>)> = self
            .process_table
            .keys()
            .map(|pid| (*pid, self.job_of(*pid)))
            .collect();
        for (pid, job) in jobs {
            self.process_mut(pid).job = job;
        }
        self
    }

    pub(super) fn job_of(&self, pid: u32) -> Reading<Job> {
        let process = &self.process_table[&pid];
        let mut line = Vec::new();
        let mut next = process.parent;
        while next > 1
            && let Some(parent) = self.process_table.get(&next)
        {
            line.push(parent.lineage.clone());
            next = parent.parent;
        }
        let container = match &process.container {
            Reading::Value(container) => Reading::Value(container.as_ref()),
            unknown => unknown.as_unknown(),
        };
        determine_job(JobFacts {
            process: &process.lineage,
            ancestors: &Ancestors {
                processes: line,
                is_truncated: false,
            },
            scheduler: &Reading::Value(self.schedulers.get(&pid).cloned()),
            container: &container,
            unit: &Reading::Value(process.lineage.unit.clone()),
        })
    }

    pub(super) fn context<'a>(&'a self, caller: &'a Caller) -> KillContext<'a> {
        KillContext {
            caller,
            roles: &self.roles,
            operators: "gpukill-operators",
            snapshot: &self.snapshot,
            holders: &self.holders,
            processes: &self.process_table,
            protection: &self.protection,
        }
    }

    pub(super) fn daemon_family(&self) -> protection::DaemonFamily {
        protection::DaemonFamily::new(self.protection.daemon, &self.process_table)
    }

    pub(super) fn plan(&self, caller: &Caller, request: &KillRequest) -> Result<KillPlan, Refusal> {
        plan(request, &self.context(caller), Timestamp(0))
    }
}

pub(super) fn pids(pids: &[u32]) -> KillSelector {
    KillSelector {
        pids: pids.to_vec(),
        ..KillSelector::default()
    }
}

pub(super) fn request(selector: KillSelector, scope: KillScope) -> KillRequest {
    KillRequest {
        selector,
        scope,
        signal_timeout_ms: 5_000,
        ..KillRequest::default()
    }
}

pub(super) fn by_user(name: &str) -> KillSelector {
    KillSelector {
        user: Some(name.to_owned()),
        ..KillSelector::default()
    }
}

pub(super) fn by_gpu(gpu: &str) -> KillSelector {
    KillSelector {
        gpu: Some(gpu.to_owned()),
        ..KillSelector::default()
    }
}
