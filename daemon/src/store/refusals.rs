//! Refusals on their way to the record. Any user can provoke refusals as often as they like and
//! must not fill the disk: the first refusal of a kind is recorded at once, repeats are recorded
//! once a minute with their number, and very different refusals of one person only as a number per
//! hour.

use super::{Action, ActionKind, truncate};
use gpukill_policy::access::LimitGroup;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long repeats are counted before they are recorded.
const MINUTE: Duration = Duration::from_secs(60);

/// The period of the allowance.
const HOUR: Duration = Duration::from_secs(3_600);

/// The rows an hour that one person may cause, and all persons together; and the persons who get
/// one row each after that. With rows of 6 KiB these are 104 MB a day in the worst case, caused by
/// at least ten people. A person is the human behind several user ids.
const MAX_ROWS_PER_PERSON: u32 = 60;
const MAX_ROWS: u32 = 600;
const MAX_FIRST_ROWS: u32 = 100;

/// The longest texts of a refusal, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 10;
const MAX_PLAN_BYTES: usize = 4 << 10;

/// The reason in a row of refusals that were only counted.
const ONLY_COUNTED: &str = "more refusals than are recorded individually";

/// One row: one or several refusals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RefusalRow {
    /// The time of the first and of the last refusal.
    pub(super) at: Timestamp,
    pub(super) last: Timestamp,
    pub(super) times: u64,
    pub(super) kind: ActionKind,
    /// The user; `None` for several people.
    pub(super) uid: Option<u32>,
    pub(super) request: String,
    pub(super) plan: Option<String>,
    pub(super) why: String,
}

/// The caller, and the user id.
type Requester = (LimitGroup, u32);

/// The refusals of the last hour.
#[derive(Default)]
pub(super) struct Refusals {
    ready: Vec<RefusalRow>,
    repeats: BTreeMap<(Requester, ActionKind, String), RefusalCount>,
    counted: BTreeMap<(Option<u32>, ActionKind), RefusalCount>,
    allowance: HourlyAllowance,
}

/// The number of refusals in a period.
struct RefusalCount {
    since: Instant,
    at: Timestamp,
    last: Timestamp,
    times: u64,
    request: String,
}

impl RefusalCount {
    fn starting(since: Instant, at: Timestamp, request: String) -> Self {
        Self {
            since,
            at,
            last: at,
            times: 0,
            request,
        }
    }

    fn add(&mut self, times: u64, at: Timestamp, last: Timestamp) {
        if self.times == 0 {
            self.at = at;
        }
        (self.times, self.last) = (self.times.saturating_add(times), last);
    }

    fn into_row(self, kind: ActionKind, uid: Option<u32>, why: String) -> RefusalRow {
        RefusalRow {
            at: self.at,
            last: self.last,
            times: self.times,
            kind,
            uid,
            request: self.request,
            plan: None,
            why,
        }
    }
}

/// The part of the hour's allowance that was used.
#[derive(Default)]
struct HourlyAllowance {
    since: Option<Instant>,
    rows: u32,
    rows_by_person: BTreeMap<LimitGroup, u32>,
    /// The user ids that have rows.
    uids: BTreeSet<u32>,
}

impl HourlyAllowance {
    /// Whether the person may have another row; if so, counts the row.
    fn use_row(&mut self, (group, uid): (LimitGroup, u32), now: Instant) -> bool {
        let is_over = |since: Instant| now.saturating_duration_since(since) >= HOUR;
        if self.since.is_none_or(is_over) {
            *self = Self {
                since: Some(now),
                ..Self::default()
            };
        }
        let of_one = self.rows_by_person.get(&group).copied().unwrap_or(0);
        let max_rows = match of_one {
            0 => MAX_ROWS + MAX_FIRST_ROWS,
            _ => MAX_ROWS,
        };
        let allowed = of_one < MAX_ROWS_PER_PERSON && self.rows < max_rows;
        if allowed {
            self.rows += 1;
            self.rows_by_person.insert(group, of_one + 1);
            self.uids.insert(uid);
        }
        allowed
    }
}

