//! A host with GPUs and their holders, for tests.

use super::super::*;
use crate::access::{LimitGroup, Uids};
use crate::job::ProcessLineage;
use crate::kill::protection::Protection;
use crate::kill::{ProcessInfo, ProgramOrigin};
use gpukill_proto::holders::{DeviceHolders, Holder, ProcessState};
use gpukill_proto::model::{GpuUse, ProcessKey, RecoveryAction};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes;

const OPERATORS: u32 = 800;
pub(super) const DAEMON: u32 = 900;

pub(super) struct GpuTestHost {
    pub(super) caller: Caller,
    pub(super) roles: Roles,
    pub(super) snapshot: Snapshot,
    pub(super) holders: Vec<DeviceHolders>,
    pub(super) process_table: kill::ProcessTable,
    pub(super) hives: BTreeMap<DeviceId, Result<Hive, String>>,
    pub(super) checks: BTreeMap<DeviceId, HelperCheck>,
}

impl GpuTestHost {
    /// These devices without holders; the caller is an operator.
    pub(super) fn new(vendors: &[Vendor]) -> Self {
        let devices = (0..).zip(vendors).map(|(index, vendor)| {
            let id = DeviceId(format!("GPU-{index}"));
            let mut device = Device::unknown(id, index, *vendor, &Reading::Unsupported);
            device.pci = Reading::Value(format!("0000:1{index}:00.0"));
            device.memory_used = Reading::Value(Bytes(0));
            device.vitals.recovery_action = Reading::Value(RecoveryAction::None);
            device
        });
        let devices: Vec<Device> = devices.collect();
        let possible = |device: &Device| (device.id.clone(), HelperCheck::Possible);
        let checks = devices.iter().map(possible).collect();
        let holders = devices.iter().map(|device| DeviceHolders {
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
        Self {
            caller: Caller {
                uid: 1002,
                groups: [OPERATORS].into(),
                contained: false,
                limit_group: LimitGroup::Person(1002),
            },
            roles: Roles {
                operator_group: Some(OPERATORS),
                ..Roles::default()
            },
            holders: holders.collect(),
            snapshot: Snapshot {
                host: "box".into(),
                taken_at: Timestamp(0),
                polls: 1,
                devices,
                processes: Vec::new(),
                backends: Vec::new(),
                faults: Vec::new(),
            },
            process_table: BTreeMap::new(),
            hives: BTreeMap::new(),
            checks,
        }
    }

    /// Adds a process that has this device open.
    pub(super) fn hold(&mut self, device: usize, pid: u32, name: &str) {
        let uid = match name {
            // Services run as system accounts.
            "Xorg" | "nvidia-persiste" => 600,
            _ => 1000,
        };
        let holder = Holder {
            pid,
            start_ticks: Reading::Value(7),
            uid: Reading::Value(uid),
            user: Reading::Value("alice".into()),
            owner: Reading::Unsupported,
            namespace_owner: Reading::Value(None),
            name: Reading::Value(name.into()),
            command: Reading::Value(name.into()),
            state: Reading::Value(ProcessState::Sleeping),
            parent: Reading::Value(1),
            parent_name: Reading::Value("systemd".into()),
            group: Reading::Value(pid),
            group_leader_is_here: Reading::Value(true),
            inner_pid: Reading::Value(None),
            container: Reading::Value(None),
            holds: vec!["nvidia0".into()],
            holds_this_device: true,
            listed: false,
            shares_with: None,
            passed_from: None,
            used_for: GpuUse::default(),
            memory: Reading::Unsupported,
        };
        self.holders[device].holders.push(holder);
        let key = ProcessKey {
            pid,
            start_ticks: 7,
        };
        let candidate = ProcessInfo {
            lineage: ProcessLineage {
                key,
                uid: Some(uid),
                uid_min: 1000,
                namespace_creator: None,
                name: name.into(),
                group: pid,
                session: pid,
                on_terminal: false,
                executable: Some(format!("/usr/bin/{name}")),
                arguments: None,
                unit: None,
            },
            parent: 1,
            is_kernel_thread: false,
            state: ProcessState::Sleeping,
            uids: Reading::Value(Uids::from_single(uid)),
            namespace_owner: Reading::Value(None),
            namespace_root: None,
            pid_namespace: None,
            is_namespace_init: false,
            owner: Reading::Value("alice".into()),
            person_name: Reading::Value("alice".into()),
            command: Reading::Value(name.into()),
            container: Reading::Value(None),
            job: Reading::Unsupported,
            program: Reading::Value(ProgramOrigin::Host),
            at_seat: Reading::Unsupported,
        };
        self.process_table.insert(pid, candidate);
    }

    pub(super) fn plan(&self, force: bool) -> Result<ResetPlan, Refusal> {
        let protection = Protection {
            daemon: DAEMON,
            ..Protection::default()
        };
        let context = ResetContext {
            kill: kill::KillContext {
                caller: &self.caller,
                roles: &self.roles,
                operators: "gpukill-operators",
                snapshot: &self.snapshot,
                holders: &self.holders,
                processes: &self.process_table,
                protection: &protection,
            },
            hives: &self.hives,
            checks: &self.checks,
        };
        plan(&request(force), &context, Timestamp(7))
    }

    pub(super) fn plan_first(&self, force: bool) -> ResetTarget {
        self.plan(force).expect("a plan").devices.remove(0)
    }
}

pub(super) fn request(force: bool) -> ResetRequest {
    ResetRequest {
        gpu: None,
        force,
        signal_timeout_ms: 5_000,
        dry_run: false,
    }
}
