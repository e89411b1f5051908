//! The presets that ship, tried on a day of services as production has them: most of the
//! time they do nothing, work in bursts of a minute, and their clients connect only while
//! they ask. Beside them is a notebook that somebody forgot.
//!
//! What the services do is drawn from chains whose shares agree with a public trace of 143
//! services (samples each 57 s for 22.8 h, 67 % of them exactly 0 %, 40 % of the services
//! silent for two hours or more at least once).

use super::super::read::read;
use super::*;
use gpukill_proto::guard::{GuardStep, Person, RuleKind};
use gpukill_proto::snapshot::NetworkRole;
use std::collections::BTreeSet;

const SERVICES: u32 = 143;

/// Every third of them is tried: all of them take tests without optimisation a minute.
const STEP: u32 = 3;
const TRIED: usize = (SERVICES / STEP) as usize;

/// 57 s each: 22.8 hours.
const SAMPLES: usize = 1_440;
const SAMPLE_MS: u64 = 57_000;

const NOTEBOOK: u32 = 9_999;

/// A notebook that computes without its GPU.
const COMPUTING: u32 = 9_998;

/// Numbers that look like chance and are the same each time (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }
}

/// One service.
struct Service {
    chance: Chance,
    /// How likely a burst begins, and ends, in a sample; per mille.
    begins: u64,
    ends: u64,
    /// How likely it falls silent for hours.
    sleeps: u64,
    silent_for: u64,
    is_working: bool,
    keeps_client: bool,
    base_mib: u64,
    cache_mib: u64,
}

/// What a service does in one sample.
struct Sample {
    percent: u64,
    clients: u64,
    mib: u64,
}

impl Service {
    fn new(nth: u32) -> Self {
        let mut chance = Chance(u64::from(nth) + 1);
        // A third of the services is asked all the time, the others now and then.
        let (begins, ends) = match nth % 10 {
            0..=2 => (600, 60),
            3..=6 => (120, 600),
            _ => (40, 800),
        };
        Self {
            begins,
            ends,
            sleeps: if nth % 10 < 5 { 0 } else { 2 },
            silent_for: 0,
            is_working: false,
            keeps_client: nth % 5 == 4,
            base_mib: 2_048 + chance.below(56_000),
            cache_mib: 0,
            chance,
        }
    }

    fn next(&mut self) -> Sample {
        let chance = &mut self.chance;
        if self.silent_for > 0 {
            self.silent_for -= 1;
            self.is_working = false;
        } else if chance.happens(self.sleeps) {
            // Between two and eight hours.
            self.silent_for = 126 + chance.below(380);
            self.is_working = false;
        } else if self.is_working {
            self.is_working = !chance.happens(self.ends);
        } else {
            self.is_working = chance.happens(self.begins);
        }
        // Caches grow with requests and are given back at once.
        if self.is_working {
            self.cache_mib = (self.cache_mib + chance.below(900)).min(9_000);
        } else if chance.happens(30) {
            self.cache_mib = 0;
        }
        // A sample of connections sees a short request one time in four.
        let is_seen = self.is_working && chance.happens(250);
        Sample {
            percent: if self.is_working {
                5 + chance.below(90)
            } else {
                0
            },
            clients: u64::from(self.keeps_client || is_seen),
            mib: self.base_mib + self.cache_mib + chance.below(600),
        }
    }
}

/// What rules did to the services in a day, and when the notebook was ended.
#[derive(Debug, Default)]
struct Day {
    /// Services that were warned as idle or wasteful, and those that were ended for it.
    warned: BTreeSet<u32>,
    ended: BTreeSet<u32>,
    /// Services that may leak, by the rules.
    leaks: BTreeSet<u32>,
    /// Minutes.
    notebook_ended: Option<i64>,
    computing_ended: bool,
}

/// Which of all services is the nth that is tried.
fn of_all(nth: usize) -> u32 {
    u32::try_from(nth).expect("there are few") * STEP
}

fn start(world: &mut World, pid: u32, device: usize) -> &mut Process {
    let process = world.start(pid, "somebody").uses(device, 1, 0);
    process.about.owner = Some(Person {
        name: format!("user {pid}"),
        uid: Some(10_000 + pid),
    });
    process
}

