//! The routes of the studio, over a dataset or over two evaluations.

mod access;
mod data;
mod evaluations;
mod events;
mod files;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use pybench_show::TrajectorySource;
use pybench_types::id::Digest;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::router;
use crate::access::Token;
use crate::chat::chats::{ChatPlace, Chats};
use crate::edit::forks::{EditPlace, Forks};
use crate::model_choice::ModelPlace;
use crate::shared_models::SharedModels;
use crate::sources::{Sources, What};

struct Studio {
    folder: tempfile::TempDir,
    app: Router,
    token: Token,
    file: Digest,
}

fn models(folder: &std::path::Path) -> Arc<SharedModels> {
    Arc::new(SharedModels::new(folder.to_owned()))
}

/// A project without agents.
fn model_place(folder: &std::path::Path) -> ModelPlace {
    ModelPlace {
        root: folder.to_owned(),
        recipe: folder.join("no-recipe.toml"),
        runs_dir: folder.join("no-runs"),
        history: folder.join("chat"),
        may_name: true,
    }
}

/// Conversations in a folder, without agents.
fn chats(folder: &std::path::Path) -> Arc<Chats> {
    let place = ChatPlace {
        models: model_place(folder),
        profile: None,
    };
    Arc::new(Chats::new(place, models(folder)))
}

/// Edits without models.
fn forks(folder: &std::path::Path) -> Arc<Forks> {
    let place = EditPlace {
        models: model_place(folder),
        replies: folder.join("replies"),
        drafts: folder.join("drafts"),
    };
    Arc::new(Forks::new(place, models(folder)))
}

/// A studio of a dataset with one row and one file.
fn studio() -> Studio {
    let folder = tempfile::tempdir().unwrap();
    let file = Digest::of_bytes(b"<script>");
    let row = json!({"messages": [
        {"role": "user", "content": "Count."}, {"role": "assistant", "content": "One."}]});
    let dataset = folder.path().join("d");
    std::fs::create_dir_all(dataset.join("files")).unwrap();
    std::fs::write(dataset.join("train.jsonl"), row.to_string()).unwrap();
    std::fs::write(dataset.join("files").join(file.as_str()), "<script>").unwrap();
    let source = TrajectorySource::Dataset(dataset);
    let what = What::One {
        name: "d".into(),
        source,
    };
    let sources = Arc::new(Sources::new(what, folder.path().join("cache")));
    let token = Token::new(80);
    let (forks, chats) = (forks(folder.path()), chats(folder.path()));
    let app = router(sources, forks, chats, token.clone());
    Studio {
        folder,
        app,
        token,
        file,
    }
}

/// A studio of two evaluations of the same three tasks.
fn evaluations() -> Studio {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    for (name, second) in [("x", Some(true)), ("y", Some(false))] {
        let run = runs.join(name);
        std::fs::create_dir_all(&run).unwrap();
        let attempts = [("m", "1", Some(true)), ("m", "2", second), ("m", "3", None)];
        crate::evaluation::tests::write(&run, &attempts);
    }
    let sources = Sources::new(What::Runs(runs), folder.path().join("cache"));
    let token = Token::new(80);
    let (forks, chats) = (forks(folder.path()), chats(folder.path()));
    Studio {
        folder,
        app: router(Arc::new(sources), forks, chats, token.clone()),
        token,
        file: Digest::of_bytes(b""),
    }
}

impl Studio {
    async fn ask(&self, path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, String) {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = self.app.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, headers, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(&self, path: &str) -> (StatusCode, HeaderMap, String) {
        let bearer = format!("Bearer {}", self.token.text());
        self.ask(path, &[("authorization", &bearer)]).await
    }

    /// Puts JSON with the token in a header, and these headers.
    async fn put(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> (StatusCode, Value) {
        let mut request = Request::put(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        let response = self.app.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn json(&self, path: &str) -> Value {
        let (status, _, body) = self.get(path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The id of a trajectory.
    async fn id(&self, path: &str) -> String {
        let view = self.json(path).await;
        view["row"]["id"].as_str().unwrap().to_owned()
    }
}

fn decision(trajectory: &str, reviewer: &str, decision: Value) -> Value {
    json!({"trajectory": trajectory, "reviewer": reviewer, "decision": decision, "label": "", "comment": ""})
}
