//! The rows of an archive: the columns of each kind, and the document of each row.

use super::rows_to_parquet;
use crate::archive::{ArchiveKind, CommandLines};
use crate::output::csv::column_names;
use gpukill_proto::audit::{ActionRecord, AuditRecord, RunRecord};
use gpukill_proto::json::{ActionDocument, AuditDocument, RunDocument};
use serde_json::Value;
use std::io;

/// Columns that only records of processes have.
#[rustfmt::skip]
const PROCESS_COLUMNS: &[&str] = &[
    "pid", "uid", "user", "owner", "owner_uid", "owner_kind", "namespace_owner_uid", "process_name",
    "command", "container", "job", "held_secs", "connections", "instance",
];

/// Columns that only records of whole devices have.
const DEVICE_COLUMNS: &[&str] = &["temperature_c", "power_w"];

/// Writes the rows on standard input to a file on standard output.
pub(super) fn write(kind: ArchiveKind, commands: CommandLines) -> io::Result<()> {
    let columns = columns(kind);
    match kind {
        ArchiveKind::Devices | ArchiveKind::Processes => {
            rows_to_parquet(&columns, |record: AuditRecord| {
                row(
                    serde_json::to_value(AuditDocument::from(&record))?,
                    commands,
                )
            })
        }
        ArchiveKind::Actions => rows_to_parquet(&columns, |record: ActionRecord| {
            row(
                serde_json::to_value(ActionDocument::from(&record))?,
                commands,
            )
        }),
        ArchiveKind::Runs => rows_to_parquet(&columns, |run: RunRecord| {
            row(serde_json::to_value(RunDocument::from(&run))?, commands)
        }),
    }
}

/// The column of the kind of an action. Readers of partitioned files take `kind` from the path.
const ACTION_KIND_COLUMN: &str = "action";

pub(crate) fn columns(kind: ArchiveKind) -> Vec<&'static str> {
    let (fields, others) = match kind {
        ArchiveKind::Devices => (AuditDocument::FIELDS, PROCESS_COLUMNS),
        ArchiveKind::Processes => (AuditDocument::FIELDS, DEVICE_COLUMNS),
        ArchiveKind::Actions => (ActionDocument::FIELDS, &[][..]),
        ArchiveKind::Runs => (RunDocument::FIELDS, &[][..]),
    };
    let columns = column_names(fields).into_iter();
    let columns = columns.filter(|column| !others.contains(column));
    let columns = columns.map(|column| match column {
        "kind" => ACTION_KIND_COLUMN,
        column => column,
    });
    columns.collect()
}

/// A row from a document: a plan and an outcome become JSON in a text.
fn row(mut document: Value, commands: CommandLines) -> serde_json::Result<Value> {
    if commands == CommandLines::Removed {
        remove_commands(&mut document);
        // The label of a run is made of its command line.
        let name = document.get("process_name").cloned();
        if let (Some(label), Some(name)) = (document.get_mut("label"), name) {
            *label = name;
        }
    }
    if let Some(fields) = document.as_object_mut()
        && let Some(kind) = fields.remove("kind")
    {
        fields.insert(ACTION_KIND_COLUMN.to_owned(), kind);
    }
    for name in ["plan", "outcome"] {
        match document.get_mut(name) {
            // It may be the beginning of a plan, with command lines.
            Some(text @ Value::String(_)) if commands == CommandLines::Removed => {
                *text = Value::Null;
            }
            None | Some(Value::Null | Value::String(_)) => {}
            Some(value) => *value = Value::String(value.to_string()),
        }
    }
    Ok(document)
}

