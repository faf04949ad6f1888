//! What benchmarks are compared with: `rivals.py` and `data.py`, and how busy the machine is.

#![allow(dead_code, unreachable_pub)] // each benchmark uses a part of it

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use pybench_interpreter::environment_python;
use serde_json::Value;

pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The load of the last minute.
pub fn load() -> Result<String> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().unwrap_or_default().to_owned())
}

/// A script of rivals under a Python that has what it needs.
pub struct Rivals {
    python: PathBuf,
    script: PathBuf,
}

/// Live kernels; they end with their input.
pub struct Held(Child, ChildStdin);

impl Rivals {
    /// `rivals.py` in the folder of benchmarks, whose `setup` makes its Python.
    pub fn new(benches: &Path) -> Result<Self> {
        Self::with(benches, "rivals.py", &[])
    }

    /// `data.py` there.
    pub fn of_data(benches: &Path) -> Result<Self> {
        Self::with(benches, "data.py", &["data"])
    }

    /// `cluster.py` there.
    pub fn of_cluster(benches: &Path) -> Result<Self> {
        Self::with(benches, "cluster.py", &["cluster"])
    }

    fn with(benches: &Path, script: &str, what: &[&str]) -> Result<Self> {
        let python = environment_python()?;
        let environment = python
            .ancestors()
            .nth(2)
            .ok_or("a Python without a folder")?;
        let mut setup = Command::new(benches.join("setup"));
        setup.arg(environment).args(what);
        let made = setup.stderr(Stdio::inherit()).output()?;
        if !made.status.success() {
            return Err("benches/setup failed; run this through `just bench`".into());
        }
        Ok(Self {
            python: String::from_utf8(made.stdout)?.trim().into(),
            script: benches.join(script),
        })
    }

    /// The one object that it prints.
    pub fn report(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.run(arguments)?;
        let last = text.lines().next_back().unwrap_or_default();
        Ok(serde_json::from_str(last)?)
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.python);
        let output = command.arg(&self.script).args(arguments).output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let last: Vec<_> = said.lines().rev().take(5).collect();
            let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
            let script = self.script.display();
            return Err(format!("{script} {arguments:?}: {}: {last}", output.status).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The seconds that it reports; kernels warn of what does not matter here.
    pub fn seconds(&self, arguments: &[&str]) -> Result<Vec<f64>> {
        let text = self.run(arguments)?;
        let lines = text.lines();
        lines
            .map(|line| {
                let value: Value = serde_json::from_str(line)?;
                if let Some(lost @ 1..) = value["lost"].as_u64() {
                    println!("(of theirs {lost} never ended and were given up)");
                }
                value["seconds"]
                    .as_f64()
                    .ok_or_else(|| format!("no seconds in {line}").into())
            })
            .collect()
    }

    /// Live kernels with pandas.
    pub fn hold(&self, count: usize) -> Result<Held> {
        let mut child = Command::new(&self.python)
            .arg(&self.script)
            .args(["hold", &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (input, output) = input.zip(output).ok_or("no pipes")?;
        let mut ready = String::new();
        BufReader::new(output).read_line(&mut ready)?;
        if !ready.contains("ready") {
            return Err(format!("{count} kernels could not be held").into());
        }
        std::thread::sleep(Duration::from_secs(1)); // their start-up is over
        Ok(Held(child, input))
    }
}

impl Held {
    /// End them.
    pub fn end(self) -> Result<()> {
        let Self(mut child, input) = self;
        drop(input);
        child.wait()?;
        Ok(())
    }
}
