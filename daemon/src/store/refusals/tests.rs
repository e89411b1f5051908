//! Every refusal is recorded or counted, and refusals never fill the disk.

use super::*;
use proptest::prelude::*;

fn act(uid: u32, kind: ActionKind) -> Action {
    Action {
        kind,
        uid,
        request: "4182".into(),
        plan: "{}".into(),
    }
}

/// The row of a first refusal, recorded at once.
fn first(uid: u32, why: &str, at: i64) -> RefusalRow {
    RefusalRow {
        at: Timestamp(at),
        last: Timestamp(at),
        times: 1,
        kind: ActionKind::Kill,
        uid: Some(uid),
        request: "4182".into(),
        plan: Some("{}".into()),
        why: why.into(),
    }
}

/// Refusals with a manual clock.
struct RefusalTimeline {
    refusals: Refusals,
    start: Instant,
    now: u64,
    taken: u64,
    rows: Vec<RefusalRow>,
}

impl RefusalTimeline {
    fn new() -> Self {
        Self {
            refusals: Refusals::default(),
            start: Instant::now(),
            now: 0,
            taken: 0,
            rows: Vec::new(),
        }
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_millis(self.now)
    }

    fn refuse(&mut self, uid: u32, why: &str) {
        self.refuse_of(LimitGroup::Person(uid), uid, why);
    }

    /// A refusal of this person, who asks as this user.
    fn refuse_of(&mut self, by: LimitGroup, uid: u32, why: &str) {
        let at = Timestamp(i64::try_from(self.now).unwrap());
        let now = self.instant();
        self.refusals
            .add(act(uid, ActionKind::Kill), by, why.into(), at, now);
        self.taken += 1;
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        let due = self.refusals.take_due(self.instant());
        self.rows.extend(due);
    }

    fn recorded(&self) -> u64 {
        self.rows.iter().map(|row| row.times).sum()
    }
}

#[test]
fn repeats_within_a_minute_are_one_row() {
    let mut hours = RefusalTimeline::new();
    for _ in 0..3 {
        hours.refuse(7, "it belongs to alice");
        hours.pass(1_000);
    }
    hours.refuse(7, "it is protected");
    hours.refuse(8, "it belongs to alice");
    hours.pass(0);
    hours.pass(60_000);
    let repeats = RefusalRow {
        last: Timestamp(2_000),
        times: 2,
        plan: None,
        ..first(7, "it belongs to alice", 1_000)
    };
    let expected = [
        first(7, "it belongs to alice", 0),
        first(7, "it is protected", 3_000),
        first(8, "it belongs to alice", 3_000),
        repeats,
    ];
    assert_eq!(hours.rows, expected);
    // After a quiet minute the next refusal is a first one again.
    hours.pass(60_000);
    assert_eq!(hours.refusals.next_due(), None);
    hours.refuse(7, "it belongs to alice");
    hours.pass(0);
    assert_eq!(
        hours.rows.last(),
        Some(&first(7, "it belongs to alice", 123_000))
    );
}

#[test]
fn flood_is_a_row_a_minute() {
    let mut hours = RefusalTimeline::new();
    for _ in 0..600 {
        for _ in 0..1_000 {
            hours.refuse(7, "it belongs to alice");
        }
        hours.pass(1_000);
    }
    assert_eq!(hours.rows.len(), 11);
    assert_eq!(hours.recorded(), 600_000);
}

#[test]
fn different_refusals_are_counted_beyond_a_limit() {
    let mut hours = RefusalTimeline::new();
    for pid in 0..10_000 {
        hours.refuse(7, &format!("{pid} belongs to alice"));
        hours.pass(100);
    }
    hours.refuse(8, "it belongs to alice");
    assert_eq!(hours.rows.len(), MAX_ROWS_PER_PERSON as usize);
    hours.pass(3_600_000);
    let counted = RefusalRow {
        at: Timestamp(6_000),
        last: Timestamp(999_900),
        times: 9_940,
        request: String::new(),
        plan: None,
        ..first(7, ONLY_COUNTED, 0)
    };
    let others = [first(8, "it belongs to alice", 1_000_000), counted];
    assert_eq!(hours.rows[MAX_ROWS_PER_PERSON as usize..], others);
}

#[test]
fn repeats_for_hours_are_counted_beyond_limit() {
    let mut hours = RefusalTimeline::new();
    for _ in 0..180 {
        for why in 0..30 {
            hours.refuse(7, &why.to_string());
            hours.refuse(7, &why.to_string());
        }
        hours.pass(60_000);
    }
    // One more hour than passed may have begun, and each hour has a row for the counted rest.
    let most = 4 * (MAX_ROWS_PER_PERSON as usize + 1);
    assert!(hours.rows.len() <= most, "{}", hours.rows.len());
    let rest = hours.refusals.drain();
    hours.rows.extend(rest);
    assert_eq!(hours.recorded(), hours.taken);
}

