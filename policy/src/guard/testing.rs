//! A box whose processes do what a test says, bucket by bucket.

use super::bucket::{About, Bucket, Judged, JudgedDevice};
use super::judge::{Judgement, Rulebook, judge};
use super::memory::Memory;
use super::rules::Rules;
use super::schedule::{Civil, Day};
use crate::usage::{CpuUse, DeviceUsage, Gauge, RunUsage};
use gpukill_proto::guard::{GuardRecord, JudgedRun, Person};
use gpukill_proto::reading::Reading;
use gpukill_proto::rogue::Suspected;
use gpukill_proto::snapshot::{DeviceId, NetworkRole};
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A bucket's length in milliseconds.
pub(crate) const TEN_SECONDS: u64 = 10_000;

const MINUTE: i64 = 60_000;

pub(crate) const GIB: u64 = 1 << 30;

/// Devices of 80 GiB, and processes on them.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    /// What the wall shows at moment 0.
    pub(crate) midnight: Day,
    pub(crate) devices: Vec<Device>,
    pub(crate) processes: BTreeMap<u32, Process>,
}

#[derive(Debug, Clone)]
pub(crate) struct Device {
    /// It tells who uses it.
    pub(crate) is_listed: bool,
    /// It is there.
    pub(crate) is_there: bool,
    pub(crate) memory: Option<u64>,
    pub(crate) is_unified: bool,
    /// Besides what processes hold.
    pub(crate) used: Option<u64>,
    pub(crate) utilization: Option<u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) about: About,
    pub(crate) since: Timestamp,
    pub(crate) is_present: bool,
    pub(crate) connections: Told,
    pub(crate) cpu: CpuUse,
    /// By index of the device.
    pub(crate) uses: BTreeMap<usize, Use>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    pub(crate) memory: Told,
    pub(crate) utilization: Told,
}

/// What a poll finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Known(u64),
    Failed,
    Unsupported,
}

