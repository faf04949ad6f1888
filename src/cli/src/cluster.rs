//! `pybench cluster`: the servers of a cluster on this machine.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand};
use pybench_cluster::{
    Cluster, Started, Status, StoreStatus, TemporalStatus, install_postgres, install_seaweedfs,
    install_temporal,
};
use pybench_net::pypi::find_uv;
use pybench_run::cli::{self, LogArgs};
use pybench_run::project::{invocation, project_root};
use pybench_run::{PostgresServer, RunError};

/// Start and end PostgreSQL on this machine, for runs whose journal is kept there
///
/// With --store an S3 server and with --temporal a Temporal server are started too, with --all both. PostgreSQL listens on 127.0.0.1 and asks
/// for a password, which is generated and kept in a file that only you can read. As root, it runs as the user `postgres` or
/// `daemon`. See docs/cluster.md.
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
    /// Folder of the data and of the profile cluster.toml [default: data/cluster in the project]
    #[arg(long, value_name = "DIR", global = true)]
    data: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Install and start what does not run, and write the profile
    #[command(
        group = ArgGroup::new("with_store").args(["store", "all"]).multiple(true),
        group = ArgGroup::new("with_temporal").args(["temporal", "all"]).multiple(true),
    )]
    Up {
        /// Port of PostgreSQL [default: that of last time, or a free one]
        #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
        postgres_port: Option<u16>,
        /// Start an S3 server too, in which runs of the profile keep their files and artifacts
        #[arg(long)]
        store: bool,
        /// Port of the S3 server [default: that of last time, or a free one]
        #[arg(long, value_name = "PORT", requires = "with_store", value_parser = clap::value_parser!(u16).range(1..))]
        store_port: Option<u16>,
        /// Start Temporal's development server too, which distributes the units of runs of the profile to workers
        #[arg(long)]
        temporal: bool,
        /// Port of Temporal [default: that of last time, or a free one]
        #[arg(long, value_name = "PORT", requires = "with_temporal", value_parser = clap::value_parser!(u16).range(1..))]
        temporal_port: Option<u16>,
        /// Start all servers: PostgreSQL, the S3 server and Temporal
        #[arg(long)]
        all: bool,
    },
    /// Show what answers
    Status,
    /// End the servers; the data stay
    Down {
        /// Delete the data too: the journals of all runs that are kept there, with the replies that were paid for
        #[arg(long)]
        delete_data: bool,
    },
}

/// Runs the command.
pub(crate) fn main(args: ClusterArgs) -> ExitCode {
    cli::main_with(args.log, |_| async move { Ok(run(&args)?) })
}

fn run(args: &ClusterArgs) -> Result<(), RunError> {
    let root = project_root(Path::new("."));
    let data = args.data.clone();
    let data = data.unwrap_or_else(|| {
        root.as_deref()
            .unwrap_or(Path::new("."))
            .join("data/cluster")
    });
    let cluster = Cluster::new(&data)?;
    let uv = find_uv(root.as_deref().unwrap_or(Path::new(".")));
    let server = install_postgres(&uv)?;
    match args.command {
        ClusterCommand::Up {
            postgres_port,
            store,
            store_port,
            temporal,
            temporal_port,
            all,
        } => {
            let started = cluster.up(&server, postgres_port)?;
            if store || all {
                let store = cluster.up_store(&install_seaweedfs(&uv)?, store_port)?;
                let endpoint = store.endpoint.as_deref().unwrap_or_default();
                cli::print(&format!(
                    "SeaweedFS answers on {endpoint}; bucket: {}\n",
                    store.bucket
                ))?;
            }
            if temporal || all {
                let started = cluster.up_temporal(&install_temporal(&uv)?, temporal_port)?;
                cli::print(&temporal_text(&started))?;
            }
            cli::print(&up_text(&started))
        }
        ClusterCommand::Status => {
            status(&cluster.status(&server)?)?;
            if let Some(store) = cluster.store()? {
                store_status(&store)?;
            }
            match cluster.temporal()? {
                Some(temporal) => temporal_status(&temporal),
                None => Ok(()),
            }
        }
        ClusterCommand::Down { delete_data } => {
            let ran = match cluster.down(&server, delete_data)? {
                true => "PostgreSQL has ended",
                false => "PostgreSQL did not run",
            };
            let data = match delete_data {
                true => "its data are deleted".to_owned(),
                false => format!("its data stay in {}", data.display()),
            };
            cli::print(&format!("{ran}; {data}\n"))
        }
    }
}

fn store_status(store: &StoreStatus) -> Result<(), RunError> {
    let (bucket, endpoint) = (
        &store.server.bucket,
        store.server.endpoint.as_deref().unwrap_or_default(),
    );
    match &store.answer {
        Ok(()) => cli::print(&format!("S3 answers on {endpoint}; bucket: {bucket}\n")),
        Err(error) => Err(RunError::Environment(format!(
            "the S3 server on {endpoint} does not answer: {error}; `{} cluster up --store` starts it",
            invocation()
        ))),
    }
}

fn temporal_text(temporal: &TemporalStatus) -> String {
    let ui = temporal.ui_port.map_or_else(String::new, |port| {
        format!("; its web interface: http://127.0.0.1:{port}")
    });
    format!("Temporal answers on {}{ui}\n", temporal.server.address)
}

fn temporal_status(temporal: &TemporalStatus) -> Result<(), RunError> {
    match temporal.ui_port {
        Some(_) => cli::print(&temporal_text(temporal)),
        None => Err(RunError::Environment(format!(
            "Temporal does not run here ({}); `{} cluster up --temporal` starts it",
            temporal.server.address,
            invocation()
        ))),
    }
}

fn up_text(started: &Started) -> String {
    let runs = match started.ran {
        true => "runs already",
        false => "has started",
    };
    let user = match &started.user {
        Some(user) => format!(" as the user {user}"),
        None => String::new(),
    };
    format!(
        "PostgreSQL {runs} on {}{user}\nprofile: {}\nnext: {} synthesize RECIPE --profile {}\n",
        address(&started.postgres),
        started.profile.display(),
        invocation(),
        started.profile.display(),
    )
}

fn status(status: &Status) -> Result<(), RunError> {
    let start = format!("`{} cluster up` starts it", invocation());
    match status {
        Status::Runs(postgres, Ok((version, journals))) => cli::print(&format!(
            "PostgreSQL {version} answers on {}; journals: {journals}\n",
            address(postgres)
        )),
        Status::Runs(postgres, Err(error)) => Err(RunError::Environment(format!(
            "PostgreSQL runs on {} and does not answer: {error}",
            address(postgres)
        ))),
        Status::Stopped(postgres) => Err(RunError::Environment(format!(
            "PostgreSQL does not run (port {}); {start}",
            postgres.port
        ))),
        Status::None => Err(RunError::Environment(format!(
            "there is no cluster here; {start}"
        ))),
    }
}

fn address(postgres: &PostgresServer) -> String {
    format!("{}:{}", postgres.host, postgres.port)
}
