//! Models and programs made by an agent: run in a session that holds neither reference nor checker,
//! takes inputs and returns bounded data, which the checker's session scores.

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::CheckSpec;
use super::checker::{Candidate, CheckError, Checker, Job, add_outputs, task_files};
use crate::interpreter::{Collected, Limits};
use crate::run::ContentStore;
use crate::task::Task;
use crate::trajectory::Finding;

const RESULT_BYTES: usize = 32 << 20;
const SECONDS: u64 = 300;

impl Checker {
    /// Run what the candidate made, where the task asks for it: files for the checker's session.
    pub(super) async fn foreign(
        &self,
        task: &Task,
        store: &ContentStore,
        candidate: &Candidate,
    ) -> Result<Vec<(String, Vec<u8>)>, CheckError> {
        let made = self.foreign_many(task, store, std::slice::from_ref(candidate));
        Ok(made.await?.pop().unwrap_or_default())
    }

    /// The same for several candidates, each in sessions of its own.
    pub(super) async fn foreign_many(
        &self,
        task: &Task,
        store: &ContentStore,
        candidates: &[Candidate],
    ) -> Result<Vec<Vec<(String, Vec<u8>)>>, CheckError> {
        let Some(inputs) = self.prepare(task, store).await? else {
            return Ok(vec![Vec::new(); candidates.len()]);
        };
        let mut made = Vec::new();
        for candidate in candidates {
            made.push(self.run_foreign(task, store, candidate, &inputs).await?);
        }
        Ok(made)
    }

    /// What models and programs are run on, as the reference says; `None` where no check has any.
    async fn prepare(
        &self,
        task: &Task,
        store: &ContentStore,
    ) -> Result<Option<Value>, CheckError> {
        let foreign = |check: &CheckSpec| match check {
            CheckSpec::Model { .. } | CheckSpec::Program { .. } => true,
            CheckSpec::Property { held_out, .. } => held_out.is_some(),
            _ => false,
        };
        if !task.checks.iter().any(foreign) {
            return Ok(None);
        }
        let job = Job::new("prepare", 300, Vec::new());
        let nothing = Candidate::default();
        Ok(Some(self.run(task, store, &nothing, job).await?.0))
    }

    async fn run_foreign(
        &self,
        task: &Task,
        store: &ContentStore,
        candidate: &Candidate,
        inputs: &Value,
    ) -> Result<Vec<(String, Vec<u8>)>, CheckError> {
        let mut files = Vec::new();
        let empty = Map::new();
        let programs = inputs["programs"].as_object().unwrap_or(&empty);
        if !programs.is_empty() {
            let given = vec![(
                "programs.json".to_owned(),
                inputs["programs"].to_string().into_bytes(),
            )];
            let runs = self
                .one_foreign(task, store, candidate, "run_program", given)
                .await?;
            files.extend(bounded(runs, "output/runs.json", "candidate/runs.json"));
        }
        let models = inputs["models"].as_object().unwrap_or(&empty);
        if !models.is_empty() {
            let predictions = self
                .one_foreign(task, store, candidate, "run_model", model_inputs(models))
                .await?;
            files.extend(bounded(
                predictions,
                "output/predictions.json",
                "candidate/predictions.json",
            ));
        }
        Ok(files)
    }

    /// One session without reference or checker. What its process does to itself is the candidate's
    /// own doing: then there is no result, and the check fails.
    async fn one_foreign(
        &self,
        task: &Task,
        store: &ContentStore,
        candidate: &Candidate,
        script: &str,
        given: Vec<(String, Vec<u8>)>,
    ) -> Result<Collected, CheckError> {
        let folder = TempDir::with_prefix("pybench-foreign-")
            .map_err(CheckError::io("a folder for the run"))?;
        let mut inputs = task_files(task, store, false);
        let name = format!("foreign/{script}.py");
        inputs.insert(name.clone(), self.sources.path().join(&name));
        for (path, bytes) in given {
            let file = folder.path().join(inputs.len().to_string());
            std::fs::write(&file, bytes).map_err(CheckError::io(path.clone()))?;
            inputs.insert(path, file);
        }
        add_outputs(&mut inputs, candidate);
        let limits = Limits {
            cell_seconds: SECONDS,
            ..Limits::default()
        };
        let cell = format!(
            "import sys\nsys.path.insert(0, 'foreign')\nimport {script}\n{script}.main()\n"
        );
        Ok(self.session(inputs, limits, &cell).await?.1)
    }

    /// Findings for wrong models and programs, each run in a session of its own.
    pub(super) async fn audit_foreign(
        &self,
        task: &Task,
        store: &ContentStore,
        candidate: &Candidate,
    ) -> Result<Vec<(String, Vec<Finding>)>, CheckError> {
        if self.prepare(task, store).await?.is_none() {
            return Ok(Vec::new());
        }
        let job = Job::new("mutate", 600, Vec::new());
        let (result, collected) = self.run(task, store, candidate, job).await?;
        let folder = TempDir::with_prefix("pybench-mutants-")
            .map_err(CheckError::io("a folder for mutants"))?;
        let (mut names, mut mutants) = (Vec::new(), Vec::new());
        for (number, made) in result["made"].as_array().into_iter().flatten().enumerate() {
            mutants.push(mutant(candidate, &collected, number, folder.path())?);
            names.push(made["name"].as_str().unwrap_or_default().to_owned());
        }
        if mutants.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.check_many(task, store, &mutants).await?;
        Ok(names.into_iter().zip(found).collect())
    }
}

/// The candidate with the files that the checker wrote for mutant `number`.
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

/// `models.json` (model → its table) and the tables.
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

/// The result, if it was written and is bounded.
fn bounded(collected: Collected, name: &str, place: &str) -> Option<(String, Vec<u8>)> {
    let file = collected.files.into_iter().find(|file| file.path == name)?;
    (file.bytes.len() <= RESULT_BYTES).then(|| (place.to_owned(), file.bytes))
}
