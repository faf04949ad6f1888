//! Shard: writes the accepted trajectories of a run as a dataset.

mod publishable;

use std::collections::HashMap;
use std::path::Path;

use pybench::id::Digest;
use pybench::run::local::StageClock;
use pybench::run::{Recipe, RunContext, RunError, RunFolder, TeacherChoice};
use pybench::task::{SourceFile, Task};
use pybench::trajectory::{Trajectory, Verdict};
use pybench_datasets::card::About;
use pybench_datasets::dataset::{self, Written};
use pybench_datasets::row::{EXPERT_LABEL, teacher_label};
use pybench_datasets::scrub::Scrubber;
use pybench_datasets::shards::ShardSettings;
use pybench_datasets::split::{Place, SplitSettings};
use pybench_datasets::{Attempts, DatasetError, Row};

use crate::goal::holds;
use crate::grade::{self, TRAJECTORIES, VERDICTS, read_lines, read_tasks};

/// For `--help`.
pub const ABOUT: &str = "Write the accepted trajectories of a run as a dataset";
/// Name of the stage in the journal.
pub const STAGE: &str = "shard";
/// The folder of the dataset, below the run folder.
pub const DATASET: &str = "dataset";

/// Writes `dataset/` below the run folder, and the facts `train_rows`, `test_rows` and
/// `dropped_rows`. The same verdicts give the same bytes. Fewer accepted trajectories than the
/// recipe asks for are [`RunError::Incomplete`], after everything is written.
pub async fn run(context: &RunContext) -> Result<(), RunError> {
    let clock = StageClock::start(context.folder.clone(), STAGE)?;
    let (folder, recipe) = (context.folder.clone(), context.recipe.clone());
    let written = tokio::task::spawn_blocking(move || write(&folder, &recipe)).await;
    let written =
        written.map_err(|error| RunError::io("shard")(std::io::Error::other(error)))??;
    let journal = context.folder.journal();
    journal.set_fact("train_rows", &written.train.rows.into())?;
    journal.set_fact("test_rows", &written.test.rows.into())?;
    let dropped = written.split.count(Place::Dropped);
    journal.set_fact("dropped_rows", &dropped.into())?;
    journal.set_fact("scrubbed", &serde_json::to_value(&written.scrub)?)?;
    tell_of(&written);
    clock.save()?;
    let recipe = &context.recipe;
    let asked = recipe.goal.accept.unwrap_or(0).max(recipe.grade.at_least);
    enough(asked, written.split.places.len())
}

fn tell_of(written: &Written) {
    let scrub = &written.scrub;
    if scrub.found.total() > 0 {
        let (finds, rows) = (scrub.found.total(), scrub.rows);
        tracing::info!("{finds} keys, addresses or names were taken out of {rows} rows");
    }
    if !scrub.withheld.is_empty() {
        let count = scrub.withheld.len();
        tracing::info!("{count} input files hold such things and are not carried by the dataset");
    }
}

fn enough(asked: usize, accepted: usize) -> Result<(), RunError> {
    if accepted < asked {
        return Err(RunError::Incomplete(format!(
            "{accepted} trajectories were accepted, the recipe asks for {asked}; `pybench status` \
             says why the others were rejected; write more tasks with `--set query.tasks=N` and a \
             folder of its own with `--run NAME`"
        )));
    }
    Ok(())
}

fn write(folder: &RunFolder, recipe: &Recipe) -> Result<Written, RunError> {
    let tasks = read_tasks(folder)?;
    let trajectories: Vec<Trajectory> = read_lines(folder, TRAJECTORIES)?;
    let verdicts: Vec<Verdict> = read_lines(folder, VERDICTS)?;
    let about = about(folder, recipe, &tasks, &trajectories, &verdicts)?;
    let rows = rows(folder, recipe, &tasks, &trajectories, &verdicts);
    let split = SplitSettings {
        test_fraction: recipe.shard.test_fraction,
        held_out_templates: recipe.shard.held_out_templates,
        seed: recipe.seed,
    };
    let shards = ShardSettings {
        shard_rows: recipe.shard.shard_rows,
        row_group_rows: recipe.shard.row_group_rows,
        zstd_level: recipe.shard.zstd_level,
        ..ShardSettings::default()
    };
    let written = dataset::write_with(
        &folder.root().join(DATASET),
        rows,
        (&split, &shards),
        &about,
        &Scrubber::of_machine(),
        Some(folder.store()),
    );
    written.map_err(run_error)
}

