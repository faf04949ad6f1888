//! What an evaluation would cost, before any model is called.

use std::collections::HashSet;

use pybench_agent::{self as agent, Format};
use pybench_attempts::estimate::{Estimate, TaskSize, calls_of_attempt, teacher_name, usage_with};
use pybench_run::artifacts::stage::ROLLOUT;
use pybench_run::{ModelChoice, Rollout, RunError, UnitState};
use pybench_types::trajectory::Trajectory;

use super::tasks;
use super::{AgentChoice, Setup};
use crate::agent::UpstreamFormat;
use crate::agent::config::UpstreamConfig;
use crate::suite::EvalTask;

/// Prepares the tasks and describes, for each agent, the attempts that are left and what they cost.
///
/// # Errors
/// There are no tasks, or the configuration of an agent is invalid.
pub async fn dry_run(setup: &Setup) -> Result<String, RunError> {
    let tasks = tasks::prepare(setup).await?;
    let states = setup.folder.journal().states(ROLLOUT)?.into_iter();
    let done = states.filter(|(_, state)| *state == UnitState::Done);
    let done: HashSet<String> = done.map(|(item, _)| item).collect();
    let (available, missing) = (tasks.available.len(), tasks.unavailable.len());
    let mut text = format!("{available} tasks, {missing} that cannot be run\n");
    for (label, choice) in &setup.recipe.agents {
        text += &match Model::of(setup, choice)? {
            Some(model) => format!(
                "\n{label} (message format {})\n{}",
                model.format.name(),
                model.estimate(setup, &tasks.available, &done)
            ),
            None => format!("\n{label}\nno paid model\n"),
        };
    }
    Ok(text)
}

/// A model behind an endpoint, and how its attempts are made.
struct Model {
    choice: ModelChoice,
    rollout: Rollout,
    format: &'static dyn Format,
}

impl Model {
    /// `None` for agents that call no endpoint.
    fn of(setup: &Setup, choice: &AgentChoice) -> Result<Option<Self>, RunError> {
        let recipe = &setup.recipe;
        if let AgentChoice::Config { path, price } = choice {
            // The key is not needed, because nothing is sent.
            let any_key = |_: &str| Some("unused".to_owned());
            let config = UpstreamConfig::read(&setup.project_root.join(path), any_key)?;
            return Ok(Some(Self {
                choice: ModelChoice::Openai {
                    model: config.endpoint.model,
                    base_url: config.endpoint.base_url,
                    price: price.or(config.endpoint.price),
                    key_env: None,
                    headers: Default::default(),
                    timeout_seconds: 1,
                    more_keys_env: Vec::new(),
                    requests_per_minute: None,
                    tokens_per_minute: None,
                    batch: false,
                },
                rollout: Rollout {
                    max_turns: config.max_turns,
                    sampling: config.sampling,
                    ..recipe.rollout.clone()
                },
                format: UpstreamFormat::new(&config.system, config.call.as_deref()),
            }));
        }
        Ok(choice.model_choice().map(|choice| Self {
            choice,
            rollout: recipe.rollout.clone(),
            format: agent::format(recipe.rollout.format),
        }))
    }

    fn estimate(&self, setup: &Setup, tasks: &[EvalTask], done: &HashSet<String>) -> Estimate {
        let (recipe, teacher) = (&setup.recipe, teacher_name(&self.choice));
        let (rollout, format) = (&self.rollout, self.format);
        let mut estimate = Estimate::of(&recipe.budget, teacher.clone());
        for eval_task in tasks {
            let size = TaskSize::of(format, &eval_task.task);
            let usage = usage_with(rollout, format, &recipe.interpreter.limits, &size);
            for sample in 0..rollout.samples {
                let (task, sampling) = (&eval_task.task.id, &rollout.sampling);
                let id = Trajectory::compute_id(task, &teacher, sampling, format.name(), sample);
                if done.contains(id.as_str()) {
                    estimate.done += 1;
                    continue;
                }
                estimate.attempts += 1;
                estimate.charge(&[&self.choice], calls_of_attempt(rollout, true), usage);
            }
        }
        estimate
    }
}
