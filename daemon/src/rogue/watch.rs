//! The thread that watches: one poll after the other, by the rules as they are then.

use super::Standing;
use super::known::Known;
use super::rules::InForce;
use super::witness::Witness;
use crate::audit::{Sample, Store, Suspicions};
use crate::catalogue::{About, tell};
use crate::guard;
use gpukill_policy::rogue::findings::Findings;
use gpukill_policy::rogue::loads::{Loads, Stretch};
use gpukill_policy::rogue::refusals::Refusals;
use gpukill_policy::turns::in_turns;
use gpukill_policy::usage::Run;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::Person;
use gpukill_proto::rogue::{Finding, Suspected};
use gpukill_proto::snapshot::{DeviceId, GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

/// So many processes are watched: as many of each owner, or all that they have.
const MOST: usize = 4_096;

/// How devices are used is looked back over so far.
const WINDOW: Duration = Duration::from_secs(3_600);

/// Of whom was told before is looked for so far back.
const TOLD: i64 = 31 * 86_400;

/// What is told to the thread.
pub(super) enum Order {
    Poll(Arc<Snapshot>, Arc<guard::Standing>),
    Sample(Box<Sample>),
    Stop,
}

/// The thread's own.
pub(super) struct Watch {
    in_force: watch::Receiver<InForce>,
    witness: Box<dyn Witness>,
    store: Store,
    standing: watch::Sender<Arc<Standing>>,
    known: BTreeMap<ProcessKey, Known>,
    loads: Loads,
    findings: Findings,
    refusals: Refusals,
}

/// A process of a poll, on however many devices.
struct Present<'a> {
    process: &'a GpuProcess,
    devices: BTreeSet<&'a DeviceId>,
}

impl Watch {
    pub(super) fn new(
        in_force: watch::Receiver<InForce>,
        witness: Box<dyn Witness>,
        store: Store,
        standing: watch::Sender<Arc<Standing>>,
    ) -> Self {
        Self {
            in_force,
            witness,
            store,
            standing,
            known: BTreeMap::new(),
            loads: Loads::over(WINDOW),
            findings: Findings::default(),
            refusals: Refusals::default(),
        }
    }

    /// Watches until it is told to stop, or whoever could tell it is gone.
    pub(super) fn run(mut self, boot: &str, orders: &Receiver<Order>) {
        self.remember(boot);
        while let Ok(order) = orders.recv() {
            match order {
                Order::Poll(snapshot, guard) => self.look(&snapshot, &guard, Instant::now()),
                Order::Sample(sample) => self.add(&sample),
                Order::Stop => return,
            }
        }
    }

    /// What the store has of before: a daemon that is started anew knows how devices were
    /// used, and of whom it has told.
    fn remember(&mut self, boot: &str) {
        let now = Timestamp::from(SystemTime::now());
        let window = i64::try_from(WINDOW.as_secs()).unwrap_or(i64::MAX);
        let span = (now.plus_seconds(-window), now);
        let loads = &mut self.loads;
        let used = self.store.buckets(span, &mut |bucket, _| {
            loads.add_stored(&bucket);
            ControlFlow::Continue(())
        });
        let told = self.store.found_since(now.plus_seconds(-TOLD), Some(boot));
        if let (Err(error), _) | (_, Err(error)) = (&used, &told) {
            tracing::debug!(?error, "the watch for rogues begins anew");
        }
        for finding in told.into_iter().flatten() {
            self.findings.was_told(finding);
        }
    }

    /// How devices were used.
    fn add(&mut self, sample: &Sample) {
        let known = sample.processes();
        let usage = &sample.usage;
        let stretches = usage.runs.iter().filter_map(|(run, used)| {
            let process = known.get(run)?;
            Some(Stretch {
                process: key(run)?,
                owner: owner_of(process),
                held_since: *process.first_seen.known().unwrap_or(&usage.from),
                usage: used,
                host_cpu: process
                    .cpu
                    .known()
                    .map(|percent| percent.0.saturating_mul(10)),
            })
        });
        self.loads.add(usage.until, usage.seen_ms, stretches);
        self.loads.forget_old(usage.until);
    }

    /// Looks at whoever is there.
    fn look(&mut self, snapshot: &Snapshot, guard: &guard::Standing, at: Instant) {
        let now = snapshot.taken_at;
        let are_others = self.in_force.has_changed().unwrap_or(false);
        let rules = Arc::clone(&self.in_force.borrow_and_update().rules);
        let (present, beyond) = present(snapshot, MOST);
        self.refusals.follow(&guard.open, now);
        let hash = !rules.patterns.sha256.is_empty();
        let mut is_new = self.forget(&present, now) || are_others;
        for (&key, it) in &present {
            let entry = self.known.entry(key);
            let known = entry.or_insert_with(|| Known::new(key, it.process, at));
            known.follow(it.process, at);
            known.read(&*self.witness, hash, at);
            known.load(|| self.loads.of(key), at);
            known.refused(self.refusals.of(key));
            if are_others {
                known.anew();
            }
            let Some(looked) = known.judged(&rules, now) else {
                continue;
            };
            is_new = true;
            let finding = finding(key, it, snapshot);
            self.findings.found(finding, looked.verdicts.clone());
        }
        self.tell(snapshot);
        let fault = self.witness.fault();
        let is_as_before = {
            let standing = self.standing.borrow();
            standing.beyond == beyond && standing.fault == fault
        };
        if is_new || !is_as_before {
            self.publish(beyond, fault);
        }
    }

