//! Limits what executed kills add to the record in an hour. Any user can start and kill processes
//! as often as they like, the record is only added to, and no kill is refused for its sake: beyond
//! the allowance, short texts stand for the plan and the outcome. The log has both in full.

use super::{Action, truncate};
use gpukill_policy::access::LimitGroup;
use std::time::{Duration, Instant};

/// The period of the allowance.
const HOUR: Duration = Duration::from_secs(3_600);

/// The bytes of requests, plans and outcomes an hour for one person, more than a dozen of the
/// largest kills, and for all but root and the guard.
const MAX_BYTES_PER_PERSON: usize = 4 << 20;
const MAX_BYTES: usize = 32 << 20;

/// The longest request beyond the allowance, in bytes.
const SHORT_REQUEST_BYTES: usize = 256;

/// The caller of a kill; for a kill by the guard, also the person with the job.
type KillPerson = (LimitGroup, Option<u32>);

/// The part that one kill has in the allowance.
pub(crate) struct KillShare {
    pub(crate) person: KillPerson,
    /// The JSON that stands for plan and outcome beyond the allowance.
    pub(crate) short: String,
}

/// The part of the hour's allowance that was used.
#[derive(Default)]
pub(super) struct KillAllowance {
    since: Option<Instant>,
    used: Vec<(KillPerson, usize)>,
}

impl KillAllowance {
    /// Shortens request and plan where they exceed the allowance.
    pub(super) fn limit_action(&mut self, action: &mut Action, share: &KillShare, now: Instant) {
        let plan = action.plan.len().min(truncate::MAX_JSON_BYTES);
        let request = action.request.len().min(truncate::MAX_TEXT_BYTES);
        if !self.use_bytes(share.person, plan + request, now) {
            action.plan.clone_from(&share.short);
            let request = std::mem::take(&mut action.request);
            action.request = truncate::text(request, SHORT_REQUEST_BYTES);
        }
    }

    /// The outcome, or its short form where it exceeds the allowance.
    pub(super) fn limit_outcome(
        &mut self,
        outcome: String,
        share: &KillShare,
        now: Instant,
    ) -> String {
        match self.use_bytes(share.person, outcome.len(), now) {
            true => outcome,
            false => share.short.clone(),
        }
    }

    /// Whether the person may add so many bytes; if so, counts them.
    fn use_bytes(&mut self, person: KillPerson, bytes: usize, now: Instant) -> bool {
        let is_over = |since: Instant| now.saturating_duration_since(since) >= HOUR;
        if self.since.is_none_or(is_over) {
            *self = Self {
                since: Some(now),
                used: Vec::new(),
            };
        }
        // Root and the guard have room whatever the others use.
        let shares =
            |(group, _): &KillPerson| !matches!(group, LimitGroup::Guard | LimitGroup::Person(0));
        let of_others = self.used.iter().filter(|(other, _)| shares(other));
        let of_all: usize = of_others.map(|(_, used)| used).sum();
        if !self.used.iter().any(|(other, _)| *other == person) {
            self.used.push((person, 0));
        }
        let mut used = self.used.iter_mut();
        let Some((_, used)) = used.find(|(other, _)| *other == person) else {
            return false;
        };
        let fits = *used + bytes <= MAX_BYTES_PER_PERSON
            && (!shares(&person) || of_all + bytes <= MAX_BYTES);
        if fits {
            *used += bytes;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ActionKind, Retention, Store};
    use super::*;
    use crate::log_events::EventSubject;
    use rusqlite::Connection;

    const ALICE: KillPerson = (LimitGroup::Person(1_000), None);
    const BOB: KillPerson = (LimitGroup::Person(1_001), None);

    #[test]
    fn person_has_an_hourly_allowance() {
        let (mut allowance, start) = (KillAllowance::default(), Instant::now());
        let half = MAX_BYTES_PER_PERSON / 2;
        assert!(allowance.use_bytes(ALICE, half, start));
        assert!(!allowance.use_bytes(ALICE, half + 1, start));
        assert!(allowance.use_bytes(ALICE, half, start));
        assert!(!allowance.use_bytes(ALICE, 1, start));
        assert!(allowance.use_bytes(BOB, half, start));
        // What the guard ends does not count against her own kills.
        assert!(allowance.use_bytes((LimitGroup::Guard, Some(1_000)), half, start));
        let almost = start + HOUR - Duration::from_millis(1);
        assert!(!allowance.use_bytes(ALICE, 1, almost));
        assert!(allowance.use_bytes(ALICE, 1, start + HOUR));
    }

    #[test]
    fn all_persons_have_an_hourly_allowance() {
        let (mut allowance, now) = (KillAllowance::default(), Instant::now());
        let people = (1..).map(|uid| (LimitGroup::Person(uid), None));
        let with_room = people
            .take_while(|person| allowance.use_bytes(*person, MAX_BYTES_PER_PERSON, now))
            .count();
        assert_eq!(with_room, MAX_BYTES / MAX_BYTES_PER_PERSON);
        for person in [(LimitGroup::Person(0), None), (LimitGroup::Guard, Some(1))] {
            assert!(allowance.use_bytes(person, MAX_BYTES_PER_PERSON, now));
        }
    }

    #[test]
    fn rows_beyond_the_allowance_are_short() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::start(
            directory.path().into(),
            "boot".into(),
            Retention::HOUR,
            None,
        )
        .unwrap();
        let text = format!("[\"{}\"]", "x".repeat(200 << 10));
        let kill = |person| {
            let action = Action {
                kind: ActionKind::Kill,
                uid: 1_000,
                request: "4182 ".repeat(1_000),
                plan: text.clone(),
            };
            let share = KillShare {
                person,
                short: "{\"too_long\": {}}".into(),
            };
            let open = store.record_kill_intent(action, EventSubject::default(), share);
            open.unwrap().settle("done", text.clone());
        };
        for _ in 0..20 {
            kill(ALICE);
        }
        kill(BOB);
        // Waits for the writer thread.
        store.close();
        let database = Connection::open(directory.path().join("audit.db")).unwrap();
        let select = "SELECT length(request), length(plan), length(outcome) FROM action
            WHERE result = 'done' ORDER BY id";
        let mut statement = database.prepare(select).unwrap();
        let lengths = statement
            .query_map([], |row| {
                let size = |column| {
                    Ok::<_, rusqlite::Error>(row.get::<_, i64>(column)?.cast_unsigned() as usize)
                };
                Ok((size(0)?, size(1)?, size(2)?))
            })
            .unwrap();
        let lengths: Vec<(usize, usize, usize)> = lengths.map(Result::unwrap).collect();
        let (full, short) = ((5_000, text.len(), text.len()), (270, 16, 16));
        assert_eq!(lengths.len(), 21);
        assert_eq!((lengths[0], lengths[20]), (full, full));
        assert_eq!(lengths[19], short);
        let all: usize = lengths[..20].iter().map(|(a, b, c)| a + b + c).sum();
        assert!(all < MAX_BYTES_PER_PERSON + 20 * 400, "{all}");
    }
}
