//! The models that can continue an edit: those that conversations can begin with.

use std::path::PathBuf;
use std::sync::Arc;

use pybench_agent::{Format, format};
use pybench_chat::agents;
use pybench_chat::settings::Settings;
use pybench_eval::run::AgentChoice;
use pybench_llm::ChatModel;
use pybench_run::{FormatChoice, RunError};
use pybench_types::text::line;
use schemars::JsonSchema;
use serde::Serialize;

use crate::shared_models::SharedModels;

/// Where models are found, and where their replies and unsaved turns are kept.
#[derive(Clone, Debug)]
pub(crate) struct ModelPlace {
    /// The project.
    pub(crate) root: PathBuf,
    /// Recipe of the agents: a file, or a name.
    pub(crate) recipe: PathBuf,
    pub(crate) runs_dir: PathBuf,
    /// Folder of the replies.
    pub(crate) replies: PathBuf,
    /// Folder of the turns that are not saved.
    pub(crate) drafts: PathBuf,
}

/// The models that can continue an edit.
pub(crate) struct Models {
    place: ModelPlace,
    shared: Arc<SharedModels>,
}

/// The agents that can continue an edit.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct AgentList {
    /// Their names.
    pub(crate) agents: Vec<String>,
    /// Why there are no agents, or fewer than expected.
    pub(crate) problem: String,
}

impl Models {
    pub(crate) fn new(place: ModelPlace, shared: Arc<SharedModels>) -> Self {
        Self { place, shared }
    }

    /// The agents that can continue an edit.
    pub(crate) fn list(&self) -> AgentList {
        let (known, problem) = self.known();
        AgentList {
            agents: known.into_iter().map(|one| one.label).collect(),
            problem,
        }
    }

    /// Models of the recipe and the newest checkpoint. Agents with a system prompt of their own cannot continue a conversation
    /// that began with another one.
    fn known(&self) -> (Vec<Settings>, String) {
        let place = &self.place;
        let (of_recipe, problem) = match agents::models_of_recipe(&place.recipe, &place.root) {
            Ok(of_recipe) => (of_recipe, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let (left_out, mut known): (Vec<_>, Vec<_>) = of_recipe
            .into_iter()
            .partition(|one| matches!(one.agent, AgentChoice::Config { .. }));
        let problem = problem.unwrap_or_else(|| why_left_out(&left_out));
        known.extend(agents::newest(&place.runs_dir));
        (known, problem)
    }

    /// The model of an agent, which reads and writes messages in this format, and its settings.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is no such agent; as [`SharedModels::open`].
    pub(crate) async fn open(
        &self,
        agent: &str,
        wanted: &dyn Format,
    ) -> Result<(Settings, Arc<dyn ChatModel>), RunError> {
        let mut settings = self.settings(agent)?;
        settings.rollout.format = choice_of(wanted)?;
        let model = self.shared.open(&settings).await?.model;
        Ok((settings, model))
    }

    fn settings(&self, agent: &str) -> Result<Settings, RunError> {
        let (known, problem) = self.known();
        let names: Vec<String> = known.iter().map(|one| one.label.clone()).collect();
        let found = known.into_iter().find(|one| one.label == agent);
        found.ok_or_else(|| {
            let text = format!(
                "there is no agent `{}` that can continue an edit (agents: {}) {problem}",
                line(agent),
                names.join(", ")
            );
            RunError::BadInput(text.trim_end().to_owned())
        })
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
                replies: folder.path().join("replies"),
                drafts: folder.path().join("drafts"),
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
        let error = known.settings("b\n").unwrap_err().to_string();
        assert!(error.contains("(agents: a)"), "{error}");
        let all = models("name = 't'\n\n[agents.a]\nkind = 'gguf'\nmodel = 'm.gguf'\n").list();
        assert_eq!((all.agents.len(), &*all.problem), (1, ""));
        let list = models("name = 't'\nagents = 3\n").list();
        assert!(
            list.agents.is_empty() && list.problem.contains("agents.toml"),
            "{list:?}"
        );
    }
}
