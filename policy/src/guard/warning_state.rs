//! Which users were warned of a violation, since when, and how long each has left.
//!
//! A warning is in `list` and `status` for as long as the violation goes on, and so reaches
//! every person who can look. Each user in the evidence has a grace period of their own,
//! from the moment at which they appear in it. An owner who is no person of this host, such
//! as a container's name or a system account, reads nothing.

use super::evaluate::RuleResponse;
use super::snoozes::SnoozeGrant;
use super::state::GuardState;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::RetainEntries as _;
use gpukill_proto::guard::{self, GuardAction, GuardRecord, GuardStep};
use gpukill_proto::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The warnings of one violation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WarningState {
    /// Time of the first warning.
    at: Option<Timestamp>,
    /// How many warnings there were while no user reads them.
    unread_count: u32,
    /// Milliseconds since the first warning that do not count: nothing was observed in
    /// them.
    moved_ms: i64,
    /// Each user in the current evidence.
    readers: BTreeMap<u32, WarnedUser>,
    /// When the first job of one of them is ended, if nothing changes.
    deadline: Option<Timestamp>,
    /// From the rule as it is now.
    grace_ms: u64,
    max_warnings: u32,
    max_snoozes: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WarnedUser {
    /// Since when the grace period counts.
    since: Timestamp,
    /// How often the user asked for a snooze.
    snoozes: u32,
    /// The warnings of the user since then. A snooze takes back the warnings that are not due yet.
    warnings: u32,
    /// How many records these warnings were: with rare samples, one stands for several.
    times: u32,
}

impl WarnedUser {
    /// Records the warnings that are due. Returns whether there was one.
    fn record_due(&mut self, due: u32) -> bool {
        let is_due = self.warnings < due;
        self.warnings = self.warnings.max(due);
        self.times = self.times.saturating_add(u32::from(is_due));
        is_due
    }

    /// Restarts the grace period at `since` after a snooze: of the earlier warnings, only
    /// `due` count.
    fn restart_grace(&mut self, since: Timestamp, due: u32) {
        self.since = since;
        self.warnings = self.warnings.min(due);
        self.times = self.times.min(due);
    }
}

/// The time that a snooze granted, and the snoozes left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnoozeResult {
    pub(crate) until: Timestamp,
    pub(crate) left: u32,
    /// How often the user has asked by now.
    pub(crate) used: u32,
}

impl WarningState {
    /// The warning that is due, if there is one: the first at once, also for a user who
    /// appears later, the others spread evenly over the grace period of each user. After it
    /// no user is warned any more.
    pub(crate) fn warn(
        &mut self,
        response: &RuleResponse,
        at: Timestamp,
        readers: &BTreeSet<u32>,
        snoozes: &BTreeMap<u32, SnoozeGrant>,
    ) -> Option<GuardStep> {
        self.grace_ms = response.grace_ms;
        self.max_warnings = response.max_warnings;
        self.max_snoozes = response.max_snoozes;
        // A user who left the violation and comes back is warned again.
        self.readers.retain_entries(|uid, _| readers.contains(uid));
        for uid in readers {
            let grace = i64::try_from(self.grace_ms).unwrap_or(i64::MAX);
            // An earlier promise still holds.
            let granted = snoozes.get(uid);
            let since = granted.map(|it| Timestamp(it.until.0.saturating_sub(grace)));
            let due = since.map(|since| self.due_warnings(since, at));
            let reader = self.readers.entry(*uid).or_insert(WarnedUser {
                since: since.unwrap_or(at).max(at),
                snoozes: granted.map_or(0, |it| it.used),
                warnings: 0,
                times: 0,
            });
            // A test and a replay know a snooze by this alone.
            if let (Some(granted), Some(since), Some(due)) = (granted, since, due)
                && since > reader.since
            {
                reader.restart_grace(since, due);
                reader.snoozes = granted.used.max(reader.snoozes);
            }
        }
        let is_fatal = response.action == GuardAction::Terminate;
        self.deadline = self.first_deadline().filter(|_| is_fatal);
        if is_fatal && readers.is_empty() {
            return None;
        }
        (self.record_due_warnings(is_fatal, at) || self.at.is_none())
            .then(|| self.record_warning(at))
    }

    /// Whether a user is due a warning, which is recorded as given.
    fn record_due_warnings(&mut self, is_fatal: bool, at: Timestamp) -> bool {
        let mut readers = std::mem::take(&mut self.readers);
        let mut is_due = false;
        for reader in readers.values_mut() {
            let is_over = is_fatal && at >= add_ms(reader.since, self.grace_ms);
            if !is_over || reader.warnings == 0 {
                is_due |= reader.record_due(self.due_warnings(reader.since, at));
            }
        }
        self.readers = readers;
        if let (Some(first), true) = (self.at, self.readers.is_empty()) {
            let since = Timestamp(first.0.saturating_add(self.moved_ms));
            is_due |= self.unread_count < self.due_warnings(since, at);
        }
        is_due
    }

    /// How many warnings are due by now in a grace period that began at `since`.
    fn due_warnings(&self, since: Timestamp, at: Timestamp) -> u32 {
        let Ok(past) = u128::try_from(at.0.saturating_sub(since.0)) else {
            return 0;
        };
        let due = past * u128::from(self.max_warnings);
        let due = due.checked_div(u128::from(self.grace_ms));
        let due = due.map_or(u32::MAX, |due| u32::try_from(due).unwrap_or(u32::MAX));
        due.saturating_add(1).min(self.max_warnings)
    }