impl Told {
    fn gauge(self, ms: u64) -> Gauge {
        match self {
            Self::Known(value) => Gauge {
                most: Some(value),
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

/// alice is user 1000, and so on; who has no number is no user of the box.
pub(crate) fn person(name: &str) -> Person {
    let names = ["alice", "bob", "carol", "dave", "eve"];
    let uid = names.iter().zip(1000..).find(|(known, _)| **known == name);
    Person {
        name: name.to_owned(),
        uid: uid.map(|(_, uid)| uid),
    }
}

/// A process of which everything is known that a rule may ask for.
pub(crate) fn about(owner: &str) -> About {
    let owner = person(owner);
    About {
        user: owner.uid.map(|uid| (Some(owner.name.clone()), uid)),
        owner: Some(owner),
        login_uid: Some(None),
        is_of_the_box: Some(true),
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
        nameless: Vec::new(),
        login_name: None,
        login_groups: None,
        is_contained: Some(false),
        suspected: Some(None),
        network: Some(NetworkRole::Private),
    }
}

impl World {
    /// A Monday's midnight.
    pub(crate) fn new(devices: usize) -> Self {
        let device = Device {
            is_listed: true,
            is_there: true,
            memory: Some(80 * GIB),
            is_unified: false,
            used: Some(0),
            utilization: Some(0),
        };
        Self {
            now: Timestamp(0),
            midnight: Day::Monday,
            devices: vec![device; devices],
            processes: BTreeMap::new(),
        }
    }

    /// One that begins now, and uses no device yet.
    pub(crate) fn start(&mut self, pid: u32, owner: &str) -> &mut Process {
        let process = Process {
            about: about(owner),
            since: self.now,
            is_present: true,
            connections: Told::Unsupported,
            cpu: CpuUse::default(),
            uses: BTreeMap::new(),
        };
        self.processes.entry(pid).insert_entry(process).into_mut()
    }

    pub(crate) fn process(&mut self, pid: u32) -> &mut Process {
        self.processes.get_mut(&pid).expect("it was started")
    }

    pub(crate) fn civil(&self) -> Civil {
        let minutes = self.now.0.div_euclid(MINUTE);
        let days = usize::try_from(minutes.div_euclid(1440)).expect("it is after 0");
        let first = Day::ALL.iter().position(|day| *day == self.midnight);
        Civil {
            day: Day::ALL[(first.expect("it is a day") + days) % 7],
            minute: u16::try_from(minutes.rem_euclid(1440)).expect("a day has 1440"),
        }
    }

    /// What is seen in the next so many milliseconds.
    pub(crate) fn bucket(&mut self, ms: u64) -> Bucket {
        let (from, civil) = (self.now, self.civil());
        self.now = Timestamp(from.0 + i64::try_from(ms).expect("it is short"));
        let device = |(index, device): (usize, &Device)| {
            let held = self.processes.values().filter_map(|process| {
                match process.uses.get(&index)?.memory {
                    Told::Known(bytes) => Some(bytes),
                    Told::Failed | Told::Unsupported => None,
                }
            });
            let held: u64 = held.sum();
            let used = device
                .used
                .map_or(Told::Failed, |used| Told::Known(used + held));
            let load = device.utilization.map_or(Told::Failed, Told::Known);
            let judged = JudgedDevice {
                index: u32::try_from(index).expect("there are few"),
                name: Some("NVIDIA H100".into()),
                pci: Some(format!("0000:{index:02x}:00.0")),
                memory: device.memory.map(Bytes),
                is_unified: device.is_unified,
                usage: DeviceUsage {
                    memory: used.gauge(ms),
                    utilization: load.gauge(ms),
                    held_ms: if device.is_listed { ms } else { 0 },
                    busy_ms: if device.is_listed { 0 } else { ms },
                    ..DeviceUsage::default()
                },
            };
            (DeviceId(format!("GPU-{index}")), judged)
        };
        let devices = &self.devices;
        let runs = self.processes.iter().flat_map(|(pid, process)| {
            let about = Arc::new(process.about.clone());
            let uses = process.uses.iter();
            let uses = uses.filter(move |(index, _)| devices[**index].is_there);
            uses.map(move |(index, usage)| {
                let run = JudgedRun {
                    pid: *pid,
                    start_ticks: u64::from(*pid) * 10,
                    device: DeviceId(format!("GPU-{index}")),
                    instance: None,
                };
                let judged = Judged {
                    about: Arc::clone(&about),
                    first_seen: process.since,
                    usage: match devices[*index].is_listed {
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
                            usage.is_untold();
                            usage
                        }
                    },
                    is_present: process.is_present,
                };
                (Arc::new(run), judged)
            })
        });
        Bucket {
            from,
            until: self.now,
            seen_ms: ms,
            civil,
            devices: {
                let there = devices.iter().enumerate();
                let there = there.filter(|(_, device)| device.is_there);
                there.map(device).collect()
            },
            runs: runs.collect(),
        }
    }
}

impl Process {
    /// Holds so many GiB of a device, and works it to so many percent.
    pub(crate) fn uses(&mut self, device: usize, gib: u64, percent: u64) -> &mut Self {
        let usage = Use {
            memory: Told::Known(gib * GIB),
            utilization: Told::Known(percent),
        };
        self.uses.insert(device, usage);
        self
    }

    pub(crate) fn memory(&mut self, device: usize, memory: Told) -> &mut Self {
        self.uses.get_mut(&device).expect("it uses it").memory = memory;
        self
    }

    pub(crate) fn utilization(&mut self, device: usize, utilization: Told) -> &mut Self {
        self.uses.get_mut(&device).expect("it uses it").utilization = utilization;
        self
    }

    /// Takes so much of a core, at least a step; `None` is not known.
    pub(crate) fn computes(&mut self, percent: Option<u32>) -> &mut Self {
        self.cpu = CpuUse::default();
        if let Some(percent) = percent {
            self.cpu.add(&Reading::Value(Percent(percent)));
        }
        self
    }

    pub(crate) fn connections(&mut self, connections: Told) -> &mut Self {
        self.connections = connections;
        self
    }

    /// A service on this port, with so many clients.
    pub(crate) fn serves(&mut self, port: u16, clients: u64) -> &mut Self {
        self.about.network = Some(NetworkRole::Service(vec![port]));
        self.connections(Told::Known(clients))
    }

    pub(crate) fn job(&mut self, job: &str) -> &mut Self {
        self.about.job = Some((job.to_owned(), job.to_owned()));
        self
    }

    pub(crate) fn suspected(&mut self, suspected: Option<Option<Suspected>>) -> &mut Self {
        self.about.suspected = suspected;
        self
    }

    pub(crate) fn named(&mut self, name: &str) -> &mut Self {
        self.about.name = Some(name.to_owned());
        self.about.executable = Some(format!("/usr/bin/{name}"));
        self
    }
}

/// A guard that looks at a world.
pub(crate) struct Guard {
    pub(crate) book: Rulebook,
    pub(crate) memory: Memory,
}

impl Guard {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            book: Rulebook::of(rules),
            memory: Memory::default(),
        }
    }

    /// What comes of the next ten seconds. Whoever is to be ended gets their signals at
    /// once, and goes when the world says so.
    pub(crate) fn looks(&mut self, world: &mut World) -> Judgement {
        let judgement = judge(&self.book, &mut self.memory, &world.bucket(TEN_SECONDS));
        for ending in self.memory.endings(&judgement.records) {
            self.memory.begins(&ending);
        }
        judgement
    }

    /// What is decided in so many buckets of ten seconds.
    pub(crate) fn watches(&mut self, world: &mut World, buckets: usize) -> Vec<GuardRecord> {
        (0..buckets)
            .flat_map(|_| self.looks(world).records)
            .collect()
    }
}
