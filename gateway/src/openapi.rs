//! The description of the API as an OpenAPI 3.1 document, made from the table of routes.

use crate::document::Document;
use crate::parameters::{Parameter, ParameterKind, Place};
use crate::problem::Problem;
use crate::routes::{ROUTES, Route, Source};
use serde_json::{Map, Value, json};
use std::sync::{Arc, OnceLock};

/// The document, made once.
///
/// # Errors
/// It cannot be serialized, which is a bug.
pub(crate) fn document() -> Result<Arc<Document>, Problem> {
    static MADE: OnceLock<Result<Arc<Document>, Problem>> = OnceLock::new();
    let made = MADE.get_or_init(|| Document::json(&describe()).map(Arc::new));
    made.clone()
}

fn describe() -> Value {
    let paths: Map<String, Value> = ROUTES
        .iter()
        .map(|route| (route.path.to_owned(), json!({ "get": operation(route) })))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "gpukill gateway",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Who uses the GPUs of this host. The members of the documents are \
                            described in docs/json.md; a value that is unknown is null, and \
                            reasons says why.",
        },
        "paths": paths,
        "components": {
            "responses": {
                "Problem": {
                    "description": "Why there is no answer (RFC 9457).",
                    "content": {
                        "application/problem+json": {
                            "schema": { "$ref": "#/components/schemas/Problem" },
                        },
                    },
                },
            },
            "schemas": { "Problem": problem() },
        },
    })
}

fn operation(route: &Route) -> Value {
    let parameters: Vec<Value> = route.parameters.iter().map(parameter).collect();
    let is_json = route.media_type == "application/json";
    let schema = match is_json {
        true => json!({ "type": "object" }),
        false => json!({ "type": "string" }),
    };
    let other = match route.source {
        Source::Metrics => Some("application/openmetrics-text"),
        _ => None,
    };
    let usual = route.media_type.split(';').next();
    let content: Map<String, Value> = usual
        .into_iter()
        .chain(other)
        .map(|media_type| (media_type.to_owned(), json!({ "schema": &schema })))
        .collect();
    let mut responses = json!({
        "200": {
            "description": route.summary,
            "content": content,
        },
        "default": { "$ref": "#/components/responses/Problem" },
    });
    if is_json && let Some(responses) = responses.as_object_mut() {
        let unchanged = json!({ "description": "the client has this document already" });
        responses.insert("304".into(), unchanged);
    }
    json!({
        "summary": route.summary,
        "operationId": operation_id(route.path),
        "parameters": parameters,
        "responses": responses,
    })
}

/// `explain_pid` of `/api/v1/explain/{pid}`.
fn operation_id(path: &str) -> String {
    let path = path.strip_prefix("/api/v1/").unwrap_or(path);
    let words = path.split(|c: char| !c.is_ascii_alphanumeric());
    words
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("_")
}

fn parameter(parameter: &Parameter) -> Value {
    let schema = match parameter.kind {
        ParameterKind::Text => json!({ "type": "string", "minLength": 1 }),
        ParameterKind::Number { min, max, default } => {
            let mut schema = json!({ "type": "integer", "minimum": min, "maximum": max });
            if let (Some(schema), Some(default)) = (schema.as_object_mut(), default) {
                schema.insert("default".into(), default.into());
            }
            schema
        }
        ParameterKind::Time => {
            json!({ "type": "string", "examples": ["2h", "2026-11-20T14:00:00Z"] })
        }
        ParameterKind::Choice(words) => {
            json!({ "type": "string", "enum": words, "default": words.first() })
        }
    };
    let is_in_path = parameter.place == Place::Path;
    json!({
        "name": parameter.name,
        "in": if is_in_path { "path" } else { "query" },
        "required": is_in_path,
        "description": parameter.summary,
        "schema": schema,
    })
}

fn problem() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string", "description": "what is wrong" },
            "hint": { "type": ["string", "null"], "description": "what to do" },
            "exit_code": {
                "type": ["integer", "null"],
                "description": "the exit code with which gpukillctl would end",
            },
            "data_age_seconds": {
                "type": ["number", "null"],
                "description": "the age of the newest data, while gpukilld does not answer",
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_described() {
        let description: Value = serde_json::from_slice(document().unwrap().line()).unwrap();
        assert_eq!(description["openapi"], "3.1.0");
        let paths = description["paths"].as_object().unwrap();
        assert_eq!(paths.len(), ROUTES.len());
        for route in ROUTES {
            let operation = &paths[route.path]["get"];
            assert_eq!(operation["summary"], route.summary);
            let parameters = operation["parameters"].as_array().unwrap();
            assert_eq!(parameters.len(), route.parameters.len());
        }
        let metrics = &paths["/metrics"]["get"]["responses"]["200"]["content"];
        for media_type in ["text/plain", "application/openmetrics-text"] {
            assert_eq!(metrics[media_type]["schema"]["type"], "string");
        }
        let explain = &paths["/api/v1/explain/{pid}"]["get"];
        assert_eq!(explain["operationId"], "explain_pid");
        assert_eq!(
            explain["parameters"][0],
            json!({
                "name": "pid",
                "in": "path",
                "required": true,
                "description": "the pid of the process",
                "schema": { "type": "integer", "minimum": 1, "maximum": 4_294_967_295_u64 },
            })
        );
    }

    #[test]
    fn operation_ids_are_unique() {
        let mut ids: Vec<String> = ROUTES
            .iter()
            .map(|route| operation_id(route.path))
            .collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), ROUTES.len());
    }
}
