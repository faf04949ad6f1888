//! E2B's control plane: sandboxes are created, found, prolonged and killed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DAEMON_VERSION, time};
use crate::interpreter::service::Service;
use crate::interpreter::service::body;
use crate::interpreter::service::error::Refusal;
use crate::interpreter::service::guard::Client;
use crate::interpreter::service::registry::{Sandbox, Wish};

/// Life of a sandbox for which none is asked, seconds: the client's own default.
const LIFE: u64 = 300;
/// Most bytes of metadata and of variables of one sandbox.
const MAX_PAIRS: usize = 64 << 10;

/// What the client sends for a new sandbox; what else it sends is for machines that we have not.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct NewSandbox {
    /// Name of the template; all are the one environment.
    #[serde(rename = "templateID")]
    template_id: String,
    /// Seconds until it ends.
    timeout: Option<u64>,
    /// Kept and shown.
    #[serde(default)]
    metadata: BTreeMap<String, String>,
    /// Environment variables of its cells.
    #[serde(default)]
    env_vars: BTreeMap<String, String>,
}

/// A sandbox that was created.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Created {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "clientID")]
    client_id: String,
    envd_version: &'static str,
    /// Comes back with requests for files.
    envd_access_token: String,
    /// Comes back with requests for contexts.
    traffic_access_token: String,
}

/// A sandbox that lives.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct Detail {
    #[serde(rename = "templateID")]
    template_id: String,
    #[serde(rename = "sandboxID")]
    sandbox_id: String,
    #[serde(rename = "clientID")]
    client_id: String,
    started_at: String,
    end_at: String,
    envd_version: &'static str,
    cpu_count: u32,
    #[serde(rename = "memoryMB")]
    memory_mb: u64,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u64,
    state: &'static str,
    metadata: BTreeMap<String, String>,
}

/// Seconds from now.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in super::super) struct Timeout {
    timeout: u64,
}

/// Seconds from now, if the sandbox is to live longer.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in super::super) struct Connect {
    timeout: Option<u64>,
}

/// Which sandboxes are listed.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(in super::super) struct Filter {
    /// `key=value&…`, each quoted as in URLs, twice.
    metadata: Option<String>,
}

fn created(sandbox: &Sandbox) -> Created {
    Created {
        template_id: sandbox.wish.template.clone(),
        sandbox_id: sandbox.id.clone(),
        client_id: "pybench".to_owned(),
        envd_version: DAEMON_VERSION,
        envd_access_token: sandbox.token.clone(),
        traffic_access_token: sandbox.token.clone(),
    }
}

fn detail(sandbox: &Sandbox) -> Detail {
    Detail {
        template_id: sandbox.wish.template.clone(),
        sandbox_id: sandbox.id.clone(),
        client_id: "pybench".to_owned(),
        started_at: time::rfc3339(sandbox.started),
        end_at: time::rfc3339(sandbox.ends().unwrap_or(sandbox.started)),
        envd_version: DAEMON_VERSION,
        cpu_count: 1,
        memory_mb: sandbox.limits.memory_mib,
        disk_size_mb: sandbox.limits.memory_mib / 2,
        state: "running",
        metadata: sandbox.wish.metadata.clone(),
    }
}

/// Start a sandbox.
pub(in super::super) async fn create(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    body::Json(new): body::Json<NewSandbox>,
) -> Result<(StatusCode, Json<Created>), Refusal> {
    let pairs = new.metadata.iter().chain(&new.env_vars);
    if pairs
        .map(|(key, value)| key.len() + value.len())
        .sum::<usize>()
        > MAX_PAIRS
    {
        return Err(Refusal::bad(format!(
            "metadata and envVars: more than {MAX_PAIRS} bytes"
        )));
    }
    let longest = service.options.longest;
    let wish = Wish {
        // The client's own time-out ends a cell, by leaving; here its sandbox's life does.
        cell_seconds: Some(longest.as_secs()),
        ends: Some(life(new.timeout.unwrap_or(LIFE), longest)?),
        metadata: new.metadata,
        variables: new.env_vars,
        template: new.template_id.chars().take(200).collect(),
        ..Wish::default()
    };
    let sandbox = service.registry.create(&client, wish).await?;
    Ok((StatusCode::CREATED, Json(created(&sandbox))))
}

fn life(seconds: u64, longest: Duration) -> Result<Duration, Refusal> {
    let life = Duration::from_secs(seconds);
    match life <= longest {
        true => Ok(life),
        false => Err(Refusal::bad(format!(
            "timeout: at most {} seconds here",
            longest.as_secs()
        ))),
    }
}

/// The client's sandboxes.
pub(in super::super) async fn list(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Query(filter): Query<Filter>,
) -> Json<Vec<Detail>> {
    let wanted = pairs(filter.metadata.as_deref().unwrap_or_default());
    let matches = |sandbox: &Sandbox| {
        let has = |(key, value): &(String, String)| sandbox.wish.metadata.get(key) == Some(value);
        sandbox.ends().is_some() && wanted.iter().all(has)
    };
    let all = service.registry.all_of(&client);
    let found = all.iter().filter(|sandbox| matches(sandbox));
    Json(found.map(|sandbox| detail(sandbox)).collect())
}

fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        Some((unquote(&unquote(key)), unquote(&unquote(value))))
    };
    text.split('&').filter_map(pair).collect()
}

/// Take `%xx` back.
fn unquote(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let pair = after.get(..2).filter(|_| first == b'%');
        let value = pair
            .and_then(|pair| std::str::from_utf8(pair).ok())
            .filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|pair| u8::from_str_radix(pair, 16).ok());
        bytes.push(value.unwrap_or(first));
        rest = if value.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One sandbox.
pub(in super::super) async fn show(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<Json<Detail>, Refusal> {
    Ok(Json(detail(&*service.registry.of(&client, &id)?)))
}

/// Give a client that knows a sandbox's id its token, and let it live longer if that is asked.
pub(in super::super) async fn connect(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    body::Json(request): body::Json<Connect>,
) -> Result<Json<Created>, Refusal> {
    let sandbox = service.registry.of(&client, &id)?;
    let life = life(request.timeout.unwrap_or(LIFE), service.options.longest)?;
    let until = std::time::SystemTime::now() + life;
    if sandbox.ends().is_some_and(|ends| ends < until) {
        sandbox.ends_in(life);
    }
    Ok(Json(created(&sandbox)))
}

/// Set how long a sandbox lives from now.
pub(in super::super) async fn set_timeout(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    body::Json(request): body::Json<Timeout>,
) -> Result<StatusCode, Refusal> {
    let sandbox = service.registry.of(&client, &id)?;
    sandbox.ends_in(life(request.timeout, service.options.longest)?);
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_comes_quoted_twice() {
        let expected = [
            ("a b".to_owned(), "x&y=中".to_owned()),
            ("c".to_owned(), String::new()),
        ];
        assert_eq!(pairs("a%2520b=x%2526y%253D%25E4%25B8%25AD&c="), expected);
        assert_eq!(pairs(""), []);
    }

    #[test]
    fn fuzz_metadata() {
        bolero::check!()
            .with_type::<String>()
            .for_each(|text: &String| {
                pairs(text);
            });
    }
}
