//! The pages of the record, joined, are the whole record.

use super::super::super::database::{AUDIT, OpenDatabase, SAMPLES, open};
use super::*;
use gpukill_proto::transport::codec::encoded_size;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An entry: its time, whether it is an action, and the length of its document.
type Entry = (i64, bool, usize);

fn file(entries: &[Entry]) -> (tempfile::TempDir, OpenDatabase) {
    let directory = tempfile::tempdir().unwrap();
    let mut opened = open(directory.path(), &AUDIT).unwrap();
    let all = opened.connection.transaction().unwrap();
    for (at, is_act, length) in entries {
        let document = json!({"long": "x".repeat(*length)}).to_string();
        if *is_act {
            let insert =
                "INSERT INTO action (at, run, kind, uid, request, plan, finished_at, result)
                VALUES (?1, 'r', 'kill', 1000, '--pid 7', ?2, ?1, 'done')";
            all.execute(insert, params![at, document]).unwrap();
        } else {
            let insert =
                "INSERT INTO event (at, kind, device, content) VALUES (?1, 'xid', 'GPU-0', ?2)";
            all.execute(insert, params![at, document]).unwrap();
        }
    }
    all.commit().unwrap();
    (directory, opened)
}

fn whole() -> ActionQuery {
    ActionQuery {
        since: Timestamp(i64::MIN),
        until: Timestamp(i64::MAX),
        user: None,
        kind: None,
        gpu: None,
        before: None,
        limit: u32::MAX,
    }
}

fn ask(opened: &mut OpenDatabase, query: &ActionQuery, filter: &ActionFilter) -> ActionPage {
    action_page(&mut opened.connection, query, filter, &|_| true).unwrap()
}

fn pages(opened: &mut OpenDatabase, mut query: ActionQuery) -> Vec<ActionPage> {
    let mut pages = Vec::new();
    loop {
        let page = ask(opened, &query, &ActionFilter::default());
        query.before = page.next;
        pages.push(page);
        if query.before.is_none() {
            return pages;
        }
    }
}

fn ids(page: &ActionPage) -> Vec<u64> {
    page.records.iter().map(|record| record.id).collect()
}

proptest! {
    #[test]
    fn pages_join_to_the_whole_record(
        // Many entries at the same moment, and clocks that jump.
        entries in prop::collection::vec((0..5_i64, any::<bool>(), 0..40_usize), 0..60),
        limit in 1..8_u32,
        (since, until) in (0..5_i64, 0..6_i64),
    ) {
        let (_directory, mut opened) = file(&entries);
        let query = ActionQuery {
            since: Timestamp(since),
            until: Timestamp(until),
            limit,
            ..whole()
        };
        let pages = pages(&mut opened, query);
        prop_assert!(pages.iter().all(|page| page.records.len() <= limit as usize));
        let records = pages.iter().flat_map(|page| &page.records);
        let positions: Vec<ActionCursor> = records.map(entry_position).collect();
        let (mut events, mut acts) = (0, 0);
        let mut expected: Vec<ActionCursor> = entries
            .iter()
            .map(|(at, is_act, _)| {
                let (number, parity) = if *is_act { (&mut acts, 1) } else { (&mut events, 0) };
                *number += 1;
                ActionCursor { at: Timestamp(*at), id: *number * 2 + parity }
            })
            .filter(|position| (since..until).contains(&position.at.0))
            .collect();
        expected.sort_unstable();
        expected.reverse();
        prop_assert_eq!(positions, expected);
    }
}

#[test]
fn pages_are_bounded_in_bytes() {
    let longest = 256 << 10;
    let (_directory, mut opened) = file(&[
        (1, false, 10),
        (2, true, longest),
        (3, true, longest),
        (4, true, 100 << 10),
        (5, false, 100 << 10),
        (6, true, 100 << 10),
    ]);
    let pages = pages(&mut opened, whole());
    let ids: Vec<Vec<u64>> = pages.iter().map(ids).collect();
    assert_eq!(ids, [vec![9, 4], vec![7], vec![5], vec![3], vec![2]]);
    for page in &pages {
        let bytes = encoded_size(page).unwrap();
        assert!(bytes < 2 * MAX_PAGE_BYTES, "{bytes}");
    }
}

#[test]
fn pages_are_bounded_in_entries() {
    let entries: Vec<Entry> = (0..1_500).map(|at| (at, at % 2 == 0, 0)).collect();
    let (_directory, mut opened) = file(&entries);
    let sizes: Vec<usize> = pages(&mut opened, whole())
        .iter()
        .map(|page| page.records.len())
        .collect();
    assert_eq!(sizes, [1_000, 500]);
}

