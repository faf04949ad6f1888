//! Runs models and programs that an agent created, in a session without reference and checker. Their outputs,
//! limited in size, are scored in the checker's session.

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::checker::{Candidate, CheckError, Checker, CheckerJob, add_outputs, task_files};
use pybench_interpreter::{Collected, Limits};
use pybench_run::ContentStore;
use pybench_types::check::CheckSpec;
use pybench_types::task::Task;
use pybench_types::trajectory::Finding;

const MAX_RESULT_BYTES: usize = 32 << 20;
const SESSION_SECONDS: u64 = 300;

impl Checker {
    /// Runs the candidate's models and programs if the task has checks for them. Returns files for the
    /// checker's session.
    pub(super) async fn run_untrusted(
        &self,
        task: &Task,
        store: &ContentStore,
        candidate: &Candidate,
    ) -> Result<Vec<(String, Vec<u8>)>, CheckError> {
        let results = self.run_untrusted_many(task, store, std::slice::from_ref(candidate));
        Ok(results.await?.pop().unwrap_or_default())
    }

    /// Like [`Checker::run_untrusted`] for several candidates, each in its own sessions.
    pub(super) async fn run_untrusted_many(
        &self,
        task: &Task,
        store: &ContentStore,
        candidates: &[Candidate],
    ) -> Result<Vec<Vec<(String, Vec<u8>)>>, CheckError> {
        let Some(inputs) = self.untrusted_inputs(task, store).await? else {
            return Ok(vec![Vec::new(); candidates.len()]);
        };
        let mut results = Vec::new();
        for candidate in candidates {
            // Without files there is nothing to run, and each check fails for want of its file.
            results.push(match candidate.outputs.is_empty() {
                true => Vec::new(),
                false => self.run_candidate(task, store, candidate, &inputs).await?,
            });
        }
        Ok(results)
    }

    /// The inputs for models and programs, computed by the reference; `None` if no check runs any.
    async fn untrusted_inputs(
        &self,
        task: &Task,
        store: &ContentStore,
    ) -> Result<Option<Value>, CheckError> {
        let runs_code = |check: &CheckSpec| match check {
            CheckSpec::Model { .. } | CheckSpec::Program { .. } | CheckSpec::Calls { .. } => true,
            CheckSpec::Property { held_out, .. } => held_out.is_some(),
            _ => false,
        };
        if !task.checks.iter().any(runs_code) {
            return Ok(None);
        }
        let job = CheckerJob::new("prepare", 300, Vec::new());
        let nothing = Candidate::default();
        Ok(Some(self.run(task, store, &nothing, job).await?.0))
    }

    async fn run_candidate(
        &self,
        task: &Task,
        store: &ContentStore,
        candidate: &Candidate,
        inputs: &Value,
    ) -> Result<Vec<(String, Vec<u8>)>, CheckError> {
        let mut files = Vec::new();
        let empty = Map::new();
        for (key, script, result) in [
            ("programs", "run_program", "runs.json"),
            ("calls", "run_calls", "calls.json"),
        ] {
            if inputs[key].as_object().is_none_or(Map::is_empty) {
                continue;
            }
            let extra_files = vec![(format!("{key}.json"), inputs[key].to_string().into_bytes())];
            let collected = self
                .untrusted_session(task, store, candidate, script, extra_files)
                .await?;
            let (from, to) = (format!("output/{result}"), format!("candidate/{result}"));
            files.extend(result_file(collected, &from, &to));
        }
        let models = inputs["models"].as_object().unwrap_or(&empty);
        if !models.is_empty() {
            let predictions = self
                .untrusted_session(task, store, candidate, "run_model", model_inputs(models))
                .await?;
            files.extend(result_file(
                predictions,
                "output/predictions.json",
                "candidate/predictions.json",
            ));
        }
        Ok(files)
    }

