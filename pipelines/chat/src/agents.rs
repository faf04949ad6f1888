//! Agents to talk with: those of a recipe of `pybench eval`, and the newest checkpoint.

use std::collections::BTreeMap;
use std::path::Path;

use pybench_attempts::model_server;
use pybench_eval::run::{AgentChoice, EvalRecipe};
use pybench_interpreter::InterpreterChoice;
use pybench_run::project::find_recipe;
use pybench_run::{Budget, FormatChoice, Rollout, RunError, closest};
use pybench_types::text::line;

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

/// Checks the endpoint of a conversation that other people may have begun. Keys are sent to an endpoint of `own`, the agents
/// of this machine; to another one only the key whose variable the person has `allowed`.
///
/// # Errors
/// [`RunError::BadInput`] if another key would be sent; otherwise as [`check_endpoint`].
pub fn check_shared(
    agent: &AgentChoice,
    own: &[Settings],
    allowed: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(), RunError> {
    if own.iter().any(|own| is_same_endpoint(&own.agent, agent)) {
        return Ok(());
    }
    check_endpoint(agent, variable)?;
    let Some((base_url, ..)) = destination(agent) else {
        return Ok(());
    };
    match keys(agent).iter().find(|name| allowed != Some(**name)) {
        None => Ok(()),
        Some(name) => Err(RunError::BadInput(format!(
            "the conversation is from a shared history, and would send the value of {name} to {}, which no agent of the recipe \
             `{RECIPE}` names; if you trust this address, allow it with `--key-env {name}`",
            line(base_url)
        ))),
    }
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
pub fn is_same_endpoint(one: &AgentChoice, other: &AgentChoice) -> bool {
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

pub(crate) fn checkpoint(model: String) -> AgentChoice {
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
    use super::*;

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
        let shared = |agent: AgentChoice, allowed| {
            check_shared(&agent, std::slice::from_ref(&own), allowed, set)
                .map_err(|e| e.to_string())
        };
        shared(agent("https://h/v1", "C"), None).unwrap();
        let error = shared(agent("https://i/v1", "C"), None).unwrap_err();
        assert!(error.contains("A to https://i/v1"), "{error}");
        shared(agent("https://i/v1", "C"), Some("A")).unwrap();
        let error = shared(agent("https://i/v1", "$B"), Some("A")).unwrap_err();
        assert!(error.contains("B to https://i/v1"), "{error}");
        let human = serde_json::json!({"kind": "human"});
        check_endpoint(&serde_json::from_value(human).unwrap(), set).unwrap();
        let one = agent("https://h/v1", "C");
        assert!(is_same_endpoint(&one, &agent("https://h/v1", "C")));
        assert!(!is_same_endpoint(&one, &agent("https://h/v1", "D")));
        assert!(!is_same_endpoint(&one, &agent("https://i/v1", "C")));
    }
}
