//! Verdicts on programs, which are executed in sandbox sessions only.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_interpreter::Interpreter;
use pybench_run::{Failure, FailureKind, RunError, Stage};
use pybench_types::id::Digest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::executed::{Verdict, Verdicts, run_script};
use super::task::FunctionTask;
use crate::suite::SuiteEnv;

/// The program that executes and compares.
pub(super) const SCRIPT: &str = include_str!("score_programs.py");
/// Time limit of one program, in seconds; the script stops it before.
const PROGRAM_SECONDS: u64 = 70;
/// Time limit of the reference solution, in seconds.
const REFERENCE_SECONDS: u64 = 120;

/// Programs for one task.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    pub(super) task: Arc<FunctionTask>,
    pub(super) programs: Vec<String>,
}

/// Executes the programs whose verdicts are unknown. The failures that remain are by the place in `wanted`.
///
/// # Errors
/// The errors of the executor.
pub(super) async fn add_verdicts(
    known: &Verdicts,
    env: &SuiteEnv,
    executor: &Arc<Executor>,
    wanted: Vec<Programs>,
) -> Result<HashMap<usize, Failure>, RunError> {
    let mut stage = ProgramStage {
        executor: executor.clone(),
        batches: HashMap::new(),
    };
    let environment = env.interpreter.environment();
    let items = wanted.iter().map(|one| {
        let item = Digest::of_json(&(SCRIPT, one.task.json(), &one.programs, environment));
        stage.batches.insert(item.to_string(), one.clone());
        Some(item.to_string())
    });
    let items = items.collect();
    let results = env.results::<Vec<Verdict>>(Arc::new(stage), items).await?;
    let mut failures = HashMap::new();
    for (at, (one, result)) in wanted.iter().zip(results).enumerate() {
        match result {
            Some(Ok(verdicts)) => {
                for (program, verdict) in one.programs.iter().zip(verdicts) {
                    known.insert(&one.task.name, program, verdict);
                }
            }
            Some(Err(failure)) => {
                failures.insert(at, failure);
            }
            None => {}
        }
    }
    Ok(failures)
}

/// Executes programs in sessions without network.
pub(super) struct Executor(Arc<dyn Interpreter>);

impl Executor {
    pub(super) fn new(interpreter: Arc<dyn Interpreter>) -> Self {
        Self(interpreter)
    }

    /// The verdicts on programs for one task.
    ///
    /// # Errors
    /// Failures of the sandbox, and a reference solution that does not run.
    async fn verdicts(&self, wanted: &Programs) -> Result<Vec<Verdict>, Failure> {
        let Programs { task, programs } = wanted;
        let upstream = self.each::<bool>("upstream", task, programs).await?;
        let results = self.each::<Value>("call", task, programs).await?;
        let item = json!({"mode": "compare", "task": task.json(), "results": results});
        let strict = self.run::<bool>(&item, 1).await?;
        let strict = strict.filter(|strict| strict.len() == programs.len());
        let strict = strict.ok_or_else(|| {
            let detail = format!("the reference solution of {} does not run", task.name);
            Failure::new(FailureKind::Item, detail)
        })?;
        let verdicts = upstream.into_iter().zip(strict);
        let verdicts = verdicts.map(|(upstream, strict)| Verdict {
            upstream: upstream == Some(true),
            strict,
        });
        Ok(verdicts.collect())
    }

    /// Executes programs one after the other in one session, or, if one of them ends the session, in one each. A
    /// program that ends its own session has no result.
    async fn each<T: for<'a> Deserialize<'a>>(
        &self,
        mode: &str,
        task: &FunctionTask,
        programs: &[String],
    ) -> Result<Vec<Option<T>>, Failure> {
        let item =
            |programs: &[String]| json!({"mode": mode, "task": task.json(), "programs": programs});
        let all = self
            .run::<Option<T>>(&item(programs), programs.len())
            .await?;
        if let Some(all) = all.filter(|all| all.len() == programs.len()) {
            return Ok(all);
        }
        let mut results = Vec::new();
        for one in programs {
            let found = match programs.len() {
                1 => None,
                _ => {
                    self.run::<Option<T>>(&item(std::slice::from_ref(one)), 1)
                        .await?
                }
            };
            results.push(found.and_then(|found| found.into_iter().next()).flatten());
        }
        Ok(results)
    }

    /// Runs the script, with as many programs as `count`; `None` if it does not end by itself.
    async fn run<T: for<'a> Deserialize<'a>>(
        &self,
        item: &Value,
        count: usize,
    ) -> Result<Option<Vec<T>>, Failure> {
        let io = |error: std::io::Error| Failure::from(RunError::Internal(error.to_string()));
        let mut file = tempfile::NamedTempFile::new().map_err(io)?;
        file.write_all(item.to_string().as_bytes()).map_err(io)?;
        let input: (String, PathBuf) = ("data/item.json".to_owned(), file.path().to_owned());
        let seconds = REFERENCE_SECONDS + PROGRAM_SECONDS * count as u64;
        run_script(self.0.as_ref(), SCRIPT, [input].into(), seconds).await
    }
}

/// Stage that executes programs. Items are digests of everything that decides the verdicts.
struct ProgramStage {
    executor: Arc<Executor>,
    batches: HashMap<String, Programs>,
}

#[async_trait]
impl Stage for ProgramStage {
    fn name(&self) -> &'static str {
        "evalplus programs"
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let missing = || {
            let detail = format!("no attempt has the item {item}");
            Failure::new(FailureKind::Internal, detail)
        };
        let batch = self.batches.get(item).ok_or_else(missing)?;
        let verdicts = self.executor.verdicts(batch).await?;
        Ok(serde_json::to_value(verdicts).map_err(RunError::from)?)
    }
}
