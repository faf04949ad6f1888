//! Publishes a dataset or a model on the Hub, as one commit.
//!
//! The files are collected and checked first ([`Package`]), then compared with the repository ([`Plan`]). Large files
//! are uploaded first. Then a single commit makes all changes visible at once. No state is kept on this machine: a
//! repeated command asks the Hub what it already has. `docs/publishing.md` describes the checks and the errors.

mod card;
mod dataset;
mod model;
mod package;
mod plan;
mod send;

use std::collections::BTreeSet;
use std::path::PathBuf;

use pybench_run::cli::{LogArgs, Process};
use pybench_run::{RunError, default_cache_dir};

pub use model::ModelArgs;
pub use package::Package;
pub use plan::Plan;
use pybench_hub::{Hub, HubErrorKind, Kind, Repository, fetch_any, until_interrupted};
pub use send::Published;

/// Publish a dataset or a model on the Hugging Face Hub
///
/// Without --yes this is a dry run: it prints what would be uploaded and changes nothing.
#[derive(Clone, Debug, clap::Parser)]
pub struct PublishArgs {
    /// Dataset (a folder with data/*.parquet, a run folder, or the name of a run) or model (a folder with config.json or
    /// adapter_config.json and *.safetensors, the folder of a training run, or its name); each may be in a bucket
    /// (s3://BUCKET/PATH, gs://…, az://…)
    pub source: PathBuf,
    /// Repository on the Hub
    #[arg(long, value_name = "OWNER/NAME", required_if_eq("yes", "true"))]
    pub repo: Option<String>,
    /// Upload and commit. Without it the command only prints what would be uploaded
    #[arg(long)]
    pub yes: bool,
    /// Create a new repository as public, and allow writing to a public repository
    #[arg(long)]
    pub public: bool,
    /// Also publish rows that match tasks or files of benchmarks, which are left out otherwise; the card says so
    #[arg(long)]
    pub allow_contaminated: bool,
    /// First line of the commit message
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Check the files, compare them with the repository, and upload them with `--yes`.
///
/// # Errors
/// [`RunError::BadInput`] if there is no such dataset or model, or if it fails its checks; errors of the Hub as listed
/// in `docs/exit-codes.md`; [`RunError::Incomplete`] if the repository does not contain the uploaded files afterward.
pub async fn run(args: PublishArgs, process: &Process) -> Result<(), RunError> {
    if let Some(name) = &args.repo {
        Repository::check(name)?;
    }
    let mut args = args;
    let (source, cache) = (args.source.clone(), default_cache_dir());
    let fetching = fetch_any(&source, &cache);
    if let Some(copy) = until_interrupted(process, fetching).await?? {
        args.source = copy;
    }
    let asked = match model::is_model(&args.source) {
        true => model::asked_for_license(&args.source, &args.model)?,
        false => Vec::new(),
    };
    if !asked.is_empty() {
        let looking_up = common_license(&asked);
        args.model.license = until_interrupted(process, looking_up).await??;
    }
    let package_args = args.clone();
    let packing = tokio::task::spawn_blocking(move || package(&package_args));
    let package = until_interrupted(process, packing).await?;
    let package = package.map_err(|error| RunError::Internal(error.to_string()))??;
    let print = |text: &str| process.progress.suspend(|| print!("{text}"));
    let Some(name) = &args.repo else {
        print(&package.summary());
        print("Nothing was uploaded. Choose a repository with --repo OWNER/NAME.\n");
        return Ok(());
    };
    let hub = Hub::from_env()?;
    let repository = Repository::new(&hub, package.kind, name)?;
    if !args.yes {
        print(&package.summary());
        let dry_run = dry_run(&repository, &package, args.public);
        print(&until_interrupted(process, dry_run).await??);
        print("Nothing was uploaded. Run the same command with --yes to publish.\n");
        return Ok(());
    }
    let published = send::send(&repository, &package, &args, process).await?;
    print(&published.to_string());
    Ok(())
}

/// The license stated in the cards of these models on the Hub. `None` if they have no license or different ones.
async fn common_license(models: &[String]) -> Result<Option<String>, RunError> {
    let hub = Hub::from_env()?;
    let mut found = BTreeSet::new();
    for name in models {
        let licenses = Repository::new(&hub, Kind::Model, name)?.licenses().await?;
        found.extend(match licenses.is_empty() {
            true => vec!["other".to_owned()],
            false => licenses,
        });
    }
    let only = found.pop_first().filter(|license| license != "other");
    Ok(only.filter(|_| found.is_empty()))
}

fn package(args: &PublishArgs) -> Result<Package, RunError> {
    let repo = args.repo.as_deref();
    match model::is_model(&args.source) {
        true => model::package(&args.source, repo, &args.model),
        false => dataset::package(&args.source, repo, args.allow_contaminated),
    }
}

/// Describe what would be uploaded, as far as the repository can be read.
async fn dry_run(
    repository: &Repository<'_>,
    package: &Package,
    public: bool,
) -> Result<String, RunError> {
    let info = match repository.about().await {
        // The repository cannot be read without a token, but a dry run does not require one.
        Err(error) if error.kind == HubErrorKind::Unauthenticated => {
            return Ok(format!(
                "{} cannot be read without a token. All files would be uploaded.\n",
                repository.shown()
            ));
        }
        info => info?,
    };
    let shown = repository.shown();
    let Some(info) = info else {
        let visibility = if public { "public" } else { "private" };
        return Ok(format!(
            "{shown} does not exist. It would be created as {visibility}, and all files would be uploaded.\n"
        ));
    };
    let tree = repository.tree(&info.sha).await?;
    let plan = Plan::new(package, &tree);
    let visibility = if info.private { "private" } else { "public" };
    let mut text = format!(
        "{shown} exists ({visibility}, commit {}):\n{plan}",
        info.sha
    );
    if !info.private && !public {
        text += "The repository is public, so --yes also requires --public.\n";
    }
    Ok(text)
}
