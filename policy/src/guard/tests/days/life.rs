//! A host that follows the script of a day.

use super::super::record_text::record_line;
use super::*;
use crate::guard::enforcement::order::{Enforcement, SignalStatus, SnoozeRequest};
use crate::guard::evaluate::evaluate;
use crate::guard::sample::GuardSample;
use crate::guard::testing::{SAMPLE_MS, TestProcess, TestReading};
use gpukill_proto::guard::{EnforcementOutcome, GuardRecord, GuardStep};
use gpukill_proto::model::Scheduler;
use std::collections::BTreeMap;

/// A day in progress.
pub(super) struct ScriptedDay {
    world: TestHost,
    pub(super) guard: TestGuard,
    /// Jobs by name: the pid and the devices.
    jobs: BTreeMap<String, (u32, Vec<usize>)>,
    people: Vec<String>,
    leaks: BTreeMap<String, Leak>,
    are_names_known: bool,
    is_running: bool,
    has_room: bool,
    going: Vec<Enforcement>,
    pub(super) ended: Vec<(String, String)>,
    pub(super) log: String,
}

/// A leak: the GiB of a step, its interval, and the maximum.
struct Leak {
    by: u64,
    every_ms: i64,
    most: u64,
    since: i64,
    from: u64,
}

impl ScriptedDay {
    pub(super) fn new(rules: &str, devices: usize) -> Self {
        Self {
            world: TestHost::new(devices),
            guard: TestGuard::new(parse(rules).expect("the rules are right")),
            jobs: BTreeMap::new(),
            people: Vec::new(),
            leaks: BTreeMap::new(),
            are_names_known: true,
            is_running: true,
            has_room: true,
            going: Vec::new(),
            ended: Vec::new(),
            log: String::new(),
        }
    }

    fn clock(&self) -> String {
        let minutes = self.world.now.0 / 60_000;
        format!("{:02}:{:02}", minutes / 60, minutes % 60)
    }

    pub(super) fn run_until(&mut self, minutes: i64) {
        while self.world.now.0 < minutes * 60_000 {
            self.grow_leaks();
            let sample: GuardSample = self.world.next_sample(SAMPLE_MS);
            if !self.is_running {
                continue;
            }
            self.remove_signalled();
            let evaluation = evaluate(&self.guard.compiled_rules, &mut self.guard.state, &sample);
            self.log_records(&evaluation.records);
            for ending in self.guard.state.enforcements(&evaluation.records) {
                self.execute_order(ending);
            }
        }
    }

    fn log_records(&mut self, records: &[GuardRecord]) {
        for record in records {
            self.log.push_str(&record_line(record));
            self.log.push('\n');
        }
    }

    fn grow_leaks(&mut self) {
        for (job, grows) in &self.leaks {
            let Some((pid, devices)) = self.jobs.get(job) else {
                continue;
            };
            let times = (self.world.now.0 - grows.since) / grows.every_ms;
            let gib = grows.from + grows.by * u64::try_from(times).unwrap();
            let process = self.world.process(*pid);
            for device in devices {
                process.memory(*device, TestReading::Known(gib.min(grows.most) * GIB));
            }
        }
    }

    /// Ends a job, if that can be recorded.
    fn execute_order(&mut self, ending: Enforcement) {
        if self.has_room {
            self.guard.state.mark_started(&ending);
            self.going.push(ending);
            return;
        }
        let GuardStep::Ended(victim) = &ending.record.step else {
            return;
        };
        let outcome = EnforcementOutcome {
            job: victim.job.clone(),
            ended: 0,
            left: 1,
            why: Some("it cannot be recorded".into()),
        };
        let record = self.guard.state.record_outcome(
            &ending,
            (outcome, SignalStatus::Unsent),
            self.world.now,
        );
        self.log_records(&[record]);
    }

