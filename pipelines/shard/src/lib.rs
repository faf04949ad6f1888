//! The shard stage: writes the accepted trajectories of a run as a dataset.

mod accepted;
mod publishable;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use accepted::AcceptedRows;
use pybench_datasets::DatasetError;
use pybench_datasets::card::CardInfo;
use pybench_datasets::dataset::{self, WrittenDataset};
use pybench_datasets::decontaminate::{BenchmarkMatches, FileSearch, MatchAction};
use pybench_datasets::preference::{Preference, to_jsonl, write_parquet};
use pybench_datasets::row::{CORRECTION_LABEL, EXPERT_LABEL, teacher_label};
use pybench_datasets::row_source::RowSource as _;
use pybench_datasets::scrub::Scrubber;
use pybench_datasets::shards::ShardSettings;
use pybench_datasets::split::{Assignment, SplitSettings};
use pybench_run::artifacts::FILES;
use pybench_run::artifacts::stage::SHARD;
use pybench_run::local::StageClock;
use pybench_run::project::invocation;
use pybench_run::run_selection::run_argument;
use pybench_run::{ModelChoice, Recipe, RunContext, RunError, RunFolder, left_out_tasks};
use pybench_types::human_edit::HUMAN_EDITED;
use pybench_types::id::Digest;

/// For `--help`.
pub const ABOUT: &str = "Write the accepted trajectories of a run as a dataset";
/// Folder of the dataset in the run folder.
pub const DATASET: &str = "dataset";
/// Maximum number of input files listed that the dataset leaves out.
const MAX_LISTED: usize = 20;
/// Name of the journal entry with the rows that match benchmarks, and of the file with them in the run folder.
pub const CONTAMINATED: &str = "contaminated";
/// File name, without its ending, of the preference pairs that people made in the studio.
pub const HUMAN_PREFERENCES: &str = "human-preferences";

/// Writes `dataset/` in the run folder, `contaminated.jsonl` if rows match benchmarks, [`HUMAN_PREFERENCES`] if people made
/// preference pairs, and the journal entries `train_rows`, `test_rows`, `dropped_rows` and [`CONTAMINATED`]. The same verdicts give the same bytes.
///
/// # Errors
/// [`RunError::Incomplete`], after everything is written, if fewer trajectories were accepted than the recipe
/// requests, not counting those that match benchmarks and are left out, nor, toward a goal, those that the split drops; errors
/// of the disk.
pub async fn run(context: &RunContext) -> Result<(), RunError> {
    let clock = StageClock::start(context.folder.clone(), SHARD)?;
    let (folder, recipe) = (context.folder.clone(), context.recipe.clone());
    let written = tokio::task::spawn_blocking(move || write(&folder, &recipe)).await;
    let (written, dropped) =
        written.map_err(|error| RunError::io("shard")(std::io::Error::other(error)))??;
    let journal = context.folder.journal();
    journal.set_metadata("train_rows", &written.train.rows.into())?;
    journal.set_metadata("test_rows", &written.test.rows.into())?;
    journal.set_metadata("dropped_rows", &dropped.rows.into())?;
    journal.set_metadata("scrubbed", &serde_json::to_value(&written.scrub)?)?;
    log_scrubbing(&written);
    report_contamination(&context.folder, &written.benchmarks)?;
    clock.save()?;
    check_row_count(context, &written, dropped)
}

/// Rows that are in no split because parts of them are held out.
struct DroppedRows {
    /// Number of rows, those of earlier datasets of this run included.
    rows: usize,
    /// Tasks of the rows that this split dropped.
    tasks: BTreeSet<Digest>,
}

/// Names the rows that match benchmarks.
fn report_contamination(folder: &RunFolder, benchmarks: &BenchmarkMatches) -> Result<(), RunError> {
    let matches = &benchmarks.matches;
    let dropped = benchmarks.action == MatchAction::Dropped;
    let entry = serde_json::json!({ "dropped": dropped, "rows": matches });
    folder.journal().set_metadata(CONTAMINATED, &entry)?;
    let name = format!("{CONTAMINATED}.jsonl");
    let path = folder.root().join(&name);
    if matches.is_empty() {
        return remove(folder, &name);
    }
    let mut lines = String::new();
    for found in matches {
        lines += &(serde_json::to_string(found)? + "\n");
    }
    folder.write(&name, lines.as_bytes())?;
    match dropped {
        true => tracing::warn!(
            "{} of {} accepted rows match tasks or files of benchmarks ({}) and are left out of the dataset; {} names \
             them, --allow-contaminated keeps them",
            matches.len(),
            benchmarks.rows,
            benchmarks.counts(),
            path.display()
        ),
        false => tracing::warn!("{}", benchmarks.warning().unwrap_or_default()),
    }
    for line in benchmarks.lines() {
        tracing::warn!("{line}");
    }
    Ok(())
}