/// Removes command lines, and the reasons why some are not known, at any depth.
fn remove_commands(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("command");
            fields.values_mut().for_each(remove_commands);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_commands),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::ParquetColumns;
    use super::super::columns::count_checked_rows;
    use super::*;
    use crate::output::fixtures::{actions, records, runs};
    use gpukill_proto::audit::AuditSubject;
    use parquet::basic::Compression;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use serde_json::json;
    use std::fs::File;
    use std::path::Path;

    fn documents(kind: ArchiveKind, commands: CommandLines) -> Vec<Value> {
        let rows: Vec<Value> = match kind {
            ArchiveKind::Actions => actions()
                .iter()
                .map(|record| serde_json::to_value(ActionDocument::from(record)).unwrap())
                .collect(),
            ArchiveKind::Runs => runs()
                .iter()
                .map(|run| serde_json::to_value(RunDocument::from(run)).unwrap())
                .collect(),
            ArchiveKind::Devices | ArchiveKind::Processes => records()
                .iter()
                .filter(|record| {
                    let is_device = matches!(record.subject, AuditSubject::Device { .. });
                    is_device == (kind == ArchiveKind::Devices)
                })
                .map(|record| serde_json::to_value(AuditDocument::from(record)).unwrap())
                .collect(),
        };
        assert!(!rows.is_empty());
        rows.into_iter()
            .map(|document| row(document, commands).unwrap())
            .collect()
    }

    fn written(path: &Path, kind: ArchiveKind, rows: &[Value]) {
        let file = File::create(path).unwrap();
        let mut columns = ParquetColumns::create(file, &columns(kind)).unwrap();
        rows.iter().for_each(|row| columns.add(row).unwrap());
        columns.finish().unwrap();
    }

    #[test]
    fn each_kind_is_read_back_and_compressed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.parquet");
        for kind in ArchiveKind::ALL {
            let rows = documents(kind, CommandLines::Kept);
            written(&path, kind, &rows);
            let count = count_checked_rows(File::open(&path).unwrap()).unwrap();
            assert_eq!(count, rows.len() as u64);
            let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
            let group = reader.metadata().row_group(0);
            for column in group.columns() {
                assert!(matches!(column.compression(), Compression::ZSTD(_)));
            }
            let names: Vec<_> = group
                .columns()
                .iter()
                .map(|it| it.column_path().string())
                .collect();
            assert_eq!(names, columns(kind));
        }
    }

    /// DuckDB and pandas add a column for each partition of the path.
    #[test]
    fn no_column_has_the_name_of_a_partition() {
        let date = chrono::NaiveDate::MIN;
        for kind in ArchiveKind::ALL {
            let path = crate::archive::file_path(kind, date, "box");
            let partitions = path
                .iter()
                .filter_map(|part| part.to_str()?.split_once('='));
            let partitions: Vec<&str> = partitions.map(|(name, _)| name).collect();
            assert_eq!(partitions, ["kind", "date"]);
            let columns = columns(kind);
            let is_partition = |column: &&&str| partitions.contains(*column);
            assert_eq!(columns.iter().find(is_partition), None, "{kind:?}");
            assert!(!columns.contains(&"host"), "{kind:?}");
        }
        let rows = documents(ArchiveKind::Actions, CommandLines::Kept);
        for (row, record) in rows.iter().zip(actions()) {
            assert_eq!(row["action"], record.kind);
        }
    }

    #[test]
    fn columns_of_both_subjects_are_those_of_a_record() {
        let [devices, processes] = [ArchiveKind::Devices, ArchiveKind::Processes].map(columns);
        let is_in_one = |name: &&str| devices.contains(name) || processes.contains(name);
        let all = column_names(AuditDocument::FIELDS);
        assert!(all.iter().all(is_in_one));
        let other = |name: &&&str| !all.contains(*name);
        let unknown = PROCESS_COLUMNS.iter().chain(DEVICE_COLUMNS).find(other);
        assert_eq!(unknown, None);
        assert!(!devices.contains(&"pid") && !processes.contains(&"power_w"));
    }

    #[test]
    fn changed_file_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.parquet");
        let kind = ArchiveKind::Processes;
        written(&path, kind, &documents(kind, CommandLines::Kept));
        let whole = std::fs::read(&path).unwrap();
        let is_noticed = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            count_checked_rows(File::open(&path).unwrap()).is_err()
        };
        assert!(!is_noticed(&whole));
        for length in [0, 4, whole.len() / 2, whole.len() - 1] {
            assert!(is_noticed(&whole[..length]), "{length}");
        }
        // The hash itself, a character of the metadata.
        let key = b"gpukill.rows_sha256";
        let at = whole.windows(key.len()).position(|it| it == key).unwrap();
        let mut other = whole.clone();
        let digit = &mut other[at + key.len() + 4];
        *digit = if *digit == b'0' { b'1' } else { b'0' };
        assert!(is_noticed(&other));
    }

    #[test]
    fn command_lines_are_removed_at_any_depth() {
        let document = json!({
            "command": "python --token=secret",
            "reasons": {"command": "withheld: it belongs to another user", "pid": "unsupported"},
            "plan": {"targets": [{"pid": 1, "command": "secret"}], "selector": "--user bob"},
            "outcome": "{\"targets\":[{\"command\":\"secr",
        });
        let expected = json!({
            "reasons": {"pid": "unsupported"},
            "plan": "{\"selector\":\"--user bob\",\"targets\":[{\"pid\":1}]}",
            "outcome": null,
        });
        assert_eq!(
            row(document.clone(), CommandLines::Removed).unwrap(),
            expected
        );
        let kept = row(document.clone(), CommandLines::Kept).unwrap();
        assert_eq!(kept["command"], document["command"]);
        assert_eq!(kept["outcome"], document["outcome"]);
        let plan: Value = serde_json::from_str(kept["plan"].as_str().unwrap()).unwrap();
        assert_eq!(plan, document["plan"]);
        for kind in ArchiveKind::ALL {
            let rows = documents(kind, CommandLines::Removed);
            assert!(rows.iter().all(|row| row.get("command").is_none()));
        }
        let label = |commands| documents(ArchiveKind::Runs, commands)[0]["label"].clone();
        assert_eq!(label(CommandLines::Removed), "python");
        assert_eq!(label(CommandLines::Kept), runs()[0].label);
    }
}
