//! Limits what executed kills add to the record in an hour. Any user can start and kill processes
//! as often as they like, the record is only added to, and no kill is refused for its sake: beyond
//! the allowance, short texts stand for the plan and the outcome. The log has both in full.

use super::byte_allowance::{AllowanceHolder, ByteAllowance};
use super::{Action, truncate};
use gpukill_policy::access::LimitGroup;
use std::time::Instant;

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

impl AllowanceHolder for KillPerson {
    fn is_exempt_from_total(&self) -> bool {
        matches!(self.0, LimitGroup::Guard | LimitGroup::Person(0))
    }
}

/// The part of the hour's allowance that was used.
pub(super) struct KillAllowance(ByteAllowance<KillPerson>);

impl Default for KillAllowance {
    fn default() -> Self {
        Self(ByteAllowance::new(MAX_BYTES_PER_PERSON, MAX_BYTES))
    }
}

impl KillAllowance {
    /// Shortens request and plan where they exceed the allowance.
    pub(super) fn limit_action(&mut self, action: &mut Action, share: &KillShare, now: Instant) {
        let plan = action.plan.len().min(truncate::MAX_JSON_BYTES);
        let request = action.request.len().min(truncate::MAX_TEXT_BYTES);
        if !self.0.use_bytes(share.person, plan + request, now) {
            action.plan.clone_from(&share.short);
            let request = std::mem::take(&mut action.request);
            action.request = truncate::text(request, SHORT_REQUEST_BYTES);
        }
    }

    /// Whether the allowance has room for the outcome; if so, counts it.
    pub(super) fn allows_outcome(
        &mut self,
        outcome: &str,
        share: &KillShare,
        now: Instant,
    ) -> bool {
        self.0.use_bytes(share.person, outcome.len(), now)
    }
}

#[cfg(test)]
mod tests {
    use super::super::byte_allowance::HOUR;
    use super::super::killed_runs::ended_processes;
    use super::super::{ActionKind, Retention, Store};
    use super::*;
    use crate::log_events::EventSubject;
    use gpukill_proto::model::ProcessKey;
    use rusqlite::Connection;
    use std::time::Duration;

    const ALICE: KillPerson = (LimitGroup::Person(1_000), None);
    const BOB: KillPerson = (LimitGroup::Person(1_001), None);

    #[test]
    fn person_has_an_hourly_allowance() {
        let (mut allowance, start) = (KillAllowance::default(), Instant::now());
        let half = MAX_BYTES_PER_PERSON / 2;
        assert!(allowance.0.use_bytes(ALICE, half, start));
        assert!(!allowance.0.use_bytes(ALICE, half + 1, start));
        assert!(allowance.0.use_bytes(ALICE, half, start));
        assert!(!allowance.0.use_bytes(ALICE, 1, start));
        assert!(allowance.0.use_bytes(BOB, half, start));
        // What the guard ends does not count against her own kills.
        assert!(
            allowance
                .0
                .use_bytes((LimitGroup::Guard, Some(1_000)), half, start)
        );
        let almost = start + HOUR - Duration::from_millis(1);
        assert!(!allowance.0.use_bytes(ALICE, 1, almost));
        assert!(allowance.0.use_bytes(ALICE, 1, start + HOUR));
    }

    #[test]
    fn all_persons_have_an_hourly_allowance() {
        let (mut allowance, now) = (KillAllowance::default(), Instant::now());
        let people = (1..).map(|uid| (LimitGroup::Person(uid), None));
        let with_room = people
            .take_while(|person| allowance.0.use_bytes(*person, MAX_BYTES_PER_PERSON, now))
            .count();
        assert_eq!(with_room, MAX_BYTES / MAX_BYTES_PER_PERSON);
        for person in [(LimitGroup::Person(0), None), (LimitGroup::Guard, Some(1))] {
            assert!(allowance.0.use_bytes(person, MAX_BYTES_PER_PERSON, now));
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
        let outcomes = "[{\"pid\": 7, \"start_ticks\": 9, \"outcome\": \"ended\"}]";
        let padding = "x".repeat(200 << 10);
        let text = format!("{{\"outcomes\": {outcomes}, \"padding\": \"{padding}\"}}");
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
        let (full, short) = ((5_000, text.len(), text.len()), (270, 16, 41));
        assert_eq!(lengths.len(), 21);
        assert_eq!((lengths[0], lengths[20]), (full, full));
        assert_eq!(lengths[19], short);
        let all: usize = lengths[..20].iter().map(|(a, b, c)| a + b + c).sum();
        assert!(all < MAX_BYTES_PER_PERSON + 20 * 400, "{all}");
        let select =
            "SELECT outcome FROM action WHERE result = 'done' ORDER BY id LIMIT 1 OFFSET 19";
        let outcome: String = database.query_row(select, [], |row| row.get(0)).unwrap();
        let ended = ProcessKey {
            pid: 7,
            start_ticks: 9,
        };
        assert_eq!(ended_processes(&outcome), [ended], "{outcome}");
    }
}
