//! Validates a document against the JSON Schema that `schemars` generates from the recipe types, so that
//! editors, the documentation and these messages agree. Supports the subset of JSON Schema that our types use.

use pybench_types::range::range_violation;
use serde_json::Value as Json;

use super::document::{Location, Node, Problem, TableEntry, Value};

/// All violations of the schema, in document order.
pub(super) fn problems(schema: &Json, document: &Node) -> Vec<Problem> {
    let mut check = SchemaCheck {
        root: schema,
        problems: Vec::new(),
    };
    check.node(schema, document, "the recipe");
    check.problems
}

struct SchemaCheck<'a> {
    root: &'a Json,
    problems: Vec<Problem>,
}

impl<'a> SchemaCheck<'a> {
    fn refuse(&mut self, location: &Location, message: String) {
        self.problems.push(Problem::new(location, message));
    }

    /// Follows `$ref`, and picks the non-null alternative of an `Option`.
    fn resolve(&self, schema: &'a Json) -> &'a Json {
        if let Some(name) = schema["$ref"].as_str() {
            let pointer = name.trim_start_matches('#');
            return self.root.pointer(pointer).unwrap_or(&Json::Null);
        }
        let alternatives = schema["anyOf"].as_array().into_iter().flatten();
        let mut real = alternatives.filter(|alternative| alternative["type"] != "null");
        real.next().map_or(schema, |schema| self.resolve(schema))
    }

    fn node(&mut self, schema: &'a Json, node: &Node, name: &str) {
        let schema = self.resolve(schema);
        if let Some(words) = enum_values(schema) {
            self.check_enum(&words, node, name);
        } else if let Some(variants) = schema["oneOf"].as_array() {
            self.check_tagged(variants, node, name);
        } else {
            self.check_type(schema, node, name);
        }
    }

    fn check_enum(&mut self, words: &[&str], node: &Node, name: &str) {
        let listed = || quoted(words);
        match &node.value {
            Value::Leaf(toml::Value::String(text)) if words.contains(&text.as_str()) => {}
            Value::Leaf(toml::Value::String(text)) => {
                let hint = suggestion(text, words);
                let message = format!(
                    "{name}: unknown value `{text}`{hint} (expected one of {})",
                    listed()
                );
                self.refuse(&node.location, message);
            }
            other => {
                let message = format!(
                    "{name}: expected one of {}, found {}",
                    listed(),
                    describe_value(other)
                );
                self.refuse(&node.location, message);
            }
        }
    }

    /// Checks a table whose key `tag` selects the variant.
    fn check_tagged(&mut self, variants: &'a [Json], node: &Node, name: &str) {
        let Value::Table(_) = &node.value else {
            let message = format!(
                "{name}: expected a table, found {}",
                describe_value(&node.value)
            );
            return self.refuse(&node.location, message);
        };
        let Some(tag) = tag_of(variants) else { return };
        let words: Vec<&str> = variants
            .iter()
            .filter_map(|variant| variant["properties"][tag]["const"].as_str())
            .collect();
        let Some(entry) = node.get(tag) else {
            let message = format!(
                "{name}: the key `{tag}` is missing; expected one of {}",
                quoted(&words)
            );
            return self.refuse(&node.location, message);
        };
        self.check_enum(&words, &entry.node, tag);
        let chosen = variants.iter().find(|variant| match &entry.node.value {
            Value::Leaf(toml::Value::String(text)) => variant["properties"][tag]["const"] == **text,
            _ => false,
        });
        if let Some(variant) = chosen {
            let word = variant["properties"][tag]["const"]
                .as_str()
                .unwrap_or_default();
            self.check_type(variant, node, &format!("{name} with {tag} `{word}`"));
        }
    }

    fn check_type(&mut self, schema: &'a Json, node: &Node, name: &str) {
        let kind = type_of(schema);
        match (&node.value, kind) {
            (Value::Table(entries), "object") => self.check_table(schema, node, entries, name),
            (Value::Array(items), "array") => {
                let expected = &schema["x-expected-items"];
                for (index, item) in items.iter().enumerate() {
                    let name = format!("{name}.{index}");
                    match &item.value {
                        Value::Leaf(toml::Value::String(text)) if expected.is_string() => {
                            self.check_string(
                                &schema["items"],
                                expected,
                                &item.location,
                                text,
                                &name,
                            );
                        }
                        _ => self.node(&schema["items"], item, &name),
                    }
                }
            }
            (Value::Leaf(toml::Value::String(text)), "string") => {
                self.check_string(schema, &schema["x-expected"], &node.location, text, name);
            }
            (Value::Leaf(toml::Value::Integer(i)), "integer" | "number") => {
                self.check_bounds(schema, &node.location, *i as f64, name);
            }
            (Value::Leaf(toml::Value::Float(f)), "number") => {
                self.check_bounds(schema, &node.location, *f, name);
            }
            (Value::Leaf(toml::Value::Boolean(_)), "boolean") | (_, "") => {}
            (other, kind) => {
                let (expected, found) = (describe_type(kind), describe_value(other));
                self.refuse(
                    &node.location,
                    format!("{name}: expected {expected}, found {found}"),
                );
            }
        }
    }

    fn check_table(&mut self, schema: &'a Json, node: &Node, entries: &[TableEntry], name: &str) {
        let known = &schema["properties"];
        for entry in entries {
            match (&known[&entry.key], &schema["additionalProperties"]) {
                (Json::Null, Json::Object(_)) => {
                    self.node(&schema["additionalProperties"], &entry.node, &entry.key);
                }
                (Json::Null, Json::Bool(true)) => {}
                (Json::Null, _) => {
                    let message = unknown_key(&entry.key, known, name);
                    self.refuse(&entry.location, message);
                }
                (property, _) if property.get("const").is_some() => {}
                (property, _) => self.node(property, &entry.node, &entry.key),
            }
        }
        let required = schema["required"].as_array().into_iter().flatten();
        for key in required.filter_map(Json::as_str) {
            if node.get(key).is_none() {
                let hint = known[key]["description"].as_str().unwrap_or_default();
                let message = format!("{name}: the key `{key}` is missing: {}", first_line(hint));
                self.refuse(&node.location, message);
            }
        }
    }

    fn check_string(
        &mut self,
        schema: &Json,
        expected: &Json,
        location: &Location,
        text: &str,
        name: &str,
    ) {
        let Some(pattern) = schema["pattern"].as_str() else {
            return;
        };
        // The patterns are constants; a test compiles each of them.
        let matches = regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text));
        if !matches {
            let expected = expected.as_str().unwrap_or(pattern);
            self.refuse(location, format!("{name}: expected {expected}"));
        }
    }

    fn check_bounds(&mut self, schema: &Json, location: &Location, value: f64, name: &str) {
        if let Some(violation) = range_violation(schema, value) {
            self.refuse(location, format!("{name}: {value} {violation}"));
        }
    }
}

