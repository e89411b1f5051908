//! One process that is watched: what is known of it, and when more is asked for.
//!
//! Nothing is read of one that is as it was: what it has loaded is read when it is new,
//! when it executes something else, and then less and less often; its sockets are looked
//! at every ten seconds anyway, for `list` counts who is connected.

mod hash;

use super::witness::Witness;
use crate::host::traces::{Sending, Traces};
use gpukill_policy::rogue::rules::Rules;
use gpukill_policy::rogue::suspect::{Load, Sent, Suspect};
use gpukill_policy::rogue::{Assessment, assess, that_tell};
use gpukill_proto::rogue::Looked;
use gpukill_proto::snapshot::{GpuProcess, ProcessKey};
use gpukill_proto::units::Timestamp;
use hash::Hashed;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a process has loaded is read again after so long at first, each time after twice
/// as long, and after no longer than this.
const FIRST: Duration = Duration::from_secs(4);
const LONGEST: Duration = Duration::from_secs(600);

/// Sockets are looked at so often by those who read them.
const SOCKETS: Duration = Duration::from_secs(10);

/// How a device is used changes all the time: what that comes to is asked so often.
const LOAD: Duration = Duration::from_secs(60);

/// Of how a device is used nothing is said before it was watched for so long.
const LOOKED: Duration = Duration::from_secs(30 * 60);

/// A process.
pub(super) struct Known {
    key: ProcessKey,
    /// Whose it is.
    person: Option<u32>,
    suspect: Suspect,
    /// The executable and the command line, as the last poll has them.
    executable: Option<String>,
    command: Option<String>,
    /// How often the latter changed alone.
    changes: u32,
    /// What could not be read of it.
    unseen: Vec<String>,
    hash: Hashed,
    /// What its network namespace had sent when it was first looked at, and which that is.
    sent_before: Option<(u64, u64)>,
    /// Whether an answer is waited for, and when it is asked for again.
    is_awaited: bool,
    read_at: Instant,
    pause: Duration,
    sockets_at: Option<Instant>,
    load_at: Option<Instant>,
    /// Whether something of it is new since it was judged.
    is_new: bool,
    looked: Option<Arc<Looked>>,
}

impl Known {
    pub(super) fn new(key: ProcessKey, process: &GpuProcess, at: Instant) -> Self {
        Self {
            key,
            person: None,
            suspect: Suspect::of(process),
            executable: process.executable.last_known().cloned(),
            command: process.command.last_known().cloned(),
            changes: 0,
            unseen: Vec::new(),
            hash: Hashed::default(),
            sent_before: None,
            is_awaited: true,
            read_at: at,
            pause: FIRST,
            sockets_at: None,
            load_at: None,
            is_new: true,
            looked: None,
        }
    }

    /// Takes what a poll tells of it.
    pub(super) fn follow(&mut self, process: &GpuProcess, at: Instant) {
        self.person = process.owner.last_known().and_then(|owner| owner.uid);
        self.follow_command(process, at);
        let has_another = self.executable.as_ref() != process.executable.last_known();
        if self.suspect.is_of(process) && !has_another {
            return;
        }
        let told = Suspect::of(process);
        let executes_another = has_another || told.name != self.suspect.name;
        self.executable.clone_from(&told.executable);
        // Its executable is told as it was read last, until it is read again.
        self.suspect = Suspect {
            user: told.user,
            name: told.name,
            is_of_the_box: told.is_of_the_box,
            image: told.image,
            ancestors: told.ancestors,
            ..std::mem::take(&mut self.suspect)
        };
        self.is_new = true;
        if executes_another {
            self.is_awaited = true;
            self.pause = FIRST;
            self.read_at = at;
            self.hash.again();
        }
    }

    /// One whose command line changes may execute another program of the same name. Some
    /// write what they do there, again and again: they are read ever more seldom for that.
    fn follow_command(&mut self, process: &GpuProcess, at: Instant) {
        let command = process.command.last_known();
        if command.is_none() || self.command.as_ref() == command {
            return;
        }
        // At first it was not read yet.
        let is_another = self.command.is_some();
        self.command = command.cloned();
        if is_another {
            let pause = FIRST.saturating_mul(1 << self.changes.min(4));
            self.changes = self.changes.saturating_add(1);
            self.read_at = self.read_at.min(at + pause);
        }
    }

