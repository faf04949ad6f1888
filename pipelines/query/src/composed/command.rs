//! The command `pybench compose`: composes tasks over the files of a folder, and proves them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use futures::StreamExt;
use pybench_checks::Checker;
use pybench_compose::slip::SlipKind;
use pybench_compose::{Made, Medium, TaskSeed};
use pybench_interpreter::{Interpreter, InterpreterChoice};
use pybench_interpreter_containers::interpreter;
use pybench_library::Library;
use pybench_library::audit::fixtures::Fixtures;
use pybench_library::export::{SolvedTask, write_folders, write_taskset};
use pybench_run::cli::{LogArgs, Process, print};
use pybench_run::project::samples;
use pybench_run::{ContentStore, RunError, cores};
use pybench_types::difficulty;
use pybench_types::held_out;
use pybench_types::held_out::HeldOutRule;
use pybench_types::id::Digest;
use pybench_types::task::{Category, Language, Task};

use super::audit::{Audit, Environment, audit};
use super::diversity;
use super::imprecise::{said_imprecisely, with_file_typo};
use super::in_parallel::in_parallel;
use super::pairs::{self, Pairs};
use super::rounds::Rounds;
use super::stage::COMPOSED;

/// Draws for each task that is asked for.
const DRAWS: usize = 8;

/// Compose tasks from operations over the files of a folder, print them, and prove them
#[derive(Debug, clap::Parser)]
pub struct ComposeArgs {
    /// Folder of files [default: the sample files of pybench]
    #[arg(long, value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// Categories of the tasks, as in a recipe: `chart` (tables), `text` (texts and documents), `image_audio` [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = category)]
    pub categories: Vec<Category>,
    /// Number of tasks
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub count: usize,
    /// Seed of all random choices
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Share of the tasks whose names and values are invented, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.5)]
    pub renamed: f64,
    /// Share of the tasks on tables whose file is written as people hand tables on, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.25)]
    pub messy: f64,
    /// Share of the tasks that are said less precisely where only one thing can be meant, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub imprecise: f64,
    /// Share of the tasks with a typo in the name of a file where only one file can be meant, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub typos: f64,
    /// Run the expert and agents without a solution in the interpreter, check them, drop the tasks that fail, draw others in
    /// their place, and print a summary
    #[arg(long)]
    pub prove: bool,
    /// As --prove, with two more solutions of the expert in other styles, one of which repairs a mistake, and with wrong
    /// solutions; tasks that fail are not dropped: the command lists them and fails
    #[arg(long)]
    pub audit: bool,
    /// As --prove, and write the tasks that hold to DIR as task folders for Harbor; DIR must not exist or must be empty
    #[arg(long, value_name = "DIR")]
    pub harbor: Option<PathBuf>,
    /// As --prove, and write the tasks that hold to DIR: `package`, a taskset for verifiers, and `rewards`, the references
    /// and checks for `pybench library serve-rewards --tasks`; DIR must not exist or must be empty
    #[arg(long, value_name = "DIR")]
    pub verifiers: Option<PathBuf>,
    /// Print how varied the tasks and the expert's solutions are, instead of the tasks: distinct graphs, queries and
    /// programs, near duplicates, and the self-BLEU of the queries
    #[arg(long)]
    pub diversity: bool,
    /// Tasks composed and proven in parallel [default: one per core]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Print the tasks as JSON lines
    #[arg(long, conflicts_with_all = ["prove", "audit", "harbor", "verifiers", "diversity"])]
    pub json: bool,
    #[command(flatten)]
    pub log: LogArgs,
}

impl ComposeArgs {
    fn jobs(&self) -> usize {
        self.jobs.unwrap_or_else(cores).max(1)
    }
}

/// The category of this name, if tasks of it can be composed.
fn category(name: &str) -> Result<Category, String> {
    let mut all = COMPOSED.into_iter();
    all.find(|category| category.name() == name).ok_or_else(|| {
        "composed tasks have the categories `chart`, `text` and `image_audio`".into()
    })
}