    fn record_warning(&mut self, at: Timestamp) -> GuardStep {
        self.at.get_or_insert(at);
        self.unread_count = self
            .unread_count
            .saturating_add(1)
            .min(self.max_warnings.max(1));
        GuardStep::Warned {
            times: self.warning_count(),
            deadline: self.deadline,
        }
    }

    /// The users after their grace period.
    pub(crate) fn users_past_grace(&self, grace_ms: u64, at: Timestamp) -> BTreeSet<u32> {
        let is_over = |reader: &WarnedUser| at >= add_ms(reader.since, grace_ms);
        let over = self.readers.iter().filter(|(_, it)| is_over(it));
        over.map(|(uid, _)| *uid).into_set()
    }

    pub(crate) fn warned_users(&self) -> BTreeSet<u32> {
        self.readers.keys().copied().into_set()
    }

    /// When the first grace period is over.
    fn first_deadline(&self) -> Option<Timestamp> {
        let first = self.readers.values().map(|it| it.since).min()?;
        Some(add_ms(first, self.grace_ms))
    }

    /// Grants a user a snooze, unless the user was not warned of an end or may not ask
    /// again.
    pub(crate) fn snooze(
        &mut self,
        uid: u32,
        ms: u64,
        at: Timestamp,
    ) -> Result<SnoozeResult, SnoozeError> {
        if self.deadline.is_none() {
            return Err(SnoozeError::NothingEnds);
        }
        let reader = self.readers.get(&uid).ok_or(SnoozeError::NotWarned)?;
        let left = self.max_snoozes.saturating_sub(reader.snoozes);
        let left = left.checked_sub(1).ok_or(SnoozeError::NoneLeft)?;
        // After the grace period the whole snooze counts from now.
        let end = add_ms(reader.since, self.grace_ms).max(at);
        let until = add_ms(end, ms);
        let grace = i64::try_from(self.grace_ms).unwrap_or(i64::MAX);
        let since = Timestamp(until.0.saturating_sub(grace));
        let used = reader.snoozes.saturating_add(1);
        let mut reader = reader.clone();
        reader.restart_grace(since, self.due_warnings(since, at));
        reader.snoozes = used;
        self.readers.insert(uid, reader);
        self.deadline = self.first_deadline();
        Ok(SnoozeResult { until, left, used })
    }

    /// Shifts all grace periods by unobserved milliseconds.
    pub(crate) fn shift_time(&mut self, ms: i64) {
        for reader in self.readers.values_mut() {
            reader.since = Timestamp(reader.since.0.saturating_add(ms));
        }
        self.moved_ms = self.moved_ms.saturating_add(ms);
        self.deadline = self.deadline.map(|it| Timestamp(it.0.saturating_add(ms)));
    }

    pub(crate) const fn first_warned_at(&self) -> Option<Timestamp> {
        self.at
    }

    /// The most warnings that a user has had, at most as many as the rule allows: a snooze
    /// restarts the count.
    pub(crate) fn warning_count(&self) -> u32 {
        let max_times = self.readers.values().map(|reader| reader.times).max();
        max_times.unwrap_or(self.unread_count)
    }

    pub(crate) const fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// The warned users, if the rule ends jobs.
    pub(crate) fn to_readers(&self) -> Vec<guard::WarnedOwner> {
        let to_owner = |(uid, reader): (&u32, &WarnedUser)| guard::WarnedOwner {
            uid: *uid,
            deadline: add_ms(reader.since, self.grace_ms),
            snoozes_left: self.max_snoozes.saturating_sub(reader.snoozes),
        };
        let readers = self.readers.iter().filter(|_| self.deadline.is_some());
        readers.map(to_owner).collect()
    }
}

impl GuardState {
    /// Whether a record is the first warning of a violation, however many follow.
    #[must_use]
    pub fn is_first_warning(&self, record: &GuardRecord) -> bool {
        let violations = self.violations.get(&record.rule);
        let violation = violations.and_then(|it| it.of.get(&record.subject));
        let opened = violation.and_then(|violation| violation.opened.as_ref());
        matches!(record.step, GuardStep::Warned { .. })
            && opened.is_some_and(|it| it.warned.first_warned_at() == Some(record.at))
    }
}

/// Why a snooze is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum SnoozeError {
    /// The user has asked as often as the rule allows.
    #[error("it was snoozed as often as the rule allows")]
    NoneLeft,
    /// The rule only warns, or ends jobs without a warning.
    #[error("no job is ended for its violation: there is nothing to snooze")]
    NothingEnds,
    /// The owner of the process was not warned.
    #[error("its owner was not warned")]
    NotWarned,
    /// The process violates no rule.
    #[error("it violates no rule")]
    NotBroken,
    /// The job has been signalled.
    #[error("its job is being ended already")]
    TooLate,
}

fn add_ms(since: Timestamp, ms: u64) -> Timestamp {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    Timestamp(since.0.saturating_add(ms))
}

/// Whether a person behind this uid can read a warning. Systems number their own accounts 1
/// to 999, systemd numbers those of transient services 61184 to 65519, and nobody is 65534
/// (systemd's "Users, Groups, UIDs and GIDs").
pub(crate) const fn can_read_warnings(uid: u32) -> bool {
    !matches!(uid, 1..=999 | 61_184..=65_519 | 65_534)
}
