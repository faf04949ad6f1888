//! The command `pybench studio`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pybench_interpreter_service::HttpServer;
use pybench_run::cli::{LogArgs, Process, print};
use pybench_run::project::{bucket_address, default_runs_dir, project_root};
use pybench_run::{RunError, Store, Urgency, default_cache_dir, files_at};
use pybench_show::TrajectorySource;
use tokio::net::TcpListener;
use tokio::task::JoinError;

use crate::access::Token;
use crate::api::router;
use crate::assets;
use crate::chat::chats::{ChatPlace, Chats};
use crate::desktop;
use crate::edit::forks::{EditPlace, Forks};
use crate::export::{self, ExportArgs};
use crate::model_choice::ModelPlace;
use crate::remote;
use crate::shared_models::SharedModels;
use crate::sources::{Sources, What};

/// Maximum number of open connections.
const CONNECTIONS: usize = 64;
/// Time limit for receiving the head of a request.
const HEAD: Duration = Duration::from_secs(15);

/// Look at runs, datasets and logs of inspect_ai in the browser: lists, filters, search, each trajectory with its verdict
#[derive(Clone, Debug, clap::Parser)]
#[command(args_conflicts_with_subcommands = true)]
pub struct StudioArgs {
    #[command(subcommand)]
    pub action: Option<Action>,
    /// Run or evaluation (name or folder), dataset (folder, .parquet, .jsonl or .json file), log of inspect_ai (.eval or .json
    /// file, or a folder of them), dataset on the Hub (hf://datasets/OWNER/NAME[@REVISION]), or dataset or log on S3
    /// (s3://BUCKET/PATH) [default: all runs]
    #[arg(value_name = "WHAT")]
    pub what: Option<PathBuf>,
    /// Loopback address to listen on; port 0 chooses a free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub address: SocketAddr,
    /// Additional host name that browsers use for the studio; may be repeated
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// Print the link only [default: also open it in the browser, where there is a desktop]
    #[arg(long)]
    pub no_open: bool,
    /// Directory with the run folders [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    pub runs_dir: Option<PathBuf>,
    /// Recipe of `pybench eval` with the agents to chat with: a file, or the name of one that comes with pybench
    #[arg(long, value_name = "RECIPE", default_value = pybench_chat::agents::RECIPE)]
    pub chat_recipe: PathBuf,
    /// Folder of the conversations [default: data/chat in the project]
    #[arg(long, value_name = "DIR")]
    pub chat_history: Option<PathBuf>,
    /// Keep the conversations in the PostgreSQL server that FILE names, and their files in its bucket [default: in that folder]
    #[arg(long, value_name = "FILE")]
    pub chat_profile: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
}

/// What to do instead of serving.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Action {
    /// Write leaderboards, task pages and chosen trajectories as a site for a static host
    Export(ExportArgs),
}

/// Serves the studio until Ctrl-C, or writes a site.
///
/// # Errors
/// [`RunError::BadInput`] if the run or dataset does not exist or is empty, or the address is no loopback address;
/// [`RunError::Environment`] if the address cannot be used; those of an export.
pub async fn run(args: &StudioArgs, process: &Process) -> Result<(), RunError> {
    match &args.action {
        Some(Action::Export(args)) => write_site(args, process).await,
        None => serve(args, process).await,
    }
}

async fn write_site(args: &ExportArgs, process: &Process) -> Result<(), RunError> {
    let sources = sources(args.what.as_deref(), args.runs_dir.as_deref(), process).await?;
    let args = args.clone();
    let written = tokio::task::spawn_blocking(move || print(&export::run(&args, &sources)?));
    let failed = |error: JoinError| RunError::Internal(format!("the export failed: {error}"));
    written.await.map_err(failed)?
}

/// What is to be shown. What the Hub or a bucket has is downloaded.
async fn sources(
    asked: Option<&Path>,
    runs_dir: Option<&Path>,
    process: &Process,
) -> Result<Sources, RunError> {
    let root = project_root(Path::new("."));
    let runs_dir = self::runs_dir(runs_dir, root.as_deref());
    let cache = default_cache_dir();
    let remote = match asked {
        Some(path) => remote::fetch(path, &cache, process).await?,
        None => None,
    };
    let what = match remote {
        Some(remote) => What::One {
            source: TrajectorySource::open(&remote.path, &runs_dir)?,
            name: remote.name,
        },
        None => what(asked, &runs_dir)?,
    };
    let bucket = match (asked, &what) {
        (
            Some(asked),
            What::One {
                source: TrajectorySource::Run(_),
                ..
            },
        ) => files_in_bucket(asked, &runs_dir),
        _ => None,
    };
    // The folder of the indexes.
    Ok(Sources::new(what, cache.join("studio")).with_bucket(bucket))
}

/// The store that has the files of a run in a bucket; `None` for other runs, and if it cannot be read: the rest is shown.
fn files_in_bucket(asked: &Path, runs_dir: &Path) -> Option<Arc<dyn Store>> {
    let address = bucket_address(asked, runs_dir)?;
    files_at(&address).unwrap_or_else(|error| {
        tracing::warn!("files are not read from the bucket: {error}");
        None
    })
}

