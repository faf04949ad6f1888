//! The servers that are compared, on loopback.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Result;
use crate::tasks::Page;

/// Time limit for the start of `inspect view`.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time limit for an answer of it: its list of logs.
const ANSWER: Duration = Duration::from_secs(30);
/// Maximum number of starts of `inspect view`, each on another port.
const STARTS: usize = 5;
/// Time between two questions to a server that is not ready.
const PERIOD: Duration = Duration::from_millis(100);
/// Rows of a page of the list.
const PAGE_ROWS: u64 = 100;

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
    /// The studio of a dataset, which answers as soon as it has some rows.
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

    /// `inspect view` of a folder with one log, on another port if a program took the port before it did.
    pub(crate) async fn inspect(python: &Path, logs: &Path, home: &Path) -> Result<Self> {
        for _ in 0..STARTS {
            let mut server = Self::spawn_inspect(python, logs, home)?;
            if server.lists_logs().await? {
                return Ok(server);
            }
        }
        Err(format!("`inspect view` ended {STARTS} times before it listed its logs").into())
    }

    /// Begins to start `inspect view` on a port that is free now.
    fn spawn_inspect(python: &Path, logs: &Path, home: &Path) -> Result<Self> {
        let mut files = logs.read_dir()?.flatten().map(|entry| entry.path());
        let log = files.find(|path| path.extension().is_some_and(|end| end == "eval"));
        let log = log.ok_or("no log")?;
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
        let address = format!("http://127.0.0.1:{port}");
        Ok(Self {
            child,
            link: format!("{address}/"),
            address,
            name: name(&log),
            is_ours: false,
        })
    }

    /// Waits until `inspect view` lists its logs; `false` if it ended before, as it does if its port is taken.
    async fn lists_logs(&mut self) -> Result<bool> {
        let http = reqwest::Client::builder().timeout(ANSWER).build()?;
        let address = format!("{}/api/logs", self.address);
        let asked = async || http.get(&address).send().await?.json::<Value>().await;
        let since = Instant::now();
        while self.child.try_wait()?.is_none() {
            // Another program may answer there, in another form.
            if asked().await.is_ok_and(|list| list["log_dir"].is_string()) {
                return Ok(true);
            }
            if since.elapsed() > PATIENCE {
                return Err("`inspect view` does not start".into());
            }
            tokio::time::sleep(PERIOD).await;
        }
        Ok(false)
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

    /// The two trajectories of a dataset of ours, side by side.
    pub(crate) fn pair_page(&self) -> Page {
        let name = &self.name;
        let both = format!("a={name}&a_number=1&b={name}&b_number=2");
        Page::pair(&self.link, &format!("{}/compare/pair?{both}", self.address))
    }
}

/// How long the studio takes when it opens a dataset for the first time.
pub(crate) struct FirstStart {
    /// Until a page of rows is there.
    pub(crate) rows: Duration,
    /// Until all rows are indexed.
    pub(crate) index: Duration,
}

impl FirstStart {
    /// Starts the studio of a dataset of so many rows, and ends it when all are indexed.
    pub(crate) async fn measure(dataset: &Path, cache: &Path, rows: u64) -> Result<Self> {
        let since = Instant::now();
        let server = Server::ours(dataset, cache)?;
        let (_, token) = server
            .link
            .split_once("token=")
            .ok_or("the link of the studio has no token")?;
        let address = format!(
            "{}/api/data/{}?count={PAGE_ROWS}",
            server.address, server.name
        );
        let http = reqwest::Client::new();
        let mut first = None;
        loop {
            let answer = http.get(&address).bearer_auth(token).send().await?;
            let answer = answer.error_for_status()?.bytes().await?;
            let page: Value = serde_json::from_slice(&answer)?;
            let shown = page["rows"].as_array().map_or(0, Vec::len) as u64;
            if first.is_none() && shown >= rows.min(PAGE_ROWS) {
                first = Some(since.elapsed());
            }
            match (&page["indexing"], first) {
                (Value::Null, Some(rows)) => {
                    let index = since.elapsed();
                    return Ok(Self { rows, index });
                }
                (Value::Null, None) => return Err(format!("only {shown} rows are there").into()),
                (indexing, _) if indexing["problem"] != "" => {
                    return Err(format!("the rows cannot be indexed: {indexing}").into());
                }
                _ => tokio::time::sleep(PERIOD).await,
            }
        }
    }
}
