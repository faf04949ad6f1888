//! `pybench-interpreter`: the code execution service.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use pybench::interpreter::service::{self, Options, Tokens};
use pybench::interpreter::{InterpreterError, Limits, Network};
use pybench::run::cli::{self, LogArgs, Process};
use pybench::run::{InterpreterChoice, RunError, Tier, Urgency};
use tokio::net::TcpListener;

/// Run model-written Python in isolated sessions
#[derive(Debug, Parser)]
#[command(
    name = "pybench-interpreter",
    bin_name = "pybench interpreter",
    version
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Logging.
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve sessions over HTTP: CodeAct's API, E2B's, and a richer one of our own
    ///
    /// docs/service.md has the routes with examples. Ctrl-C closes all sessions and ends with 0.
    Serve(Box<Serve>),
    /// Print the OpenAPI description of the service
    Openapi,
}

#[derive(Debug, Args)]
struct Serve {
    /// Address to listen on; port 0 takes a free one, which is printed
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8081")]
    bind: SocketAddr,
    /// File of tokens, one a line as `token` or `name token`; made with a fresh one where there is none
    #[arg(long, value_name = "FILE", required_unless_present = "no_token")]
    token_file: Option<PathBuf>,
    /// Ask for no token; only on a loopback address
    #[arg(long, conflicts_with = "token_file")]
    no_token: bool,
    /// A further name by which the service is called; may be given several times
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// A web origin, as https://chat.example, whose pages may call the service; may be given several times
    #[arg(long, value_name = "ORIGIN")]
    origin: Vec<String>,
    /// Tier of isolation, as recipes name it [default: theirs]
    #[arg(long, value_name = "TIER", value_parser = tier)]
    tier: Option<Tier>,
    /// A host that cells may reach, as `packages.example:443` or `*.example.org`, through a proxy that logs
    /// each request; may be given several times [default: no network]
    #[arg(long, value_name = "HOST")]
    allow: Vec<String>,
    /// Seconds that a cell may run
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    cell_seconds: u64,
    /// Memory of a session, MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u64).range(64..=4_194_304))]
    memory: u64,
    /// Processes and threads of a session
    #[arg(long, value_name = "COUNT", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    processes: u64,
    /// Characters of text kept of a cell
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(100..=100_000_000))]
    output_chars: u32,
    /// Largest file uploaded, MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
    upload: u64,
    /// Close sessions that nobody used for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    idle: u64,
    /// Longest life of an E2B sandbox, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    longest: u64,
    /// Sessions that one client may have at once
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    per_client: u32,
    /// Sessions at once
    #[arg(long, value_name = "COUNT", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    total: u32,
    /// Open connections; whoever comes above that is told 503
    #[arg(long, value_name = "COUNT", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Seconds that the head of a request may take to come
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3600))]
    head_seconds: u64,
}

/// A tier by the name it has in recipes.
fn tier(name: &str) -> Result<Tier, String> {
    serde_json::from_value(name.into()).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let args = Cli::parse();
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
        .map(cli::read_tokens)
        .transpose()?;
    let usual = InterpreterChoice::default();
    let tier = args.tier.unwrap_or(usual.tier);
    let options = args.options(tokens, tier)?;
    let choice = InterpreterChoice {
        tier,
        limits: options.limits.clone(),
        ..usual
    };
    let find = move || pybench::interpreter::interpreter(&choice);
    let interpreter = tokio::task::spawn_blocking(find)
        .await?
        .map_err(environment)?;
    for warning in interpreter.warnings() {
        tracing::warn!("{warning}");
    }
    let bind = || format!("--bind {}: is another program listening there?", args.bind);
    let listener = TcpListener::bind(args.bind)
        .await
        .map_err(|error| RunError::Environment(error.to_string()))
        .with_context(bind)?;
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
        let network = Network::to(&self.allow).map_err(|error| wrong(error.to_string()))?;
        if network.is_some() && !tier.holds_to_hosts() {
            return Err(wrong(Tier::NO_HOSTS.to_owned()));
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
