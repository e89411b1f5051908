//! Jobs that were ended and are there still: they are about to go, and nobody else is ended
//! for what they hold. Processes that survive their signals are tried again after growing
//! waits, and protect no other process of their job.

use super::memory::sight::Sight;
use super::memory::{JobKey, pairs};
use super::whose::PersonKey;
use crate::digest::Digest;
use gpukill_proto::guard::RuleName;
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A process: its pid and when it began.
pub type Process = (u32, u64);

/// A job that was ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub(crate) at: Timestamp,
    /// For which rule, and what that said.
    pub(crate) rule: Option<(RuleName, Digest)>,
    /// By which rules as a whole.
    pub(crate) rule_set: Digest,
    /// How far that has come.
    pub(crate) progress: Progress,
    /// So often it was chosen before, and no signal was sent.
    pub(crate) tries: u32,
    /// Those of its processes that are there still.
    pub(crate) processes: BTreeSet<Process>,
    /// Whose it is.
    pub(crate) person: Option<PersonKey>,
    /// In a container that several users share: whose processes alone were ended.
    pub(crate) user: Option<Part>,
    /// Those that joined it while any of these was there, and are there still.
    pub(crate) joined: BTreeSet<Process>,
    /// Its processes that had signals before and are there still.
    #[serde(with = "pairs")]
    pub(crate) survivors: BTreeMap<Process, Survivor>,
    /// What they used when it was ended.
    pub(crate) devices: BTreeSet<DeviceId>,
}

/// The processes of one user in a container; `None` of an unknown one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Part(pub(crate) Option<u32>);

/// A process that is there still after its signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Survivor {
    /// When it was chosen last.
    pub(crate) at: Timestamp,
    /// How often it had its signals.
    pub(crate) tries: u32,
}

impl Survivor {
    /// Whether it is to have its signals again.
    fn is_due(self, now: Timestamp) -> bool {
        self.at < now && now.since(self.at) >= GOING * (1 << self.tries.min(LONGEST_PAUSE))
    }
}

/// How far ending a job has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Progress {
    /// It was chosen: no signal was sent yet, as far as was written down.
    #[default]
    Chosen,
    /// Signals are about to be sent, or were.
    Began,
    /// Signals were sent, and what came of that is known.
    Over,
    /// It could not be begun, or is not to be any more.
    Failed,
    /// It waits for those that are being ended: it may be chosen again at once.
    Postponed,
}

impl Progress {
    /// Whether it may have had a signal.
    pub(crate) const fn had_signals(self) -> bool {
        match self {
            Self::Began | Self::Over => true,
            Self::Chosen | Self::Failed | Self::Postponed => false,
        }
    }
}

impl Ended {
    /// Whether it has been going for no longer than that takes.
    pub(crate) fn is_going(&self, now: Timestamp) -> bool {
        // What could not be begun is tried again ever later: each try is told of.
        let going = GOING * (1 << self.tries.min(LONGEST_WAIT));
        self.progress != Progress::Postponed && self.is_younger(now, going)
    }

    /// How often it was chosen and had no signal, once it is chosen again.
    pub(crate) const fn tries_after(&self) -> u32 {
        match self.progress {
            // Others' jobs had its place: that says nothing of this one.
            Progress::Postponed => self.tries,
            Progress::Chosen | Progress::Began | Progress::Over | Progress::Failed => {
                self.tries.saturating_add(1)
            }
        }
    }

    /// Whether somebody is at work to end it.
    pub(crate) fn is_being_ended(&self, now: Timestamp) -> bool {
        let is_at_work = matches!(self.progress, Progress::Chosen | Progress::Began);
        is_at_work && self.is_younger(now, UNDER_WAY)
    }

    /// Whether signals are being sent to it: who is born to it meanwhile has them too.
    fn is_under_way(&self, now: Timestamp) -> bool {
        self.progress == Progress::Began && self.is_younger(now, UNDER_WAY)
    }

