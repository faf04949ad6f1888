//! Agents to talk with: those of a recipe of `pybench eval`, and the newest checkpoint.

use std::collections::BTreeMap;
use std::fs::FileType;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use pybench_attempts::model_server;
use pybench_eval::run::{AgentChoice, EvalRecipe};
use pybench_interpreter::InterpreterChoice;
use pybench_run::project::find_recipe;
use pybench_run::{Budget, FormatChoice, Rollout, RunError, closest};
use pybench_types::text::line;

use crate::sandbox::ForeignCells;
use crate::settings::Settings;

/// The recipe of agents, unless another is named.
pub const RECIPE: &str = "default";
/// Folder of the recipes of evaluations, relative to the project root.
const RECIPES: &str = "pipelines/recipes/eval";
/// Number of replies to a message, and tokens of a reply, of a model that is not an agent of a recipe.
const MAX_TURNS: u32 = 20;
const MAX_TOKENS: u32 = 2048;

/// The agent of a recipe with this name, with the recipe's settings. The recipe is a file, or the name of one in the project
/// at `root` or of one that comes with pybench.
///
/// # Errors
/// [`RunError::BadInput`] if there is no such recipe or agent.
pub fn of_recipe(recipe: &Path, agent: &str, root: &Path) -> Result<Settings, RunError> {
    let path = find_recipe(recipe, RECIPES, Some(root))?;
    let mut recipe = EvalRecipe::load(&path)?;
    match recipe.agents.remove(agent) {
        Some(choice) => Ok(settings(&recipe, agent, choice)),
        None => {
            let names: Vec<&str> = recipe.agents.keys().map(String::as_str).collect();
            let hint = closest(agent, names.iter().copied());
            let hint = hint.map(|best| format!("; did you mean `{best}`?"));
            Err(RunError::BadInput(format!(
                "{}: there is no agent `{}`{} (agents: {})",
                path.display(),
                line(agent),
                hint.unwrap_or_default(),
                names.join(", ")
            )))
        }
    }
}

/// All agents of a recipe that are models.
///
/// # Errors
/// As [`of_recipe`].
pub fn models_of_recipe(recipe: &Path, root: &Path) -> Result<Vec<Settings>, RunError> {
    let mut recipe = EvalRecipe::load(&find_recipe(recipe, RECIPES, Some(root))?)?;
    let agents = std::mem::take(&mut recipe.agents).into_iter();
    let models = agents.filter(|(_, choice)| is_model(choice));
    let models = models.map(|(label, choice)| settings(&recipe, &label, choice));
    Ok(models.collect())
}

/// The newest checkpoint below a folder of runs.
pub fn newest(runs_dir: &Path) -> Option<Settings> {
    let (name, folder) = model_server::newest(runs_dir)?;
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let agent = checkpoint(folder.display().to_string());
    Some(of_agent(&name, agent, FormatChoice::Pybench))
}

/// A model at an OpenAI-compatible endpoint, with function calls. `key_env` names the variable that has the API key.
pub fn of_endpoint(model: &str, base_url: &str, key_env: Option<&str>) -> Settings {
    let agent = endpoint(model, base_url, key_env);
    of_agent(model, agent, FormatChoice::Tools)
}

/// The model in a file or folder of this machine; `None` if it is neither a GGUF file nor a checkpoint. `name` is the path as
/// the settings have it.
///
/// # Errors
/// [`RunError::BadInput`] if the path has the name of a GGUF file and is none: a folder or a named pipe, for example.
pub fn of_file(label: &str, path: &Path, name: &str) -> Result<Option<Settings>, RunError> {
    let agent = local(path, name.to_owned())?;
    Ok(agent.map(|agent| of_agent(label, agent, FormatChoice::Pybench)))
}

