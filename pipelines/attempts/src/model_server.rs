//! Runs `pybench-train serve` while a checkpoint is asked, as a teacher or in an evaluation.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use pybench_llm::OpenAiOptions;
use pybench_run::{Price, RunError, ServeEngine, ServedDtype};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::dependent_process;

/// Name of the program.
const PROGRAM: &str = "pybench-train";
/// Number of replies that the server generates in one batch, which takes little longer than one reply.
pub const SLOTS: usize = 8;
/// Time limit for the start of the server, which includes downloading the model.
const START_TIMEOUT: Duration = Duration::from_secs(900);
/// Time limit of a request, since a model may run on few CPU cores.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1800);
/// Maximum length of the server's first line, in bytes.
const MAX_LINE: u64 = 4096;

/// How a model is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServeOptions {
    /// A base model, without a chat template.
    pub base: bool,
    /// `None` leaves it to the server: float32 on a CPU, bfloat16 on a GPU.
    pub dtype: Option<ServedDtype>,
    /// What computes the replies.
    pub engine: ServeEngine,
}

/// A running server. It is stopped when this value is dropped.
pub struct ModelServer {
    /// Base URL, for example `http://127.0.0.1:4321/v1`.
    pub base_url: String,
    child: Child,
}

/// Checks that a model can be served; downloads it if it is a name in the catalog. Returns whether vLLM will serve it.
///
/// # Errors
/// [`RunError::Environment`] if the program is missing or cannot load the model.
pub async fn check(program: &Path, model: &str, options: ServeOptions) -> Result<bool, RunError> {
    let mut command = serve(program, model, options);
    let child = command.arg("--check").stdout(Stdio::piped()).spawn();
    let output = match child {
        Ok(child) => child.wait_with_output().await,
        Err(error) => Err(error),
    };
    match output {
        Ok(output) if output.status.success() => {
            Ok(output.stdout.trim_ascii() == ServeEngine::Vllm.name().as_bytes())
        }
        Ok(_) => Err(environment(
            program,
            model,
            "the model cannot be served; see the output above",
        )),
        Err(error) => Err(environment(program, model, error)),
    }
}

fn serve(program: &Path, model: &str, options: ServeOptions) -> Command {
    let mut command = dependent_process::command(program);
    command.args(["serve", model]);
    if options.base {
        command.arg("--base");
    }
    if let Some(dtype) = options.dtype {
        command.args(["--dtype", dtype.name()]);
    }
    if !options.engine.is_own() {
        command.args(["--engine", options.engine.name()]);
    }
    command.stderr(Stdio::inherit());
    command
}

fn environment(program: &Path, model: &str, what: impl std::fmt::Display) -> RunError {
    RunError::Environment(format!("{} serve {model}: {what}", program.display()))
}

impl ModelServer {
    /// Serves a model directory, or a model of the trainer's catalog, as `name` on a free port.
    ///
    /// # Errors
    /// [`RunError::Environment`] if the program is missing, exits, or prints no address in time.
    pub async fn start(
        program: &Path,
        model: &str,
        name: &str,
        options: ServeOptions,
    ) -> Result<Self, RunError> {
        let environment = |text: String| environment(program, model, text);
        let mut command = serve(program, model, options);
        command.args(["--port", "0", "--name", name]);
        command.args(["--slots", &SLOTS.to_string()]);
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| environment(error.to_string()))?;
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| environment("the process has no standard output".to_owned()))?;
        let mut line = String::new();
        let mut reader = BufReader::new(stdout.take(MAX_LINE));
        let read = timeout(START_TIMEOUT, reader.read_line(&mut line)).await;
        let read = read.map_err(|_| {
            environment(format!(
                "the server printed no address within {} s",
                START_TIMEOUT.as_secs()
            ))
        })?;
        read.map_err(|error| environment(error.to_string()))?;
        let base_url = line.trim().to_owned();
        if !base_url.starts_with("http://") {
            return Err(environment(
                "the server printed no address; see the output above".to_owned(),
            ));
        }
        Ok(Self { base_url, child })
    }

    /// Options of a client of this server, which serves the model as `name`. It costs nothing.
    pub fn client_options(&self, name: &str) -> OpenAiOptions {
        OpenAiOptions {
            model: name.to_owned(),
            base_url: self.base_url.clone(),
            key: None,
            headers: Default::default(),
            price: Some(Price::default()),
            timeout: REQUEST_TIMEOUT,
            extra: Default::default(),
            restore_python_tag: false,
        }
    }

    /// Stops the server and waits until its memory is free.
    pub async fn stop(mut self) {
        if let Err(error) = self.child.kill().await {
            tracing::warn!("could not stop the server at {}: {error}", self.base_url);
        }
    }
}

