//! The thread of the watch: assesses one poll after the other, by the rules in force.

use super::RogueStatus;
use super::evidence::EvidenceSource;
use super::evidence_cache::WatchedProcess;
use super::rules::RogueRulesInForce;
use crate::guard;
use crate::log_events::{EventSubject, event};
use crate::store::{RogueSuspicions, Sample, Store};
use gpukill_policy::rogue::finding_tracker::FindingTracker;
use gpukill_policy::rogue::load_tracker::{LoadTracker, ProcessSample};
use gpukill_policy::rogue::refusals::Refusals;
use gpukill_policy::round_robin::interleave;
use gpukill_policy::usage::DeviceRun;
use gpukill_proto::collect::{IntoMap as _, IntoSet as _, RetainEntries as _};
use gpukill_proto::guard::Person;
use gpukill_proto::model::{DeviceId, GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::rogue::{RogueFinding, VerdictSummary};
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

/// At most this many processes are watched: an equal number of each owner, or all that the owner
/// has.
const MAX_WATCHED: usize = 4_096;

/// The time span of the usage of devices.
const LOAD_WINDOW: Duration = Duration::from_secs(3_600);

/// Findings that were already reported are searched this far back, in seconds.
const REPORTED_WINDOW_SECONDS: i64 = 31 * 86_400;

pub(super) enum RogueCommand {
    Poll(Arc<Snapshot>, Arc<guard::GuardStatus>),
    Sample(Box<Sample>),
    Stop,
}

/// The state of the thread.
pub(super) struct RogueWatcher {
    in_force: watch::Receiver<RogueRulesInForce>,
    evidence: Box<dyn EvidenceSource>,
    store: Store,
    status: watch::Sender<Arc<RogueStatus>>,
    processes: BTreeMap<ProcessKey, WatchedProcess>,
    loads: LoadTracker,
    findings: FindingTracker,
    denials: Refusals,
}

/// A process of a poll, with all its devices.
struct PresentProcess<'a> {
    process: &'a GpuProcess,
    devices: BTreeSet<&'a DeviceId>,
}

impl RogueWatcher {
    pub(super) fn new(
        in_force: watch::Receiver<RogueRulesInForce>,
        evidence: Box<dyn EvidenceSource>,
        store: Store,
        sender: watch::Sender<Arc<RogueStatus>>,
    ) -> Self {
        Self {
            in_force,
            evidence,
            store,
            status: sender,
            processes: BTreeMap::new(),
            loads: LoadTracker::with_window(LOAD_WINDOW),
            findings: FindingTracker::default(),
            denials: Refusals::default(),
        }
    }

    /// Runs until a command stops it or no sender is left.
    pub(super) fn run(mut self, boot: &str, orders: &Receiver<RogueCommand>) {
        self.restore(boot);
        while let Ok(order) = orders.recv() {
            match order {
                RogueCommand::Poll(snapshot, guard) => {
                    self.assess_poll(&snapshot, &guard, Instant::now())
                }
                RogueCommand::Sample(sample) => self.add_sample(&sample),
                RogueCommand::Stop => return,
            }
        }
    }

    /// Restores the state from the store: a restarted daemon knows how devices were used, and which
    /// findings were reported.
    fn restore(&mut self, boot: &str) {
        let now = Timestamp::from(SystemTime::now());
        let window = i64::try_from(LOAD_WINDOW.as_secs()).unwrap_or(i64::MAX);
        let span = (now.plus_seconds(-window), now);
        let loads = &mut self.loads;
        let used = self.store.guard_samples(span, &mut |sample, _| {
            loads.add_stored(&sample);
            ControlFlow::Continue(())
        });
        let findings = self
            .store
            .findings_since(now.plus_seconds(-REPORTED_WINDOW_SECONDS), Some(boot));
        if let (Err(error), _) | (_, Err(error)) = (&used, &findings) {
            tracing::debug!(?error, "the watch for rogue processes starts empty");
        }
        for finding in findings.into_iter().flatten() {
            self.findings.restore_reported(finding);
        }
    }