    /// Runs one session without reference and checker. If the candidate's code kills its process, there is no
    /// result and the check fails.
    async fn untrusted_session(
        &self,
        task: &Task,
        store: &ContentStore,
        candidate: &Candidate,
        script: &str,
        extra_files: Vec<(String, Vec<u8>)>,
    ) -> Result<Collected, CheckError> {
        let folder = TempDir::with_prefix("pybench-foreign-")
            .map_err(CheckError::io("creating a temporary folder for the run"))?;
        let mut inputs = task_files(task, store, false)?;
        let name = format!("foreign/{script}.py");
        inputs.insert(name.clone(), self.sources.path().join(&name));
        for (path, bytes) in extra_files {
            let file = folder.path().join(inputs.len().to_string());
            std::fs::write(&file, bytes).map_err(CheckError::io(path.clone()))?;
            inputs.insert(path, file);
        }
        add_outputs(&mut inputs, candidate);
        let limits = Limits {
            cell_seconds: SESSION_SECONDS,
            ..Limits::default()
        };
        let cell = format!(
            "import sys\nsys.path.insert(0, 'foreign')\nimport {script}\n{script}.main()\n"
        );
        Ok(self.session(inputs, limits, &cell).await?.1)
    }

    /// Findings for mutated models and programs, each run in its own session.
    pub(super) async fn audit_untrusted(
        &self,
        task: &Task,
        store: &ContentStore,
        candidate: &Candidate,
    ) -> Result<Vec<(String, Vec<Finding>)>, CheckError> {
        if self.untrusted_inputs(task, store).await?.is_none() {
            return Ok(Vec::new());
        }
        let job = CheckerJob::new("mutate", 600, Vec::new());
        let (result, collected) = self.run(task, store, candidate, job).await?;
        let folder = TempDir::with_prefix("pybench-mutants-")
            .map_err(CheckError::io("creating a temporary folder for mutants"))?;
        let (mut names, mut mutants) = (Vec::new(), Vec::new());
        for (number, entry) in result["made"].as_array().into_iter().flatten().enumerate() {
            mutants.push(mutant(candidate, &collected, number, folder.path())?);
            names.push(entry["name"].as_str().unwrap_or_default().to_owned());
        }
        if mutants.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.check_many(task, store, &mutants).await?;
        Ok(names.into_iter().zip(found).collect())
    }
}

/// The candidate, with the files that the checker wrote for mutant `number`.
fn mutant(
    candidate: &Candidate,
    collected: &Collected,
    number: usize,
    folder: &std::path::Path,
) -> Result<Candidate, CheckError> {
    let mut mutant = candidate.clone();
    let prefix = format!("output/mutants/{number}/");
    for file in &collected.files {
        let Some(path) = file.path.strip_prefix(&prefix) else {
            continue;
        };
        let host = folder.join(format!("{number}-{}", mutant.outputs.len()));
        std::fs::write(&host, &file.bytes).map_err(CheckError::io(host.display().to_string()))?;
        mutant.outputs.retain(|(known, _)| known != path);
        mutant.outputs.push((path.to_owned(), host));
    }
    Ok(mutant)
}

/// `models.json` (model path → input table) and the tables.
fn model_inputs(models: &Map<String, Value>) -> Vec<(String, Vec<u8>)> {
    let mut names = Map::new();
    let mut files = Vec::new();
    for (number, (path, table)) in models.iter().enumerate() {
        let name = format!("inputs/{number}.csv");
        let text = table.as_str().unwrap_or_default();
        files.push((name.clone(), text.as_bytes().to_vec()));
        names.insert(path.clone(), json!(name));
    }
    files.push((
        "models.json".into(),
        Value::Object(names).to_string().into_bytes(),
    ));
    files
}

/// The result file, if it exists and is within the size limit.
fn result_file(collected: Collected, name: &str, path: &str) -> Option<(String, Vec<u8>)> {
    let file = collected.files.into_iter().find(|file| file.path == name)?;
    (file.bytes.len() <= MAX_RESULT_BYTES).then(|| (path.to_owned(), file.bytes))
}