async fn serve(args: &StudioArgs, process: &Process) -> Result<(), RunError> {
    if !args.address.ip().is_loopback() {
        return Err(RunError::BadInput(format!(
            "--address {}: other machines could reach it, and the studio encrypts nothing. Give 127.0.0.1:PORT, and forward \
             the port from the other machine: ssh -L PORT:127.0.0.1:PORT HOST",
            args.address
        )));
    }
    let sources = Arc::new(sources(args.what.as_deref(), args.runs_dir.as_deref(), process).await?);
    if let Some(name) = sources.only() {
        sources.open(name)?;
    }
    let listener = TcpListener::bind(args.address).await.map_err(|error| {
        RunError::Environment(format!(
            "cannot listen on --address {}: {error}; is another program using the port?",
            args.address
        ))
    })?;
    let address = listener.local_addr().map_err(RunError::io("listening"))?;
    let token = Token::new(address.port());
    announce(args, address, &sources, &token)?;
    let server = HttpServer {
        // The token is checked by `access`, since browsers send it as a cookie.
        tokens: None,
        hosts: args.host.clone(),
        own_pages: true,
        connections: CONNECTIONS,
        head: HEAD,
    };
    let watchers = sources.watchers().clone();
    let place = model_place(args);
    let models = Arc::new(SharedModels::new(place.root.clone()));
    let chats = Arc::new(Chats::new(chat_place(args, &place), models.clone()));
    let forks = Arc::new(Forks::new(edit_place(place), models));
    let router = router(sources, forks.clone(), chats.clone(), token);
    let stop = async move {
        process.interrupt.wait(Urgency::Finish).await;
        // The server waits for all answers, and pages that follow a run or wait for a reply get one without an end.
        watchers.end();
        chats.close_all();
        forks.close_all();
    };
    Ok(server.serve(listener, router, stop).await?)
}

/// Where the models of conversations and edits are.
fn model_place(args: &StudioArgs) -> ModelPlace {
    let root = project_root(Path::new("."));
    let runs_dir = runs_dir(args.runs_dir.as_deref(), root.as_deref());
    let root = root.unwrap_or_else(|| PathBuf::from("."));
    let history = args.chat_history.clone();
    ModelPlace {
        history: history.unwrap_or_else(|| root.join(pybench_chat::history::FOLDER)),
        recipe: args.chat_recipe.clone(),
        runs_dir,
        root,
        // A page that other people may use must not send the variables of this process to any address.
        may_name: args.host.is_empty(),
    }
}

/// Where conversations are kept, and the models that they use.
fn chat_place(args: &StudioArgs, models: &ModelPlace) -> ChatPlace {
    ChatPlace {
        models: models.clone(),
        profile: args.chat_profile.clone(),
    }
}

/// Where edits keep replies and unsaved turns.
fn edit_place(models: ModelPlace) -> EditPlace {
    EditPlace {
        models,
        replies: default_cache_dir().join("studio-replies"),
        drafts: default_cache_dir().join("studio-edits"),
    }
}

/// The folder of the run folders.
fn runs_dir(given: Option<&Path>, root: Option<&Path>) -> PathBuf {
    given.map_or_else(|| default_runs_dir(root), Path::to_owned)
}

/// Prints the link, and opens it where there is a desktop.
fn announce(
    args: &StudioArgs,
    address: SocketAddr,
    sources: &Sources,
    token: &Token,
) -> Result<(), RunError> {
    if !assets::are_built() {
        tracing::warn!(
            "the web app is not part of this program: only the data are served, at /api/data. pipelines/studio/web/build \
             builds the app; then compile again"
        );
    }
    let page = sources.only().map(|name| format!("data/{}", encoded(name)));
    let page = format!("http://{address}/{}", page.unwrap_or_default());
    let opens = !args.no_open && desktop::is_there();
    let advice = match opens {
        true => "The browser opens; the link works in any browser on this machine.",
        false => "Open this link in a browser on this machine.",
    };
    let secret = token.text();
    print(&format!(
        "{page}?token={secret}\n{advice} Ctrl-C ends the studio.\n"
    ))?;
    if opens {
        desktop::open(&format!("{page}?once={}", token.one_time_code()));
    }
    Ok(())
}

/// What is opened, and its name in addresses.
fn what(path: Option<&Path>, runs_dir: &Path) -> Result<What, RunError> {
    let Some(path) = path else {
        return match runs_dir.is_dir() {
            true => Ok(What::Runs(runs_dir.to_owned())),
            false => Err(RunError::BadInput(format!(
                "there are no runs in {}; name a run or a dataset, or make one with `pybench synthesize`",
                runs_dir.display()
            ))),
        };
    };
    let source = TrajectorySource::open(path, runs_dir)?;
    let full = source.path().canonicalize();
    let full = full.map_err(RunError::io(path.display().to_string()))?;
    let name = full.file_name().unwrap_or_default().to_string_lossy();
    let name = match (&*name, full.parent().and_then(Path::file_name)) {
        // Of `data/runs/NAME/dataset`, the name says more.
        ("dataset", Some(run)) => run.to_string_lossy().into_owned(),
        (name, _) => name.to_owned(),
    };
    Ok(What::One { name, source })
}

/// A name as a part of an address.
fn encoded(name: &str) -> String {
    let keep = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    name.bytes()
        .map(|byte| match keep(&byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}
