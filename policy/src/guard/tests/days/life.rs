//! A box whose day goes as a script says.

use super::super::words::line;
use super::*;
use crate::guard::acting::{Ending, Signals, Snoozer};
use crate::guard::bucket::Bucket;
use crate::guard::judge::judge;
use crate::guard::testing::{Process, TEN_SECONDS, Told};
use gpukill_proto::guard::{Acted, GuardRecord, GuardStep};
use gpukill_proto::snapshot::Scheduler;
use std::collections::BTreeMap;

/// A day that goes on.
pub(super) struct Box {
    world: World,
    pub(super) guard: Guard,
    /// Jobs by their names: the pid, and on which devices.
    jobs: BTreeMap<String, (u32, Vec<usize>)>,
    people: Vec<String>,
    grows: BTreeMap<String, Grows>,
    are_names_known: bool,
    is_running: bool,
    has_room: bool,
    going: Vec<Ending>,
    pub(super) ended: Vec<(String, String)>,
    pub(super) told: String,
}

/// A leak: GiB, how often, and up to how many.
struct Grows {
    by: u64,
    every_ms: i64,
    most: u64,
    since: i64,
    from: u64,
}

impl Box {
    pub(super) fn new(rules: &str, devices: usize) -> Self {
        Self {
            world: World::new(devices),
            guard: Guard::new(read(rules).expect("the rules are right")),
            jobs: BTreeMap::new(),
            people: Vec::new(),
            grows: BTreeMap::new(),
            are_names_known: true,
            is_running: true,
            has_room: true,
            going: Vec::new(),
            ended: Vec::new(),
            told: String::new(),
        }
    }

    fn clock(&self) -> String {
        let minutes = self.world.now.0 / 60_000;
        format!("{:02}:{:02}", minutes / 60, minutes % 60)
    }

    pub(super) fn until(&mut self, minutes: i64) {
        while self.world.now.0 < minutes * 60_000 {
            self.leak();
            let bucket: Bucket = self.world.bucket(TEN_SECONDS);
            if !self.is_running {
                continue;
            }
            self.go();
            let judged = judge(&self.guard.book, &mut self.guard.memory, &bucket);
            self.tell(&judged.records);
            for ending in self.guard.memory.endings(&judged.records) {
                self.end(ending);
            }
        }
    }

    fn tell(&mut self, records: &[GuardRecord]) {
        for record in records {
            self.told.push_str(&line(record));
            self.told.push('\n');
        }
    }

    fn leak(&mut self) {
        for (job, grows) in &self.grows {
            let Some((pid, devices)) = self.jobs.get(job) else {
                continue;
            };
            let times = (self.world.now.0 - grows.since) / grows.every_ms;
            let gib = grows.from + grows.by * u64::try_from(times).unwrap();
            let process = self.world.process(*pid);
            for device in devices {
                process.memory(*device, Told::Known(gib.min(grows.most) * GIB));
            }
        }
    }

    /// Has a job ended, where that can be recorded.
    fn end(&mut self, ending: Ending) {
        if self.has_room {
            self.guard.memory.begins(&ending);
            self.going.push(ending);
            return;
        }
        let GuardStep::Ended(victim) = &ending.record.step else {
            return;
        };
        let acted = Acted {
            job: victim.job.clone(),
            ended: 0,
            left: 1,
            why: Some("it cannot be recorded".into()),
        };
        let record = self
            .guard
            .memory
            .acted(&ending, (acted, Signals::Unsent), self.world.now);
        self.tell(&[record]);
    }

    /// Those who got signals before are gone.
    fn go(&mut self) {
        for ending in std::mem::take(&mut self.going) {
            let GuardStep::Ended(victim) = &ending.record.step else {
                continue;
            };
            let job = victim.job.shown.clone();
            self.ended.push((self.clock(), job.clone()));
            self.remove(&job);
            let acted = Acted {
                job: victim.job.clone(),
                ended: 1,
                left: 0,
                why: None,
            };
            let record = self
                .guard
                .memory
                .acted(&ending, (acted, Signals::Sent), self.world.now);
            self.tell(&[record]);
        }
    }

