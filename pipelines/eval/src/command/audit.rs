//! `pybench eval audit`: validates the scores of a benchmark.

use std::path::{Path, PathBuf};

use clap::Args;
use pybench_interpreter::default_cache_dir;
use pybench_run::RunError;
use pybench_run::cli::Process;
use pybench_run::project::project_root;

use super::common::{CommonArgs, named_folder, open_suite_env, write_file};
use crate::audit_page;
use crate::suite::{AuditOptions, Selection};

/// Validate the scores.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Common options.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Check only the correct solutions; skip null agents and mutants
    #[arg(long)]
    pub quick: bool,
    /// Seed for perturbed inputs
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// Write the results to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the results to this file as a Markdown table
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write the page of the whole benchmark, docs/suite-audits/SUITE.md in the project
    #[arg(long, conflicts_with_all = ["quick", "tasks", "max_tasks", "regenerate"])]
    pub write: bool,
}

pub(super) async fn run_audit(args: &AuditArgs, process: &Process) -> Result<(), RunError> {
    let name = match args.common.suite.as_deref() {
        None => "eval-audit".to_owned(),
        Some(suite) => format!("audit-{suite}"),
    };
    let (suite, env) = open_suite_env(&args.common, &name, process)?;
    let options = AuditOptions {
        selection: Selection {
            tasks: args.common.tasks.clone(),
            max_tasks: args.common.max_tasks,
            seed: args.seed,
            perturb: true,
            regenerate: args.common.regenerate,
        },
        quick: args.quick,
    };
    let audit = suite.audit(&env, &options).await?;
    if let Some(path) = &args.json {
        write_file(path, &(serde_json::to_string_pretty(&audit.json)? + "\n"))?;
    }
    if let Some(path) = &args.markdown {
        write_file(path, &format!("{}\n\n{}", audit.summary, audit.markdown))?;
    }
    if args.write {
        let named = named_folder(&args.common, suite.name(), suite.origin());
        let checkout = audit_page::Checkout {
            is_verified: named.is_none(),
            folder: named.unwrap_or_else(|| suite.origin().checkout_dir(&default_cache_dir())),
        };
        let page = audit_page::render(suite.name(), suite.origin(), &audit, &checkout);
        let root = project_root(Path::new(".")).unwrap_or_default();
        write_file(&root.join(audit_page::path(suite.name())), &page)?;
    }
    process.progress.suspend(|| println!("{}", audit.summary));
    for (task, problem) in &audit.problems {
        tracing::warn!("task {task}: {problem}");
    }
    match audit.problems.len() {
        0 => Ok(()),
        count => Err(RunError::Incomplete(format!(
            "{count} tasks failed the audit; see the warnings above"
        ))),
    }
}
