//! `pybench-library`: list templates, show one, begin one, audit them, hand their tasks to others' trainers.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use pybench::grade::Checker;
use pybench::interpreter::{InterpreterError, interpreter};
use pybench::run::cli::{LogArgs, Process};
use pybench::run::project::project_root;
use pybench::run::{InterpreterChoice, RunError, cores};
use pybench::task::{Category, Language, Task};

use super::audit::fixtures::Fixtures;
use super::audit::{AuditOptions, Bench, audit, summary, table};
use super::export::ExportArgs;
use super::rewards::RewardsArgs;
use super::{Library, Move, Script, TaskKey, export, rewards, skeleton};

/// Where the project keeps files to write tasks for.
const SAMPLES: &str = "data/samples";
/// Where the project keeps its library.
const LIBRARY: &str = "pipelines/library";

/// The task library: list templates, show one, begin one, audit them, export their tasks
#[derive(Debug, Parser)]
#[command(name = "pybench-library", bin_name = "pybench-library", version)]
pub struct LibraryArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Use the library in this folder (keywords.toml, templates/) instead of the built-in one
    #[arg(long, value_name = "DIR", global = true)]
    pub library: Option<PathBuf>,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List every template
    List,
    /// Show a task of a template, and how the expert solves it
    Show(ShowArgs),
    /// Begin a template: writes a commented one that works, to be changed
    New(NewArgs),
    /// Print which templates cover which ability of PyBench
    Coverage,
    /// Prove that every template's check accepts what is right and refuses what is wrong
    Audit(AuditArgs),
    /// Write tasks as environments for others' trainers: a verifiers package, or Harbor task folders
    ///
    /// docs/library-export.md says what each needs. Every task is proven first: the expert passes its checks,
    /// who does nothing fails.
    Export(ExportArgs),
    /// Score workspaces over HTTP: per-check verdicts and a reward for a task and what was made of it
    ///
    /// docs/library-export.md has the request and the answer. Ctrl-C ends it with 0.
    ServeRewards(RewardsArgs),
}

/// What to begin.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// Template id: lower-case letters, digits, hyphens
    pub id: String,
    /// Its category: chart, text, image_audio, math or software
    #[arg(long, default_value = "chart", value_parser = skeleton::category)]
    pub category: Category,
    /// Its keyword [default: the first of the category]
    #[arg(long)]
    pub keyword: Option<String>,
}

/// What to show.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Template id
    pub template: String,
    /// A file to write the task for; twice for a template with two inputs [default: data/samples]
    #[arg(long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Language of the query: en or zh
    #[arg(long, default_value = "en", value_parser = parse_language)]
    pub language: Language,
    /// Seed of the values chosen
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// What to audit.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Only this template; may be given several times
    #[arg(long = "template", value_name = "ID")]
    pub templates: Vec<String>,
    /// Print rows as JSON lines instead of a table
    #[arg(long)]
    pub json: bool,
    /// Tasks at a time [default: one per core]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Files to write tasks for [default: data/samples in the project]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// One task per file type instead of one per family of types
    #[arg(long)]
    pub every_kind: bool,
}

pub(super) fn parse_language(text: &str) -> Result<Language, String> {
    match text {
        "en" => Ok(Language::En),
        "zh" => Ok(Language::Zh),
        _ => Err("languages are en and zh".into()),
    }
}

/// Does what the command line asks, and prints it.
///
/// # Errors
/// [`RunError::Incomplete`] when the audit finds an unsound template.
pub async fn run(args: LibraryArgs, process: Process) -> Result<(), RunError> {
    let library = match &args.library {
        Some(folder) => Library::read(folder),
        None => Library::embedded(),
    };
    let library = library.map_err(|error| RunError::BadInput(error.to_string()))?;
    match args.command {
        Command::List => print!("{}", list(&library)),
        Command::Show(show) => print!("{}", render_example(&library, &show)?),
        Command::New(new) => {
            let folder = args.library.unwrap_or_else(|| in_project(LIBRARY));
            println!("{}", begin(&library, &folder, &new)?.display());
        }
        Command::Coverage => print!("{}", coverage(&library)?),
        Command::Audit(options) => {
            let bench = bench(Arc::new(library), options.data.as_deref())?;
            run_audit(&bench, &options).await?;
        }
        Command::Export(options) => {
            let bench = bench(Arc::new(library), options.data.as_deref())?;
            export::run(&bench, &options).await?;
        }
        Command::ServeRewards(options) => {
            let bench = bench(Arc::new(library), options.data.as_deref())?;
            rewards::run(bench, &options, &process.interrupt).await?;
        }
    }
    Ok(())
}

fn list(library: &Library) -> String {
    let width = library
        .templates()
        .map(|t| t.name().len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for template in library.templates() {
        let inputs = template.inputs.iter().map(|input| {
            let kinds: Vec<_> = input.kinds.iter().map(|kind| kind.name()).collect();
            kinds.join("|")
        });
        let inputs: Vec<_> = inputs.collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{:width$}  {:11}  {:22}  {} turns  {}",
            template.name(),
            super::validate::folder(template.category),
            template.keyword.get_ref(),
            template.turns.len(),
            if inputs.is_empty() {
                "no file".to_owned()
            } else {
                inputs.join(" + ")
            },
        );
    }
    let _ = writeln!(
        text,
        "{} templates, {} keywords",
        library.templates().len(),
        library.keywords().iter().count()
    );
    text
}

