//! Checkpoints, served by `pybench-train serve` for as long as they are evaluated.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use pybench::run::RunError;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The program, beside this one.
const PROGRAM: &str = "pybench-train";
/// Replies that the server computes together; more at a time take little longer than one.
pub const TOGETHER: usize = 4;
/// A model that is not there yet is fetched first.
const PATIENCE: Duration = Duration::from_secs(900);
/// Longest first line of the server, bytes.
const MOST_LINE: u64 = 4096;

/// A running server; it ends with this value.
pub struct Served {
    /// For instance `http://127.0.0.1:4321/v1`.
    pub base_url: String,
    child: Child,
}

/// Whether a model could be served; a name of the catalogue is fetched.
///
/// # Errors
/// [`RunError::Environment`] with the trainer's own words where it could not, or there is no such program.
pub async fn check(program: &Path, model: &str, base: bool) -> Result<(), RunError> {
    let mut command = serve(program, model, base);
    let ended = command.arg("--check").stdout(Stdio::null()).status().await;
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(environment(program, model, "what it said stands above")),
        Err(error) => Err(environment(program, model, error)),
    }
}

fn serve(program: &Path, model: &str, base: bool) -> Command {
    let mut command = Command::new(program);
    command.args(["serve", model]);
    if base {
        command.arg("--base");
    }
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    command.kill_on_drop(true);
    command
}

fn environment(program: &Path, model: &str, what: impl std::fmt::Display) -> RunError {
    RunError::Environment(format!("{} serve {model}: {what}", program.display()))
}

impl Served {
    /// Serve a model directory, or a name of the trainer's catalogue, as `name` on a free port. `base`: a
    /// model without a chat template of its own.
    ///
    /// # Errors
    /// [`RunError::Environment`] where there is no such program or it ends.
    pub async fn start(
        program: &Path,
        model: &str,
        name: &str,
        base: bool,
    ) -> Result<Self, RunError> {
        let environment = |text: String| environment(program, model, text);
        let mut command = serve(program, model, base);
        command.args(["--port", "0", "--name", name]);
        command.args(["--slots", &TOGETHER.to_string()]);
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| environment(error.to_string()))?;
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| environment("it has no output".to_owned()))?;
        let mut line = String::new();
        let mut reader = BufReader::new(stdout.take(MOST_LINE));
        let read = timeout(PATIENCE, reader.read_line(&mut line)).await;
        let read =
            read.map_err(|_| environment(format!("no address within {} s", PATIENCE.as_secs())))?;
        read.map_err(|error| environment(error.to_string()))?;
        let base_url = line.trim().to_owned();
        if !base_url.starts_with("http://") {
            return Err(environment(
                "it told no address; what it said stands above".to_owned(),
            ));
        }
        Ok(Self { base_url, child })
    }

    /// End it; its memory is free afterwards.
    pub async fn end(mut self) {
        if let Err(error) = self.child.kill().await {
            tracing::warn!("the server at {} does not end: {error}", self.base_url);
        }
    }
}

/// The trainer's program, where it lies beside this one or in the path.
pub fn program() -> Option<PathBuf> {
    crate::program::find(PROGRAM)
}

/// The model that training made last: `<runs>/*/model`, and the name of its run.
pub fn newest(runs: &Path) -> Option<(String, PathBuf)> {
    let entries = std::fs::read_dir(runs).ok()?.flatten();
    let models = entries.filter_map(|entry| {
        let folder = entry.path().join("model");
        let made: SystemTime = std::fs::metadata(folder.join("config.json"))
            .ok()?
            .modified()
            .ok()?;
        Some((made, entry.file_name().into_string().ok()?, folder))
    });
    models.max().map(|(_, name, folder)| (name, folder))
}

/// What a recipe of the trainer starts from: the key `model` of `training/recipes/<name>.toml`.
pub fn base_of(root: &Path, run: &str) -> Option<String> {
    let path = root
        .join("training/recipes")
        .join(run)
        .with_extension("toml");
    let text = std::fs::read_to_string(path).ok()?;
    let recipe: toml::Table = text.parse().ok()?;
    Some(recipe.get("model")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_program::write_program;

    #[test]
    fn the_newest_model_and_its_base_are_found() {
        let root = tempfile::tempdir().unwrap();
        let runs = root.path().join("runs");
        assert_eq!(newest(&runs), None);
        for (age, name) in [(20, "old"), (10, "new")] {
            let folder = runs.join(name).join("model");
            std::fs::create_dir_all(&folder).unwrap();
            let file = std::fs::File::create(folder.join("config.json")).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age))
                .unwrap();
        }
        std::fs::create_dir_all(runs.join("quickstart")).unwrap();
        assert_eq!(
            newest(&runs),
            Some(("new".to_owned(), runs.join("new/model")))
        );
        std::fs::create_dir_all(root.path().join("training/recipes")).unwrap();
        std::fs::write(
            root.path().join("training/recipes/new.toml"),
            "name = 'new'\nmodel = 'm'\n",
        )
        .unwrap();
        assert_eq!(base_of(root.path(), "new").as_deref(), Some("m"));
        assert_eq!(base_of(root.path(), "old"), None);
    }

    #[tokio::test]
    async fn a_server_is_asked_for_its_address() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("serve");
        let write = |script: &str| write_program(&program, script);
        write("#!/bin/sh\necho http://127.0.0.1:7/v1/$2/$6\nexec sleep 60\n");
        let served = Served::start(&program, "M", "N", false).await.unwrap();
        assert_eq!(served.base_url, "http://127.0.0.1:7/v1/M/N");
        write("#!/bin/sh\necho no such model\n");
        let error = Served::start(&program, "M", "N", false)
            .await
            .err()
            .unwrap();
        assert!(error.to_string().contains("told no address"), "{error}");
    }
}