fn day(rules: Rules) -> Day {
    let mut world = World::new(TRIED + 2);
    let mut services: Vec<Service> = (0..TRIED).map(|nth| Service::new(of_all(nth))).collect();
    for device in 0..TRIED {
        let pid = of_all(device);
        let process = start(&mut world, pid + 100, device);
        process.job(&format!("service {pid}")).serves(8000, 0);
    }
    // The server is connected to its kernel; no browser is.
    let notebook = start(&mut world, NOTEBOOK, TRIED);
    notebook.uses(TRIED, 16, 0).job("notebook");
    notebook.about.command = Some("python -m ipykernel_launcher -f kernel.json".into());
    notebook.about.network = Some(NetworkRole::Notebook(vec![8888]));
    notebook.connections(Told::Known(0)).computes(Some(3));
    // This one's kernel computes without its GPU.
    let computing = start(&mut world, COMPUTING, TRIED + 1);
    computing
        .uses(TRIED + 1, 16, 0)
        .job("computing")
        .computes(Some(98));
    computing.about.command = Some("python -m ipykernel_launcher -f other.json".into());
    computing.about.network = Some(NetworkRole::Notebook(vec![8888]));
    computing.connections(Told::Known(0));
    let mut guard = Guard::new(rules);
    let mut day = Day::default();
    for _ in 0..SAMPLES {
        for (device, service) in services.iter_mut().enumerate() {
            let pid = 100 + of_all(device);
            let Some(process) = world.processes.get_mut(&pid) else {
                continue;
            };
            let sample = service.next();
            process.uses(device, 0, sample.percent);
            process.memory(device, Told::Known(sample.mib << 20));
            process.connections(Told::Known(sample.clients));
        }
        let bucket = world.bucket(SAMPLE_MS);
        let judgement = super::super::judge::judge(&guard.book, &mut guard.memory, &bucket);
        for ending in guard.memory.endings(&judgement.records) {
            guard.memory.begins(&ending);
        }
        for record in judgement.records {
            let pids = record.evidence.runs.iter().map(|told| told.run.pid);
            let services = pids.filter(|pid| ![NOTEBOOK, COMPUTING].contains(pid));
            match (&record.step, record.rule.kind) {
                (GuardStep::Ended(victim), _) => {
                    for told in &victim.runs {
                        world.processes.remove(&told.run.pid);
                        match told.run.pid {
                            NOTEBOOK => day.notebook_ended = Some(record.at.0 / 60_000),
                            COMPUTING => day.computing_ended = true,
                            service => _ = day.ended.insert(service),
                        }
                    }
                }
                (GuardStep::Warned { .. }, RuleKind::Growth) => day.leaks.extend(services),
                (GuardStep::Warned { .. }, _) => day.warned.extend(services),
                _ => {}
            }
        }
    }
    day
}

/// A preset, carried out. Limits of memory, time and number are not what is tried here.
fn preset(text: &str) -> Rules {
    let mut rules = read(text).expect("it ships");
    rules.mode = rules.rehearsed.mode();
    rules.defaults.memory = None;
    rules.defaults.duration = None;
    rules.defaults.processes = None;
    rules.times.clear();
    // Everything at once ends more than the breaker lets.
    rules.enforcement.max_ended = 1_000;
    rules
}

/// Every idle job is ended, services as well.
fn idle(limit: u64) -> Rules {
    let conduct = Conduct::Idle {
        limit: minutes(limit),
        min_memory: Bytes(0),
        with_connections: false,
        cpu_below: None,
    };
    let mut rules = Rules {
        mode: GuardMode::Soft,
        behaviours: vec![Behaviour {
            ends_services: true,
            ..behaviour("idle", conduct)
        }],
        ..rules()
    };
    rules.enforcement.max_ended = 1_000;
    rules
}

#[test]
fn the_services_are_as_idle_as_those_of_the_trace() {
    let (mut zeros, mut all, mut silent) = (0_usize, 0_usize, 0_usize);
    for nth in 0..SERVICES {
        let mut service = Service::new(nth);
        let (mut run, mut longest) = (0_u64, 0_u64);
        for _ in 0..SAMPLES {
            let is_zero = service.next().percent == 0;
            run = if is_zero { run + 1 } else { 0 };
            longest = longest.max(run);
            zeros += usize::from(is_zero);
            all += 1;
        }
        silent += usize::from(longest * SAMPLE_MS >= 7_200_000);
    }
    let (zeros, silent) = (zeros * 100 / all, silent * 100 / SERVICES as usize);
    assert!((60..75).contains(&zeros), "{zeros} %");
    assert!((33..48).contains(&silent), "{silent} %");
}

#[test]
fn no_preset_ends_a_service_and_each_ends_the_forgotten_notebook() {
    for (name, text) in [
        ("lab", include_str!("../../../../packaging/guard/lab.toml")),
        (
            "team",
            include_str!("../../../../packaging/guard/team.toml"),
        ),
        (
            "strict",
            include_str!("../../../../packaging/guard/strict.toml"),
        ),
    ] {
        let day = day(preset(text));
        assert_eq!(day.ended, BTreeSet::new(), "{name}: {day:?}");
        assert!(day.leaks.len() <= TRIED / 20, "{name}: {day:?}");
        let notebook = day.notebook_ended.expect("it is idle");
        assert!(notebook <= 130, "{name}: {notebook} min");
        // The strict one has no rule for notebooks: each job has fifteen minutes.
        assert_eq!(day.computing_ended, name == "strict", "{name}");
    }
}

#[test]
fn a_rule_that_ends_services_ends_many_that_are_asked_later() {
    let day = day(idle(120));
    assert!(day.ended.len() >= TRIED / 4, "{day:?}");
}
