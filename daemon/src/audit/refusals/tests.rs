//! Refusals are all told of, and never fill the disk.

use super::*;
use proptest::prelude::*;

fn act(uid: u32, kind: ActKind) -> Act {
    Act {
        kind,
        uid,
        asked: "4182".into(),
        plan: "{}".into(),
    }
}

/// A refusal that came first, at once.
fn first(uid: u32, why: &str, at: i64) -> Refused {
    Refused {
        at: Timestamp(at),
        last: Timestamp(at),
        times: 1,
        kind: ActKind::Kill,
        uid: Some(uid),
        asked: "4182".into(),
        plan: Some("{}".into()),
        why: why.into(),
    }
}

/// Time that passes when told to.
struct Hours {
    refusals: Refusals,
    start: Instant,
    now: u64,
    taken: u64,
    rows: Vec<Refused>,
}

impl Hours {
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

    /// Of this person, who asks as this user.
    fn refuse_of(&mut self, by: LimitGroup, uid: u32, why: &str) {
        let at = Timestamp(i64::try_from(self.now).unwrap());
        let now = self.instant();
        self.refusals
            .take(act(uid, ActKind::Kill), by, why.into(), at, now);
        self.taken += 1;
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        let due = self.refusals.due(self.instant());
        self.rows.extend(due);
    }

    fn told(&self) -> u64 {
        self.rows.iter().map(|row| row.times).sum()
    }
}

