//! Generates the OpenAPI description from the route table and the types of bodies.
//!
//! The crates `utoipa` and `aide` are not used because they describe handlers one by one; the table also decides
//! who may call a route, and one table cannot disagree with itself.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::error::ErrorBody;
use super::events::Event;
use super::guard::Access;
use super::route::{Content, Route};

/// The OpenAPI description of these routes.
pub(super) fn document(routes: &[Route]) -> Value {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let mut paths = Map::new();
    for route in routes {
        let path = route.path.replace("{*", "{");
        let operation = operation(route, &mut generator);
        let path = paths.entry(path).or_insert_with(|| json!({}));
        path[route.method] = operation;
    }
    // Referenced only in the summary of the stream route.
    generator.subschema_for::<Event>();
    let schemas = Value::from(generator.take_definitions(true));
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "pybench code execution service",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Stateful Python interpreters in a sandbox. See docs/service.md.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-KEY"},
                "sandbox": {"type": "apiKey", "in": "header", "name": "X-Access-Token"},
            },
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let service = [json!({"token": []}), json!({"key": []})];
    let sandbox = [json!({"sandbox": []})];
    let security: Vec<Value> = match route.access {
        Access::Client => service.to_vec(),
        Access::Sandbox => sandbox.to_vec(),
        Access::Either => service.into_iter().chain(sandbox).collect(),
    };
    let mut responses = Map::new();
    let mut answer = json!({"description": "Done."});
    if let Some(content) = content(route.gives, generator) {
        answer["content"] = content;
    }
    responses.insert(route.status.to_string(), answer);
    let error = content(Content::Json(schema::<ErrorBody>), generator);
    responses.insert(
        "default".to_owned(),
        json!({"description": "Refused or failed.", "content": error}),
    );
    let mut operation = json!({
        "tags": [route.tag],
        "summary": route.summary,
        "security": security,
        "parameters": parameters(route, generator),
        "responses": responses,
    });
    if let Some(content) = content(route.takes, generator) {
        operation["requestBody"] = json!({"required": true, "content": content});
    }
    operation
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> schemars::Schema {
    generator.subschema_for::<T>()
}

fn content(content: Content, generator: &mut SchemaGenerator) -> Option<Value> {
    match content {
        Content::Nothing => None,
        Content::Json(describe) => {
            Some(json!({"application/json": {"schema": describe(generator)}}))
        }
        Content::Raw(kind) => {
            Some(json!({kind: {"schema": {"type": "string", "format": "binary"}}}))
        }
    }
}

/// Path parameters, then query parameters, which are the properties of the query type.
fn parameters(route: &Route, generator: &mut SchemaGenerator) -> Vec<Value> {
    let names = route
        .path
        .split('{')
        .skip(1)
        .filter_map(|part| part.split_once('}'));
    let mut parameters: Vec<Value> = names
        .map(|(name, _)| {
            let name = name.trim_start_matches('*');
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
        })
        .collect();
    if route.access == Access::Sandbox {
        let schema = json!({"type": "string"});
        parameters.push(
            json!({"name": "E2b-Sandbox-Id", "in": "header", "required": true, "schema": schema}),
        );
    }
    let Some(describe) = route.query else {
        return parameters;
    };
    let reference = describe(generator).to_value();
    let name = reference["$ref"]
        .as_str()
        .and_then(|path| path.rsplit('/').next());
    let definition = name
        .and_then(|name| generator.definitions().get(name))
        .cloned();
    let definition = definition.unwrap_or(reference);
    for (name, schema) in definition["properties"].as_object().into_iter().flatten() {
        parameters.push(json!({"name": name, "in": "query", "required": false, "schema": schema}));
    }
    parameters
}

#[cfg(test)]
mod tests {

    #[test]
    fn the_committed_schema_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let now = serde_json::to_string_pretty(&crate::openapi()).unwrap() + "\n";
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(path, &now).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == now,
            "docs/openapi.json is out of date: update it with `just schema`"
        );
    }

    #[test]
    fn every_reference_resolves() {
        let document = crate::openapi();
        let text = document.to_string();
        let references: Vec<&str> = text
            .split("\"$ref\":\"#")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .collect();
        assert!(references.len() > 20, "{references:?}");
        for reference in references {
            assert!(document.pointer(reference).is_some(), "{reference}");
        }
    }
}
