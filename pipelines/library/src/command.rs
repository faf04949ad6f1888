//! The command `pybench library`: lists, shows, creates and audits templates, and exports their tasks.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use pybench_checks::Checker;
use pybench_interpreter::InterpreterChoice;
use pybench_interpreter::InterpreterError;
use pybench_interpreter_containers::interpreter;
use pybench_run::cli::{LogArgs, Process};
use pybench_run::project::{invocation, project_root, samples};
use pybench_run::run_selection::recommend;
use pybench_run::{RunError, cores};
use pybench_types::task::{Category, Language, Task, TaskOrigin};
use pybench_types::text::shell_word;

use super::audit::fixtures::Fixtures;
use super::audit::{AuditEnv, AuditOptions, audit, matrix, matrix_markdown, summary, table};
use super::export::{ExportArgs, parse_language};
use super::rewards::RewardsArgs;
use super::{ExpertAction, Library, Script, TaskKey, Template, export, rewards, skeleton};

/// The project's library folder.
const LIBRARY: &str = "pipelines/library";

/// The task library: list, show, create and audit templates; export their tasks; serve rewards
#[derive(Debug, Parser)]
pub struct LibraryArgs {
    #[command(subcommand)]
    pub command: Command,
    /// Use the library in this folder (keywords.toml, templates/) instead of the built-in one
    #[arg(long, value_name = "DIR", global = true)]
    pub library: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List all templates with their category, keyword, turns and input types
    List,
    /// Print a task of a template: query, expert solution, reference and checks
    Show(ShowArgs),
    /// Create a template: writes a working, commented example to edit
    New(NewArgs),
    /// Print which templates cover which ability of the PyBench benchmark
    Coverage,
    /// Test that the checks of every template accept correct solutions and reject wrong ones
    Audit(AuditArgs),
    /// Export tasks as environments for other trainers: a verifiers package or Harbor task folders
    ///
    /// Every task is tested first: the expert must pass its checks and an empty solution must fail.
    /// docs/library-export.md describes the formats.
    Export(ExportArgs),
    /// Serve an HTTP endpoint that scores workspaces: a reward and a verdict per check
    ///
    /// docs/library-export.md describes request and response. Ctrl-C stops the server with exit code 0.
    ServeRewards(RewardsArgs),
}

#[derive(Debug, Args)]
pub struct NewArgs {
    /// Template id: lower-case letters, digits, hyphens
    pub id: String,
    /// Category: chart, text, image_audio, math or software
    #[arg(long, default_value = "chart", value_parser = skeleton::category)]
    pub category: Category,
    /// Keyword from keywords.toml [default: the first keyword of the category]
    #[arg(long)]
    pub keyword: Option<String>,
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Template id
    pub template: String,
    /// Input file of the task; give it twice for a template with two inputs [default: fitting
    /// sample files]
    #[arg(long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Language of the query: en or zh
    #[arg(long, default_value = "en", value_parser = parse_language)]
    pub language: Language,
    /// Seed for choosing files, values and phrasing
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Audit only this template; may be repeated [default: all]
    #[arg(long = "template", value_name = "ID")]
    pub templates: Vec<String>,
    /// Print JSON lines instead of a table
    #[arg(long)]
    pub json: bool,
    /// Tasks audited in parallel [default: one per core]
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Folder of input files for the tasks [default: the sample files of pybench]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Audit one task per file type instead of one per family of types (table, document, image, audio)
    #[arg(long)]
    pub every_kind: bool,
    /// Record the audited templates in this file; the tests then audit only what changed, and a sample
    #[arg(long, value_name = "FILE", conflicts_with_all = ["templates", "library"])]
    pub record: Option<PathBuf>,
    /// Write the matrix of requirements to this file, as Markdown
    #[arg(long, value_name = "FILE")]
    pub matrix: Option<PathBuf>,
}

