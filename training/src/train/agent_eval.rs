//! Evaluation of the trained model as an agent, by `pybench-eval`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use pybench_training_data::read_bounded;
use serde_json::{Value, json};
use toml::Table;

use super::recipe::AgentEvalConfig;
use crate::catalog;
use crate::exit::{ChildError, environment};

/// Folder of the evaluation in that of the run.
const FOLDER: &str = "agent_eval";

/// Evaluates the model and, unless another server serves it, the model before training. Returns the share of
/// passed tasks by agent: `{"after": {"tasks": 33, "passed": 0.12}}`. Resumes an interrupted evaluation.
///
/// # Errors
/// If the recipe cannot be read, or the evaluation fails. The trained model is saved at this point.
pub(super) fn evaluate(
    config: &AgentEvalConfig,
    before: &Path,
    model: &Path,
    out: &Path,
) -> Result<Value> {
    let recipe = out.join("agent_eval.toml");
    let table = with_agents(config, before, model)?;
    fs::write(&recipe, toml::to_string(&table)?).with_context(|| recipe.display().to_string())?;
    let program = find_program(&config.program);
    let mut command = Command::new(&program);
    command
        .arg(&recipe)
        .args(["--run", FOLDER, "--runs-dir"])
        .arg(out);
    // Standard output belongs to this program.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.map_err(|error| {
        environment(format!(
            "{} cannot be started: {error}; build it, or set agent_eval.program",
            program.display()
        ))
    })?;
    if !status.success() {
        let text = format!(
            "{} {} failed with {status}. The trained model is in {}; run the same command again to resume the evaluation",
            program.display(),
            recipe.display(),
            model.display()
        );
        return Err(ChildError::new(text, status).into());
    }
    let report = out.join(FOLDER).join("report/report.json");
    let report: Value = serde_json::from_slice(&read_bounded(&report, 64 << 20)?)
        .with_context(|| report.display().to_string())?;
    Ok(passed_share(&report))
}

/// The evaluation recipe with the model as its agents. The automatic choice of checkpoints is turned off.
fn with_agents(config: &AgentEvalConfig, before: &Path, model: &Path) -> Result<Table> {
    let named = || format!("agent_eval.recipe: {}", config.recipe.display());
    let path = catalog::local_file(&config.recipe).with_context(named)?;
    let bytes = read_bounded(&path, 1 << 20).with_context(named)?;
    let text = String::from_utf8(bytes).with_context(named)?;
    let mut table: Table = toml::from_str(&text).with_context(named)?;
    table.insert("checkpoints".into(), false.into());
    let agents = table.entry("agents").or_insert_with(|| Table::new().into());
    let agents = agents
        .as_table_mut()
        .with_context(|| format!("{}: agents is not a table", named()))?;
    let absolute = |path: &Path| -> Result<String> {
        Ok(fs::canonicalize(path)
            .with_context(|| path.display().to_string())?
            .display()
            .to_string())
    };
    match &config.server_url {
        None => {
            for (name, folder) in [("before", before), ("after", model)] {
                let agent = [
                    ("kind", "checkpoint".to_owned()),
                    ("model", absolute(folder)?),
                ];
                agents.insert(name.into(), agent_table(agent).into());
            }
        }
        Some(url) => {
            let served = config
                .served_model_name
                .clone()
                .map_or_else(|| absolute(model), Ok)?;
            let agent = [
                ("kind", "openai".to_owned()),
                ("base_url", url.clone()),
                ("model", served),
            ];
            agents.insert("after".into(), agent_table(agent).into());
        }
    }
    Ok(table)
}

fn agent_table<const N: usize>(entries: [(&str, String); N]) -> Table {
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect()
}

/// The program beside this one, otherwise the path or name itself.
fn find_program(program: &str) -> PathBuf {
    let here = std::env::current_exe().ok();
    let found = here.and_then(|here| Some(here.parent()?.join(program)));
    found
        .filter(|path| path.is_file())
        .unwrap_or_else(|| program.into())
}

/// The overall strict pass rate of each agent.
fn passed_share(report: &Value) -> Value {
    let agents = report["agents"].as_array().into_iter().flatten();
    let shares = agents.filter_map(|agent| {
        let measures = agent["measures"].as_array()?;
        let strict = measures
            .iter()
            .find(|measure| measure["measure"] == "strict")?;
        let overall = &strict["overall"];
        let share = json!({"tasks": overall["tasks"], "passed": overall["rate"].as_f64()?});
        Some((agent["agent"].as_str()?.to_owned(), share))
    });
    Value::Object(shares.collect())
}