/// Checks that the variables which an agent names may be sent to its endpoint. For agents that other people may have written;
/// `variable` reads environment variables.
///
/// # Errors
/// As [`pybench_llm::check_endpoint`].
pub fn check_endpoint(
    agent: &AgentChoice,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(), RunError> {
    match destination(agent) {
        Some((base_url, ..)) => pybench_llm::check_endpoint(base_url, &keys(agent), variable),
        None => Ok(()),
    }
}

/// Checks a conversation that other people may have begun: its cells run in a sandbox, which has a network or a folder of
/// this machine only if an agent of `own`, those of this machine, has the same one, and its model is at an endpoint or an
/// agent of `own`. Files and configurations that somebody else names are not read.
///
/// # Errors
/// [`RunError::BadInput`] with the setting that is refused.
pub fn check_from_others(settings: &Settings, own: &[Settings]) -> Result<(), RunError> {
    let label = line(&settings.label);
    let own_sandboxes: Vec<_> = own.iter().map(|own| &own.interpreter).collect();
    let of_conversation = ForeignCells {
        origin: &format!("agent `{label}` of a conversation from a shared history"),
        advice: "begin a new conversation, or, if they have a sandbox, add an agent with the same `interpreter` to your recipe",
    };
    of_conversation.check(&settings.interpreter, &own_sandboxes)?;
    let has_address = address(&settings.agent).is_some();
    if has_address || own.iter().any(|own| own.agent == settings.agent) {
        return Ok(());
    }
    Err(RunError::BadInput(format!(
        "the conversation is from a shared history, and its model is a file or a configuration that no agent here has; begin a \
         new one, or add agent `{label}` to your recipe"
    )))
}

/// Checks the endpoint of a conversation that other people may have begun. Keys are sent to an endpoint of `own`, the agents
/// of this machine; to another one only those that the person has `allowed`, as pairs of an address and a variable. `advice`
/// says how to allow one.
///
/// # Errors
/// [`RunError::BadInput`] if another key would be sent; otherwise as [`check_endpoint`].
pub fn check_shared(
    agent: &AgentChoice,
    own: &[Settings],
    allowed: &[(&str, &str)],
    advice: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(), RunError> {
    if is_own(agent, own) {
        return Ok(());
    }
    check_endpoint(agent, variable)?;
    let Some(address) = address(agent) else {
        return Ok(());
    };
    let keys = keys(agent);
    let is_refused = |key: &&&str| !allowed.contains(&(address, **key));
    match keys.iter().find(is_refused) {
        None => Ok(()),
        Some(key) => Err(RunError::BadInput(format!(
            "the conversation is from a shared history, and would send the value of {} to {}, which nobody has allowed here; if \
             you trust this address, {advice}",
            line(key),
            line(address)
        ))),
    }
}

/// Whether the endpoint of an agent is one of these agents', with the same keys.
pub fn is_own(agent: &AgentChoice, own: &[Settings]) -> bool {
    own.iter().any(|own| is_same_endpoint(&own.agent, agent))
}

/// The address of an agent's endpoint; `None` if it has none.
pub fn address(agent: &AgentChoice) -> Option<&str> {
    destination(agent).map(|(address, ..)| address)
}

/// The variables whose values are sent to the endpoint of an agent.
pub fn keys(agent: &AgentChoice) -> Vec<&str> {
    let Some((_, key_env, headers)) = destination(agent) else {
        return Vec::new();
    };
    let of_headers = headers.values().filter_map(|value| value.strip_prefix('$'));
    key_env.into_iter().chain(of_headers).collect()
}

/// Whether two agents send the same keys to the same endpoint.
fn is_same_endpoint(one: &AgentChoice, other: &AgentChoice) -> bool {
    destination(one).is_some() && destination(one) == destination(other)
}

/// The address of an agent's endpoint, the variable of its key, and its headers; `None` if it has no endpoint.
fn destination(agent: &AgentChoice) -> Option<(&str, Option<&str>, &BTreeMap<String, String>)> {
    match agent {
        AgentChoice::Openai {
            base_url,
            key_env,
            headers,
            ..
        } => Some((base_url, key_env.as_deref(), headers)),
        _ => None,
    }
}

pub(crate) fn endpoint(model: &str, base_url: &str, key_env: Option<&str>) -> AgentChoice {
    AgentChoice::Openai {
        model: model.to_owned(),
        base_url: base_url.to_owned(),
        key_env: key_env.map(str::to_owned),
        headers: Default::default(),
        price: None,
        timeout_seconds: 600,
        about: None,
    }
}

/// An agent outside a recipe.
pub(crate) fn of_agent(label: &str, agent: AgentChoice, format: FormatChoice) -> Settings {
    let mut rollout = Rollout {
        format,
        max_turns: MAX_TURNS,
        ..Rollout::default()
    };
    rollout.sampling.max_tokens = MAX_TOKENS;
    Settings {
        label: label.to_owned(),
        agent,
        rollout,
        interpreter: InterpreterChoice::default(),
        budget: Budget::default(),
        task: None,
    }
}

/// The agent of a model in a file or folder, as [`of_file`].
pub(crate) fn local(path: &Path, name: String) -> Result<Option<AgentChoice>, RunError> {
    if path.join("config.json").is_file() {
        return Ok(Some(checkpoint(name)));
    }
    if !is_gguf(path) {
        return Ok(None);
    }
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => Ok(Some(gguf(name))),
        Ok(found) => Err(RunError::BadInput(format!(
            "`{}` is {}, and a GGUF model is a regular file; name that file, or the folder of a checkpoint, which has \
             `config.json`",
            line(&name),
            kind(found.file_type())
        ))),
        Err(_) => Ok(None),
    }
}

/// Whether a path has the name of a GGUF file.
pub(crate) fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|one| one == "gguf")
}