/// Path of `pybench-train`, next to this program or on the PATH.
pub fn program() -> Option<PathBuf> {
    pybench_run::program::find(PROGRAM)
}

/// As [`program`].
///
/// # Errors
/// [`RunError::Environment`] if there is none.
pub fn required_program() -> Result<PathBuf, RunError> {
    program().ok_or_else(|| {
        RunError::Environment(format!(
            "`{PROGRAM}` was not found next to this program or on the PATH: {HOW_TO_BUILD}"
        ))
    })
}

/// Where `pybench-train` comes from, for messages.
pub const HOW_TO_BUILD: &str = "`./justw train` builds it in a checkout";

/// The newest checkpoint, `<runs>/RUN/model` or `<runs>/RUN/STAGE/model`, as (name of run and stage, folder).
pub fn newest(runs: &Path) -> Option<(String, PathBuf)> {
    let folders = |parent: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let mut trained = folders(runs);
    trained.extend(trained.clone().iter().flat_map(|run| folders(run)));
    let models = trained.into_iter().filter_map(|run| {
        let folder = run.join("model");
        let config = std::fs::metadata(folder.join("config.json")).ok()?;
        let name = run.strip_prefix(runs).ok()?.to_str()?.to_owned();
        Some((config.modified().ok()?, name, folder))
    });
    models.max().map(|(_, name, folder)| (name, folder))
}

/// The model that the training of a checkpoint began with, over all of its stages, as `results.json` beside the
/// checkpoint has it.
pub fn base_of(checkpoint: &Path) -> Option<String> {
    let results = std::fs::read(checkpoint.parent()?.join("results.json")).ok()?;
    let results: serde_json::Value = serde_json::from_slice(&results).ok()?;
    let model = results.get("model")?.as_str()?;
    let before = Path::new(model);
    // An earlier stage; a folder that names itself would go on for ever.
    let earlier = (before != checkpoint).then(|| base_of(before)).flatten();
    Some(earlier.unwrap_or_else(|| model.to_owned()))
}

/// The base model of a training recipe: the key `model` of `training/recipes/<run>.toml`.
pub fn base_of_recipe(root: &Path, run: &str) -> Option<String> {
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
    use pybench_testing::program::write_program;
    use std::time::SystemTime;

    #[test]
    fn the_newest_checkpoint_and_its_base_model_are_found() {
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
        let stage = runs.join("staged/sft");
        std::fs::create_dir_all(stage.join("model")).unwrap();
        std::fs::write(stage.join("model/config.json"), "{}").unwrap();
        let found = newest(&runs).unwrap();
        assert_eq!(found, ("staged/sft".to_owned(), stage.join("model")));
        assert_eq!(base_of(&found.1), None);
        let first = runs.join("staged/cpt");
        std::fs::create_dir_all(&first).unwrap();
        let began_with = |run: &Path, model: &str| {
            let results = serde_json::json!({ "model": model }).to_string();
            std::fs::write(run.join("results.json"), results).unwrap();
        };
        began_with(&stage, first.join("model").to_str().unwrap());
        began_with(&first, "m");
        assert_eq!(base_of(&found.1).as_deref(), Some("m"));

        std::fs::create_dir_all(root.path().join("training/recipes")).unwrap();
        std::fs::write(
            root.path().join("training/recipes/new.toml"),
            "name = 'new'\nmodel = 'm'\n",
        )
        .unwrap();
        assert_eq!(base_of_recipe(root.path(), "new").as_deref(), Some("m"));
        assert_eq!(base_of_recipe(root.path(), "old"), None);
    }

    #[tokio::test]
    async fn the_server_prints_its_address() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("serve");
        let write = |script: &str| write_program(&program, script);
        let options = ServeOptions {
            base: true,
            dtype: Some(ServedDtype::Int8),
            ..ServeOptions::default()
        };
        write("#!/bin/sh\necho http://127.0.0.1:7/v1/$2$3$4=$5/$9\nexec sleep 60\n");
        let server = ModelServer::start(&program, "M", "N", options).await;
        let address = "http://127.0.0.1:7/v1/M--base--dtype=int8/N";
        assert_eq!(server.unwrap().base_url, address);
        write("#!/bin/sh\necho no such model\n");
        let error = ModelServer::start(&program, "M", "N", ServeOptions::default())
            .await
            .err()
            .unwrap();
        assert!(error.to_string().contains("printed no address"), "{error}");
    }
}