    /// Adds the usage of devices.
    fn add_sample(&mut self, sample: &Sample) {
        let known = sample.processes();
        let usage = &sample.usage;
        let stretches = usage.runs.iter().filter_map(|(run, used)| {
            let process = known.get(run)?;
            Some(ProcessSample {
                process: run_key(run)?,
                owner: owner_key(process),
                held_since: *process.first_seen.known().unwrap_or(&usage.from),
                usage: used,
                host_cpu: process
                    .cpu
                    .known()
                    .map(|percent| percent.0.saturating_mul(10)),
            })
        });
        self.loads.add(usage.until, usage.seen_ms, stretches);
        self.loads.drop_departed(usage.until);
    }

    fn assess_poll(&mut self, snapshot: &Snapshot, guard: &guard::GuardStatus, at: Instant) {
        let now = snapshot.taken_at;
        let are_others = self.in_force.has_changed().unwrap_or(false);
        let rules = Arc::clone(&self.in_force.borrow_and_update().rules);
        let (present, unwatched) = select_present(snapshot, MAX_WATCHED);
        self.denials.update(&guard.open, now);
        let hash = !rules.patterns.sha256.is_empty();
        let mut is_new = self.forget_gone(&present, now) || are_others;
        for (&key, it) in &present {
            let entry = self.processes.entry(key);
            let known = entry.or_insert_with(|| WatchedProcess::new(key, it.process, at));
            known.update(it.process, at);
            known.read(&*self.evidence, hash, at);
            known.update_load(|| self.loads.load_of(key), at);
            known.update_denials(self.denials.count_for(key));
            if are_others {
                known.mark_changed();
            }
            let Some(assessment) = known.assess(&rules, now) else {
                continue;
            };
            is_new = true;
            let finding = new_finding(key, it, snapshot);
            self.findings.record(finding, assessment.verdicts.clone());
        }
        self.report_findings(snapshot);
        let fault = self.evidence.fault();
        let is_as_before = {
            let status = self.status.borrow();
            status.overflow == unwatched && status.fault == fault
        };
        if is_new || !is_as_before {
            self.publish(unwatched, fault);
        }
    }

    fn report_findings(&mut self, snapshot: &Snapshot) {
        let reportable = self.findings.take_reportable(snapshot.taken_at);
        for finding in &reportable {
            log_finding(finding, snapshot);
        }
        if !reportable.is_empty() && !self.store.record_findings(reportable) {
            event!(NotRecorded; "the store rejects the findings: not recorded");
        }
    }

    /// Drops processes that are gone; returns whether there were any.
    fn forget_gone(
        &mut self,
        present: &BTreeMap<ProcessKey, PresentProcess<'_>>,
        now: Timestamp,
    ) -> bool {
        let before = self.processes.len();
        self.processes
            .retain_entries(|key, _| present.contains_key(key));
        let is_gone = self.processes.len() != before;
        if is_gone {
            let kept: BTreeSet<ProcessKey> = present.keys().copied().into_set();
            self.evidence.keep_only(&kept);
            self.findings.update_presence(|key| kept.contains(key), now);
        }
        is_gone
    }

    /// Whether the built-in rules apply because the file has mistakes: the processes that the admin
    /// allows are unknown then, so nothing is ended for a verdict.
    fn are_rules_uncertain(&self) -> bool {
        let in_force = self.in_force.borrow();
        !in_force.mistakes.is_empty() && in_force.revision.is_none()
    }

