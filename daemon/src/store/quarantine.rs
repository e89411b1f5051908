//! Quarantines a corrupt database file: renames it, with the time in its name, and never deletes
//! one. An admin who wants to save its contents finds the whole file with its log.

use super::database::DatabaseKind;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::units::Timestamp;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// The suffixes of the files beside a database: its write-ahead log and the index of the log.
const LOG_SUFFIXES: [&str; 2] = ["-wal", "-shm"];

/// The most files of one kind that are quarantined in a day: a file that breaks repeatedly must not
/// fill the disk.
pub(super) const MAX_PER_DAY: usize = 3;

pub(super) const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Renames a corrupt file, which must not be open for writing; returns its new name.
///
/// # Errors
/// The reason why the file stays, for an admin.
pub(super) fn quarantine(
    directory: &Path,
    kind: &DatabaseKind,
    why: &str,
    now: Timestamp,
) -> Result<String, String> {
    let of_today = quarantined_files(directory, kind).into_iter();
    if of_today.filter(|path| is_within_a_day(path, now)).count() >= MAX_PER_DAY {
        return Err(format!(
            "{why}; {MAX_PER_DAY} such files were already quarantined today: move it away"
        ));
    }
    let name = unused_name(directory, kind, now);
    // The database first: a log without its database is useless, and `move_left_logs` still knows
    // which database it belongs to.
    std::fs::rename(directory.join(kind.file), directory.join(&name))
        .map_err(|error| format!("{why}; it cannot be quarantined: {error}"))?;
    move_left_logs(directory, kind);
    Ok(name)
}

/// Moves a log and its index to the quarantined file that they belong to, after a daemon was killed
/// between the renames.
pub(super) fn move_left_logs(directory: &Path, kind: &DatabaseKind) {
    if directory.join(kind.file).exists() {
        return;
    }
    let Some(newest) = quarantined_files(directory, kind).pop() else {
        return;
    };
    for part in LOG_SUFFIXES {
        let (from, to) = (
            directory.join(format!("{}{part}", kind.file)),
            with_suffix(&newest, part),
        );
        if from.exists()
            && !to.exists()
            && let Err(error) = std::fs::rename(&from, &to)
        {
            tracing::error!(file = %from.display(), %error, "cannot be quarantined");
        }
    }
}

/// The fault about quarantined files. No answer includes their contents, so the fault stays until
/// an admin moves the files away.
pub(super) fn quarantine_fault(directory: &Path, kind: &DatabaseKind) -> Option<String> {
    let all = quarantined_files(directory, kind);
    let newest = all.last()?.display();
    let others = match all.len() {
        1 => String::new(),
        several => format!(" and {} older ones", several - 1),
    };
    Some(format!(
        "{} was corrupt and was recreated; the old file is kept as {newest}{others}: move it away",
        kind.file
    ))
}

/// The quarantined files, newest last.
fn quarantined_files(directory: &Path, kind: &DatabaseKind) -> Vec<PathBuf> {
    let prefix = name_prefix(kind);
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| {
                name.starts_with(&prefix) && LOG_SUFFIXES.iter().all(|part| !name.ends_with(part))
            })
        })
        .collect();
    found.sort_indirect();
    found
}

fn name_prefix(kind: &DatabaseKind) -> String {
    format!("{}.broken-", kind.file)
}

/// Whether the file was renamed within a day of `now`, in either direction of the clock.
fn is_within_a_day(path: &Path, now: Timestamp) -> bool {
    let Ok(metadata) = std::fs::metadata(path) else {
        return false;
    };
    let renamed = u64::try_from(metadata.ctime()).unwrap_or(0);
    let renamed = Timestamp::from(UNIX_EPOCH + Duration::from_secs(renamed));
    now.since(renamed).max(renamed.since(now)) < DAY
}

/// A name that no file has: two files may be quarantined within a second.
fn unused_name(directory: &Path, kind: &DatabaseKind, now: Timestamp) -> String {
    let (prefix, time) = (name_prefix(kind), format_time(now));
    let first = format!("{prefix}{time}");
    let others = (2..=u32::MAX).map(|number| format!("{prefix}{time}-{number}"));
    std::iter::once(first)
        .chain(others)
        .find(|name| !directory.join(name).exists())
        .unwrap_or(prefix)
}

/// Formats a time as `20261121T231502Z`.
pub(super) fn format_time(now: Timestamp) -> String {
    let full = now.to_rfc3339();
    let seconds = full.split('.').next().unwrap_or_default();
    let digits: String = seconds.chars().filter(|it| !"-:".contains(*it)).collect();
    format!("{digits}Z")
}

fn with_suffix(path: &Path, part: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(part);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::super::database::SAMPLES;
    use super::*;
    use std::time::SystemTime;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn write(directory: &Path, names: &[&str]) {
        for name in names {
            std::fs::write(directory.join(name), name).unwrap();
        }
    }

    #[test]
    fn keeps_the_log_and_three_a_day() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let now = Timestamp::from(SystemTime::now());
        let time = format_time(now);
        assert_eq!(quarantine_fault(directory, &SAMPLES), None);
        for number in 0..MAX_PER_DAY {
            write(
                directory,
                &["samples.db", "samples.db-wal", "samples.db-shm"],
            );
            let name = match number {
                0 => format!("samples.db.broken-{time}"),
                several => format!("samples.db.broken-{time}-{}", several + 1),
            };
            assert_eq!(quarantine(directory, &SAMPLES, "no", now), Ok(name.clone()));
            let path = directory.join(&name);
            assert_eq!(std::fs::read(&path).unwrap(), b"samples.db");
            assert_eq!(
                std::fs::read(with_suffix(&path, "-wal")).unwrap(),
                b"samples.db-wal"
            );
            assert_eq!(names(directory).len(), 3 * (number + 1));
            let others = match number {
                0 => String::new(),
                several => format!(" and {several} older ones"),
            };
            let expected = format!(
                "samples.db was corrupt and was recreated; the old file is kept as {}{others}: move \
                 it away",
                path.display()
            );
            assert_eq!(quarantine_fault(directory, &SAMPLES), Some(expected));
        }
        write(directory, &["samples.db"]);
        let why = "no; 3 such files were already quarantined today: move it away";
        assert_eq!(
            quarantine(directory, &SAMPLES, "no", now),
            Err(why.to_owned())
        );
        assert!(directory.join("samples.db").exists());
        // Two days later, or earlier.
        for days in [-2, 2] {
            write(directory, &["samples.db"]);
            let then = now.plus_seconds(days * 24 * 3_600);
            assert!(quarantine(directory, &SAMPLES, "no", then).is_ok());
        }
    }

    #[test]
    fn left_log_goes_to_its_own_file() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        // No file was quarantined: the log is SQLite's business.
        write(directory, &["samples.db-wal"]);
        move_left_logs(directory, &SAMPLES);
        assert_eq!(names(directory), ["samples.db-wal"]);
        let quarantined = "samples.db.broken-20261121T231502Z";
        write(directory, &[quarantined, "samples.db"]);
        // A database in use keeps its log.
        move_left_logs(directory, &SAMPLES);
        assert!(directory.join("samples.db-wal").exists());
        std::fs::remove_file(directory.join("samples.db")).unwrap();
        move_left_logs(directory, &SAMPLES);
        assert_eq!(
            names(directory),
            [quarantined, &format!("{quarantined}-wal")]
        );
    }

    #[test]
    fn names_have_the_second_in_utc() {
        assert_eq!(
            format_time(Timestamp(1_795_302_902_250)),
            "20261121T231502Z"
        );
    }
}
