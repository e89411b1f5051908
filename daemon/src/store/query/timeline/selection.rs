//! Decides which records belong to a timeline of some devices, a user, a job or a process.

use super::super::super::RuleSetKind;
use super::super::actions::row_of_action;
use super::super::filter::StoredDevice;
use gpukill_policy::select::{
    DeviceName, DeviceSelectorError, names_one_user_of, names_user, select_devices,
};
use gpukill_proto::audit::ActionRecord;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::edit::{PolicyKind, edited_policy};
use gpukill_proto::guard::{
    EvidenceProcess, GuardRecord, GuardStep, OwnedJob, Person, ViolationSubject,
};
use gpukill_proto::model::ProcessKey;
use gpukill_proto::rogue::{RogueFinding, edited_user};
use gpukill_proto::units::Timestamp;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The selection of a timeline. All conditions must hold; `None` selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TimelineSelection {
    /// The ids of the selected devices.
    pub(super) devices: Option<BTreeSet<String>>,
    pub(super) user: Option<String>,
    /// The users that `user` names, as far as they requested actions.
    pub(super) uids: BTreeSet<u32>,
    pub(super) job: Option<String>,
    /// The processes of the selected runs, if a pid is selected: the kernel reuses pids.
    pub(super) processes: Option<BTreeSet<ProcessKey>>,
    /// The devices of the selected runs, each with when it was used: from and until; without an end
    /// it is still used. `None` if all devices are meant.
    pub(super) used_devices: Option<BTreeMap<String, Vec<UsePeriod>>>,
    /// The owners of the selected runs, by name and number; `None` if there are too many runs.
    pub(super) owners: Option<BTreeSet<(String, Option<u32>)>>,
    /// The actions that ended the selected runs, by row.
    pub(super) actions: BTreeSet<i64>,
    /// All devices that were ever observed.
    pub(super) known_devices: Vec<StoredDevice>,
}

/// When a run used its device; without an end it still does.
pub(super) type UsePeriod = (Timestamp, Option<Timestamp>);

/// The time after the use of a device in which its events still belong to the run: an XID and the
/// loss of the device are recorded after the processes ended of it.
pub(super) const EVENT_MARGIN_SECONDS: i64 = 300;

/// The facts of a process that conditions are about.
struct ProcessMatch<'a> {
    key: ProcessKey,
    device: Option<&'a str>,
    owner: Option<(&'a str, Option<u32>)>,
    job: Option<&'a str>,
}

impl TimelineSelection {
    fn selects_processes(&self) -> bool {
        self.user.is_some() || self.job.is_some() || self.processes.is_some()
    }

    fn selects_all(&self) -> bool {
        self.devices.is_none() && !self.selects_processes()
    }

    pub(super) fn index(&self, device: &str) -> Option<u32> {
        let mut known = self.known_devices.iter();
        let known = known.find(|known| known.uuid == device);
        known.map(|known| known.gpu_index)
    }

    /// The devices with events in the timeline; `None` for all.
    pub(super) fn event_devices(&self) -> Option<Vec<&String>> {
        match (&self.devices, &self.used_devices) {
            (Some(devices), _) => Some(devices.iter().collect()),
            (None, Some(used)) => Some(used.keys().collect()),
            (None, None) => None,
        }
    }

    /// Whether an event of a device belongs to the timeline: any event of a selected device, or one
    /// while a selected process used the device.
    pub(super) fn has_device_event(&self, device: &str, at: Timestamp) -> bool {
        let is_within = |(from, until): &UsePeriod| {
            let end = until.map(|until| until.plus_seconds(EVENT_MARGIN_SECONDS));
            *from <= at && end.is_none_or(|end| at <= end)
        };
        match (&self.devices, &self.used_devices) {
            (Some(devices), _) => devices.contains(device),
            (None, Some(used)) => used
                .get(device)
                .is_some_and(|periods| periods.iter().any(is_within)),
            (None, None) => true,
        }
    }

