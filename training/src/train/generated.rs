//! Evaluation on trajectories that the model generates: `pybench-eval` asks it, through a server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use toml::Table;

use super::recipe::Generated;
use crate::model::read_bounded;

/// Name of the evaluation's folder, in that of the run.
const FOLDER: &str = "generated";

/// Evaluates the model and, where we serve it ourselves, what it was before; the share of tasks passed,
/// by agent: `{"after": {"tasks": 33, "passed": 0.12}}`. An evaluation that was stopped goes on.
///
/// # Errors
/// For a recipe that cannot be read, and when the evaluation fails; the model is written by then.
pub(super) fn evaluate(
    choice: &Generated,
    before: &Path,
    model: &Path,
    out: &Path,
) -> Result<Value> {
    let recipe = out.join("generated.toml");
    let asked = with_agents(choice, before, model)?;
    fs::write(&recipe, toml::to_string(&asked)?).with_context(|| recipe.display().to_string())?;
    let program = beside(&choice.program);
    let mut command = Command::new(&program);
    command
        .arg(&recipe)
        .args(["--run", FOLDER, "--runs-dir"])
        .arg(out);
    // Our own standard output is for whoever called us.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("{} cannot be started", program.display()))?;
    if !status.success() {
        bail!(
            "{} {} ended with {status}; the model is in {}, and the same command goes on with its evaluation",
            program.display(),
            recipe.display(),
            model.display()
        );
    }
    let report = out.join(FOLDER).join("report/report.json");
    let report: Value = serde_json::from_slice(&read_bounded(&report, 64 << 20)?)
        .with_context(|| report.display().to_string())?;
    Ok(passed(&report))
}

/// The recipe with the model as its agents, in place of checkpoints of its own finding.
fn with_agents(choice: &Generated, before: &Path, model: &Path) -> Result<Table> {
    let path = &choice.recipe;
    let named = || format!("generated.recipe: {}", path.display());
    let bytes = read_bounded(path, 1 << 20).with_context(named)?;
    let text = String::from_utf8(bytes).with_context(named)?;
    let mut asked: Table = toml::from_str(&text).with_context(named)?;
    asked.insert("checkpoints".into(), false.into());
    let agents = asked.entry("agents").or_insert_with(|| Table::new().into());
    let agents = agents
        .as_table_mut()
        .with_context(|| format!("{}: agents is no table", named()))?;
    let absolute = |path: &Path| -> Result<String> {
        Ok(fs::canonicalize(path)
            .with_context(|| path.display().to_string())?
            .display()
            .to_string())
    };
    match &choice.server {
        None => {
            for (name, folder) in [("before", before), ("after", model)] {
                let agent = [
                    ("kind", "checkpoint".to_owned()),
                    ("model", absolute(folder)?),
                ];
                agents.insert(name.into(), table(agent).into());
            }
        }
        Some(url) => {
            let served = choice
                .served_as
                .clone()
                .map_or_else(|| absolute(model), Ok)?;
            let agent = [
                ("kind", "openai".to_owned()),
                ("base_url", url.clone()),
                ("model", served),
            ];
            agents.insert("after".into(), table(agent).into());
        }
    }
    Ok(asked)
}

fn table<const N: usize>(entries: [(&str, String); N]) -> Table {
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect()
}

/// A program beside this one, else of that path or name.
fn beside(program: &str) -> PathBuf {
    let here = std::env::current_exe().ok();
    let found = here.and_then(|here| Some(here.parent()?.join(program)));
    found
        .filter(|path| path.is_file())
        .unwrap_or_else(|| program.into())
}

/// Of every agent with an overall share in the strict score.
fn passed(report: &Value) -> Value {
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
