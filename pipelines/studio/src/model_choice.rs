//! The models that people choose on the pages, for a conversation or for the next turns of an edit: what is offered, and what
//! is allowed.

mod endpoints;

use std::path::{Component, Path, PathBuf};

use pybench_chat::agents;
use pybench_chat::settings::Settings;
use pybench_run::RunError;
use pybench_types::text::line;

pub(crate) use self::endpoints::ModelEndpoint;
use crate::handlers::off_thread;

/// Why no model is used that a page or a saved conversation names.
const NOT_NAMED: &str = "the studio was started with --host, so that other people may use it: choose an agent of the recipe \
                         that --chat-recipe names";
/// How a person allows a key for the endpoint of a saved conversation.
const ADVICE: &str =
    "begin a conversation with this address and variable, or add them to the recipe of the agents";

/// Where the models are that people choose from.
#[derive(Clone, Debug)]
pub(crate) struct ModelPlace {
    /// The project.
    pub(crate) root: PathBuf,
    /// Recipe of the agents: a file, or a name.
    pub(crate) recipe: PathBuf,
    pub(crate) runs_dir: PathBuf,
    /// Folder of the history of conversations, which also has the endpoints that people named.
    pub(crate) history: PathBuf,
    /// Whether pages may name endpoints and files.
    pub(crate) may_name: bool,
}

