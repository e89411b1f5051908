//! The shipped presets on a day of production services: most of the time they are idle,
//! they work in bursts of a minute, and clients connect only during a request. Beside them
//! runs a forgotten notebook.
//!
//! The services follow random chains. Their shares agree with a public trace of 143 services
//! (samples every 57 s for 22.8 h, 67 % of them exactly 0 %, 40 % of the services silent
//! for two hours or more at least once).

use super::super::rules::parse::parse;
use super::*;
use gpukill_proto::guard::{GuardStep, Person, RuleKind};
use gpukill_proto::model::NetworkRole;
use std::collections::BTreeSet;

const SERVICES: u32 = 143;

/// Every third service is simulated: all of them take a minute without optimisation.
const STEP: u32 = 3;
const SIMULATED: usize = (SERVICES / STEP) as usize;

/// At 57 s each: 22.8 hours.
const SAMPLES: usize = 1_440;
const SAMPLE_MS: u64 = 57_000;

const NOTEBOOK: u32 = 9_999;

/// A notebook that computes without its GPU.
const COMPUTING: u32 = 9_998;

/// A reproducible sequence of pseudo-random numbers (splitmix64).
struct PseudoRandom(u64);

impl PseudoRandom {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn happens(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }
}

struct ServiceModel {
    chance: PseudoRandom,
    /// The probability that a burst begins, and ends, in a sample; per mille.
    begins: u64,
    ends: u64,
    /// The probability of falling silent for hours.
    sleeps: u64,
    silent_for: u64,
    is_working: bool,
    keeps_client: bool,
    base_mib: u64,
    cache_mib: u64,
}

/// What a service does in one sample.
struct ServiceSample {
    percent: u64,
    clients: u64,
    mib: u64,
}