#[test]
fn extreme_positions_and_bad_queries() {
    let (_directory, mut opened) = file(&[(1, false, 0), (1, true, 0)]);
    let cursor = |at, id| {
        Some(ActionCursor {
            at: Timestamp(at),
            id,
        })
    };
    let cases = [
        (cursor(i64::MAX, u64::MAX), 2),
        (cursor(i64::MIN, 0), 0),
        (cursor(1, 0), 0),
        (cursor(1, 3), 1),
        (cursor(1, u64::MAX), 2),
        (None, 2),
    ];
    for (before, expected) in cases {
        let query = ActionQuery { before, ..whole() };
        let page = ask(&mut opened, &query, &ActionFilter::default());
        assert_eq!(page.records.len(), expected, "{before:?}");
    }
    let nothing = ActionQuery {
        limit: 0,
        ..whole()
    };
    let invalid = ActionQuery {
        kind: Some("klil".into()),
        ..whole()
    };
    let kinds = "kill, reset, prune, backup, restore, rules_edit, quarantined, started, stopped, booted, \
                 settings, rules, rogue_rules, fault, fault_over, alert, alert_over, xid, device, \
                 quiesced, resumed or \
                 forgotten";
    let no_kind = format!("\"klil\" is not valid: write {kinds}");
    let one_odd = ActionQuery {
        kind: Some("kill,klil".into()),
        ..whole()
    };
    for (query, why) in [
        (nothing, "the limit must be greater than 0"),
        (invalid, &no_kind),
        (one_odd, &no_kind),
    ] {
        let answer = action_page(
            &mut opened.connection,
            &query,
            &ActionFilter::default(),
            &|_| true,
        );
        assert_eq!(answer, Err(Refusal::Invalid(why.into())));
    }
}

/// The actions of two users, a device event and the daemon's own events.
fn of_two_people() -> (tempfile::TempDir, OpenDatabase) {
    let (directory, opened) = file(&[]);
    let plan = |device: &str| json!({"targets": [{"holds": [{"gpu_id": device}]}]}).to_string();
    let reset = json!({"gpus": [{"gpu_id": "GPU-1"}]}).to_string();
    opened
        .connection
        .execute_batch(&format!(
            "INSERT INTO event (at, kind, detail, device, number, uid, content) VALUES
             (1, 'started', '1.2.3', NULL, NULL, NULL, '{{}}'),
             (2, 'settings', 'abcd', NULL, NULL, NULL, '{{\"a\":1}}'),
             (3, 'xid', 'XID 79', 'GPU-1', 79, NULL, NULL),
             (4, 'quiesced', NULL, NULL, 1000, 1001, NULL);
             INSERT INTO action
             (at, run, kind, uid, times, request, plan, finished_at, result, reason, outcome) VALUES
             (5, 'r', 'kill', 1000, 1, '--process secret', '{}', 9, 'done', NULL, '{{\"b\":2}}'),
             (6, 'r', 'reset', 1001, 3, '--gpu 1', '{reset}', 8, 'refused', 'it is held', NULL),
             (7, 'r', 'kill', NULL, 9, '', NULL, 8, 'refused', 'more', NULL),
             (8, 'r', 'kill', 1001, 1, '--pid 7', '{}', NULL, NULL, NULL, NULL);",
            plan("GPU-0"),
            plan("GPU-1")
        ))
        .unwrap();
    (directory, opened)
}

#[test]
fn filters_by_user_kind_and_device() {
    let (_directory, mut opened) = of_two_people();
    let mut ids_of =
        |kind: Option<&str>, uids: Option<&[u32]>, devices: Option<SelectedDevices>| {
            let query = ActionQuery {
                kind: kind.map(Into::into),
                ..whole()
            };
            let uids = uids.map(|uids| uids.iter().copied().collect::<BTreeSet<u32>>());
            ids(&ask(&mut opened, &query, &ActionFilter { uids, devices }))
        };
    let these = |id: &str| Some(SelectedDevices::Present(vec![id.into()]));
    assert_eq!(ids_of(None, None, None), [9, 7, 5, 3, 8, 6, 4, 2]);
    assert_eq!(ids_of(Some("kill"), None, None), [9, 7, 3]);
    assert_eq!(ids_of(Some("kill, xid,xid"), None, None), [9, 7, 3, 6]);
    assert_eq!(ids_of(Some("quiesced,reset"), None, None), [5, 8]);
    assert_eq!(ids_of(None, Some(&[1_001]), None), [9, 5, 8]);
    assert_eq!(ids_of(None, Some(&[]), None), Vec::<u64>::new());
    assert_eq!(ids_of(Some("kill"), Some(&[1_001]), None), [9]);
    assert_eq!(ids_of(None, None, these("GPU-1")), [9, 5, 6]);
    assert_eq!(ids_of(None, None, these("GPU-0")), [3]);
    let mistake = Refusal::NoMatch("no such GPU".into());
    let gone = |id: &str| Some(SelectedDevices::Gone(id.into(), mistake.clone()));
    assert_eq!(ids_of(None, None, gone("GPU-1")), [9, 5, 6]);
    let filter = ActionFilter {
        uids: None,
        devices: gone("7"),
    };
    let answer = action_page(&mut opened.connection, &whole(), &filter, &|_| true);
    assert_eq!(answer, Err(mistake.clone()));
    assert_eq!(acting_uids(&mut opened.connection), Ok(vec![1_000, 1_001]));
}

