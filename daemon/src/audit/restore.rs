//! Puts a backup in the place of the store while no daemon runs: unpacked, checked as a
//! whole, and only then put in place. The store that was there is set aside, and what its
//! record has beyond the backup's is carried over.

mod carry;

mod check;

mod swap;

mod unpack;

pub(super) use swap::{finish, is_unfinished};
pub use unpack::untrusted::copy;

use super::acts::{self, End};
use super::copy::contents::{self, all, entries};
use super::copy::{LeftOver, clean, leave_room, workplace};
use super::database::{AUDIT, Kind, Opened, SAMPLES, open_after, open_for_reading};
use super::{Act, ActKind};
use carry::{carry_over, last_given, number_on};
use gpukill_proto::audit::Contents;
use gpukill_proto::units::Timestamp;
use serde_json::{Value, json};
use std::fmt::Display;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use unpack::{Extent, Manifest, Source as _, Unreadable, read};

/// A backup that was unpacked and checked, with what the record of the store has beyond
/// it. Nothing of the store is changed by it.
pub(crate) struct Prepared {
    directory: PathBuf,
    there: LeftOver,
    manifest: Manifest,
    /// What the store holds; `None` where there is none.
    now: Option<Contents>,
    /// What the backup holds, without what is carried over.
    then: Contents,
    carried: u64,
}

impl Prepared {
    /// Prepares the backup in `source` to replace the store in `directory`, which no
    /// daemon may have open.
    ///
    /// # Errors
    /// Why it cannot replace the store.
    pub(crate) fn make(directory: &Path, source: &File) -> Result<Self, String> {
        // What an earlier restore left that was killed.
        finish(directory)?;
        clean(directory);
        let length = source.metadata().map_err(|error| error.to_string())?.len();
        let archive = read(source, length).map_err(|why| match why {
            Unreadable::Unfit(why) => format!("the backup cannot be used: {why}"),
            Unreadable::Disk(error) => format!("the backup cannot be read: {error}"),
        })?;
        let needed = length.saturating_add(size_of_record(directory));
        leave_room(directory, needed, "a restore")?;
        let there = workplace(directory);
        let made = std::fs::DirBuilder::new().mode(0o700).create(&there);
        made.map_err(|error| failed(&there, &error))?;
        let there = LeftOver(there);
        let manifest = archive.manifest;
        for (kind, extent, schema) in [
            (&SAMPLES, archive.samples, manifest.samples_schema),
            (&AUDIT, archive.audit, manifest.audit_schema),
        ] {
            let path = there.0.join(kind.file);
            unpack(source, extent, &path).map_err(|error| failed(&path, &error))?;
            check::check(&there.0, kind, schema)?;
        }
        let mut prepared = Self {
            directory: directory.to_owned(),
            there,
            manifest,
            now: None,
            then: Contents::default(),
            carried: 0,
        };
        prepared.join_samples()?;
        prepared.join_record()?;
        Ok(prepared)
    }

    /// Counts the samples, and has the backup give no id again that the store gave.
    fn join_samples(&mut self) -> Result<(), String> {
        let copy = self.opened(&SAMPLES)?;
        let join = || -> rusqlite::Result<Contents> { all(&copy.connection) };
        self.then = join().map_err(|error| check::by_sqlite(&SAMPLES, &error))?;
        if let Some(now) = self.store(&SAMPLES)? {
            let count = || -> rusqlite::Result<Contents> {
                number_on(
                    &copy.connection,
                    "sample",
                    last_given(&now.connection, "sample")?,
                )?;
                all(&now.connection)
            };
            self.now = Some(count().map_err(|error| failed(&self.directory, &error))?);
        }
        self.close(copy, &SAMPLES)
    }

    /// Counts the record, and carries over what the backup lacks.
    fn join_record(&mut self) -> Result<(), String> {
        let mut copy = self.opened(&AUDIT)?;
        let by_audit = |error| check::by_sqlite(&AUDIT, &error);
        self.then.actions = entries(&copy.connection).map_err(by_audit)?;
        if let Some(now) = self.store(&AUDIT)? {
            let mut carry = || -> rusqlite::Result<(u64, u64)> {
                let carried = carry_over(&now.connection, &mut copy.connection)?;
                Ok((entries(&now.connection)?, carried))
            };
            let (actions, carried) = carry().map_err(by_audit)?;
            self.carried = carried;
            self.now.get_or_insert_default().actions = actions;
        }
        self.close(copy, &AUDIT)
    }

    /// A file of the store, where there is one.
    fn store(&self, kind: &Kind) -> Result<Option<Opened>, String> {
        if !self.directory.join(kind.file).exists() {
            return Ok(None);
        }
        let opened = open_for_reading(&self.directory, kind);
        opened.map(Some).map_err(|unusable| {
            format!(
                "{}: start gpukilld once, which sets a broken file aside, and stop it again",
                unusable.why
            )
        })
    }

