//! The routes in OpenAPI 3.1, from the types of requests and answers: `/api/openapi.json`.

use axum::routing::get as get_route;
use axum::{Json, Router};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::comparison::PairQuery;
use super::retries::{RetriedUnits, RetryRequest};
use super::trajectory::{FileQuery, TurnQuery};
use crate::align::PairView;
use crate::chat::routes::{FileQuery as ChatFileQuery, Known, Sent, SentFile};
use crate::chat::view::{ChatList, ChatRequest, ChatView};
use crate::compare::matrix::{Matrix, MatrixQuery};
use crate::compare::{CompareQuery, Comparison};
use crate::edit::continuation::ContinueRequest;
use crate::edit::fork::ForkView;
use crate::edit::models::AgentList;
use crate::edit::plan::ForkRequest;
use crate::edit::routes::{Back, Studio, Turns};
use crate::file_page::{FilePage, FilePageQuery};
use crate::index::{Facet, ListQuery, ListState, Page};
use crate::recipe_view::{RecipeQuery, RecipeView};
use crate::results::leaderboard::Results;
use crate::results::statistics::DatasetStatistics;
use crate::results::training::TrainingRun;
use crate::review::{Review, ReviewSummary};
use crate::runs::SourceInfo;
use crate::saved_edits::{EditInfo, SaveRequest};
use crate::status::RunStatus;
use crate::task_review::{TaskQuery, TaskQueue, TaskReview};
use crate::view::View;

/// Where the types of the answers are in the document.
const SCHEMAS: &str = "/components/schemas";

pub(super) fn router() -> Router<Studio> {
    Router::new().route("/api/openapi.json", get_route(serve))
}

async fn serve() -> Json<Value> {
    Json(document())
}

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// A method of a route.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    summary: &'static str,
    query: Option<SchemaOf>,
    body: Option<SchemaOf>,
    answer: Answer,
}

/// What an operation answers.
enum Answer {
    Json(SchemaOf),
    /// Server-sent events, each with such a value.
    Events(SchemaOf),
    /// A file.
    Bytes,
}

impl Operation {
    /// One that answers any JSON.
    fn new(method: &'static str, path: &'static str, summary: &'static str) -> Self {
        Self {
            method,
            path,
            summary,
            query: None,
            body: None,
            answer: Answer::Json(schema::<Value>),
        }
    }

    fn query<T: JsonSchema>(self) -> Self {
        let query = Some(schema::<T> as SchemaOf);
        Self { query, ..self }
    }

    fn body<T: JsonSchema>(self) -> Self {
        let body = Some(schema::<T> as SchemaOf);
        Self { body, ..self }
    }

    fn answer<T: JsonSchema>(self) -> Self {
        let answer = Answer::Json(schema::<T>);
        Self { answer, ..self }
    }

    fn events<T: JsonSchema>(self) -> Self {
        let answer = Answer::Events(schema::<T>);
        Self { answer, ..self }
    }

    fn bytes(self) -> Self {
        let answer = Answer::Bytes;
        Self { answer, ..self }
    }

    /// The operation as the document has it.
    fn described(&self, requests: &mut SchemaGenerator, answers: &mut SchemaGenerator) -> Value {
        let mut parameters: Vec<Value> = path_parameters(self.path).collect();
        if let Some(query) = self.query {
            parameters.extend(query_parameters(&json!(query(requests))));
        }
        let content = match self.answer {
            Answer::Json(schema) => json!({"application/json": {"schema": schema(answers)}}),
            Answer::Events(schema) => json!({"text/event-stream": {"schema": schema(answers)}}),
            Answer::Bytes => json!({"application/octet-stream": {}}),
        };
        let mut operation = json!({
            "summary": self.summary,
            "parameters": parameters,
            "responses": {
                "200": {"description": "The answer.", "content": content},
                "default": {"$ref": "#/components/responses/Problem"},
            },
        });
        if let Some(body) = self.body {
            let content = json!({"application/json": {"schema": body(requests)}});
            operation["requestBody"] = json!({"required": true, "content": content});
        }
        operation
    }
}

