//! What `pybench status` says of an evaluation.

use std::path::Path;

use pybench_run::RunError;
use pybench_types::text::line;

use crate::judge_and_report::REPORT;
use crate::record::Evaluation;
use crate::run::{EvalRecipe, RESULTS};
use crate::terminal;

/// The recipe in the run folder, and the scores if the evaluation is complete. `None` if the folder is another run.
///
/// # Errors
/// The records cannot be read.
pub fn headline(folder: &Path) -> Result<Option<String>, RunError> {
    // A recipe of the pipeline has no agents, so that it is none of an evaluation.
    let Ok(recipe) = EvalRecipe::load(&folder.join("recipe.toml")) else {
        return Ok(None);
    };
    let agents: Vec<_> = recipe.agents.keys().map(|label| line(label)).collect();
    let head = format!("evaluation {} of {}\n", recipe.name, agents.join(", "));
    let records = folder.join(RESULTS);
    if !records.is_file() {
        return Ok(Some(
            head + "no scores yet: run the same command again to go on\n",
        ));
    }
    let evaluation = Evaluation::read(&records);
    let evaluation = evaluation.map_err(|error| RunError::BadInput(error.to_string()))?;
    let page = folder.join(REPORT).join("index.html");
    let table = terminal::table(&evaluation);
    Ok(Some(format!("{head}\n{table}report: {}\n", page.display())))
}