#[test]
fn kills_of_the_guard_are_selected_by_its_name_only() {
    let (_directory, mut opened) = of_two_people();
    // The guard runs as this user.
    opened
        .connection
        .execute_batch(
            "INSERT INTO action
             (at, run, kind, uid, times, request, plan, finished_at, result, reason, outcome) VALUES
             (9, 'r', 'kill', 1001, 1, 'guard: default: idle', NULL, 9, 'done', NULL, NULL);",
        )
        .unwrap();
    for (user, uids, expected) in [
        ("guard", &[][..], &[11][..]),
        ("1001", &[1_001], &[9, 5, 8]),
        ("1001, guard", &[1_001], &[11, 9, 5, 8]),
    ] {
        let query = ActionQuery {
            user: Some(user.into()),
            ..whole()
        };
        let filter = ActionFilter {
            uids: Some(uids.iter().copied().collect()),
            devices: None,
        };
        assert_eq!(ids(&ask(&mut opened, &query, &filter)), expected, "{user}");
        // A withheld request does not show that a kill is of the guard.
        let hidden = action_page(&mut opened.connection, &query, &filter, &|_| false).unwrap();
        let is_of_guard = |record: &ActionRecord| record.id == 11;
        assert_eq!(hidden.records.iter().any(is_of_guard), !uids.is_empty());
    }
}

#[test]
fn former_user_has_a_number_with_one_name() {
    let directory = tempfile::tempdir().unwrap();
    let mut samples = open(directory.path(), &SAMPLES).unwrap().connection;
    samples
        .execute_batch(
            "INSERT INTO process (boot, pid, start_ticks, uid, user) VALUES
             ('b', 1, 1, 1001, 'alice'), ('b', 2, 1, 1001, 'alice'), ('b', 3, 1, 1002, 'bob'),
             ('b', 4, 1, 1003, 'carol'), ('b', 5, 1, 1003, 'dave'), ('b', 6, 1, 1004, 'dave'),
             ('b', 7, 1, NULL, 'erin');",
        )
        .unwrap();
    for (name, expected) in [
        ("alice", &[1001][..]),
        ("bob", &[1002][..]),
        // The number was given to another user.
        ("carol", &[][..]),
        ("dave", &[1004][..]),
        ("erin", &[][..]),
        ("nobody", &[][..]),
    ] {
        let found = former_uids(&mut samples, name, &[1001, 1002, 1003, 1004, 1005]);
        assert_eq!(found, Ok(expected.to_vec()), "{name}");
    }
    assert_eq!(former_uids(&mut samples, "alice", &[1002]), Ok(Vec::new()));
}

#[test]
fn former_user_is_found_in_one_pass() {
    const PROCESSES: u64 = 3_000;
    let directory = tempfile::tempdir().unwrap();
    let mut samples = open(directory.path(), &SAMPLES).unwrap().connection;
    samples
        .execute(
            "WITH RECURSIVE each(pid) AS (SELECT 1 UNION ALL SELECT pid + 1 FROM each LIMIT ?1)
             INSERT INTO process (boot, pid, start_ticks, uid, user)
             SELECT 'b', pid, 1, 1001, 'alice' FROM each",
            [PROCESSES.cast_signed()],
        )
        .unwrap();
    let steps = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&steps);
    let count = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        false
    };
    samples.progress_handler(1, Some(count)).unwrap();
    let found = select_former_uids(&samples, "alice", &[1001]).unwrap();
    assert_eq!(found, [1001]);
    let steps = steps.load(Ordering::Relaxed);
    assert!(steps < 100 * PROCESSES, "{steps}");
}

