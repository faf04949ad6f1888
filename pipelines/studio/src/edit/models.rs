//! The models that can continue an edit: those that conversations can begin with.

use std::sync::Arc;

use pybench_agent::{Format, format};
use pybench_chat::settings::Settings;
use pybench_eval::run::AgentChoice;
use pybench_llm::ChatModel;
use pybench_run::{FormatChoice, RunError};
use pybench_types::text::line;
use schemars::JsonSchema;
use serde::Serialize;

use super::continuation::ContinueRequest;
use crate::handlers::off_thread;
use crate::model_choice::{Agents, ModelChoice, ModelEndpoint, ModelPlace};
use crate::shared_models::SharedModels;

/// The models that can continue an edit.
#[derive(Clone)]
pub(crate) struct Models {
    place: ModelPlace,
    shared: Arc<SharedModels>,
}

/// The models that can continue an edit.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct AgentList {
    /// Names of the agents.
    pub(crate) agents: Vec<String>,
    /// Why there are no agents, or fewer than expected.
    pub(crate) problem: String,
    /// The endpoints that people named, the last one first; null if neither endpoints nor files can be named.
    pub(crate) endpoints: Option<Vec<ModelEndpoint>>,
}

impl Models {
    pub(crate) fn new(place: ModelPlace, shared: Arc<SharedModels>) -> Self {
        Self { place, shared }
    }

    /// The models that can continue an edit.
    pub(crate) fn list(&self) -> AgentList {
        let (agents, (endpoints, unread)) = (self.agents(), self.place.endpoints());
        AgentList {
            agents: agents.names(),
            problem: [agents.problem, unread].join(" ").trim().to_owned(),
            endpoints,
        }
    }

    /// The agents that conversations can begin with, without those that have a system prompt of their own: they cannot
    /// continue a conversation that began with another one.
    fn agents(&self) -> Agents {
        let Agents { known, problem } = self.place.agents();
        let (left_out, known): (Vec<_>, Vec<_>) = known
            .into_iter()
            .partition(|one| matches!(one.agent, AgentChoice::Config { .. }));
        let problem = [problem, why_left_out(&left_out)].join(" ");
        Agents {
            known,
            problem: problem.trim().to_owned(),
        }
    }

    /// The model that a request names, which reads and writes messages in this format, and its settings.
    ///
    /// # Errors
    /// As [`ContinueRequest::model`], [`ModelPlace::settings`] and [`SharedModels::open`].
    pub(crate) async fn open(
        &self,
        request: &ContinueRequest,
        wanted: &'static dyn Format,
    ) -> Result<(Settings, Arc<dyn ChatModel>), RunError> {
        let (models, asked) = (self.clone(), request.clone());
        let settings = off_thread(move || models.settings(asked.model()?, wanted)).await?;
        let model = self.shared.open(&settings).await?.model;
        Ok((settings, model))
    }

    fn settings(&self, choice: ModelChoice<'_>, wanted: &dyn Format) -> Result<Settings, RunError> {
        let mut settings = self.place.settings(choice, self.agents())?;
        settings.rollout.format = choice_of(wanted)?;
        Ok(settings)
    }

    /// Remembers the endpoint of a choice that is used, if it is one.
    pub(crate) async fn remember(&self, choice: ModelChoice<'_>) {
        self.place.remember(choice).await;
    }
}

/// Why agents that bring a system prompt of their own are not offered; empty if there are none. They would answer to another
/// prompt than the one that the saved trajectory has.
fn why_left_out(agents: &[Settings]) -> String {
    if agents.is_empty() {
        return String::new();
    }
    let names: Vec<String> = agents.iter().map(|one| line(&one.label)).collect();
    format!(
        "Not offered: {}. Agents of the kind `config` bring a system prompt of their own, and an edit goes on with the \
         system prompt of the recorded trajectory. Give the recipe an agent of the kind `openai` with the same model.",
        names.join(", ")
    )
}

/// A format as recipes name it.
fn choice_of(wanted: &dyn Format) -> Result<FormatChoice, RunError> {
    let mut all = FormatChoice::ALL.into_iter();
    let found = all.find(|choice| format(*choice).name() == wanted.name());
    found.ok_or_else(|| {
        let name = wanted.name();
        RunError::BadInput(format!(
            "no model can be asked in the message format `{name}`"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_the_recipe_that_take_any_system_prompt_are_offered() {
        let folder = tempfile::tempdir().unwrap();
        let models = |recipe: &str| {
            let path = folder.path().join("agents.toml");
            std::fs::write(&path, recipe).unwrap();
            let place = ModelPlace {
                root: folder.path().to_owned(),
                recipe: path,
                runs_dir: folder.path().join("none"),
                history: folder.path().join("chat"),
                may_name: true,
            };
            let shared = Arc::new(SharedModels::new(place.root.clone()));
            Models::new(place, shared)
        };
        let known = models(
            "name = 't'\n\n[agents.a]\nkind = 'gguf'\nmodel = 'm.gguf'\n\n\
             [agents.b]\nkind = 'config'\npath = 'b.yaml'\n\n[agents.c]\nkind = 'human'\n",
        );
        let list = known.list();
        assert_eq!(list.agents, ["a"]);
        assert!(
            list.problem.starts_with("Not offered: b."),
            "{}",
            list.problem
        );
        let choice = ModelChoice::Agent("b\n");
        let error = known.place.settings(choice, known.agents()).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("(agents: a) Not offered: b."), "{error}");
        let all = models("name = 't'\n\n[agents.a]\nkind = 'gguf'\nmodel = 'm.gguf'\n").list();
        assert_eq!((all.agents.len(), &*all.problem), (1, ""));
        let list = models("name = 't'\nagents = 3\n").list();
        assert!(
            list.agents.is_empty() && list.problem.contains("agents.toml"),
            "{list:?}"
        );
    }
}
