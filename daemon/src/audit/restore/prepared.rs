//! A copy that was unpacked, looked over and brought to this version's schema, with
//! what the record of now has beyond it: ready to be put in place. Nothing of what is
//! there is changed by it.

use super::super::copy::contents::{all, entries};
use super::super::copy::{LeftOver, leave_room, workplace};
use super::super::database::{AUDIT, Kind, Opened, SAMPLES, open_after, open_for_reading};
use super::carry::{Carried, carry_over, carry_rest, last_given, number_on};
use super::unpack::{Extent, Manifest, Source as _, Unreadable, read};
use super::{Taken, check, swap};
use gpukill_proto::audit::Contents;
use gpukill_proto::refusal::Refusal;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a copy may be looked over: whoever asked waits two minutes at most.
const PATIENCE: Duration = Duration::from_secs(90);

/// The copy's files, in a directory of their own that goes with this.
pub(in super::super) struct Prepared {
    there: LeftOver,
    manifest: Manifest,
    then: Contents,
    carried: Carried,
    /// It has the place of the only copy that is on its way.
    _taken: Arc<Taken>,
}

/// Who had it restored, and how that is told in the record.
pub(in super::super) struct Told {
    /// The act's row in the record of now.
    pub(in super::super) row: i64,
    /// Milliseconds since 1970.
    pub(in super::super) at: i64,
    pub(in super::super) outcome: String,
}

impl Prepared {
    /// Prepares the copy that was taken.
    pub(in super::super) fn make(directory: &Path, taken: &Arc<Taken>) -> Result<Self, Refusal> {
        let until = Instant::now() + PATIENCE;
        let source = taken.whole()?;
        let archive = read(source, taken.bytes()).map_err(refused)?;
        leave_room(directory, taken.bytes(), "a restore").map_err(Refusal::Unavailable)?;
        let there = workplace(directory);
        let mut make = std::fs::DirBuilder::new();
        let made = make.mode(0o700).create(&there);
        made.map_err(|error| failed(&there, &error))?;
        let there = LeftOver(there);
        let manifest = archive.manifest;
        for (kind, extent, schema) in [
            (&SAMPLES, archive.samples, manifest.samples_schema),
            (&AUDIT, archive.audit, manifest.audit_schema),
        ] {
            let unpacked = unpack(source, extent, &there.0.join(kind.file));
            unpacked.map_err(|error| failed(&there.0.join(kind.file), &error))?;
            check::check(&there.0, kind, schema, until)?;
        }
        let (then, carried) = Self::fill(directory, &there.0, until)?;
        Ok(Self {
            there,
            manifest,
            then,
            carried,
            _taken: Arc::clone(taken),
        })
    }

    /// Counts what the copy holds, and carries the record of now over.
    fn fill(
        directory: &Path,
        there: &Path,
        until: Instant,
    ) -> Result<(Contents, Carried), Refusal> {
        let samples = opened(there, &SAMPLES, until)?;
        let by_samples = |error| check::by_sqlite(&SAMPLES, &error);
        let then = all(&samples.connection).map_err(by_samples)?;
        close(samples, there, &SAMPLES)?;
        let mut audit = opened(there, &AUDIT, until)?;
        let by_audit = |error| check::by_sqlite(&AUDIT, &error);
        let actions = entries(&audit.connection).map_err(by_audit)?;
        let now = open_for_reading(directory, &AUDIT);
        let mut now = now.map_err(|unusable| Refusal::Unavailable(unusable.why))?;
        check::bound(&mut now.connection, until).map_err(by_audit)?;
        let carried = carry_over(&now.connection, &mut audit.connection).map_err(by_audit)?;
        close(audit, there, &AUDIT)?;
        Ok((Contents { actions, ..then }, carried))
    }

    /// What the copy says of itself.
    pub(super) const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What it holds, without what is carried over.
    pub(super) const fn then(&self) -> Contents {
        self.then
    }

    /// So many entries are carried over.
    pub(in super::super) const fn carried(&self) -> u64 {
        self.carried.entries
    }

    /// Brings it up to this very moment: the rest of the record, the restore itself
    /// as done, and the ids that were given. Gives the acts under way, and which they
    /// are in the copy. Nothing may be recorded from now on.
    ///
    /// # Errors
    /// Why it cannot be put in place.
    pub(in super::super) fn complete(
        &mut self,
        now: &Connection,
        samples: Option<&Connection>,
        told: &Told,
    ) -> Result<BTreeMap<i64, i64>, String> {
        let there = self.there.0.as_path();
        let audit = reopened(there, &AUDIT)?;
        let carried = &mut self.carried;
        let mut finish = || -> rusqlite::Result<BTreeMap<i64, i64>> {
            let under_way = carry_rest(now, &audit.connection, carried)?;
            let update = "UPDATE action SET finished_at = ?2, word = 'done', outcome = ?3
                WHERE id = ?1 AND finished_at IS NULL";
            let row = under_way.get(&told.row);
            let values = params![row, told.at, told.outcome];
            audit.connection.execute(update, values)?;
            Ok(under_way)
        };
        let under_way = finish().map_err(|error| format!("the record is not whole: {error}"))?;
        close(audit, there, &AUDIT).map_err(|refusal| refusal.to_string())?;
        if let Some(samples) = samples {
            let copy = reopened(there, &SAMPLES)?;
            let numbered = last_given(samples, "sample")
                .and_then(|last| number_on(&copy.connection, "sample", last));
            numbered.map_err(|error| format!("samples cannot be numbered on: {error}"))?;
            close(copy, there, &SAMPLES).map_err(|refusal| refusal.to_string())?;
        }
        let synced = swap::sync(there);
        synced.map_err(|error| format!("{}: {error}", there.display()))?;
        Ok(under_way)
    }

    /// Decides it: after this it is in place, or will be.
    ///
    /// # Errors
    /// Why nothing has changed.
    pub(in super::super) fn decide(self, directory: &Path, time: &str) -> Result<(), String> {
        let decided = swap::decide(directory, &self.there.0, time);
        decided.map_err(|error| format!("{}: {error}", self.there.0.display()))
    }
}

fn refused(why: Unreadable) -> Refusal {
    match why {
        Unreadable::Unfit(why) => Refusal::Invalid(format!("the copy cannot be used: {why}")),
        Unreadable::Disk(error) => {
            Refusal::Unavailable(format!("the copy cannot be read: {error}"))
        }
    }
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::Unavailable(format!("{}: {error}", path.display()))
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

/// Opens a file that was looked over, for writing, and migrates it.
fn opened(there: &Path, kind: &Kind, until: Instant) -> Result<Opened, Refusal> {
    let mut opened = reopened(there, kind).map_err(Refusal::Unavailable)?;
    let bounded = check::bound(&mut opened.connection, until);
    bounded.map_err(|error| check::by_sqlite(kind, &error))?;
    Ok(opened)
}

fn reopened(there: &Path, kind: &Kind) -> Result<Opened, String> {
    // It was looked over at length.
    open_after(Duration::ZERO, there, kind).map_err(|unusable| unusable.why)
}

/// Closes a file so that all of it is in it, safe on the disk, and no log beside it.
fn close(opened: Opened, there: &Path, kind: &Kind) -> Result<(), Refusal> {
    let path = there.join(kind.file);
    let closed = opened.connection.close();
    closed.map_err(|(_, error)| failed(&path, &error))?;
    if there.join(format!("{}-wal", kind.file)).exists() {
        return Err(failed(&path, &"its log stays beside it"));
    }
    let synced = File::open(&path).and_then(|file| file.sync_all());
    synced.map_err(|error| failed(&path, &error))
}