fn coverage(library: &Library) -> Result<String, RunError> {
    if library.abilities().is_empty() {
        let message =
            "this library has no abilities.toml, which names the templates of each ability";
        return Err(RunError::BadInput(message.to_owned()));
    }
    Ok(library.coverage())
}

/// Writes a new template below a library's folder, and says where.
fn begin(library: &Library, folder: &Path, args: &NewArgs) -> Result<PathBuf, RunError> {
    if library.template(&args.id).is_some() {
        let message = format!("there is a template `{}` already", args.id);
        return Err(RunError::BadInput(message));
    }
    let keyword = args.keyword.as_deref();
    let text = skeleton::template(library.keywords(), &args.id, args.category, keyword);
    let text = text.map_err(|error| RunError::BadInput(error.to_string()))?;
    let place = folder
        .join("templates")
        .join(super::validate::folder(args.category));
    let path = place.join(format!("{}.toml", args.id));
    let wrap = || RunError::io(path.display().to_string());
    std::fs::create_dir_all(&place).map_err(wrap())?;
    // Never over a file that is there, also one that is no template yet.
    let mut file = std::fs::File::create_new(&path).map_err(wrap())?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(wrap())?;
    Ok(path)
}

fn render_example(library: &Library, args: &ShowArgs) -> Result<String, RunError> {
    let wrong = |message: String| RunError::BadInput(message);
    let template = library.template(&args.template);
    let template = template.ok_or_else(|| wrong(library.unknown(&args.template)))?;
    let fixtures = match args.files.as_slice() {
        [] if template.inputs.is_empty() => Fixtures::empty()?,
        [] => Fixtures::read(&in_project(SAMPLES))?,
        files => given(files)?,
    };
    let key = TaskKey {
        template: args.template.clone(),
        language: args.language,
        seed: args.seed,
    };
    let task = key.task(library, &fixtures.files, &fixtures.store)?;
    let script = Script::new(library, &task).map_err(|e| wrong(e.to_string()))?;
    let outline = script.outline().map_err(|e| wrong(e.to_string()))?;
    Ok(describe(&task, &outline))
}

/// A folder of the project.
fn in_project(folder: &str) -> PathBuf {
    project_root(Path::new("."))
        .unwrap_or_default()
        .join(folder)
}

fn given(files: &[PathBuf]) -> Result<Fixtures, RunError> {
    let mut fixtures = Fixtures::empty()?;
    for path in files {
        if !fixtures.add(path)? {
            let message = format!("{}: not a file of a known type, or broken", path.display());
            return Err(RunError::BadInput(message));
        }
    }
    Ok(fixtures)
}

fn describe(task: &Task, outline: &[Move]) -> String {
    let mut text = format!("# Query ({:?})\n\n{}\n", task.language, task.query);
    // Writing to a String cannot fail.
    for (number, next) in outline.iter().enumerate() {
        let _ = match next {
            Move::Step { thought, cell } => write!(
                text,
                "\n# Turn {number}\n\n{thought}\n\n```python\n{}\n```\n",
                cell.trim()
            ),
            Move::Answer(answer) => write!(text, "\n# Answer\n\n{answer}\n"),
        };
    }
    let _ = write!(
        text,
        "\n# Reference\n\n```python\n{}\n```\n\n# Checks\n\n",
        task.reference.trim()
    );
    for check in &task.checks {
        let _ = writeln!(text, "{}", serde_json::to_string(check).unwrap_or_default());
    }
    text
}

/// Interpreter, checker and files to write tasks for [default: the project's samples].
fn bench(library: Arc<Library>, data: Option<&Path>) -> Result<Bench, RunError> {
    let environment = |error: InterpreterError| RunError::Environment(error.to_string());
    let interpreter = interpreter(&InterpreterChoice::default()).map_err(environment)?;
    for warning in interpreter.warnings() {
        tracing::warn!("{warning}");
    }
    let checker = Checker::new(interpreter.clone());
    Ok(Bench {
        library,
        interpreter,
        checker: checker.map_err(|error| RunError::Environment(error.to_string()))?,
        fixtures: Fixtures::read(data.unwrap_or(&in_project(SAMPLES)))?,
    })
}

async fn run_audit(bench: &Bench, args: &AuditArgs) -> Result<(), RunError> {
    let options = AuditOptions {
        templates: args.templates.clone(),
        jobs: args.jobs.unwrap_or_else(cores),
        every_kind: args.every_kind,
    };
    // At once, so that an audit that is cut short has said what it found.
    let rows = audit(bench, &options, |row| {
        if row.sound() {
            tracing::info!("{}: sound", row.template);
        } else {
            tracing::warn!("{}: unsound: {}", row.template, row.problems.join("; "));
        }
    });
    let rows = rows.await?;
    if args.json {
        for row in &rows {
            println!("{}", serde_json::to_string(row)?);
        }
    } else {
        print!("{}", table(&rows));
    }
    let summary = summary(&rows);
    if rows.iter().all(|row| row.sound()) {
        eprintln!("{summary}");
        Ok(())
    } else {
        Err(RunError::Incomplete(summary))
    }
}
