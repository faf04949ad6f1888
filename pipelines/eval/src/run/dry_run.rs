//! What an evaluation would cost, before any model is called.

use std::collections::HashSet;

use pybench_agent::Format;
use pybench_attempts::estimate::{
    CommentSize, Estimate, TaskSize, UsageRange, calls_of_attempt, comments_on_attempt,
    teacher_name, usage_with,
};
use pybench_run::artifacts::stage::ROLLOUT;
use pybench_run::{ModelChoice, Rollout, RunError, UnitState};
use pybench_types::task::Task;
use pybench_types::trajectory::Trajectory;

use super::agents::message_format;
use super::recipe::FeedbackChoice;
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
            Some(model) => {
                let (attempts, comments) = model.estimate(setup, &tasks.available, &done);
                let comments =
                    comments.map(|estimate| format!("comments on its turns\n{estimate}"));
                let format = model.format.name();
                format!(
                    "\n{label} (message format {format})\n{attempts}{}",
                    comments.unwrap_or_default()
                )
            }
            None => format!("\n{label}\nno paid model\n"),
        };
    }
    Ok(text)
}

/// The length of the comments on a task; `None` if the recipe has no model that comments, or the suite no place for it.
fn comment_size(setup: &Setup, task: &Task) -> Option<CommentSize> {
    setup.recipe.feedback.as_ref()?;
    setup
        .suites
        .iter()
        .find_map(|suite| suite.comment_size(task))
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
        let mut rollout = recipe.rollout.clone();
        if recipe.single_reply {
            rollout.max_turns = 1;
        }
        Ok(choice.model_choice().map(|choice| Self {
            choice,
            rollout,
            format: message_format(setup),
        }))
    }

    /// The attempts that are left, and the comments of another model on them, if there are any.
    fn estimate(
        &self,
        setup: &Setup,
        tasks: &[EvalTask],
        done: &HashSet<String>,
    ) -> (Estimate, Option<Estimate>) {
        let (recipe, teacher) = (&setup.recipe, teacher_name(&self.choice));
        let (rollout, format, limits) = (&self.rollout, self.format, &recipe.interpreter.limits);
        let mut estimate = Estimate::of(&recipe.budget, teacher.clone());
        let user = recipe.feedback.as_ref().map(FeedbackChoice::model_choice);
        let mut comments =
            user.map(|user| (Estimate::of(&recipe.budget, teacher_name(&user)), user));
        for eval_task in tasks {
            let size = TaskSize::of(format, &eval_task.task);
            let usage = usage_with(rollout, format, limits, &size);
            let added = comment_size(setup, &eval_task.task);
            let added = added.map(|one| comments_on_attempt(rollout, format, limits, &size, &one));
            for sample in 0..rollout.samples {
                let (task, sampling) = (&eval_task.task.id, &rollout.sampling);
                let id = Trajectory::compute_id(task, &teacher, sampling, format.name(), sample);
                if done.contains(id.as_str()) {
                    estimate.done += 1;
                    continue;
                }
                estimate.attempts += 1;
                let read = added.map_or_else(UsageRange::default, |added| added.read);
                let calls = calls_of_attempt(rollout, true);
                estimate.charge(&[&self.choice], calls, usage.plus(read));
                if let (Some((comments, user)), Some(added)) = (&mut comments, &added) {
                    comments.attempts += 1;
                    comments.charge(&[user], added.calls, added.usage);
                }
            }
        }
        let comments = comments.map(|(comments, _)| comments);
        (estimate, comments.filter(|comments| comments.attempts > 0))
    }
}