/// Accepted trajectories as rows, in item order.
fn rows(
    folder: &RunFolder,
    recipe: &Recipe,
    tasks: &[Task],
    trajectories: &[Trajectory],
    verdicts: &[Verdict],
) -> Vec<Row> {
    let tasks: HashMap<&Digest, &Task> = tasks.iter().map(|t| (&t.id, t)).collect();
    let by_id: HashMap<&Digest, &Trajectory> = trajectories.iter().map(|t| (&t.id, t)).collect();
    let attempts = attempts(&by_id, verdicts);
    let accepted = verdicts.iter().filter(|verdict| verdict.accepted);
    let row = |verdict: &Verdict| {
        let trajectory = by_id.get(&verdict.trajectory)?;
        let mut row = Row::new(tasks.get(&trajectory.task)?, trajectory, verdict);
        row.attempts = attempts.get(&trajectory.task).copied()?;
        let row = row.in_interpreter(&recipe.interpreter);
        Some(row.with_contents(|id| folder.store().get(id).ok()))
    };
    accepted.filter_map(row).collect()
}

/// How often each task was tried and solved. A solution that was not needed is one; what the expert does wrong on
/// purpose says nothing of a task.
fn attempts<'a>(
    trajectories: &HashMap<&Digest, &'a Trajectory>,
    verdicts: &[Verdict],
) -> HashMap<&'a Digest, Attempts> {
    let mut attempts: HashMap<&Digest, Attempts> = HashMap::new();
    for verdict in verdicts {
        let Some(trajectory) = trajectories.get(&verdict.trajectory) else {
            continue;
        };
        let of_task = attempts.entry(&trajectory.task).or_default();
        if trajectory.fault.is_none() {
            of_task.tried += 1;
            of_task.solved += u32::from(holds(verdict));
        }
    }
    attempts
}

fn about(
    folder: &RunFolder,
    recipe: &Recipe,
    tasks: &[Task],
    trajectories: &[Trajectory],
    verdicts: &[Verdict],
) -> Result<About, RunError> {
    let files: Vec<SourceFile> = read_lines(folder, "files.jsonl")?;
    let accepted = verdicts.iter().filter(|verdict| verdict.accepted).count();
    let step = |name: &str, count: usize| (name.to_owned(), count as u64);
    let faults = grade::fault_report(trajectories, verdicts);
    Ok(About {
        title: format!("pybench {}", recipe.name),
        teacher: teacher_name(recipe),
        endpoint_command: endpoint_command(&recipe.name),
        recipe: publishable::recipe(recipe)?,
        funnel: vec![
            step("files", files.len()),
            step("tasks", tasks.len()),
            step("trajectories", trajectories.len()),
            step("graded", verdicts.len()),
            step("accepted", accepted),
        ],
        rejected: grade::rejections(verdicts).into_iter().collect(),
        faults: match faults.planted {
            0 => String::new(),
            _ => faults.to_string(),
        },
    })
}

/// The teacher as rows and cards name it.
pub fn teacher_name(recipe: &Recipe) -> String {
    let name = |choice: &TeacherChoice| match choice {
        TeacherChoice::Expert { .. } => EXPERT_LABEL.to_owned(),
        TeacherChoice::Openai { model, .. } => teacher_label(&format!("openai:{model}")).to_owned(),
        TeacherChoice::Embedded { model, sha256, .. } => {
            crate::embedded::name(model, sha256.as_deref()).unwrap_or_else(|| model.clone())
        }
    };
    let names = recipe
        .teachers()
        .into_iter()
        .map(|(_, choice)| name(choice));
    names.collect::<Vec<_>>().join(", ")
}

/// The command that makes such a dataset with a model behind an endpoint.
pub fn endpoint_command(recipe: &str) -> String {
    format!(
        "./justw synthesize {recipe} --run {recipe}-model \\\n  --set 'teacher={{ kind = \"openai\", \
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
