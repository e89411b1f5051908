//! What somebody asked to be deleted, in the steps in which old samples are: other
//! orders come in between.

use super::super::retention::{delete_before, delete_unused, give_back};
use super::{PRUNE_EVERY, PRUNE_STEP, Writer};
use gpukill_proto::units::Timestamp;
use std::time::{Instant, SystemTime};
use tokio::sync::oneshot;

/// Why nothing is deleted by its time now.
pub(in super::super) const UNSTEADY: &str =
    "the clock of this box jumped within the last hour: what is old cannot be told now";

/// The same, where there is too little room even for that.
const FULL: &str =
    "too little of the disk is free: deleting takes some room before it gives some back";

/// What somebody asked to be deleted.
pub(in super::super) struct Pruning {
    /// What is older goes.
    before: Timestamp,
    /// Whoever waits until it has.
    answer: oneshot::Sender<Result<(), String>>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Rows,
    Room,
}

impl Pruning {
    pub(in super::super) fn new(
        before: Timestamp,
        answer: oneshot::Sender<Result<(), String>>,
    ) -> Self {
        Self {
            before,
            answer,
            stage: Stage::Rows,
        }
    }

    /// Whoever waits may have gone.
    fn end(self, how: Result<(), String>) {
        let _ = self.answer.send(how);
    }
}

impl Writer {
    /// Whether the clock has not jumped for a while.
    pub(super) fn tell_of_the_clock(&mut self, answer: oneshot::Sender<bool>) {
        // Whoever asked may have gone.
        let _ = answer.send(self.is_steady(Instant::now()));
    }

    fn is_steady(&mut self, now: Instant) -> bool {
        self.clock.is_steady(SystemTime::now().into(), now)
    }

    pub(super) fn begin_pruning(&mut self, pruning: Pruning) {
        if self.pruning.is_some() {
            pruning.end(Err("another prune is under way".into()));
        } else {
            self.pruning = Some(pruning);
            self.prune_at = Instant::now();
        }
    }

