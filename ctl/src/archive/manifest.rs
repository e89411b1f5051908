//! The manifest: a line of JSON for each archived kind and day, in the order of kinds and days.
//! The parser is strict, because `audit prune --archived` deletes what the manifest names.

use super::{ArchiveKind, FORMAT, file_path};
use chrono::{DateTime, NaiveDate};
use gpukill_proto::units::Timestamp;
use serde_json::{Value, json};

/// The mistake of a line that this version does not know.
pub const NEWER_FORMAT: &str = "a newer gpukillctl wrote it";

/// Maximum length of a manifest in bytes: four kinds of rows for 60 years.
pub const MAX_MANIFEST_BYTES: u64 = 32 << 20;

/// Maximum length of a line in bytes. A line has some 300, and a host name at most 255 in each of
/// two places.
const MAX_LINE_BYTES: usize = 1024;

/// What is archived of one host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    host: String,
    /// In the order of kinds and days, one entry each.
    entries: Vec<ManifestEntry>,
}

/// One kind of rows of one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestEntry {
    /// The kind.
    pub kind: ArchiveKind,
    /// The civil day.
    pub date: NaiveDate,
    /// The first moment of the day.
    pub since: Timestamp,
    /// The first moment after the day.
    pub until: Timestamp,
    /// The file; `None` for a day without rows.
    pub file: Option<ArchivedFile>,
}

/// An archived file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedFile {
    /// The number of rows, at least one.
    pub rows: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// The SHA-256 of the file, in hex digits.
    pub sha256: String,
    /// The time of the oldest row.
    pub oldest: Timestamp,
    /// The time of the newest row.
    pub newest: Timestamp,
    /// Whether it has command lines.
    pub with_commands: bool,
}

impl ManifestEntry {
    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.rows)
    }

    fn to_json(&self, host: &str) -> Value {
        let time = |at: Option<Timestamp>| at.map(Timestamp::to_rfc3339);
        let file = self.file.as_ref();
        let path = file.map(|_| file_path(self.kind, self.date, host));
        json!({
            "format": FORMAT,
            "kind": self.kind.name(),
            "date": self.date.to_string(),
            "since": self.since.to_rfc3339(),
            "until": self.until.to_rfc3339(),
            "rows": self.rows(),
            "file": path.map(|path| path.display().to_string()),
            "bytes": file.map(|file| file.bytes),
            "sha256": file.map(|file| &file.sha256),
            "oldest": time(file.map(|file| file.oldest)),
            "newest": time(file.map(|file| file.newest)),
            "with_commands": file.map(|file| file.with_commands),
        })
    }

    /// Reads a line. A field that is missing, unknown, or not as this program writes it is an
    /// error.
    fn from_json(line: &Value, host: &str) -> Option<Self> {
        let text = |name: &str| line.get(name)?.as_str();
        let number = |name: &str| line.get(name)?.as_u64();
        let time = |name: &str| {
            let time = DateTime::parse_from_rfc3339(text(name)?).ok()?;
            Some(Timestamp(time.timestamp_millis()))
        };
        let file = match number("rows")? {
            0 => None,
            rows => Some(ArchivedFile {
                rows,
                bytes: number("bytes")?,
                sha256: text("sha256").filter(|it| is_sha256(it))?.to_owned(),
                oldest: time("oldest")?,
                newest: time("newest")?,
                with_commands: line.get("with_commands")?.as_bool()?,
            }),
        };
        let entry = Self {
            kind: ArchiveKind::from_name(text("kind")?)?,
            date: text("date")?.parse().ok()?,
            since: time("since")?,
            until: time("until")?,
            file,
        };
        let is_in_order = |file: &ArchivedFile| {
            entry.since <= file.oldest && file.oldest <= file.newest && file.newest < entry.until
        };
        let is_possible = entry.since <= entry.until && entry.file.as_ref().is_none_or(is_in_order);
        (is_possible && entry.to_json(host) == *line).then_some(entry)
    }
}

fn is_sha256(text: &str) -> bool {
    let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    text.len() == 64 && text.bytes().all(is_digit)
}

