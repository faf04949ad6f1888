//! `pybench interpreter`: the HTTP service that executes code.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use pybench_interpreter::{InterpreterChoice, Tier};
use pybench_interpreter::{InterpreterError, Limits, Network};
use pybench_interpreter_service as service;
use pybench_interpreter_service::{Options, Tokens};
use pybench_run::cli;
use pybench_run::cli::{LogArgs, Process};
use pybench_run::{RunError, Urgency};
use tokio::net::TcpListener;

/// Run model-written Python in isolated sessions
#[derive(Debug, Args)]
pub(crate) struct InterpreterArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve sessions over HTTP with the CodeAct API, the E2B API and our own API
    ///
    /// docs/service.md lists the routes with examples. Ctrl-C closes all sessions and exits with 0.
    Serve(Box<Serve>),
    /// Print the OpenAPI description of the service
    Openapi,
}

#[derive(Debug, Args)]
struct Serve {
    /// Address to listen on; port 0 picks a free port and prints it
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8081")]
    address: SocketAddr,
    /// File with one token per line, as `token` or `name token`; created with a new token if it does not exist
    #[arg(long, value_name = "FILE", required_unless_present = "no_token")]
    token_file: Option<PathBuf>,
    /// Accept requests without a token; only allowed on a loopback address
    #[arg(long, conflicts_with = "token_file")]
    no_token: bool,
    /// Additional host name that requests may use; can be given several times
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Web origin whose pages may call the service, such as https://chat.example; can be given several times
    #[arg(long, value_name = "ORIGIN")]
    origin: Vec<String>,
    /// Isolation tier, with the name used in recipes [default: the default of recipes]
    #[arg(long, value_name = "TIER", value_parser = tier)]
    tier: Option<Tier>,
    /// Host that cells may reach, such as `packages.example:443` or `*.example.org`, through a proxy that
    /// logs each request; can be given several times [default: no network]
    #[arg(long, value_name = "HOST")]
    allow: Vec<String>,
    /// Time limit of a cell, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    cell_seconds: u64,
    /// Memory limit of a session, MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u64).range(64..=4_194_304))]
    memory: u64,
    /// Most processes and threads of a session
    #[arg(long, value_name = "COUNT", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    processes: u64,
    /// Most processors that a session uses, on average
    #[arg(long, value_name = "COUNT", default_value_t = 2.0, value_parser = cpus)]
    cpus: f64,
    /// Let processes that a cell leaves running go on between cells; otherwise they pause
    #[arg(long)]
    background: bool,
    /// Most characters of output kept per cell
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(100..=100_000_000))]
    output_chars: u32,
    /// Largest upload, MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    upload: u64,
    /// Close sessions that were idle for this long, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    idle: u64,
    /// Longest lifetime of an E2B sandbox, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    longest: u64,
    /// Most sessions of one client at a time
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    per_client: u32,
    /// Most sessions at a time
    #[arg(long, value_name = "COUNT", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    total: u32,
    /// Most open connections; further clients get status 503
    #[arg(long, value_name = "COUNT", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Time limit for receiving the header of a request, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    head_seconds: u64,
}

/// Parses the name of a tier, as used in recipes.
fn tier(name: &str) -> Result<Tier, String> {
    serde_json::from_value(name.into()).map_err(|error| error.to_string())
}

/// Parses a number of processors.
fn cpus(text: &str) -> Result<f64, String> {
    let cpus = text.parse().map_err(|_| "expected a number".to_owned())?;
    let limits = Limits {
        cpus,
        ..Limits::default()
    };
    limits.validate().map(|()| cpus)
}

/// Runs the command.
pub(crate) fn main(args: InterpreterArgs) -> ExitCode {
    match args.command {
        Command::Serve(serve) => cli::main_with(args.log, |process| run(*serve, process)),
        Command::Openapi => cli::main_with(args.log, |_| async {
            println!("{}", serde_json::to_string_pretty(&service::openapi())?);
            Ok(())
        }),
    }
}

async fn run(args: Serve, process: Process) -> anyhow::Result<()> {
    let tokens = args
        .token_file
        .as_deref()
        .map(service::read_tokens)
        .transpose()?;
    let usual = InterpreterChoice::default();
    let tier = args.tier.unwrap_or(usual.tier);
    let options = args.options(tokens, tier)?;
    let choice = InterpreterChoice {
        tier,
        limits: options.limits.clone(),
        ..usual
    };
    let find = move || pybench_interpreter_containers::interpreter(&choice);
    let interpreter = tokio::task::spawn_blocking(find)
        .await?
        .map_err(environment)?;
    for warning in interpreter.warnings() {
        tracing::warn!("{warning}");
    }
    let refused = || {
        format!(
            "cannot listen on --address {}; another program may use this address",
            args.address
        )
    };
    let listener = TcpListener::bind(args.address)
        .await
        .map_err(|error| RunError::Environment(error.to_string()))
        .with_context(refused)?;
    println!("serving on http://{}", listener.local_addr()?);
    let interrupt = process.interrupt.clone();
    let stop = async move { interrupt.wait(Urgency::Finish).await };
    Ok(service::serve(interpreter, options, listener, stop)
        .await
        .map_err(RunError::from)?)
}

impl Serve {
    fn options(&self, tokens: Option<Tokens>, tier: Tier) -> Result<Options, RunError> {
        let wrong = |text: String| RunError::BadInput(format!("--allow: {text}"));
        let network = Network::allow(&self.allow).map_err(|error| wrong(error.to_string()))?;
        if network.is_some() && !tier.supports_allowlist() {
            return Err(wrong(Tier::NO_ALLOWLIST.to_owned()));
        }
        Ok(Options {
            tokens,
            network,
            hosts: self.host.clone(),
            origins: self.origin.clone(),
            limits: Limits {
                cell_seconds: self.cell_seconds,
                memory_mib: self.memory,
                processes: self.processes,
                cpus: self.cpus,
                background: self.background,
                output_chars: self.output_chars as usize,
                ..Limits::default()
            },
            idle: Duration::from_secs(self.idle),
            longest: Duration::from_secs(self.longest),
            per_client: self.per_client as usize,
            total: self.total as usize,
            upload: self.upload << 20,
            connections: self.connections as usize,
            head: Duration::from_secs(self.head_seconds),
        })
    }
}

fn environment(error: InterpreterError) -> RunError {
    RunError::Environment(error.to_string())
}