/// The parameters in braces.
fn path_parameters(path: &str) -> impl Iterator<Item = Value> {
    let names = path.split('/').filter_map(|part| {
        let name = part.strip_prefix('{')?;
        name.strip_suffix('}')
    });
    names.map(
        |name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
    )
}

/// The fields of a query.
fn query_parameters(schema: &Value) -> Vec<Value> {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields = schema["properties"].as_object().into_iter().flatten();
    let parameter = |(name, field): (&String, &Value)| {
        json!({
            "name": name, "in": "query", "required": required.contains(&json!(name)),
            "description": field["description"].as_str().unwrap_or_default(), "schema": field,
        })
    };
    fields.map(parameter).collect()
}

/// All operations. A test compares them with the routes.
pub(super) fn operations() -> Vec<Operation> {
    let all = [data(), runs(), people(), edits(), chats()];
    all.into_iter().flatten().collect()
}

fn get(path: &'static str, summary: &'static str) -> Operation {
    Operation::new("get", path, summary)
}

fn post(path: &'static str, summary: &'static str) -> Operation {
    Operation::new("post", path, summary)
}

fn put(path: &'static str, summary: &'static str) -> Operation {
    Operation::new("put", path, summary)
}

fn delete(path: &'static str, summary: &'static str) -> Operation {
    Operation::new("delete", path, summary)
}

/// Lists, trajectories and comparisons.
fn data() -> Vec<Operation> {
    vec![
        get("/api/openapi.json", "This document"),
        get("/api/data", "The runs, or the one source that was opened").answer::<Vec<SourceInfo>>(),
        get("/api/data/{name}", "A page of the list")
            .query::<ListQuery>()
            .answer::<Page>(),
        get("/api/data/{name}/facets", "The values that filters offer").answer::<Vec<Facet>>(),
        get(
            "/api/data/{name}/changes",
            "The version of the list, whenever it changes",
        )
        .events::<ListState>(),
        get(
            "/api/data/{name}/{number}",
            "A trajectory, as its page shows it",
        )
        .query::<TurnQuery>()
        .answer::<View>(),
        get(
            "/api/data/{name}/{number}/raw",
            "Everything that is recorded of a trajectory",
        ),
        get("/api/data/{name}/files/{id}", "A file")
            .query::<FileQuery>()
            .bytes(),
        get("/api/data/{name}/files/{id}/page", "A part of a file")
            .query::<FilePageQuery>()
            .answer::<FilePage>(),
        get(
            "/api/data/{name}/files/{id}/frame",
            "An HTML file for a frame that may do nothing",
        )
        .bytes(),
        get("/api/compare", "Two runs on the same tasks")
            .query::<CompareQuery>()
            .answer::<Comparison>(),
        get("/api/compare/matrix", "Two to six runs on the same tasks")
            .query::<MatrixQuery>()
            .answer::<Matrix>(),
        get("/api/compare/pair", "Two trajectories side by side")
            .query::<PairQuery>()
            .answer::<PairView>(),
    ]
}

/// Runs and results.
fn runs() -> Vec<Operation> {
    vec![
        get("/api/events", "The list of runs, whenever it has changed").events::<Vec<SourceInfo>>(),
        get("/api/data/{name}/status", "How far a run is").answer::<RunStatus>(),
        get(
            "/api/data/{name}/events",
            "How far a run is, whenever that has changed",
        )
        .events::<RunStatus>(),
        post("/api/data/{name}/retry", "Make failed units pending again")
            .body::<RetryRequest>()
            .answer::<Vec<RetriedUnits>>(),
        get(
            "/api/data/{name}/recipe",
            "The recipe of a run, beside that of another one",
        )
        .query::<RecipeQuery>()
        .answer::<RecipeView>(),
        get("/api/data/{name}/statistics", "Statistics of a dataset").answer::<DatasetStatistics>(),
        get("/api/results", "Leaderboards").answer::<Results>(),
        get("/api/results/training", "Learning curves").answer::<Vec<TrainingRun>>(),
        get(
            "/api/results/training/events",
            "Learning curves, whenever they have grown",
        )
        .events::<Vec<TrainingRun>>(),
    ]
}

