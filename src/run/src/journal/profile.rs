//! Profiles: where a run keeps its state. A recipe says what the run does.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::PostgresServer;
use super::temporal_server::TemporalServer;
use crate::RunError;
use crate::store::ObjectServer;

/// A profile file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Server that holds the journals.
    pub postgres: PostgresServer,
    /// Bucket that holds files and artifacts; without it, they are in the run folder alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<ObjectServer>,
    /// Server that distributes units to workers; without it, they ask the journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporal: Option<TemporalServer>,
    /// How workers share a run.
    #[serde(default, skip_serializing_if = "WorkerSettings::is_default")]
    pub workers: WorkerSettings,
}

/// The queue of a run: a server, and the name that the run has in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunQueue {
    pub server: TemporalServer,
    /// No other run has this name.
    pub run: String,
    /// Time after which a unit whose process is silent is delivered again.
    pub lease: Duration,
}

/// How the processes that work on a run share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerSettings {
    /// Maximum number of workers beside the coordinator. Rate limits of the recipe are divided by the number of all
    /// processes; without this key, workers cannot join a run whose recipe has rate limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Seconds after which the unit of a worker that is silent goes on elsewhere.
    pub lease_seconds: u32,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            max: None,
            lease_seconds: 120,
        }
    }
}

impl WorkerSettings {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Duration of a lease.
    pub fn lease(&self) -> Duration {
        Duration::from_secs(self.lease_seconds.into())
    }

    /// Maximum number of processes that work on a run: the coordinator and its workers.
    pub fn processes(&self) -> u32 {
        self.max.map_or(1, |max| max.saturating_add(1))
    }
}

impl Profile {
    /// Reads a profile; paths in it are relative to its folder.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if it is missing or wrong.
    pub fn load(path: &Path) -> Result<Self, RunError> {
        let wrong = |reason: String| {
            RunError::BadInput(format!(
                "profile {}: {reason}; `pybench cluster up` writes one",
                path.display()
            ))
        };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let mut profile: Self = toml::from_str(&text)
            .map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
        profile
            .postgres
            .check()
            .map_err(|error| wrong(error.to_string()))?;
        if profile.workers.lease_seconds == 0 {
            return Err(wrong(
                "workers.lease_seconds: a lease lasts at least 1 second".to_owned(),
            ));
        }
        if let Some(store) = &profile.store {
            store.check().map_err(|error| wrong(error.to_string()))?;
        }
        if let Some(temporal) = &profile.temporal {
            temporal.check().map_err(|error| wrong(error.to_string()))?;
        }
        let secret = profile.store.as_mut();
        let secret = secret.and_then(|store| store.secret_key_file.as_mut());
        let temporal = profile.temporal.as_mut();
        let temporal = temporal.into_iter().flat_map(TemporalServer::files_mut);
        let postgres = profile.postgres.files_mut().into_iter();
        for file in postgres.chain([secret]).chain(temporal).flatten() {
            if let Some(folder) = path.parent() {
                *file = folder.join(&*file);
            }
        }
        Ok(profile)
    }
}