/// Runs the command.
///
/// # Errors
/// [`RunError::Incomplete`] if no file fits, or no task proves itself, or, with `--audit`, one fails; [`RunError::Environment`] without an interpreter.
pub async fn run(args: &ComposeArgs, process: &Process) -> Result<(), RunError> {
    let library = Library::embedded().map_err(|error| RunError::BadInput(error.to_string()))?;
    let folder = match &args.files {
        Some(folder) => folder.clone(),
        None => samples()?,
    };
    let fixtures = Fixtures::read(&folder)?;
    let began = Instant::now();
    let rounds = Rounds::new(&fixtures.files, &args.categories);
    let mut drawing = Drawing {
        args,
        process,
        library: &library,
        store: &fixtures.store,
        rounds: &rounds,
        joinable: OnceLock::new(),
        next: 0,
    };
    let tasks = drawing.tasks(args.count)?;
    if tasks.is_empty() {
        return Err(RunError::Incomplete(format!(
            "no task can be composed over the files in {}: tables (csv, tsv, xlsx, json, jsonl, parquet) of 20 to 20,000 rows, \
             texts (txt, md, log) or documents (docx, html, pdf, pptx) of 200 to 100,000 characters, pictures, or sounds of \
             0.5 to 120 seconds are needed",
            folder.display()
        )));
    }
    if args.diversity {
        print(&diversity::table(&tasks)?)?;
    }
    if !args.prove && !args.audit && args.harbor.is_none() && args.verifiers.is_none() {
        return match args.diversity {
            true => Ok(()),
            false => print(&listed(args, &tasks)?),
        };
    }
    let Proven {
        tasks,
        audits,
        dropped,
    } = prove(&mut drawing, tasks).await?;
    print(&summary(&tasks, &audits, began.elapsed().as_secs_f64()))?;
    print(&dropped_text(&dropped))?;
    let solved = solved(&tasks, &audits);
    if let Some(folder) = &args.harbor {
        write_folders(folder, &solved, &fixtures.store)?;
        print(&format!(
            "task folders             {} in {}\n",
            solved.len(),
            folder.display()
        ))?;
    }
    if let Some(folder) = &args.verifiers {
        write_taskset(folder, &solved, &fixtures.store)?;
        print(&format!(
            "taskset                  {} tasks in {}\n",
            solved.len(),
            folder.display()
        ))?;
    }
    if tasks.is_empty() {
        return Err(RunError::Incomplete(
            "no task that was composed proves itself".into(),
        ));
    }
    match audits.iter().all(Audit::holds) {
        true => Ok(()),
        false => Err(RunError::Incomplete("some tasks are not sound".into())),
    }
}

/// What the tasks of a command are composed from.
struct Drawing<'a> {
    args: &'a ComposeArgs,
    process: &'a Process,
    library: &'a Library,
    store: &'a ContentStore,
    rounds: &'a Rounds,
    /// Read when the first task needs them.
    joinable: OnceLock<Pairs>,
    /// The first draw that was not made.
    next: usize,
}

impl Drawing<'_> {
    /// Composes so many tasks, or fewer if no draws are left, and puts their files into the store. They do not depend on
    /// the number of threads: as many draws as tasks are missing follow those before.
    fn tasks(&mut self, count: usize) -> Result<Vec<Task>, RunError> {
        let last = self.args.count * DRAWS;
        let progress = self.process.progress.stage("compose", count as u64);
        let mut tasks = Vec::new();
        while tasks.len() < count && self.next < last {
            let draws = self.next..last.min(self.next + count - tasks.len());
            self.next = draws.end;
            let drawing = &*self;
            let made = in_parallel(draws, self.args.jobs(), |draw| {
                if drawing.process.interrupt.requested() {
                    return Err(RunError::Interrupted);
                }
                let made = drawing.task(draw)?;
                made.iter().for_each(|_| progress.done());
                Ok(made)
            });
            for made in made {
                tasks.extend(made?);
            }
        }
        progress.finish();
        Ok(tasks)
    }

    /// The task of a draw, whose new files are put into the store; `None` if it gives none.
    fn task(&self, draw: usize) -> Result<Option<Task>, RunError> {
        let args = self.args;
        let Some((file, medium)) = self.rounds.at(draw) else {
            return Ok(None);
        };
        let drawn = Digest::of_json(&(args.seed, draw, "compose"));
        let everything = HeldOutRule::default();
        let seed = TaskSeed {
            foreign_names: None,
            seed: drawn.seed(),
            language: [Language::En, Language::Zh][usize::from(drawn.seed().is_multiple_of(5))],
            medium,
            renamed: drawn.fraction() < args.renamed,
            messy: Digest::of_json(&(&drawn, "messy")).fraction() < args.messy,
            avoided: &everything,
        };
        let bytes = self.store.get(&file.id)?;
        let others = match Pairs::are_asked_for(seed, &drawn) {
            true => {
                let tables = self.rounds.tables();
                let read = || Pairs::read(tables, self.store, |_| false);
                let joinable = self.joinable.get_or_init(read);
                joinable.others(tables, file, &drawn, self.store)?
            }
            false => Vec::new(),
        };
        let subcategory = |keyword: &str| self.library.keywords().subcategory(keyword);
        let made = pairs::make((file, bytes.as_slice()), &others, seed, subcategory);
        let made = made.map_err(|error| RunError::Internal(error.to_string()))?;
        let Some(made) = made else {
            return Ok(None);
        };
        let is_imprecise = Digest::of_json(&(&drawn, "imprecise")).fraction() < args.imprecise;
        let Made { task, files } = match is_imprecise {
            true => said_imprecisely(made, self.store, seed)?,
            false => made,
        };
        for bytes in files {
            self.store.put(&bytes)?;
        }
        let has_typo = Digest::of_json(&(&drawn, "typos")).fraction() < args.typos;
        Ok(Some(match has_typo {
            true => with_file_typo(task, seed),
            false => task,
        }))
    }
}

