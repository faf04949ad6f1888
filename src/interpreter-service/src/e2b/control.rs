//! E2B's control plane: creates, lists, extends and kills sandboxes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DAEMON_VERSION;
use crate::Service;
use crate::body;
use crate::error::ApiError;
use crate::guard::Client;
use crate::registry::{Sandbox, SandboxSpec};
use pybench_types::clock;

/// Default lifetime of a sandbox, seconds: the same as the client's.
const DEFAULT_LIFETIME: u64 = 300;
/// Maximum size of the metadata and variables of a sandbox, bytes.
const MAX_PAIRS: usize = 64 << 10;

/// Parameters of a new sandbox; other parameters of E2B are ignored.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct NewSandbox {
    /// Name of the template; all templates have the same environment.
    #[serde(rename = "templateID")]
    template_id: String,
    /// Lifetime, seconds.
    timeout: Option<u64>,
    /// Metadata, returned when sandboxes are listed.
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
    /// Token for requests to files.
    envd_access_token: String,
    /// Token for requests to contexts.
    traffic_access_token: String,
}

/// A running sandbox.
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

/// Remaining lifetime, seconds.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in super::super) struct Timeout {
    timeout: u64,
}

/// Minimum remaining lifetime, seconds.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in super::super) struct Connect {
    timeout: Option<u64>,
}

/// Filter of the list of sandboxes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(in super::super) struct Filter {
    /// `key=value&…`, with keys and values URL-encoded twice.
    metadata: Option<String>,
}

fn created(sandbox: &Sandbox) -> Created {
    Created {
        template_id: sandbox.spec.template.clone(),
        sandbox_id: sandbox.id.clone(),
        client_id: "pybench".to_owned(),
        envd_version: DAEMON_VERSION,
        envd_access_token: sandbox.token.clone(),
        traffic_access_token: sandbox.token.clone(),
    }
}

fn detail(sandbox: &Sandbox) -> Detail {
    Detail {
        template_id: sandbox.spec.template.clone(),
        sandbox_id: sandbox.id.clone(),
        client_id: "pybench".to_owned(),
        started_at: clock::rfc3339(sandbox.started),
        end_at: clock::rfc3339(sandbox.ends().unwrap_or(sandbox.started)),
        envd_version: DAEMON_VERSION,
        cpu_count: 1,
        memory_mb: sandbox.limits.memory_mib,
        disk_size_mb: sandbox.limits.memory_mib / 2,
        state: "running",
        metadata: sandbox.spec.metadata.clone(),
    }
}

/// Starts a sandbox.
pub(in super::super) async fn create(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    body::Json(new): body::Json<NewSandbox>,
) -> Result<(StatusCode, Json<Created>), ApiError> {
    let pairs = new.metadata.iter().chain(&new.env_vars);
    if pairs
        .map(|(key, value)| key.len() + value.len())
        .sum::<usize>()
        > MAX_PAIRS
    {
        return Err(ApiError::bad(format!(
            "metadata and envVars have more than {MAX_PAIRS} bytes"
        )));
    }
    let longest = service.options.longest;
    let spec = SandboxSpec {
        // E2B's client disconnects to stop a cell; otherwise only the sandbox's lifetime limits it.
        cell_seconds: Some(longest.as_secs()),
        ends: Some(life(new.timeout.unwrap_or(DEFAULT_LIFETIME), longest)?),
        metadata: new.metadata,
        variables: new.env_vars,
        template: new.template_id.chars().take(200).collect(),
        ..SandboxSpec::default()
    };
    let sandbox = service.registry.create(&client, spec).await?;
    Ok((StatusCode::CREATED, Json(created(&sandbox))))
}

fn life(seconds: u64, longest: Duration) -> Result<Duration, ApiError> {
    let life = Duration::from_secs(seconds);
    match life <= longest {
        true => Ok(life),
        false => Err(ApiError::bad(format!(
            "timeout: this service allows at most {} seconds",
            longest.as_secs()
        ))),
    }
}

/// Lists the client's sandboxes.
pub(in super::super) async fn list(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Query(filter): Query<Filter>,
) -> Json<Vec<Detail>> {
    let wanted = pairs(filter.metadata.as_deref().unwrap_or_default());
    let matches = |sandbox: &Sandbox| {
        let has = |(key, value): &(String, String)| sandbox.spec.metadata.get(key) == Some(value);
        sandbox.ends().is_some() && wanted.iter().all(has)
    };
    let all = service.registry.client_sandboxes(&client);
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

/// Decodes `%xx`.
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

/// Describes a sandbox.
pub(in super::super) async fn show(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<Json<Detail>, ApiError> {
    Ok(Json(detail(
        &*service.registry.client_sandbox(&client, &id)?,
    )))
}

/// Returns the token of a sandbox to its client, and extends its lifetime if requested.
pub(in super::super) async fn connect(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    body::Json(request): body::Json<Connect>,
) -> Result<Json<Created>, ApiError> {
    let sandbox = service.registry.client_sandbox(&client, &id)?;
    let life = life(
        request.timeout.unwrap_or(DEFAULT_LIFETIME),
        service.options.longest,
    )?;
    let until = std::time::SystemTime::now() + life;
    if sandbox.ends().is_some_and(|ends| ends < until) {
        sandbox.ends_in(life);
    }
    Ok(Json(created(&sandbox)))
}

/// Sets the remaining lifetime of a sandbox.
pub(in super::super) async fn set_timeout(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    body::Json(request): body::Json<Timeout>,
) -> Result<StatusCode, ApiError> {
    let sandbox = service.registry.client_sandbox(&client, &id)?;
    sandbox.ends_in(life(request.timeout, service.options.longest)?);
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_decoded_twice() {
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
