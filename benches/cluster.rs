//! `just bench cluster`: units per second through journal, offers and leases in PostgreSQL, with units that do nothing, for
//! several numbers of workers; beside it the local executor, and Ray, whose tasks store their results in the same server.
//!
//! Coordinator and workers are processes of their own, as in a run. The coordinator works on one unit at a time itself. With
//! `--temporal` a Temporal server distributes the units, and with `--store` each unit stores a file in an S3 server.
//! `--million` continues where it was stopped, if `--profile` names a server that stays and `--place` a folder.

#[path = "rivals.rs"]
mod rivals;
#[path = "cluster/roles.rs"]
mod roles;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use pybench_run::Profile;
use pybench_testing::postgres::SeparateServer;
use pybench_testing::{s3, temporal};
use pybench_types::text;
use serde::{Deserialize, Serialize};
use serde_json::json;

use rivals::Result;
use roles::{Times, coordinate, local, work};

/// Where the benchmarks are.
const BENCHES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches");

/// Ticks of the processor clock per second, as /proc counts them.
const TICKS: f64 = 100.0;

#[derive(Parser)]
struct Args {
    /// Numbers of workers
    #[arg(default_values_t = [1, 2, 4, 8])]
    workers: Vec<usize>,
    /// Units of each measurement
    #[arg(long, default_value_t = 20_000)]
    units: usize,
    /// One measurement of a million units with 8 workers, instead of the others
    #[arg(long)]
    million: bool,
    /// Units that a worker has in work at the same time
    #[arg(long, default_value_t = 2)]
    slots: usize,
    /// Each unit also makes a paid call and records two steps
    #[arg(long)]
    calls: bool,
    /// Each unit also stores a file of 1 kB, and the coordinator an artifact: in the bucket of `--profile`, or in that of an S3
    /// server that is started for the measurement
    #[arg(long)]
    store: bool,
    /// Distribute the units through a Temporal server that is started for the measurement; `just` compiles its client
    #[arg(long, conflicts_with = "profile")]
    temporal: bool,
    /// Server to use; its schemas run_units_… stay there [default: one that is started for the measurement]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Where the run folders go [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    place: Option<PathBuf>,
    /// Write what one unit and one call cost here, for `just bench cluster-model`, instead of the table
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Leave out Ray, whose tasks are compared with units that do nothing
    #[arg(long)]
    no_ray: bool,
    /// What this process is
    #[arg(long, hide = true)]
    role: Option<Role>,
    /// The run folder of a role
    #[arg(long, hide = true)]
    run: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Local,
    Coordinator,
    Worker,
}

/// What the units do, and how many a worker has in work at the same time.
#[derive(Clone, Copy, Debug)]
struct Work {
    calls: bool,
    files: bool,
    slots: usize,
}

impl Args {
    fn work(&self) -> Work {
        Work {
            calls: self.calls,
            files: self.store,
            slots: self.slots,
        }
    }
}

/// What a process has used.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Used {
    /// Time of the stage, over all processes that have coordinated it.
    seconds: f64,
    /// Of a coordinator: units that were not done when it began.
    units: usize,
    cpu_seconds: f64,
    peak_mib: f64,
    /// Mean milliseconds until a call was reserved, was settled, and a step was recorded.
    latency_ms: [f64; 3],
}

/// A measurement.
#[derive(Clone, Copy, Debug)]
struct Measured {
    workers: usize,
    units: usize,
    coordinator: Used,
    /// Processor time of all workers.
    worker_cpu: f64,
    /// As [`Used::latency_ms`], of one worker.
    latency_ms: [f64; 3],
    /// Processor time and bytes of the server; `None` if its folder cannot be read.
    server_cpu: Option<f64>,
    bytes: Option<u64>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    match args.role {
        Some(role) => act(&args, role),
        None => measure_all(&args),
    }
}