    fn remove(&mut self, job: &str) {
        // Who was ended by then ends no more.
        let Some((pid, _)) = self.jobs.remove(job) else {
            return;
        };
        self.grows.remove(job);
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

    fn process(&mut self, job: &str) -> &mut Process {
        let (pid, _) = self.jobs.get(job).unwrap_or_else(|| panic!("no {job}"));
        self.world.process(*pid)
    }

    /// What happens, in words.
    pub(super) fn happens(&mut self, what: &str) {
        self.told.push_str(&format!("{} -- {what}\n", self.clock()));
        let words: Vec<&str> = what.split_whitespace().collect();
        match words.as_slice() {
            ["names", "fail"] => self.are_names_known = false,
            ["names", "work"] => self.names_work(),
            ["daemon", "stops"] => self.is_running = false,
            ["daemon", "starts"] => self.starts(),
            ["disk", "full"] => self.has_room = false,
            ["disk", "free"] => self.has_room = true,
            ["clock", "forward", minutes] => {
                let ms = minutes.parse::<i64>().unwrap() * 60_000;
                self.world.now.0 += ms;
                // The kernel tells when they began by the clock as it is now.
                for process in self.world.processes.values_mut() {
                    process.since.0 += ms;
                }
            }
            ["gpu", gpu, "lost"] => self.world.devices[number(gpu)].is_there = false,
            ["gpu", gpu, "silent"] => self.world.devices[number(gpu)].is_listed = false,
            ["gpu", gpu, "back"] => {
                let device = &mut self.world.devices[number(gpu)];
                (device.is_there, device.is_listed) = (true, true);
            }
            [person, "starts", job, "on", gpus, gib, percent, rest @ ..] => {
                self.begins(person, job, gpus, (gib, percent), rest);
            }
            [job, "serves" | "leaks" | "uses", ..] if !self.jobs.contains_key(*job) => {
                self.told.push_str("there is no such job\n");
            }
            [person, "snoozes", job] => self.snoozes(person, job),
            [job, "ends"] => self.remove(job),
            [job, "serves", clients] => {
                let clients = Told::Known(clients.parse().unwrap());
                self.process(job).connections(clients);
            }
            [job, "leaks", gib, minutes, most] => {
                let from = self.held(job);
                let grows = Grows {
                    by: gib.parse().unwrap(),
                    every_ms: minutes.parse::<i64>().unwrap() * 60_000,
                    most: most.parse().unwrap(),
                    since: self.world.now.0,
                    from,
                };
                self.grows.insert((*job).to_owned(), grows);
            }
            [job, "uses", gib, percent] => self.uses(job, gib, percent),
            _ => panic!("nobody knows what this is: {what}"),
        }
    }

    fn begins(
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
        // Of a container that root runs for nobody only its name is known.
        let uid = (!person.starts_with("container")).then(|| self.uid(person));
        let known = self.are_names_known;
        let process = self.world.start(pid, "alice").job(job);
        process.named(job);
        let owner = process.about.owner.as_mut().unwrap();
        owner.uid = uid;
        owner.name = person.to_owned();
        process.about.user = Some((Some(person.to_owned()), uid.unwrap_or(0)));
        if !known {
            process.about.groups = None;
            process.about.user = uid.map(|uid| (None, uid));
            process.about.owner.as_mut().unwrap().name = uid.unwrap_or(0).to_string();
        }
        match rest {
            [] => {}
            ["slurm", id] => {
                process.about.scheduler = Some(Some((Scheduler::Slurm, (*id).to_owned())));
            }
            other => panic!("nobody knows what this is: {other:?}"),
        }
        let gpus: Vec<usize> = gpus.split(',').map(number).collect();
        self.jobs.insert(job.to_owned(), (pid, gpus));
        self.uses(job, gib, percent);
    }

    fn uses(&mut self, job: &str, gib: &str, percent: &str) {
        self.grows.remove(job);
        let (_, devices) = self.jobs[job].clone();
        let told = |text: &str, unit: u64| match text {
            "?" => Told::Failed,
            number => Told::Known(number.parse::<u64>().unwrap() * unit),
        };
        let (memory, utilization) = (told(gib, GIB), told(percent, 1));
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
                Told::Known(percent) => Some(percent),
                Told::Failed | Told::Unsupported => None,
            }
        });
        loads.sum::<u64>().min(100)
    }

    fn held(&mut self, job: &str) -> u64 {
        let device = self.jobs[job].1[0];
        match self.process(job).uses[&device].memory {
            Told::Known(bytes) => bytes / GIB,
            Told::Failed | Told::Unsupported => panic!("what {job} holds is not known"),
        }
    }

    fn names_work(&mut self) {
        self.are_names_known = true;
        for process in self.world.processes.values_mut() {
            let about = &mut process.about;
            if let Some(uid) = about.owner.as_ref().and_then(|owner| owner.uid) {
                let name = self.people[usize::try_from(uid - 1_000).unwrap()].clone();
                about.user = Some((Some(name.clone()), uid));
                about.groups = Some(Vec::new());
                about.owner.as_mut().unwrap().name = name;
            }
        }
    }

    /// A daemon that starts reads what it had written down.
    fn starts(&mut self) {
        let written = serde_json::to_string(&self.guard.memory).unwrap();
        self.guard.memory = serde_json::from_str::<Memory>(&written).unwrap();
        self.is_running = true;
    }

    fn snoozes(&mut self, person: &str, job: &str) {
        let uid = self.uid(person);
        let Some((pid, _)) = self.jobs.get(job).cloned() else {
            self.told.push_str("there is no such job\n");
            return;
        };
        let snoozer = Snoozer {
            by: uid,
            owner: uid,
            process: (pid, u64::from(pid) * 10),
            job: Some(job),
        };
        let now: Timestamp = self.world.now;
        match self.guard.memory.snooze(&self.guard.book, snoozer, now) {
            Ok(records) => self.tell(&records),
            Err(why) => self.told.push_str(&format!("{why}\n")),
        }
    }
}

fn number(text: &str) -> usize {
    text.parse()
        .unwrap_or_else(|_| panic!("{text} is no number"))
}
