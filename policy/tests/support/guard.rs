//! A simulated host: its processes do what a test says, sample by sample.

use super::evaluate::{CompiledRules, Evaluation, evaluate};
use super::rules::RuleSet;
use super::sample::{DeviceSample, GuardSample, ProcessFacts, RunSample};
use super::schedule::{LocalTime, Weekday};
use super::state::GuardState;
use crate::usage::{CpuUse, DeviceUsage, Gauge, RunUsage};
use gpukill_proto::guard::{GuardRecord, Person, RunKey};
use gpukill_proto::model::{DeviceId, NetworkRole};
use gpukill_proto::reading::Reading;
use gpukill_proto::rogue::VerdictSummary;
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The length of a sample in milliseconds.
pub(crate) const SAMPLE_MS: u64 = 10_000;

const MINUTE: i64 = 60_000;

pub(crate) const GIB: u64 = 1 << 30;

/// Devices of 80 GiB and the processes on them.
#[derive(Debug, Clone)]
pub(crate) struct TestHost {
    pub(crate) now: Timestamp,
    /// The day that begins at time 0.
    pub(crate) midnight: Weekday,
    pub(crate) devices: Vec<TestDevice>,
    pub(crate) processes: BTreeMap<u32, TestProcess>,
}

#[derive(Debug, Clone)]
pub(crate) struct TestDevice {
    /// The device reports its processes.
    pub(crate) reports_processes: bool,
    pub(crate) is_present: bool,
    pub(crate) memory: Option<u64>,
    pub(crate) is_unified: bool,
    /// Used memory that belongs to no process.
    pub(crate) used: Option<u64>,
    pub(crate) utilization: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct TestProcess {
    pub(crate) facts: ProcessFacts,
    pub(crate) since: Timestamp,
    pub(crate) is_present: bool,
    pub(crate) connections: TestReading,
    pub(crate) cpu: CpuUse,
    /// By index of the device.
    pub(crate) uses: BTreeMap<usize, TestDeviceUse>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct TestDeviceUse {
    pub(crate) memory: TestReading,
    pub(crate) utilization: TestReading,
}

/// The result of reading a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestReading {
    Known(u64),
    Failed,
    Unsupported,
}

impl TestReading {
    fn gauge(self, ms: u64) -> Gauge {
        match self {
            Self::Known(value) => Gauge {
                max: Some(value),
                known_ms: ms,
                total: u128::from(value) * u128::from(ms),
                is_failed: false,
            },
            Self::Failed => Gauge {
                is_failed: true,
                ..Gauge::default()
            },
            Self::Unsupported => Gauge::default(),
        }
    }
}

/// The uid of alice is 1000, that of bob 1001, and so on. Any other name is no user of the
/// host.
pub(crate) fn person(name: &str) -> Person {
    let names = ["alice", "bob", "carol", "dave", "eve"];
    let uid = names.iter().zip(1000..).find(|(known, _)| **known == name);
    Person {
        name: name.to_owned(),
        uid: uid.map(|(_, uid)| uid),
    }
}

/// A process with every fact known that a rule may need.
pub(crate) fn process_facts(owner: &str) -> ProcessFacts {
    let owner = person(owner);
    ProcessFacts {
        user: owner.uid.map(|uid| (Some(owner.name.clone()), uid)),
        owner: Some(owner),
        in_host_user_namespace: Some(true),
        has_trusted_name: Some(true),
        groups: Some(Vec::new()),
        name: Some("python".into()),
        executable: Some("/usr/bin/python".into()),
        command: Some("python train.py".into()),
        image: Some(None),
        unit: Some(None),
        pod: Some(None),
        scheduler: Some(None),
        account: Some(None),
        job: None,
        is_orphaned: Some(false),
        nameless_uids: Vec::new(),
        is_contained: Some(false),
        suspected: Some(None),
        network: Some(NetworkRole::Private),
    }
}

impl TestHost {
    /// Starts at midnight of a Monday.
    pub(crate) fn new(devices: usize) -> Self {
        let device = TestDevice {
            reports_processes: true,
            is_present: true,
            memory: Some(80 * GIB),
            is_unified: false,
            used: Some(0),
            utilization: Some(0),
        };
        Self {
            now: Timestamp(0),
            midnight: Weekday::Monday,
            devices: vec![device; devices],
            processes: BTreeMap::new(),
        }
    }

    /// Starts a process now. It uses no device yet.
    pub(crate) fn start(&mut self, pid: u32, owner: &str) -> &mut TestProcess {
        let process = TestProcess {
            facts: process_facts(owner),
            since: self.now,
            is_present: true,
            connections: TestReading::Unsupported,
            cpu: CpuUse::default(),
            uses: BTreeMap::new(),
        };
        self.processes.entry(pid).insert_entry(process).into_mut()
    }

    pub(crate) fn process(&mut self, pid: u32) -> &mut TestProcess {
        self.processes.get_mut(&pid).expect("it was started")
    }

    pub(crate) fn local_time(&self) -> LocalTime {
        let minutes = self.now.0.div_euclid(MINUTE);
        let days = usize::try_from(minutes.div_euclid(1440)).expect("it is after 0");
        let first = Weekday::ALL.iter().position(|day| *day == self.midnight);
        LocalTime {
            day: Weekday::ALL[(first.expect("it is a day") + days) % 7],
            minute: u16::try_from(minutes.rem_euclid(1440)).expect("a day has 1440"),
        }
    }

