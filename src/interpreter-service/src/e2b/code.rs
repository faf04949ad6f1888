//! The interpreter of a sandbox for E2B's client: cells as a stream of lines, and contexts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures::StreamExt;
use futures::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{E2B_HOME, WORKSPACE, charts};
use crate::Service;
use crate::body;
use crate::error::ApiError;
use crate::events;
use crate::events::CellEvent;
use crate::kernel::{HiddenCode, Kernel};
use crate::registry::{Sandbox, reset_variables, set_variables};
use pybench_types::observation::{CellError, Output};

/// A cell to run.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in super::super) struct RunRequest {
    /// Python code.
    code: String,
    /// The context in which the cell runs [default: the default context].
    #[serde(default)]
    context_id: Option<String>,
    /// Only `python` is supported.
    #[serde(default)]
    language: Option<String>,
    /// Environment variables for this cell.
    #[serde(default)]
    env_vars: Option<BTreeMap<String, String>>,
}

/// Parameters of a new context.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in super::super) struct NewContext {
    /// Only `python` is supported.
    #[serde(default)]
    language: Option<String>,
    /// Working directory.
    #[serde(default)]
    cwd: Option<String>,
}

/// A context: an interpreter in the sandbox's workspace.
#[derive(Debug, Serialize, JsonSchema)]
pub(in super::super) struct Context {
    id: String,
    language: &'static str,
    cwd: String,
}

fn python_only(language: Option<&str>) -> Result<(), ApiError> {
    match language {
        None | Some("python" | "python3") => Ok(()),
        Some(other) => Err(ApiError::bad(format!(
            "language {other:.40?}: only python is supported"
        ))),
    }
}

/// Runs a cell and streams its outputs.
pub(in super::super) fn run(sandbox: &Sandbox, request: RunRequest) -> Result<Response, ApiError> {
    python_only(request.language.as_deref())?;
    // E2B's clients name the default context by its language or not at all.
    let named = request.context_id.as_deref();
    let kernel = sandbox.kernel(named.filter(|id| !matches!(*id, "python" | "default")))?;
    let variables = request.env_vars.filter(|variables| !variables.is_empty());
    let hidden = variables.map(|variables| HiddenCode {
        before: set_variables(&variables),
        after: reset_variables(&variables, &sandbox.spec.variables),
    });
    let steps = events::follow(kernel, request.code, hidden);
    let lines = steps.scan(None, |chart, event| {
        futures::future::ready(Some(stream::iter(lines(event, chart))))
    });
    Ok(events::lines(lines.flatten()))
}

/// Converts an event into lines for the client. A figure's data precedes its image; `chart` holds it until
/// then.
fn lines(event: CellEvent, chart: &mut Option<Value>) -> Vec<Value> {
    match event {
        CellEvent::Output(Output::Stream { name, text }) => {
            vec![json!({"type": name, "text": text, "timestamp": now()})]
        }
        CellEvent::Output(Output::Chart { path: None, figure }) => {
            *chart = charts::chart(&figure.value());
            Vec::new()
        }
        CellEvent::Output(Output::Chart { .. }) => Vec::new(),
        CellEvent::Output(Output::Result { data }) => vec![result(data, true, chart)],
        CellEvent::Output(Output::Display { data }) => vec![result(data, false, chart)],
        CellEvent::End(Ok(finished)) => {
            let count = json!({"type": "number_of_executions", "execution_count": finished.count});
            let error = finished.observation.error.map(|error| failure(&error));
            let end = json!({"type": "end_of_execution"});
            [Some(count), error, Some(end)]
                .into_iter()
                .flatten()
                .collect()
        }
        CellEvent::End(Err(error)) => vec![failure(&CellError {
            ename: "SandboxError".to_owned(),
            traceback: format!("SandboxError: {}", error.message),
            evalue: error.message,
        })],
    }
}

