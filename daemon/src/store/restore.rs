//! Replaces the store by a backup while no daemon runs. The backup is unpacked and checked as a
//! whole before it is put in place. The replaced store is kept, and the entries of its record that
//! the backup lacks are carried over.

mod archive_reader;
mod check;
mod record_merge;
mod swap;

pub use archive_reader::fuzz_api::copy;
pub(super) use swap::{finish_restore, is_unfinished};

use super::actions::{self, ActionEnd};
use super::copy::contents::{self, count_all, count_entries};
use super::copy::{TempDirectory, check_free_space, copy_directory, remove_unfinished_copy};
use super::database::{AUDIT, DatabaseKind, OpenDatabase, SAMPLES, open_checked, open_for_reading};
use super::{Action, ActionKind};
use archive_reader::{ArchiveError, ArchiveSource as _, FileExtent, Manifest, read_archive};
use gpukill_proto::audit::StoreContents;
use gpukill_proto::units::Timestamp;
use record_merge::{carry_over, continue_ids_after, last_issued_id};
use serde_json::{Value, json};
use std::fmt::Display;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A backup that was unpacked, checked and completed with the entries of the store's record that it
/// lacked. The store itself is unchanged so far.
pub(crate) struct PreparedRestore {
    directory: PathBuf,
    work_directory: TempDirectory,
    manifest: Manifest,
    /// The contents of the store; `None` if there is none.
    current: Option<StoreContents>,
    /// The contents of the backup, without the entries that are carried over.
    backup: StoreContents,
    carried: u64,
}

