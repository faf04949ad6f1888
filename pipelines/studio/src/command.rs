//! The command `pybench studio`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use pybench_interpreter::default_cache_dir;
use pybench_interpreter_service::HttpServer;
use pybench_run::cli::{LogArgs, Process, print};
use pybench_run::project::{default_runs_dir, project_root};
use pybench_run::{RunError, Urgency};
use pybench_show::TrajectorySource;
use pybench_types::id::Digest;
use tokio::net::TcpListener;

use crate::access::Token;
use crate::api::{Source, router};
use crate::index::Index;

/// Maximum number of open connections.
const CONNECTIONS: usize = 64;
/// Time limit for receiving the head of a request.
const HEAD: Duration = Duration::from_secs(10);

/// Look at the trajectories of a run or dataset in the browser
#[derive(Clone, Debug, clap::Parser)]
pub struct StudioArgs {
    /// Run (name or folder), or dataset (folder, .parquet, .jsonl or .json file)
    pub source: PathBuf,
    /// Address to listen on; only loopback addresses are accepted
    #[arg(long, default_value = "127.0.0.1:0")]
    pub address: SocketAddr,
    /// Directory with the run folders [default: data/runs in the project]
    #[arg(long, value_name = "DIR")]
    pub runs_dir: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Serves the studio until Ctrl-C.
///
/// # Errors
/// [`RunError::BadInput`] if the source does not exist or is empty; the address cannot be used.
pub async fn run(args: &StudioArgs, process: &Process) -> Result<(), RunError> {
    let root = project_root(Path::new("."));
    let runs_dir = args.runs_dir.clone();
    let runs_dir = runs_dir.unwrap_or_else(|| default_runs_dir(root.as_deref()));
    let source = Arc::new(open(&args.source, &runs_dir)?);
    let io = || RunError::io(args.address.to_string());
    let listener = TcpListener::bind(args.address).await.map_err(io())?;
    let address = listener.local_addr().map_err(io())?;
    let token = Token::new();
    print(&format!("http://{address}/?token={}\n", token.text()))?;
    let server = HttpServer {
        tokens: None,
        hosts: Vec::new(),
        connections: CONNECTIONS,
        head: HEAD,
    };
    let stop = process.interrupt.clone();
    let served = server.serve(listener, router(source, token), async move {
        stop.wait(Urgency::Finish).await
    });
    served
        .await
        .map_err(|error| RunError::BadInput(error.to_string()))
}

fn open(path: &Path, runs_dir: &Path) -> Result<Source, RunError> {
    let source = TrajectorySource::open(path, runs_dir)?;
    let cache = default_cache_dir().join("studio");
    std::fs::create_dir_all(&cache).map_err(RunError::io(cache.display().to_string()))?;
    let index = cache.join(format!("{}.sqlite", state(&source)?));
    Ok(Source {
        name: path.display().to_string(),
        index: Index::open(&index, &source)?,
        store: source.store(),
    })
}

/// A digest of where the source is and when its files were last changed.
fn state(source: &TrajectorySource) -> Result<Digest, RunError> {
    let path = source.path();
    let mut files: Vec<_> = match path.is_dir() {
        true => std::fs::read_dir(path)
            .map_err(RunError::io(path.display().to_string()))?
            .flatten()
            .map(|entry| entry.path())
            .collect(),
        false => vec![path.to_owned()],
    };
    files.sort();
    let state = files.iter().map(|file| {
        let found = std::fs::metadata(file).ok();
        let changed = found.as_ref().and_then(|found| found.modified().ok());
        let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        (
            file,
            found.map(|found| found.len()),
            changed.map(|time| time.as_nanos()),
        )
    });
    Ok(Digest::of_json(&state.collect::<Vec<_>>()))
}
