//! The schemas of the documents: what they refer to, and the sample documents checked by them.

use super::holders::{explain_document, holders_document};
use super::{NOW, device, list_document, page, process};
use crate::json::report::ReportDocument;
use crate::json::schema::{Components, JsonSchema};
use crate::json::{
    ActionsDocument, CellsDocument, EventsDocument, ExplainDocument, GpuListDocument,
    GuardDocument, HoldersDocument, KillPlanDocument, KillReportDocument, ListDocument,
    PeriodDocument, ProcessListDocument, PruneDocument, ReplayDocument, ResetPlanDocument,
    ResetReportDocument, RulesTextDocument, RunsDocument, SamplesDocument, ScanDocument,
    SeriesDocument, SeriesRowDocument, StatusDocument, SummaryDocument, ViolationsDocument,
    WeeklyDocument,
};
use crate::model::{Device, GpuProcess, Vendor};
use crate::reading::Reading::Failed;
use chrono::DateTime;
use serde_json::{Map, Value as Json, json};

/// Checks values by schemas with the keywords that [`crate::json::schema`] uses.
pub(super) struct SchemaChecker(Map<String, Json>);

impl SchemaChecker {
    /// With the schemas of all documents.
    pub(super) fn new() -> Self {
        let all: [fn(&mut Components) -> Json; 26] = [
            ActionsDocument::schema,
            CellsDocument::schema,
            EventsDocument::schema,
            ExplainDocument::schema,
            GpuListDocument::schema,
            GuardDocument::schema,
            HoldersDocument::schema,
            KillPlanDocument::schema,
            KillReportDocument::schema,
            ListDocument::schema,
            ProcessListDocument::schema,
            PruneDocument::schema,
            ReplayDocument::schema,
            ReportDocument::schema,
            ResetPlanDocument::schema,
            ResetReportDocument::schema,
            RulesTextDocument::schema,
            RunsDocument::schema,
            SamplesDocument::schema,
            ScanDocument::schema,
            SeriesDocument::schema,
            SeriesRowDocument::schema,
            StatusDocument::schema,
            SummaryDocument::schema,
            ViolationsDocument::schema,
            WeeklyDocument::schema,
        ];
        let mut components = Components::default();
        for schema in all {
            schema(&mut components);
        }
        Self(components.into_object())
    }

    /// Asserts that a value is a document with this name.
    pub(super) fn assert_valid(&self, document: &str, value: &Json) {
        let schema = self.0.get(document).expect(document);
        assert_eq!(self.check(schema, value, document), Ok(()));
    }

    fn check(&self, schema: &Json, value: &Json, at: &str) -> Result<(), String> {
        let fits = |keyword: &str, expected: &Json| match keyword {
            "description" | "format" => true,
            "type" => match expected.as_array() {
                Some(types) => types.iter().any(|it| has_type(value, it)),
                None => has_type(value, expected),
            },
            "enum" => expected.as_array().unwrap().contains(value),
            "minimum" => value.is_null() || value.as_f64() >= expected.as_f64(),
            "anyOf" => {
                let mut choices = expected.as_array().unwrap().iter();
                choices.any(|it| self.check(it, value, at).is_ok())
            }
            // A document has all of its fields and no others.
            "required" => {
                let names = expected.as_array().unwrap();
                value.as_object().is_some_and(|fields| {
                    let is_named = |field: &String| names.contains(&json!(field));
                    fields.len() == names.len() && fields.keys().all(is_named)
                })
            }
            "$ref" | "items" | "properties" | "additionalProperties" => true,
            other => panic!("unknown keyword {other}"),
        };
        for (keyword, expected) in schema.as_object().unwrap() {
            if !fits(keyword, expected) {
                return Err(format!("{at}: {keyword} {expected} does not fit {value}"));
            }
        }
        let is_time = |text| DateTime::parse_from_rfc3339(text).is_ok();
        if schema.get("type").is_some()
            && let Some(text) = value.as_str()
            && is_time(text) != (schema["format"] == "date-time")
        {
            return Err(format!("{at}: only {value} or its schema is a time"));
        }
        self.check_parts(schema, value, at)
    }

    /// Checks what a schema refers to, and the parts of a value.
    fn check_parts(&self, schema: &Json, value: &Json, at: &str) -> Result<(), String> {
        if let Some(reference) = schema.get("$ref") {
            self.check(self.resolve(reference), value, at)?;
        }
        for item in value.as_array().into_iter().flatten() {
            if let Some(items) = schema.get("items") {
                self.check(items, item, &format!("{at}[]"))?;
            }
        }
        for (name, part) in value.as_object().into_iter().flatten() {
            let property = schema.get("properties").and_then(|it| it.get(name));
            if let Some(part_schema) = property.or(schema.get("additionalProperties")) {
                self.check(part_schema, part, &format!("{at}.{name}"))?;
            }
        }
        Ok(())
    }

