//! The types of the web app, generated from the types of the answers, and its routes, generated from the OpenAPI document.

use std::fmt::Write as _;
use std::path::Path;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::align::PairView;
use crate::api::openapi;
use crate::api::retries::RetriedUnits;
use crate::chat::view::{ChatList, ChatRequest, ChatView};
use crate::compare::Comparison;
use crate::compare::matrix::Matrix;
use crate::edit::continuation::ContinueRequest;
use crate::edit::fork::ForkView;
use crate::edit::models::AgentList;
use crate::edit::plan::ForkRequest;
use crate::file_page::FilePage;
use crate::index::{Facet, Page};
use crate::recipe_view::RecipeView;
use crate::results::leaderboard::Results;
use crate::results::statistics::DatasetStatistics;
use crate::results::training::TrainingRun;
use crate::review::{Review, ReviewSummary};
use crate::runs::SourceInfo;
use crate::saved_edits::SaveRequest;
use crate::status::RunStatus;
use crate::task_review::TaskQueue;
use crate::view::View;

const HEAD: &str = "\
// The answers of the server, generated from the types in pipelines/studio/src. After a change there, run:
//   UPDATE_TYPES=1 cargo test -p pybench-studio --lib types
";

/// All types as TypeScript, by name.
fn typescript() -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut generator = settings.into_generator();
    generator.subschema_for::<SourceInfo>();
    generator.subschema_for::<Page>();
    generator.subschema_for::<Facet>();
    generator.subschema_for::<View>();
    generator.subschema_for::<FilePage>();
    generator.subschema_for::<Comparison>();
    generator.subschema_for::<Matrix>();
    generator.subschema_for::<PairView>();
    generator.subschema_for::<Review>();
    generator.subschema_for::<ReviewSummary>();
    generator.subschema_for::<TaskQueue>();
    generator.subschema_for::<ForkRequest>();
    generator.subschema_for::<ForkView>();
    generator.subschema_for::<AgentList>();
    generator.subschema_for::<ContinueRequest>();
    generator.subschema_for::<SaveRequest>();
    generator.subschema_for::<RunStatus>();
    generator.subschema_for::<RetriedUnits>();
    generator.subschema_for::<RecipeView>();
    generator.subschema_for::<Results>();
    generator.subschema_for::<TrainingRun>();
    generator.subschema_for::<DatasetStatistics>();
    generator.subschema_for::<ChatList>();
    generator.subschema_for::<ChatRequest>();
    generator.subschema_for::<ChatView>();
    let definitions = generator.take_definitions(true);
    let mut named: Vec<(&String, &Value)> = definitions.iter().collect();
    named.sort_by_key(|(name, _)| *name);
    let mut text = HEAD.to_owned();
    for (name, schema) in named {
        // Writing to a String cannot fail.
        let _ = match properties(schema) {
            Some(properties) => writeln!(
                text,
                "\nexport interface {name} {{\n{}}}",
                fields(schema, properties, "  ", ";\n")
            ),
            None => writeln!(text, "\nexport type {name} = {};", type_of(schema)),
        };
    }
    text + &routes(&openapi::document())
}

/// The routes of the OpenAPI document: what each takes and answers.
fn routes(document: &Value) -> String {
    let mut text =
        "\n/** What each route takes and answers. */\nexport interface Routes {\n".to_owned();
    let paths = document["paths"].as_object().into_iter().flatten();
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().into_iter().flatten() {
            let body = &operation["requestBody"]["content"]["application/json"]["schema"];
            let body = (!body.is_null()).then(|| type_of(body));
            let content = &operation["responses"]["200"]["content"];
            let of_media = |media: &str| content.get(media).map(|one| type_of(&one["schema"]));
            let answer = of_media("application/json").or_else(|| of_media("text/event-stream"));
            let or_null = |found: Option<String>| found.unwrap_or_else(|| "null".to_owned());
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "  \"{} {path}\": {{ query: {}; body: {}; answer: {} }};",
                method.to_uppercase(),
                or_null(query(operation)),
                or_null(body),
                or_null(answer)
            );
        }
    }
    text + "}\n"
}

/// The parameters of an operation that are not in its path; `None` if it has none.
fn query(operation: &Value) -> Option<String> {
    let parameters = operation["parameters"].as_array()?;
    let of_query = parameters.iter().filter(|one| one["in"] == "query");
    let fields: Vec<String> = of_query
        .map(|one| {
            let name = one["name"].as_str().unwrap_or_default();
            let mark = if one["required"] == true { "" } else { "?" };
            format!("{name}{mark}: {}", type_of(&one["schema"]))
        })
        .collect();
    (!fields.is_empty()).then(|| format!("{{ {} }}", fields.join("; ")))
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties").and_then(Value::as_object)
}