    /// Takes what is read of it, and asks for it where it is time; for the hash of its
    /// executable only where the rules have some.
    pub(super) fn read(&mut self, witness: &dyn Witness, hash: bool, at: Instant) {
        if !self.is_awaited && at >= self.read_at {
            self.is_awaited = true;
        }
        if self.is_awaited
            && let Some(traces) = witness.traces(self.key)
        {
            self.is_awaited = false;
            self.read_at = at + self.pause;
            self.pause = self.pause.saturating_mul(2).min(LONGEST);
            self.take(&traces);
            // What tells is kept here.
            witness.forget(self.key);
            // It may execute another file of the same name.
            self.hash.again();
        }
        if self.hash.read((self.key, self.person), hash, witness) {
            self.is_new = true;
            self.suspect.sha256 = self.hash.sha256();
        }
        if self
            .sockets_at
            .is_none_or(|last| at.duration_since(last) >= SOCKETS)
        {
            let sockets = witness.sockets(self.key);
            // One that was not looked at yet is soon.
            self.sockets_at = sockets.as_ref().map(|_| at);
            let (listens, peers) = match sockets {
                Some(sockets) => (Some(sockets.listens), Some(sockets.peers)),
                None => (None, None),
            };
            self.is_new |= self.suspect.listens != listens || self.suspect.peers != peers;
            self.suspect.listens = listens;
            self.suspect.peers = peers;
        }
    }

    fn take(&mut self, traces: &Traces) {
        let sent = self.sent(&traces.sent);
        let read = Suspect {
            executable: traces
                .executable
                .clone()
                .or_else(|| self.executable.clone()),
            arguments: self.arguments(traces),
            libraries: traces.libraries.as_ref().map(that_tell),
            sent,
            ..self.suspect.clone()
        };
        self.is_new |= read != self.suspect || self.unseen != traces.unseen;
        self.suspect = read;
        self.unseen.clone_from(&traces.unseen);
    }

    /// What it was told. Whoever wipes that out was told it all the same, unless it executes
    /// something else since.
    fn arguments(&self, traces: &Traces) -> Option<Vec<String>> {
        let is_wiped = traces
            .arguments
            .as_ref()
            .is_some_and(|it| it.iter().all(String::is_empty));
        let is_same = self.suspect.executable == traces.executable;
        match is_wiped && is_same && self.suspect.arguments.is_some() {
            true => self.suspect.arguments.clone(),
            false => traces.arguments.clone(),
        }
    }

    /// What it sent since it was first looked at, where that is its own.
    fn sent(&mut self, sending: &Sending) -> Sent {
        match *sending {
            Sending::Unknown(_) => Sent::Unknown,
            Sending::Shared => Sent::Shared,
            Sending::Own { namespace, bytes } => {
                let before = self.sent_before.filter(|(known, before)| {
                    // One that went elsewhere, or whose counter began anew, begins anew.
                    *known == namespace && *before <= bytes
                });
                let (_, before) = *self
                    .sent_before
                    .insert(before.unwrap_or((namespace, bytes)));
                Sent::Own(bytes - before)
            }
        }
    }

    /// Takes how it uses its devices, where it is time to ask.
    pub(super) fn load(&mut self, load: impl FnOnce() -> Option<Load>, at: Instant) {
        if self
            .load_at
            .is_some_and(|last| at.duration_since(last) < LOAD)
        {
            return;
        }
        self.load_at = Some(at);
        let load = load();
        self.is_new |= self.suspect.load != load;
        self.suspect.load = load;
    }

    /// Takes how often it was refused a device.
    pub(super) fn refused(&mut self, times: u32) {
        self.is_new |= self.suspect.refused != times;
        self.suspect.refused = times;
    }

    /// Has it judged anew: the rules are others.
    pub(super) const fn anew(&mut self) {
        self.is_new = true;
    }

    /// What it looks like, where something of it is new and that changes it.
    pub(super) fn judged(&mut self, rules: &Rules, now: Timestamp) -> Option<&Arc<Looked>> {
        // Before it was read there is nothing to go by but its name.
        if !std::mem::take(&mut self.is_new) {
            return None;
        }
        let Assessment {
            verdicts,
            score,
            signs,
            allowed,
        } = assess(&self.suspect, rules);
        let before = self.looked.as_deref();
        let mut looked = Looked {
            at: before.map_or(now, |before| before.at),
            verdicts,
            score,
            signs,
            allowed: allowed.iter().map(ToString::to_string).collect(),
            unseen: self.unseen(),
        };
        if before == Some(&looked) {
            return None;
        }
        looked.at = now;
        Some(self.looked.insert(Arc::new(looked)))
    }

    /// What it looks like.
    pub(super) const fn looked(&self) -> Option<&Arc<Looked>> {
        self.looked.as_ref()
    }

    /// What could not be looked at, and why.
    fn unseen(&self) -> Vec<String> {
        let mut unseen = self.unseen.clone();
        let suspect = &self.suspect;
        if suspect.arguments.is_none() && unseen.is_empty() {
            unseen.push("what it executes: not read yet".to_owned());
        }
        unseen.extend(self.hash.unseen());
        if suspect.peers.is_none() {
            unseen.push("its connections: not known".to_owned());
        }
        if suspect.sent == Sent::Shared {
            unseen.push("what its network namespace sends: it has the box's own".to_owned());
        }
        let seen = suspect.load.map(|load| load.seen).unwrap_or_default();
        if seen < LOOKED {
            unseen.push("how it uses its GPUs: that takes half an hour".to_owned());
        }
        unseen
    }
}