fn failure(error: &CellError) -> Value {
    json!({
        "type": "error",
        "name": error.ename,
        "value": error.evalue,
        "traceback": error.traceback,
    })
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The client's names for MIME types; other types go into `extra`.
const FORMATS: [(&str, &str); 10] = [
    ("text/plain", "text"),
    ("text/html", "html"),
    ("text/markdown", "markdown"),
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("application/pdf", "pdf"),
    ("text/latex", "latex"),
    ("application/json", "json"),
    ("application/javascript", "javascript"),
];

fn result(mut data: BTreeMap<String, String>, main: bool, chart: &mut Option<Value>) -> Value {
    let mut line = Map::new();
    line.insert("type".to_owned(), "result".into());
    line.insert("is_main_result".to_owned(), main.into());
    if data.contains_key("image/png")
        && let Some(chart) = chart.take()
    {
        line.insert("chart".to_owned(), chart);
    }
    for (mime, name) in FORMATS {
        let Some(content) = data.remove(mime) else {
            continue;
        };
        let value = match name {
            // E2B returns a string itself instead of its `repr`.
            "text" => unquoted(&content).into(),
            "json" => serde_json::from_str(&content).unwrap_or(Value::String(content)),
            _ => content.into(),
        };
        line.insert(name.to_owned(), value);
    }
    if !data.is_empty() {
        line.insert("extra".to_owned(), json!(data));
    }
    line.into()
}

fn unquoted(text: &str) -> &str {
    let inner = text
        .strip_prefix('\'')
        .and_then(|text| text.strip_suffix('\''));
    inner.unwrap_or(text)
}

fn context(kernel: &Kernel) -> Context {
    Context {
        id: kernel.id.clone(),
        language: "python",
        cwd: kernel.cwd.clone(),
    }
}

pub(in super::super) async fn create_context(
    State(service): State<Arc<Service>>,
    Extension(sandbox): Extension<Arc<Sandbox>>,
    body::Json(new): body::Json<NewContext>,
) -> Result<Json<Context>, ApiError> {
    python_only(new.language.as_deref())?;
    let cwd = new.cwd.as_deref().unwrap_or(WORKSPACE);
    let cwd = match cwd.strip_prefix(E2B_HOME) {
        Some(below) if below.is_empty() || below.starts_with('/') => format!("{WORKSPACE}{below}"),
        _ => cwd.to_owned(),
    };
    let kernel = service.registry.add_context(&sandbox, &cwd).await?;
    Ok(Json(context(&kernel)))
}

/// Lists the sandbox's contexts, the default one first.
pub(in super::super) async fn list_contexts(
    Extension(sandbox): Extension<Arc<Sandbox>>,
) -> Json<Vec<Context>> {
    Json(
        sandbox
            .kernels()
            .iter()
            .map(|kernel| context(kernel))
            .collect(),
    )
}

pub(in super::super) async fn remove_context(
    Extension(sandbox): Extension<Arc<Sandbox>>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    sandbox.remove(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Restarts a context without its variables.
pub(in super::super) async fn restart_context(
    Extension(sandbox): Extension<Arc<Sandbox>>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    sandbox.kernel(Some(&id))?.restart().await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_become_results() {
        let data = [
            ("text/plain", "'it'"),
            ("application/json", "{\"a\": 1}"),
            ("image/png", "QUJD"),
            ("application/x-own", "?"),
        ];
        let data: BTreeMap<_, _> = data.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let mut chart = Some(json!({"type": "line"}));
        let line = result(data.clone(), true, &mut chart);
        let expected = json!({
            "type": "result", "is_main_result": true, "chart": {"type": "line"}, "text": "it",
            "png": "QUJD", "json": {"a": 1}, "extra": {"application/x-own": "?"},
        });
        assert_eq!(line, expected);
        assert!(chart.is_none() && result(data, true, &mut chart).get("chart").is_none());
    }

    #[test]
    fn fuzz_run_requests() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = body::parse::<RunRequest>(bytes);
            let _ = body::parse::<NewContext>(bytes);
        });
    }
}
