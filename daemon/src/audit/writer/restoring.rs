//! Has the store go on in the files of a copy. Only the thread that writes can: what
//! it has not written yet is in no file.

use super::super::restore::{Prepared, Restored, Restoring, Told, finish, free_time, old_place};
use super::{Killed, Writer};
use gpukill_proto::units::Timestamp;
use serde_json::{Value, json};
use std::time::{Instant, SystemTime};

impl Writer {
    pub(super) fn restore(&mut self, restoring: Restoring) {
        let Restoring {
            prepared,
            act,
            told,
            answer,
        } = restoring;
        let outcome = match self.acts.row_of(act) {
            Some(row) => self.put_in_place(prepared, row, told),
            None => Err("the act is over".to_owned()),
        };
        // Whoever waited may have gone.
        let _ = answer.send(outcome);
    }

    fn put_in_place(
        &mut self,
        mut prepared: Prepared,
        row: i64,
        copy: Value,
    ) -> Result<Restored, String> {
        let now = Timestamp::from(SystemTime::now());
        let time = free_time(&self.directory, now);
        let set_aside = old_place(&self.directory, &time);
        let Some(audit) = &self.audit else {
            return Err(self.why_no_audit());
        };
        let outcome = json!({
            "restored": copy,
            "set_aside": set_aside.display().to_string(),
        });
        let told = Told {
            row,
            at: now.0,
            outcome: outcome.to_string(),
        };
        let samples = self.samples.as_ref().map(|opened| &opened.connection);
        let under_way = prepared.complete(&audit.connection, samples, &told)?;
        let carried = prepared.carried();
        // Closed before they are renamed, so that their logs are emptied into them.
        (self.samples, self.audit) = (None, None);
        self.retry_at = Instant::now();
        let decided = prepared.decide(&self.directory, &time);
        if decided.is_ok() {
            self.acts.moved(&under_way);
            // What was killed lately is told of by other rows now.
            self.killed = Killed::default();
        }
        let finished = decided.and_then(|()| finish(&self.directory));
        self.open_what_is_closed();
        finished.map(|()| Restored {
            set_aside,
            carried,
            outcome: told.outcome,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::copy::Made;
    use super::super::super::retention::Keep;
    use super::super::super::{Act, ActId, ActKind, Taken};
    use super::*;
    use std::path::Path;
    use std::sync::Arc;
    use tokio::sync::{Semaphore, oneshot};

    fn writer(directory: &Path, boot: &str) -> Writer {
        let (inbox, shared) = (Arc::default(), Arc::default());
        let mut writer = Writer::new(directory.into(), boot.into(), Keep::HOUR, inbox, shared);
        writer.open_what_is_closed();
        writer
    }

    /// Begins an act of this kind.
    fn begin(writer: &mut Writer, kind: ActKind) -> ActId {
        let act = Act {
            kind,
            uid: 7,
            asked: "x".into(),
            plan: "{}".into(),
        };
        let at = Timestamp(1);
        let begun = writer.on_audit(|writer, file| writer.acts.begin(file, act.clone(), at));
        begun.unwrap()
    }

    /// A copy of what is there now, as it comes back.
    fn copied(directory: &Path) -> Arc<Taken> {
        let place = || Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let made = Made::make(directory, "box", place()).unwrap();
        let mut taken = Taken::begin(directory, made.bytes(), place()).unwrap();
        let mut offset = 0;
        while offset < made.bytes() {
            let part = made.part(offset).unwrap();
            taken.add(offset, &part).unwrap();
            offset += part.len() as u64;
        }
        Arc::new(taken)
    }

    fn restore(
        writer: &mut Writer,
        prepared: Prepared,
        act: ActId,
    ) -> Result<(std::path::PathBuf, u64), String> {
        let (answer, mut answered) = oneshot::channel();
        writer.restore(Restoring {
            prepared,
            act,
            told: json!("a copy"),
            answer,
        });
        let answer = answered.try_recv().unwrap();
        answer.map(|it| (it.set_aside, it.carried))
    }

    /// The acts of a file: kind and word, by id.
    fn acts(file: &Path) -> Vec<(i64, String, Option<String>)> {
        let file = rusqlite::Connection::open(file).unwrap();
        let select = "SELECT id, kind, word FROM action ORDER BY id";
        let mut statement = file.prepare(select).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        rows.unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn a_restore_is_told_as_done_by_the_very_files_that_it_puts_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path();
        let mut first = writer(there, "boot");
        let taken = copied(there);
        // One goes on meanwhile, and one begins after the record was carried over.
        let kill = begin(&mut first, ActKind::Kill);
        let prepared = Prepared::make(there, &taken).unwrap();
        assert_eq!(prepared.carried(), 1);
        let act = begin(&mut first, ActKind::Restore);
        let (set_aside, carried) = restore(&mut first, prepared, act).unwrap();
        assert_eq!(carried, 2);
        let row = |id, kind: ActKind, word: Option<&str>| {
            (id, kind.name().to_owned(), word.map(str::to_owned))
        };
        let now = there.join("audit.db");
        let both = [
            row(1, ActKind::Kill, None),
            row(2, ActKind::Restore, Some("done")),
        ];
        assert_eq!(acts(&now), both);
        assert_eq!(first.acts.row_of(kill), Some(1));
        // What was there is as it was.
        assert_eq!(
            acts(&set_aside.join("audit.db")),
            [row(1, ActKind::Kill, None), row(2, ActKind::Restore, None)]
        );
        // Killed before anybody was told.
        drop(first);
        drop(writer(there, "next"));
        let later = [
            row(1, ActKind::Kill, Some("interrupted")),
            row(2, ActKind::Restore, Some("done")),
        ];
        assert_eq!(acts(&now), later);
        assert!(!there.join("copying").exists());
    }

    #[test]
    fn without_a_record_nothing_is_put_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let there = directory.path();
        let mut writer = writer(there, "boot");
        let taken = copied(there);
        let prepared = Prepared::make(there, &taken).unwrap();
        let act = begin(&mut writer, ActKind::Restore);
        writer.audit = None;
        writer.audit_fault = Some("the disk is gone".into());
        let outcome = restore(&mut writer, prepared, act);
        assert_eq!(outcome, Err("the disk is gone".into()));
        let names = std::fs::read_dir(there).unwrap().flatten();
        let strange = names
            .filter_map(|entry| entry.file_name().into_string().ok())
            .find(|name| name.starts_with("re") && name != "reserve");
        assert_eq!(strange, None);
        assert!(!there.join("copying").exists());
    }
}