    /// Removes the jobs that were signalled before.
    fn remove_signalled(&mut self) {
        for ending in std::mem::take(&mut self.going) {
            let GuardStep::Ended(victim) = &ending.record.step else {
                continue;
            };
            let job = victim.job.shown.clone();
            self.ended.push((self.clock(), job.clone()));
            self.remove(&job);
            let outcome = EnforcementOutcome {
                job: victim.job.clone(),
                ended: 1,
                left: 0,
                why: None,
            };
            let record = self.guard.state.record_outcome(
                &ending,
                (outcome, SignalStatus::Sent),
                self.world.now,
            );
            self.log_records(&[record]);
        }
    }

    fn remove(&mut self, job: &str) {
        // A job that was already ended does not end again.
        let Some((pid, _)) = self.jobs.remove(job) else {
            return;
        };
        self.leaks.remove(job);
        self.world.processes.remove(&pid);
    }

    fn uid(&mut self, person: &str) -> u32 {
        let at = self.people.iter().position(|it| it == person);
        let at = at.unwrap_or_else(|| {
            self.people.push(person.to_owned());
            self.people.len() - 1
        });
        1_000 + u32::try_from(at).unwrap()
    }

    fn process(&mut self, job: &str) -> &mut TestProcess {
        let (pid, _) = self.jobs.get(job).unwrap_or_else(|| panic!("no {job}"));
        self.world.process(*pid)
    }

    /// Executes an event of the script.
    pub(super) fn run_event(&mut self, what: &str) {
        self.log.push_str(&format!("{} -- {what}\n", self.clock()));
        let words: Vec<&str> = what.split_whitespace().collect();
        match words.as_slice() {
            ["names", "fail"] => self.are_names_known = false,
            ["names", "work"] => self.restore_names(),
            ["daemon", "stops"] => self.is_running = false,
            ["daemon", "starts"] => self.restart_daemon(),
            ["disk", "full"] => self.has_room = false,
            ["disk", "free"] => self.has_room = true,
            ["clock", "forward", minutes] => {
                let ms = minutes.parse::<i64>().unwrap() * 60_000;
                self.world.now.0 += ms;
                // The kernel computes start times by the current clock.
                for process in self.world.processes.values_mut() {
                    process.since.0 += ms;
                }
            }
            ["gpu", gpu, "lost"] => self.world.devices[number(gpu)].is_present = false,
            ["gpu", gpu, "silent"] => self.world.devices[number(gpu)].reports_processes = false,
            ["gpu", gpu, "back"] => {
                let device = &mut self.world.devices[number(gpu)];
                (device.is_present, device.reports_processes) = (true, true);
            }
            [person, "starts", job, "on", gpus, gib, percent, rest @ ..] => {
                self.start_job(person, job, gpus, (gib, percent), rest);
            }
            [job, "serves" | "leaks" | "uses", ..] if !self.jobs.contains_key(*job) => {
                self.log.push_str("there is no such job\n");
            }
            [person, "snoozes", job] => self.snooze(person, job),
            [job, "ends"] => self.remove(job),
            [job, "serves", clients] => {
                let clients = TestReading::Known(clients.parse().unwrap());
                self.process(job).connections(clients);
            }
            [job, "leaks", gib, minutes, most] => {
                let from = self.held_gib(job);
                let grows = Leak {
                    by: gib.parse().unwrap(),
                    every_ms: minutes.parse::<i64>().unwrap() * 60_000,
                    most: most.parse().unwrap(),
                    since: self.world.now.0,
                    from,
                };
                self.leaks.insert((*job).to_owned(), grows);
            }
            [job, "uses", gib, percent] => self.set_use(job, gib, percent),
            _ => panic!("nobody knows what this is: {what}"),
        }
    }

