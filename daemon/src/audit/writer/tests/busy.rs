//! Much that waits, and a store that closes all the same.

use super::*;

#[test]
fn what_waited_long_is_written_in_steps_and_acts_come_in_between() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    std::fs::write(&path, "in the way").unwrap();
    let mut writer = writer(&path, "boot");
    for _ in 0..=FLUSH_STEP {
        writer.record(Event::Stopped);
    }
    assert!(writer.wait() > Duration::from_secs(1));
    std::fs::remove_file(&path).unwrap();
    writer.retry_at = Instant::now();
    writer.open_what_is_closed();
    (writer.prune_at, writer.look_at) = (Instant::now() + LONG, Instant::now() + LONG);
    writer.flush_events();
    assert_eq!((writer.pending.len(), writer.wait()), (1, Duration::ZERO));
    intend(&mut writer, "1").unwrap();
    writer.flush_events();
    assert!(writer.pending.is_empty());
    assert!(writer.wait() > Duration::from_secs(1));
    // At its end nothing waits any more.
    for _ in 0..=FLUSH_STEP {
        writer
            .pending
            .push_back(Pending::Event(Timestamp(7), Event::Stopped));
    }
    writer.finish();
    assert!(writer.pending.is_empty());
}

#[test]
fn a_store_that_has_much_to_do_closes_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::start(directory.path().into(), "boot".into(), KEEP, None).unwrap();
    let began = Instant::now();
    // The writer waits for what is in its inbox, and its queue is full.
    let inbox = inbox::open(&store.inbox);
    while store.orders.try_send(Order::Look).is_ok() {}
    let closing = store.clone();
    let closer = std::thread::spawn(move || closing.close());
    let is_answering = || {
        let (done, _) = sync_channel(1);
        let asked = store
            .questions
            .try_send(super::super::super::Inquiry::Close(done));
        !matches!(asked, Err(std::sync::mpsc::TrySendError::Disconnected(_)))
    };
    while is_answering() {
        assert!(began.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(10));
    }
    // So that whoever closes it finds its queue full, too.
    std::thread::sleep(Duration::from_millis(50));
    drop(inbox);
    closer.join().unwrap();
    while store.wake().is_ok() {
        assert!(began.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(1));
    }
}