fn log_scrubbing(written: &WrittenDataset) {
    let scrub = &written.scrub;
    if scrub.found.total() > 0 {
        let (found, rows) = (scrub.found.total(), scrub.rows);
        tracing::info!("removed {found} keys, addresses or names from {rows} rows");
    }
    let count = scrub.withheld.len();
    if count > 0 {
        tracing::info!("the dataset leaves out {count} input files");
    }
    for (_, name, scan) in scrub.withheld.iter().take(MAX_LISTED) {
        tracing::info!("left out: {name:?} {scan}");
    }
}

/// Refuses a dataset with fewer rows than the recipe requests. Rows that a split drops do not count toward a goal; their tasks
/// are recorded, so that attempts at others can replace them.
fn check_row_count(
    context: &RunContext,
    written: &WrittenDataset,
    dropped: DroppedRows,
) -> Result<(), RunError> {
    let (folder, recipe) = (&context.folder, &context.recipe);
    let requested = recipe.goal.accept.unwrap_or(0).max(recipe.grade.at_least);
    let in_dataset = written.split.assignments.len();
    let accepted = match recipe.goal.accept {
        Some(_) => in_dataset - written.split.count(Assignment::Dropped),
        None => in_dataset,
    };
    if accepted < requested {
        if recipe.goal.accept.is_some() && !dropped.tasks.is_empty() {
            left_out_tasks::add_dropped(folder.journal(), recipe, dropped.tasks)?;
        }
        let (pybench, run) = (invocation(), run_argument(folder.root()));
        let left_out = match written.benchmarks.action {
            MatchAction::Dropped => written.benchmarks.matches.len(),
            MatchAction::Allowed | MatchAction::Reported => 0,
        };
        let matching = match left_out {
            0 => String::new(),
            count => format!(", beside {count} that match benchmarks and are left out"),
        };
        let without_split = match (recipe.goal.accept, dropped.rows) {
            (None, _) | (_, 0) => String::new(),
            (Some(_), count) => format!(", beside {count} that the split drops"),
        };
        return Err(RunError::Incomplete(format!(
            "{accepted} trajectories were accepted{matching}{without_split}, but the recipe requests {requested}; `{pybench} status {run}` \
             shows why the others were rejected; to write more tasks, start a new run with `--set \
             query.tasks=N --run NAME`"
        )));
    }
    Ok(())
}

fn write(
    folder: &Arc<RunFolder>,
    recipe: &Recipe,
) -> Result<(WrittenDataset, DroppedRows), RunError> {
    let (mut rows, scrubber) = (AcceptedRows::read(folder, recipe)?, Scrubber::of_machine());
    let files = FileSearch::new(&[folder.root().join("files")], pybench_profile::content)?;
    let mut benchmarks = rows.compare(&files)?;
    let pairs = rows.preferences(&files, recipe.shard.allow_contaminated, &scrubber)?;
    drop(files);
    write_preferences(folder, &pairs)?;
    benchmarks.action = match recipe.shard.allow_contaminated {
        true => MatchAction::Allowed,
        false => MatchAction::Dropped,
    };
    if benchmarks.action == MatchAction::Dropped {
        left_out_tasks::add_matching(folder.journal(), rows.matching_tasks(&benchmarks)?)?;
        rows.drop_matching(&benchmarks);
    }
    let dropped_before = match recipe.goal.accept {
        Some(_) => rows.drop_tasks(&left_out_tasks::dropped(folder.journal(), recipe)?)?,
        None => 0,
    };
    let about = about(folder, recipe, &rows, benchmarks, dropped_before)?;
    let split = SplitSettings {
        test_fraction: recipe.shard.test_fraction,
        held_out_templates: recipe.shard.held_out_templates,
        seed: recipe.seed,
        shares: recipe.shard.test_shares,
    };
    let shards = ShardSettings {
        shard_rows: recipe.shard.shard_rows,
        row_group_rows: recipe.shard.row_group_rows,
        zstd_level: recipe.shard.zstd_level,
        ..ShardSettings::default()
    };
    let written = dataset::write_with(
        &folder.root().join(DATASET),
        &rows,
        (&split, &shards),
        &about,
        &scrubber,
        Some(folder.store()),
    );
    let written = written.map_err(run_error)?;
    let assignments = written.split.assignments.iter().enumerate();
    let dropped = assignments.filter(|(_, of_row)| **of_row == Assignment::Dropped);
    let tasks = rows.tasks_of(dropped.map(|(row, _)| row))?;
    let dropped = DroppedRows {
        rows: dropped_before + written.split.count(Assignment::Dropped),
        tasks,
    };
    Ok((written, dropped))
}