#[test]
fn withholds_requests_of_other_users() {
    let (_directory, mut opened) = of_two_people();
    let only_own = |uid: Option<u32>| uid == Some(1_001);
    let page = action_page(
        &mut opened.connection,
        &whole(),
        &ActionFilter::default(),
        &only_own,
    )
    .unwrap();
    let rows: Vec<_> = page
        .records
        .iter()
        .map(|it| {
            let documents = (it.plan.known().is_some(), it.outcome == Reading::Withheld);
            let device = it.device.as_ref().map(|id| id.0.as_str());
            let (what, why) = (it.what.as_deref(), it.why.as_deref());
            (it.id, it.times, device, what, why, documents)
        })
        .collect();
    let until = Some("until 1970-01-01T00:00:01.000Z");
    let expected = [
        (9, 1, None, Some("--pid 7"), None, (true, false)),
        (7, 9, None, None, None, (false, true)),
        (
            5,
            3,
            Some("GPU-1"),
            Some("--gpu 1"),
            Some("it is held"),
            (true, false),
        ),
        (3, 1, None, None, None, (false, true)),
        (8, 1, None, until, None, (false, false)),
        (6, 1, Some("GPU-1"), Some("XID 79"), None, (false, false)),
        (4, 1, None, Some("abcd"), None, (false, false)),
        (2, 1, None, Some("1.2.3"), None, (true, false)),
    ];
    assert_eq!(rows, expected);
    // Everybody may see that an action happened, its result and its end.
    let others = &page.records[3];
    assert_eq!(
        (others.result.as_deref(), others.finished_at, others.uid),
        (Some("done"), Some(Timestamp(9)), Some(1_000))
    );
    assert_eq!(page.records[6].plan, Reading::Withheld);
    // A query for a device must not reveal the device of another user's kill either.
    let filter = ActionFilter {
        uids: None,
        devices: Some(SelectedDevices::Present(vec!["GPU-0".into()])),
    };
    let page = action_page(&mut opened.connection, &whole(), &filter, &only_own).unwrap();
    assert_eq!(page.records, []);
}

#[test]
fn record_is_append_only() {
    let (_directory, opened) = of_two_people();
    for change in [
        "DELETE FROM event",
        "DELETE FROM action",
        "UPDATE event SET times = 2",
        "UPDATE action SET request = ''",
        "UPDATE action SET reason = '' WHERE result IS NOT NULL",
    ] {
        assert!(opened.connection.execute(change, []).is_err(), "{change}");
    }
}

#[test]
fn pages_use_an_index() {
    let (_directory, opened) = of_two_people();
    for (select, index, parameters) in [
        (SELECT_EVENTS, "event_at", 7),
        (SELECT_ACTIONS, "action_at", 8),
    ] {
        let mut explain = opened
            .connection
            .prepare(&format!("EXPLAIN QUERY PLAN {select}"))
            .unwrap();
        let none = None::<String>;
        let values = params![0, 1, 2, 3, none, none, none, false];
        let steps = explain
            .query_map(&values[..parameters], |row| row.get::<_, String>(3))
            .unwrap();
        let steps: Vec<String> = steps.map(Result::unwrap).collect();
        let first = format!("USING INDEX {index} (at>? AND at<?)");
        assert!(steps[0].ends_with(&first), "{steps:?}");
        assert!(
            !steps.iter().any(|step| step.contains("B-TREE")),
            "{steps:?}"
        );
    }
}

#[test]
fn settings_and_rules_are_withheld() {
    let (_directory, mut opened) = file(&[]);
    opened
        .connection
        .execute_batch(
            "INSERT INTO event (at, kind, detail, content) VALUES
             (1, 'settings', 'a', '{}'), (2, 'rules', 'b', '{}'), (3, 'rogue_rules', 'c', '{}'),
             (4, 'started', '1.2.3', '{}');",
        )
        .unwrap();
    let mut withheld_kinds = |may_read: bool| {
        let answer = action_page(
            &mut opened.connection,
            &whole(),
            &ActionFilter::default(),
            &|_| may_read,
        );
        let records = answer.unwrap().records.into_iter();
        let withheld_kinds = records.map(|it| (it.kind, it.plan == Reading::Withheld));
        withheld_kinds.collect::<Vec<_>>()
    };
    let kinds = ["started", "rogue_rules", "rules", "settings"];
    let all = |withheld: [bool; 4]| {
        let kinds = kinds.map(str::to_owned).into_iter();
        kinds.zip(withheld).collect::<Vec<_>>()
    };
    assert_eq!(withheld_kinds(true), all([false; 4]));
    assert_eq!(withheld_kinds(false), all([false, true, true, true]));
}
