//! Failed units that a person wants to be tried again, alone and at once.

use std::collections::BTreeMap;

use serde_json::Value;

use super::announcement::Round;
use super::new_id;
use crate::{FailureKind, Journal, RunError};

/// Where the journal has an id of the last request that offered units.
const RETRY: &str = "round.retry";

/// Failed units of a stage that are pending again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retried {
    pub stage: String,
    pub units: u64,
    /// Whether they are offered to the processes that work on the stage now; otherwise, the next command makes them.
    pub offered: bool,
}

/// Makes failed units pending again: of one stage and of one kind of failure, if these are given.
///
/// # Errors
/// The journal cannot be accessed.
pub fn retry_failed(
    journal: &Journal,
    stage: Option<&str>,
    kind: Option<FailureKind>,
) -> Result<Vec<Retried>, RunError> {
    let mut items: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for unit in journal.failures()? {
        let is_wanted = stage.is_none_or(|stage| stage == unit.stage)
            && kind.is_none_or(|kind| kind == unit.failure.kind);
        if unit.last && is_wanted {
            items.entry(unit.stage).or_default().push(unit.item);
        }
    }
    let round = Round::announced(journal)?;
    let mut retried = Vec::new();
    for (stage, items) in items {
        let units = journal.retry_items(&stage, &items)?;
        let round = round.as_ref().filter(|round| round.stage == stage);
        if let Some(round) = round {
            journal.offer(&round.id, &stage, &items)?;
            journal.set_metadata(RETRY, &Value::String(new_id()))?;
        }
        retried.push(Retried {
            offered: round.is_some(),
            stage,
            units,
        });
    }
    Ok(retried)
}

/// What tells the last request that offered units from those before it. Their queue lacks these units until the coordinator
/// puts them.
pub(super) fn last_retry(journal: &Journal) -> Result<Option<Value>, RunError> {
    journal.metadata(RETRY)
}
