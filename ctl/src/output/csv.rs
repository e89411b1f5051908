//! CSV rows for spreadsheets and scripts: the fields of a document as columns. An unknown value
//! is an empty field, and the last column states why.

use super::json;
use crate::exit::Error;
use gpukill_proto::json::{
    ActionDocument, AuditDocument, GpuDocument, ListDocument, OwnerTimeDocument, ProcessDocument,
    TimelineDocument,
};
use gpukill_proto::text::sanitize;
use serde::Serialize;
use serde_json::Value;

/// A field that is not a column itself, and the columns in its place, each with the JSON
/// pointer of its value.
type SplitField = (&'static str, &'static [(&'static str, &'static str)]);

const GPU_PARTS: &[SplitField] = &[
    (
        "remapped_rows",
        &[
            ("remapped_rows_correctable", "/correctable"),
            ("remapped_rows_uncorrectable", "/uncorrectable"),
            ("remapped_rows_pending", "/pending"),
            ("remapped_rows_failed", "/failed"),
        ],
    ),
    (
        "retired_pages",
        &[
            ("retired_pages_single_bit", "/single_bit"),
            ("retired_pages_double_bit", "/double_bit"),
            ("retired_pages_pending", "/pending"),
        ],
    ),
    ("last_xid", &[("last_xid", "/xid"), ("last_xid_at", "/at")]),
    ("instances", &[]),
    (
        "top_proc",
        &[
            ("top_pid", "/pid"),
            ("top_user", "/user"),
            ("top_owner", "/owner"),
            ("top_proc_name", "/proc_name"),
            ("top_used_mem_mb", "/used_mem_mb"),
            ("top_used_mem_bytes", "/used_mem_bytes"),
        ],
    ),
];

const PROCESS_PARTS: &[SplitField] = &[
    ("parents", &[]),
    // The first of the rules: the one for which a process is ended first.
    (
        "rules",
        &[
            ("rule", "/0/rule"),
            ("rule_mode", "/0/mode"),
            ("rule_deadline", "/0/deadline"),
            ("rule_would_have_ended_at", "/0/would_have_ended_at"),
            ("rule_sole", "/0/sole"),
        ],
    ),
    (
        "rogue",
        &[("rogue_risk", "/risk"), ("rogue_threat", "/threat")],
    ),
];