    fn publish(&self, unwatched: u32, fault: Option<String>) {
        let known = self.processes.iter();
        let assessments: BTreeMap<_, _> = known
            .filter_map(|(key, known)| Some((*key, Arc::clone(known.assessment()?))))
            .into_map();
        let suspicions: RogueSuspicions = match self.are_rules_uncertain() {
            true => RogueSuspicions::new(),
            false => assessments
                .iter()
                .map(|(key, it)| (*key, VerdictSummary::most_actionable(&it.verdicts)))
                .into_map(),
        };
        self.status.send_replace(Arc::new(RogueStatus {
            assessments,
            findings: self.findings.current().into_iter().cloned().collect(),
            suspicions: Arc::new(suspicions),
            overflow: unwatched,
            fault,
        }));
    }
}

fn run_key(run: &DeviceRun) -> Option<ProcessKey> {
    Some(ProcessKey {
        pid: run.pid,
        start_ticks: run.start_ticks?,
    })
}

/// The processes of a poll that are watched, and the number of those beyond the limit.
fn select_present(
    snapshot: &Snapshot,
    max_processes: usize,
) -> (BTreeMap<ProcessKey, PresentProcess<'_>>, u32) {
    let mut present: BTreeMap<ProcessKey, PresentProcess<'_>> = BTreeMap::new();
    for process in &snapshot.processes {
        let Some(key) = process.key() else {
            continue;
        };
        let known = present.entry(key).or_insert_with(|| {
            let devices = BTreeSet::new();
            PresentProcess { process, devices }
        });
        known.devices.insert(&process.device);
    }
    let Some(unwatched) = present
        .len()
        .checked_sub(max_processes)
        .filter(|it| *it > 0)
    else {
        return (present, 0);
    };
    let owners = present.into_iter().map(|it| (owner_key(it.1.process), it));
    let present = interleave(owners)
        .into_iter()
        .take(max_processes)
        .into_map();
    (present, u32::try_from(unwatched).unwrap_or(u32::MAX))
}

/// The owner: the name if there is no uid, as for a container.
fn owner_key(process: &GpuProcess) -> Option<(Option<u32>, &str)> {
    let owner = process.owner.last_known()?;
    let name = owner.uid.map_or(owner.name.as_str(), |_| "");
    Some((owner.uid, name))
}

/// A finding without its verdicts.
fn new_finding(
    process: ProcessKey,
    present: &PresentProcess<'_>,
    snapshot: &Snapshot,
) -> RogueFinding {
    let row = present.process;
    let devices = snapshot.devices.iter();
    let used = devices.filter(|device| present.devices.contains(&device.id));
    let owner = row.owner.last_known();
    RogueFinding {
        process,
        owner: owner.map(|owner| Person {
            name: owner.name.clone(),
            uid: owner.uid,
        }),
        uid: row.uid.last_known().copied(),
        name: row.name.last_known().cloned(),
        executable: row.executable.last_known().cloned(),
        gpus: used.map(|device| device.index).collect(),
        since: snapshot.taken_at,
        last_seen: snapshot.taken_at,
        is_present: true,
        verdicts: Vec::new(),
    }
}

fn log_finding(finding: &RogueFinding, snapshot: &Snapshot) {
    let Some(worst) = finding.verdicts.first() else {
        return;
    };
    let (threat, risk) = (worst.threat.name(), worst.risk.name());
    let score = worst.score.to_string();
    let indicators: Vec<&str> = worst
        .indicators
        .iter()
        .map(|indicator| indicator.kind.as_str())
        .collect();
    let indicators = indicators.join(" ");
    let owner = finding.owner.as_ref().map(|owner| owner.name.as_str());
    let mut affected = EventSubject::default();
    affected.add_pid(finding.process.pid);
    affected.add_uid(finding.uid);
    let devices = snapshot.devices.iter();
    for device in devices.filter(|device| finding.gpus.contains(&device.index)) {
        affected.add_device(&device.id.0);
    }
    let [pid, uid, gpu_uuid] = affected.fields();
    let words = worst.threat.label();
    event!(
        RogueFound, threat, risk, score, indicators = indicators, owner, pid, uid, gpu_uuid;
        "a process may be a {words}"
    );
}

#[cfg(test)]
mod tests;