impl Manifest {
    /// An empty manifest.
    #[must_use]
    pub fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            entries: Vec::new(),
        }
    }

    /// Reads a manifest of this host.
    ///
    /// # Errors
    /// The number of the line with the mistake, and the mistake.
    pub fn parse(text: &str, host: &str) -> Result<Self, String> {
        let mut manifest = Self::new(host);
        if !text.is_empty() && !text.ends_with('\n') {
            return Err("its last line is not complete".to_owned());
        }
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |why: &str| Err(format!("line {number}: {why}"));
            if line.len() > MAX_LINE_BYTES {
                return wrong("it is too long");
            }
            let Ok(line) = serde_json::from_str::<Value>(line) else {
                return wrong("it is not JSON");
            };
            if line.get("format").and_then(Value::as_u64) > Some(FORMAT) {
                return wrong(NEWER_FORMAT);
            }
            let Some(entry) = ManifestEntry::from_json(&line, host) else {
                return wrong("it is not as gpukillctl writes it");
            };
            let last = manifest.entries.last();
            if last.is_some_and(|last| (last.kind, last.date) >= (entry.kind, entry.date)) {
                return wrong("it is not in order, or there twice");
            }
            manifest.entries.push(entry);
        }
        Ok(manifest)
    }

    /// The text of the manifest.
    #[must_use]
    pub fn to_text(&self) -> String {
        let lines = self.entries.iter();
        let lines = lines.map(|entry| entry.to_json(&self.host).to_string() + "\n");
        lines.collect()
    }

    /// All entries.
    #[must_use]
    pub fn entries(&self) -> &[ManifestEntry] {
        &self.entries
    }

    /// The entry of a kind and day.
    #[must_use]
    pub fn get(&self, kind: ArchiveKind, date: NaiveDate) -> Option<&ManifestEntry> {
        let position = self.position(kind, date).ok()?;
        self.entries.get(position)
    }

    fn position(&self, kind: ArchiveKind, date: NaiveDate) -> Result<usize, usize> {
        let key = |entry: &ManifestEntry| (entry.kind, entry.date);
        self.entries.binary_search_by_key(&(kind, date), key)
    }

    /// The entry of a kind that covers this moment.
    #[must_use]
    pub fn covering(&self, kind: ArchiveKind, at: Timestamp) -> Option<&ManifestEntry> {
        let mut entries = self.entries.iter();
        entries.find(|entry| entry.kind == kind && entry.since <= at && at < entry.until)
    }

    /// Adds an entry, or replaces that of the same kind and day.
    pub fn insert(&mut self, entry: ManifestEntry) {
        match self.position(entry.kind, entry.date) {
            Ok(position) => {
                if let Some(place) = self.entries.get_mut(position) {
                    *place = entry;
                }
            }
            Err(position) => self.entries.insert(position, entry),
        }
    }
}

