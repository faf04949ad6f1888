//! `pybench library serve-rewards`: scores workspaces over HTTP, for trainers that run agents elsewhere.
//!
//! A request names a task by template, language and seed, and the server regenerates it; or by its id, if the server was
//! given the task. Reference and checks never leave this process. Workspaces are untrusted: [`request`] limits what is read, and the checks
//! run in the sandbox, as in `grade`.

mod request;
mod routes;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use pybench_interpreter_service::{HttpServer, ServiceError, read_tokens};
use pybench_run::{Interrupt, RunError, Urgency, cores};
use tokio::net::TcpListener;

use super::audit::AuditEnv;
use super::export::StoredTasks;
use routes::Service;

#[derive(Debug, Args)]
pub struct RewardsArgs {
    /// Address to listen on; port 0 chooses a free port and prints it
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8082")]
    pub address: SocketAddr,
    /// File of access tokens, one per line as `token` or `name token`; created with a new token if it does not
    /// exist [default: no token, allowed on loopback addresses only]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Additional host name that clients use for this server; may be repeated
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// Workspaces scored in parallel [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Length of the queue; further requests get status 429
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub waiting: u32,
    /// Largest workspace (all files together), in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub largest: u32,
    /// Say in each finding what was expected and what was found; do not show that to the model
    #[arg(long)]
    pub details: bool,
    /// Folder of input files for the tasks; use the same as for the export [default: the sample files of pybench]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Also score the tasks in DIR, the folder `rewards` that `pybench compose --verifiers` wrote
    #[arg(long, value_name = "DIR")]
    pub tasks: Option<PathBuf>,
}

/// Serves until Ctrl-C. Requests that are being scored are completed.
pub async fn run(env: AuditEnv, args: &RewardsArgs, interrupt: &Interrupt) -> Result<(), RunError> {
    let stored = args.tasks.as_deref().map(StoredTasks::read).transpose()?;
    let tokens = args.token_file.as_deref().map(read_tokens).transpose()?;
    let listener = TcpListener::bind(args.address).await.map_err(|error| {
        let text = format!(
            "cannot listen on --address {}: {error}; is another program using the port?",
            args.address
        );
        RunError::Environment(text)
    })?;
    let address = listener.local_addr().map_err(RunError::io("listening"))?;
    let jobs = args.jobs.map_or_else(cores, |jobs| jobs as usize);
    let service = Service::new(
        env,
        stored.unwrap_or_default(),
        jobs,
        args.waiting as usize,
        (args.largest as usize) << 20,
        args.details,
    );
    let server = HttpServer {
        tokens,
        hosts: args.host.clone(),
        own_pages: false,
        // One for each workspace in work or in the queue, and as many that get 429.
        connections: 2 * (jobs + args.waiting as usize) + 16,
        head: Duration::from_secs(15),
    };
    println!("serving on http://{address}");
    let stop = interrupt.wait(Urgency::Finish);
    server
        .serve(listener, routes::router(Arc::new(service)), stop)
        .await
        .map_err(failed)
}

fn failed(error: ServiceError) -> RunError {
    match error {
        ServiceError::Exposed(address) => RunError::BadInput(format!(
            "{address} can be reached from other machines: give --token-file FILE, or --address 127.0.0.1:PORT"
        )),
        other => other.into(),
    }
}