    fn start_job(
        &mut self,
        person: &str,
        job: &str,
        gpus: &str,
        (gib, percent): (&str, &str),
        rest: &[&str],
    ) {
        let pid = 1_000 + u32::try_from(self.world.now.0 / 10_000).unwrap() * 8;
        let taken = |pid: &u32| self.world.processes.contains_key(pid);
        let pid = (pid..).find(|pid| !taken(pid)).unwrap();
        // Only the name is known of a container that root runs for nobody.
        let uid = (!person.starts_with("container")).then(|| self.uid(person));
        let known = self.are_names_known;
        let process = self.world.start(pid, "alice").job(job);
        process.named(job);
        let owner = process.facts.owner.as_mut().unwrap();
        owner.uid = uid;
        owner.name = person.to_owned();
        process.facts.user = Some((Some(person.to_owned()), uid.unwrap_or(0)));
        if !known {
            process.facts.groups = None;
            process.facts.user = uid.map(|uid| (None, uid));
            process.facts.owner.as_mut().unwrap().name = uid.unwrap_or(0).to_string();
        }
        match rest {
            [] => {}
            ["slurm", id] => {
                process.facts.scheduler = Some(Some((Scheduler::Slurm, (*id).to_owned())));
            }
            other => panic!("nobody knows what this is: {other:?}"),
        }
        let gpus: Vec<usize> = gpus.split(',').map(number).collect();
        self.jobs.insert(job.to_owned(), (pid, gpus));
        self.set_use(job, gib, percent);
    }

    fn set_use(&mut self, job: &str, gib: &str, percent: &str) {
        self.leaks.remove(job);
        let (_, devices) = self.jobs[job].clone();
        let parse_amount = |text: &str, unit: u64| match text {
            "?" => TestReading::Failed,
            number => TestReading::Known(number.parse::<u64>().unwrap() * unit),
        };
        let (memory, utilization) = (parse_amount(gib, GIB), parse_amount(percent, 1));
        let process = self.process(job);
        for device in &devices {
            process.uses(*device, 0, 0);
            process
                .memory(*device, memory)
                .utilization(*device, utilization);
        }
        for device in devices {
            self.world.devices[device].utilization = Some(self.load(device));
        }
    }

    fn load(&self, device: usize) -> u64 {
        let loads = self.world.processes.values().filter_map(|it| {
            match it.uses.get(&device)?.utilization {
                TestReading::Known(percent) => Some(percent),
                TestReading::Failed | TestReading::Unsupported => None,
            }
        });
        loads.sum::<u64>().min(100)
    }

    fn held_gib(&mut self, job: &str) -> u64 {
        let device = self.jobs[job].1[0];
        match self.process(job).uses[&device].memory {
            TestReading::Known(bytes) => bytes / GIB,
            TestReading::Failed | TestReading::Unsupported => {
                panic!("what {job} holds is not known")
            }
        }
    }

    fn restore_names(&mut self) {
        self.are_names_known = true;
        for process in self.world.processes.values_mut() {
            let facts = &mut process.facts;
            if let Some(uid) = facts.owner.as_ref().and_then(|owner| owner.uid) {
                let name = self.people[usize::try_from(uid - 1_000).unwrap()].clone();
                facts.user = Some((Some(name.clone()), uid));
                facts.groups = Some(Vec::new());
                facts.owner.as_mut().unwrap().name = name;
            }
        }
    }

    /// A daemon that starts reads its stored state.
    fn restart_daemon(&mut self) {
        let written = serde_json::to_string(&self.guard.state).unwrap();
        self.guard.state = serde_json::from_str::<GuardState>(&written).unwrap();
        self.is_running = true;
    }

    fn snooze(&mut self, person: &str, job: &str) {
        let uid = self.uid(person);
        let Some((pid, _)) = self.jobs.get(job).cloned() else {
            self.log.push_str("there is no such job\n");
            return;
        };
        let snoozer = SnoozeRequest {
            requester: uid,
            owner: uid,
            process: (pid, u64::from(pid) * 10),
            job: Some(job.to_owned()),
        };
        let now: Timestamp = self.world.now;
        match self
            .guard
            .state
            .snooze(&self.guard.compiled_rules, &snoozer, now)
        {
            Ok(records) => self.log_records(&records),
            Err(why) => self.log.push_str(&format!("{why}\n")),
        }
    }
}

fn number(text: &str) -> usize {
    text.parse()
        .unwrap_or_else(|_| panic!("{text} is no number"))
}
