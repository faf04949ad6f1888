//! Synthesize: every stage in order, then what came of it.

use pybench::run::{Mode, RunContext, RunError, TeacherChoice};
use serde_json::json;

use crate::status::{self, Funnel, StageStatus};
use crate::{crawl, goal, query, rollout, shard};

/// For `--help`.
pub const ABOUT: &str =
    "Crawl files, write tasks, let a teacher solve them, grade the trajectories, write shards";

/// From files to a dataset. Each stage reads the artefacts of the one before it from the run
/// folder; what an earlier command did is not done again.
pub async fn run(context: &RunContext) -> Result<(), RunError> {
    crawl::run(context).await?;
    query::run(context).await?;
    if context.mode != Mode::Full {
        return rollout::run(context).await;
    }
    goal::run(context).await?;
    let sharded = shard::run(context).await;
    // Too few rows are no reason to say nothing of those there are.
    if let Ok(()) | Err(RunError::Incomplete(_)) = sharded {
        finish(context)?;
    }
    sharded
}

/// Write the report, print the funnel, and say whether what was asked for is there.
fn finish(context: &RunContext) -> Result<(), RunError> {
    let funnel = status::funnel(context.folder.journal())?;
    let summary = summary(context, &funnel);
    let name = &context.recipe.name;
    let markdown = format!("# Run of the recipe `{name}`\n\n```text\n{summary}```\n");
    let json = json!({
        "recipe": name,
        "teacher": shard::teacher_name(&context.recipe),
        "funnel": funnel,
    });
    context.folder.write("report.md", markdown.as_bytes())?;
    let json = serde_json::to_string_pretty(&json)? + "\n";
    context.folder.write("report.json", json.as_bytes())?;
    context.progress.suspend(|| status::print(&summary))?;
    // Whoever asked for a number of rows and has it is not kept waiting for tries that failed.
    match context.recipe.goal.accept {
        Some(asked) if funnel.accepted >= asked as u64 => Ok(()),
        _ => complete(&funnel),
    }
}

fn summary(context: &RunContext, funnel: &Funnel) -> String {
    let dataset = context.folder.root().join(shard::DATASET);
    let teacher = shard::teacher_name(&context.recipe);
    let mut text = format!(
        "{funnel}\ndataset: {}\nteacher: {teacher}\n",
        dataset.display()
    );
    if let TeacherChoice::Expert { .. } = context.recipe.teacher {
        let command = shard::endpoint_command(&context.recipe.name);
        text += &format!("for a real endpoint:\n{command}\n");
    }
    text
}

/// A broken source file is counted but costs no row; a failed rollout or verdict does.
fn complete(funnel: &Funnel) -> Result<(), RunError> {
    let costly = |stage: &&StageStatus| matches!(stage.stage.as_str(), "rollout" | "grade");
    match funnel
        .stages
        .iter()
        .filter(costly)
        .map(|stage| stage.failed)
        .sum()
    {
        0u64 => Ok(()),
        failed => Err(RunError::Incomplete(format!(
            "{failed} units failed; the same command tries them again"
        ))),
    }
}
