//! A prune that a user requested, in the same steps as the regular one; other commands are handled
//! in between.

use super::super::retention::{delete_before, delete_unused, release_pages};
use super::{PRUNE_INTERVAL, PRUNE_PAUSE, Writer};
use gpukill_proto::units::Timestamp;
use std::time::{Instant, SystemTime};
use tokio::sync::oneshot;

/// The error when the clock cannot be trusted.
pub(in super::super) const CLOCK_JUMPED: &str =
    "the clock of this host jumped within the last hour: the age of samples is unknown now";

/// The error when there is too little space for a prune.
const DISK_FULL: &str =
    "too little disk space is free: deleting needs some space before it frees any";

pub(in super::super) struct RequestedPrune {
    /// Rows older than this are deleted.
    before: Timestamp,
    /// The caller that waits for the end.
    answer: oneshot::Sender<Result<(), String>>,
    stage: PruneStage,
}

#[derive(Debug, Clone, Copy)]
enum PruneStage {
    Rows,
    Pages,
}

impl RequestedPrune {
    pub(in super::super) fn new(
        before: Timestamp,
        answer: oneshot::Sender<Result<(), String>>,
    ) -> Self {
        Self {
            before,
            answer,
            stage: PruneStage::Rows,
        }
    }

    /// The caller may have gone away.
    fn finish(self, result: Result<(), String>) {
        let _ = self.answer.send(result);
    }
}

impl Writer {
    /// Answers whether the clock has not jumped for a while.
    pub(super) fn answer_clock_check(&mut self, answer: oneshot::Sender<bool>) {
        // The caller may have gone away.
        let _ = answer.send(self.is_clock_steady(Instant::now()));
    }

    fn is_clock_steady(&mut self, now: Instant) -> bool {
        self.clock.is_steady(SystemTime::now().into(), now)
    }

    pub(super) fn begin_pruning(&mut self, pruning: RequestedPrune) {
        if self.pruning.is_some() {
            pruning.finish(Err("another prune is in progress".into()));
        } else {
            self.pruning = Some(pruning);
            self.prune_at = Instant::now();
        }
    }