fn measure_all(args: &Args) -> Result<()> {
    let (temporary, server) = (tempfile::tempdir()?, server(args)?);
    let profile = match (&args.profile, &server) {
        (Some(profile), _) => profile.canonicalize()?,
        (None, Some(server)) => server.profile().to_owned(),
        (None, None) => return Err("PostgreSQL cannot be installed: see the message above".into()),
    };
    let profile = match args.store && args.profile.is_none() {
        true => with_store(&profile)?,
        false => profile,
    };
    let temporal = temporal_server(args)?;
    let profile = match &temporal {
        Some(temporal) => with_temporal(&profile, temporal)?,
        None => profile,
    };
    let place = args.place.as_deref().unwrap_or(temporary.path());
    let (units, workers) = match args.million {
        true => (1_000_000, vec![8]),
        false => (args.units, args.workers.clone()),
    };
    if let Some(file) = &args.costs {
        return write_costs(args, file, &profile, place);
    }
    let cores = std::thread::available_parallelism()?.get();
    let what = if args.calls {
        "with a paid call and two steps"
    } else {
        "that do nothing"
    };
    let through = if args.temporal {
        ", through Temporal"
    } else {
        ""
    };
    let is_plain = !(args.million || args.calls || args.store || args.temporal);
    let files = if args.store {
        ", with a file each in a bucket"
    } else {
        ""
    };
    println!(
        "cluster: {units} units {what}{files}{through} · {cores} cores · load {} · {} slots per worker\n",
        rivals::load()?,
        args.slots
    );
    println!(
        "| executor | workers | units/s | CPU per unit: coordinator | workers | PostgreSQL | journal per unit | coordinator's peak memory |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    );
    if !args.million {
        print_local(args, &place.join("local"), units)?;
    }
    for workers in workers {
        let run = place.join(format!("units-{units}-workers-{workers}"));
        let how = args.work();
        let taken = || temporal.as_ref().map(|server| taken_by(&server.data()));
        let before = taken().transpose()?;
        let measured = measure(how, &profile, &run, (units, workers))?;
        println!("{}", measured.row());
        measured.print_rest(args.million);
        if let (Some((cpu, bytes)), Some((cpu_after, bytes_after))) = (before, taken().transpose()?)
        {
            let bytes = bytes_per_unit(Some(bytes_after.saturating_sub(bytes)), units);
            let cpu = 1e3 * (cpu_after - cpu) / units as f64;
            println!(
                "| Temporal's server: {cpu:.2} ms of CPU per unit | {workers} | | | | | {bytes} | |"
            );
        }
    }
    if is_plain && !args.no_ray {
        print_ray(args, &profile, units);
    }
    Ok(())
}

/// The server of this measurement, unless the arguments name one.
fn server(args: &Args) -> Result<Option<SeparateServer>> {
    Ok(match args.profile {
        Some(_) => None,
        None => SeparateServer::start(),
    })
}

/// The Temporal server of this measurement, if the arguments want one.
fn temporal_server(args: &Args) -> Result<Option<temporal::SeparateServer>> {
    if !args.temporal {
        return Ok(None);
    }
    match temporal::SeparateServer::start() {
        None => Err("Temporal cannot be installed: see the message above".into()),
        server => Ok(server),
    }
}

/// A profile beside `profile` that also names a Temporal server.
fn with_temporal(profile: &Path, server: &temporal::SeparateServer) -> Result<PathBuf> {
    let mut settings = Profile::load(profile)?;
    settings.temporal = Some(server.address().clone());
    let path = profile.with_file_name("with-temporal.toml");
    fs::write(&path, toml::to_string(&settings)?)?;
    Ok(path)
}

/// A profile beside `profile` that also names the bucket of an S3 server, which ends with this process.
fn with_store(profile: &Path) -> Result<PathBuf> {
    let server = s3::server().ok_or("an S3 server cannot be installed: see the message above")?;
    let mut settings = Profile::load(profile)?;
    settings.store = Some(server);
    let path = profile.with_file_name("with-store.toml");
    fs::write(&path, toml::to_string(&settings)?)?;
    Ok(path)
}

/// Measures the local executor, with a journal in SQLite.
fn print_local(args: &Args, run: &Path, units: usize) -> Result<()> {
    let output = command(args.work(), Role::Local, run, units)?.output()?;
    let used = used(output)?;
    println!(
        "| local, SQLite | | {:.0} | {:.2} ms | | | {} | {:.0} MiB |",
        units as f64 / used.seconds,
        1e3 * used.cpu_seconds / units as f64,
        bytes_per_unit(Some(size(run)?), units),
        used.peak_mib
    );
    fs::remove_dir_all(run)?;
    Ok(())
}

/// Measures what one unit and one call with two steps cost: processor time of all parts at 8 workers, bytes, and the time that a
/// worker waits where nothing else is done.
fn write_costs(args: &Args, file: &Path, profile: &Path, place: &Path) -> Result<()> {
    let units = args.units;
    let busy = |calls: bool| {
        let run = place.join(format!("costs-{calls}"));
        let how = Work {
            calls,
            ..args.work()
        };
        measure(how, profile, &run, (units, 8))
    };
    let (unit, with_call) = (busy(false)?, busy(true)?);
    let alone = measure(
        Work {
            calls: true,
            slots: 1,
            ..args.work()
        },
        profile,
        &place.join("costs-alone"),
        (units / 10, 1),
    )?;
    let per_unit = |measured: &Measured| {
        if measured.coordinator.units < measured.units {
            return Err("--place has units of an earlier measurement: name another folder".into());
        }
        let server = measured
            .server_cpu
            .ok_or("the folder of PostgreSQL cannot be read")?;
        let bytes = measured
            .bytes
            .ok_or("the folder of PostgreSQL cannot be read")?;
        Ok::<_, Box<dyn Error + Send + Sync>>((
            1e3 * server / measured.units as f64,
            bytes as f64 / measured.units as f64,
        ))
    };
    let ((unit_ms, unit_bytes), (both_ms, both_bytes)) = (per_unit(&unit)?, per_unit(&with_call)?);
    let [reserve, settle, append] = alone.latency_ms;
    let costs = json!({
        "units": units,
        "cores": std::thread::available_parallelism()?.get(),
        "unit": {
            "server_cpu_ms": unit_ms,
            "coordinator_cpu_ms": 1e3 * unit.coordinator.cpu_seconds / units as f64,
            "worker_cpu_ms": 1e3 * unit.worker_cpu / units as f64,
            "journal_bytes": unit_bytes,
        },
        "call": {
            "server_cpu_ms": (both_ms - unit_ms).max(0.0),
            "journal_bytes": (both_bytes - unit_bytes).max(0.0),
            "reserve_ms": reserve,
            "settle_ms": settle,
            "append_ms": append,
        },
    });
    fs::write(file, serde_json::to_string_pretty(&costs)? + "\n")?;
    println!("{}: {costs:#}", file.display());
    Ok(())
}

/// Runs a coordinator and workers until all units are done.
fn measure(
    how: Work,
    profile: &Path,
    run: &Path,
    (units, workers): (usize, usize),
) -> Result<Measured> {
    let data = profile.parent().unwrap_or(Path::new(".")).join("postgres");
    let (cpu, bytes) = (postgres_cpu(&data), size(&data.join("base")).ok());
    let start = |role| -> Result<Child> {
        let mut child = command(how, role, run, units)?;
        Ok(child
            .arg("--profile")
            .arg(profile)
            .stdout(Stdio::piped())
            .spawn()?)
    };
    let coordinator = start(Role::Coordinator)?;
    let children: Vec<Child> = (0..workers)
        .map(|_| start(Role::Worker))
        .collect::<Result<_>>()?;
    let coordinated = used(coordinator.wait_with_output()?);
    let (mut worker_cpu, mut latency_ms) = (0.0, [0.0; 3]);
    for mut child in children {
        if coordinated.is_err() {
            child.kill()?;
        }
        let ended = child.wait_with_output()?;
        if coordinated.is_ok() {
            // The units are done, and are not made again for this.
            match used(ended) {
                Ok(used) => {
                    worker_cpu += used.cpu_seconds;
                    latency_ms = used.latency_ms;
                }
                Err(error) => eprintln!("the processor time of a worker is missing: {error}"),
            }
        }
    }
    let after = (postgres_cpu(&data), size(&data.join("base")).ok());
    Ok(Measured {
        workers,
        units,
        coordinator: coordinated?,
        worker_cpu,
        latency_ms,
        server_cpu: after.0.zip(cpu).map(|(after, before)| after - before),
        bytes: after
            .1
            .zip(bytes)
            .map(|(after, before)| after.saturating_sub(before)),
    })
}

impl Measured {
    /// Units per second are those of all processes that have coordinated the run; the rest is that of the last one.
    fn row(&self) -> String {
        let units = self.coordinator.units;
        let per_unit = |seconds: f64| format!("{:.2} ms", 1e3 * seconds / units.max(1) as f64);
        format!(
            "| shared, PostgreSQL | {} | {:.0} | {} | {} | {} | {} | {:.0} MiB |",
            self.workers,
            self.units as f64 / self.coordinator.seconds,
            per_unit(self.coordinator.cpu_seconds),
            per_unit(self.worker_cpu),
            self.server_cpu.map_or("not measured".to_owned(), per_unit),
            bytes_per_unit(self.bytes, units),
            self.coordinator.peak_mib
        )
    }

    /// What the row does not say: of a run that was continued, and of a large one.
    fn print_rest(&self, is_large: bool) {
        let before = self.units.saturating_sub(self.coordinator.units);
        if before > 0 {
            println!(
                "\nThe run was continued with {before} units done: processor time, bytes and memory are those of the rest."
            );
        }
        if is_large {
            let grown = self.bytes.map_or("not measured".to_owned(), text::size);
            println!(
                "\n{} units: {:.0} seconds; the database has grown by: {grown}",
                text::count(self.units as u64),
                self.coordinator.seconds
            );
        }
    }
}

fn bytes_per_unit(bytes: Option<u64>, units: usize) -> String {
    let bytes = bytes.and_then(|bytes| bytes.checked_div(units as u64));
    bytes.map_or("not measured".to_owned(), |bytes| format!("{bytes} bytes"))
}

/// Measures Ray with the same numbers of workers; says why not where it cannot.
fn print_ray(args: &Args, profile: &Path, units: usize) {
    let measured = rivals::Rivals::of_cluster(Path::new(BENCHES)).and_then(|ray| {
        let server = Profile::load(profile)?.postgres;
        let Some(password) = &server.password_file else {
            return Err("the password of PostgreSQL is not in a file".into());
        };
        let address = json!({
            "host": server.host, "port": server.port, "user": server.user, "dbname": server.database,
        });
        for workers in &args.workers {
            let options = json!({
                "units": units, "workers": workers, "server": address, "password_file": password,
            });
            let answer = ray.report(&[&options.to_string()])?;
            let seconds = answer["seconds"].as_f64().ok_or("no time")?;
            println!(
                "| Ray {}, one insert per task | {workers} | {:.0} | | | | | |",
                answer["version"].as_str().unwrap_or_default(),
                units as f64 / seconds
            );
        }
        Ok(())
    });
    if let Err(error) = measured {
        println!("\nRay was not measured: {error}");
    }
}

/// This program in another role.
fn command(how: Work, role: Role, run: &Path, units: usize) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let role = match role {
        Role::Local => "local",
        Role::Coordinator => "coordinator",
        Role::Worker => "worker",
    };
    command
        .args(["--role", role, "--units", &units.to_string()])
        .args(["--slots", &how.slots.to_string()])
        .arg("--run")
        .arg(run);
    if how.calls {
        command.arg("--calls");
    }
    if how.files {
        command.arg("--store");
    }
    Ok(command)
}

