//! The description of the API as a page for people, made from the OpenAPI document. It has neither
//! style nor script, because the policy in the headers of all answers allows none.

use crate::document::Document;
use crate::openapi;
use crate::settings::Settings;
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// The beginning of the page.
const HEAD: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>gpukill gateway: reference</title>
</head>
<body>
<h1>The API of the gpukill gateway</h1>
"#;

/// The page of a gateway with these settings, made once.
pub(crate) fn document(settings: &Settings) -> Arc<Document> {
    static MADE: OnceLock<Arc<Document>> = OnceLock::new();
    static MADE_PERSONAL: OnceLock<Arc<Document>> = OnceLock::new();
    let place = match settings.is_personal {
        true => &MADE_PERSONAL,
        false => &MADE,
    };
    let made = place.get_or_init(|| Arc::new(Document::html(page(&openapi::describe(settings)))));
    Arc::clone(made)
}

/// The page for an OpenAPI document.
fn page(api: &Value) -> String {
    let paths = members(&api["paths"]).map(|(path, item)| match item.get("get") {
        Some(operation) => route(path, operation),
        None => route(&format!("POST {path}"), &item["post"]),
    });
    let documents = members(&api["components"]["schemas"]);
    let documents = documents.map(|(name, schema)| object(name, schema));
    [
        HEAD.to_owned(),
        format!("<p>{}</p>\n", comment(&api["info"]["description"])),
        "<p>For programs: <a href=\"openapi.json\">openapi.json</a></p>\n".to_owned(),
        "<h2>Paths</h2>\n".to_owned(),
        paths.collect(),
        "<h2>Documents</h2>\n".to_owned(),
        documents.collect(),
        "</body>\n</html>\n".to_owned(),
    ]
    .concat()
}

/// A path with its parameters and the types of its answers.
fn route(path: &str, operation: &Value) -> String {
    let parameters: Vec<[String; 3]> = items(&operation["parameters"])
        .map(|parameter| {
            [
                code(&parameter["name"]),
                type_text(&parameter["schema"]) + &range(&parameter["schema"]),
                comment(&parameter["description"]),
            ]
        })
        .collect();
    let answers: String = members(&operation["responses"]["200"]["content"])
        .map(|(media_type, answer)| {
            let schema = type_text(&answer["schema"]);
            format!("<p><code>{}</code>: {schema}</p>\n", escape(media_type))
        })
        .collect();
    format!(
        "<h3><code>{}</code></h3>\n<p>{}</p>\n{}{answers}",
        escape(path),
        comment(&operation["summary"]),
        table("parameter", &parameters),
    )
}

/// A document with its fields, in its own order.
fn object(name: &str, schema: &Value) -> String {
    let fields: Vec<[String; 3]> = items(&schema["required"])
        .map(|field| {
            let property = &schema["properties"][field.as_str().unwrap_or_default()];
            let about = comment(&property["description"]);
            [code(field), type_text(property), about]
        })
        .collect();
    format!(
        "<h3 id=\"{name}\">{name}</h3>\n<p>{}</p>\n{}",
        comment(&schema["description"]),
        table("field", &fields),
    )
}

fn table(title: &str, rows: &[[String; 3]]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let rows = rows.iter().map(|cells| {
        let cells = cells.iter().map(|cell| format!("<td>{cell}</td>"));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    });
    format!(
        "<table border=\"1\" cellpadding=\"4\">\n\
         <tr><th>{title}</th><th>value</th><th>meaning</th></tr>\n{}</table>\n",
        rows.collect::<String>()
    )
}

fn type_text(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = escape(reference.rsplit('/').next().unwrap_or_default());
        return format!("<a href=\"#{name}\">{name}</a>");
    }
    let either = |choices: Vec<String>| choices.join(" or ");
    if schema["anyOf"].is_array() {
        return either(items(&schema["anyOf"]).map(type_text).collect());
    }
    if schema["enum"].is_array() {
        return either(items(&schema["enum"]).map(code).collect());
    }
    match &schema["type"] {
        Value::Null => "any value".to_owned(),
        Value::Array(names) => either(names.iter().map(|name| type_name(name, schema)).collect()),
        name => type_name(name, schema),
    }
}

fn type_name(name: &Value, schema: &Value) -> String {
    match name.as_str().unwrap_or_default() {
        "array" => format!("list of {}", type_text(&schema["items"])),
        "string" if schema["format"] == "date-time" => "time (RFC 3339)".to_owned(),
        "string" => "text".to_owned(),
        "null" => "<code>null</code>".to_owned(),
        other => escape(other),
    }
}

/// The range and the default of a parameter.
fn range(schema: &Value) -> String {
    let bounds = match (&schema["minimum"], &schema["maximum"]) {
        (Value::Number(min), Value::Number(max)) => format!(" from {min} to {max}"),
        _ => String::new(),
    };
    match &schema["default"] {
        Value::Null => bounds,
        default => format!("{bounds}; {} if left out", code(default)),
    }
}

fn members(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flatten()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// A word or a number as code.
fn code(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    format!("<code>{}</code>", escape(&text))
}

/// A comment, with code between backticks.
fn comment(text: &Value) -> String {
    let parts = text.as_str().unwrap_or_default().split('`').map(escape);
    parts
        .enumerate()
        .map(|(position, part)| match position % 2 {
            0 => part,
            _ => format!("<code>{part}</code>"),
        })
        .collect()
}

/// Escapes the characters that HTML gives a meaning.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::routes;
    use serde_json::json;

    #[test]
    fn page_has_every_route_and_every_field() {
        let api = openapi::describe(&Settings::default());
        let page = page(&api);
        for route in routes(&Settings::default()) {
            assert!(page.contains(&format!("<h3><code>{}</code>", route.path)));
        }
        for (name, schema) in members(&api["components"]["schemas"]) {
            let start = page.find(&format!("<h3 id=\"{name}\">")).expect(name);
            let (_, section) = page.split_at(start);
            let section = section.split("</table>").next().unwrap();
            for field in items(&schema["required"]) {
                assert!(section.contains(&code(field)), "{name}.{field}");
            }
        }
        for link in page.split("href=\"#").skip(1) {
            let name = link.split('"').next().unwrap();
            assert!(page.contains(&format!("id=\"{name}\"")), "{name}");
        }
    }

    #[test]
    fn types_are_in_words() {
        for (schema, expected) in [
            (json!({}), "any value"),
            (
                json!({ "type": ["string", "null"], "format": "date-time" }),
                "time (RFC 3339) or <code>null</code>",
            ),
            (
                json!({ "type": "array", "items": { "$ref": "#/components/schemas/A" } }),
                "list of <a href=\"#A\">A</a>",
            ),
            (
                json!({ "type": "string", "enum": ["<a>", null] }),
                "<code>&lt;a&gt;</code> or <code>null</code>",
            ),
            (
                json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }),
                "integer or <code>null</code>",
            ),
        ] {
            assert_eq!(type_text(&schema), expected);
        }
        let limit = json!({ "type": "integer", "minimum": 1, "maximum": 9, "default": 5 });
        assert_eq!(range(&limit), " from 1 to 9; <code>5</code> if left out");
        assert_eq!(comment(&json!("a `b<` c")), "a <code>b&lt;</code> c");
    }
}
