//! JSON Schemas of the documents (draft 2020-12, the one of OpenAPI 3.1), made from the fields of the
//! documents and their comments.
//!
//! A document always has all of its fields, so each is `required`; one that may be `null` says so.
//! A word comes with the words that this version of the program knows. The derive of the crate
//! schemars sees neither words nor times in fields of type `&'static str` and `String`.
//!
//! A program that uses no schema contains none of this: nothing else refers to it.

use crate::audit::{RunEnd, TimelineEnd, TimelineEvent, UsageState};
use crate::guard::{GuardAction, GuardMode, GuardStep, MilderPolicy, RuleKind};
use crate::holders::{Cause, ProcessState, Remedy, Role};
use crate::kill::{KillScope, Outcome, PlannedAction, Stage};
use crate::model::{
    BackendState, FaultCode, GpuUse, Job, NetworkRole, OwnerKind, Scheduler, Vendor,
};
use crate::reset::{PlannedReset, ResetResult, Unblocker};
use crate::rogue::{IndicatorFamily, Risk, Threat};
use crate::status::Right;
use crate::units::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A document, or a type of a field.
pub trait JsonSchema {
    /// The schema of a value. That of a document is added to `components`, and this refers to it.
    fn schema(components: &mut Components) -> Value;

    /// Adds the fields of a document. Other types have none.
    fn add_fields(_fields: &mut Fields, _components: &mut Components) {}
}

/// The schemas of documents, by the names of the documents.
#[derive(Debug, Default)]
pub struct Components(Map<String, Value>);

impl Components {
    /// Adds the schema of a document, and returns a reference to it, as in an OpenAPI document.
    pub fn add<T: JsonSchema>(&mut self, name: &str, attributes: &[Attribute]) -> Value {
        if !self.0.contains_key(name) {
            // A document that contains itself refers to this entry.
            self.0.insert(name.to_owned(), Value::Null);
            let mut fields = Fields::default();
            T::add_fields(&mut fields, self);
            let schema = json!({
                "type": "object",
                "properties": fields.properties,
                "required": fields.names,
            });
            self.0.insert(name.to_owned(), describe(schema, attributes));
        }
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }

    /// The schemas as one object.
    #[must_use]
    pub fn into_object(self) -> Map<String, Value> {
        self.0
    }
}

/// The fields of a document.
#[derive(Debug, Default)]
pub struct Fields {
    properties: Map<String, Value>,
    /// The names in the order of the document.
    names: Vec<&'static str>,
}

impl Fields {
    /// Adds a field of type `T`; of a flattened one its own fields.
    pub fn add<T: JsonSchema>(
        &mut self,
        name: &'static str,
        attributes: &[Attribute],
        components: &mut Components,
    ) {
        if attributes.contains(&Attribute::Flatten) {
            T::add_fields(self, components);
            return;
        }
        let schema = describe(T::schema(components), attributes);
        self.names.push(name);
        self.properties.insert(name.to_owned(), schema);
    }
}

/// An attribute of a document or of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribute {
    /// A line of its comment.
    Comment(&'static str),
    /// `#[serde(flatten)]`
    Flatten,
}

/// Adds the comment to a schema.
fn describe(mut schema: Value, attributes: &[Attribute]) -> Value {
    let lines = attributes.iter().filter_map(|attribute| match attribute {
        Attribute::Comment(line) => Some(line.trim()),
        Attribute::Flatten => None,
    });
    let text = lines.collect::<Vec<_>>().join(" ");
    if !text.is_empty()
        && let Some(schema) = schema.as_object_mut()
    {
        schema.insert("description".into(), text.into());
    }
    schema
}

