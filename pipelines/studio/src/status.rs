//! How far a run is: each stage with its throughput, the cost now and at the end, and failures by kind.

use std::path::Path;

use pybench_eval::run::EvalRecipe;
use pybench_run::artifacts::stage::ROLLOUT;
use pybench_run::run_selection::RunSelection;
use pybench_run::{BudgetCap, Recipe};
use pybench_synthesize::status::{Count, Funnel, StageStatus};
use pybench_types::text::cut;
use schemars::JsonSchema;
use serde::Serialize;

use crate::runs::{self, SourceInfo};

/// Maximum number of characters of an example.
const MAX_EXAMPLE: usize = 500;

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct RunStatus {
    pub(crate) info: SourceInfo,
    pub(crate) stages: Vec<StageView>,
    /// Requests that are not answered, and what limits their number; empty if no process works on the run.
    pub(crate) in_flight: String,
    /// Number of workers that have joined.
    pub(crate) workers: u64,
    /// What the run will have cost if what is left costs as much as what is done; `None` if nothing is left, or nothing was
    /// paid.
    pub(crate) expected_micro_usd: Option<u64>,
    /// The budget of the recipe.
    pub(crate) budget_micro_usd: Option<u64>,
    /// Failures that are none of the model's, the most frequent first.
    pub(crate) failures: Vec<FailureCount>,
    /// Why trajectories were rejected, the most frequent reason first.
    pub(crate) rejections: Vec<RejectionCount>,
    /// The command that continues the run and retries; empty if no command line is known.
    pub(crate) command: String,
}

/// Units of a stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct StageView {
    pub(crate) stage: String,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) pending: u64,
    /// Total time over all restarts.
    pub(crate) seconds: f64,
    /// Units that ended each minute, over that time.
    pub(crate) per_minute: Option<f64>,
    /// Units that ended in the last minute, while the page follows the run.
    pub(crate) last_minute: Option<f64>,
}

/// A kind of failure.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct FailureCount {
    /// Stage and kind, such as `rollout/endpoint/rate_limited`.
    pub(crate) what: String,
    pub(crate) count: u64,
    pub(crate) retry: Retry,
    pub(crate) examples: Vec<String>,
}

/// How a failed unit is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Retry {
    /// It is pending again.
    Pending,
    /// The command of the run retries it.
    Command,
    /// The item is bad: the command retries it with `--retry-failed` only.
    Flag,
}

/// A reason for which trajectories were rejected.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct RejectionCount {
    pub(crate) what: String,
    pub(crate) count: u64,
    pub(crate) examples: Vec<String>,
}

/// How far the run in a folder is.
pub(crate) fn status(name: &str, folder: &Path) -> RunStatus {
    match runs::read(name, folder) {
        Ok((info, funnel)) => of_funnel(folder, info, &funnel),
        Err(error) => RunStatus {
            info: runs::unreadable(name, &error),
            ..RunStatus::default()
        },
    }
}

fn of_funnel(folder: &Path, info: SourceInfo, funnel: &Funnel) -> RunStatus {
    let is_evaluation = info.kind == "evaluation";
    let goal = Goal::of(folder, is_evaluation);
    let selection = RunSelection::of(folder).filter(|_| !is_evaluation);
    let in_flight = funnel.in_flight.as_ref().map(ToString::to_string);
    RunStatus {
        stages: funnel.stages.iter().map(StageView::from).collect(),
        in_flight: in_flight.unwrap_or_default(),
        workers: funnel.workers.len() as u64,
        expected_micro_usd: expected_cost(funnel, goal.accept),
        budget_micro_usd: goal.micro_usd,
        failures: funnel.failures.iter().map(FailureCount::from).collect(),
        rejections: funnel.rejected.iter().map(RejectionCount::from).collect(),
        command: selection.map_or_else(String::new, |selection| selection.command("synthesize")),
        info,
    }
}

/// What the recipe of a run asks for.
#[derive(Default)]
struct Goal {
    /// Number of rows.
    accept: Option<u64>,
    micro_usd: Option<u64>,
}

impl Goal {
    /// Nothing, if the recipe cannot be read.
    fn of(folder: &Path, is_evaluation: bool) -> Self {
        let path = folder.join("recipe.toml");
        let (accept, budget) = match is_evaluation {
            true => (
                None,
                EvalRecipe::load(&path).ok().map(|recipe| recipe.budget),
            ),
            false => match Recipe::load(&path, &[]) {
                Ok(recipe) => (recipe.goal.accept, Some(recipe.budget)),
                Err(_) => (None, None),
            },
        };
        Self {
            accept: accept.map(|rows| rows as u64),
            micro_usd: budget.and_then(|budget| BudgetCap::of(&budget).micro_usd),
        }
    }
}

/// The cost of the whole run in millionths of a dollar, from what its finished part has cost: of the rows of the goal, or else
/// of the attempts that are known.
fn expected_cost(funnel: &Funnel, accept: Option<u64>) -> Option<u64> {
    if funnel.rows.is_some() || funnel.spent.micro_usd == 0 {
        return None;
    }
    let attempts = funnel.stages.iter().find(|stage| stage.stage == ROLLOUT)?;
    let ended = attempts.done + attempts.failed;
    let (finished, all) = match accept {
        Some(rows) => (funnel.accepted, rows),
        None => (ended, ended + attempts.pending),
    };
    let is_going_on = finished > 0 && all > finished;
    is_going_on.then(|| (funnel.spent.micro_usd as f64 * all as f64 / finished as f64) as u64)
}