/// The fields of an object, each between these texts. Those that an answer may lack have a question mark.
fn fields(schema: &Value, properties: &Map<String, Value>, before: &str, after: &str) -> String {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
    let field = |(name, value): (&String, &Value)| {
        let mark = if is_required(name) { "" } else { "?" };
        format!("{before}{name}{mark}: {}{after}", type_of(value))
    };
    properties.iter().map(field).collect()
}

fn type_of(schema: &Value) -> String {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let name = reference.rsplit('/').next();
        return name.unwrap_or(reference).to_owned();
    }
    if let Some(value) = schema.get("const") {
        return value.to_string();
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return union(values.iter().map(Value::to_string));
    }
    for key in ["oneOf", "anyOf"] {
        if let Some(choices) = schema.get(key).and_then(Value::as_array) {
            return union(choices.iter().map(type_of));
        }
    }
    match schema.get("type") {
        Some(Value::Array(names)) => union(names.iter().map(|name| named(name, schema))),
        Some(name) => named(name, schema),
        None => "unknown".to_owned(),
    }
}

/// The type of a schema of this `type`.
fn named(name: &Value, schema: &Value) -> String {
    let items = |key: &str| schema.get(key);
    match name.as_str() {
        Some("integer" | "number") => "number".to_owned(),
        Some(name @ ("string" | "boolean" | "null")) => name.to_owned(),
        Some("array") => match (
            items("prefixItems").and_then(Value::as_array),
            items("items"),
        ) {
            (Some(items), _) => {
                let items: Vec<String> = items.iter().map(type_of).collect();
                format!("[{}]", items.join(", "))
            }
            (None, Some(item)) => match type_of(item) {
                item if item.contains(" | ") => format!("({item})[]"),
                item => format!("{item}[]"),
            },
            (None, None) => "unknown[]".to_owned(),
        },
        Some("object") => match (properties(schema), items("additionalProperties")) {
            (Some(properties), _) => {
                let fields = fields(schema, properties, " ", ";");
                format!("{{{} }}", fields.trim_end_matches(';'))
            }
            (None, Some(values)) => format!("Record<string, {}>", type_of(values)),
            (None, None) => "Record<string, unknown>".to_owned(),
        },
        _ => "unknown".to_owned(),
    }
}

/// The types without repetitions.
fn union(types: impl Iterator<Item = String>) -> String {
    let mut all = Vec::<String>::new();
    for one in types {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all.join(" | ")
}

/// `UPDATE_TYPES=1 cargo test -p pybench-studio --lib types` writes the file.
#[test]
fn the_types_of_the_app_are_those_of_the_answers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("web/src/types.ts");
    let types = typescript();
    if std::env::var_os("UPDATE_TYPES").is_some() {
        std::fs::write(&path, &types).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == types,
        "{} is out of date; run `UPDATE_TYPES=1 cargo test -p pybench-studio --lib types`",
        path.display()
    );
}

#[test]
fn schemas_become_types() {
    let types = typescript();
    for expected in [
        "export interface Row {\n  number: number;\n  id: string;\n",
        "  values: [string, number][];\n",
        "  cells: CellView[];\n",
        "  code: string | null;\n",
        "  verdict: Verdict | null;\n",
        "  interval: [number, number] | null;\n",
        "export type Winner = \"a\" | \"b\" | \"neither\" | \"unknown\";\n",
        "  decision: Decision | null;\n",
        "  winner: Winner;\n",
        "export type Retry = \"pending\" | \"command\" | \"flag\";\n",
        "  bounds: [number, number] | null;\n",
        "  categories: (RateView | null)[];\n",
        "  bars: [string, number][];\n",
        "  keys: RecipeKey[];\n",
    ] {
        assert!(types.contains(expected), "{expected}\n{types}");
    }
    for expected in [
        "  \"GET /api/data\": { query: null; body: null; answer: SourceInfo[] };\n",
        "  \"GET /api/data/{name}/{number}\": { query: { turn?: number }; body: null; answer: View };\n",
        "  \"POST /api/data/{name}/retry\": { query: null; body: { stage: string; kind: string }; answer: RetriedUnits[] };\n",
    ] {
        assert!(types.contains(expected), "{expected}\n{types}");
    }
    assert!(!types.contains("unknown;"), "{types}");
    // What is left out if it is empty.
    let verdict = types.split("export interface Verdict {").nth(1).unwrap();
    assert!(
        verdict.split('}').next().unwrap().contains("  opinion?: "),
        "{types}"
    );
}