    /// A file of the backup, for writing.
    fn opened(&self, kind: &Kind) -> Result<Opened, String> {
        // It was checked as a whole.
        open_after(Duration::ZERO, &self.there.0, kind).map_err(|unusable| unusable.why)
    }

    /// Closes a file so that all of it is in it, safe on the disk, and no log beside it.
    fn close(&self, opened: Opened, kind: &Kind) -> Result<(), String> {
        let path = self.there.0.join(kind.file);
        let closed = opened.connection.close();
        closed.map_err(|(_, error)| failed(&path, &error))?;
        if self.there.0.join(format!("{}-wal", kind.file)).exists() {
            return Err(failed(&path, &"its log stays beside it"));
        }
        let synced = File::open(&path).and_then(|file| file.sync_all());
        synced.map_err(|error| failed(&path, &error))
    }

    /// What the backup is, and what it replaces: lines for a person.
    pub(crate) fn describe(&self) -> Vec<String> {
        let (host, at) = (&self.manifest.host, self.manifest.made_at.to_rfc3339());
        let holds = |it: &Contents| {
            let Contents {
                samples, actions, ..
            } = it;
            format!("{samples} samples, {actions} entries of the record of actions")
        };
        let now = self.now.as_ref().map_or_else(|| "nothing".into(), holds);
        vec![
            format!("backup: made on {host} at {at}; {}", holds(&self.then)),
            format!("store: {now}"),
            format!(
                "entries of the record that the backup lacks, kept: {}",
                self.carried
            ),
        ]
    }

    /// Puts it in place, and records that `uid` had this file restored. Gives the
    /// directory of the store that was there.
    ///
    /// # Errors
    /// Why it is not in place. Before the first rename nothing has changed; what is left
    /// after that the next restore or start of the daemon does.
    pub(crate) fn put_in_place(
        self,
        uid: u32,
        file: &Path,
        now: Timestamp,
    ) -> Result<PathBuf, String> {
        let time = swap::free_time(&self.directory, now);
        let set_aside = swap::old_place(&self.directory, &time);
        let backup = json!({
            "host": self.manifest.host,
            "at": self.manifest.made_at.to_rfc3339(),
            "holds": told(&self.then),
        });
        let plan = json!({
            "copy": backup,
            "replace": self.now.as_ref().map(told),
            "carry_over": self.carried,
        });
        let outcome = json!({
            "restored": backup,
            "set_aside": set_aside.display().to_string(),
        });
        let act = Act {
            kind: ActKind::Restore,
            uid,
            asked: file.display().to_string(),
            plan: plan.to_string(),
        };
        let end = End {
            at: now,
            word: "done",
            outcome: Some(outcome.to_string()),
            why: None,
            ended: Vec::new(),
        };
        let audit = self.opened(&AUDIT)?;
        let inserted = acts::insert(&audit.connection, "restore", &act, now, Some(&end));
        inserted.map_err(|error| format!("the restore cannot be recorded: {error}"))?;
        self.close(audit, &AUDIT)?;
        let decided = swap::sync(&self.there.0)
            .and_then(|()| swap::decide(&self.directory, &self.there.0, &time));
        decided.map_err(|error| failed(&self.there.0, &error))?;
        finish(&self.directory)?;
        Ok(set_aside)
    }
}

fn failed(path: &Path, error: &dyn Display) -> String {
    format!("{}: {error}", path.display())
}

/// What may be carried over.
fn size_of_record(directory: &Path) -> u64 {
    let of = |name: &str| std::fs::metadata(directory.join(name)).map_or(0, |it| it.len());
    of("audit.db") + of("audit.db-wal")
}

/// So much is copied at once.
const CHUNK: usize = 1 << 20;

fn unpack(source: &File, extent: Extent, path: &Path) -> std::io::Result<()> {
    let mut create = File::options();
    let mut file = create.write(true).create_new(true).mode(0o640).open(path)?;
    let mut chunk = vec![0; CHUNK];
    let mut done = 0;
    while done < extent.bytes {
        let length = usize::try_from(extent.bytes - done).map_or(CHUNK, |left| left.min(CHUNK));
        let part = chunk.get_mut(..length).unwrap_or_default();
        source.read_at(part, extent.offset + done)?;
        file.write_all(part)?;
        done += length as u64;
    }
    Ok(())
}

/// As it is recorded.
fn told(contents: &Contents) -> Value {
    let mut told = contents::told(contents);
    if let Value::Object(fields) = &mut told {
        fields.insert("actions".into(), contents.actions.into());
    }
    told
}
