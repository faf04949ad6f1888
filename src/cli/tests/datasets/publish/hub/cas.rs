//! Hugging Face's own store of chunks behind the Hub, a process of its own: `pybench-cas`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use axum::body::Bytes;
use serde_json::Value;

pub struct Cas {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
    pub url: String,
    /// Bytes of chunks that it holds, compressed as they are.
    pub stored: u64,
    /// SHA-256 → Xet's hash.
    pub hashes: BTreeMap<String, String>,
}

impl Cas {
    /// `None`, and why, where the programs are not built.
    pub fn start() -> Option<Self> {
        let beside = std::path::Path::new(crate::support::PYBENCH);
        let program = |name: &str| beside.with_file_name(name);
        if !program("pybench-cas").is_file() || !program("pybench-xet").is_file() {
            pybench_testing::skip::missing_tool(
                "pybench-xet and pybench-cas are not built here; `just test` builds them",
            );
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(program("pybench-cas"))
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut url = String::new();
        output.read_line(&mut url).unwrap();
        Some(Self {
            input: child.stdin.take().unwrap(),
            child,
            output,
            folder,
            url: url.trim().to_owned(),
            stored: 0,
            hashes: BTreeMap::new(),
        })
    }

    /// The files that have come, by SHA-256.
    pub fn files(&mut self) -> BTreeMap<String, Bytes> {
        self.input.write_all(b"\n").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let held: Value = serde_json::from_str(&line).unwrap();
        self.stored = held["stored"].as_u64().unwrap();
        let text = |file: &Value, key: &str| file[key].as_str().unwrap().to_owned();
        let files = held["files"].as_array().unwrap().iter();
        self.hashes = files
            .map(|f| (text(f, "sha256"), text(f, "hash")))
            .collect();
        let read = |sha256: &String| std::fs::read(self.folder.path().join(sha256)).unwrap();
        let each = self.hashes.keys();
        each.map(|sha256| (sha256.clone(), read(sha256).into()))
            .collect()
    }

    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Cas {
    fn drop(&mut self) {
        self.stop();
    }
}