/// What a child says that it has used.
fn used(output: std::process::Output) -> Result<Used> {
    if !output.status.success() {
        return Err(format!(
            "a process failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )
        .into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[tokio::main]
async fn act(args: &Args, role: Role) -> Result<()> {
    let run = args.run.as_deref().ok_or("a role needs --run")?;
    let times = Arc::new(Times::default());
    let worked = match role {
        Role::Local => local(args, run, &times).await?,
        Role::Coordinator => coordinate(args, run, profile_of(args)?, &times).await?,
        Role::Worker => work(args, run, profile_of(args)?, &times).await?,
    };
    let used = Used {
        seconds: worked.seconds,
        units: worked.units,
        cpu_seconds: cpu("/proc/self/stat").ok_or("no /proc/self/stat")?.0,
        peak_mib: peak_mib()?,
        latency_ms: times.mean_ms(),
    };
    println!("{}", serde_json::to_string(&used)?);
    Ok(())
}

fn profile_of(args: &Args) -> Result<&Path> {
    Ok(args.profile.as_deref().ok_or("a role needs --profile")?)
}

/// Seconds of processor time of a process, and of those that it has started and that have ended.
fn cpu(stat: &str) -> Option<(f64, f64)> {
    let text = fs::read_to_string(stat).ok()?;
    // The name before the last parenthesis may contain anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    let own = ticks(11)? + ticks(12)?;
    let ended = ticks(13)? + ticks(14)?;
    Some((own / TICKS, ended / TICKS))
}

/// The same for a server whose process a file names in its first line.
fn server_cpu(pid_file: &Path) -> Option<(f64, f64)> {
    let text = fs::read_to_string(pid_file).ok()?;
    cpu(&format!("/proc/{}/stat", text.lines().next()?))
}

/// Processor time of the PostgreSQL server whose data are in `data`: of connections that have ended.
fn postgres_cpu(data: &Path) -> Option<f64> {
    let (own, ended) = server_cpu(&data.join("postmaster.pid"))?;
    Some(own + ended)
}

/// Seconds of processor time of the Temporal server whose data are in `data`, and their bytes.
fn taken_by(data: &Path) -> Result<(f64, u64)> {
    let (own, _) =
        server_cpu(&data.with_extension("pid")).ok_or("the Temporal server has ended")?;
    Ok((own, size(data)?))
}

/// Bytes of the files in and below a folder.
fn size(folder: &Path) -> Result<u64> {
    let (mut bytes, mut folders) = (0, vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            // The server deletes temporary files meanwhile.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            match metadata.is_dir() {
                true => folders.push(entry.path()),
                false => bytes += metadata.len(),
            }
        }
    }
    Ok(bytes)
}

fn peak_mib() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().split(' ').next());
    Ok(kib.ok_or("no VmHWM")?.parse::<f64>()? / 1024.0)
}
