//! For any sequence of polls, a replay of the stored samples equals the live evaluation, event for
//! event.

use super::*;
use crate::poll::sampler::{Sampler, SamplerInput};
use crate::store::RogueSuspicions;
use gpukill_policy::guard::replay::Replay;
use gpukill_policy::guard::rules::parse::parse;
use gpukill_policy::guard::{CompiledRules, GuardState, evaluate};
use gpukill_proto::guard::{GuardRecord, RuleKind};
use gpukill_proto::rogue::{Risk, Threat, VerdictSummary};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;
use std::iter;
use tempfile::TempDir;

/// An event between two polls that changes a process or a device.
#[derive(Debug, Clone)]
enum StreamEvent {
    /// Starts or stops using a device.
    Uses(usize, usize),
    Holds(usize, Option<u64>),
    Works(usize, Option<u32>),
    Connects(usize, Option<u32>),
    Executes(usize, bool),
    OwnerIsKnown(usize, bool),
    HasVerdict(usize, Option<Option<VerdictSummary>>),
    Ends(usize),
    /// The process cannot be read for a moment, although it is alive.
    IsRead(usize, bool),
    Lists(usize, bool),
    IsThere(usize, bool),
    IsFresh(usize, bool),
    TellsItsMemory(usize, bool),
    Load(usize, Option<u32>),
    /// No polls for this many seconds.
    Gap(u64),
}

const PROCESSES: usize = 5;

const DEVICES: usize = 2;

fn event_strategy() -> impl Strategy<Value = StreamEvent> {
    use StreamEvent::*;
    let (process, device) = (|| 0..PROCESSES, || 0..DEVICES);
    let rarely_not = || prop::bool::weighted(0.8);
    prop_oneof![
        8 => (process(), device()).prop_map(|(it, at)| Uses(it, at)),
        3 => (process(), prop::option::weighted(0.8, 0..9_u64)).prop_map(|(it, gib)| Holds(it, gib)),
        3 => (process(), prop::option::weighted(0.8, 0..100_u32)).prop_map(|(it, to)| Works(it, to)),
        1 => (process(), prop::option::of(0..2_u32)).prop_map(|(it, many)| Connects(it, many)),
        2 => (process(), any::<bool>()).prop_map(|(it, other)| Executes(it, other)),
        1 => (process(), rarely_not()).prop_map(|(it, is)| OwnerIsKnown(it, is)),
        6 => (process(), verdict_strategy()).prop_map(|(it, verdict)| HasVerdict(it, verdict)),
        1 => process().prop_map(Ends),
        1 => (process(), rarely_not()).prop_map(|(it, is)| IsRead(it, is)),
        1 => (device(), rarely_not()).prop_map(|(at, does)| Lists(at, does)),
        1 => (device(), rarely_not()).prop_map(|(at, is)| IsThere(at, is)),
        1 => (device(), rarely_not()).prop_map(|(at, is)| IsFresh(at, is)),
        1 => (device(), rarely_not()).prop_map(|(at, does)| TellsItsMemory(at, does)),
        1 => (device(), prop::option::of(0..100_u32)).prop_map(|(at, to)| Load(at, to)),
        1 => prop_oneof![Just(600), Just(20), Just(7)].prop_map(Gap),
    ]
}

/// The verdict of the watch for rogues: usually present, and usually one that may be acted on.
fn verdict_strategy() -> impl Strategy<Value = Option<Option<VerdictSummary>>> {
    let risk = prop::sample::select(&Risk::ALL[1..]);
    let threat = prop::sample::select(&Threat::ALL[..3]);
    let suspected = (risk, threat, prop::bool::weighted(0.8));
    let suspected = suspected.prop_map(|(risk, threat, may_be_acted_on)| VerdictSummary {
        risk,
        threat,
        is_actionable: may_be_acted_on,
    });
    prop::option::weighted(0.8, prop::option::weighted(0.8, suspected))
}

struct StreamProcess {
    pid: u32,
    uses: [bool; DEVICES],
    lives: bool,
    is_other: bool,
    is_owner_known: bool,
    memory: Option<u64>,
    utilization: Option<u32>,
    connections: Option<u32>,
    suspected: Option<Option<VerdictSummary>>,
}

struct StreamCard {
    lists: bool,
    is_there: bool,
    is_fresh: bool,
    tells_its_memory: bool,
    load: Option<u32>,
}

/// A host and its sampler.
struct StreamFixture {
    procfs: TempDir,
    processes: Vec<StreamProcess>,
    cards: Vec<StreamCard>,
    at: u64,
    gatherer: Sampler,
}

