//! The known evidence about one watched process, and when it is read again.
//!
//! A process that is unchanged is rarely read: its libraries are read when it is new, when it
//! executes another program, and then at increasing intervals. Its sockets are scanned every ten
//! seconds anyway, because `list` counts connections.

mod hash;

use super::evidence::EvidenceSource;
use crate::host::evidence::{NetworkSent, ProcessEvidence};
use gpukill_policy::rogue::rules::RogueRules;
use gpukill_policy::rogue::suspect::{DeviceLoad, SentTraffic, Suspect};
use gpukill_policy::rogue::{Assessment, assess, indicative_libraries};
use gpukill_proto::model::{GpuProcess, ProcessKey};
use gpukill_proto::rogue::RogueAssessment;
use gpukill_proto::units::Timestamp;
use hash::HashState;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The libraries are read again after this time at first, then after twice the previous time, up to
/// the maximum.
const FIRST_INTERVAL: Duration = Duration::from_secs(4);
const MAX_INTERVAL: Duration = Duration::from_secs(600);

/// The interval at which the socket scanner reads sockets.
const SOCKET_INTERVAL: Duration = Duration::from_secs(10);

/// The usage of devices changes all the time, so it is evaluated at this interval.
const LOAD_INTERVAL: Duration = Duration::from_secs(60);

/// The usage of devices is not assessed before the process was watched for this long.
const MIN_LOAD_TIME: Duration = Duration::from_secs(30 * 60);

pub(super) struct WatchedProcess {
    key: ProcessKey,
    /// The owner.
    person: Option<u32>,
    suspect: Suspect,
    /// The executable and the command line in the last poll.
    executable: Option<String>,
    command: Option<String>,
    /// How often only the command line changed.
    changes: u32,
    /// What could not be read, with reasons.
    unavailable: Vec<String>,
    hash: HashState,
    /// The bytes that its network namespace had sent at the first reading, and the namespace.
    sent_before: Option<(u64, u64)>,
    /// Whether evidence is requested, and when it is requested again.
    is_pending: bool,
    read_at: Instant,
    pause: Duration,
    sockets_at: Option<Instant>,
    load_at: Option<Instant>,
    /// Whether something changed since the last assessment.
    has_changed: bool,
    assessment: Option<Arc<RogueAssessment>>,
}

impl WatchedProcess {
    pub(super) fn new(key: ProcessKey, process: &GpuProcess, at: Instant) -> Self {
        Self {
            key,
            person: None,
            suspect: Suspect::from_process(process),
            executable: process.executable.last_known().cloned(),
            command: process.command.last_known().cloned(),
            changes: 0,
            unavailable: Vec::new(),
            hash: HashState::default(),
            sent_before: None,
            is_pending: true,
            read_at: at,
            pause: FIRST_INTERVAL,
            sockets_at: None,
            load_at: None,
            has_changed: true,
            assessment: None,
        }
    }

    pub(super) fn update(&mut self, process: &GpuProcess, at: Instant) {
        self.person = process.owner.last_known().and_then(|owner| owner.uid);
        self.update_command(process, at);
        let has_another = self.executable.as_ref() != process.executable.last_known();
        if self.suspect.matches_process(process) && !has_another {
            return;
        }
        let suspect = Suspect::from_process(process);
        let executes_another = has_another || suspect.name != self.suspect.name;
        self.executable.clone_from(&suspect.executable);
        // The executable stays as last read until it is read again.
        self.suspect = Suspect {
            user: suspect.user,
            name: suspect.name,
            is_in_host_namespace: suspect.is_in_host_namespace,
            image: suspect.image,
            ancestors: suspect.ancestors,
            ..std::mem::take(&mut self.suspect)
        };
        self.has_changed = true;
        if executes_another {
            self.is_pending = true;
            self.pause = FIRST_INTERVAL;
            self.read_at = at;
            self.hash.invalidate();
        }
    }

    /// A changed command line may mean another program of the same name. Some programs rewrite
    /// their command line repeatedly: they are read less and less often.
    fn update_command(&mut self, process: &GpuProcess, at: Instant) {
        let command = process.command.last_known();
        if command.is_none() || self.command.as_ref() == command {
            return;
        }
        // At first it had not been read yet.
        let is_another = self.command.is_some();
        self.command = command.cloned();
        if is_another {
            let pause = FIRST_INTERVAL.saturating_mul(1 << self.changes.min(4));
            self.changes = self.changes.saturating_add(1);
            self.read_at = self.read_at.min(at + pause);
        }
    }

    /// Takes available evidence, and requests it if it is due; the hash of the executable only if
    /// the rules have hashes.
    pub(super) fn read(&mut self, source: &dyn EvidenceSource, hash: bool, at: Instant) {
        if !self.is_pending && at >= self.read_at {
            self.is_pending = true;
        }
        if self.is_pending
            && let Some(evidence) = source.process_evidence(self.key)
        {
            self.is_pending = false;
            self.read_at = at + self.pause;
            self.pause = self.pause.saturating_mul(2).min(MAX_INTERVAL);
            self.add_evidence(&evidence);
            // The evidence is stored here.
            source.forget(self.key);
            // The process may execute another file of the same name.
            self.hash.invalidate();
        }
        if self.hash.update((self.key, self.person), hash, source) {
            self.has_changed = true;
            self.suspect.sha256 = self.hash.sha256();
        }
        if self
            .sockets_at
            .is_none_or(|last| at.duration_since(last) >= SOCKET_INTERVAL)
        {
            let sockets = source.sockets(self.key);
            // A process that was not scanned yet will be soon.
            self.sockets_at = sockets.as_ref().map(|_| at);
            let (listens, peers) = match sockets {
                Some(sockets) => (Some(sockets.listens), Some(sockets.peers)),
                None => (None, None),
            };
            self.has_changed |= self.suspect.listens != listens || self.suspect.peers != peers;
            self.suspect.listens = listens;
            self.suspect.peers = peers;
        }
    }

