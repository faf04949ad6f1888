//! Slurm with one node, in a temporary folder.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pybench_run::program;
use pybench_testing::{ROOT, sessions, skip};
use tempfile::TempDir;

use crate::support::PYBENCH;

/// Where Debian has the daemons, which is not in every user's `PATH`.
const DAEMONS: &str = "/usr/sbin";

/// Time after which something that does not happen is a failure.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// What the daemons print.
const LOG: &str = "daemons.log";

/// Starts the daemons and ends them, and all jobs, once its standard input is closed.
const SCRIPT: &str = r#"
head --bytes=32 /dev/urandom >munge.key && chmod 400 munge.key && mkdir state spool || exit
munged --foreground --force --key-file="$PWD/munge.key" --socket="$PWD/munge.socket" --seed-file="$PWD/munge.seed" \
    --pid-file="$PWD/munge.pid" --log-file="$PWD/munge.log" &
munge=$!
slurmctld -D -f "$SLURM_CONF" &
controller=$!
slurmd -D -f "$SLURM_CONF" &
node=$!
cat >/dev/null
scancel --me
for _ in $(seq 100); do [ -n "$(squeue --noheader)" ] || break; sleep 0.1; done
kill "$node" "$controller" "$munge"
wait
"#;

/// The daemons of one test. They run as root, and give their only node more than the machine has, so that the scripts are
/// submitted with the cores and the memory that they ask for.
pub(super) struct Slurm {
    folder: TempDir,
    daemons: Child,
}

impl Slurm {
    /// `None`, and the test is skipped, if Slurm is not installed or may not be started.
    pub(super) fn start() -> Option<Self> {
        if let Some(missing) = missing_program() {
            skip::missing_tool(format_args!("Slurm: there is no {}", missing.display()));
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            skip::unavailable("only root starts the daemons of Slurm");
            return None;
        }
        let folder = sessions::shared_folder();
        std::fs::write(settings(folder.path()), configuration(folder.path())).unwrap();
        let log = File::create(folder.path().join(LOG)).unwrap();
        let mut script = Command::new("sh");
        let daemons = with_slurm(script.args(["-c", SCRIPT]), folder.path())
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let slurm = Self { folder, daemons };
        wait_until("Slurm starts", || {
            slurm.ask("sinfo", &["--noheader", "--format=%T"]) == "idle"
        });
        Some(slurm)
    }

    /// Submits a script of `deploy/slurm` in a folder, with the program of these tests; returns the job's number.
    pub(super) fn submit(
        &self,
        folder: &Path,
        options: &[&str],
        script: &str,
        arguments: &[&str],
    ) -> String {
        let mut sbatch = Command::new("sbatch");
        sbatch
            .arg("--parsable")
            .args(options)
            .arg(Path::new(ROOT).join("deploy/slurm").join(script))
            .args(arguments);
        let output = with_slurm(&mut sbatch, self.folder.path())
            .env("PATH", search_path(Path::new(PYBENCH).parent().unwrap()))
            .env("DRAIN_SECONDS", "20")
            .env_remove("PYBENCH_ROOT")
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Sends SIGTERM to the processes of a job, and SIGKILL later.
    pub(super) fn cancel(&self, job: &str) {
        self.ask("scancel", &[job]);
    }

    /// Whether a job waits, runs or is about to end.
    pub(super) fn is_active(&self, job: &str) -> bool {
        const ENDS: [&str; 4] = ["COMPLETED", "CANCELLED", "FAILED", "TIMEOUT"];
        !ENDS.contains(&self.state(job).as_str())
    }

    /// What Slurm calls the state of a job, such as `COMPLETED`.
    pub(super) fn state(&self, job: &str) -> String {
        let said = self.ask("scontrol", &["show", "job", "--oneliner", job]);
        let mut words = said.split_whitespace();
        let state = words.find_map(|word| word.strip_prefix("JobState="));
        state.unwrap_or_else(|| panic!("{job}: {said}")).to_owned()
    }

    /// What a program of Slurm prints; nothing if it fails.
    fn ask(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        let output = with_slurm(command.args(arguments), self.folder.path())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        drop(self.daemons.stdin.take());
        let _ = self.daemons.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join(LOG));
            eprintln!("Slurm: {}", log.unwrap_or_default());
        }
    }
}

/// The first program of Slurm that is not installed.
fn missing_program() -> Option<PathBuf> {
    let daemons = ["munged", "slurmctld", "slurmd"].map(|name| Path::new(DAEMONS).join(name));
    let mut missing = daemons.into_iter().filter(|path| !path.is_file());
    let sbatch = program::find("sbatch").is_none();
    missing.next().or_else(|| sbatch.then(|| "sbatch".into()))
}

fn settings(folder: &Path) -> PathBuf {
    folder.join("slurm.conf")
}

/// A command that knows the daemons of that folder.
fn with_slurm<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    command
        .env("SLURM_CONF", settings(folder))
        .env("PATH", search_path(Path::new(DAEMONS)))
}

/// The folders of `PATH`, and another one before them.
fn search_path(first: &Path) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", first.display())
}

/// Works in a container and without control groups: nothing is accounted and nothing is limited.
fn configuration(folder: &Path) -> String {
    let [controller, node] = free_ports();
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let name = name.trim().split('.').next().unwrap_or_default();
    let folder = folder.display();
    format!(
        "ClusterName=test\nSlurmctldHost={name}(127.0.0.1)\nSlurmUser=root\nAuthInfo=socket={folder}/munge.socket\n\
         SlurmctldPort={controller}\nSlurmdPort={node}\nStateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool\n\
         SlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/slurmd.pid\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core_Memory\nMailProg=/bin/true\nSchedulerParameters=batch_sched_delay=0\n\
         SlurmdParameters=config_overrides\nReturnToService=2\nKillWait=30\n\
         NodeName={name} NodeAddr=127.0.0.1 CPUs=64 RealMemory=1000000\n\
         PartitionName=main Nodes={name} Default=YES MaxTime=INFINITE State=UP\n"
    )
}

/// Two ports of this machine that nothing listens on.
fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// Waits until something holds.
pub(super) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < MAX_WAIT, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