impl Refusals {
    /// Adds a refusal. Returns true if there is a row to write at once.
    pub(super) fn add(
        &mut self,
        action: Action,
        group: LimitGroup,
        why: String,
        at: Timestamp,
        now: Instant,
    ) -> bool {
        let why = truncate::text(why, MAX_TEXT_BYTES);
        let request = truncate::text(action.request, MAX_TEXT_BYTES);
        let requester = (group, action.uid);
        let key = (requester, action.kind, why);
        if let Some(count) = self.repeats.get_mut(&key) {
            count.add(1, at, at);
            return false;
        }
        // The rows may not have been taken: the disk may hang.
        let is_crowded = self.ready.len() >= (MAX_ROWS + MAX_FIRST_ROWS) as usize;
        if is_crowded || !self.allowance.use_row(requester, now) {
            self.add_counted(action.uid, action.kind, 1, (at, at), now);
            return false;
        }
        let first = RefusalRow {
            at,
            last: at,
            times: 1,
            kind: action.kind,
            uid: Some(action.uid),
            request: request.clone(),
            plan: Some(truncate::json(action.plan, MAX_PLAN_BYTES)),
            why: key.2.clone(),
        };
        self.repeats
            .insert(key, RefusalCount::starting(now, at, request));
        self.ready.push(first);
        true
    }

    fn add_counted(
        &mut self,
        uid: u32,
        kind: ActionKind,
        times: u64,
        (at, last): (Timestamp, Timestamp),
        now: Instant,
    ) {
        // A user without a row is not named here either: one person can have many user ids.
        let uid = self.allowance.uids.contains(&uid).then_some(uid);
        let fresh = || RefusalCount::starting(now, at, String::new());
        let counted = self.counted.entry((uid, kind)).or_insert_with(fresh);
        counted.add(times, at, last);
    }

    /// Takes the rows that are due.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<RefusalRow> {
        let old = |count: &RefusalCount, age| now.saturating_duration_since(count.since) >= age;
        let mut rows = std::mem::take(&mut self.ready);
        let minute_is_over = |_: &_, count: &mut RefusalCount| old(count, MINUTE);
        let over: Vec<_> = self.repeats.extract_if(.., minute_is_over).collect();
        for ((requester, kind, why), count) in over {
            let (_, uid) = requester;
            if count.times == 0 {
                continue;
            }
            if !self.allowance.use_row(requester, now) {
                self.add_counted(uid, kind, count.times, (count.at, count.last), now);
                continue;
            }
            // The next repeat is not recorded at once.
            let next = RefusalCount::starting(now, count.last, count.request.clone());
            self.repeats.insert((requester, kind, why.clone()), next);
            rows.push(count.into_row(kind, Some(uid), why));
        }
        let hour_is_over = |_: &_, count: &mut RefusalCount| old(count, HOUR);
        let over = self.counted.extract_if(.., hour_is_over);
        rows.extend(
            over.map(|((uid, kind), count)| count.into_row(kind, uid, ONLY_COUNTED.into())),
        );
        rows
    }

    /// Takes all remaining rows: no more will follow.
    pub(super) fn drain(&mut self) -> Vec<RefusalRow> {
        let all = std::mem::take(self);
        let mut rows = all.ready;
        let repeated = all.repeats.into_iter().filter(|(_, count)| count.times > 0);
        rows.extend(
            repeated.map(|(((_, uid), kind, why), count)| count.into_row(kind, Some(uid), why)),
        );
        let counted = all.counted.into_iter();
        rows.extend(
            counted.map(|((uid, kind), count)| count.into_row(kind, uid, ONLY_COUNTED.into())),
        );
        rows
    }

    /// When the next row is due, as far as known.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let repeated = self.repeats.values().map(|count| count.since + MINUTE);
        let counted = self.counted.values().map(|count| count.since + HOUR);
        repeated.chain(counted).min()
    }
}

#[cfg(test)]
mod tests;