impl StreamFixture {
    fn new() -> Self {
        let procfs = tempfile::tempdir().unwrap();
        let pids = (0..PROCESSES).map(|at| 100 + u32::try_from(at).unwrap());
        let processes = pids.map(|pid| StreamProcess {
            pid,
            uses: [pid % 2 == 0, pid % 3 == 0],
            lives: true,
            is_other: false,
            is_owner_known: true,
            memory: Some(3),
            utilization: Some(0),
            connections: None,
            suspected: None,
        });
        let cards = (0..DEVICES).map(|_| StreamCard {
            lists: true,
            is_there: true,
            is_fresh: true,
            tells_its_memory: true,
            load: Some(50),
        });
        let fixture = Self {
            gatherer: Sampler::new(procfs.path().to_owned()),
            procfs,
            processes: processes.collect(),
            cards: cards.collect(),
            at: 1_000,
        };
        for process in &fixture.processes {
            fixture.set_readable(process.pid, true);
        }
        fixture
    }

    fn set_readable(&self, pid: u32, is_read: bool) {
        let directory = self.procfs.path().join(pid.to_string());
        if is_read {
            let start_ticks = pid * 10;
            let rest = format!("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 {start_ticks} 0 0");
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("stat"), format!("{pid} (x) S 1 {rest}")).unwrap();
        } else if directory.exists() {
            std::fs::remove_dir_all(directory).unwrap();
        }
    }

    fn apply(&mut self, happens: &StreamEvent) {
        use StreamEvent::*;
        match *happens {
            Uses(it, at) => {
                let process = &mut self.processes[it];
                process.uses[at] = process.lives && !process.uses[at];
            }
            Holds(it, gib) => self.processes[it].memory = gib,
            Works(it, to) => self.processes[it].utilization = to,
            Connects(it, many) => self.processes[it].connections = many,
            Executes(it, other) => self.processes[it].is_other = other,
            OwnerIsKnown(it, is) => self.processes[it].is_owner_known = is,
            HasVerdict(it, verdict) => self.processes[it].suspected = verdict,
            Ends(it) => {
                let process = &mut self.processes[it];
                (process.lives, process.uses) = (false, [false; DEVICES]);
                let pid = process.pid;
                self.set_readable(pid, false);
            }
            IsRead(it, is) => {
                let process = &self.processes[it];
                self.set_readable(process.pid, is && process.lives);
            }
            Lists(at, does) => self.cards[at].lists = does,
            IsThere(at, is) => self.cards[at].is_there = is,
            IsFresh(at, is) => self.cards[at].is_fresh = is,
            TellsItsMemory(at, does) => self.cards[at].tells_its_memory = does,
            Load(at, to) => self.cards[at].load = to,
            Gap(seconds) => self.at += seconds,
        }
    }

    /// The verdicts on the processes that use a device.
    fn suspected(&self) -> RogueSuspicions {
        let using = self.processes.iter().filter(|it| it.uses.contains(&true));
        let verdicts = using.filter_map(|it| Some((known_process(it.pid).key()?, it.suspected?)));
        verdicts.collect()
    }

    fn poll(&mut self) -> Vec<Sample> {
        self.at += 2;
        let taken_at = Timestamp(i64::try_from(self.at).unwrap() * 1_000);
        let cards = self.cards.iter().enumerate();
        let there: Vec<(usize, &StreamCard)> = cards.filter(|(_, card)| card.is_there).collect();
        let devices = there.iter().map(|(at, card)| card.device(*at));
        let processes = there.iter().filter(|(_, card)| card.lists);
        let processes = processes.flat_map(|(at, _)| {
            let using = self.processes.iter().filter(|it| it.uses[*at]);
            using.map(|it| it.to_gpu_process(*at))
        });
        let snapshot = Arc::new(Snapshot {
            host: String::new(),
            taken_at,
            polls: self.at,
            devices: devices.collect(),
            processes: processes.collect(),
            backends: Vec::new(),
            faults: Vec::new(),
        });
        self.gatherer.add(&SamplerInput {
            snapshot: &snapshot,
            groups: &Arc::new([(1000, vec!["ml".to_owned()])].into()),
            accounts: &Arc::default(),
            suspected: &Arc::new(self.suspected()),
            at: Duration::from_secs(self.at),
            interval: Duration::from_secs(2),
            sample_interval: Duration::from_secs(10),
        })
    }
}

fn failed<T>() -> Reading<T> {
    Reading::Failed("unknown error".into())
}

fn reading<T>(value: Option<T>) -> Reading<T> {
    value.map_or_else(failed, Reading::Value)
}

impl StreamCard {
    fn device(&self, at: usize) -> Device {
        let used = Bytes(40 << 30);
        let count = if self.lists {
            Reading::Value(1)
        } else {
            failed()
        };
        let mut device = Device {
            id: id(at),
            index: u32::try_from(at).unwrap(),
            memory_total: reading(self.tells_its_memory.then_some(Bytes(80 << 30))),
            memory_used: match self.is_fresh {
                true => Reading::Value(used),
                false => Reading::Stale(used, 5),
            },
            process_count: count,
            ..device(0)
        };
        device.vitals.utilization = reading(self.load.map(Percent));
        device
    }
}