    fn has_device(&self, device: &str) -> bool {
        let devices = self.devices.as_ref();
        devices.is_none_or(|devices| devices.contains(device))
    }

    fn names(&self, name: &str, uid: Option<u32>) -> bool {
        let user = self.user.as_deref();
        user.is_none_or(|user| names_one_user_of(user, uid, Some(name)))
    }

    fn has_key(&self, key: ProcessKey) -> bool {
        let processes = self.processes.as_ref();
        processes.is_none_or(|processes| processes.contains(&key))
    }

    fn is_job(&self, job: Option<&str>) -> bool {
        self.job.is_none() || self.job.as_deref() == job
    }

    fn has_process(&self, process: &ProcessMatch<'_>) -> bool {
        self.has_key(process.key)
            && process
                .device
                .map_or(self.devices.is_none(), |device| self.has_device(device))
            && match process.owner {
                Some((name, uid)) => self.names(name, uid),
                None => self.user.is_none(),
            }
            && self.is_job(process.job)
    }

    fn has_evidence(&self, process: &EvidenceProcess) -> bool {
        let owner = process.owner.as_ref();
        self.has_process(&ProcessMatch {
            key: process.run.process(),
            device: Some(&process.run.device.0),
            owner: owner.map(|owner| (owner.name.as_str(), owner.uid)),
            job: process.job.as_deref(),
        })
    }

    /// Whether a job or a person as a whole is selected, without its processes.
    fn has_owner(&self, owner: &Person, job: Option<&OwnedJob>) -> bool {
        self.selects_processes()
            && self.devices.is_none()
            && self.processes.is_none()
            && self.names(&owner.name, owner.uid)
            && self.is_job(job.map(|job| job.shown.as_str()))
    }

    pub(super) fn has_decision(&self, record: &GuardRecord) -> bool {
        let has_job = |job: &OwnedJob| self.has_owner(&job.owner, Some(job));
        let by_step = match &record.step {
            // These stop or change the guard for everyone.
            GuardStep::Tripped { .. } | GuardStep::Doubted(_) => true,
            GuardStep::Ended(victim) => {
                has_job(&victim.job) || victim.runs.iter().any(|it| self.has_evidence(it))
            }
            GuardStep::Outcome(outcome) => has_job(&outcome.job),
            GuardStep::Violated
            | GuardStep::Warned { .. }
            | GuardStep::Exempt(_)
            | GuardStep::Over
            | GuardStep::Outdated
            | GuardStep::Snoozed { .. }
            | GuardStep::SnoozeVoided { .. } => false,
        };
        let is_on = |device: &str| !self.selects_processes() && self.has_device(device);
        let by_subject = || match &record.subject {
            ViolationSubject::Person(person) => self.has_owner(person, None),
            ViolationSubject::PersonOn(person, device) => {
                self.has_owner(person, None) || is_on(&device.0)
            }
            ViolationSubject::Job(job) => has_job(job),
            ViolationSubject::GroupOn(_, device) | ViolationSubject::Device(device) => {
                is_on(&device.0)
            }
            ViolationSubject::Group(_) | ViolationSubject::Run(_) => false,
        };
        let mut evidence = record.evidence.runs.iter();
        self.selects_all() || by_step || by_subject() || evidence.any(|it| self.has_evidence(it))
    }

    pub(super) fn has_finding(&self, finding: &RogueFinding) -> bool {
        let is_on = |device: &String| {
            let index = self.index(device);
            index.is_some_and(|index| finding.gpus.contains(&index))
        };
        let devices = self.devices.as_ref();
        devices.is_none_or(|devices| devices.iter().any(is_on))
            && self.has_key(finding.process)
            && self.job.is_none()
            && match &finding.owner {
                Some(owner) => self.names(&owner.name, owner.uid),
                None => self.user.is_none(),
            }
    }