/// Tasks that ran in the interpreter.
#[derive(Default)]
struct Proven {
    tasks: Vec<Task>,
    audits: Vec<Audit>,
    /// Tasks that failed and were replaced.
    dropped: Vec<(Task, Audit)>,
}

/// Runs the tasks in the interpreter. With `--audit`, those that fail stay, to be looked at. Otherwise they are dropped, and
/// others are drawn in their place while draws are left.
async fn prove(drawing: &mut Drawing<'_>, tasks: Vec<Task>) -> Result<Proven, RunError> {
    let (args, process) = (drawing.args, drawing.process);
    let environment = |error: &dyn std::fmt::Display| RunError::Environment(error.to_string());
    let choice = InterpreterChoice::default();
    let interpreter: Arc<dyn Interpreter> =
        interpreter(&choice).map_err(|error| environment(&error))?;
    let checker = Checker::new(interpreter.clone()).map_err(|error| environment(&error))?;
    let env = Environment {
        interpreter: interpreter.as_ref(),
        checker: &checker,
        store: drawing.store,
    };
    let mut proven = Proven::default();
    let mut tasks = tasks;
    while !tasks.is_empty() {
        let found = audits(args, process, &env, &tasks).await?;
        for (task, audit) in tasks.into_iter().zip(found) {
            if args.audit || audit.holds() {
                proven.tasks.push(task);
                proven.audits.push(audit);
            } else {
                proven.dropped.push((task, audit));
            }
        }
        tasks = match args.audit {
            true => Vec::new(),
            false => drawing.tasks(args.count - proven.tasks.len())?,
        };
    }
    Ok(proven)
}

async fn audits(
    args: &ComposeArgs,
    process: &Process,
    env: &Environment<'_>,
    tasks: &[Task],
) -> Result<Vec<Audit>, RunError> {
    let work = tasks.iter().enumerate().map(|(at, task)| async move {
        let result = audit(env, task, args.audit).await;
        if let Ok(audit) = &result {
            for what in audit.expert.iter().chain(&audit.passed).chain(&audit.nulls) {
                tracing::info!("{}: {what}", task.id.short());
            }
        }
        result.map(|audit| (at, audit))
    });
    let progress = process.progress.stage("prove", tasks.len() as u64);
    let mut audits = BTreeMap::new();
    // A task that takes long does not hold up those after it.
    let mut results = futures::stream::iter(work).buffer_unordered(args.jobs());
    while let Some(result) = results.next().await {
        if process.interrupt.requested() {
            return Err(RunError::Interrupted);
        }
        let (at, audit) = result?;
        match audit.holds() {
            true => progress.done(),
            false => progress.failed(),
        }
        audits.insert(at, audit);
    }
    progress.finish();
    Ok(audits.into_values().collect())
}

/// The tasks that hold, each once, with the expert's solution.
fn solved(tasks: &[Task], audits: &[Audit]) -> Vec<SolvedTask> {
    let mut seen = BTreeSet::new();
    let tasks = tasks.iter().zip(audits);
    let holding = tasks.filter(|(task, audit)| audit.holds() && seen.insert(task.id.clone()));
    let solved = holding.map(|(task, audit)| SolvedTask {
        name: format!("composed-{}", task.id.short()),
        seed: None,
        task: task.clone(),
        cells: audit.solution.0.clone(),
        answer: audit.solution.1.clone(),
    });
    solved.collect()
}

fn listed(args: &ComposeArgs, tasks: &[Task]) -> Result<String, RunError> {
    let mut text = String::new();
    for task in tasks {
        if args.json {
            let line = serde_json::to_string(task)
                .map_err(|error| RunError::Internal(error.to_string()))?;
            text.push_str(&line);
            text.push('\n');
            continue;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "── {} · {} · {:?}\n{}\n",
            task.id.short(),
            task.keyword,
            task.language,
            task.query
        );
    }
    Ok(text)
}