impl PreparedRestore {
    /// Prepares the backup in `source` to replace the store in `directory`, which no daemon may
    /// have open.
    ///
    /// # Errors
    /// The reason why the backup cannot replace the store.
    pub(crate) fn prepare(directory: &Path, source: &File) -> Result<Self, String> {
        // The leftovers of an earlier restore that was killed.
        finish_restore(directory)?;
        remove_unfinished_copy(directory);
        let length = source.metadata().map_err(|error| error.to_string())?.len();
        let archive = read_archive(source, length).map_err(|why| match why {
            ArchiveError::Unfit(why) => format!("the backup cannot be used: {why}"),
            ArchiveError::Disk(error) => format!("the backup cannot be read: {error}"),
        })?;
        let needed = length.saturating_add(record_bytes(directory));
        check_free_space(directory, needed, "a restore")?;
        let work_directory = copy_directory(directory);
        let made = std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&work_directory);
        made.map_err(|error| path_error(&work_directory, &error))?;
        let work_directory = TempDirectory(work_directory);
        let manifest = archive.manifest;
        for (kind, extent, schema) in [
            (&SAMPLES, archive.samples, manifest.samples_schema),
            (&AUDIT, archive.audit, manifest.audit_schema),
        ] {
            let path = work_directory.0.join(kind.file);
            extract_file(source, extent, &path).map_err(|error| path_error(&path, &error))?;
            check::check(&work_directory.0, kind, schema)?;
        }
        let mut prepared = Self {
            directory: directory.to_owned(),
            work_directory,
            manifest,
            current: None,
            backup: StoreContents::default(),
            carried: 0,
        };
        prepared.merge_samples()?;
        prepared.merge_record()?;
        Ok(prepared)
    }

    /// Counts the samples, and makes the backup continue after the highest sample id of the store.
    fn merge_samples(&mut self) -> Result<(), String> {
        let copy = self.open_backup(&SAMPLES)?;
        let join = || -> rusqlite::Result<StoreContents> { count_all(&copy.connection) };
        self.backup = join().map_err(|error| check::sqlite_error(&SAMPLES, &error))?;
        if let Some(now) = self.open_current(&SAMPLES)? {
            let count = || -> rusqlite::Result<StoreContents> {
                continue_ids_after(
                    &copy.connection,
                    "sample",
                    last_issued_id(&now.connection, "sample")?,
                )?;
                count_all(&now.connection)
            };
            self.current = Some(count().map_err(|error| path_error(&self.directory, &error))?);
        }
        self.close_synced(copy, &SAMPLES)
    }

    /// Counts the record, and carries over the entries that the backup lacks.
    fn merge_record(&mut self) -> Result<(), String> {
        let mut copy = self.open_backup(&AUDIT)?;
        let by_audit = |error| check::sqlite_error(&AUDIT, &error);
        self.backup.actions = count_entries(&copy.connection).map_err(by_audit)?;
        if let Some(now) = self.open_current(&AUDIT)? {
            let mut carry = || -> rusqlite::Result<(u64, u64)> {
                let carried = carry_over(&now.connection, &mut copy.connection)?;
                Ok((count_entries(&now.connection)?, carried))
            };
            let (actions, carried) = carry().map_err(by_audit)?;
            self.carried = carried;
            self.current.get_or_insert_default().actions = actions;
        }
        self.close_synced(copy, &AUDIT)
    }

    /// Opens a file of the store, if it exists.
    fn open_current(&self, kind: &DatabaseKind) -> Result<Option<OpenDatabase>, String> {
        if !self.directory.join(kind.file).exists() {
            return Ok(None);
        }
        let opened = open_for_reading(&self.directory, kind);
        opened.map(Some).map_err(|unusable| {
            format!(
                "{}: start gpukilld once, which quarantines a corrupt file, and stop it again",
                unusable.why
            )
        })
    }

    /// Opens a file of the backup for writing.
    fn open_backup(&self, kind: &DatabaseKind) -> Result<OpenDatabase, String> {
        // The file was already checked as a whole.
        open_checked(Duration::ZERO, &self.work_directory.0, kind).map_err(|unusable| unusable.why)
    }

    /// Closes a file so that all data is in it, synced to the disk, with no log beside it.
    fn close_synced(&self, opened: OpenDatabase, kind: &DatabaseKind) -> Result<(), String> {
        let path = self.work_directory.0.join(kind.file);
        let closed = opened.connection.close();
        closed.map_err(|(_, error)| path_error(&path, &error))?;
        if self
            .work_directory
            .0
            .join(format!("{}-wal", kind.file))
            .exists()
        {
            return Err(path_error(&path, &"its log could not be emptied"));
        }
        let synced = File::open(&path).and_then(|file| file.sync_all());
        synced.map_err(|error| path_error(&path, &error))
    }

    /// Describes the backup and the store that it replaces, in lines for a person.
    pub(crate) fn describe(&self) -> Vec<String> {
        let (host, at) = (&self.manifest.host, self.manifest.made_at.to_rfc3339());
        let holds = |contents: &StoreContents| {
            let StoreContents {
                samples, actions, ..
            } = contents;
            format!("{samples} samples, {actions} entries of the record of actions")
        };
        let now = self
            .current
            .as_ref()
            .map_or_else(|| "nothing".into(), holds);
        vec![
            format!("backup: made on {host} at {at}; {}", holds(&self.backup)),
            format!("store: {now}"),
            format!(
                "entries of the record that the backup lacks, kept: {}",
                self.carried
            ),
        ]
    }

    /// Puts the backup in place, and records that `uid` restored this file. Returns the directory
    /// of the replaced store.
    ///
    /// # Errors
    /// The reason why the backup is not in place. Before the first rename nothing has changed;
    /// after it, the next restore or start of the daemon finishes the rest.
    pub(crate) fn put_in_place(
        self,
        uid: u32,
        file: &Path,
        now: Timestamp,
    ) -> Result<PathBuf, String> {
        let time = swap::unused_time(&self.directory, now);
        let set_aside = swap::replaced_directory(&self.directory, &time);
        let backup = json!({
            "host": self.manifest.host,
            "at": self.manifest.made_at.to_rfc3339(),
            "holds": contents_json(&self.backup),
        });
        let plan = json!({
            "copy": backup,
            "replace": self.current.as_ref().map(contents_json),
            "carry_over": self.carried,
        });
        let outcome = json!({
            "restored": backup,
            "set_aside": set_aside.display().to_string(),
        });
        let action = Action {
            kind: ActionKind::Restore,
            uid,
            request: file.display().to_string(),
            plan: plan.to_string(),
        };
        let end = ActionEnd {
            at: now,
            result: "done",
            outcome: Some(outcome.to_string()),
            why: None,
            ended: Vec::new(),
        };
        let audit = self.open_backup(&AUDIT)?;
        let inserted = actions::insert(&audit.connection, "restore", &action, now, Some(&end));
        inserted.map_err(|error| format!("the restore cannot be recorded: {error}"))?;
        self.close_synced(audit, &AUDIT)?;
        let decided = swap::sync_directory(&self.work_directory.0)
            .and_then(|()| swap::commit(&self.directory, &self.work_directory.0, &time));
        decided.map_err(|error| path_error(&self.work_directory.0, &error))?;
        finish_restore(&self.directory)?;
        Ok(set_aside)
    }
}

fn path_error(path: &Path, error: &dyn Display) -> String {
    format!("{}: {error}", path.display())
}

/// The size of the entries that may be carried over.
fn record_bytes(directory: &Path) -> u64 {
    let of = |name: &str| std::fs::metadata(directory.join(name)).map_or(0, |it| it.len());
    of("audit.db") + of("audit.db-wal")
}

/// The bytes that are copied at once.
const CHUNK_BYTES: usize = 1 << 20;

fn extract_file(source: &File, extent: FileExtent, path: &Path) -> std::io::Result<()> {
    let mut create = File::options();
    let mut file = create.write(true).create_new(true).mode(0o640).open(path)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut done = 0;
    while done < extent.bytes {
        let length =
            usize::try_from(extent.bytes - done).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let part = chunk.get_mut(..length).unwrap_or_default();
        source.read_at(part, extent.offset + done)?;
        file.write_all(part)?;
        done += length as u64;
    }
    Ok(())
}

/// The counts as they are recorded.
fn contents_json(contents: &StoreContents) -> Value {
    let mut json = contents::contents_json(contents);
    if let Value::Object(fields) = &mut json {
        fields.insert("actions".into(), contents.actions.into());
    }
    json
}