    /// Goes on with what was asked for; true where that is something.
    pub(super) fn prune_as_asked(&mut self, now: Instant) -> bool {
        if self.pruning.is_none() || (now < self.prune_at && self.samples.is_some()) {
            return self.pruning.is_some();
        }
        let is_steady = self.is_steady(now);
        let Some(mut pruning) = self.pruning.take() else {
            return false;
        };
        let Some(opened) = &mut self.samples else {
            let fault = self.samples_fault.clone();
            pruning.end(Err(fault.unwrap_or_else(|| "the store is not open".into())));
            return false;
        };
        if !is_steady {
            pruning.end(Err(UNSTEADY.into()));
            return false;
        }
        if !self.may_delete {
            pruning.end(Err(FULL.into()));
            return false;
        }
        let connection = &mut opened.connection;
        let (tables, before) = (["sample", "minute", "hour"], pruning.before);
        let step = match pruning.stage {
            Stage::Rows => match delete_before(connection, tables.map(|table| (table, before))) {
                Ok(false) => {
                    let is_more = delete_unused(connection);
                    // Rows that are gone are not to be named by new samples.
                    self.written.forget();
                    if matches!(is_more, Ok(false)) {
                        pruning.stage = Stage::Room;
                    }
                    is_more.map(|_| true)
                }
                step => step,
            },
            Stage::Room => give_back(connection),
        };
        match step {
            Ok(true) => {
                self.prune_at = now + PRUNE_STEP;
                self.pruning = Some(pruning);
            }
            Ok(false) => {
                self.prune_at = now + PRUNE_EVERY;
                pruning.end(Ok(()));
            }
            Err(error) => {
                self.prune_at = now + PRUNE_EVERY;
                self.close_samples(&error);
                let fault = self.samples_fault.clone();
                pruning.end(Err(fault.unwrap_or_else(|| error.to_string())));
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::retention::Keep;
    use super::super::super::space::Space;
    use super::super::super::steady::SteadyClock;
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    fn writer(directory: &std::path::Path) -> Writer {
        let long = Duration::from_secs(400 * 86_400);
        let keep = Keep {
            samples: long,
            minutes: long,
            hours: long,
        };
        let (inbox, shared) = (Arc::default(), Arc::default());
        let mut writer = Writer::new(directory.into(), "boot".into(), keep, inbox, shared);
        writer.open_what_is_closed();
        writer
    }

    /// Has everything deleted that is older than now, and says how that went and in
    /// how many steps.
    fn prune(writer: &mut Writer) -> (Result<(), String>, u32) {
        let (answer, mut answered) = oneshot::channel();
        writer.begin_pruning(Pruning::new(SystemTime::now().into(), answer));
        let mut steps = 0;
        loop {
            steps += 1;
            let now = writer.prune_at.max(Instant::now());
            writer.prune_as_asked(now);
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
    fn what_is_old_goes_step_by_step_and_the_file_shrinks() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = writer(directory.path());
        let (_, empty) = samples(&writer);
        fill(&writer);
        let (rows, full) = samples(&writer);
        assert_eq!(rows, 2_600);
        // Five of them on a page.
        assert!(full >= empty + 2_600 / 5, "{full}");
        let (outcome, steps) = prune(&mut writer);
        assert_eq!(outcome, Ok(()));
        assert!(steps > 5, "{steps}");
        assert_eq!(samples(&writer), (0, empty));
    }

    /// Processes on a device that ended long ago.
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

    /// How many runs and processes there are.
    fn left(writer: &Writer) -> (i64, i64) {
        let file = &writer.samples.as_ref().unwrap().connection;
        let counts = "SELECT (SELECT count(*) FROM run), (SELECT count(*) FROM process)";
        file.query_row(counts, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
    }

    #[test]
    fn processes_of_which_nothing_is_left_go_step_by_step_too() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = writer(directory.path());
        people(&writer);
        let (outcome, steps) = prune(&mut writer);
        assert_eq!(outcome, Ok(()));
        // Two whole steps, the rest, a look at all, and the room.
        assert_eq!((left(&writer), steps), ((0, 0), 5));

        people(&writer);
        let now = Instant::now();
        writer.tidy_at = now;
        for (rest, is_over) in [(700, false), (200, false), (0, false), (0, true)] {
            writer.tidy(now);
            assert_eq!(left(&writer), (rest, rest));
            // Whatever waits comes in between.
            assert_eq!(writer.tidy_at > now, is_over);
        }
    }

    #[test]
    fn a_clock_that_jumped_deletes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = writer(directory.path());
        fill(&writer);
        writer.clock = SteadyClock::starting(Timestamp(0), Instant::now());
        let (outcome, _) = prune(&mut writer);
        assert_eq!(outcome, Err(UNSTEADY.to_owned()));
        assert_eq!(samples(&writer).0, 2_600);
    }

    #[test]
    fn a_disk_that_is_as_good_as_full_deletes_nothing_until_there_is_room() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = writer(directory.path());
        fill(&writer);
        writer.heed(Space::of_mib(15, 100_000));
        assert_eq!(prune(&mut writer), (Err(FULL.to_owned()), 1));
        assert_eq!(samples(&writer).0, 2_600);
        writer.heed(Space::of_mib(16, 100_000));
        assert_eq!(prune(&mut writer).0, Ok(()));
        assert_eq!(samples(&writer).0, 0);
    }

    #[test]
    fn one_prune_goes_on_at_a_time_and_none_without_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = writer(directory.path());
        let (answer, _first) = oneshot::channel();
        writer.begin_pruning(Pruning::new(Timestamp(1), answer));
        let (answer, mut second) = oneshot::channel();
        writer.begin_pruning(Pruning::new(Timestamp(1), answer));
        let busy = "another prune is under way".to_owned();
        assert_eq!(second.try_recv(), Ok(Err(busy)));

        writer.pruning = None;
        writer.samples = None;
        writer.samples_fault = Some("the disk is gone".into());
        assert_eq!(prune(&mut writer), (Err("the disk is gone".into()), 1));
    }
}
