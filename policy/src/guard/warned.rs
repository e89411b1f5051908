//! Who was warned of a violation, since when, and how long each has left.
//!
//! A warning is in `list` and `status` for as long as the violation goes on, and so it
//! reaches whoever can look: each user by whom it is known has a grace of their own, from
//! the moment on in which it was first theirs too. Whoever is no person of this box, a
//! container's name or an account of the system's, reads nothing.

use super::judge::Course;
use super::memory::Memory;
use super::snoozes::Grant;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::{self, GuardAction, GuardRecord, GuardStep};
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Who was warned of one violation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Warned {
    /// When first.
    at: Option<Timestamp>,
    /// How often where nobody reads it.
    in_round: u32,
    /// So much of the time since the first warning is no part of it: nobody looked.
    moved_ms: i64,
    /// Each of whom it is known now.
    readers: BTreeMap<u32, Reader>,
    /// When the first of them is to end, if nothing changes.
    deadline: Option<Timestamp>,
    /// By the rule as it is.
    grace_ms: u64,
    max_warnings: u32,
    max_snoozes: u32,
}

/// A user who was warned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Reader {
    /// Since when their grace counts.
    since: Timestamp,
    /// How often they asked for more time.
    snoozes: u32,
    /// How many warnings they have had since then: more time begins them anew.
    told: u32,
    /// How many warnings these were: where looks are rare, one stands for several.
    times: u32,
}

impl Reader {
    /// Whether they are due another warning, and have it.
    fn is_told(&mut self, due: u32) -> bool {
        let is_due = self.told < due;
        self.told = self.told.max(due);
        self.times = self.times.saturating_add(u32::from(is_due));
        is_due
    }

    /// Their grace counts since then, as they asked for more time: of the warnings that they
    /// have had, so many were due by now.
    fn has_more_time(&mut self, since: Timestamp, due: u32) {
        self.since = since;
        self.told = self.told.min(due);
        self.times = self.times.min(due);
    }
}

/// What more time came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) until: Timestamp,
    pub(crate) left: u32,
    /// How often they have asked by now.
    pub(crate) used: u32,
}

impl Warned {
    /// The warning that is due, where one is: the first at once, as for whoever comes
    /// later, and the others evenly spread over the grace of each. After it nobody is
    /// warned any more.
    pub(crate) fn warn(
        &mut self,
        course: &Course,
        at: Timestamp,
        readers: &BTreeSet<u32>,
        snoozes: &BTreeMap<u32, Grant>,
    ) -> Option<GuardStep> {
        self.grace_ms = course.grace_ms;
        self.max_warnings = course.max_warnings;
        self.max_snoozes = course.max_snoozes;
        // Whoever has nothing to do with it any more, and comes back, is warned anew.
        self.readers.retain(|uid, _| readers.contains(uid));
        for uid in readers {
            let grace = i64::try_from(self.grace_ms).unwrap_or(i64::MAX);
            // What they were promised before holds still.
            let granted = snoozes.get(uid);
            let since = granted.map(|it| Timestamp(it.until.0.saturating_sub(grace)));
            let due = since.map(|since| self.due(since, at));
            let reader = self.readers.entry(*uid).or_insert(Reader {
                since: since.unwrap_or(at).max(at),
                snoozes: granted.map_or(0, |it| it.used),
                told: 0,
                times: 0,
            });
            // A test and a replay know of a snooze by this alone.
            if let (Some(granted), Some(since), Some(due)) = (granted, since, due)
                && since > reader.since
            {
                reader.has_more_time(since, due);
                reader.snoozes = granted.used.max(reader.snoozes);
            }
        }
        let is_fatal = course.action == GuardAction::Terminate;
        self.deadline = self.first_end().filter(|_| is_fatal);
        if is_fatal && readers.is_empty() {
            return None;
        }
        (self.is_due(is_fatal, at) || self.at.is_none()).then(|| self.tell(at))
    }

    /// Whether anybody is due a warning, which they have from now on.
    fn is_due(&mut self, is_fatal: bool, at: Timestamp) -> bool {
        let mut readers = std::mem::take(&mut self.readers);
        let mut is_due = false;
        for reader in readers.values_mut() {
            let is_over = is_fatal && at >= later(reader.since, self.grace_ms);
            if !is_over || reader.told == 0 {
                is_due |= reader.is_told(self.due(reader.since, at));
            }
        }
        self.readers = readers;
        if let (Some(first), true) = (self.at, self.readers.is_empty()) {
            let since = Timestamp(first.0.saturating_add(self.moved_ms));
            is_due |= self.in_round < self.due(since, at);
        }
        is_due
    }

    /// How many warnings somebody is to have had by now whose grace counts since then.
    fn due(&self, since: Timestamp, at: Timestamp) -> u32 {
        let Ok(past) = u128::try_from(at.0.saturating_sub(since.0)) else {
            return 0;
        };
        let due = past * u128::from(self.max_warnings);
        let due = due.checked_div(u128::from(self.grace_ms));
        let due = due.map_or(u32::MAX, |due| u32::try_from(due).unwrap_or(u32::MAX));
        due.saturating_add(1).min(self.max_warnings)
    }