    fn add_evidence(&mut self, evidence: &ProcessEvidence) {
        let sent = self.bytes_sent(&evidence.sent);
        let read = Suspect {
            executable: evidence
                .executable
                .clone()
                .or_else(|| self.executable.clone()),
            arguments: self.arguments(evidence),
            libraries: evidence.libraries.as_ref().map(indicative_libraries),
            sent,
            ..self.suspect.clone()
        };
        self.has_changed |= read != self.suspect || self.unavailable != evidence.unavailable;
        self.suspect = read;
        self.unavailable.clone_from(&evidence.unavailable);
    }

    /// The arguments. If the process wiped them, the earlier ones are kept, unless it has executed
    /// another program since.
    fn arguments(&self, evidence: &ProcessEvidence) -> Option<Vec<String>> {
        let has_cleared_arguments = evidence
            .arguments
            .as_ref()
            .is_some_and(|it| it.iter().all(String::is_empty));
        let is_same = self.suspect.executable == evidence.executable;
        match has_cleared_arguments && is_same && self.suspect.arguments.is_some() {
            true => self.suspect.arguments.clone(),
            false => evidence.arguments.clone(),
        }
    }

    /// The bytes sent since the first reading, if the network namespace is the process's own.
    fn bytes_sent(&mut self, sending: &NetworkSent) -> SentTraffic {
        match *sending {
            NetworkSent::Unknown(_) => SentTraffic::Unknown,
            NetworkSent::Shared => SentTraffic::Shared,
            NetworkSent::Own { namespace, bytes } => {
                let before = self.sent_before.filter(|(known, before)| {
                    // If the process changed its namespace, or the counter was reset, counting
                    // starts again.
                    *known == namespace && *before <= bytes
                });
                let (_, before) = *self
                    .sent_before
                    .insert(before.unwrap_or((namespace, bytes)));
                SentTraffic::OwnNamespace(bytes - before)
            }
        }
    }

    /// Updates the usage of its devices, if due.
    pub(super) fn update_load(&mut self, load: impl FnOnce() -> Option<DeviceLoad>, at: Instant) {
        if self
            .load_at
            .is_some_and(|last| at.duration_since(last) < LOAD_INTERVAL)
        {
            return;
        }
        self.load_at = Some(at);
        let load = load();
        self.has_changed |= self.suspect.load != load;
        self.suspect.load = load;
    }

    /// Updates how often it was denied a device.
    pub(super) fn update_denials(&mut self, times: u32) {
        self.has_changed |= self.suspect.refused != times;
        self.suspect.refused = times;
    }

    /// Marks it for another assessment because the rules changed.
    pub(super) const fn mark_changed(&mut self) {
        self.has_changed = true;
    }

    /// Assesses the process if something changed; `None` if the assessment stays the same.
    pub(super) fn assess(
        &mut self,
        rules: &RogueRules,
        now: Timestamp,
    ) -> Option<&Arc<RogueAssessment>> {
        // Before the first reading only the name is known.
        if !std::mem::take(&mut self.has_changed) {
            return None;
        }
        let Assessment {
            verdicts,
            score,
            indicators,
            allowed,
        } = assess(&self.suspect, rules);
        let before = self.assessment.as_deref();
        let mut assessment = RogueAssessment {
            at: before.map_or(now, |before| before.at),
            verdicts,
            score,
            indicators,
            allowed: allowed.iter().map(ToString::to_string).collect(),
            missing_evidence: self.unavailable(),
        };
        if before == Some(&assessment) {
            return None;
        }
        assessment.at = now;
        Some(self.assessment.insert(Arc::new(assessment)))
    }

    /// The last assessment.
    pub(super) const fn assessment(&self) -> Option<&Arc<RogueAssessment>> {
        self.assessment.as_ref()
    }

    /// What could not be read, with reasons.
    fn unavailable(&self) -> Vec<String> {
        let mut missing = self.unavailable.clone();
        let suspect = &self.suspect;
        if suspect.arguments.is_none() && missing.is_empty() {
            missing.push("its arguments: not read yet".to_owned());
        }
        missing.extend(self.hash.unavailable_reason());
        if suspect.peers.is_none() {
            missing.push("its connections: unknown".to_owned());
        }
        if suspect.sent == SentTraffic::Shared {
            missing.push("the traffic of its network namespace: it shares the host's".to_owned());
        }
        let load_time = suspect.load.map(|load| load.seen).unwrap_or_default();
        if load_time < MIN_LOAD_TIME {
            missing.push("its GPU usage: known only after half an hour".to_owned());
        }
        missing
    }
}