#[test]
fn repeats_within_a_minute_are_one_row_with_their_number() {
    let mut hours = Hours::new();
    for _ in 0..3 {
        hours.refuse(7, "it belongs to alice");
        hours.pass(1_000);
    }
    hours.refuse(7, "it is protected");
    hours.refuse(8, "it belongs to alice");
    hours.pass(0);
    hours.pass(60_000);
    let repeats = Refused {
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
    // It was quiet for a minute: the next one is a first one again.
    hours.pass(60_000);
    assert_eq!(hours.refusals.due_at(), None);
    hours.refuse(7, "it belongs to alice");
    hours.pass(0);
    assert_eq!(
        hours.rows.last(),
        Some(&first(7, "it belongs to alice", 123_000))
    );
}

#[test]
fn a_thousand_refusals_a_second_are_a_row_a_minute() {
    let mut hours = Hours::new();
    for _ in 0..600 {
        for _ in 0..1_000 {
            hours.refuse(7, "it belongs to alice");
        }
        hours.pass(1_000);
    }
    assert_eq!(hours.rows.len(), 11);
    assert_eq!(hours.told(), 600_000);
}

#[test]
fn refusals_that_all_differ_are_counted_from_some_number_on() {
    let mut hours = Hours::new();
    for pid in 0..10_000 {
        hours.refuse(7, &format!("{pid} belongs to alice"));
        hours.pass(100);
    }
    hours.refuse(8, "it belongs to alice");
    assert_eq!(hours.rows.len(), MOST_OF_ONE as usize);
    hours.pass(3_600_000);
    let counted = Refused {
        at: Timestamp(6_000),
        last: Timestamp(999_900),
        times: 9_940,
        asked: String::new(),
        plan: None,
        ..first(7, COUNTED, 0)
    };
    let others = [first(8, "it belongs to alice", 1_000_000), counted];
    assert_eq!(hours.rows[MOST_OF_ONE as usize..], others);
}

#[test]
fn what_is_refused_each_minute_for_hours_is_counted_from_some_number_on() {
    let mut hours = Hours::new();
    for _ in 0..180 {
        for why in 0..30 {
            hours.refuse(7, &why.to_string());
            hours.refuse(7, &why.to_string());
        }
        hours.pass(60_000);
    }
    // One hour more than passed may have begun, and each has a row for the rest.
    let most = 4 * (MOST_OF_ONE as usize + 1);
    assert!(hours.rows.len() <= most, "{}", hours.rows.len());
    let rest = hours.refusals.rest();
    hours.rows.extend(rest);
    assert_eq!(hours.told(), hours.taken);
}

#[test]
fn a_person_with_many_user_ids_has_rows_as_with_one_and_leaves_others_theirs() {
    let mut hours = Hours::new();
    let carol = LimitGroup::Person(1002);
    for uid in 60_020..60_030 {
        for why in 0..60 {
            hours.refuse_of(carol, uid, &format!("{uid} {why}"));
        }
    }
    hours.pass(0);
    assert_eq!(hours.rows.len(), MOST_OF_ONE as usize);
    // The rest of what all may have is used up by nine people more.
    for uid in 1..=9 {
        for why in 0..60 {
            hours.refuse(uid, &format!("{why}"));
        }
    }
    hours.pass(0);
    assert_eq!(hours.rows.len(), MOST_OF_ALL as usize);
    for uid in 2_000..2_200 {
        for why in ["it belongs to alice", "it is protected"] {
            hours.refuse(uid, why);
        }
    }
    hours.pass(0);
    let firsts: Vec<Option<u32>> = hours.rows[MOST_OF_ALL as usize..]
        .iter()
        .map(|row| row.uid)
        .collect();
    let expected: Vec<Option<u32>> = (2_000..2_000 + MOST_FIRSTS).map(Some).collect();
    assert_eq!(firsts, expected);
    let rest = hours.refusals.rest();
    hours.rows.extend(rest);
    assert_eq!(hours.told(), hours.taken);
}

#[test]
fn many_people_fill_no_disk_either() {
    let mut hours = Hours::new();
    for uid in 0..50_000 {
        hours.refuse(uid, &format!("{uid}"));
        if uid % 100 == 0 {
            hours.pass(0);
        }
    }
    hours.pass(0);
    let most = (MOST_OF_ALL + MOST_FIRSTS) as usize;
    assert_eq!(hours.rows.len(), most);
    hours.pass(3_600_000);
    assert_eq!(hours.rows.len(), most + 1);
    assert_eq!(hours.rows.last().unwrap().uid, None);
    assert_eq!(hours.told(), 50_000);
}

#[test]
fn while_nobody_writes_memory_stays_bounded() {
    let mut refusals = Refusals::default();
    let start = Instant::now();
    for hour in 0..5 {
        for uid in 0..1_000 {
            let now = start + HOUR * hour;
            let why = format!("{hour}");
            let by = LimitGroup::Person(uid);
            refusals.take(act(uid, ActKind::Kill), by, why, Timestamp(0), now);
        }
    }
    let most = (MOST_OF_ALL + MOST_FIRSTS) as usize;
    assert_eq!(refusals.ready.len(), most);
    assert!(refusals.alike.len() <= most);
    let told: u64 = refusals.rest().iter().map(|row| row.times).sum();
    assert_eq!(told, 5_000);
}

#[test]
fn a_refusal_is_small_whatever_was_asked() {
    let mut refusals = Refusals::default();
    let long = Act {
        asked: "a".repeat(100_000),
        plan: format!("[\"{}\"]", "\u{1}".repeat(100_000)),
        ..act(7, ActKind::Reset)
    };
    let now = Instant::now();
    let by = LimitGroup::Person(7);
    assert!(refusals.take(long, by, "w".repeat(100_000), Timestamp(0), now));
    let [row] = &refusals.due(now)[..] else {
        panic!("it is one row");
    };
    let size = row.asked.len() + row.why.len() + row.plan.as_ref().unwrap().len();
    assert!(size <= 10 << 10, "{size}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn every_refusal_is_told_of_once_and_each_hour_has_few_rows(
        steps in prop::collection::vec((0_u32..40, 0_u32..200, 0_u64..200_000), 1..2_000),
    ) {
        let mut hours = Hours::new();
        let mut written = Vec::new();
        for (uid, why, pause) in steps {
            hours.refuse(uid, &why.to_string());
            hours.pass(pause);
            written.resize(hours.rows.len(), hours.now);
        }
        // Of two hours, as theirs begins when it is needed; and what is counted.
        let most = 2 * ((MOST_OF_ALL + MOST_FIRSTS) as usize) + 2 * 41;
        for (position, start) in written.iter().enumerate() {
            let end = written.partition_point(|at| *at < start + 3_600_000);
            prop_assert!(end - position <= most);
        }
        let rest = hours.refusals.rest();
        hours.rows.extend(rest);
        prop_assert_eq!(hours.told(), hours.taken);
    }
}