impl StreamProcess {
    fn to_gpu_process(&self, at: usize) -> GpuProcess {
        let all = known_process(self.pid);
        let uid = 1000 + self.pid % 2;
        let owner = Owner {
            name: format!("user{uid}"),
            uid: Some(uid),
            kind: OwnerKind::User,
        };
        let name = if self.is_other { "other" } else { "python" };
        GpuProcess {
            device: id(at),
            owner: reading(self.is_owner_known.then_some(owner)),
            uid: Reading::Value(uid),
            user: Reading::Value(format!("user{uid}")),
            name: Reading::Value(name.into()),
            memory: reading(self.memory.map(|gib| Bytes(gib << 30))),
            utilization: reading(self.utilization.map(Percent)),
            connections: self
                .connections
                .map_or(Reading::Unsupported, Reading::Value),
            ..all
        }
    }
}

fn id(at: usize) -> DeviceId {
    DeviceId(format!("GPU-{at}"))
}

const RULES: &str = r#"
[global]
enabled = true
dry_run = true
default_memory_limit_gb = 7
default_max_concurrent_processes = 2
default_duration_limit_hours = 0.02
default_utilization_limit_pct = 60

[enforcement]
settled_after_minutes = 1
utilization_window_minutes = 1
grace_period_seconds = 40

[gpu_policies."0"]
max_memory_gb = 5
reserved_memory_gb = 41
blocked_processes = ["other"]

[[rules]]
name = "idle"
idle_limit_minutes = 1

[[rules]]
name = "waste"
waste_below_pct = 30
waste_min_memory_gb = 1
waste_hours = 0.03

[[rules]]
name = "runaway"
runaway_above_pct = 50
runaway_minutes = 1

[[rules]]
name = "rogue"
rogue_risk = "high"
"#;

/// The live evaluation of these polls, and a replay of the same.
fn live_and_stored(
    rules: &str,
    polls: &[Vec<StreamEvent>],
) -> [(Vec<GuardSample>, Vec<GuardRecord>); 2] {
    let rules = parse(rules).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut recording = BenchRecorder::open(directory.path()).unwrap();
    let mut fixture = StreamFixture::new();
    let (compiled, mut memory) = (CompiledRules::new(rules.clone()), GuardState::default());
    let (mut history, mut live, mut records) = (SampleHistory::default(), Vec::new(), Vec::new());
    // At first each device reports its facts. The store may learn the facts of a silent device
    // later, and a replay would then know more than the live evaluation.
    for poll in iter::once(&Vec::new()).chain(polls) {
        for happens in poll {
            fixture.apply(happens);
        }
        for sample in fixture.poll() {
            recording.write(&sample).unwrap();
            let guard_sample = to_guard_sample(&sample, &mut history, &Utc);
            records.extend(evaluate(&compiled, &mut memory, &guard_sample).records);
            live.push(guard_sample);
        }
    }
    let stored = test_rows::guard_samples(directory.path());
    let mut replay = Replay::new(rules, Timestamp(0));
    for guard_sample in &stored {
        replay.add(guard_sample).unwrap();
    }
    let replayed = replay.finish();
    // A replay omits a violation that ends with it and is not settled yet.
    let mut open = memory.violations();
    open.retain(|it| it.not_broken_since.is_none());
    assert_eq!(replayed.open, open);
    [(live, records), (stored, replayed.records)]
}

#[test]
fn replay_equals_live_evaluation() {
    let poll = || prop::collection::vec(event_strategy(), 0..3);
    let polls = || prop::collection::vec(poll(), 30..150);
    let mut runner = TestRunner::new(Config {
        cases: 32,
        ..Config::default()
    });
    let (record_count, of_rogues) = (Cell::new(0), Cell::new(0));
    for at_once in ["", "hard_enforcement = true\nsoft_enforcement = false\n"] {
        let rules = RULES.replace("[enforcement]\n", &format!("[enforcement]\n{at_once}"));
        let tried = runner.run(&polls(), |polls| {
            let [live, stored] = live_and_stored(&rules, &polls);
            prop_assert_eq!(&live.0, &stored.0);
            prop_assert_eq!(&live.1, &stored.1);
            record_count.set(record_count.get() + live.1.len());
            let is_of_rogues = |it: &&GuardRecord| it.rule.kind == RuleKind::Rogue;
            of_rogues.set(of_rogues.get() + live.1.iter().filter(is_of_rogues).count());
            Ok(())
        });
        tried.unwrap();
    }
    // Most rules produce events.
    assert!(record_count.get() > 500, "{}", record_count.get());
    assert!(of_rogues.get() > 30, "{}", of_rogues.get());
}