    /// Tells of whom there is something to tell.
    fn tell(&mut self, snapshot: &Snapshot) {
        let told = self.findings.to_tell(snapshot.taken_at);
        for finding in &told {
            log(finding, snapshot);
        }
        if !told.is_empty() && !self.store.found(told) {
            tell!(NotRecorded; "the store does not take who was found: not recorded");
        }
    }

    /// Forgets whoever is gone; whether anybody was.
    fn forget(&mut self, present: &BTreeMap<ProcessKey, Present<'_>>, now: Timestamp) -> bool {
        let before = self.known.len();
        self.known.retain(|key, _| present.contains_key(key));
        let is_gone = self.known.len() != before;
        if is_gone {
            let kept: BTreeSet<ProcessKey> = present.keys().copied().into_set();
            self.witness.keep_only(&kept);
            self.findings.follow(|key| kept.contains(key), now);
        }
        is_gone
    }

    /// Whether rules hold that nobody wrote, for those of the file cannot be read: whom
    /// they allow is not known, and nobody is ended for that.
    fn are_doubtful(&self) -> bool {
        let in_force = self.in_force.borrow();
        !in_force.mistakes.is_empty() && in_force.revision.is_none()
    }

    /// For whoever asks.
    fn publish(&self, beyond: u32, fault: Option<String>) {
        let known = self.known.iter();
        let looked: BTreeMap<_, _> = known
            .filter_map(|(key, known)| Some((*key, Arc::clone(known.looked()?))))
            .into_map();
        let suspicions: Suspicions = match self.are_doubtful() {
            true => Suspicions::new(),
            false => looked
                .iter()
                .map(|(key, looked)| (*key, Suspected::to_act_on(&looked.verdicts)))
                .collect(),
        };
        self.standing.send_replace(Arc::new(Standing {
            looked,
            findings: self.findings.open().into_iter().cloned().collect(),
            suspicions: Arc::new(suspicions),
            beyond,
            fault,
        }));
    }
}

fn key(run: &Run) -> Option<ProcessKey> {
    Some(ProcessKey {
        pid: run.pid,
        start_ticks: run.start_ticks?,
    })
}

/// Who is in a poll, and how many more there are than are watched.
fn present(snapshot: &Snapshot, most: usize) -> (BTreeMap<ProcessKey, Present<'_>>, u32) {
    let mut present: BTreeMap<ProcessKey, Present<'_>> = BTreeMap::new();
    for process in &snapshot.processes {
        let Some(key) = process.key() else {
            continue;
        };
        let known = present.entry(key).or_insert_with(|| {
            let devices = BTreeSet::new();
            Present { process, devices }
        });
        known.devices.insert(&process.device);
    }
    let Some(beyond) = present.len().checked_sub(most).filter(|it| *it > 0) else {
        return (present, 0);
    };
    let owners = present.into_iter().map(|it| (owner_of(it.1.process), it));
    let present = in_turns(owners).into_iter().take(most).collect();
    (present, u32::try_from(beyond).unwrap_or(u32::MAX))
}

/// Whose it is: the name where there is no number, as that of a container.
fn owner_of(process: &GpuProcess) -> Option<(Option<u32>, &str)> {
    let owner = process.owner.last_known()?;
    let name = owner.uid.map_or(owner.name.as_str(), |_| "");
    Some((owner.uid, name))
}

/// What is told of it besides verdicts.
fn finding(process: ProcessKey, present: &Present<'_>, snapshot: &Snapshot) -> Finding {
    let it = present.process;
    let devices = snapshot.devices.iter();
    let used = devices.filter(|device| present.devices.contains(&device.id));
    let owner = it.owner.last_known();
    Finding {
        process,
        owner: owner.map(|owner| Person {
            name: owner.name.clone(),
            uid: owner.uid,
        }),
        uid: it.uid.last_known().copied(),
        name: it.name.last_known().cloned(),
        executable: it.executable.last_known().cloned(),
        gpus: used.map(|device| device.index).collect(),
        since: snapshot.taken_at,
        last_seen: snapshot.taken_at,
        is_present: true,
        verdicts: Vec::new(),
    }
}

fn log(finding: &Finding, snapshot: &Snapshot) {
    let Some(worst) = finding.verdicts.first() else {
        return;
    };
    let (threat, risk) = (worst.threat.name(), worst.risk.name());
    let score = worst.score.to_string();
    let signs: Vec<&str> = worst.signs.iter().map(|sign| sign.kind.as_str()).collect();
    let signs = signs.join(" ");
    let owner = finding.owner.as_ref().map(|owner| owner.name.as_str());
    let mut about = About::default();
    about.pid(finding.process.pid);
    about.uid(finding.uid);
    let devices = snapshot.devices.iter();
    for device in devices.filter(|device| finding.gpus.contains(&device.index)) {
        about.device(&device.id.0);
    }
    let [pid, uid, gpu_uuid] = about.fields();
    let words = worst.threat.words();
    tell!(
        RogueFound, threat, risk, score, signs, owner, pid, uid, gpu_uuid;
        "a process may be a {words}"
    );
}

#[cfg(test)]
mod tests;
