//! Sets a broken file aside, under a name with the time, and never deletes one.
//! Whoever wants to save what is in it finds it whole, with its log.

use super::database::Kind;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::units::Timestamp;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// What a database consists of, beside the file itself: its log, and the index
/// of that.
const PARTS: [&str; 2] = ["-wal", "-shm"];

/// So many of each file are set aside in a day: what breaks again and again must
/// not fill the disk.
pub(super) const MOST_A_DAY: usize = 3;

pub(super) const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Renames a broken file, which nobody may have open for writing any more;
/// returns its new name.
///
/// # Errors
/// Why it stays, in words for an admin.
pub(super) fn set_aside(
    directory: &Path,
    kind: &Kind,
    why: &str,
    now: Timestamp,
) -> Result<String, String> {
    let of_today = all(directory, kind).into_iter();
    if of_today.filter(|path| is_of_today(path, now)).count() >= MOST_A_DAY {
        return Err(format!(
            "{why}; {MOST_A_DAY} such files are set aside already today: move it away"
        ));
    }
    let name = free_name(directory, kind, now);
    // The file first: a log without its file is nothing's, and `finish` knows
    // whose it was.
    std::fs::rename(directory.join(kind.file), directory.join(&name))
        .map_err(|error| format!("{why}; it cannot be set aside: {error}"))?;
    finish(directory, kind);
    Ok(name)
}

/// Brings the log and its index to the file that was set aside without them:
/// whoever did that was killed halfway.
pub(super) fn finish(directory: &Path, kind: &Kind) {
    if directory.join(kind.file).exists() {
        return;
    }
    let Some(newest) = all(directory, kind).pop() else {
        return;
    };
    for part in PARTS {
        let (from, to) = (
            directory.join(format!("{}{part}", kind.file)),
            with(&newest, part),
        );
        if from.exists()
            && !to.exists()
            && let Err(error) = std::fs::rename(&from, &to)
        {
            tracing::error!(file = %from.display(), %error, "cannot be set aside");
        }
    }
}

/// What is to be told of the files that lie there: what is in them is not in any
/// answer, so it is told until somebody has taken them away.
pub(super) fn fault(directory: &Path, kind: &Kind) -> Option<String> {
    let all = all(directory, kind);
    let newest = all.last()?.display();
    let others = match all.len() {
        1 => String::new(),
        several => format!(" and {} before it", several - 1),
    };
    Some(format!(
        "{} was broken and begun anew; it is set aside as {newest}{others}: move it away",
        kind.file
    ))
}

/// The files that were set aside, the newest last.
fn all(directory: &Path, kind: &Kind) -> Vec<PathBuf> {
    let prefix = prefix(kind);
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| {
                name.starts_with(&prefix) && PARTS.iter().all(|part| !name.ends_with(part))
            })
        })
        .collect();
    found.sort_indirect();
    found
}

fn prefix(kind: &Kind) -> String {
    format!("{}.broken-", kind.file)
}

/// Whether it was renamed within a day of now, whichever way the clock went.
fn is_of_today(path: &Path, now: Timestamp) -> bool {
    let Ok(metadata) = std::fs::metadata(path) else {
        return false;
    };
    let renamed = u64::try_from(metadata.ctime()).unwrap_or(0);
    let renamed = Timestamp::from(UNIX_EPOCH + Duration::from_secs(renamed));
    now.since(renamed).max(renamed.since(now)) < DAY
}

/// A name that nothing has: two may be set aside within a second.
fn free_name(directory: &Path, kind: &Kind, now: Timestamp) -> String {
    let (prefix, time) = (prefix(kind), name_of(now));
    let first = format!("{prefix}{time}");
    let others = (2..=u32::MAX).map(|number| format!("{prefix}{time}-{number}"));
    std::iter::once(first)
        .chain(others)
        .find(|name| !directory.join(name).exists())
        .unwrap_or(prefix)
}

/// `20261121T231502Z`
pub(super) fn name_of(now: Timestamp) -> String {
    let full = now.to_rfc3339();
    let seconds = full.split('.').next().unwrap_or_default();
    let digits: String = seconds.chars().filter(|it| !"-:".contains(*it)).collect();
    format!("{digits}Z")
}

fn with(path: &Path, part: &str) -> PathBuf {
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
    fn a_broken_file_is_set_aside_with_its_log_and_at_most_three_a_day() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let now = Timestamp::from(SystemTime::now());
        let time = name_of(now);
        assert_eq!(fault(directory, &SAMPLES), None);
        for number in 0..MOST_A_DAY {
            write(
                directory,
                &["samples.db", "samples.db-wal", "samples.db-shm"],
            );
            let name = match number {
                0 => format!("samples.db.broken-{time}"),
                several => format!("samples.db.broken-{time}-{}", several + 1),
            };
            assert_eq!(set_aside(directory, &SAMPLES, "no", now), Ok(name.clone()));
            let path = directory.join(&name);
            assert_eq!(std::fs::read(&path).unwrap(), b"samples.db");
            assert_eq!(
                std::fs::read(with(&path, "-wal")).unwrap(),
                b"samples.db-wal"
            );
            assert_eq!(names(directory).len(), 3 * (number + 1));
            let others = match number {
                0 => String::new(),
                several => format!(" and {several} before it"),
            };
            let told = format!(
                "samples.db was broken and begun anew; it is set aside as {}{others}: move it away",
                path.display()
            );
            assert_eq!(fault(directory, &SAMPLES), Some(told));
        }
        write(directory, &["samples.db"]);
        let why = "no; 3 such files are set aside already today: move it away";
        assert_eq!(
            set_aside(directory, &SAMPLES, "no", now),
            Err(why.to_owned())
        );
        assert!(directory.join("samples.db").exists());
        // Two days later, or earlier.
        for days in [-2, 2] {
            write(directory, &["samples.db"]);
            let then = now.plus_seconds(days * 24 * 3_600);
            assert!(set_aside(directory, &SAMPLES, "no", then).is_ok());
        }
    }

    #[test]
    fn a_log_that_was_left_behind_goes_to_its_file_and_never_to_another() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        // Nothing was set aside: it is SQLite's business.
        write(directory, &["samples.db-wal"]);
        finish(directory, &SAMPLES);
        assert_eq!(names(directory), ["samples.db-wal"]);
        let aside = "samples.db.broken-20261121T231502Z";
        write(directory, &[aside, "samples.db"]);
        // A file that is in use keeps its log.
        finish(directory, &SAMPLES);
        assert!(directory.join("samples.db-wal").exists());
        std::fs::remove_file(directory.join("samples.db")).unwrap();
        finish(directory, &SAMPLES);
        assert_eq!(names(directory), [aside, &format!("{aside}-wal")]);
    }

    #[test]
    fn a_name_has_the_second_in_utc() {
        assert_eq!(name_of(Timestamp(1_795_302_902_250)), "20261121T231502Z");
    }
}