/// What is at a path, for people.
fn kind(found: FileType) -> &'static str {
    match found {
        found if found.is_dir() => "a folder",
        found if found.is_fifo() => "a named pipe",
        found if found.is_socket() => "a socket",
        _ => "a device",
    }
}

pub(crate) fn gguf(model: String) -> AgentChoice {
    AgentChoice::Gguf {
        model,
        sha256: None,
        context: None,
        about: None,
    }
}

fn checkpoint(model: String) -> AgentChoice {
    AgentChoice::Checkpoint {
        model,
        base: false,
        dtype: None,
        engine: Default::default(),
        about: None,
    }
}

fn settings(recipe: &EvalRecipe, label: &str, agent: AgentChoice) -> Settings {
    Settings {
        label: label.to_owned(),
        agent,
        rollout: recipe.rollout.clone(),
        interpreter: recipe.interpreter.clone(),
        budget: recipe.budget.clone(),
        task: None,
    }
}

fn is_model(choice: &AgentChoice) -> bool {
    matches!(
        choice,
        AgentChoice::Openai { .. }
            | AgentChoice::Checkpoint { .. }
            | AgentChoice::Gguf { .. }
            | AgentChoice::Config { .. }
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn conversations_of_others_name_no_files_or_hosts_of_their_own() {
        let settings = |agent: serde_json::Value, interpreter: serde_json::Value| -> Settings {
            let settings =
                serde_json::json!({"label": "m", "agent": agent, "interpreter": interpreter});
            serde_json::from_value(settings).unwrap()
        };
        let endpoint =
            || serde_json::json!({"kind": "openai", "model": "m", "base_url": "https://h/v1"});
        let file = |path: &str| serde_json::json!({"kind": "gguf", "model": path});
        let closed = || serde_json::json!({"tier": "jail"});
        let own = [
            settings(file("own.gguf"), closed()),
            settings(
                endpoint(),
                serde_json::json!({"tier": "jail", "network": ["own:443"]}),
            ),
        ];
        let check = |agent, interpreter| {
            let error = check_from_others(&settings(agent, interpreter), &own).err();
            error.map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(check(endpoint(), closed()), "");
        assert_eq!(check(file("own.gguf"), closed()), "");
        let own_network = serde_json::json!({"tier": "jail", "network": ["own:443"]});
        assert_eq!(check(endpoint(), own_network), "");
        for (agent, interpreter, why) in [
            (
                endpoint(),
                serde_json::json!({"tier": "unsandboxed"}),
                "without a sandbox",
            ),
            (
                endpoint(),
                serde_json::json!({"tier": "jail", "network": ["evil:443"]}),
                "could connect to hosts",
            ),
            (
                endpoint(),
                serde_json::json!({"tier": "jail", "wheelhouse": "/home/ann"}),
                "could read a folder",
            ),
            (file("/home/ann/m.gguf"), closed(), "its model is a file"),
            (
                serde_json::json!({"kind": "config", "path": "c.yaml"}),
                closed(),
                "its model is a file",
            ),
        ] {
            let error = check(agent, interpreter);
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    #[test]
    fn variables_of_keys_and_headers_are_checked() {
        let agent = |base_url: &str, header: &str| -> AgentChoice {
            let agent = serde_json::json!({
                "kind": "openai", "model": "m", "base_url": base_url, "key_env": "A", "headers": {"x-token": header}});
            serde_json::from_value(agent).unwrap()
        };
        let set = |name: &str| ["A", "B"].contains(&name).then(|| "x".to_owned());
        let of = |base_url: &str, header: &str| check_endpoint(&agent(base_url, header), set);
        of("https://h/v1", "$B").unwrap();
        of("https://h/v1", "C").unwrap();
        for (base_url, header, why) in [
            ("http://h/v1", "C", "over https"),
            ("https://h/v1", "$C", "not set"),
            ("h/v1", "C", "cannot be read"),
        ] {
            let error = of(base_url, header).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let own = of_agent("own", agent("https://h/v1", "C"), FormatChoice::Tools);
        let shared = |agent: AgentChoice, allowed: &[(&str, &str)]| {
            let own = std::slice::from_ref(&own);
            check_shared(&agent, own, allowed, "allow it", set).map_err(|e| e.to_string())
        };
        let allowed = [("https://i/v1", "A")];
        shared(agent("https://h/v1", "C"), &[]).unwrap();
        let error = shared(agent("https://i/v1", "C"), &[]).unwrap_err();
        assert!(error.contains("A to https://i/v1"), "{error}");
        assert!(error.ends_with("allow it"), "{error}");
        shared(agent("https://i/v1", "C"), &allowed).unwrap();
        let error = shared(agent("https://i/v1", "$B"), &allowed).unwrap_err();
        assert!(error.contains("B to https://i/v1"), "{error}");
        let error = shared(agent("https://j/v1", "C"), &allowed).unwrap_err();
        assert!(error.contains("A to https://j/v1"), "{error}");
        let human = serde_json::json!({"kind": "human"});
        check_endpoint(&serde_json::from_value(human).unwrap(), set).unwrap();
        let one = agent("https://h/v1", "C");
        assert!(is_same_endpoint(&one, &agent("https://h/v1", "C")));
        assert!(!is_same_endpoint(&one, &agent("https://h/v1", "D")));
        assert!(!is_same_endpoint(&one, &agent("https://i/v1", "C")));
    }

    #[test]
    fn models_in_files_are_agents() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let found = |name: &str| of_file("m", &path(name), name);
        let of = |name: &str| found(name).unwrap().map(|one| one.agent);
        assert!(of("checkpoint").is_none());
        std::fs::create_dir(path("checkpoint")).unwrap();
        assert!(of("checkpoint").is_none());
        std::fs::write(path("checkpoint/config.json"), "{}").unwrap();
        assert_eq!(of("checkpoint"), Some(checkpoint("checkpoint".to_owned())));
        assert_eq!(of("m.gguf"), None);
        std::fs::write(path("m.gguf"), "").unwrap();
        assert_eq!(of("m.gguf"), Some(gguf("m.gguf".to_owned())));
        std::fs::create_dir(path("folder.gguf")).unwrap();
        let made = Command::new("mkfifo").arg(path("pipe.gguf")).status();
        assert!(made.unwrap().success());
        for (name, what) in [("folder.gguf", "a folder"), ("pipe.gguf", "a named pipe")] {
            let error = found(name).unwrap_err().to_string();
            let expected = format!("`{name}` is {what}");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
