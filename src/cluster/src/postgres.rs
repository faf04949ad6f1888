//! A PostgreSQL server whose data are in a folder.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pybench_run::RunError;

use crate::user::User;

/// Folder of the data, below that of the cluster.
pub(crate) const DATA: &str = "postgres";

/// The database, and the role that owns the server.
pub(crate) const DATABASE: &str = "pybench";
pub(crate) const USER: &str = "pybench";

/// Seconds to wait for a start or a stop.
const TIMEOUT: &str = "60";

/// What differs from PostgreSQL's defaults. A commit is on the disk before it is acknowledged, which is the default.
const SETTINGS: &str = "
# pybench
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
";

pub(crate) struct Postgres<'a> {
    programs: PathBuf,
    data: PathBuf,
    user: Option<&'a User>,
}

impl<'a> Postgres<'a> {
    pub(crate) fn new(server: &Path, cluster: &Path, user: Option<&'a User>) -> Self {
        Self {
            programs: server.join("bin"),
            data: cluster.join(DATA),
            user,
        }
    }

    /// Creates the data where there are none, with a new password in the file `password`, which only this user can read.
    pub(crate) fn create(&self, password: &Path) -> Result<(), RunError> {
        if self.data.join("PG_VERSION").is_file() {
            return Ok(());
        }
        tracing::info!("creating the database in {}", self.data.display());
        // A new folder becomes the data once it is complete.
        let new = self.data.with_extension("new");
        let wrap = |path: &Path| RunError::io(path.display().to_string());
        if new.exists() {
            fs::remove_dir_all(&new).map_err(wrap(&new))?;
        }
        let words = random_hex().map_err(RunError::io("/dev/urandom"))?;
        write_private(password, &words).map_err(wrap(password))?;
        // The server's user reads the password from a file of its own, which is deleted.
        let own = password.with_extension("initdb");
        write_private(&own, &words).map_err(wrap(&own))?;
        fs::create_dir(&new).map_err(wrap(&new))?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o700)).map_err(wrap(&new))?;
        if let Some(user) = self.user {
            for path in [&new, &own] {
                std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid))
                    .map_err(wrap(path))?;
            }
        }
        let created = self.initialize(&new, &own);
        fs::remove_file(&own).map_err(wrap(&own))?;
        created?;
        fs::rename(&new, &self.data).map_err(wrap(&self.data))
    }

    fn initialize(&self, new: &Path, password: &Path) -> Result<(), RunError> {
        let mut initdb = self.program("initdb");
        initdb
            .arg("--pgdata")
            .arg(new)
            .arg("--pwfile")
            .arg(password)
            .args(["--username", USER, "--auth", "scram-sha-256"])
            .args(["--encoding", "UTF8", "--locale", "C", "--no-instructions"]);
        self.succeed(initdb, "")?;
        let mut single = self.program("postgres");
        single.args(["--single", "-D"]).arg(new).arg("postgres");
        self.succeed(single, &format!("CREATE DATABASE {DATABASE};\n"))?;
        let settings = new.join("postgresql.conf");
        let wrap = || RunError::io(settings.display().to_string());
        let mut file = OpenOptions::new()
            .append(true)
            .open(&settings)
            .map_err(wrap())?;
        file.write_all(SETTINGS.as_bytes()).map_err(wrap())
    }

    /// Whether the server runs.
    pub(crate) fn runs(&self) -> Result<bool, RunError> {
        if !self.data.is_dir() {
            return Ok(false);
        }
        let mut status = self.program("pg_ctl");
        status.arg("status").arg("-D").arg(&self.data);
        // 3: it does not run.
        let output = output(status, "")?;
        match output.status.code() {
            Some(0) => Ok(true),
            Some(3) => Ok(false),
            _ => Err(failed("pg_ctl status", &output)),
        }
    }

    /// Starts the server, and returns once it answers.
    pub(crate) fn start(&self, port: u16) -> Result<(), RunError> {
        let log = self.data.join("server.log");
        let mut start = self.program("pg_ctl");
        start
            .args(["start", "-w", "-t", TIMEOUT, "-D"])
            .arg(&self.data)
            .arg("-l")
            .arg(&log)
            .args(["-o", &format!("-p {port}")]);
        let output = output(start, "")?;
        if output.status.success() {
            return Ok(());
        }
        let text = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        let lines: Vec<&str> = lines.into_iter().rev().collect();
        Err(RunError::Environment(format!(
            "PostgreSQL does not start on port {port}; if another program uses that port, give another one with \
             --postgres-port; the end of {}:\n{}",
            log.display(),
            lines.join("\n")
        )))
    }

    /// Ends the server; whether it ran.
    pub(crate) fn stop(&self) -> Result<bool, RunError> {
        if !self.runs()? {
            return Ok(false);
        }
        let mut stop = self.program("pg_ctl");
        stop.args(["stop", "-w", "-t", TIMEOUT, "-m", "fast", "-D"])
            .arg(&self.data);
        self.succeed(stop, "")?;
        Ok(true)
    }

    /// A program of the server, run by its user.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir("/").env("LC_ALL", "C");
        if let Some(user) = self.user {
            user.run(&mut command);
        }
        command
    }

    fn succeed(&self, command: Command, input: &str) -> Result<(), RunError> {
        let name = Path::new(command.get_program());
        let name = name.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let output = output(command, input)?;
        match output.status.success() {
            true => Ok(()),
            false => Err(failed(&name, &output)),
        }
    }
}

/// Runs a program whose output is short. A server that it starts has its own log, and so holds no pipe of ours.
fn output(mut command: Command, input: &str) -> Result<Output, RunError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let wrap = || RunError::io(name.clone());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(wrap())?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input says why it failed.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output().map_err(wrap())
}

fn failed(name: &str, output: &Output) -> RunError {
    let said = [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes));
    RunError::Environment(format!(
        "{name} of PostgreSQL failed ({}): {}",
        output.status,
        said.concat().trim()
    ))
}

/// 128 random bits.
pub(crate) fn random_hex() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes a file that only this user can read.
pub(crate) fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
