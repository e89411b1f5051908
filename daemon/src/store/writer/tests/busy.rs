//! A store with many pending entries, which closes nevertheless.

use super::*;

#[test]
fn actions_come_between_flush_steps() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    std::fs::write(&path, "in the way").unwrap();
    let mut writer = writer(&path, "boot");
    for _ in 0..=MAX_FLUSHED {
        writer.push_event(RecordedEvent::Stopped);
    }
    assert!(writer.time_to_next_work() > Duration::from_secs(1));
    std::fs::remove_file(&path).unwrap();
    writer.retry_at = Instant::now();
    writer.open_closed_files();
    (writer.prune_at, writer.check_directory_at) = (Instant::now() + LONG, Instant::now() + LONG);
    writer.flush_events();
    assert_eq!(
        (writer.pending.len(), writer.time_to_next_work()),
        (1, Duration::ZERO)
    );
    intend(&mut writer, "1").unwrap();
    writer.flush_events();
    assert!(writer.pending.is_empty());
    assert!(writer.time_to_next_work() > Duration::from_secs(1));
    // At the end nothing is left pending.
    for _ in 0..=MAX_FLUSHED {
        writer
            .pending
            .push_back(PendingEntry::Event(Timestamp(7), RecordedEvent::Stopped));
    }
    writer.finish();
    assert!(writer.pending.is_empty());
}

#[test]
fn busy_store_closes() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::start(directory.path().into(), "boot".into(), KEEP, None).unwrap();
    let started = Instant::now();
    // The writer waits for its action queue, and its command queue is full.
    let inbox = queue::lock(&store.queue);
    while store.commands.try_send(WriterCommand::CheckQueue).is_ok() {}
    let closing = store.clone();
    let closer = std::thread::spawn(move || closing.close());
    let is_answering = || {
        let (done, _) = sync_channel(1);
        let asked = store
            .queries
            .try_send(super::super::super::ReaderCommand::Close(done));
        !matches!(asked, Err(std::sync::mpsc::TrySendError::Disconnected(_)))
    };
    while is_answering() {
        assert!(started.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(10));
    }
    // So that the closing thread also finds the queue full.
    std::thread::sleep(Duration::from_millis(50));
    drop(inbox);
    closer.join().unwrap();
    while store.wake().is_ok() {
        assert!(started.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(1));
    }
}