/// Runs a subcommand and prints its result.
///
/// # Errors
/// [`RunError::Incomplete`] if the audit finds an unsound template.
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
            let given = args.library;
            let folder = given.clone().unwrap_or_else(|| in_project(LIBRARY));
            let path = create_template(&library, &folder, &new)?;
            print!(
                "{}\n{}",
                path.display(),
                next_steps(given.as_deref(), &new.id)
            );
        }
        Command::Coverage => print!("{}", coverage(&library)?),
        Command::Audit(options) => {
            let env = audit_env(Arc::new(library), options.data.as_deref())?;
            run_audit(&env, &options).await?;
        }
        Command::Export(options) => {
            let env = audit_env(Arc::new(library), options.data.as_deref())?;
            export::run(&env, &options).await?;
        }
        Command::ServeRewards(options) => {
            let env = audit_env(Arc::new(library), options.data.as_deref())?;
            rewards::run(env, &options, &process.interrupt).await?;
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
            "{:width$}  {:11}  {:22}  {} turns  {}{}",
            template.name(),
            template.category.name(),
            template.keyword.get_ref(),
            template.turns.len(),
            if inputs.is_empty() {
                "no file".to_owned()
            } else {
                inputs.join(" + ")
            },
            if template.has_chinese() {
                ""
            } else {
                "  English only"
            },
        );
    }
    let used = library
        .templates()
        .map(|template| template.keyword.get_ref());
    let used: BTreeSet<&String> = used.collect();
    let _ = writeln!(
        text,
        "{} templates, {} in English only; {} of {} keywords have one",
        library.templates().len(),
        library.templates().filter(|t| !t.has_chinese()).count(),
        used.len(),
        library.keywords().iter().count()
    );
    text
}

fn coverage(library: &Library) -> Result<String, RunError> {
    if library.abilities().is_empty() {
        let message =
            "this library has no abilities.toml, which lists the templates of each ability";
        return Err(RunError::BadInput(message.to_owned()));
    }
    Ok(library.coverage())
}

/// Writes a new template below a library's folder and returns its path.
fn create_template(library: &Library, folder: &Path, args: &NewArgs) -> Result<PathBuf, RunError> {
    if library.template(&args.id).is_some() {
        let message = format!(
            "there is a template `{}` already; choose another id",
            args.id
        );
        return Err(RunError::BadInput(message));
    }
    let keyword = args.keyword.as_deref();
    let text = skeleton::template(library.keywords(), &args.id, args.category, keyword);
    let text = text.map_err(|error| RunError::BadInput(error.to_string()))?;
    let parent = folder.join("templates").join(args.category.name());
    let path = parent.join(format!("{}.toml", args.id));
    let wrap = || RunError::io(path.display().to_string());
    std::fs::create_dir_all(&parent).map_err(wrap())?;
    // Never overwrite an existing file, even if it is not a template.
    let mut file = std::fs::File::create_new(&path).map_err(wrap())?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(wrap())?;
    Ok(path)
}

/// What one does with a new template of the library in the folder `library`.
fn next_steps(library: Option<&Path>, id: &str) -> String {
    let library = library.map_or_else(String::new, |folder| {
        format!(" --library {}", shell_word(&folder.to_string_lossy()))
    });
    let command = format!("{} library{library}", invocation());
    recommend(&[
        (
            format!("{command} show {id}"),
            "see a task, its solution and its checks",
        ),
        (
            format!("{command} audit --template {id}"),
            "test it: its solution must pass, wrong ones must fail",
        ),
    ])
}

fn render_example(library: &Library, args: &ShowArgs) -> Result<String, RunError> {
    let wrong = |message: String| RunError::BadInput(message);
    let template = library.template(&args.template);
    let template = template.ok_or_else(|| wrong(library.unknown(&args.template)))?;
    let fixtures = match args.files.as_slice() {
        [] if template.inputs.is_empty() => Fixtures::empty()?,
        [] => Fixtures::read(&samples()?)?,
        files => read_files(files)?,
    };
    let key = TaskKey {
        template: args.template.clone(),
        language: args.language,
        seed: args.seed,
    };
    let task = key.task(library, &fixtures.files, &fixtures.store)?;
    let script = Script::new(library, &task).map_err(|e| wrong(e.to_string()))?;
    let outline = script.outline().map_err(|e| wrong(e.to_string()))?;
    Ok(describe(&task, &outline) + &describe_requirements(template, &task))
}

fn in_project(folder: &str) -> PathBuf {
    project_root(Path::new("."))
        .unwrap_or_default()
        .join(folder)
}