    /// The sample of the next `ms` milliseconds.
    pub(crate) fn next_sample(&mut self, ms: u64) -> GuardSample {
        let (from, civil) = (self.now, self.local_time());
        self.now = Timestamp(from.0 + i64::try_from(ms).expect("it is short"));
        let device = |(index, device): (usize, &TestDevice)| {
            let held = self.processes.values().filter_map(|process| {
                match process.uses.get(&index)?.memory {
                    TestReading::Known(bytes) => Some(bytes),
                    TestReading::Failed | TestReading::Unsupported => None,
                }
            });
            let held: u64 = held.sum();
            let used = device
                .used
                .map_or(TestReading::Failed, |used| TestReading::Known(used + held));
            let load = device
                .utilization
                .map_or(TestReading::Failed, TestReading::Known);
            let device_sample = DeviceSample {
                index: u32::try_from(index).expect("there are few"),
                name: Some("NVIDIA H100".into()),
                pci: Some(format!("0000:{index:02x}:00.0")),
                memory: device.memory.map(Bytes),
                is_unified: device.is_unified,
                usage: DeviceUsage {
                    memory: used.gauge(ms),
                    utilization: load.gauge(ms),
                    held_ms: if device.reports_processes { ms } else { 0 },
                    busy_ms: if device.reports_processes { 0 } else { ms },
                    ..DeviceUsage::default()
                },
            };
            (DeviceId(format!("GPU-{index}")), device_sample)
        };
        let devices = &self.devices;
        let runs = self.processes.iter().flat_map(|(pid, process)| {
            let facts = Arc::new(process.facts.clone());
            let uses = process.uses.iter();
            let uses = uses.filter(move |(index, _)| devices[**index].is_present);
            uses.map(move |(index, usage)| {
                let run = RunKey {
                    pid: *pid,
                    start_ticks: u64::from(*pid) * 10,
                    device: DeviceId(format!("GPU-{index}")),
                    instance: None,
                };
                let run_sample = RunSample {
                    facts: Arc::clone(&facts),
                    first_seen: process.since,
                    usage: match devices[*index].reports_processes {
                        true => RunUsage {
                            held_ms: ms,
                            memory: usage.memory.gauge(ms),
                            utilization: usage.utilization.gauge(ms),
                            connections: process.connections.gauge(ms),
                            cpu: process.cpu,
                            ..RunUsage::default()
                        },
                        false => {
                            let mut usage = RunUsage::default();
                            usage.mark_unreported();
                            usage
                        }
                    },
                    is_present: process.is_present,
                };
                (Arc::new(run), run_sample)
            })
        });
        GuardSample {
            from,
            until: self.now,
            observed_ms: ms,
            local_time: civil,
            devices: {
                let there = devices.iter().enumerate();
                let there = there.filter(|(_, device)| device.is_present);
                there.map(device).collect()
            },
            runs: runs.collect(),
        }
    }
}

impl TestProcess {
    /// Holds this much memory of a device at this utilization.
    pub(crate) fn uses(&mut self, device: usize, gib: u64, percent: u64) -> &mut Self {
        let usage = TestDeviceUse {
            memory: TestReading::Known(gib * GIB),
            utilization: TestReading::Known(percent),
        };
        self.uses.insert(device, usage);
        self
    }

    pub(crate) fn memory(&mut self, device: usize, memory: TestReading) -> &mut Self {
        self.uses.get_mut(&device).expect("it uses it").memory = memory;
        self
    }

    pub(crate) fn utilization(&mut self, device: usize, utilization: TestReading) -> &mut Self {
        self.uses.get_mut(&device).expect("it uses it").utilization = utilization;
        self
    }

    /// Uses this much of a core, at least one step. `None` means not known.
    pub(crate) fn computes(&mut self, percent: Option<u32>) -> &mut Self {
        self.cpu = CpuUse::default();
        if let Some(percent) = percent {
            self.cpu.add(&Reading::Value(Percent(percent)));
        }
        self
    }

    pub(crate) fn connections(&mut self, connections: TestReading) -> &mut Self {
        self.connections = connections;
        self
    }

    /// Listens on this port, with this many clients.
    pub(crate) fn serves(&mut self, port: u16, clients: u64) -> &mut Self {
        self.facts.network = Some(NetworkRole::Service(vec![port]));
        self.connections(TestReading::Known(clients))
    }

    pub(crate) fn job(&mut self, job: &str) -> &mut Self {
        self.facts.job = Some((job.to_owned(), job.to_owned()));
        self
    }

    pub(crate) fn suspected(&mut self, suspected: Option<Option<VerdictSummary>>) -> &mut Self {
        self.facts.suspected = suspected;
        self
    }

    pub(crate) fn named(&mut self, name: &str) -> &mut Self {
        self.facts.name = Some(name.to_owned());
        self.facts.executable = Some(format!("/usr/bin/{name}"));
        self
    }
}

/// A guard that evaluates a simulated host.
pub(crate) struct TestGuard {
    pub(crate) compiled_rules: CompiledRules,
    pub(crate) state: GuardState,
}

impl TestGuard {
    pub(crate) fn new(rules: RuleSet) -> Self {
        Self {
            compiled_rules: CompiledRules::new(rules),
            state: GuardState::default(),
        }
    }

    /// Evaluates the next ten seconds. Chosen jobs are signalled at once; they end when the
    /// test says so.
    pub(crate) fn evaluate_next(&mut self, world: &mut TestHost) -> Evaluation {
        let evaluation = evaluate(
            &self.compiled_rules,
            &mut self.state,
            &world.next_sample(SAMPLE_MS),
        );
        for ending in self.state.enforcements(&evaluation.records) {
            self.state.mark_started(&ending);
        }
        evaluation
    }

    /// The records of this many samples of ten seconds.
    pub(crate) fn evaluate_samples(
        &mut self,
        world: &mut TestHost,
        samples: usize,
    ) -> Vec<GuardRecord> {
        (0..samples)
            .flat_map(|_| self.evaluate_next(world).records)
            .collect()
    }
}
