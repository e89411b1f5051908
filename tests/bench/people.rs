//! A simulated box over a month: 8 GPUs with 8 processes each. A process lives two hours on
//! average. Three of four processes work, with a utilization that changes at each poll; the
//! others hold memory and are idle. One of 500 belongs to a rare user, in a container and job
//! of its own.

use gpukill_proto::model::{
    Container, ContainerId, Device, DeviceId, GpuProcess, Job, Owner, OwnerKind, Snapshot, Vendor,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Celsius, Milliwatts, Percent, Timestamp};

const GPUS: u32 = 8;
const PROCESSES_PER_GPU: u32 = 8;

/// Two hours in polls, with a poll every 2 s.
const MEAN_LIFE_POLLS: u32 = 3_600;

/// One of this many processes belongs to a rare user.
const RARE_USER_INTERVAL: u32 = 500;

/// The simulated box.
pub(crate) struct EightGpuBox {
    random: Random,
    next_pid: u32,
    processes: Vec<RunningProcess>,
}

struct RunningProcess {
    process: GpuProcess,
    works: bool,
    utilization: u32,
}

impl EightGpuBox {
    pub(crate) fn new() -> Self {
        let mut people = Self {
            random: Random(0x9e37_79b9_7f4a_7c15),
            next_pid: 1_000,
            processes: Vec::new(),
        };
        for slot in 0..GPUS * PROCESSES_PER_GPU {
            let process = people.start_process(slot / PROCESSES_PER_GPU, Timestamp(0));
            people.processes.push(process);
        }
        people
    }

    /// The snapshot of a poll at this time.
    pub(crate) fn poll(&mut self, at: Timestamp) -> Snapshot {
        for slot in 0..self.processes.len() {
            if self.random.below(MEAN_LIFE_POLLS) == 0 {
                let gpu = u32::try_from(slot).unwrap() / PROCESSES_PER_GPU;
                self.processes[slot] = self.start_process(gpu, at);
            }
            let step = self.random.below(11);
            let grows = self.random.below(300) == 0;
            let running = &mut self.processes[slot];
            if running.works {
                running.utilization = (running.utilization + step).saturating_sub(5).min(12);
                running.process.utilization = Reading::Value(Percent(running.utilization));
                if grows && let Reading::Value(memory) = &mut running.process.memory {
                    memory.0 += Bytes::mib(2).0;
                }
            }
        }
        Snapshot {
            host: "box".into(),
            taken_at: at,
            polls: 1,
            devices: (0..GPUS).map(|gpu| self.device(gpu)).collect(),
            processes: self.processes.iter().map(|it| it.process.clone()).collect(),
            backends: Vec::new(),
            faults: Vec::new(),
        }
    }

    fn start_process(&mut self, gpu: u32, at: Timestamp) -> RunningProcess {
        self.next_pid += 1;
        let works = self.random.below(4) > 0;
        let user = self.random.below(20);
        let why = Reading::Unsupported;
        let mut process = GpuProcess {
            start_ticks: Reading::Value(u64::from(self.next_pid) * 7),
            started_at: Reading::Value(at),
            memory: Reading::Value(Bytes::mib(512 + u64::from(self.random.below(8_000)))),
            utilization: Reading::Value(Percent(0)),
            uid: Reading::Value(1_000 + user),
            user: Reading::Value(format!("user{user}")),
            owner: Reading::Value(Owner {
                name: format!("user{user}"),
                uid: Some(1_000 + user),
                kind: OwnerKind::User,
            }),
            name: Reading::Value("python".into()),
            executable: Reading::Value("/usr/bin/python3.11".into()),
            command: Reading::Value(format!(
                "python train_{}.py --model llama-70b --batch-size 32 --lr 0.0003",
                self.random.below(40)
            )),
            ..GpuProcess::unknown(id(gpu), self.next_pid, at, &why)
        };
        if self.next_pid.is_multiple_of(RARE_USER_INTERVAL) {
            assign_rare_user(&mut process);
        }
        RunningProcess {
            process,
            works,
            utilization: 0,
        }
    }

    fn device(&mut self, gpu: u32) -> Device {
        let mut device = Device::unknown(id(gpu), gpu, Vendor::Nvidia, &Reading::Unsupported);
        let here = self.processes.iter().map(|it| &it.process);
        let here = here.filter(|process| process.device == device.id);
        let memory: u64 = here.filter_map(|it| it.memory.known()).map(|it| it.0).sum();
        device.name = Reading::Value("NVIDIA H100 80GB HBM3".into());
        device.memory_total = Reading::Value(Bytes(80 << 30));
        device.memory_used = Reading::Value(Bytes(memory + (600 << 20)));
        device.memory_unattributed = Reading::Value(Bytes(0));
        device.vitals.utilization = Reading::Value(Percent(90 + self.random.below(11)));
        let celsius = 65 + self.random.below(8);
        device.vitals.temperature = Reading::Value(Celsius(celsius.cast_signed()));
        let milliwatts = 600_000 + self.random.below(90_000);
        device.vitals.power = Reading::Value(Milliwatts(milliwatts.into()));
        device
    }
}

fn assign_rare_user(process: &mut GpuProcess) {
    process.uid = Reading::Value(2_000);
    process.user = Reading::Value("rare".into());
    process.owner = Reading::Value(Owner {
        name: "rare".into(),
        uid: Some(2_000),
        kind: OwnerKind::User,
    });
    process.name = Reading::Value("julia".into());
    let id = ContainerId {
        runtime: "docker".into(),
        id: "0123456789ab".into(),
    };
    process.job = Reading::Value(Job::Container {
        id: id.clone(),
        manager: None,
    });
    process.location.container = Reading::Value(Some(Container {
        id,
        manager: None,
        name: Reading::Value("rarely".into()),
        image: Reading::Unsupported,
        pod: None,
    }));
}

fn id(gpu: u32) -> DeviceId {
    DeviceId(format!("GPU-8f3c0000-0000-0000-0000-00000000000{gpu}"))
}

/// A xorshift generator with the same numbers in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from((self.0 >> 33) % u64::from(end)).unwrap()
    }
}
