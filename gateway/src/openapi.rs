//! The description of the API as an OpenAPI 3.1 document, made from the table of routes and from the
//! schemas of the documents.

use crate::access::Access;
use crate::document::Document;
use crate::parameters::{Parameter, ParameterKind, Place};
use crate::problem::Problem;
use crate::routes::{Post, Route, Source, routes};
use crate::settings::Settings;
use gpukill_proto::json::schema::Components;
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

pub(crate) fn describe(settings: &Settings) -> Value {
    let mut components = Components::default();
    let paths: Map<String, Value> = routes(settings)
        .map(|route| (route.path.to_owned(), operations(route, &mut components)))
        .collect();
    let mut schemas = components.into_object();
    schemas.insert("Problem".into(), problem());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "gpukill gateway",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Who uses the GPUs of this host. A value that is unknown is null, and \
                            reasons says why. docs/json.md describes the documents in more \
                            detail. A later version may have more fields and more words.",
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
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

/// The operations of a path, by method.
fn operations(route: &Route, components: &mut Components) -> Value {
    let get = operation(route, components);
    if route.methods() == "POST" {
        return json!({ "post": get });
    }
    let id = format!("post_{}", operation_id(route));
    match route.post {
        None => json!({ "get": get }),
        Some(post @ (Post::AsGet | Post::Replay)) => {
            let mut operation = get.clone();
            if let Some(members) = operation.as_object_mut() {
                members.insert("operationId".into(), id.into());
                if post == Post::Replay {
                    members.insert("requestBody".into(), request_body());
                }
            }
            json!({ "get": get, "post": operation })
        }
        Some(Post::Refused(command)) => json!({
            "get": get,
            "post": {
                "summary": format!("refused: run {command}"),
                "operationId": id,
                "responses": {
                    "default": { "$ref": "#/components/responses/Problem" },
                },
            },
        }),
    }
}

fn operation(route: &Route, components: &mut Components) -> Value {
    let parameters: Vec<Value> = route.parameters.iter().map(parameter).collect();
    let schema = (route.schema)(components);
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
    let is_document = match route.source {
        Source::Snapshot
        | Source::Part(_)
        | Source::Call(_)
        | Source::OpenApi
        | Source::Html(_)
        | Source::PageFile
        | Source::Reference => true,
        Source::Live
        | Source::WebSocket
        | Source::Metrics
        | Source::Act(_)
        | Source::Healthy
        | Source::Ready => false,
    };
    if is_document && let Some(responses) = responses.as_object_mut() {
        let unchanged = json!({ "description": "the client has this document already" });
        responses.insert("304".into(), unchanged);
    }
    let mut operation = json!({
        "summary": route.summary,
        "operationId": operation_id(route),
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
        members.insert("requestBody".into(), request_body());
    }
    operation
}

/// A body of JSON, which the summary and docs/gateway.md describe.
fn request_body() -> Value {
    json!({
        "required": true,
        "content": { "application/json": { "schema": { "type": "object" } } },
    })
}

/// `explain_pid` of `/api/v1/explain/{pid}`, `page_status` of the page `/status`.
fn operation_id(route: &Route) -> String {
    let path = route.path.strip_prefix("/api/v1/").unwrap_or(route.path);
    let words = path.split(|c: char| !c.is_ascii_alphanumeric());
    let page = matches!(route.source, Source::Html(_)).then_some("page");
    page.into_iter()
        .chain(words.filter(|word| !word.is_empty()))
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

/// The schema of a problem document.
fn problem() -> Value {
    let names = [
        "type",
        "title",
        "status",
        "detail",
        "hint",
        "exit_code",
        "data_age_seconds",
    ];
    json!({
        "type": "object",
        "description": "Why there is no answer (RFC 9457).",
        "required": names,
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string", "description": "What is wrong." },
            "hint": { "type": ["string", "null"], "description": "What to do." },
            "exit_code": {
                "type": ["integer", "null"],
                "description": "The exit code with which `gpukillctl` would end.",
            },
            "data_age_seconds": {
                "type": ["number", "null"],
                "description": "The age of the newest data, while gpukilld does not answer.",
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::ROUTES;
    use std::collections::BTreeSet;

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
        let post = |path: &str| &paths[path]["post"];
        assert!(post("/api/v1/status").is_null());
        assert_eq!(
            post("/api/guard/test-policies")["operationId"],
            "post_api_guard_test_policies"
        );
        let refused = post("/api/guard/toggle-dry-run");
        assert_eq!(
            refused["summary"],
            "refused: run gpukillctl guard toggle-dry-run"
        );
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

    fn names(list: &Value) -> BTreeSet<&str> {
        let names = list.as_array().unwrap().iter();
        names.map(|name| name.as_str().unwrap()).collect()
    }

    fn assert_references_resolve(api: &Value, part: &Value) {
        if let Some(reference) = part.get("$ref") {
            let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
            assert!(api.pointer(pointer).is_some_and(Value::is_object), "{part}");
        }
        let parts: Vec<&Value> = match part {
            Value::Object(members) => members.values().collect(),
            Value::Array(items) => items.iter().collect(),
            _ => Vec::new(),
        };
        for part in parts {
            assert_references_resolve(api, part);
        }
    }

    #[test]
    fn every_answer_has_a_schema() {
        let api = describe(&Settings::default());
        assert_references_resolve(&api, &api);
        for (path, item) in api["paths"].as_object().unwrap() {
            let responses = item["get"]["responses"].as_object().unwrap();
            assert!(responses["200"]["description"].is_string(), "{path}");
            let content = responses["200"]["content"].as_object().unwrap();
            assert!(!content.is_empty(), "{path}");
            for (media_type, answer) in content {
                let schema = &answer["schema"];
                let is_document =
                    media_type == "application/json" && !path.ends_with("openapi.json");
                assert_eq!(schema["$ref"].is_string(), is_document, "{path}");
                assert_eq!(schema["type"].is_string(), !is_document, "{path}");
            }
            let problem = "#/components/responses/Problem";
            assert_eq!(responses["default"]["$ref"], problem, "{path}");
            let known = ["200", "304", "default"];
            assert!(responses.keys().all(|it| known.contains(&it.as_str())));
        }
    }

    #[test]
    fn every_field_has_a_schema() {
        let api = describe(&Settings::default());
        let schemas = api["components"]["schemas"].as_object().unwrap();
        for name in ["ListDocument", "GpuDocument", "RunsDocument", "Problem"] {
            assert!(schemas.contains_key(name), "{name}");
        }
        for (name, schema) in schemas {
            let properties = schema["properties"].as_object().unwrap();
            let fields: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
            assert_eq!(names(&schema["required"]), fields, "{name}");
            assert!(schema["description"].is_string(), "{name}");
        }
        let state = &schemas["GpuDocument"]["properties"]["state"]["enum"];
        assert!(names(state).contains("not_permitted"), "{state}");
    }

    #[test]
    fn problem_has_the_members_of_its_schema() {
        let body = Problem::bad_request("the path is not UTF-8").body();
        let document: Value = serde_json::from_slice(&body).unwrap();
        let members = document.as_object().unwrap().keys();
        let schema = problem();
        assert_eq!(
            members.map(String::as_str).collect::<BTreeSet<_>>(),
            names(&schema["required"])
        );
    }

    #[test]
    fn operation_ids_are_unique() {
        let mut ids: Vec<String> = ROUTES.iter().map(operation_id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), ROUTES.len());
    }
}
