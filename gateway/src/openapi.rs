//! The description of the API as an OpenAPI 3.1 document, made from the table of routes.

use crate::access::Access;
use crate::document::Document;
use crate::parameters::{Parameter, ParameterKind, Place};
use crate::problem::Problem;
use crate::routes::{Route, Source, routes};
use crate::settings::Settings;
use serde_json::{Map, Value, json};
use std::sync::{Arc, OnceLock};

/// The document of a gateway with these settings, made once.
///
/// # Errors
/// It cannot be serialized, which is a bug.
pub(crate) fn document(settings: &Settings) -> Result<Arc<Document>, Problem> {
    static MADE: OnceLock<Result<Arc<Document>, Problem>> = OnceLock::new();
    static MADE_PERSONAL: OnceLock<Result<Arc<Document>, Problem>> = OnceLock::new();
    let place = match settings.is_personal {
        true => &MADE_PERSONAL,
        false => &MADE,
    };
    let made = place.get_or_init(|| Document::json(&describe(settings)).map(Arc::new));
    made.clone()
}

fn describe(settings: &Settings) -> Value {
    let paths: Map<String, Value> = routes(settings)
        .map(|route| {
            let method = match route.methods() {
                "POST" => "post",
                _ => "get",
            };
            let mut operations = Map::new();
            operations.insert(method.to_owned(), operation(route));
            (route.path.to_owned(), operations.into())
        })
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
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
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
    let mut operation = json!({
        "summary": route.summary,
        "operationId": operation_id(route.path),
        "parameters": parameters,
        "responses": responses,
    });
    let Some(members) = operation.as_object_mut() else {
        return operation;
    };
    if route.needed_access() > Access::None {
        // The setting access.anonymous may make the token unnecessary.
        let security = match route.is_personal() {
            true => json!([{ "token": [] }]),
            false => json!([{ "token": [] }, {}]),
        };
        members.insert("security".into(), security);
    }
    if route.methods() == "POST" {
        let body = json!({
            "required": true,
            "content": { "application/json": { "schema": { "type": "object" } } },
        });
        members.insert("requestBody".into(), body);
    }
    operation
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
    use crate::routes::ROUTES;

    fn description(is_personal: bool) -> Value {
        let settings = Settings {
            is_personal,
            ..Settings::default()
        };
        serde_json::from_slice(document(&settings).unwrap().line()).unwrap()
    }

    #[test]
    fn acts_are_described_where_they_are_possible() {
        let personal = description(true);
        let plan = &personal["paths"]["/api/v1/kill/plan"]["post"];
        assert_eq!(plan["requestBody"]["required"], true);
        assert_eq!(plan["security"], json!([{ "token": [] }]));
        let report = &personal["paths"]["/api/v1/kill/report/{operation}"]["get"];
        assert_eq!(report["parameters"][0]["in"], "path");
        assert!(description(false)["paths"]["/api/v1/kill/plan"].is_null());
        let count = |described: Value| described["paths"].as_object().unwrap().len();
        assert_eq!(count(personal), ROUTES.len());
    }

    #[test]
    fn every_route_is_described() {
        let description = description(false);
        assert_eq!(description["openapi"], "3.1.0");
        let paths = description["paths"].as_object().unwrap();
        let all: Vec<&Route> = routes(&Settings::default()).collect();
        assert_eq!(paths.len(), all.len());
        for route in all {
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
