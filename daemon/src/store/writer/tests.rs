//! The record survives failures of the daemon and of its file.

mod busy;
mod clock;
mod failing;
mod full;
mod killed;
mod quarantine;

use super::super::database::{AUDIT, open, open_for_reading};
use super::super::{Action, ActionId, ActionKind, CLOSED, Store, truncate};
use super::*;
use crate::store::queue::ActionIntent;
use gpukill_policy::access::LimitGroup;
use proptest::prelude::*;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};

/// Longer than any host needs.
const LONG: Duration = Duration::from_secs(60);

const KEEP: Retention = Retention::HOUR;

/// A writer that runs in the thread of the test.
fn writer(directory: &Path, boot: &str) -> Writer {
    let mut writer = Writer::new(
        directory.to_owned(),
        boot.into(),
        KEEP,
        Arc::default(),
        Arc::default(),
    );
    writer.open_closed_files();
    writer
}

/// Closes the store, however long that takes.
fn close(store: &Store) {
    store.close();
    let started = Instant::now();
    while store.wake().is_ok() {
        assert!(started.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn act(request: &str) -> Action {
    Action {
        kind: ActionKind::Kill,
        uid: 1_000,
        request: request.into(),
        plan: json!({"targets": [request]}).to_string(),
    }
}

fn intent(request: &str, timeout: Duration) -> (ActionIntent, Receiver<Result<ActionId, String>>) {
    let (answer, answered) = sync_channel(0);
    let intent = ActionIntent {
        action: act(request),
        at: SystemTime::now().into(),
        deadline: Instant::now() + timeout,
        answer,
    };
    (intent, answered)
}

/// Records an action, with a thread that waits for the row.
fn intend(writer: &mut Writer, request: &str) -> Result<ActionId, String> {
    let (intent, answered) = intent(request, LONG);
    let caller = std::thread::spawn(move || answered.recv().unwrap());
    queue::lock(&writer.queue).push_intent(intent).unwrap();
    writer.process_queue();
    caller.join().unwrap()
}

fn settle(writer: &mut Writer, id: ActionId, outcome: &str) {
    let end = crate::store::actions::ActionEnd {
        at: SystemTime::now().into(),
        result: "done",
        outcome: Some(outcome.into()),
        why: None,
        ended: Vec::new(),
    };
    queue::lock(&writer.queue).push_end(id, end);
    writer.process_queue();
}

/// An action in the record: request, result, outcome and reason.
type Row = (String, Option<String>, Option<String>, Option<String>);

fn rows(file: &Path) -> Vec<Row> {
    let connection = Connection::open(file).unwrap();
    let select =
        "SELECT request, result, outcome, reason, finished_at IS NULL FROM action ORDER BY id";
    let mut statement = connection.prepare(select).unwrap();
    let rows = statement.query_map([], |row| {
        let result: Option<String> = row.get(1)?;
        assert_eq!(result.is_none(), row.get::<_, bool>(4)?);
        Ok((row.get(0)?, result, row.get(2)?, row.get(3)?))
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

fn audit(directory: &Path) -> PathBuf {
    directory.join(AUDIT.file)
}

fn under_way(request: &str) -> Row {
    (request.into(), None, None, None)
}

fn done(request: &str) -> Row {
    (request.into(), Some("done".into()), Some("{}".into()), None)
}

fn ended(request: &str, result: &str, why: &str) -> Row {
    (request.into(), Some(result.into()), None, Some(why.into()))
}

fn found_by(writer: &Writer) -> String {
    let run = &writer.daemon_run;
    format!("gpukilld ended before the action did: found by its run {run}")
}

const TOO_LATE: &str = "its row was written too late: see the log for the outcome";

#[test]
fn unopenable_store_is_retried_with_pauses() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    std::fs::write(&path, "in the way").unwrap();
    let mut writer = writer(&path, "boot");
    for _ in 0..3 {
        writer.open_closed_files();
        writer.prune();
        assert!(writer.samples.is_none());
        assert!(
            writer.time_to_next_work() > RETRY_INTERVAL / 2,
            "{:?}",
            writer.time_to_next_work()
        );
    }
}

#[test]
fn action_is_recorded_before_and_settled_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = audit(directory.path());
    let store = Store::start(directory.path().into(), "boot".into(), KEEP, None).unwrap();
    let first = store
        .send_intent(act("1"), SystemTime::now().into(), LONG)
        .unwrap();
    assert_eq!(rows(&file), [under_way("1")]);
    let second = store
        .send_intent(act("2"), SystemTime::now().into(), LONG)
        .unwrap();
    assert_eq!(rows(&file), [under_way("1"), under_way("2")]);
    store.settle(second, "partly", "[2]".into(), None);
    store.settle(first, "done", "{}".into(), None);
    store.settle(first, "failed", "[]".into(), None);
    close(&store);
    let partly = ("2".into(), Some("partly".into()), Some("[2]".into()), None);
    assert_eq!(rows(&file), [done("1"), partly]);
    let (kind, uid, plan, run): (String, u32, String, String) = Connection::open(file)
        .unwrap()
        .query_row("SELECT kind, uid, plan, run FROM action", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .unwrap();
    assert_eq!((kind.as_str(), uid), ("kill", 1_000));
    assert_eq!(plan, r#"{"targets":["1"]}"#);
    assert!(run.starts_with("boot/"), "{run}");
    assert_eq!(store.record_intent(act("3")).err(), Some(CLOSED.into()));
}

#[test]
fn record_syncs_each_commit() {
    let directory = tempfile::tempdir().unwrap();
    let writer = writer(directory.path(), "boot");
    let connection = &writer.audit.as_ref().unwrap().connection;
    let level: i64 = connection
        .pragma_query_value(None, "synchronous", |row| row.get(0))
        .unwrap();
    // 2 is FULL.
    assert_eq!(level, 2);
}

#[test]
fn abandoned_action_is_unrecorded() {
    let directory = tempfile::tempdir().unwrap();
    let file = audit(directory.path());
    let mut writer = writer(directory.path(), "boot");
    let (too_late, answered) = intent("1", Duration::ZERO);
    drop(answered);
    queue::lock(&writer.queue).push_intent(too_late).unwrap();
    writer.process_queue();
    assert_eq!(rows(&file), []);
    // Given up while the disk was slow.
    let (given_up, answered) = intent("2", LONG);
    drop(answered);
    queue::lock(&writer.queue).push_intent(given_up).unwrap();
    writer.process_queue();
    assert_eq!(rows(&file), [ended("2", "unrecorded", TOO_LATE)]);
}

#[test]
fn hanging_store_times_out() {
    let directory = tempfile::tempdir().unwrap();
    let (orders, received) = sync_channel(1);
    let store = Store {
        commands: orders,
        queries: sync_channel(1).0,
        queue: Arc::default(),
        status: Arc::default(),
        faults: Arc::default(),
        counters: crate::store::Counters::default(),
        directory: Arc::new(directory.path().into()),
        copy_permits: Arc::new(tokio::sync::Semaphore::new(1)),
    };
    // No thread reads the commands, and the queue is full.
    store.record(RecordedEvent::Stopped);
    let started = Instant::now();
    let timeout = Duration::from_millis(50);
    let answer = store.send_intent(act("1"), SystemTime::now().into(), timeout);
    assert_eq!(answer, Err("the store did not answer in time".into()));
    for number in 0..100_000 {
        store.record_refusal(act("2"), LimitGroup::Person(7), format!("{}", number % 100));
        store.settle(ActionId(1), "done", "{}".into(), None);
    }
    assert!(started.elapsed() < LONG);
    let mut writer = Writer::new(
        directory.path().into(),
        "boot".into(),
        KEEP,
        Arc::clone(&store.queue),
        Arc::default(),
    );
    drop(store);
    writer.open_closed_files();
    let (opening, _opened) = sync_channel(0);
    writer.run(&received, opening);
    let connection = Connection::open(audit(directory.path())).unwrap();
    let select = "SELECT count(*) FROM action WHERE request = '1'";
    let found: i64 = connection.query_row(select, [], |row| row.get(0)).unwrap();
    assert_eq!(found, 0);
}

#[test]
fn open_actions_are_limited() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = writer(directory.path(), "boot");
    for _ in 0..crate::store::actions::MAX_OPEN_ACTIONS {
        intend(&mut writer, "1").unwrap();
    }
    let refused = Err("too many actions are open".into());
    assert_eq!(intend(&mut writer, "2"), refused);
    settle(&mut writer, ActionId(1), "{}");
    intend(&mut writer, "2").unwrap();
}

#[test]
fn refusals_are_recorded_at_once_and_at_close() {
    let directory = tempfile::tempdir().unwrap();
    let file = audit(directory.path());
    let store = Store::start(directory.path().into(), "boot".into(), KEEP, None).unwrap();
    let started = Instant::now();
    store.record_refusal(
        act("1"),
        LimitGroup::Person(7),
        "it belongs to alice".into(),
    );
    let is_there = || {
        let select = "SELECT count(*) FROM action";
        let connection = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_ONLY);
        connection.and_then(|it| it.query_row(select, [], |row| row.get(0)))
    };
    while is_there() != Ok(1) {
        assert!(started.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..10_000 {
        store.record_refusal(
            act("1"),
            LimitGroup::Person(7),
            "it belongs to alice".into(),
        );
    }
    close(&store);
    let select = "SELECT sum(times), count(*) FROM action WHERE result = 'refused'";
    let (times, rows): (i64, i64) = Connection::open(file)
        .unwrap()
        .query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!(times, 10_001);
    assert!(rows <= 4, "{rows}");
}

#[test]
fn writer_wakes_up_for_repeats() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = writer(directory.path(), "boot");
    writer.prune_at = Instant::now() + 2 * LONG;
    writer.check_directory();
    assert!(writer.time_to_next_work() > LONG);
    let mut inbox = queue::lock(&writer.queue);
    let now = Instant::now();
    inbox.refusals.add(
        act("1"),
        LimitGroup::Person(7),
        "no".into(),
        Timestamp(0),
        now,
    );
    drop(inbox);
    writer.process_queue();
    assert!(writer.time_to_next_work() <= LONG);
}

#[test]
fn recorded_actions_cannot_be_changed() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = writer(directory.path(), "boot");
    let id = intend(&mut writer, "1").unwrap();
    let connection = Connection::open(audit(directory.path())).unwrap();
    let error = |statement: &str| connection.execute(statement, []).unwrap_err().to_string();
    let what = "the request of an action does not change";
    assert_eq!(error("UPDATE action SET uid = 0"), what);
    settle(&mut writer, id, "{}");
    let once = "an action is settled once";
    assert_eq!(error("UPDATE action SET result = 'failed'"), once);
    assert_eq!(rows(&audit(directory.path())), [done("1")]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn texts_are_stored_whole_or_truncated(
        text in prop_oneof!["(?s).{0,50}", "[\u{0}-\u{1f}\"\\\\']{0,50}"],
        times in prop_oneof![Just(1_usize), 1_usize..20_000],
    ) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::start(directory.path().into(), "boot".into(), KEEP, None).unwrap();
        let text = text.repeat(times);
        let document = json!([text]).to_string();
        let whole = Action { request: text.clone(), plan: document.clone(), ..act("") };
        store.record_refusal(whole.clone(), LimitGroup::Person(7), text.clone());
        let id = store.send_intent(whole, SystemTime::now().into(), LONG).unwrap();
        store.settle(id, "done", document.clone(), None);
        close(&store);
        let (request, plan, outcome): (String, String, String) =
            Connection::open(audit(directory.path()))
                .unwrap()
                .query_row(
                    "SELECT request, plan, outcome FROM action WHERE result = 'done'",
                    [],
                    |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
                )
                .unwrap();
        prop_assert_eq!(request, truncate::text(text, truncate::MAX_TEXT_BYTES));
        prop_assert!(serde_json::from_str::<Value>(&plan).is_ok());
        prop_assert_eq!(&plan, &truncate::json(document, truncate::MAX_JSON_BYTES));
        prop_assert_eq!(plan, outcome);
    }
}