    /// Whether an action belongs to the timeline. `record` and `plan` are what the caller may see
    /// of it.
    pub(super) fn has_action(&self, record: &ActionRecord, plan: Option<&RecordedPlan>) -> bool {
        let is_of_user = self.user.is_some()
            && self.devices.is_none()
            && self.job.is_none()
            && self.processes.is_none()
            && record.guard_rule().is_none()
            && record.uid.is_some_and(|uid| self.uids.contains(&uid));
        self.selects_all()
            || (record.kind == "rules_edit" && self.has_edit(record.what.as_deref()))
            || is_of_user
            || self.actions.contains(&row_of_action(record.id))
            || plan.is_some_and(|plan| self.has_plan(plan, record.at))
    }

    /// Whether an edit of rules may concern the selection. A policy of a user or a device concerns
    /// the selected ones, and those of the selected runs; other rules, and an edit that the caller
    /// may not see, concern everyone.
    fn has_edit(&self, edit: Option<&str>) -> bool {
        let Some(edit) = edit else {
            return true;
        };
        if let Some(edit) = edit.strip_prefix(RuleSetKind::Rogues.record_prefix()) {
            return edited_user(edit).is_none_or(|user| self.has_policy_of_user(user));
        }
        match edited_policy(edit) {
            Some((PolicyKind::User, name)) => self.has_policy_of_user(name),
            Some((PolicyKind::Gpu, typed)) => self.has_policy_of_device(typed),
            Some((PolicyKind::Group | PolicyKind::Time | PolicyKind::Rule, _)) | None => true,
        }
    }

    fn has_policy_of_user(&self, name: &str) -> bool {
        let is_owner = |(owner, uid): &(String, Option<u32>)| names_user(name, *uid, Some(owner));
        let mut uids = self.uids.iter();
        let typed = self.user.iter().flat_map(|users| users.split(','));
        typed.map(str::trim).any(|typed| typed == name)
            || uids.any(|uid| names_user(name, Some(*uid), None))
            || self
                .owners
                .as_ref()
                .is_none_or(|owners| owners.iter().any(is_owner))
    }

    /// `typed` selects devices as the rules do: a part that selects no known device is left out.
    fn has_policy_of_device(&self, typed: &str) -> bool {
        let is_used = |device: &String| match (&self.devices, &self.used_devices) {
            (Some(devices), _) => devices.contains(device),
            (None, Some(used)) => used.contains_key(device),
            (None, None) => true,
        };
        let known = self.known_devices.iter();
        let names: Vec<DeviceName<'_>> = known.map(StoredDevice::names).collect();
        typed
            .split(',')
            .any(|part| match select_devices(part, &names) {
                Ok(found) => {
                    let mut found = found.iter().filter_map(|at| self.known_devices.get(*at));
                    found.any(|device| is_used(&device.uuid))
                }
                Err(
                    DeviceSelectorError::Unknown { .. } | DeviceSelectorError::Unmatched { .. },
                ) => false,
                Err(
                    DeviceSelectorError::Ambiguous { .. }
                    | DeviceSelectorError::ReversedRange { .. },
                ) => true,
            })
    }

    fn has_plan(&self, plan: &RecordedPlan, at: Timestamp) -> bool {
        let mut reset = plan.gpus.iter();
        reset.any(|gpu| self.has_device_event(&gpu.gpu_id, at))
            || plan.targets.iter().any(|target| self.has_target(target))
    }

    fn has_target(&self, target: &RecordedTarget) -> bool {
        let facts = |device| ProcessMatch {
            key: ProcessKey {
                pid: target.pid,
                start_ticks: target.start_ticks,
            },
            device,
            owner: target.owner.as_deref().map(|name| (name, target.uid)),
            job: target.job.as_deref(),
        };
        let mut held = target.holds.iter();
        held.any(|gpu| self.has_process(&facts(Some(&gpu.gpu_id))))
            || self.has_process(&facts(None))
    }
}

/// The parts of the plan of a kill or a reset that name its processes and devices.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RecordedPlan {
    #[serde(default)]
    targets: Vec<RecordedTarget>,
    #[serde(default)]
    gpus: Vec<RecordedGpu>,
}