    fn resolve(&self, reference: &Json) -> &Json {
        let reference = reference.as_str().unwrap();
        let name = reference.strip_prefix("#/components/schemas/").unwrap();
        let schema = self.0.get(name).expect(reference);
        assert!(schema.is_object(), "{reference} was never defined");
        schema
    }

    /// Resolves every reference in a schema.
    fn resolve_all(&self, schema: &Json) {
        match schema {
            Json::Object(keywords) => {
                if let Some(reference) = keywords.get("$ref") {
                    self.resolve(reference);
                }
                keywords.values().for_each(|it| self.resolve_all(it));
            }
            Json::Array(items) => items.iter().for_each(|it| self.resolve_all(it)),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
        }
    }
}

fn has_type(value: &Json, name: &Json) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    }
}

#[test]
fn references_resolve() {
    let checker = SchemaChecker::new();
    assert!(checker.0.len() > 50, "{:?}", checker.0.keys());
    checker.0.values().for_each(|it| checker.resolve_all(it));
}

#[test]
fn documents_fit_their_schemas() {
    let checker = SchemaChecker::new();
    let why = Failed("timeout".into());
    let unknown_device = Device::unknown(device().id, 0, Vendor::Nvidia, &why);
    let unknown_process = GpuProcess::unknown(device().id, 7, NOW, &why);
    checker.assert_valid("ListDocument", &list_document(device(), process()));
    let unknown = list_document(unknown_device, unknown_process);
    checker.assert_valid("ListDocument", &unknown);
    checker.assert_valid("HoldersDocument", &holders_document());
    checker.assert_valid("ExplainDocument", &explain_document());
    checker.assert_valid("ViolationsDocument", &page::violations());
    let list = ListDocument::new(
        &super::snapshot(device(), process()),
        &page::guard_summary(),
        &page::verdict_summaries(),
    );
    let cells = serde_json::to_value(CellsDocument::from(&list)).unwrap();
    checker.assert_valid("CellsDocument", &cells);
    assert_eq!(cells["models"], json!(["NVIDIA H100"]));
    assert_eq!(cells["model"], json!([0]));
    let gpus = GpuListDocument::new(&list, list.gpus.clone());
    let gpus = serde_json::to_value(gpus).unwrap();
    checker.assert_valid("GpuListDocument", &gpus);
    let procs = serde_json::to_value(ProcessListDocument::from(list)).unwrap();
    checker.assert_valid("ProcessListDocument", &procs);
    let runs = RunsDocument {
        period: PeriodDocument::new(NOW, NOW),
        runs: Vec::new(),
        gaps: Vec::new(),
        recorded_since: Some(NOW.to_rfc3339()),
        more: false,
    };
    checker.assert_valid("RunsDocument", &serde_json::to_value(runs).unwrap());
}

#[test]
fn schema_has_words_times_null_and_comments() {
    let SchemaChecker(schemas) = SchemaChecker::new();
    let gpu = &schemas["GpuDocument"]["properties"];
    let vendors = ["nvidia", "amd", "intel", "apple", "other"];
    assert_eq!(gpu["vendor"], json!({ "type": "string", "enum": vendors }));
    assert_eq!(
        gpu["lost_since"],
        json!({ "type": ["string", "null"], "format": "date-time" })
    );
    assert_eq!(
        gpu["minor"],
        json!({
            "type": ["integer", "null"], "format": "int64", "minimum": 0,
            "description": "The N of `/dev/nvidiaN`.",
        })
    );
    let xid = json!({ "$ref": "#/components/schemas/XidDocument" });
    assert_eq!(
        gpu["last_xid"],
        json!({ "anyOf": [xid, { "type": "null" }] })
    );
    let process = &schemas["ProcessDocument"]["properties"];
    let words = json!([
        "user",
        "namespace",
        "label",
        "container",
        "subordinate",
        null
    ]);
    assert_eq!(process["owner_kind"]["enum"], words);
    let owner = &schemas["OwnerTimeDocument"]["required"];
    assert_eq!(owner[0], "owner");
    // A flattened document has no field of its own.
    let fields = owner.as_array().unwrap();
    assert!(fields.contains(&json!("gpu_hours")) && !fields.contains(&json!("used")));
}