/// Decisions of people.
fn people() -> Vec<Operation> {
    vec![
        get(
            "/api/data/{name}/reviews",
            "Numbers of decisions, and agreement",
        )
        .answer::<ReviewSummary>(),
        get(
            "/api/data/{name}/reviews/events",
            "The same, whenever somebody has decided",
        )
        .events::<ReviewSummary>(),
        put("/api/data/{name}/{number}/review", "Decide on a trajectory")
            .body::<Review>()
            .answer::<Review>(),
        get(
            "/api/data/{name}/tasks",
            "The tasks of a run, before they are solved",
        )
        .query::<TaskQuery>()
        .answer::<TaskQueue>(),
        put("/api/data/{name}/tasks/{id}/review", "Decide on a task")
            .body::<TaskReview>()
            .answer::<TaskReview>(),
    ]
}

/// Edits of trajectories.
fn edits() -> Vec<Operation> {
    vec![
        get("/api/data/{name}/edits", "The saved edits of a run").answer::<Vec<EditInfo>>(),
        get(
            "/api/data/{name}/preferences",
            "Preference pairs of people, a JSON object in each line",
        )
        .bytes(),
        get("/api/data/{name}/{number}/edits/{id}", "A saved edit").answer::<View>(),
        post("/api/data/{name}/{number}/forks", "Begin to edit a turn")
            .body::<ForkRequest>()
            .answer::<ForkView>(),
        get("/api/agents", "The agents that can continue an edit").answer::<AgentList>(),
        get("/api/forks/{id}", "An edit that is open").answer::<ForkView>(),
        delete("/api/forks/{id}", "End the session of an edit"),
        post("/api/forks/{id}/turns", "Send turns")
            .body::<Turns>()
            .answer::<ForkView>(),
        post("/api/forks/{id}/back", "Take the last turns back")
            .body::<Back>()
            .answer::<ForkView>(),
        post("/api/forks/{id}/continue", "Let a model write turns")
            .body::<ContinueRequest>()
            .answer::<ForkView>(),
        post("/api/forks/{id}/stop", "Stop the model").answer::<ForkView>(),
        post(
            "/api/forks/{id}/save",
            "Save an edit that the checks accept",
        )
        .body::<SaveRequest>()
        .answer::<ForkView>(),
    ]
}

/// Conversations.
fn chats() -> Vec<Operation> {
    vec![
        get("/api/chats", "The agents, and the saved conversations").answer::<ChatList>(),
        post("/api/chats", "Open a conversation")
            .body::<ChatRequest>()
            .answer::<ChatView>(),
        get("/api/chats/{id}", "A conversation that is open")
            .query::<Known>()
            .answer::<ChatView>(),
        delete("/api/chats/{id}", "End the session of a conversation"),
        post("/api/chats/{id}/messages", "Send a message, or replace one").body::<Sent>(),
        post("/api/chats/{id}/retry", "Answer the last message again"),
        post("/api/chats/{id}/continue", "Let the model go on"),
        post("/api/chats/{id}/stop", "Stop the model"),
        post("/api/chats/{id}/grade", "Check the conversation"),
        post(
            "/api/chats/{id}/dataset",
            "Add the conversation to the dataset",
        ),
        get(
            "/api/chats/{id}/export/{form}",
            "The conversation as notebook, JSON or HTML",
        )
        .bytes(),
        get("/api/chats/{id}/file", "A file of the session")
            .query::<ChatFileQuery>()
            .bytes(),
        get(
            "/api/chats/{id}/file/page",
            "A part of a file of the session",
        )
        .query::<FilePageQuery>()
        .answer::<FilePage>(),
        get(
            "/api/chats/{id}/file/frame",
            "An HTML file of the session for a frame",
        )
        .query::<ChatFileQuery>()
        .bytes(),
        put("/api/chats/{id}/files", "Put a file into the session").body::<SentFile>(),
    ]
}