/// The values of an enum without data.
fn enum_values(schema: &Json) -> Option<Vec<&str>> {
    if let Some(words) = schema["enum"].as_array() {
        return Some(words.iter().filter_map(Json::as_str).collect());
    }
    if let Some(word) = schema["const"].as_str() {
        return Some(vec![word]);
    }
    let variants = schema["oneOf"].as_array()?;
    let words: Vec<_> = variants.iter().map(enum_values).collect::<Option<_>>()?;
    Some(words.concat())
}

/// The property that is constant in every variant.
fn tag_of(variants: &[Json]) -> Option<&str> {
    let first = variants.first()?["properties"].as_object()?;
    let mut constants = first
        .iter()
        .filter(|(_, schema)| schema.get("const").is_some());
    constants.next().map(|(name, _)| name.as_str())
}

fn type_of(schema: &Json) -> &str {
    match &schema["type"] {
        Json::String(kind) => kind,
        // `Option` of a simple type: `["number", "null"]`.
        Json::Array(kinds) => kinds
            .iter()
            .filter_map(Json::as_str)
            .find(|kind| *kind != "null")
            .unwrap_or_default(),
        _ => "",
    }
}

fn unknown_key(key: &str, known: &Json, name: &str) -> String {
    let names: Vec<&str> = known
        .as_object()
        .map(|known| known.keys().map(String::as_str).collect())
        .unwrap_or_default();
    let hint = suggestion(key, &names);
    format!(
        "unknown key `{key}` in {name}{hint} (known keys: {})",
        quoted(&names)
    )
}

/// `; did you mean `…`?` if one of the words is close.
fn suggestion(word: &str, words: &[&str]) -> String {
    match crate::closest(word, words.iter().copied()) {
        Some(best) => format!("; did you mean `{best}`?"),
        None => String::new(),
    }
}

fn quoted(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    quoted.join(", ")
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn describe_value(value: &Value) -> &'static str {
    match value {
        Value::Table(_) => "a table",
        Value::Array(_) => "a list",
        Value::Leaf(toml::Value::String(_)) => "a string",
        Value::Leaf(toml::Value::Integer(_)) => "a whole number",
        Value::Leaf(toml::Value::Float(_)) => "a number with a fraction",
        Value::Leaf(toml::Value::Boolean(_)) => "true or false",
        Value::Leaf(toml::Value::Datetime(_)) => "a date",
        Value::Leaf(toml::Value::Array(_) | toml::Value::Table(_)) => "a collection",
    }
}

fn describe_type(kind: &str) -> &'static str {
    match kind {
        "object" => "a table",
        "array" => "a list",
        "string" => "a string",
        "integer" => "a whole number",
        "number" => "a number",
        _ => "true or false",
    }
}