    fn tell(&mut self, at: Timestamp) -> GuardStep {
        self.at.get_or_insert(at);
        self.in_round = self
            .in_round
            .saturating_add(1)
            .min(self.max_warnings.max(1));
        GuardStep::Warned {
            times: self.times(),
            deadline: self.deadline,
        }
    }

    /// Whose grace is over.
    pub(crate) fn over(&self, grace_ms: u64, at: Timestamp) -> BTreeSet<u32> {
        let is_over = |reader: &Reader| at >= later(reader.since, grace_ms);
        let over = self.readers.iter().filter(|(_, it)| is_over(it));
        over.map(|(uid, _)| *uid).into_set()
    }

    /// Who was warned.
    pub(crate) fn readers(&self) -> BTreeSet<u32> {
        self.readers.keys().copied().into_set()
    }

    /// When the grace of the first of them is over.
    fn first_end(&self) -> Option<Timestamp> {
        let first = self.readers.values().map(|it| it.since).min()?;
        Some(later(first, self.grace_ms))
    }

    /// Gives a user more time. `None` where they were not warned that anything is ended,
    /// or may ask no more.
    pub(crate) fn snooze(
        &mut self,
        uid: u32,
        ms: u64,
        at: Timestamp,
    ) -> Result<Granted, NotSnoozed> {
        if self.deadline.is_none() {
            return Err(NotSnoozed::NothingEnds);
        }
        let reader = self.readers.get(&uid).ok_or(NotSnoozed::NotWarned)?;
        let left = self.max_snoozes.saturating_sub(reader.snoozes);
        let left = left.checked_sub(1).ok_or(NotSnoozed::NoneLeft)?;
        // Whose grace is over already has the whole of what is given.
        let end = later(reader.since, self.grace_ms).max(at);
        let until = later(end, ms);
        let grace = i64::try_from(self.grace_ms).unwrap_or(i64::MAX);
        let since = Timestamp(until.0.saturating_sub(grace));
        let used = reader.snoozes.saturating_add(1);
        let mut reader = reader.clone();
        reader.has_more_time(since, self.due(since, at));
        reader.snoozes = used;
        self.readers.insert(uid, reader);
        self.deadline = self.first_end();
        Ok(Granted { until, left, used })
    }

    /// So much time is no part of any grace.
    pub(crate) fn moves(&mut self, ms: i64) {
        for reader in self.readers.values_mut() {
            reader.since = Timestamp(reader.since.0.saturating_add(ms));
        }
        self.moved_ms = self.moved_ms.saturating_add(ms);
        self.deadline = self.deadline.map(|it| Timestamp(it.0.saturating_add(ms)));
    }

    pub(crate) const fn at(&self) -> Option<Timestamp> {
        self.at
    }

    /// The most warnings that a user has had, out of as many as the rule allows: more time
    /// begins them anew.
    pub(crate) fn times(&self) -> u32 {
        let most = self.readers.values().map(|reader| reader.times).max();
        most.unwrap_or(self.in_round)
    }

    pub(crate) const fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Those who were warned, where anything is ended.
    pub(crate) fn told(&self) -> Vec<guard::Reader> {
        let told = |(uid, reader): (&u32, &Reader)| guard::Reader {
            uid: *uid,
            deadline: later(reader.since, self.grace_ms),
            snoozes_left: self.max_snoozes.saturating_sub(reader.snoozes),
        };
        let readers = self.readers.iter().filter(|_| self.deadline.is_some());
        readers.map(told).collect()
    }
}

impl Memory {
    /// Whether a record is the first warning of a violation: of several one counts.
    #[must_use]
    pub fn is_first_warning(&self, record: &GuardRecord) -> bool {
        let clocks = self.clocks.get(&record.rule);
        let clock = clocks.and_then(|it| it.of.get(&record.subject));
        let opened = clock.and_then(|clock| clock.opened.as_ref());
        matches!(record.step, GuardStep::Warned { .. })
            && opened.is_some_and(|it| it.warned.at() == Some(record.at))
    }
}

/// Why nobody gets more time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotSnoozed {
    /// They have asked as often as the rule allows.
    NoneLeft,
    /// The rule only warns, or nobody is warned before an end.
    NothingEnds,
    /// Whose process it is, was not warned.
    NotWarned,
    /// No rule is broken by it.
    NotBroken,
    /// Its job has had signals.
    TooLate,
}

impl fmt::Display for NotSnoozed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoneLeft => "more time was given as often as the rule allows",
            Self::NothingEnds => "nothing is ended for what it does: there is nothing to put off",
            Self::NotWarned => "whose it is was not warned of anything",
            Self::NotBroken => "it breaks no rule",
            Self::TooLate => "its job is being ended already",
        })
    }
}

fn later(since: Timestamp, ms: u64) -> Timestamp {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    Timestamp(since.0.saturating_add(ms))
}

/// Whether somebody is behind this number who reads what is told to them. Systems number
/// their own accounts 1 to 999, systemd those of services that last no longer than they
/// run 61184 to 65519, and nobody is 65534 (systemd's "Users, Groups, UIDs and GIDs").
pub(crate) const fn is_read(uid: u32) -> bool {
    !matches!(uid, 1..=999 | 61_184..=65_519 | 65_534)
}