/// The model that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelChoice<'a> {
    /// An agent of the recipe, or the newest checkpoint, by its name.
    Agent(&'a str),
    Endpoint(&'a ModelEndpoint),
    /// A checkpoint or a GGUF file, by its path in the project.
    File(&'a str),
}

impl<'a> ModelChoice<'a> {
    /// What a request with these fields names; `None` if it names no model.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if it names several.
    pub(crate) fn of(
        agent: Option<&'a str>,
        endpoint: Option<&'a ModelEndpoint>,
        file: Option<&'a str>,
    ) -> Result<Option<Self>, RunError> {
        match (agent, endpoint, file) {
            (None, None, None) => Ok(None),
            (Some(agent), None, None) => Ok(Some(Self::Agent(agent))),
            (None, Some(endpoint), None) => Ok(Some(Self::Endpoint(endpoint))),
            (None, None, Some(file)) => Ok(Some(Self::File(file))),
            _ => Err(RunError::BadInput(
                "the request names several models; name one of `agent`, `endpoint` and `file`"
                    .to_owned(),
            )),
        }
    }
}

/// The agents that can be chosen.
#[derive(Clone, Debug)]
pub(crate) struct Agents {
    pub(crate) known: Vec<Settings>,
    /// Why there are none, or fewer than expected.
    pub(crate) problem: String,
}

impl Agents {
    /// Their names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.known.iter().map(|one| one.label.clone()).collect()
    }

    fn find(self, agent: &str) -> Result<Settings, RunError> {
        let names = self.names().join(", ");
        let found = self.known.into_iter().find(|one| one.label == agent);
        found.ok_or_else(|| {
            let text = format!(
                "there is no agent `{}` (agents: {names}) {}",
                line(agent),
                self.problem
            );
            RunError::BadInput(text.trim_end().to_owned())
        })
    }
}

impl ModelPlace {
    /// The agents of the recipe that are models, and the newest checkpoint.
    pub(crate) fn agents(&self) -> Agents {
        let (mut known, problem) = match agents::models_of_recipe(&self.recipe, &self.root) {
            Ok(known) => (known, String::new()),
            Err(error) => (Vec::new(), error.to_string()),
        };
        known.extend(agents::newest(&self.runs_dir));
        Agents { known, problem }
    }

    /// The endpoints that people named, and why they cannot be read; `None` if pages may name neither endpoints nor files.
    pub(crate) fn endpoints(&self) -> (Option<Vec<ModelEndpoint>>, String) {
        if !self.may_name {
            return (None, String::new());
        }
        match endpoints::remembered(&self.history) {
            Ok(known) => (Some(known), String::new()),
            Err(error) => (Some(Vec::new()), error.to_string()),
        }
    }

    /// Remembers the endpoint of a choice that is used, if it is one.
    pub(crate) async fn remember(&self, choice: ModelChoice<'_>) {
        let ModelChoice::Endpoint(endpoint) = choice else {
            return;
        };
        let (history, used) = (self.history.clone(), endpoint.clone());
        let remembered = off_thread(move || endpoints::remember(&history, &used)).await;
        // The model is used without it.
        if let Err(error) = remembered {
            tracing::warn!("the endpoint is not remembered: {error}");
        }
    }

    /// The settings of a model that a page names, one of these agents or another one.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is no such model, or it is not allowed.
    pub(crate) fn settings(
        &self,
        choice: ModelChoice<'_>,
        agents: Agents,
    ) -> Result<Settings, RunError> {
        match choice {
            ModelChoice::Agent(agent) => agents.find(agent),
            _ if !self.may_name => Err(RunError::BadInput(NOT_NAMED.to_owned())),
            ModelChoice::Endpoint(endpoint) => endpoints::settings(endpoint, variable),
            ModelChoice::File(path) => self.file(path),
        }
    }

    /// The settings of a checkpoint or a GGUF file.
    fn file(&self, path: &str) -> Result<Settings, RunError> {
        let refused = |why: &str| {
            RunError::BadInput(format!(
                "`file`: `{}` {why}; give the path of a checkpoint (a folder with `config.json`) or of a GGUF file, relative to \
                 the project",
                line(path)
            ))
        };
        let parts = || Path::new(path).components();
        let is_within = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if path.contains(char::is_control) || !parts().all(is_within) {
            return Err(refused("is not a path within the project"));
        }
        // One file has one name, with `./` or without.
        let own: PathBuf = parts().filter(|part| *part != Component::CurDir).collect();
        let full = self.root.join(&own);
        let found = full.canonicalize();
        let found = found.map_err(|error| refused(&format!("cannot be read: {error}")))?;
        // The folder of the runs may be elsewhere. Other links must not lead out.
        let is_below = |folder: &PathBuf| {
            let folder = folder.canonicalize();
            folder.is_ok_and(|folder| found.starts_with(folder))
        };
        if ![&self.root, &self.runs_dir].into_iter().any(is_below) {
            return Err(refused("leads out of the project"));
        }
        let settings = agents::of_file(&file_label(&own), &full, &own.to_string_lossy())?;
        settings.ok_or_else(|| refused("is no model"))
    }

    /// Checks that the keys which a saved conversation names may be sent to its endpoint. Other people may have saved it, if
    /// the history is shared; then its sandbox and its model are checked, too.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if no conversation could begin with this endpoint here, or nobody here named its key, and as
    /// [`agents::check_from_others`].
    pub(crate) fn check_saved(&self, settings: &Settings, is_shared: bool) -> Result<(), RunError> {
        let own = self.agents().known;
        if is_shared {
            agents::check_from_others(settings, &own)?;
        }
        let agent = &settings.agent;
        let Some(address) = agents::address(agent) else {
            return Ok(());
        };
        if !self.may_name && !agents::is_own(agent, &own) {
            return Err(RunError::BadInput(NOT_NAMED.to_owned()));
        }
        let named;
        let allowed: Vec<(&str, &str)> = match is_shared {
            true => {
                named = endpoints::remembered(&self.history)?;
                named.iter().filter_map(ModelEndpoint::key).collect()
            }
            // The person named them.
            false => agents::keys(agent)
                .into_iter()
                .map(|key| (address, key))
                .collect(),
        };
        agents::check_shared(agent, &own, &allowed, ADVICE, variable)
    }
}

/// What people call a model in a file. It gets into datasets, so it has two parts of the path only.
fn file_label(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    parts[parts.len().saturating_sub(2)..].join("/")
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use pybench_eval::run::AgentChoice;

    use super::*;

    fn place(folder: &Path) -> ModelPlace {
        ModelPlace {
            root: folder.join("project"),
            recipe: folder.join("no-recipe.toml"),
            runs_dir: folder.join("runs"),
            history: folder.join("chat"),
            may_name: true,
        }
    }

    #[test]
    fn a_request_names_one_model() {
        let endpoint = ModelEndpoint {
            address: "https://h/v1".to_owned(),
            model: "m".to_owned(),
            key_env: None,
        };
        let of = ModelChoice::of;
        assert_eq!(of(None, None, None).unwrap(), None);
        let endpoint = Some(&endpoint);
        let choice = of(None, endpoint, None).unwrap();
        assert!(matches!(choice, Some(ModelChoice::Endpoint(_))));
        assert!(of(Some("a"), endpoint, None).is_err());
        assert!(of(Some("a"), None, Some("m.gguf")).is_err());
    }

    #[test]
    fn files_of_the_project_are_models() {
        let folder = tempfile::tempdir().unwrap();
        let mut place = place(folder.path());
        let checkpoint = place.root.join("data/runs/r/model");
        std::fs::create_dir_all(&checkpoint).unwrap();
        std::fs::write(checkpoint.join("config.json"), "{}").unwrap();
        std::fs::write(place.root.join("m.gguf"), "").unwrap();
        std::fs::write(folder.path().join("out.gguf"), "").unwrap();
        let outside = folder.path().join("out.gguf");
        let link = place.root.join("link.gguf");
        std::os::unix::fs::symlink(&outside, &link).unwrap();
        let of = |place: &ModelPlace, path: &str| {
            place.settings(ModelChoice::File(path), place.agents())
        };
        let settings = of(&place, "data/runs/r/model").unwrap();
        assert_eq!(settings.label, "r/model");
        assert!(matches!(settings.agent, AgentChoice::Checkpoint { .. }));
        let settings = of(&place, "m.gguf").unwrap();
        assert_eq!(settings.label, "m.gguf");
        assert!(matches!(settings.agent, AgentChoice::Gguf { .. }));
        assert_eq!(of(&place, "./m.gguf").unwrap(), settings);
        std::fs::create_dir(place.root.join("folder.gguf")).unwrap();
        let absolute = outside.to_str().unwrap();
        for (path, why) in [
            ("../out.gguf", "not a path within"),
            ("./../out.gguf", "not a path within"),
            (absolute, "not a path within"),
            ("link.gguf", "leads out"),
            ("none.gguf", "cannot be read"),
            ("data", "is no model"),
            ("folder.gguf", "is a folder"),
            (".", "is no model"),
            ("", "is no model"),
        ] {
            let error = of(&place, path).unwrap_err().to_string();
            assert!(error.contains(why), "{path}: {error}");
        }
        place.may_name = false;
        let error = of(&place, "m.gguf").unwrap_err().to_string();
        assert!(error.contains("--host"), "{error}");
    }
}
