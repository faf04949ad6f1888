//! Synthesize: every stage in order, then what came of it.

use std::future::Future;

use pybench::run::{Mode, RunContext, RunError, StageClock, TeacherChoice};
use serde_json::json;

use crate::status::{self, Funnel};

/// For `--help`.
pub const ABOUT: &str =
    "Crawl files, write tasks, let a teacher solve them, grade the trajectories, write shards";

/// From files to a dataset. Each stage reads the artefacts of the one before it from the run
/// folder; what an earlier command did is not done again.
pub async fn run(context: &RunContext) -> Result<(), RunError> {
    timed(context, "shard", async { Ok(()) }).await?;
    if context.mode != Mode::Full {
        return Ok(());
    }
    finish(context)
}

/// Count the time of a stage that no executor counts.
async fn timed(
    context: &RunContext,
    stage: &str,
    work: impl Future<Output = Result<(), RunError>>,
) -> Result<(), RunError> {
    let _clock = StageClock::start(context.folder.clone(), stage)?;
    work.await
}

/// Write the report, print the funnel, and say whether what was asked for is there.
fn finish(context: &RunContext) -> Result<(), RunError> {
    let funnel = status::funnel(context.folder.journal())?;
    let summary = summary(context, &funnel);
    let name = &context.recipe.name;
    let markdown = format!("# Run of the recipe `{name}`\n\n```text\n{summary}```\n");
    let json = json!({
        "recipe": name,
        "teacher": teacher(&context.recipe.teacher),
        "funnel": funnel,
    });
    context.folder.write("report.md", markdown.as_bytes())?;
    let json = serde_json::to_string_pretty(&json)? + "\n";
    context.folder.write("report.json", json.as_bytes())?;
    context.progress.suspend(|| status::print(&summary))?;
    complete(context, &funnel)
}

fn summary(context: &RunContext, funnel: &Funnel) -> String {
    let mut text = format!(
        "{funnel}\ndataset: {}\nteacher: {}\n",
        context.folder.root().display(),
        teacher(&context.recipe.teacher),
    );
    if let TeacherChoice::Expert { .. } = context.recipe.teacher {
        text += "for a real endpoint: pybench synthesize RECIPE --run NAME --set budget.usd=5 --set \
                 'teacher={kind=\"openai\", model=\"MODEL\", base_url=\"https://HOST/v1\", key_env=\"VARIABLE\"}'\n";
    }
    text
}

fn teacher(teacher: &TeacherChoice) -> String {
    match teacher {
        TeacherChoice::Expert { .. } => "expert (scripted, not a language model)".to_owned(),
        TeacherChoice::Openai {
            model, base_url, ..
        } => format!("{model} at {base_url}"),
    }
}

fn complete(context: &RunContext, funnel: &Funnel) -> Result<(), RunError> {
    let asked = context.recipe.grade.at_least as u64;
    let missing = (funnel.accepted < asked)
        .then(|| format!("{} rows accepted, {asked} asked for", funnel.accepted));
    // A broken source file is counted but costs no row; a failed rollout or verdict does.
    let failed = funnel
        .stages
        .iter()
        .filter(|s| ["rollout", "grade"].contains(&s.stage.as_str()));
    let failed: u64 = failed.map(|stage| stage.failed).sum();
    let failed =
        (failed > 0).then(|| format!("{failed} units failed; the same command tries them again"));
    let reasons: Vec<String> = missing.into_iter().chain(failed).collect();
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(RunError::Incomplete(reasons.join("; "))),
    }
}