/// A column: its name, its field, and the JSON pointer of its value within the field.
type CsvColumn = (&'static str, &'static str, &'static str);

fn columns(fields: &[&'static str], parts: &[SplitField]) -> Vec<CsvColumn> {
    let mut columns: Vec<CsvColumn> = Vec::new();
    for field in fields {
        match parts.iter().find(|(parted, _)| parted == field) {
            Some((field, parts)) => {
                columns.extend(
                    parts
                        .iter()
                        .map(|(name, pointer)| (*name, *field, *pointer)),
                );
            }
            None => columns.push((field, field, "")),
        }
    }
    columns.push(("reasons", "reasons", ""));
    columns
}

/// Whether to print the column names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    /// Print them before the rows.
    First,
    /// They were printed before.
    Printed,
}

/// A row for each GPU, with the time of the snapshot, which `--watch` repeats.
pub(crate) fn gpus(list: &ListDocument, header: Header) -> Result<String, Error> {
    let columns = columns(GpuDocument::FIELDS, GPU_PARTS);
    rows(&columns, &list.gpus, Some(&list.ts), header)
}

/// A row for each process on each GPU, with the time of the snapshot.
pub(crate) fn processes(list: &ListDocument, header: Header) -> Result<String, Error> {
    let columns = columns(ProcessDocument::FIELDS, PROCESS_PARTS);
    rows(&columns, &list.procs, Some(&list.ts), header)
}

pub(crate) fn column_names(fields: &[&'static str]) -> Vec<&'static str> {
    let columns = columns(fields, &[]);
    columns.into_iter().map(|(name, ..)| name).collect()
}

pub(crate) fn records(records: &[AuditDocument], header: Header) -> Result<String, Error> {
    documents(AuditDocument::FIELDS, records, header)
}

/// A row for each document with these fields, each of which is a column.
pub(crate) fn documents(
    fields: &[&'static str],
    documents: &[impl Serialize],
    header: Header,
) -> Result<String, Error> {
    rows(&columns(fields, &[]), documents, None, header)
}

/// The columns of the usage of an owner. Its document has a part that is flattened.
#[rustfmt::skip]
const OWNER_COLUMNS: [&str; 11] = [
    "owner", "owner_uid", "owner_kind", "gpu_hours", "busy_hours", "idle_hours", "unknown_hours",
    "idle_pct", "memory_gib_hours", "memory_max_bytes", "runs",
];

/// A row for each owner of a summary, after the column names.
pub(crate) fn owners(owners: &[OwnerTimeDocument]) -> Result<String, Error> {
    let columns = OWNER_COLUMNS.map(|name| (name, name, ""));
    rows(&columns, owners, None, Header::First)
}

/// A row for each entry of a timeline; its record stays JSON.
pub(crate) fn timeline(entries: &[TimelineDocument], header: Header) -> Result<String, Error> {
    let flat = entries.iter().map(|entry| {
        Ok(TimelineDocument {
            record: embedded_json(&entry.record)?,
            ..entry.clone()
        })
    });
    let flat = flat.collect::<Result<Vec<_>, Error>>()?;
    documents(TimelineDocument::FIELDS, &flat, header)
}

/// A document as a text in one field.
fn embedded_json(value: &Option<Value>) -> Result<Option<Value>, Error> {
    let text = value.as_ref().map(json::on_one_line).transpose()?;
    Ok(text.map(|text| Value::String(text.trim_end().to_owned())))
}

/// A row for each recorded action; its plan and its outcome stay JSON.
pub(crate) fn actions(actions: &[ActionDocument], header: Header) -> Result<String, Error> {
    let flat = actions.iter().map(|action| {
        Ok(ActionDocument {
            plan: embedded_json(&action.plan)?,
            outcome: embedded_json(&action.outcome)?,
            ..action.clone()
        })
    });
    let flat = flat.collect::<Result<Vec<_>, Error>>()?;
    documents(ActionDocument::FIELDS, &flat, header)
}

fn rows(
    columns: &[CsvColumn],
    rows: &[impl Serialize],
    ts: Option<&str>,
    header: Header,
) -> Result<String, Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |error: csv::Error| Error::Output(error.into());
    if header == Header::First {
        let names = columns.iter().map(|(name, ..)| *name);
        let names = ts.map(|_| "ts").into_iter().chain(names);
        writer.write_record(names).map_err(failed)?;
    }
    for row in rows {
        let row = serde_json::to_value(row).map_err(|error| Error::Output(error.into()))?;
        let texts = columns.iter().map(|(_, field, pointer)| {
            let value = row.get(field).and_then(|value| value.pointer(pointer));
            match value {
                None => String::new(),
                Some(value @ Value::Number(_)) => value_text(value),
                Some(value) => not_a_formula(value_text(value)),
            }
        });
        // A field may reach a terminal, and the daemon's escaping is not relied on.
        let texts = ts.map(str::to_owned).into_iter().chain(texts);
        let texts = texts.map(|text| sanitize(text.as_bytes(), usize::MAX));
        writer.write_record(texts).map_err(failed)?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| Error::Output(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A text that no spreadsheet takes for a formula: a process chooses its name freely, and
/// `=HYPERLINK(…)` would be evaluated. The quote in front makes it a text.
fn not_a_formula(text: String) -> String {
    let is_number = || text.parse().is_ok_and(f64::is_finite);
    let begins_one = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    match begins_one && !is_number() {
        true => format!("'{text}"),
        false => text,
    }
}

pub(crate) fn value_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(truth) => truth.to_string(),
        // Without the ".0" that JSON has after whole watts.
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(fraction) => fraction.to_string(),
            None => number.to_string(),
        },
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(value_text).collect::<Vec<_>>().join(" "),
        Value::Object(reasons) => {
            let reasons = reasons.iter();
            let reasons = reasons.map(|(field, why)| format!("{field}: {}", value_text(why)));
            reasons.collect::<Vec<_>>().join("; ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    fn with_objects(columns: &[CsvColumn], rows: &impl Serialize) -> Vec<&'static str> {
        let rows = serde_json::to_value(rows).expect("plain values");
        let rows = rows.as_array().expect("a list");
        let has_object = |value: &Value| match value {
            Value::Array(items) => items.iter().any(Value::is_object),
            value => value.is_object(),
        };
        let found = columns.iter().filter(|(_, field, pointer)| {
            let values = rows.iter().filter_map(|row| row[field].pointer(pointer));
            values.into_iter().any(has_object)
        });
        found.map(|(name, ..)| *name).collect()
    }

    #[test]
    fn text_is_never_a_formula() {
        for (text, expected) in [
            ("=1+1", "'=1+1"),
            ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
            ("-2+3", "'-2+3"),
            ("@SUM(1)", "'@SUM(1)"),
            ("\t=1", "'\t=1"),
            ("-inf", "'-inf"),
            ("-", "'-"),
            ("-12.5", "-12.5"),
            ("+3", "+3"),
            ("python -m x", "python -m x"),
            ("a=b", "a=b"),
            ("", ""),
        ] {
            assert_eq!(not_a_formula(text.to_owned()), expected);
        }
        let mut snapshot = fixtures::snapshot();
        snapshot.processes[0].name = gpukill_proto::reading::Reading::Value("=HYPERLINK(1)".into());
        let list = ListDocument::new(&snapshot, &fixtures::brief(), &fixtures::suspected());
        let rows = processes(&list, Header::Printed).expect("texts");
        assert!(rows.contains(",'=HYPERLINK(1),"), "{rows}");
    }

    #[test]
    fn owner_has_a_column_for_each_field() {
        let summary = fixtures::summary();
        let documents: Vec<OwnerTimeDocument> =
            summary.owners.iter().map(OwnerTimeDocument::from).collect();
        let first = serde_json::to_value(&documents[0]).expect("plain values");
        let mut fields: Vec<&String> = first.as_object().expect("an object").keys().collect();
        fields.sort();
        let mut expected = OWNER_COLUMNS;
        expected.sort_unstable();
        assert_eq!(fields, expected);
        let rows = owners(&documents).expect("texts");
        assert_eq!(rows.lines().count(), 1 + documents.len());
    }

    #[test]
    fn only_the_reasons_are_an_object() {
        let list = ListDocument::new(
            &fixtures::snapshot(),
            &fixtures::brief(),
            &fixtures::suspected(),
        );
        let gpus = columns(GpuDocument::FIELDS, GPU_PARTS);
        assert_eq!(with_objects(&gpus, &list.gpus), ["reasons"]);
        let processes = columns(ProcessDocument::FIELDS, PROCESS_PARTS);
        assert_eq!(with_objects(&processes, &list.procs), ["reasons"]);
    }
}