impl ServiceModel {
    fn new(nth: u32) -> Self {
        let mut chance = PseudoRandom(u64::from(nth) + 1);
        // A third of the services has requests all the time, the others now and then.
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

    fn next(&mut self) -> ServiceSample {
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
        // Caches grow with requests and are released at once.
        if self.is_working {
            self.cache_mib = (self.cache_mib + chance.below(900)).min(9_000);
        } else if chance.happens(30) {
            self.cache_mib = 0;
        }
        // One sample in four observes the connection of a short request.
        let is_seen = self.is_working && chance.happens(250);
        ServiceSample {
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

/// What the rules did to the services in a day, and when the notebook was ended.
#[derive(Debug, Default)]
struct DayResult {
    /// Services that were warned as idle or wasteful, and those that were ended for it.
    warned: BTreeSet<u32>,
    ended: BTreeSet<u32>,
    /// Services that the rules report as leaks.
    leaks: BTreeSet<u32>,
    /// In minutes.
    notebook_ended: Option<i64>,
    computing_ended: bool,
}

/// The number among all services of the nth simulated one.
fn service_number(nth: usize) -> u32 {
    u32::try_from(nth).expect("there are few") * STEP
}

fn start(world: &mut TestHost, pid: u32, device: usize) -> &mut TestProcess {
    let process = world.start(pid, "somebody").uses(device, 1, 0);
    process.facts.owner = Some(Person {
        name: format!("user {pid}"),
        uid: Some(10_000 + pid),
    });
    process
}

fn run_day(rules: RuleSet) -> DayResult {
    let mut world = TestHost::new(SIMULATED + 2);
    let mut services: Vec<ServiceModel> = (0..SIMULATED)
        .map(|nth| ServiceModel::new(service_number(nth)))
        .collect();
    for device in 0..SIMULATED {
        let pid = service_number(device);
        let process = start(&mut world, pid + 100, device);
        process.job(&format!("service {pid}")).serves(8000, 0);
    }
    // The notebook server is connected to its kernel; no browser is connected.
    let notebook = start(&mut world, NOTEBOOK, SIMULATED);
    notebook.uses(SIMULATED, 16, 0).job("notebook");
    notebook.facts.command = Some("python -m ipykernel_launcher -f kernel.json".into());
    notebook.facts.network = Some(NetworkRole::Notebook(vec![8888]));
    notebook
        .connections(TestReading::Known(0))
        .computes(Some(3));
    // The kernel of this notebook computes without its GPU.
    let computing = start(&mut world, COMPUTING, SIMULATED + 1);
    computing
        .uses(SIMULATED + 1, 16, 0)
        .job("computing")
        .computes(Some(98));
    computing.facts.command = Some("python -m ipykernel_launcher -f other.json".into());
    computing.facts.network = Some(NetworkRole::Notebook(vec![8888]));
    computing.connections(TestReading::Known(0));
    let mut guard = TestGuard::new(rules);
    let mut day = DayResult::default();
    for _ in 0..SAMPLES {
        for (device, service) in services.iter_mut().enumerate() {
            let pid = 100 + service_number(device);
            let Some(process) = world.processes.get_mut(&pid) else {
                continue;
            };
            let sample = service.next();
            process.uses(device, 0, sample.percent);
            process.memory(device, TestReading::Known(sample.mib << 20));
            process.connections(TestReading::Known(sample.clients));
        }
        let sample = world.next_sample(SAMPLE_MS);
        let evaluation =
            super::super::evaluate::evaluate(&guard.compiled_rules, &mut guard.state, &sample);
        for ending in guard.state.enforcements(&evaluation.records) {
            guard.state.mark_started(&ending);
        }
        for record in evaluation.records {
            let pids = record.evidence.runs.iter().map(|process| process.run.pid);
            let services = pids.filter(|pid| ![NOTEBOOK, COMPUTING].contains(pid));
            match (&record.step, record.rule.kind) {
                (GuardStep::Ended(victim), _) => {
                    for process in &victim.runs {
                        world.processes.remove(&process.run.pid);
                        match process.run.pid {
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

/// An armed preset. Limits on memory, duration and process count are not tested here.
fn preset(text: &str) -> RuleSet {
    let mut rules = parse(text).expect("it ships");
    rules.mode = rules.armed_mode.mode();
    rules.defaults.memory = None;
    rules.defaults.duration = None;
    rules.defaults.processes = None;
    rules.times.clear();
    // Ending everything at once would trip the breaker.
    rules.enforcement.max_ended = 1_000;
    rules
}

/// Every idle job is ended, including services.
fn idle(limit: u64) -> RuleSet {
    let behaviour = ForbiddenBehaviour::Idle(IdleParams {
        limit: minutes(limit),
        min_memory: Bytes(0),
        with_connections: false,
        cpu_below: None,
    });
    let mut rules = RuleSet {
        mode: GuardMode::Soft,
        behaviours: vec![BehaviourRule {
            ends_services: true,
            ..behaviour_rule("idle", behaviour)
        }],
        ..dry_run_rules()
    };
    rules.enforcement.max_ended = 1_000;
    rules
}

#[test]
fn services_match_the_trace() {
    let (mut zeros, mut all, mut silent) = (0_usize, 0_usize, 0_usize);
    for nth in 0..SERVICES {
        let mut service = ServiceModel::new(nth);
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
fn presets_end_notebooks_but_no_services() {
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
        let day = run_day(preset(text));
        assert_eq!(day.ended, BTreeSet::new(), "{name}: {day:?}");
        assert!(day.leaks.len() <= SIMULATED / 20, "{name}: {day:?}");
        let notebook = day.notebook_ended.expect("it is idle");
        assert!(notebook <= 130, "{name}: {notebook} min");
        // The strict preset has no rule for notebooks: each job has fifteen minutes.
        assert_eq!(day.computing_ended, name == "strict", "{name}");
    }
}

#[test]
fn ending_services_ends_useful_ones() {
    let day = run_day(idle(120));
    assert!(day.ended.len() >= SIMULATED / 4, "{day:?}");
}