    /// Whether it was chosen less than so long ago; a clock may have been set back since.
    fn is_younger(&self, now: Timestamp, than: Duration) -> bool {
        self.at >= now || now.since(self.at) < than
    }

    /// Whether this process may have had a signal.
    pub(crate) fn has_signalled(&self, process: &Process) -> bool {
        self.survivors.contains_key(process) || self.is_signalling(process)
    }

    /// Whether this process may have had a signal since the job was chosen last.
    fn is_signalling(&self, process: &Process) -> bool {
        self.progress.had_signals() && self.all().any(|it| it == process)
    }

    /// Whether this process survived its signals, and is to have them again.
    pub(crate) fn is_due_again(&self, process: &Process, now: Timestamp) -> bool {
        let survivor = self.survivors.get(process);
        survivor.is_some_and(|it| it.is_due(now)) && !self.is_signalling(process)
    }

    /// The signals were sent: processes that had them and are there still survived them.
    /// One that joined the job later had none.
    fn settle(&mut self) {
        self.progress = Progress::Over;
        self.joined.clear();
        for process in std::mem::take(&mut self.processes) {
            let before = self.survivors.get(&process);
            let tries = before.map_or(0, |it| it.tries).saturating_add(1);
            let survivor = Survivor { at: self.at, tries };
            self.survivors.insert(process, survivor);
        }
    }

    /// So much time was nobody's.
    pub(crate) fn moves(&mut self, ms: i64) {
        let survivors = self.survivors.values_mut().map(|it| &mut it.at);
        for at in survivors.chain([&mut self.at]) {
            *at = Timestamp(at.0.saturating_add(ms));
        }
    }

    /// All that are there still and did not survive signals before.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().chain(&self.joined)
    }
}

/// A job that was ended has so long to go, or, where its end could not be begun, to be
/// chosen again.
const GOING: Duration = Duration::from_secs(60);

/// So long signals are sent at most: on some devices SIGINT, SIGTERM and SIGKILL one after
/// the other, [`PATIENCE_MS`](super::sentence::PATIENCE_MS) after each of the first two;
/// then rounds for what was born meanwhile, and the wait for the memory.
const UNDER_WAY: Duration = Duration::from_secs(120);

/// After so long it is not waited for what came of signals: the daemon was killed before it
/// could be written down.
const UNTOLD: Duration = Duration::from_secs(3_600);

/// Doubled so often that makes four minutes.
const LONGEST_WAIT: u32 = 2;

/// Doubled so often that makes an hour: a process that survives SIGKILL waits in the kernel
/// as a rule, and each try is recorded.
const LONGEST_PAUSE: u32 = 6;

/// Looks who is there still: forgets a job of whose processes none is, and takes in who
/// joins one while any is that was ended. Of a device out of sight nobody is known to be
/// gone.
pub(crate) fn update<'k>(
    ended: &mut BTreeMap<JobKey, Ended>,
    (sight, now): (&Sight, Timestamp),
    there: &BTreeSet<Process>,
    processes: impl Iterator<Item = (Process, &'k JobKey, Option<u32>)>,
) {
    ended.retain(|_, it| {
        if sight.is_of_all(&it.devices) {
            it.processes.retain(|process| there.contains(process));
            it.joined.retain(|process| there.contains(process));
            it.survivors.retain(|process, _| there.contains(process));
        }
        // What came of it is known, or will not be: the daemon was killed meanwhile.
        let is_lost = it.progress == Progress::Began && !it.is_younger(now, UNTOLD);
        if it.progress == Progress::Over || is_lost {
            it.settle();
        }
        it.all().next().is_some() || !it.survivors.is_empty() || it.is_under_way(now)
    });
    for (process, job, user) in processes {
        if let Some(it) = ended.get_mut(job)
            && it.progress != Progress::Over
            && it.user.is_none_or(|part| part == Part(user))
            && !it.processes.is_empty()
            && !it.processes.contains(&process)
            && !it.survivors.contains_key(&process)
        {
            it.joined.insert(process);
        }
    }
}