/// Defines a document, and its schema. Comments become descriptions. `as` names the type that a
/// text stands for: `since: String as Timestamp`.
macro_rules! described {
    (
        $(#[$($about:tt)*])*
        pub struct $name:ident {
            $($(#[$($attribute:tt)*])* pub $field:ident: $type:ty $(as $form:ty)?,)+
        }
    ) => {
        $(#[$($about)*])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        #[allow(
            missing_docs,
            reason = "the names are the documented JSON fields; units are in them"
        )]
        pub struct $name {
            $($(#[$($attribute)*])* pub $field: $type,)+
        }

        $crate::json::schema::object_schema! {
            $(#[$($about)*])*
            $name { $($(#[$($attribute)*])* $field: $type $(as $form)?,)+ }
        }
    };
}

/// Defines the schema of an object.
macro_rules! object_schema {
    (
        $(#[$($about:tt)*])*
        $name:ident {
            $($(#[$($attribute:tt)*])* $field:ident: $type:ty $(as $form:ty)?,)+
        }
    ) => {
        impl $crate::json::schema::JsonSchema for $name {
            fn schema(components: &mut $crate::json::schema::Components) -> serde_json::Value {
                let about = [$($crate::json::schema::attribute!($($about)*)),*];
                components.add::<Self>(stringify!($name), &about)
            }

            fn add_fields(
                fields: &mut $crate::json::schema::Fields,
                components: &mut $crate::json::schema::Components,
            ) {
                $(fields.add::<$crate::json::schema::form!($type $(, $form)?)>(
                    stringify!($field),
                    &[$($crate::json::schema::attribute!($($attribute)*)),*],
                    components,
                );)+
            }
        }
    };
}

/// An [`Attribute`]. Others than these are mistakes: the schema would not know their effect.
macro_rules! attribute {
    (doc = $line:expr) => {
        $crate::json::schema::Attribute::Comment($line)
    };
    (serde(flatten)) => {
        $crate::json::schema::Attribute::Flatten
    };
}

/// The type that describes a field: the one after `as`, if there is one.
macro_rules! form {
    ($type:ty) => {
        $type
    };
    ($type:ty, $form:ty) => {
        $form
    };
}

pub(crate) use {attribute, described, form, object_schema};

/// Implements [`JsonSchema`] for types without components.
macro_rules! plain_schemas {
    ($($($type:ty),+ => $schema:expr;)+) => {$($(
        impl $crate::json::schema::JsonSchema for $type {
            fn schema(_: &mut $crate::json::schema::Components) -> serde_json::Value {
                $schema
            }
        }
    )+)+};
}

// Without a format, some generators of clients read integers into 32 bits.
plain_schemas! {
    bool => json!({ "type": "boolean" });
    u8, u16 => json!({ "type": "integer", "format": "int32", "minimum": 0 });
    u32, u64, usize => json!({ "type": "integer", "format": "int64", "minimum": 0 });
    i32 => json!({ "type": "integer", "format": "int32" });
    i64 => json!({ "type": "integer", "format": "int64" });
    f64 => json!({ "type": "number", "format": "double" });
    &'static str, String => json!({ "type": "string" });
    Timestamp => json!({ "type": "string", "format": "date-time" });
    BTreeMap<&'static str, String> =>
        json!({ "type": "object", "additionalProperties": { "type": "string" } });
    Map<String, Value> => json!({ "type": "object" });
    Value => json!({});
}

/// Implements [`JsonSchema`] for enumerations that documents contain as words.
macro_rules! word_schemas {
    ($($type:ty,)+) => {$(
        impl $crate::json::schema::JsonSchema for $type {
            fn schema(_: &mut $crate::json::schema::Components) -> serde_json::Value {
                serde_json::json!({ "type": "string", "enum": <$type>::WORDS })
            }
        }
    )+};
}

pub(crate) use {plain_schemas, word_schemas};

word_schemas! {
    BackendState,
    Cause,
    FaultCode,
    GpuUse,
    GuardAction,
    GuardMode,
    GuardStep,
    IndicatorFamily,
    Job,
    KillScope,
    MilderPolicy,
    NetworkRole,
    Outcome,
    OwnerKind,
    PlannedAction,
    PlannedReset,
    ProcessState,
    Remedy,
    ResetResult,
    Right,
    Risk,
    Role,
    RuleKind,
    RunEnd,
    Scheduler,
    Stage,
    Threat,
    TimelineEnd,
    TimelineEvent,
    Unblocker,
    UsageState,
    Vendor,
}

impl<T: JsonSchema> JsonSchema for Vec<T> {
    fn schema(components: &mut Components) -> Value {
        json!({ "type": "array", "items": T::schema(components) })
    }
}

impl<T: JsonSchema> JsonSchema for Option<T> {
    fn schema(components: &mut Components) -> Value {
        nullable(T::schema(components))
    }
}

/// The schema of the same values and of `null`.
fn nullable(mut schema: Value) -> Value {
    let Some(keywords) = schema.as_object_mut() else {
        return schema;
    };
    if keywords.is_empty() {
        return schema;
    }
    let Some(types) = keywords.get_mut("type") else {
        return json!({ "anyOf": [schema, { "type": "null" }] });
    };
    let mut all = match types.take() {
        Value::Array(types) => types,
        one => vec![one],
    };
    all.push("null".into());
    *types = all.into();
    if let Some(Value::Array(words)) = keywords.get_mut("enum") {
        words.push(Value::Null);
    }
    schema
}