/// The document.
pub(crate) fn document() -> Value {
    let inline = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut requests = inline.into_generator();
    let named = SchemaSettings::draft2020_12().for_serialize();
    let named = named.with(|settings| settings.definitions_path = SCHEMAS.into());
    let mut answers = named.into_generator();
    let mut paths = Map::new();
    for operation in operations() {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = operation.described(&mut requests, &mut answers);
    }
    let problem = json!({"type": "object", "required": ["message"], "properties": {"message": {"type": "string"}}});
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "pybench studio",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs, trajectories, decisions and edits. See docs/studio-api.md.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "Problem": {
                    "description": "Why it was refused.",
                    "content": {"application/json": {"schema": problem}},
                },
            },
            "schemas": answers.take_definitions(true),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// The addresses of data in the routers of the sources in a folder.
    fn routes(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                routes(&path, found);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let calls = text.split(".route(").skip(1);
            let names =
                calls.filter_map(|call| call.trim_start().strip_prefix('"')?.split('"').next());
            let names = names.filter(|name| name.starts_with("/api/") && !name.contains("{*"));
            found.extend(names.map(str::to_owned));
        }
    }

    #[test]
    fn every_route_is_in_the_document() {
        let mut expected = BTreeSet::new();
        routes(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
            &mut expected,
        );
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let found: BTreeSet<String> = paths.keys().cloned().collect();
        assert_eq!(
            found, expected,
            "add the routes that are missing to `operations`, and remove those that are gone"
        );
    }

    #[test]
    fn answers_and_requests_have_their_types() {
        let document = document();
        let page = &document["paths"]["/api/data/{name}"]["get"];
        let answer = &page["responses"]["200"]["content"]["application/json"]["schema"];
        assert_eq!(answer["$ref"], "#/components/schemas/Page");
        let rows = &document["components"]["schemas"]["Page"]["properties"]["rows"];
        assert_eq!(rows["items"]["$ref"], "#/components/schemas/Row");
        let parameters = page["parameters"].as_array().unwrap();
        let names: Vec<&str> = parameters
            .iter()
            .filter_map(|one| one["name"].as_str())
            .collect();
        assert!(
            names.contains(&"name") && names.contains(&"min_tokens"),
            "{names:?}"
        );
        assert!(!names.contains(&"ids"), "{names:?}");
        let begin = &document["paths"]["/api/data/{name}/{number}/forks"]["post"];
        let body = &begin["requestBody"]["content"]["application/json"]["schema"];
        let required: Vec<&Value> = body["required"].as_array().unwrap().iter().collect();
        assert_eq!(required, ["trajectory", "turn", "editor"]);
        let message = &document["paths"]["/api/chats/{id}/messages"]["post"]["requestBody"];
        let required = &message["content"]["application/json"]["schema"]["required"];
        assert_eq!(*required, json!(["text"]));
        let part = &document["paths"]["/api/data/{name}/files/{id}/page"]["get"];
        let parameters = part["parameters"].as_array().unwrap();
        let has = |name: &str| parameters.iter().any(|one| one["name"] == name);
        assert!(has("from") && has("sheet"), "{part:#}");
        // Every reference leads somewhere.
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
    }

    #[test]
    fn every_route_is_in_the_documents() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let text = ["studio-api.md", "chat.md"].map(|name| {
            // A row of the table may leave out what is the same in the route before.
            let text = std::fs::read_to_string(docs.join(name)).unwrap();
            text.replace('…', "/api/chats/ID")
        });
        let text = text.concat();
        for operation in operations() {
            let upper = |part: &str| match part.strip_prefix('{') {
                Some(name) => name.trim_end_matches('}').to_uppercase(),
                None => part.to_owned(),
            };
            let path: Vec<String> = operation.path.split('/').map(upper).collect();
            let path = path.join("/");
            let is_named = text
                .match_indices(&path)
                .any(|(at, _)| text[at + path.len()..].starts_with(['`', '?']));
            assert!(is_named, "docs/studio-api.md does not name {path}");
        }
    }
}
