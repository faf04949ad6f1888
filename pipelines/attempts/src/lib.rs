//! Attempts at tasks, shared by the stages that make them: the models named by a recipe, their budget,
//! the attempt itself, cost estimates, and the plan of which attempts come next.

pub mod batches;
pub mod dependent_process;
pub mod estimate;
mod ladders;
pub mod model_server;
pub mod money;
pub mod outcomes;
pub mod plan;
pub mod request_options;
pub mod served;
mod stage;
mod task_list;
pub mod teacher;

use std::collections::HashMap;

use pybench_run::artifacts;
use pybench_run::{Failure, Journal, RunError, UnitState};
use pybench_types::trajectory::Trajectory;

pub use ladders::Ladders;
pub use stage::{Attempt, AttemptStage, RolloutConfig, input_files, keep_outputs};
pub use task_list::{AttemptItems, TaskList};

/// The finished attempts in the journal, by item: the trajectory, or the failure.
///
/// # Errors
/// The journal cannot be read, or holds a trajectory that does not parse.
pub fn results(
    journal: &Journal,
) -> Result<HashMap<String, Result<Trajectory, Failure>>, RunError> {
    let mut results = HashMap::new();
    for unit in journal.units(artifacts::stage::ROLLOUT)? {
        let result = match (unit.state, unit.output, unit.failure) {
            (UnitState::Done, Some(output), _) => Ok(serde_json::from_value(output)?),
            (_, _, Some(failure)) => Err(failure),
            _ => continue,
        };
        results.insert(unit.item, result);
    }
    Ok(results)
}
