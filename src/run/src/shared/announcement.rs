//! What the coordinator says about a round, and why a worker wants it to stop. Both are metadata of the journal.

use std::fs::File;
use std::sync::OnceLock;
use std::time::Duration;

use pybench_types::id::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::new_id;
use crate::artifact_names::TASKS;
use crate::{BudgetCap, ExecutorOptions, Journal, RunError, RunFolder, Stage};

/// Key of the announcement.
const ROUND: &str = "round";

/// Key of the reason to stop.
const STOP: &str = "round.stop";

/// A round of units of one stage, with all that a worker must agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    pub id: String,
    /// Stage name.
    pub stage: String,
    /// Digest of the program.
    pub code: Digest,
    /// [`Stage::version`] of the coordinator.
    pub stage_version: String,
    /// Digest of the frozen recipe.
    pub recipe: Digest,
    /// Digest of what the journal records about `tasks.jsonl`.
    pub tasks: Digest,
    /// What the whole run may spend.
    pub budget: BudgetCap,
    /// Attempts at a unit before it counts as failed.
    pub attempts: u32,
    /// Maximum duration of an attempt.
    #[serde(default)]
    pub unit_limit: Option<Duration>,
    /// Whether the units are in a [`UnitQueue`](super::UnitQueue); otherwise, the journal is asked for the next one.
    #[serde(default)]
    pub is_queued: bool,
}

impl Round {
    pub(super) fn new(
        folder: &RunFolder,
        stage: &dyn Stage,
        (options, is_queued): (&ExecutorOptions, bool),
    ) -> Result<Self, RunError> {
        let tasks = folder.journal().metadata(&format!("checksum.{TASKS}"))?;
        Ok(Self {
            id: new_id(),
            stage: stage.name().to_owned(),
            code: program_digest()?,
            stage_version: stage.version(),
            recipe: Digest::of_bytes(folder.frozen_recipe()?.as_bytes()),
            tasks: Digest::of_json(&tasks),
            budget: options.budget,
            attempts: options.attempts,
            unit_limit: options.unit_limit,
            is_queued,
        })
    }

    /// The round that workers may join; `None` if there is none.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn announced(journal: &Journal) -> Result<Option<Self>, RunError> {
        match journal.metadata(ROUND)? {
            None => Ok(None),
            Some(value) => Ok(serde_json::from_value(value)?),
        }
    }

    pub(super) fn announce(&self, journal: &Journal) -> Result<(), RunError> {
        journal.set_metadata(ROUND, &serde_json::to_value(self)?)
    }

    /// Ends the round for workers that have not begun another unit.
    pub(super) fn withdraw(journal: &Journal) -> Result<(), RunError> {
        journal.set_metadata(ROUND, &Value::Null)?;
        journal.clear_offers()
    }

    /// Digest of what a process must have in common with the coordinator to take units: the program, the environment or the
    /// checker, and the recipe.
    pub fn version(&self) -> Digest {
        Digest::of_json(&(&self.code, &self.stage_version, &self.recipe))
    }

    /// Whether a stage that was built for `other` has the same units and makes the same outputs.
    pub fn has_stage_of(&self, other: &Self) -> bool {
        let own = Self {
            id: other.id.clone(),
            ..self.clone()
        };
        own == *other
    }

    /// Why this program cannot take units of the round; `None` if it can. `stage_version` is that of the stage here.
    ///
    /// # Errors
    /// The program's file cannot be read.
    pub fn differs(&self, stage_version: Option<&str>) -> Result<Option<String>, RunError> {
        let code = program_digest()?;
        if code != self.code {
            return Ok(Some(format!(
                "the coordinator runs another version of pybench (digest {}, here {}): start the worker with the same \
                 program",
                self.code.short(),
                code.short()
            )));
        }
        Ok(stage_version
            .filter(|version| *version != self.stage_version)
            .map(|version| {
                format!(
                    "the coordinator has another Python environment or checker for the stage {} ({}, here {version}): \
                     run `pybench setup` with the same version on both",
                    self.stage, self.stage_version
                )
            }))
    }
}

/// Why a round ends early: every other unit would fail in the same way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StopReason {
    round: String,
    kind: StopKind,
    detail: String,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StopKind {
    Budget,
    Endpoint,
    Store,
}

impl StopReason {
    pub(super) fn new(round: &str, reason: &RunError) -> Self {
        let kind = match reason {
            RunError::Budget(_) => StopKind::Budget,
            RunError::StoreRefused(_) => StopKind::Store,
            _ => StopKind::Endpoint,
        };
        Self {
            round: round.to_owned(),
            kind,
            detail: reason.to_string(),
        }
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    pub(super) fn record(&self, journal: &Journal) -> Result<(), RunError> {
        journal.set_metadata(STOP, &serde_json::to_value(self)?)
    }

    /// The reason that a process has found in this round.
    pub(super) fn recorded(journal: &Journal, round: &str) -> Result<Option<Self>, RunError> {
        let Some(value) = journal.metadata(STOP)? else {
            return Ok(None);
        };
        let reason: Self = serde_json::from_value(value)?;
        Ok((reason.round == round).then_some(reason))
    }
}

impl From<StopReason> for RunError {
    fn from(reason: StopReason) -> Self {
        match reason.kind {
            StopKind::Budget => Self::Budget(reason.detail),
            StopKind::Endpoint => Self::Endpoint(reason.detail),
            StopKind::Store => Self::StoreRefused(reason.detail),
        }
    }
}

/// Digest of the program that runs, also if its file was replaced since.
pub(super) fn program_digest() -> Result<Digest, RunError> {
    static DIGEST: OnceLock<Digest> = OnceLock::new();
    if let Some(digest) = DIGEST.get() {
        return Ok(digest.clone());
    }
    let program = File::open("/proc/self/exe").map_err(RunError::io("/proc/self/exe"))?;
    let digest = Digest::of_reader(program).map_err(RunError::io("/proc/self/exe"))?;
    Ok(DIGEST.get_or_init(|| digest).clone())
}
