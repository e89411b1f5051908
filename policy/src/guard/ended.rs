//! Jobs that were ended and are there still: they are about to go, and nobody else is ended
//! for what they hold.

use super::memory::JobKey;
use super::memory::sight::Sight;
use super::whose::PersonKey;
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
    #[serde(default)]
    pub(crate) rule: Option<(RuleName, u64)>,
    /// By which rules as a whole.
    #[serde(default)]
    pub(crate) book: u64,
    /// How far that has come.
    #[serde(default)]
    pub(crate) progress: Progress,
    /// So often it was chosen before, and no signal was sent.
    #[serde(default)]
    pub(crate) tries: u32,
    /// Those of its processes that are there still.
    pub(crate) processes: BTreeSet<Process>,
    /// Whose it is.
    #[serde(default)]
    pub(crate) person: Option<PersonKey>,
    /// In a container that several users share: whose processes alone were ended.
    #[serde(default)]
    pub(crate) user: Option<Part>,
    /// Those that joined it while any of these was there, and are there still.
    #[serde(default)]
    pub(crate) joined: BTreeSet<Process>,
    /// What they used when it was ended.
    #[serde(default)]
    pub(crate) devices: BTreeSet<DeviceId>,
}

/// The processes of one user in a container; `None` of an unknown one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Part(pub(crate) Option<u32>);

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
}

impl Progress {
    /// Whether it may have had a signal.
    pub(crate) const fn had_signals(self) -> bool {
        match self {
            Self::Began | Self::Over => true,
            Self::Chosen | Self::Failed => false,
        }
    }
}

impl Ended {
    /// Whether it has been going for no longer than that takes.
    pub(crate) fn is_going(&self, now: Timestamp) -> bool {
        // What could not be begun is tried again ever later: each try is told of.
        let going = GOING * (1 << self.tries.min(LONGEST_WAIT));
        self.is_younger(now, going)
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

    /// All that are there still.
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

/// Doubled so often that makes four minutes.
const LONGEST_WAIT: u32 = 2;

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
        }
        // What came of it is known: who came to it since then had no signal, and is judged
        // as anybody else once those are gone who had.
        if it.progress == Progress::Over {
            it.joined.clear();
        }
        it.all().next().is_some() || it.is_under_way(now)
    });
    for (process, job, user) in processes {
        if let Some(it) = ended.get_mut(job)
            && it.progress != Progress::Over
            && it.user.is_none_or(|part| part == Part(user))
            && !it.processes.is_empty()
            && !it.processes.contains(&process)
        {
            it.joined.insert(process);
        }
    }
}
