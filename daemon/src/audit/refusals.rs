//! What was refused, on its way to the record. Anybody can ask for what is
//! refused as often as they like, and must not fill the disk: repeats are counted
//! and told once a minute, and a person who is refused very different things is
//! told of in one number for the hour. The first of its kind is told at once.

use super::{Act, ActKind, cut};
use gpukill_policy::access::LimitGroup;
use gpukill_proto::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long repeats are counted before they are told.
const MINUTE: Duration = Duration::from_secs(60);

/// How long what is allowed is allowed.
const HOUR: Duration = Duration::from_secs(3_600);

/// So many rows an hour one person may cause, and all together; and so many more people
/// have one row each when that is used up. With rows of 6 KiB these are 104 MB a day in
/// the worst case, of ten people at least. A person is who is behind the user ids.
const MOST_OF_ONE: u32 = 60;
const MOST_OF_ALL: u32 = 600;
const MOST_FIRSTS: u32 = 100;

/// The most of each text of a refusal, in bytes.
const MOST_TEXT: usize = 1 << 10;
const MOST_PLAN: usize = 4 << 10;

/// Why those were refused that are only counted.
const COUNTED: &str = "more was refused than is recorded one by one";

/// One row: a refusal, or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    /// The first and the last of them.
    pub(super) at: Timestamp,
    pub(super) last: Timestamp,
    pub(super) times: u64,
    pub(super) kind: ActKind,
    /// Who asked; `None` for several people.
    pub(super) uid: Option<u32>,
    pub(super) asked: String,
    pub(super) plan: Option<String>,
    pub(super) why: String,
}

/// Who asked: the person behind, and the user id.
type Who = (LimitGroup, u32);

/// What is known of the refusals of the last hour.
#[derive(Default)]
pub(super) struct Refusals {
    ready: Vec<Refused>,
    alike: BTreeMap<(Who, ActKind, String), Count>,
    counted: BTreeMap<(Option<u32>, ActKind), Count>,
    spent: Spent,
}

/// So many in some time.
struct Count {
    since: Instant,
    at: Timestamp,
    last: Timestamp,
    times: u64,
    asked: String,
}

impl Count {
    fn starting(since: Instant, at: Timestamp, asked: String) -> Self {
        Self {
            since,
            at,
            last: at,
            times: 0,
            asked,
        }
    }

    fn add(&mut self, times: u64, at: Timestamp, last: Timestamp) {
        if self.times == 0 {
            self.at = at;
        }
        (self.times, self.last) = (self.times.saturating_add(times), last);
    }

    fn told(self, kind: ActKind, uid: Option<u32>, why: String) -> Refused {
        Refused {
            at: self.at,
            last: self.last,
            times: self.times,
            kind,
            uid,
            asked: self.asked,
            plan: None,
            why,
        }
    }
}

/// What has been used of the hour's allowance.
#[derive(Default)]
struct Spent {
    since: Option<Instant>,
    all: u32,
    by: BTreeMap<LimitGroup, u32>,
    /// The user ids that have rows.
    uids: BTreeSet<u32>,
}

impl Spent {
    /// Whether one more row is allowed for this person; counts it then.
    fn allows(&mut self, (by, uid): (LimitGroup, u32), now: Instant) -> bool {
        let is_over = |since: Instant| now.saturating_duration_since(since) >= HOUR;
        if self.since.is_none_or(is_over) {
            *self = Self {
                since: Some(now),
                ..Self::default()
            };
        }
        let of_one = self.by.get(&by).copied().unwrap_or(0);
        let most = match of_one {
            0 => MOST_OF_ALL + MOST_FIRSTS,
            _ => MOST_OF_ALL,
        };
        let allowed = of_one < MOST_OF_ONE && self.all < most;
        if allowed {
            self.all += 1;
            self.by.insert(by, of_one + 1);
            self.uids.insert(uid);
        }
        allowed
    }
}

impl Refusals {
    /// Takes one refusal. Says whether there is something to be written at once.
    pub(super) fn take(
        &mut self,
        act: Act,
        by: LimitGroup,
        why: String,
        at: Timestamp,
        now: Instant,
    ) -> bool {
        let why = cut::text(why, MOST_TEXT);
        let asked = cut::text(act.asked, MOST_TEXT);
        let who = (by, act.uid);
        let key = (who, act.kind, why);
        if let Some(count) = self.alike.get_mut(&key) {
            count.add(1, at, at);
            return false;
        }
        // Nobody may have fetched the last ones: the disk may hang.
        let is_crowded = self.ready.len() >= (MOST_OF_ALL + MOST_FIRSTS) as usize;
        if is_crowded || !self.spent.allows(who, now) {
            self.count(act.uid, act.kind, 1, (at, at), now);
            return false;
        }
        let first = Refused {
            at,
            last: at,
            times: 1,
            kind: act.kind,
            uid: Some(act.uid),
            asked: asked.clone(),
            plan: Some(cut::json(act.plan, MOST_PLAN)),
            why: key.2.clone(),
        };
        self.alike.insert(key, Count::starting(now, at, asked));
        self.ready.push(first);
        true
    }

    fn count(
        &mut self,
        uid: u32,
        kind: ActKind,
        times: u64,
        (at, last): (Timestamp, Timestamp),
        now: Instant,
    ) {
        // Who had no place among all has none here either: a person can have
        // many user ids.
        let uid = self.spent.uids.contains(&uid).then_some(uid);
        let fresh = || Count::starting(now, at, String::new());
        let counted = self.counted.entry((uid, kind)).or_insert_with(fresh);
        counted.add(times, at, last);
    }

    /// What is to be written by now.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Refused> {
        let old = |count: &Count, age| now.saturating_duration_since(count.since) >= age;
        let mut rows = std::mem::take(&mut self.ready);
        let minute_is_over = |_: &_, count: &mut Count| old(count, MINUTE);
        let over: Vec<_> = self.alike.extract_if(.., minute_is_over).collect();
        for ((who, kind, why), count) in over {
            let (_, uid) = who;
            if count.times == 0 {
                continue;
            }
            if !self.spent.allows(who, now) {
                self.count(uid, kind, count.times, (count.at, count.last), now);
                continue;
            }
            // The next one of them is no first one.
            let next = Count::starting(now, count.last, count.asked.clone());
            self.alike.insert((who, kind, why.clone()), next);
            rows.push(count.told(kind, Some(uid), why));
        }
        let hour_is_over = |_: &_, count: &mut Count| old(count, HOUR);
        let over = self.counted.extract_if(.., hour_is_over);
        rows.extend(over.map(|((uid, kind), count)| count.told(kind, uid, COUNTED.into())));
        rows
    }

    /// All that was not written yet: nothing comes after it.
    pub(super) fn rest(&mut self) -> Vec<Refused> {
        let all = std::mem::take(self);
        let mut rows = all.ready;
        let alike = all.alike.into_iter().filter(|(_, count)| count.times > 0);
        rows.extend(alike.map(|(((_, uid), kind, why), count)| count.told(kind, Some(uid), why)));
        let counted = all.counted.into_iter();
        rows.extend(counted.map(|((uid, kind), count)| count.told(kind, uid, COUNTED.into())));
        rows
    }

    /// When something is due next, as far as that is known now.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let alike = self.alike.values().map(|count| count.since + MINUTE);
        let counted = self.counted.values().map(|count| count.since + HOUR);
        alike.chain(counted).min()
    }
}

#[cfg(test)]
mod tests;