fn read_files(files: &[PathBuf]) -> Result<Fixtures, RunError> {
    let mut fixtures = Fixtures::empty()?;
    for path in files {
        if !fixtures.add(path)? {
            let message = format!(
                "{}: the file type is not supported, or the file is broken, too large or given twice",
                path.display()
            );
            return Err(RunError::BadInput(message));
        }
    }
    Ok(fixtures)
}

fn describe(task: &Task, outline: &[ExpertAction]) -> String {
    let mut text = format!("# Query ({:?})\n\n{}\n", task.language, task.query);
    // Writing to a String cannot fail.
    for (number, next) in outline.iter().enumerate() {
        let _ = match next {
            ExpertAction::Step { thought, cell } => write!(
                text,
                "\n# Turn {number}\n\n{thought}\n\n```python\n{}\n```\n",
                cell.trim()
            ),
            ExpertAction::Answer(answer) => write!(text, "\n# Answer\n\n{answer}\n"),
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

/// What the query's wording asks for, the checks that decide it, and the mutants that violate it.
fn describe_requirements(template: &Template, task: &Task) -> String {
    let TaskOrigin::Library { phrasing, .. } = &task.origin else {
        return String::new();
    };
    let wording = template.query.get(task.language).get(*phrasing);
    let mut text = String::new();
    for (id, requirement) in &template.requirements {
        let requirement = requirement.get_ref();
        let words: Vec<_> = wording
            .iter()
            .flat_map(|wording| wording.words(id))
            .collect();
        let checks: Vec<_> = requirement
            .checks
            .iter()
            .map(|check| check.get_ref().as_str())
            .collect();
        let mutants = template.mutants.iter().filter(|mutant| mutant.violates(id));
        let mutants: Vec<_> = mutants
            .map(|mutant| mutant.name.get_ref().as_str())
            .collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{id} ({}): \"{}\"\n  decided by {}; violated by {}",
            requirement.kind,
            words.join("\", \""),
            checks.join(", "),
            mutants.join(", "),
        );
    }
    match text.is_empty() {
        true => text,
        false => format!("\n# Requirements\n\n{text}"),
    }
}

/// Starts the interpreter and the checker, and reads the input files: `data`, or the project's samples.
fn audit_env(library: Arc<Library>, data: Option<&Path>) -> Result<AuditEnv, RunError> {
    let environment = |error: InterpreterError| RunError::Environment(error.to_string());
    let interpreter = interpreter(&InterpreterChoice::default()).map_err(environment)?;
    for warning in interpreter.warnings() {
        tracing::warn!("{warning}");
    }
    let checker = Checker::new(interpreter.clone());
    Ok(AuditEnv {
        library,
        interpreter,
        checker: checker.map_err(|error| RunError::Environment(error.to_string()))?,
        fixtures: match data {
            Some(folder) => Fixtures::read(folder)?,
            None => Fixtures::read(&samples()?)?,
        },
    })
}

async fn run_audit(env: &AuditEnv, args: &AuditArgs) -> Result<(), RunError> {
    let options = AuditOptions {
        templates: args.templates.clone(),
        jobs: args.jobs.unwrap_or_else(cores),
        every_kind: args.every_kind,
    };
    // Log each row at once, so that an interrupted audit has reported what it found.
    let rows = audit(env, &options, |row| {
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
        print!("{}\n{}", table(&rows), matrix(&rows));
    }
    if let Some(path) = &args.matrix {
        let wrap = RunError::io(path.display().to_string());
        std::fs::write(path, matrix_markdown(&env.library, &rows)).map_err(wrap)?;
    }
    let summary = summary(&rows);
    if rows.iter().all(|row| row.sound()) {
        eprintln!("{summary}");
        args.record.as_deref().map_or(Ok(()), record)
    } else {
        Err(RunError::Incomplete(summary))
    }
}

/// Writes which templates were audited, by the digest of their text.
fn record(path: &Path) -> Result<(), RunError> {
    let mut text = String::from(
        "# Templates as of the last full audit (`just audit`), by the digest of their text. The tests audit\n\
         # those that changed since, and a sample.\n",
    );
    let digests = crate::digests().map_err(|error| RunError::BadInput(error.to_string()))?;
    for (template, digest) in digests {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{template} = \"{digest}\"");
    }
    pybench_run::write_output(path, text.as_bytes())
}