#[test]
fn many_user_ids_share_one_allowance() {
    let mut hours = RefusalTimeline::new();
    let carol = LimitGroup::Person(1002);
    for uid in 60_020..60_030 {
        for why in 0..60 {
            hours.refuse_of(carol, uid, &format!("{uid} {why}"));
        }
    }
    hours.pass(0);
    assert_eq!(hours.rows.len(), MAX_ROWS_PER_PERSON as usize);
    // Nine more people use up the remaining rows.
    for uid in 1..=9 {
        for why in 0..60 {
            hours.refuse(uid, &format!("{why}"));
        }
    }
    hours.pass(0);
    assert_eq!(hours.rows.len(), MAX_ROWS as usize);
    for uid in 2_000..2_200 {
        for why in ["it belongs to alice", "it is protected"] {
            hours.refuse(uid, why);
        }
    }
    hours.pass(0);
    let firsts: Vec<Option<u32>> = hours.rows[MAX_ROWS as usize..]
        .iter()
        .map(|row| row.uid)
        .collect();
    let expected: Vec<Option<u32>> = (2_000..2_000 + MAX_FIRST_ROWS).map(Some).collect();
    assert_eq!(firsts, expected);
    let rest = hours.refusals.drain();
    hours.rows.extend(rest);
    assert_eq!(hours.recorded(), hours.taken);
}

#[test]
fn many_people_are_bounded_together() {
    let mut hours = RefusalTimeline::new();
    for uid in 0..50_000 {
        hours.refuse(uid, &format!("{uid}"));
        if uid % 100 == 0 {
            hours.pass(0);
        }
    }
    hours.pass(0);
    let most = (MAX_ROWS + MAX_FIRST_ROWS) as usize;
    assert_eq!(hours.rows.len(), most);
    hours.pass(3_600_000);
    assert_eq!(hours.rows.len(), most + 1);
    assert_eq!(hours.rows.last().unwrap().uid, None);
    assert_eq!(hours.recorded(), 50_000);
}

#[test]
fn memory_is_bounded_without_a_writer() {
    let mut refusals = Refusals::default();
    let start = Instant::now();
    for hour in 0..5 {
        for uid in 0..1_000 {
            let now = start + HOUR * hour;
            let why = format!("{hour}");
            let by = LimitGroup::Person(uid);
            refusals.add(act(uid, ActionKind::Kill), by, why, Timestamp(0), now);
        }
    }
    let most = (MAX_ROWS + MAX_FIRST_ROWS) as usize;
    assert_eq!(refusals.ready.len(), most);
    assert!(refusals.repeats.len() <= most);
    let total: u64 = refusals.drain().iter().map(|row| row.times).sum();
    assert_eq!(total, 5_000);
}

#[test]
fn long_texts_are_truncated() {
    let mut refusals = Refusals::default();
    let long = Action {
        request: "a".repeat(100_000),
        plan: format!("[\"{}\"]", "\u{1}".repeat(100_000)),
        ..act(7, ActionKind::Reset)
    };
    let now = Instant::now();
    let by = LimitGroup::Person(7);
    assert!(refusals.add(long, by, "w".repeat(100_000), Timestamp(0), now));
    let [row] = &refusals.take_due(now)[..] else {
        panic!("it is one row");
    };
    let size = row.request.len() + row.why.len() + row.plan.as_ref().unwrap().len();
    assert!(size <= 10 << 10, "{size}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn every_refusal_counts_once(
        steps in prop::collection::vec((0_u32..40, 0_u32..200, 0_u64..200_000), 1..2_000),
    ) {
        let mut hours = RefusalTimeline::new();
        let mut written = Vec::new();
        for (uid, why, pause) in steps {
            hours.refuse(uid, &why.to_string());
            hours.pass(pause);
            written.resize(hours.rows.len(), hours.now);
        }
        // Of two hours, because an hour begins with its first row; plus the rows of counted
        // refusals.
        let most = 2 * ((MAX_ROWS + MAX_FIRST_ROWS) as usize) + 2 * 41;
        for (position, start) in written.iter().enumerate() {
            let end = written.partition_point(|at| *at < start + 3_600_000);
            prop_assert!(end - position <= most);
        }
        let rest = hours.refusals.drain();
        hours.rows.extend(rest);
        prop_assert_eq!(hours.recorded(), hours.taken);
    }
}
