//! Feedback that the suites of an evaluation give between turns.

use std::sync::Arc;

use async_trait::async_trait;
use pybench_agent::{Feedback, TurnContext, TurnFeedback};
use pybench_attempts::money;
use pybench_attempts::teacher::{metered, setup_error};
use pybench_llm::OpenAiOptions;
use pybench_run::{Failure, FailureKind, RunError};
use pybench_types::task::Task;

use super::Setup;
use crate::suite::FeedbackModel;

/// Journal name of the calls of the model that comments.
const CALLS: &str = "feedback";

/// The feedback of all suites; each gives it on its own tasks.
struct SuiteFeedback(Vec<Arc<dyn TurnFeedback>>);

/// The feedback of the suites; `None` if none gives any, and if models have a single reply.
pub(super) fn load(setup: &Setup) -> Result<Option<Arc<dyn TurnFeedback>>, RunError> {
    if setup.recipe.single_reply {
        return Ok(None);
    }
    let model = model(setup)?;
    let env = setup.env();
    let mut all = Vec::new();
    for suite in &setup.suites {
        all.extend(suite.feedback(&env, model.clone())?);
    }
    if all.is_empty() && model.is_some() {
        let text = "the recipe has a table [feedback], but none of its suites gives feedback between turns: remove the table, or add `mint` to `suites`";
        return Err(RunError::BadInput(text.to_owned()));
    }
    Ok((!all.is_empty()).then(|| Arc::new(SuiteFeedback(all)) as Arc<dyn TurnFeedback>))
}

/// The model of the recipe; its calls are journaled and limited by the budget.
fn model(setup: &Setup) -> Result<Option<FeedbackModel>, RunError> {
    let Some(choice) = &setup.recipe.feedback else {
        return Ok(None);
    };
    let variable = |name: &str| std::env::var(name).ok();
    let options = OpenAiOptions::from_recipe(&choice.model_choice(), variable);
    let options = options.map_err(setup_error)?;
    let options = options.ok_or_else(|| RunError::Internal("the model has no endpoint".into()))?;
    let budget = &setup.recipe.budget;
    money::bounded(&options.model, options.price, budget).map_err(|error| {
        RunError::BadInput(format!(
            "feedback: {error} (command line: --usd or --tokens)"
        ))
    })?;
    let folder = setup.folder.clone();
    Ok(Some(FeedbackModel {
        model: metered(options, folder, budget, CALLS, None, &setup.interrupt)?,
        sees_reference: choice.reference,
    }))
}

#[async_trait]
impl TurnFeedback for SuiteFeedback {
    fn applies(&self, task: &Task) -> bool {
        self.0.iter().any(|one| one.applies(task))
    }

    async fn after_turn(&self, context: &TurnContext<'_>) -> Result<Feedback, Failure> {
        let mut all = self.0.iter();
        match all.find(|one| one.applies(context.task)) {
            Some(feedback) => feedback.after_turn(context).await,
            None => {
                let detail = "no suite gives feedback on the task";
                Err(Failure::new(FailureKind::Internal, detail))
            }
        }
    }
}
