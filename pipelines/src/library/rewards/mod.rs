//! `pybench-library serve-rewards`: scores workspaces over HTTP, for trainers that run agents elsewhere.
//!
//! Who asks names a task by template, language and seed; it is made anew here, so that reference and
//! checks never leave this process. Workspaces are hostile: [`request`] bounds what is read of them, and
//! the checks run in the sandbox, as in `grade`.

mod request;
mod routes;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use pybench::interpreter::service::{Door, ServiceError};
use pybench::run::{Interrupt, RunError, Urgency, cli, cores};
use tokio::net::TcpListener;

use super::audit::Bench;
use routes::Service;

/// How the service behaves.
#[derive(Debug, Args)]
pub struct RewardsArgs {
    /// Address to listen on; port 0 takes a free one, which is printed
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8082")]
    pub address: SocketAddr,
    /// File of tokens, one a line as `token` or `name token`; made with a fresh one where there is none
    /// [default: no token, which only a loopback address may do]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// A further name by which the service is called; may be given several times
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// Workspaces scored at a time [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Workspaces that wait for their turn; who comes above that is told 429
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub waiting: u32,
    /// Largest workspace, MiB, all files together
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub largest: u32,
    /// Files that tasks are written for, as they were for the export [default: data/samples in the project]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

/// Serves until Ctrl-C; what is being scored then is scored.
pub async fn run(bench: Bench, args: &RewardsArgs, interrupt: &Interrupt) -> Result<(), RunError> {
    let tokens = args
        .token_file
        .as_deref()
        .map(cli::read_tokens)
        .transpose()?;
    let listener = TcpListener::bind(args.address).await.map_err(|error| {
        let text = format!(
            "--address {}: {error}; does another program listen there?",
            args.address
        );
        RunError::Environment(text)
    })?;
    let address = listener.local_addr().map_err(RunError::io("listening"))?;
    let jobs = args.jobs.map_or_else(cores, |jobs| jobs as usize);
    let service = Service::new(
        bench,
        jobs,
        args.waiting as usize,
        (args.largest as usize) << 20,
    );
    let door = Door {
        tokens,
        hosts: args.host.clone(),
        // Each scored or waiting one, and as many that are told to come back.
        connections: 2 * (jobs + args.waiting as usize) + 16,
        head: Duration::from_secs(15),
    };
    println!("serving on http://{address}");
    let stop = interrupt.wait(Urgency::Finish);
    door.serve(listener, routes::router(Arc::new(service)), stop)
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