impl From<&StageStatus> for StageView {
    fn from(stage: &StageStatus) -> Self {
        let ended = stage.done + stage.failed;
        let is_measured = stage.seconds > 0.0 && ended > 0;
        Self {
            stage: stage.stage.clone(),
            done: stage.done,
            failed: stage.failed,
            pending: stage.pending,
            seconds: stage.seconds,
            per_minute: is_measured.then(|| ended as f64 * 60.0 / stage.seconds),
            last_minute: None,
        }
    }
}

impl From<&Count> for FailureCount {
    fn from(failure: &Count) -> Self {
        let kind = failure.what.split('/').nth(1).unwrap_or_default();
        let retry = match (failure.what.ends_with("(will be retried)"), kind) {
            (true, _) => Retry::Pending,
            (false, "item") => Retry::Flag,
            (false, _) => Retry::Command,
        };
        Self {
            what: failure.what.clone(),
            count: failure.count,
            retry,
            examples: examples(failure),
        }
    }
}

impl From<&Count> for RejectionCount {
    fn from(rejection: &Count) -> Self {
        Self {
            what: rejection.what.clone(),
            count: rejection.count,
            examples: examples(rejection),
        }
    }
}

fn examples(of: &Count) -> Vec<String> {
    let examples = of.examples.iter();
    examples.map(|text| cut(text, MAX_EXAMPLE)).collect()
}

#[cfg(test)]
mod tests {
    use pybench_run::{Failure, FailureKind as Kind, Journal, Reservation};
    use serde_json::json;

    use super::*;

    /// A run of four attempts: one is done, two failed, one is left. One call was paid.
    fn run(folder: &Path) -> Journal {
        let journal = Journal::open(&folder.join("journal.sqlite")).unwrap();
        journal.enqueue(ROLLOUT, ["a", "b", "c", "d"]).unwrap();
        journal.complete(ROLLOUT, "a", &json!({})).unwrap();
        let broken = Failure::new(Kind::Item, "broken");
        journal.fail(ROLLOUT, "b", &broken, true).unwrap();
        let busy = Failure::new(Kind::Endpoint, "rate_limited: 429");
        journal.fail(ROLLOUT, "c", &busy, true).unwrap();
        journal
            .set_metadata("seconds/rollout", &json!(90.0))
            .unwrap();
        let paid = Reservation {
            micro_usd: 3_000_000,
            tokens: 100,
        };
        journal.reserve("call", paid, BudgetCap::default()).unwrap();
        journal
    }

    #[test]
    fn throughput_and_cost_at_the_end_come_from_what_is_done() {
        let folder = tempfile::tempdir().unwrap();
        drop(run(folder.path()));
        let status = status("r", folder.path());
        assert_eq!(status.stages.len(), 1, "{status:?}");
        assert_eq!(status.stages[0].per_minute, Some(2.0));
        assert_eq!(status.info.micro_usd, Some(3_000_000));
        assert_eq!(status.expected_micro_usd, Some(4_000_000));
    }

    #[test]
    fn the_goal_and_the_budget_of_the_recipe_count() {
        let folder = tempfile::tempdir().unwrap();
        let journal = run(folder.path());
        let verdict =
            json!({"trajectory": "0".repeat(64), "findings": [], "accepted": true, "checker": "c"});
        journal.enqueue("grade", ["a"]).unwrap();
        journal.complete("grade", "a", &verdict).unwrap();
        let recipe = "name = 'r'\nteacher = { kind = 'expert' }\n[crawl]\nsources = []\n[query]\ntasks = 4\n\
             [budget]\nusd = 50.0\n[goal]\naccept = 2\n";
        std::fs::write(folder.path().join("recipe.toml"), recipe).unwrap();
        let asked = Goal::of(folder.path(), false);
        assert_eq!((asked.accept, asked.micro_usd), (Some(2), Some(50_000_000)));
        let status = status("r", folder.path());
        assert_eq!(status.budget_micro_usd, Some(50_000_000));
        assert_eq!(status.expected_micro_usd, Some(6_000_000));
    }

    #[test]
    fn failures_say_how_they_are_retried() {
        let folder = tempfile::tempdir().unwrap();
        let journal = run(folder.path());
        let later = Failure::new(Kind::Interpreter, "no sandbox");
        journal.fail(ROLLOUT, "d", &later, false).unwrap();
        let status = status("r", folder.path());
        let mut found: Vec<_> = status
            .failures
            .iter()
            .map(|failure| (&*failure.what, failure.retry))
            .collect();
        found.sort_by_key(|(what, _)| *what);
        let expected = [
            ("rollout/endpoint/rate_limited", Retry::Command),
            ("rollout/interpreter (will be retried)", Retry::Pending),
            ("rollout/item", Retry::Flag),
        ];
        assert_eq!(found, expected);
        assert_eq!(status.failures[0].examples.len(), 1);
    }
}
