//! Verdicts on answers that must be executed, which happens in sandbox sessions only.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use pybench_interpreter::Interpreter;
use pybench_run::{Failure, FailureKind, RunError, Stage};
use pybench_types::id::Digest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::executed::{Verdict, Verdicts, run_script};
use super::program::{Program, unfenced};
use super::rows::Row;
use crate::suite::SuiteEnv;

/// The program that executes answers.
const SCRIPT: &str = include_str!("score_answers.py");
/// Modules of the authors that it imports.
const MODULES: [&str; 2] = ["mint/tasks/base.py", "mint/tasks/reasoning.py"];
/// Time limit of one answer, in seconds; the program stops an answer before.
const ANSWER_SECONDS: u64 = 15;

/// What is executed to score an answer.
#[derive(Clone, Debug)]
pub(super) enum Executed {
    /// The authors' comparison, which evaluates the answer.
    Theorem(Row),
    /// A program and its tests.
    Program(Program),
}

/// Answers to one task.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    /// Name of the task.
    pub(super) task: String,
    pub(super) executed: Executed,
    pub(super) answers: Vec<String>,
}

/// Executes the answers whose verdicts are unknown. The failures that remain are by the place in `wanted`.
///
/// # Errors
/// The errors of the executor.
pub(super) async fn add_verdicts(
    known: &Verdicts,
    env: &SuiteEnv,
    executor: &Arc<Executor>,
    wanted: Vec<Answers>,
) -> Result<HashMap<usize, Failure>, RunError> {
    let mut stage = ExecuteStage {
        executor: executor.clone(),
        batches: HashMap::new(),
    };
    let environment = env.interpreter.environment();
    let items = wanted.iter().map(|answers| {
        let executed = executor.digest(&answers.executed);
        let item = Digest::of_json(&(executed, &answers.answers, environment)).to_string();
        stage.batches.insert(item.clone(), answers.clone());
        Some(item)
    });
    let items = items.collect();
    let results = env.results::<Vec<Verdict>>(Arc::new(stage), items).await?;
    let mut failures = HashMap::new();
    for (at, (answers, result)) in wanted.iter().zip(results).enumerate() {
        match result {
            Some(Ok(verdicts)) => {
                for (answer, verdict) in answers.answers.iter().zip(verdicts) {
                    known.insert(&answers.task, answer, verdict);
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

/// Executes answers in sessions without network.
pub(super) struct Executor {
    interpreter: Arc<dyn Interpreter>,
    /// The authors' modules, by path in the session.
    modules: Vec<(&'static str, PathBuf)>,
    modules_digest: Digest,
}

impl Executor {
    /// Takes the authors' modules from a checkout.
    ///
    /// # Errors
    /// A module is missing.
    pub(super) fn new(root: &Path, env: &SuiteEnv) -> Result<Self, RunError> {
        let store = env.folder.store();
        let (mut modules, mut ids) = (Vec::new(), Vec::new());
        for path in MODULES {
            let bytes = super::super::answers::read(root, path).map_err(RunError::BadInput)?;
            let id = store.put(&bytes)?;
            modules.push((path, store.checked_path(&id)?));
            ids.push(id);
        }
        Ok(Self {
            interpreter: env.interpreter.clone(),
            modules,
            modules_digest: Digest::of_json(&ids),
        })
    }

    /// Digest of what decides the verdicts besides the answers.
    fn digest(&self, executed: &Executed) -> Digest {
        match executed {
            Executed::Theorem(row) => Digest::of_json(&(SCRIPT, &self.modules_digest, row)),
            Executed::Program(program) => {
                let Program {
                    tests,
                    solution,
                    functions,
                } = program;
                Digest::of_json(&(SCRIPT, tests, solution, functions))
            }
        }
    }

    /// The verdicts on answers to one task.
    ///
    /// # Errors
    /// Failures of the sandbox, and a reference solution that does not run.
    pub(super) async fn verdicts(
        &self,
        executed: &Executed,
        answers: &[String],
    ) -> Result<Vec<Verdict>, Failure> {
        let (upstream, strict) = match executed {
            Executed::Theorem(row) => {
                let item = json!({"kind": "theoremqa", "row": row});
                let upstream = self.each::<bool>(&item, answers).await?;
                (upstream, vec![None; answers.len()])
            }
            Executed::Program(program) => {
                let item = json!({"kind": "code", "tests": program.tests});
                let upstream = self.each::<bool>(&item, answers).await?;
                (upstream, self.strict(program, answers).await?)
            }
        };
        let verdicts = upstream.into_iter().zip(strict);
        let verdicts = verdicts.map(|(upstream, strict)| Verdict {
            upstream: upstream == Some(true),
            strict: strict == Some(true),
        });
        Ok(verdicts.collect())
    }

    /// Runs the tests on what the answers return: the answers see the arguments of the calls only, and the tests see plain
    /// data.
    async fn strict(
        &self,
        program: &Program,
        answers: &[String],
    ) -> Result<Vec<Option<bool>>, Failure> {
        let broken = || {
            let detail = "the reference solution in the file does not pass its tests";
            Failure::new(FailureKind::Item, detail)
        };
        let functions = &program.functions;
        let item = json!({"kind": "record", "tests": program.tests, "functions": functions,
            "reference": program.solution});
        let calls: Vec<Value> = self.run(&item).await?.ok_or_else(broken)?;
        let answers: Vec<String> = answers.iter().map(|one| unfenced(one).to_owned()).collect();
        let item = json!({"kind": "call", "calls": calls});
        let results = self.each::<Value>(&item, &answers).await?;
        let item = json!({"kind": "replay", "tests": program.tests, "functions": functions,
            "calls": calls, "results": results});
        self.run(&item).await?.ok_or_else(broken)
    }

    /// Executes answers one after the other in one session, or, if one of them ends the session, in one each. An answer
    /// that ends its own session has no result.
    async fn each<T: for<'a> Deserialize<'a>>(
        &self,
        item: &Value,
        answers: &[String],
    ) -> Result<Vec<Option<T>>, Failure> {
        let with = |answers: &[String]| {
            let mut item = item.clone();
            item["answers"] = json!(answers);
            item
        };
        let all = self.run::<Option<T>>(&with(answers)).await?;
        if let Some(all) = all.filter(|all| all.len() == answers.len()) {
            return Ok(all);
        }
        let mut results = Vec::new();
        for one in answers {
            let found = match answers.len() {
                1 => None,
                _ => {
                    self.run::<Option<T>>(&with(std::slice::from_ref(one)))
                        .await?
                }
            };
            results.push(found.and_then(|found| found.into_iter().next()).flatten());
        }
        Ok(results)
    }

    /// Runs the program; `None` if it does not end by itself.
    async fn run<T: for<'a> Deserialize<'a>>(
        &self,
        item: &Value,
    ) -> Result<Option<Vec<T>>, Failure> {
        let io = |error: std::io::Error| Failure::from(RunError::Internal(error.to_string()));
        let mut file = tempfile::NamedTempFile::new().map_err(io)?;
        file.write_all(item.to_string().as_bytes()).map_err(io)?;
        let count = item["answers"].as_array().or(item["results"].as_array());
        let count = count.map_or(1, Vec::len) as u64;
        let inputs = self.modules.iter();
        let inputs = inputs.map(|(path, file)| ((*path).to_owned(), file.clone()));
        let mut inputs: BTreeMap<String, PathBuf> = inputs.collect();
        inputs.insert("mint/item.json".to_owned(), file.path().to_owned());
        let seconds = 60 + ANSWER_SECONDS * count;
        run_script(self.interpreter.as_ref(), SCRIPT, inputs, seconds).await
    }
}

/// Stage that executes answers. Items are digests of everything that decides the verdicts.
struct ExecuteStage {
    executor: Arc<Executor>,
    batches: HashMap<String, Answers>,
}

#[async_trait]
impl Stage for ExecuteStage {
    fn name(&self) -> &'static str {
        "mint answers"
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let missing = || {
            let detail = format!("no attempt has the item {item}");
            Failure::new(FailureKind::Internal, detail)
        };
        let batch = self.batches.get(item).ok_or_else(missing)?;
        let executed = &batch.executed;
        let verdicts = self.executor.verdicts(executed, &batch.answers).await?;
        Ok(serde_json::to_value(verdicts).map_err(RunError::from)?)
    }
}