#[derive(Debug, Deserialize)]
struct RecordedTarget {
    pid: u32,
    start_ticks: u64,
    uid: Option<u32>,
    owner: Option<String>,
    job: Option<String>,
    #[serde(default)]
    holds: Vec<RecordedGpu>,
}

#[derive(Debug, Deserialize)]
struct RecordedGpu {
    gpu_index: u32,
    gpu_id: String,
}

impl RecordedPlan {
    /// Parses a plan; `None` if it is cut, or of another kind of action.
    pub(super) fn parse(plan: &str) -> Option<Self> {
        serde_json::from_str(plan).ok()
    }

    /// The indices of its devices at that time.
    pub(super) fn gpu_indices(&self) -> Vec<u32> {
        let held = self.targets.iter().flat_map(|target| &target.holds);
        let mut all: Vec<u32> = held.chain(&self.gpus).map(|it| it.gpu_index).collect();
        all.sort_indirect();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::actions::action_entry_id;
    use super::*;
    use gpukill_proto::guard::{
        Evidence, GuardMode, ProcessContext, RuleKind, RuleName, RuleSource, RunKey,
    };
    use gpukill_proto::model::DeviceId;
    use gpukill_proto::reading::Reading;

    /// While the device is used.
    const NOW: Timestamp = Timestamp(5_000);

    fn selection(
        gpu: Option<&str>,
        user: Option<&str>,
        job: Option<&str>,
        pid: Option<u32>,
    ) -> TimelineSelection {
        TimelineSelection {
            devices: gpu.map(|gpu| [gpu.to_owned()].into()),
            user: user.map(Into::into),
            uids: user.map(|_| [1001].into()).unwrap_or_default(),
            job: job.map(Into::into),
            processes: pid.map(|pid| [key(pid)].into()),
            used_devices: user.or(job).map(|_| {
                let period = (Timestamp(1_000), Some(Timestamp(9_000)));
                [("GPU-5".to_owned(), vec![period])].into()
            }),
            owners: user.or(job).map(|_| {
                let uid = user.map_or(1001, |user| if user == "alice" { 1002 } else { 1001 });
                let name = if uid == 1002 { "alice" } else { "bob" };
                [(name.to_owned(), Some(uid))].into()
            }),
            actions: [12].into(),
            known_devices: [("GPU-4", 4), ("GPU-5", 5)]
                .map(|(uuid, gpu_index)| StoredDevice {
                    uuid: uuid.into(),
                    gpu_index,
                    ..StoredDevice::default()
                })
                .into(),
        }
    }

    const fn key(pid: u32) -> ProcessKey {
        let start_ticks = 7;
        ProcessKey { pid, start_ticks }
    }

    fn action(row: i64, kind: &str, uid: u32, at: Timestamp) -> ActionRecord {
        ActionRecord {
            id: action_entry_id(row),
            at,
            kind: kind.into(),
            uid: Some(uid),
            user: None,
            device: None,
            what: None,
            times: 1,
            result: None,
            finished_at: None,
            why: None,
            plan: Reading::Withheld,
            outcome: Reading::Withheld,
        }
    }

    /// Selections, each with whether bob's job 51002 on GPU 5 belongs to it.
    fn selections() -> [(TimelineSelection, bool); 12] {
        [
            (selection(None, None, None, None), true),
            (selection(Some("GPU-5"), None, None, None), true),
            (selection(Some("GPU-4"), None, None, None), false),
            (selection(None, Some("bob"), None, None), true),
            (selection(None, Some("1001"), None, None), true),
            (selection(None, Some("alice"), None, None), false),
            (selection(None, None, Some("nb.scope"), None), true),
            (selection(None, None, Some("other.scope"), None), false),
            (selection(None, None, None, Some(51_002)), true),
            (selection(None, None, None, Some(51_003)), false),
            (
                selection(Some("GPU-5"), Some("bob"), Some("nb.scope"), Some(51_002)),
                true,
            ),
            (selection(Some("GPU-4"), Some("bob"), None, None), false),
        ]
    }

    fn bob() -> Person {
        Person {
            name: "bob".into(),
            uid: Some(1001),
        }
    }

    fn decision(subject: ViolationSubject, step: GuardStep) -> GuardRecord {
        let process = EvidenceProcess {
            run: RunKey {
                pid: 51_002,
                start_ticks: 7,
                device: DeviceId("GPU-5".into()),
                instance: None,
            },
            gpu_index: 5,
            owner: Some(bob()),
            name: None,
            memory: None,
            utilization: None,
            job: Some("nb.scope".into()),
            context: ProcessContext::default(),
        };
        GuardRecord {
            at: Timestamp(0),
            rule: RuleName {
                source: RuleSource::Default,
                kind: RuleKind::Idle,
            },
            subject,
            mode: GuardMode::Soft,
            step,
            evidence: Evidence {
                measured: None,
                since: Timestamp(0),
                runs: vec![process],
                count: 1,
                unknown: 0,
                threat: None,
                is_service_only_warned: false,
            },
            message: None,
        }
    }

    #[test]
    fn decision_belongs_to_its_device_person_job_and_process() {
        let record = decision(ViolationSubject::Person(bob()), GuardStep::Violated);
        for (selection, expected) in selections() {
            assert_eq!(selection.has_decision(&record), expected, "{selection:?}");
        }
        let tripped = decision(
            ViolationSubject::Person(bob()),
            GuardStep::Tripped { ended: 5 },
        );
        for (selection, _) in selections() {
            assert!(selection.has_decision(&tripped), "{selection:?}");
        }
    }

    #[test]
    fn decision_without_processes_belongs_to_its_owner() {
        let mut record = decision(ViolationSubject::Person(bob()), GuardStep::Over);
        record.evidence.runs.clear();
        let has = |gpu, user, job| selection(gpu, user, job, None).has_decision(&record);
        assert!(has(None, Some("bob"), None));
        assert!(!has(None, Some("alice"), None));
        assert!(!has(Some("GPU-5"), Some("bob"), None));
        assert!(!has(None, Some("bob"), Some("nb.scope")));
        let device = ViolationSubject::Device(DeviceId("GPU-5".into()));
        record.subject = device;
        assert!(selection(Some("GPU-5"), None, None, None).has_decision(&record));
        assert!(!selection(Some("GPU-4"), None, None, None).has_decision(&record));
        assert!(!selection(None, Some("bob"), None, None).has_decision(&record));
    }

    #[test]
    fn kill_belongs_to_its_targets() {
        let plan = "{\"targets\":[{\"pid\":51002,\"start_ticks\":7,\"uid\":1001,\"owner\":\"bob\",\
            \"job\":\"nb.scope\",\"holds\":[{\"gpu_index\":5,\"gpu_id\":\"GPU-5\"}]}]}";
        let plan = RecordedPlan::parse(plan).unwrap();
        assert_eq!(plan.gpu_indices(), [5]);
        for (selection, expected) in selections() {
            let has = selection.has_action(&action(3, "kill", 0, NOW), Some(&plan));
            assert_eq!(has, expected, "{selection:?}");
        }
    }

    #[test]
    fn reused_pid_is_another_process() {
        let plan = "{\"targets\":[{\"pid\":51002,\"start_ticks\":7,\"uid\":1001,\"owner\":\"bob\",\
            \"job\":null}]}";
        let plan = RecordedPlan::parse(plan).unwrap();
        let record = decision(ViolationSubject::Person(bob()), GuardStep::Violated);
        for (start_ticks, expected) in [(7, true), (8, false)] {
            let pid = 51_002;
            let selection = TimelineSelection {
                processes: Some([ProcessKey { pid, start_ticks }].into()),
                ..selection(None, None, None, None)
            };
            assert_eq!(selection.has_decision(&record), expected, "{start_ticks}");
            let has = selection.has_action(&action(3, "kill", 0, NOW), Some(&plan));
            assert_eq!(has, expected, "{start_ticks}");
        }
    }

    #[test]
    fn hidden_action_belongs_to_the_runs_it_ended_and_its_requester() {
        let of_bob = selection(None, Some("bob"), None, None);
        assert!(of_bob.has_action(&action(12, "kill", 0, NOW), None));
        assert!(of_bob.has_action(&action(3, "prune", 1001, NOW), None));
        assert!(!of_bob.has_action(&action(3, "kill", 0, NOW), None));
        assert!(of_bob.has_action(&action(3, "rules_edit", 0, NOW), None));
        // A kill of the guard is no action of the user of the daemon.
        let by_guard = ActionRecord {
            what: Some("guard: default: idle".into()),
            ..action(3, "kill", 1001, NOW)
        };
        assert!(!of_bob.has_action(&by_guard, None));
        assert!(of_bob.has_action(&action(3, "kill", 1001, NOW), None));
    }

    #[test]
    fn edit_belongs_to_those_it_concerns() {
        let of_bob = selection(None, Some("bob"), None, None);
        let by_number = selection(None, Some("1001"), None, None);
        let of_job = selection(None, None, Some("nb.scope"), None);
        let of_gpu = TimelineSelection {
            owners: Some([("bob".to_owned(), Some(1001))].into()),
            ..selection(Some("GPU-5"), None, None, None)
        };
        for (edit, expected) in [
            ("user policy bob: memory_limit_gb = 8", true),
            ("remove user policy bob", true),
            ("user policy 1001: memory_limit_gb = 8", true),
            ("user_policies.bob.memory_limit_gb = 8", true),
            ("user policy alice: memory_limit_gb = 8", false),
            ("user_policies.alice.memory_limit_gb = 8", false),
            ("GPU policy 5: enabled = true", true),
            ("GPU policy 4-5,9: enabled = true", true),
            ("GPU policy GPU-4: enabled = true", false),
            ("remove GPU policy 9", false),
            ("group policy students: max_gpus = 1", true),
            ("time policy night: allowed_users = alice", true),
            ("mode soft", true),
            ("enforcement.max_warnings = 3", true),
            ("rogue: allow process hashcat", true),
            ("rogue: allow process hashcat@bob", true),
            ("rogue: disallow user alice", false),
        ] {
            let record = ActionRecord {
                what: Some(edit.into()),
                ..action(3, "rules_edit", 0, NOW)
            };
            for selection in [&of_bob, &by_number, &of_job, &of_gpu] {
                let has = selection.has_action(&record, None);
                assert_eq!(has, expected, "{edit} {selection:?}");
            }
            // Its own edits belong to a user.
            let own = ActionRecord {
                uid: Some(1001),
                ..record.clone()
            };
            assert!(of_bob.has_action(&own, None), "{edit}");
            let all = selection(None, None, None, None);
            assert!(all.has_action(&record, None), "{edit}");
        }
    }

    #[test]
    fn reset_belongs_to_its_devices_and_their_users() {
        let plan = RecordedPlan::parse("{\"gpus\":[{\"gpu_index\":5,\"gpu_id\":\"GPU-5\"}]}");
        let late = Timestamp(9_000 + 300_001);
        for (selection, at, expected) in [
            (selection(Some("GPU-5"), None, None, None), late, true),
            (selection(Some("GPU-4"), None, None, None), NOW, false),
            (selection(None, Some("bob"), None, None), NOW, true),
            (
                selection(None, Some("bob"), None, None),
                Timestamp(999),
                false,
            ),
            (
                selection(None, Some("bob"), None, None),
                Timestamp(309_000),
                true,
            ),
            (selection(None, Some("bob"), None, None), late, false),
        ] {
            let has = selection.has_action(&action(3, "reset", 0, at), plan.as_ref());
            assert_eq!(has, expected, "{selection:?} {at:?}");
        }
    }
}
