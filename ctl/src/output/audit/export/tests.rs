//! Exported records are read back, in each format.

use super::atomic_file::IfExists;
use super::*;
use crate::convert::ParquetColumns;
use crate::output::fixtures::records as past;
use ::parquet::basic::{LogicalType, TimeUnit};
use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
use ::parquet::record::Field;
use serde_json::Value;
use std::fs::File;

fn exported_as(format: ExportFormat, file: &Path) {
    let partial = AtomicFile::create(file, IfExists::Refuse, 0o600).expect("it can be written");
    let mut records = RecordExport::start(format, ExportTarget::File(partial)).expect("it begins");
    // Two pages and an empty one.
    for page in past().chunks(2).chain([&[][..]]) {
        records.add(page).expect("it can be written");
    }
    assert_eq!(records.finish().expect("it ends"), past().len() as u64);
}

fn documents() -> Vec<Value> {
    let documents = past();
    let documents = documents.iter().map(AuditDocument::from);
    let values = documents.map(|document| serde_json::to_value(document).expect("plain values"));
    values.collect()
}

/// The value as a column holds it.
fn cell(name: &str, at: Timestamp, value: &Value) -> Field {
    match value {
        Value::Null => Field::Null,
        Value::String(_) if name == "timestamp" => Field::TimestampMillis(at.0),
        Value::String(text) => Field::Str(text.clone()),
        Value::Object(reasons) if reasons.is_empty() => Field::Null,
        Value::Object(_) => Field::Str(csv::value_text(value)),
        Value::Number(number) if name.ends_with("_w") || name.ends_with("_secs") => {
            Field::Double(number.as_f64().expect("a number"))
        }
        Value::Number(number) => Field::Long(number.as_i64().expect("a whole number")),
        Value::Bool(_) | Value::Array(_) => panic!("{name}: {value}"),
    }
}

#[test]
fn columns_match_csv_with_null_for_unknown() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("records.parquet");
    let file = File::create(&path).expect("a file");
    let names = csv::column_names(AuditDocument::FIELDS);
    let mut columns = ParquetColumns::create(file, &names).expect("it begins");
    for document in documents() {
        columns.add(&document).expect("it can be written");
    }
    columns.finish().expect("it ends");
    let reader = SerializedFileReader::new(File::open(&path).expect("it is there"));
    let reader = reader.expect("it is whole");
    let columns = reader.metadata().file_metadata().schema_descr();
    let timestamp = columns.columns().iter().find(|it| it.name() == "timestamp");
    let in_utc = LogicalType::timestamp(true, TimeUnit::MILLIS);
    assert_eq!(
        timestamp.and_then(|it| it.logical_type_ref()),
        Some(&in_utc)
    );
    let rows = reader.into_iter();
    let mut count = 0;
    for ((row, record), document) in rows.zip(past()).zip(documents()) {
        let row = row.expect("a row");
        let read: Vec<_> = row.get_column_iter().collect();
        let expected: Vec<_> = names
            .iter()
            .map(|name| ((*name).to_owned(), cell(name, record.at, &document[name])))
            .collect();
        let expected: Vec<_> = expected.iter().map(|(name, cell)| (name, cell)).collect();
        assert_eq!(read, expected);
        count += 1;
    }
    assert_eq!(count, past().len());
}

#[test]
fn csv_and_jsonl_match_the_printed_output() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = |format, name: &str| {
        let path = directory.path().join(name);
        exported_as(format, &path);
        std::fs::read_to_string(path).expect("it is there")
    };
    let lines: String = documents().iter().map(|it| format!("{it}\n")).collect();
    let read: Vec<Value> = written(ExportFormat::Jsonl, "a.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a document"))
        .collect();
    assert_eq!(read, documents(), "{lines}");
    let records = past();
    let documents: Vec<_> = records.iter().map(AuditDocument::from).collect();
    let rows = csv::records(&documents, Header::First).expect("rows");
    assert_eq!(written(ExportFormat::Csv, "a.csv"), rows);
}
