//! Publish: a dataset or a model onto the Hub, as one commit.
//!
//! What is to be there is put together and checked first ([`Package`]), then compared with what is there
//! ([`Plan`]). Large files go first, each by itself, then one commit makes all of it visible at once: whoever
//! looks sees the old state or the new one. Nothing is kept on this machine: a repeated command asks the Hub
//! what it has. `docs/publishing.md` says what is checked and what each refusal means.

mod card;
mod dataset;
mod model;
mod package;
mod plan;
mod send;

use std::path::PathBuf;

use pybench::run::RunError;
use pybench::run::cli::{LogArgs, Process};

use crate::hub::{Hub, Repository, Why};
pub use model::ModelArgs;
pub use package::Package;
pub use plan::Plan;
pub use send::Published;

/// Put a dataset or a model onto the Hub. Without --yes nothing is sent: what would be is printed.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "pybench-publish", bin_name = "pybench-publish", version)]
pub struct PublishArgs {
    /// Dataset (a folder with data/*.parquet, a run folder, the name of a run) or model (a folder with
    /// config.json and *.safetensors, a training run, the name of one)
    pub what: PathBuf,
    /// The repository: OWNER/NAME
    #[arg(long, value_name = "OWNER/NAME", required_if_eq("yes", "true"))]
    pub repo: Option<String>,
    /// Do it
    #[arg(long)]
    pub yes: bool,
    /// Let everybody see it: a new repository is public, and one that is public may be written
    #[arg(long)]
    pub public: bool,
    /// First line of the commit
    #[arg(long, value_name = "TEXT")]
    pub message: Option<String>,
    /// What only a model has.
    #[command(flatten)]
    pub model: ModelArgs,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Check, compare, and with `--yes` send.
///
/// # Errors
/// [`RunError::BadInput`] for what is no dataset or model, or one that fails its checks; the refusals of the
/// Hub as `docs/exit-codes.md` has them; [`RunError::Incomplete`] where the Hub does not have in the end what
/// was sent.
pub async fn run(args: PublishArgs, process: &Process) -> Result<(), RunError> {
    if let Some(name) = &args.repo {
        Repository::check(name)?;
    }
    let asked = args.clone();
    let package = tokio::task::spawn_blocking(move || package(&asked)).await;
    let package = package.map_err(|error| RunError::Internal(error.to_string()))??;
    let say = |text: &str| process.progress.suspend(|| print!("{text}"));
    let Some(name) = &args.repo else {
        say(&package.told());
        say("Nothing was sent: name a repository with --repo OWNER/NAME.\n");
        return Ok(());
    };
    let hub = Hub::of_this_process()?;
    let repository = Repository::new(&hub, package.kind, name)?;
    if !args.yes {
        say(&package.told());
        say(&dry(&repository, &package, args.public).await?);
        say("Nothing was sent. The same command with --yes does it.\n");
        return Ok(());
    }
    let published = send::send(&repository, &package, &args, process).await?;
    say(&published.to_string());
    Ok(())
}

fn package(args: &PublishArgs) -> Result<Package, RunError> {
    let repo = args.repo.as_deref();
    match model::is_model(&args.what) {
        true => model::package(&args.what, repo, &args.model),
        false => dataset::package(&args.what, repo),
    }
}

/// What would be sent, as far as the Hub lets us look.
async fn dry(
    repository: &Repository<'_>,
    package: &Package,
    public: bool,
) -> Result<String, RunError> {
    let about = match repository.about().await {
        // Nobody may ask without a token, and a dry run needs none.
        Err(refusal) if refusal.why == Why::Nobody => {
            return Ok(format!(
                "{} cannot be looked at without a token; all of it would be sent.\n",
                repository.shown()
            ));
        }
        about => about?,
    };
    let shown = repository.shown();
    let Some(about) = about else {
        let seen = if public { "public" } else { "private" };
        return Ok(format!(
            "{shown} is not there: it would be created, {seen}, and all of it sent.\n"
        ));
    };
    let tree = repository.tree(&about.sha).await?;
    let plan = Plan::new(package, &tree);
    let seen = if about.private { "private" } else { "public" };
    let mut text = format!("{shown} is there, {seen}, at {}:\n{plan}", about.sha);
    if !about.private && !public {
        text += "It is public: --yes needs --public too.\n";
    }
    Ok(text)
}
