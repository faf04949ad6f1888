//! The servers that are compared, on loopback.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::tasks::Page;

/// Time limit for the start of `inspect view`.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that ends when it is dropped.
pub(crate) struct Server {
    child: Child,
    /// What a browser opens first; with the token of the studio.
    link: String,
    /// `http://127.0.0.1:PORT`.
    address: String,
    /// Name of the dataset or of the log.
    name: String,
    is_ours: bool,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compiles the program.
pub(crate) fn build() -> Result<()> {
    let status = Command::new("cargo")
        .args(["build", "--quiet", "-p", "pybench"])
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err("the program cannot be compiled".into()),
    }
}

/// `pybench`, in the folder above that of this example.
fn program() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let folder = here
        .ancestors()
        .nth(2)
        .ok_or("no folder above this program")?;
    Ok(folder.join("pybench"))
}

fn name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

impl Server {
    /// The studio of a dataset, which answers when its index is made.
    pub(crate) fn ours(dataset: &Path, cache: &Path) -> Result<Self> {
        let mut command = Command::new(program()?);
        command
            .arg("studio")
            .arg(dataset)
            .env("PYBENCH_CACHE", cache);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut link = String::new();
        let output = child.stdout.take().ok_or("no output")?;
        BufReader::new(output).read_line(&mut link)?;
        let address = link.split('/').take(3).collect::<Vec<_>>().join("/");
        let server = Self {
            child,
            link: link.trim().to_owned(),
            address,
            name: name(dataset),
            is_ours: true,
        };
        match server.link.is_empty() {
            true => Err("`pybench studio` does not start; see the reason above".into()),
            false => Ok(server),
        }
    }

    /// `inspect view` of a folder with one log.
    pub(crate) async fn inspect(python: &Path, logs: &Path, home: &Path) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(python.with_file_name("inspect"));
        command.args(["view", "start", "--log-dir"]).arg(logs);
        command.args(["--port", &port.to_string()]);
        for variable in ["HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"] {
            command.env(variable, home);
        }
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut files = logs.read_dir()?.flatten().map(|entry| entry.path());
        let log = files.find(|path| path.extension().is_some_and(|end| end == "eval"));
        let address = format!("http://127.0.0.1:{port}");
        let server = Self {
            child,
            link: format!("{address}/"),
            address,
            name: name(&log.ok_or("no log")?),
            is_ours: false,
        };
        let since = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if since.elapsed() > PATIENCE {
                return Err("`inspect view` does not start".into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(server)
    }

    /// The list of rows.
    pub(crate) fn rows_page(&self, rows: u64) -> Page {
        let address = match self.is_ours {
            true => format!("{}/data/{}", self.address, self.name),
            false => format!("{}/#/logs/{}/samples/", self.address, self.name),
        };
        Page::rows(&self.link, &address, self.is_ours, rows)
    }

    /// The long trajectory.
    pub(crate) fn long_page(&self, events: u64) -> Page {
        let address = match self.is_ours {
            true => format!("{}/data/{}/1", self.address, self.name),
            false => format!(
                "{}/#/logs/{}/samples/sample/1/1/transcript",
                self.address, self.name
            ),
        };
        Page::long(&self.link, &address, self.is_ours, events)
    }
}