    /// Continues the requested prune; returns true if there is one.
    pub(super) fn run_requested_prune(&mut self, now: Instant) -> bool {
        if self.pruning.is_none() || (now < self.prune_at && self.samples.is_some()) {
            return self.pruning.is_some();
        }
        let is_steady = self.is_clock_steady(now);
        let Some(mut pruning) = self.pruning.take() else {
            return false;
        };
        let Some(opened) = &mut self.samples else {
            let fault = self.samples_fault.clone();
            pruning.finish(Err(fault.unwrap_or_else(|| "the store is not open".into())));
            return false;
        };
        if !is_steady {
            pruning.finish(Err(CLOCK_JUMPED.into()));
            return false;
        }
        if !self.may_delete {
            pruning.finish(Err(DISK_FULL.into()));
            return false;
        }
        let connection = &mut opened.connection;
        let (tables, before) = (["sample", "minute", "hour"], pruning.before);
        let step = match pruning.stage {
            PruneStage::Rows => {
                match delete_before(connection, tables.map(|table| (table, before))) {
                    Ok(false) => {
                        let is_more = delete_unused(connection);
                        // New samples must not refer to deleted rows.
                        self.sample_writer.forget();
                        if matches!(is_more, Ok(false)) {
                            pruning.stage = PruneStage::Pages;
                        }
                        is_more.map(|_| true)
                    }
                    step => step,
                }
            }
            PruneStage::Pages => release_pages(connection),
        };
        match step {
            Ok(true) => {
                self.prune_at = now + PRUNE_PAUSE;
                self.pruning = Some(pruning);
            }
            Ok(false) => {
                self.prune_at = now + PRUNE_INTERVAL;
                pruning.finish(Ok(()));
            }
            Err(error) => {
                self.prune_at = now + PRUNE_INTERVAL;
                self.close_samples(&error);
                let fault = self.samples_fault.clone();
                pruning.finish(Err(fault.unwrap_or_else(|| error.to_string())));
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::clock_guard::ClockGuard;
    use super::super::super::disk_space::DiskSpace;
    use super::super::super::retention::Retention;
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    fn writer(directory: &std::path::Path) -> Writer {
        let long = Duration::from_secs(400 * 86_400);
        let keep = Retention {
            samples: long,
            minutes: long,
            hours: long,
        };
        let (inbox, shared) = (Arc::default(), Arc::default());
        let mut writer = Writer::new(directory.into(), "boot".into(), keep, inbox, shared);
        writer.open_closed_files();
        writer
    }

    /// Deletes everything older than now; returns the result and the number of steps.
    fn prune(writer: &mut Writer) -> (Result<(), String>, u32) {
        let (answer, mut answered) = oneshot::channel();
        writer.begin_pruning(RequestedPrune::new(SystemTime::now().into(), answer));
        let mut steps = 0;
        loop {
            steps += 1;
            let now = writer.prune_at.max(Instant::now());
            writer.run_requested_prune(now);
            if let Ok(outcome) = answered.try_recv() {
                return (outcome, steps);
            }
            assert!(steps < 1_000, "it does not end");
        }
    }

    fn samples(writer: &Writer) -> (i64, i64) {
        let file = &writer.samples.as_ref().unwrap().connection;
        let rows = "SELECT count(*) FROM sample";
        let rows = file.query_row(rows, [], |row| row.get(0)).unwrap();
        let pages = file.pragma_query_value(None, "page_count", |row| row.get(0));
        (rows, pages.unwrap())
    }

    fn fill(writer: &Writer) {
        let file = &writer.samples.as_ref().unwrap().connection;
        file.execute_batch(
            "INSERT INTO sample (at, usage) WITH RECURSIVE n(x) AS
             (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 2600)
             SELECT x, zeroblob(3000) FROM n;
             UPDATE rolled SET sample = 2600;",
        )
        .unwrap();
    }

    #[test]
    fn deletes_in_steps_and_shrinks_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = writer(directory.path());
        let (_, empty) = samples(&writer);
        fill(&writer);
        let (rows, full) = samples(&writer);
        assert_eq!(rows, 2_600);
        // Five rows fit on a page.
        assert!(full >= empty + 2_600 / 5, "{full}");
        let (outcome, steps) = prune(&mut writer);
        assert_eq!(outcome, Ok(()));
        assert!(steps > 5, "{steps}");
        assert_eq!(samples(&writer), (0, empty));
    }

    /// Processes with runs on a device that ended long ago.
    fn people(writer: &Writer) {
        let file = &writer.samples.as_ref().unwrap().connection;
        file.execute_batch(
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1200)
             INSERT INTO process (id, boot, pid, start_ticks) SELECT x, 'boot', x, 1 FROM n;
             INSERT INTO run (process, device, instance, first_at, last_at, first_sample,
             last_sample, ended_at) SELECT id, 1, '', 1, 1, 1, 1, 1 FROM process;",
        )
        .unwrap();
    }

    /// The number of runs and processes.
    fn left(writer: &Writer) -> (i64, i64) {
        let file = &writer.samples.as_ref().unwrap().connection;
        let counts = "SELECT (SELECT count(*) FROM run), (SELECT count(*) FROM process)";
        file.query_row(counts, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
    }

    #[test]
    fn unused_processes_go_in_steps() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = writer(directory.path());
        people(&writer);
        let (outcome, steps) = prune(&mut writer);
        assert_eq!(outcome, Ok(()));
        // Two whole steps, the rest, a scan of all processes, and the pages.
        assert_eq!((left(&writer), steps), ((0, 0), 5));

        people(&writer);
        let now = Instant::now();
        writer.cleanup_at = now;
        for (rest, is_over) in [(700, false), (200, false), (0, false), (0, true)] {
            writer.clean_up(now);
            assert_eq!(left(&writer), (rest, rest));
            // Waiting commands are handled in between.
            assert_eq!(writer.cleanup_at > now, is_over);
        }
    }

    #[test]
    fn jumped_clock_deletes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = writer(directory.path());
        fill(&writer);
        writer.clock = ClockGuard::new(Timestamp(0), Instant::now());
        let (outcome, _) = prune(&mut writer);
        assert_eq!(outcome, Err(CLOCK_JUMPED.to_owned()));
        assert_eq!(samples(&writer).0, 2_600);
    }

    #[test]
    fn full_disk_deletes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = writer(directory.path());
        fill(&writer);
        writer.apply_space(DiskSpace::from_mib(15, 100_000));
        assert_eq!(prune(&mut writer), (Err(DISK_FULL.to_owned()), 1));
        assert_eq!(samples(&writer).0, 2_600);
        writer.apply_space(DiskSpace::from_mib(16, 100_000));
        assert_eq!(prune(&mut writer).0, Ok(()));
        assert_eq!(samples(&writer).0, 0);
    }

    #[test]
    fn one_prune_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = writer(directory.path());
        let (answer, _first) = oneshot::channel();
        writer.begin_pruning(RequestedPrune::new(Timestamp(1), answer));
        let (answer, mut second) = oneshot::channel();
        writer.begin_pruning(RequestedPrune::new(Timestamp(1), answer));
        let busy = "another prune is in progress".to_owned();
        assert_eq!(second.try_recv(), Ok(Err(busy)));

        writer.pruning = None;
        writer.samples = None;
        writer.samples_fault = Some("the disk is gone".into());
        assert_eq!(prune(&mut writer), (Err("the disk is gone".into()), 1));
    }
}