fn summary(tasks: &[Task], audits: &[Audit], seconds: f64) -> String {
    let skeleton = |task: &Task| match &task.origin {
        pybench_types::task::TaskOrigin::Composed { skeleton, .. } => skeleton.clone(),
        _ => String::new(),
    };
    let skeletons: BTreeSet<String> = tasks.iter().map(skeleton).collect();
    let mut operations: BTreeMap<String, usize> = BTreeMap::new();
    for name in skeletons
        .iter()
        .flat_map(|skeleton| held_out::operations(skeleton))
    {
        *operations.entry(name).or_default() += 1;
    }
    let sound = audits
        .iter()
        .filter(|audit| audit.expert.is_empty())
        .count();
    let mutants: usize = audits.iter().map(|audit| audit.mutants).sum();
    let passed: usize = audits.iter().map(|audit| audit.passed.len()).sum();
    let nulls: usize = audits.iter().map(|audit| audit.nulls.len()).sum();
    let several = tasks.iter().filter(|task| task.files.len() > 1).count();
    let mut text = format!(
        "tasks                    {}\n\
         distinct graphs          {}\n\
         operations used          {} of {}\n\
         on several files         {several}\n\
         on                       {}\n\
         difficulty               {}\n\
         expert passes            {sound} of {}\n\
         wrong solutions rejected {} of {mutants}\n\
         null agents that pass    {nulls}\n\
         tasks per minute         {:.0}\n",
        tasks.len(),
        skeletons.len(),
        operations.len(),
        pybench_compose::operations::all().count(),
        by_medium(tasks),
        by_difficulty(tasks),
        audits.len(),
        mutants - passed,
        tasks.len() as f64 * 60.0 / seconds
    );
    text += &slips(audits);
    text += &misread(audits);
    for (task, audit) in tasks.iter().zip(audits) {
        for what in &audit.expert {
            let _ = writeln!(
                text,
                "\nexpert fails · {} · {what}\n{}",
                skeleton(task),
                task.query
            );
        }
        for what in &audit.passed {
            let _ = writeln!(text, "\nwrong solution passes · {what}\n{}", task.query);
        }
    }
    text
}

/// How many tasks were dropped because they failed, and why.
fn dropped_text(dropped: &[(Task, Audit)]) -> String {
    if dropped.is_empty() {
        return String::new();
    }
    let mut text = format!("dropped                  {}\n", dropped.len());
    for (task, audit) in dropped {
        let by_expert = audit
            .expert
            .iter()
            .map(|what| format!("expert fails, {what}"));
        let by_nulls = audit.nulls.iter();
        let by_nulls = by_nulls.map(|name| format!("an agent without a solution passes, {name}"));
        let reasons: Vec<String> = by_expert.chain(by_nulls).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\ndropped · {}\n{}", reasons.join("; "), task.query);
    }
    text
}

/// How many tasks work on each kind of file.
fn by_medium(tasks: &[Task]) -> String {
    let of = |task: &Task| task.files.first().map(|file| Medium::of(file.kind));
    let count = |medium| tasks.iter().filter(|task| of(task) == Some(medium)).count();
    let counts = Medium::ALL.map(|medium| format!("{} {}s", count(medium), medium.name()));
    counts.join(", ")
}

/// How many tasks have each level of difficulty.
fn by_difficulty(tasks: &[Task]) -> String {
    let levels = tasks.iter().filter_map(difficulty::level);
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for level in levels {
        *counts.entry(level).or_default() += 1;
    }
    let counts = counts
        .iter()
        .map(|(level, count)| format!("{count} of level {level}"));
    counts.collect::<Vec<_>>().join(", ")
}

/// The wrong ways in which files were read, and how many of these solutions raised no exception.
fn misread(audits: &[Audit]) -> String {
    let mut ways: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (what, ran) in audits.iter().flat_map(|audit| &audit.misread) {
        let (made, silent) = ways.entry(what).or_default();
        *made += 1;
        *silent += usize::from(*ran);
    }
    let lines = ways.into_iter().map(|(what, (made, silent))| {
        format!("misread: {what:<32} {made}, {silent} without an exception\n")
    });
    lines.collect()
}

/// The mistakes that the expert made and repaired, by kind, and how many of them raised an exception.
fn slips(audits: &[Audit]) -> String {
    let mut kinds: BTreeMap<SlipKind, (usize, usize)> = BTreeMap::new();
    for (kind, raised) in audits.iter().filter_map(|audit| audit.slip) {
        let (made, failed) = kinds.entry(kind).or_default();
        *made += 1;
        *failed += usize::from(raised);
    }
    let lines = kinds.into_iter().map(|(kind, (made, failed))| {
        let kind = format!("{kind:?} repaired");
        format!("{kind:<24} {made}, {failed} after an exception\n")
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_tasks_are_listed_with_the_reason() {
        assert_eq!(dropped_text(&[]), "");
        let failed = Audit {
            expert: vec!["sample 0: number Answer: 3 is expected".into()],
            nulls: vec!["one".into()],
            ..Audit::default()
        };
        let task = pybench_testing::task::task();
        let text = dropped_text(&[(task, failed)]);
        assert!(text.contains("dropped                  1\n"), "{text}");
        let reasons = "expert fails, sample 0: number Answer: 3 is expected; an agent without a solution passes, one\n";
        assert!(text.contains(reasons), "{text}");
    }
}
