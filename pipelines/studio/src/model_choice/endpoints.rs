//! Endpoints that a person names on the page: what is allowed, and those that were used in this project before.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use pybench_chat::agents;
use pybench_chat::history::make_private;
use pybench_chat::settings::Settings;
use pybench_run::{RunError, write_atomically};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// File of the endpoints, in the folder of the history.
const FILE: &str = "endpoints.json";
/// File that is locked while the list is read and written again.
const LOCK: &str = "endpoints.lock";
/// Maximum number of endpoints that are remembered.
const MAX_REMEMBERED: usize = 10;
/// Maximum length of a model's name, bytes.
const MAX_MODEL: usize = 400;

/// An OpenAI-compatible endpoint that a person names, and a model there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelEndpoint {
    /// Its base URL.
    pub(crate) address: String,
    pub(crate) model: String,
    /// The variable in the environment of the server that has the API key.
    #[serde(default)]
    pub(crate) key_env: Option<String>,
}

impl ModelEndpoint {
    /// The address with the variable of the key that the person allowed for it.
    pub(super) fn key(&self) -> Option<(&str, &str)> {
        let key_env = self.key_env.as_deref()?;
        Some((&self.address, key_env))
    }
}

/// The settings of a model at an endpoint. `variable` reads the environment of the server.
///
/// # Errors
/// [`RunError::BadInput`] if the endpoint is not allowed, or the variable is not set.
pub(super) fn settings(
    endpoint: &ModelEndpoint,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Settings, RunError> {
    let ModelEndpoint {
        address,
        model,
        key_env,
    } = endpoint;
    if model.trim().is_empty() || model.len() > MAX_MODEL || model.contains(char::is_control) {
        return Err(RunError::BadInput(
            "name the model as the endpoint knows it".to_owned(),
        ));
    }
    let settings = agents::of_endpoint(model, address, key_env.as_deref());
    agents::check_endpoint(&settings.agent, variable)?;
    Ok(settings)
}

/// The endpoints that were used, the last one first.
///
/// # Errors
/// [`RunError::BadInput`] if the file in the folder of the history is no list of them.
pub(super) fn remembered(history: &Path) -> Result<Vec<ModelEndpoint>, RunError> {
    let path = file(history);
    let bytes = match std::fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(RunError::io(path.display().to_string()))?,
    };
    serde_json::from_slice(&bytes).map_err(|error| {
        RunError::BadInput(format!(
            "{}: not a list of endpoints: {error}; delete the file, and the studio makes another one",
            path.display()
        ))
    })
}

/// Remembers an endpoint that is used.
///
/// # Errors
/// As [`remembered`]; the file cannot be written.
pub(super) fn remember(history: &Path, used: &ModelEndpoint) -> Result<(), RunError> {
    make_private(history)?;
    let _one_at_a_time = locked(&history.join(LOCK))?;
    let mut all = remembered(history)?;
    all.retain(|one| one != used);
    all.insert(0, used.clone());
    all.truncate(MAX_REMEMBERED);
    write_atomically(&file(history), &serde_json::to_vec_pretty(&all)?)
}

/// Keeps other requests, and other studios of the project, from changing the list until it is dropped.
fn locked(path: &Path) -> Result<File, RunError> {
    let file = File::create(path).and_then(|file| {
        file.lock()?;
        Ok(file)
    });
    file.map_err(RunError::io(path.display().to_string()))
}

fn file(history: &Path) -> PathBuf {
    history.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(address: &str, key_env: Option<&str>) -> ModelEndpoint {
        ModelEndpoint {
            address: address.to_owned(),
            model: "m".to_owned(),
            key_env: key_env.map(str::to_owned),
        }
    }

    fn environment(name: &str) -> Option<String> {
        (name == "MY_KEY").then(|| "sk-secret".to_owned())
    }

    #[test]
    fn a_model_is_named_and_a_key_is_sent_in_secret_and_not_saved() {
        let nameless = ModelEndpoint {
            model: " ".to_owned(),
            ..endpoint("http://h/v1", None)
        };
        assert!(settings(&nameless, environment).is_err());
        let error = settings(&endpoint("http://h/v1", Some("MY_KEY")), environment);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("over https"), "{error}");
        let settings = settings(&endpoint("https://h/v1", Some("MY_KEY")), environment).unwrap();
        assert_eq!(agents::keys(&settings.agent), ["MY_KEY"]);
        let saved = serde_json::to_string(&settings).unwrap();
        assert!(!saved.contains("sk-secret"), "{saved}");
    }

    #[test]
    fn the_last_endpoints_are_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("chat");
        assert_eq!(remembered(&history).unwrap(), []);
        let of = |number: usize| endpoint(&format!("http://h{number}/v1"), None);
        for number in (0..=MAX_REMEMBERED).chain([5]) {
            remember(&history, &of(number)).unwrap();
        }
        let all = remembered(&history).unwrap();
        assert_eq!(all.len(), MAX_REMEMBERED);
        assert_eq!((&all[0], &all[1]), (&of(5), &of(MAX_REMEMBERED)));
        std::fs::write(history.join(FILE), "[1]").unwrap();
        let error = remembered(&history).unwrap_err().to_string();
        assert!(error.contains(FILE), "{error}");
    }

    #[test]
    fn endpoints_that_are_used_at_once_are_all_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let history = folder.path().join("chat");
        let used = |number: usize| endpoint(&format!("http://h{number}/v1"), None);
        std::thread::scope(|scope| {
            for number in 0..MAX_REMEMBERED {
                let (history, used) = (&history, used(number));
                scope.spawn(move || remember(history, &used).unwrap());
            }
        });
        let all = remembered(&history).unwrap();
        assert_eq!(all.len(), MAX_REMEMBERED, "{all:?}");
    }
}