/// Writes the preference pairs of people as JSON and as Parquet, or deletes the files if there are none.
fn write_preferences(folder: &RunFolder, pairs: &[Preference]) -> Result<(), RunError> {
    let [json, parquet] = ["jsonl", "parquet"].map(|end| format!("{HUMAN_PREFERENCES}.{end}"));
    if pairs.is_empty() {
        return [json, parquet]
            .iter()
            .try_for_each(|name| remove(folder, name));
    }
    folder.write(&json, to_jsonl(pairs)?.as_bytes())?;
    write_parquet(&folder.root().join(parquet), pairs)
}

/// Deletes a file of the run folder, if it is there.
fn remove(folder: &RunFolder, name: &str) -> Result<(), RunError> {
    let path = folder.root().join(name);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(RunError::io(path.display().to_string())(error))
        }
        _ => Ok(()),
    }
}

fn about(
    folder: &RunFolder,
    recipe: &Recipe,
    rows: &AcceptedRows,
    benchmarks: BenchmarkMatches,
    dropped_before: usize,
) -> Result<CardInfo, RunError> {
    let mut files = 0;
    for file in FILES.read(folder.root())? {
        file?;
        files += 1;
    }
    let counts = rows.counts();
    let step = |name: &str, count: usize| (name.to_owned(), count as u64);
    let edited = (counts.edited > 0).then(|| step("edited by people", counts.edited));
    let matching = match benchmarks.action {
        MatchAction::Dropped => benchmarks.matches.len(),
        MatchAction::Allowed | MatchAction::Reported => 0,
    };
    let clean = rows.len() + dropped_before;
    let without_matching = (matching > 0).then(|| step("without benchmark tasks", clean));
    let without_dropped = (dropped_before > 0)
        .then(|| step("without rows that an earlier split dropped", rows.len()));
    Ok(CardInfo {
        title: format!("pybench {}", recipe.name),
        teacher: match counts.edited {
            0 => teacher_name(recipe),
            _ => format!("{}, {HUMAN_EDITED}", teacher_name(recipe)),
        },
        endpoint_command: endpoint_command(
            &format!("pybench synthesize {}", recipe.name),
            &recipe.name,
        ),
        recipe: publishable::recipe(recipe)?,
        funnel: [
            step("files", files),
            step("tasks", counts.tasks),
            step("trajectories", counts.trajectories),
            step("graded", counts.graded),
            step("accepted", counts.accepted),
        ]
        .into_iter()
        .chain(edited)
        .chain(without_matching)
        .chain(without_dropped)
        .collect(),
        rejected: counts.rejected.clone().into_iter().collect(),
        faults: match counts.faults.planted {
            0 => String::new(),
            _ => counts.faults.to_string(),
        },
        benchmarks,
    })
}

/// The names of the teachers, as rows and the dataset card show them.
pub fn teacher_name(recipe: &Recipe) -> String {
    let name = |choice: &ModelChoice| match choice {
        ModelChoice::Expert { .. } => EXPERT_LABEL.to_owned(),
        ModelChoice::Correction { .. } => CORRECTION_LABEL.to_owned(),
        ModelChoice::Openai { model, .. } => teacher_label(&format!("openai:{model}")).to_owned(),
        ModelChoice::Checkpoint {
            model,
            dtype,
            engine,
        } => ModelChoice::checkpoint_name(model, *dtype, *engine),
        ModelChoice::Embedded { model, sha256, .. } => {
            pybench_embedded_client::name(model, sha256.as_deref()).unwrap_or_else(|| model.clone())
        }
    };
    let names = recipe
        .teachers()
        .into_iter()
        .map(|(_, choice)| name(choice));
    names.collect::<Vec<_>>().join(", ")
}

/// The command that creates the dataset of `synthesize`, a command line, with a model behind an endpoint, in the run
/// `<name>-model`.
pub fn endpoint_command(synthesize: &str, name: &str) -> String {
    format!(
        "{synthesize} --run {name}-model \\\n  --set 'teacher={{ kind = \"openai\", \
         model = \"MODEL\", base_url = \"https://HOST/v1\", key_env = \"OPENAI_API_KEY\" }}' \\\n  \
         --set budget.usd=5"
    )
}

fn run_error(error: DatasetError) -> RunError {
    match error {
        DatasetError::Io { context, source } => RunError::Io { context, source },
        DatasetError::Setting(text) => RunError::BadInput(text),
        other => {
            RunError::io(Path::new(DATASET).display().to_string())(std::io::Error::other(other))
        }
    }
}