/// Reads any bytes as a manifest, and panics if a property does not hold: for the fuzz target.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(manifest) = Manifest::parse(&text, "box") {
        assert_eq!(Manifest::parse(&manifest.to_text(), "box"), Ok(manifest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY_MS: i64 = 86_400_000;

    fn date(day: u64) -> NaiveDate {
        NaiveDate::from_ymd_opt(2026, 11, 1).unwrap() + chrono::Days::new(day)
    }

    fn entry(kind: ArchiveKind, day: u64, rows: u64) -> ManifestEntry {
        let since = 1_793_491_200_000 + i64::try_from(day).unwrap() * DAY_MS;
        ManifestEntry {
            kind,
            date: date(day),
            since: Timestamp(since),
            until: Timestamp(since + DAY_MS),
            file: (rows > 0).then(|| ArchivedFile {
                rows,
                bytes: 4_096,
                sha256: "0123456789abcdef".repeat(4),
                oldest: Timestamp(since),
                newest: Timestamp(since + DAY_MS - 1),
                with_commands: false,
            }),
        }
    }

    fn manifest() -> Manifest {
        let mut manifest = Manifest::new("box");
        manifest.insert(entry(ArchiveKind::Actions, 0, 0));
        manifest.insert(entry(ArchiveKind::Devices, 1, 69_120));
        manifest.insert(entry(ArchiveKind::Devices, 0, 7));
        manifest
    }

    #[test]
    fn text_has_a_line_for_each_entry() {
        let text = manifest().to_text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                r#"{"bytes":4096,"date":"2026-11-01","file":"kind=devices/date=2026-11-01/box.parquet","format":1,"kind":"devices","newest":"2026-11-01T23:59:59.999Z","oldest":"2026-11-01T00:00:00.000Z","rows":7,"sha256":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","since":"2026-11-01T00:00:00.000Z","until":"2026-11-02T00:00:00.000Z","with_commands":false}"#,
                r#"{"bytes":4096,"date":"2026-11-02","file":"kind=devices/date=2026-11-02/box.parquet","format":1,"kind":"devices","newest":"2026-11-02T23:59:59.999Z","oldest":"2026-11-02T00:00:00.000Z","rows":69120,"sha256":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","since":"2026-11-02T00:00:00.000Z","until":"2026-11-03T00:00:00.000Z","with_commands":false}"#,
                r#"{"bytes":null,"date":"2026-11-01","file":null,"format":1,"kind":"actions","newest":null,"oldest":null,"rows":0,"sha256":null,"since":"2026-11-01T00:00:00.000Z","until":"2026-11-02T00:00:00.000Z","with_commands":null}"#,
            ]
        );
        assert_eq!(Manifest::parse(&text, "box"), Ok(manifest()));
        assert_eq!(Manifest::parse("", "box"), Ok(Manifest::new("box")));
    }

    #[test]
    fn longest_line_is_accepted() {
        let host = "h".repeat(255);
        let mut manifest = Manifest::new(&host);
        let mut long = entry(ArchiveKind::Processes, 0, u64::MAX);
        long.file.as_mut().unwrap().bytes = u64::MAX;
        manifest.insert(long);
        let text = manifest.to_text();
        assert_eq!(Manifest::parse(&text, &host), Ok(manifest));
    }

    #[test]
    fn wrong_lines_are_refused() {
        let text = manifest().to_text();
        let refused = |text: &str| Manifest::parse(text, "box").unwrap_err();
        let not_ours = "line 1: it is not as gpukillctl writes it";
        for (from, to, why) in [
            ("\"rows\":7", "\"rows\":-7", not_ours),
            ("\"rows\":7", "\"rows\":7.5", not_ours),
            ("\"rows\":7", "\"rows\":0", not_ours),
            ("\"rows\":7", "\"rows\":7,\"more\":1", not_ours),
            ("\"bytes\":4096,", "", not_ours),
            ("devices\"", "gpus\"", not_ours),
            ("kind=devices/date", "../kind=devices/date", not_ours),
            ("/box.parquet", "/other.parquet", not_ours),
            (
                "\"date\":\"2026-11-01\"",
                "\"date\":\"2026-11-1\"",
                not_ours,
            ),
            (
                "\"date\":\"2026-11-01\"",
                "\"date\":\"2026-11-31\"",
                not_ours,
            ),
            ("sha256\":\"0", "sha256\":\"X", not_ours),
            ("sha256\":\"0", "sha256\":\"", not_ours),
            ("since\":\"2026-11-01", "since\":\"2026-11-03", not_ours),
            ("newest\":\"2026-11-01", "newest\":\"2026-11-02", not_ours),
            (
                "oldest\":\"2026-11-01T00",
                "oldest\":\"2026-10-31T23",
                not_ours,
            ),
            ("00:00:00.000Z", "00:00:00Z", not_ours),
            ("\"format\":1", "\"format\":0", not_ours),
            (
                "\"format\":1",
                "\"format\":2",
                "line 1: a newer gpukillctl wrote it",
            ),
            ("{", "", "line 1: it is not JSON"),
            ("{", "[", "line 1: it is not JSON"),
        ] {
            let wrong = text.replacen(from, to, 1);
            assert_ne!(wrong, text, "{from}");
            assert_eq!(refused(&wrong), why, "{from} {to}");
        }
        let cut = &text[..text.len() - 1];
        assert_eq!(refused(cut), "its last line is not complete");
        let twice = "it is not in order, or there twice";
        assert_eq!(refused(&text.repeat(2)), format!("line 4: {twice}"));
        let first = text.lines().next().unwrap();
        let repeated = format!("{first}\n{first}\n");
        assert_eq!(refused(&repeated), format!("line 2: {twice}"));
        assert_eq!(refused("\n"), "line 1: it is not JSON");
        assert_eq!(refused("7\n"), not_ours);
        let long = format!("{}\n", "[".repeat(100_000));
        assert_eq!(refused(&long), "line 1: it is too long");
        assert_eq!(
            Manifest::parse(&text, "elsewhere").unwrap_err(),
            "line 1: it is not as gpukillctl writes it"
        );
    }

    #[test]
    fn covering_entry_has_the_kind_and_the_moment() {
        let manifest = manifest();
        let start = entry(ArchiveKind::Devices, 0, 0).since;
        let covering = |kind, at: i64| {
            let entry = manifest.covering(kind, Timestamp(start.0 + at));
            entry.map(|entry| entry.date)
        };
        assert_eq!(covering(ArchiveKind::Devices, -1), None);
        assert_eq!(covering(ArchiveKind::Devices, 0), Some(date(0)));
        assert_eq!(covering(ArchiveKind::Devices, DAY_MS), Some(date(1)));
        assert_eq!(covering(ArchiveKind::Devices, 2 * DAY_MS), None);
        assert_eq!(covering(ArchiveKind::Actions, DAY_MS), None);
        assert_eq!(covering(ArchiveKind::Processes, 0), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "[{}\\[\\]\":,a-z0-9\n]{0,200}") {
            fuzz(text.as_bytes());
        }

        #[test]
        fn what_is_written_is_read_back(
            days in proptest::collection::btree_map((0_usize..4, 0_u64..400), 0..=u64::MAX, 0..40),
        ) {
            let mut manifest = Manifest::new("box");
            for ((kind, day), rows) in days {
                manifest.insert(entry(ArchiveKind::ALL[kind], day, rows));
            }
            prop_assert_eq!(Manifest::parse(&manifest.to_text(), "box"), Ok(manifest));
        }
    }
}
