//! Answers that are executed in sandbox sessions: their verdicts are collected before questions are scored, so that scoring
//! itself is a look-up.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use pybench_interpreter::{Interpreter, Limits, SessionSpec};
use pybench_run::{Failure, FailureKind, RunError, Stage, interpreter_failure};
use pybench_types::id::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answers::{AnswerSuite, reply};
use crate::suite::{AttemptScores, AuditOptions, Suite as _, SuiteAttempt, SuiteAudit, SuiteEnv};

/// The verdict on an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Verdict {
    pub(super) upstream: bool,
    /// Meaningful for programs only.
    pub(super) strict: bool,
}

/// The verdicts that are known, by task and answer.
#[derive(Debug, Default)]
pub(super) struct Verdicts(RwLock<HashMap<(String, Digest), Verdict>>);

fn key(task: &str, answer: &str) -> (String, Digest) {
    (task.to_owned(), Digest::of_bytes(answer.as_bytes()))
}

impl Verdicts {
    /// The verdict on an answer, if it is known.
    pub(super) fn get(&self, task: &str, answer: &str) -> Option<Verdict> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&key(task, answer)).copied()
    }

    /// Remembers a verdict.
    pub(super) fn insert(&self, task: &str, answer: &str, verdict: Verdict) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(key(task, answer), verdict);
    }
}

/// Executes the answers to the tasks of a benchmark.
#[async_trait]
pub(super) trait AnswerExecutor: Send + Sync + 'static {
    /// What is executed with the answers to a task.
    type Task: Clone + Send + Sync + 'static;

    /// Name of the stage in the journal.
    const STAGE: &'static str;

    /// The answer in a reply; `None` if nothing in it is executed.
    fn answer(task: &Self::Task, reply: &str) -> Option<String>;

    /// Digest of what decides the verdicts besides the answers and the Python environment.
    fn digest(&self, task: &Self::Task) -> Digest;

    /// The verdicts on answers to one task.
    ///
    /// # Errors
    /// Failures of the sandbox, and a reference solution that does not run.
    async fn verdicts(
        &self,
        task: &Self::Task,
        answers: &[String],
    ) -> Result<Vec<Verdict>, Failure>;
}

/// Answers to one task.
#[derive(Clone)]
pub(super) struct Answers<T> {
    /// Name of the task.
    pub(super) name: String,
    pub(super) task: T,
    pub(super) answers: Vec<String>,
}

/// The questions of a benchmark, whose answers are executed.
pub(super) struct ExecutedAnswers<E: AnswerExecutor> {
    pub(super) answers: AnswerSuite,
    /// What is executed, by name of the task.
    pub(super) tasks: BTreeMap<String, E::Task>,
    pub(super) verdicts: Arc<Verdicts>,
}

impl<E: AnswerExecutor> ExecutedAnswers<E> {
    /// What has to be executed to score these replies to a task.
    pub(super) fn to_execute<'a>(
        &self,
        name: &str,
        replies: impl Iterator<Item = &'a str>,
    ) -> Option<Answers<E::Task>> {
        let task = self.tasks.get(name)?;
        let answers = replies.filter_map(|reply| E::answer(task, reply));
        let mut answers: Vec<String> = answers.collect();
        answers.sort();
        answers.dedup();
        (!answers.is_empty()).then(|| Answers {
            name: name.to_owned(),
            task: task.clone(),
            answers,
        })
    }

    /// Executes the answers whose verdicts are unknown. The failures that remain are by the place in `wanted`.
    ///
    /// # Errors
    /// The errors of the executor of stages.
    pub(super) async fn add_verdicts(
        &self,
        env: &SuiteEnv,
        executor: &Arc<E>,
        wanted: Vec<Answers<E::Task>>,
    ) -> Result<HashMap<usize, Failure>, RunError> {
        let mut stage = ExecuteStage {
            executor: executor.clone(),
            batches: HashMap::new(),
        };
        let environment = env.interpreter.environment();
        let items = wanted.iter().map(|one| {
            let item = Digest::of_json(&(executor.digest(&one.task), &one.answers, environment));
            stage.batches.insert(item.to_string(), one.clone());
            Some(item.to_string())
        });
        let items = items.collect();
        let results = env.results::<Vec<Verdict>>(Arc::new(stage), items).await?;
        let mut failures = HashMap::new();
        for (at, (one, result)) in wanted.iter().zip(results).enumerate() {
            match result {
                Some(Ok(verdicts)) => {
                    for (answer, verdict) in one.answers.iter().zip(verdicts) {
                        self.verdicts.insert(&one.name, answer, verdict);
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

    /// Executes the answers of attempts and scores them. Where that failed, both scores are the failure.
    ///
    /// # Errors
    /// As [`crate::suite::Suite::score`].
    pub(super) async fn score(
        &self,
        env: &SuiteEnv,
        executor: &Arc<E>,
        attempts: &[SuiteAttempt<'_>],
    ) -> Result<Vec<AttemptScores>, RunError> {
        let (mut wanted, mut places) = (Vec::new(), Vec::new());
        for (place, attempt) in attempts.iter().enumerate() {
            let replies = attempt.trajectory.map(|trajectory| reply(trajectory));
            if let Some(answers) = self.to_execute(&attempt.task.name, replies.into_iter()) {
                wanted.push(answers);
                places.push(place);
            }
        }
        let failures = self.add_verdicts(env, executor, wanted).await?;
        let mut scores = self.answers.score(env, attempts).await?;
        for (at, failure) in failures {
            scores[places[at]] = AttemptScores {
                upstream: Some(Err(failure.clone())),
                fixed: None,
                strict: Some(Err(failure)),
            };
        }
        Ok(scores)
    }

    /// Executes the answers of the audit, and audits the scores. A task whose reference solution does not run is in the
    /// result.
    ///
    /// # Errors
    /// As [`crate::suite::Suite::audit`]; a failure of the sandbox.
    pub(super) async fn audit(
        &self,
        env: &SuiteEnv,
        executor: &Arc<E>,
        options: &AuditOptions,
    ) -> Result<SuiteAudit, RunError> {
        let wanted = self.answers.audited_replies(options)?.into_iter();
        let wanted = wanted.filter_map(|(task, replies)| {
            self.to_execute(&task, replies.iter().map(String::as_str))
        });
        let wanted: Vec<_> = wanted.collect();
        let names: Vec<String> = wanted.iter().map(|one| one.name.clone()).collect();
        let mut broken = BTreeMap::new();
        for (at, failure) in self.add_verdicts(env, executor, wanted).await? {
            if failure.kind != FailureKind::Item {
                return Err(RunError::Internal(failure.to_string()));
            }
            broken.insert(names[at].clone(), failure.detail);
        }
        let mut audit = self.answers.audit(env, options).await?;
        // What else is wrong with these tasks follows from it.
        audit
            .problems
            .retain(|(task, _)| !broken.contains_key(task));
        audit.problems.extend(broken);
        audit.json["problems"] = json!(audit.problems);
        Ok(audit)
    }
}

/// Stage that executes answers. Items are digests of everything that decides the verdicts.
struct ExecuteStage<E: AnswerExecutor> {
    executor: Arc<E>,
    batches: HashMap<String, Answers<E::Task>>,
}

#[async_trait]
impl<E: AnswerExecutor> Stage for ExecuteStage<E> {
    fn name(&self) -> &'static str {
        E::STAGE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let missing = || {
            let detail = format!("no attempt has the item {item}");
            Failure::new(FailureKind::Internal, detail)
        };
        let batch = self.batches.get(item).ok_or_else(missing)?;
        let verdicts = self.executor.verdicts(&batch.task, &batch.answers).await?;
        Ok(serde_json::to_value(verdicts).map_err(RunError::from)?)
    }
}

/// A script that executes answers in sessions without network.
pub(super) struct Script {
    /// `executed.py` and what the suite adds to it.
    pub(super) text: &'static str,
    pub(super) interpreter: Arc<dyn Interpreter>,
    /// Modules that it imports, by path in the session.
    pub(super) modules: Vec<(&'static str, PathBuf)>,
    /// Memory of a session.
    pub(super) memory_mib: u64,
    /// Time limit of what it does for the task, in seconds.
    pub(super) task_seconds: u64,
    /// Time limit of each answer, in seconds; the script stops an answer before.
    pub(super) answer_seconds: u64,
}

impl Script {
    /// Executes answers one after the other in one session, or, if one of them ends the session, in one each. An answer
    /// that ends its own session has no result.
    ///
    /// # Errors
    /// Failures of the sandbox.
    pub(super) async fn each<T: for<'a> Deserialize<'a>>(
        &self,
        item: &Value,
        answers: &[String],
    ) -> Result<Vec<Option<T>>, Failure> {
        let all = self.run_answers::<T>(item, answers).await?;
        if let Some(all) = all.filter(|all| all.len() == answers.len()) {
            return Ok(all);
        }
        let mut results = Vec::new();
        for one in answers {
            let found = match answers.len() {
                1 => None,
                _ => {
                    let one = std::slice::from_ref(one);
                    self.run_answers::<T>(item, one).await?
                }
            };
            results.push(found.and_then(|found| found.into_iter().next()).flatten());
        }
        Ok(results)
    }

    async fn run_answers<T: for<'a> Deserialize<'a>>(
        &self,
        item: &Value,
        answers: &[String],
    ) -> Result<Option<Vec<Option<T>>>, Failure> {
        let mut item = item.clone();
        item["answers"] = json!(answers);
        self.run(&item, answers.len()).await
    }

    /// Runs the script on `item`, with time for `count` answers. The result is what it wrote to `output/verdicts.json`;
    /// `None` if it did not end by itself.
    ///
    /// # Errors
    /// Failures of the sandbox.
    pub(super) async fn run<T: for<'a> Deserialize<'a>>(
        &self,
        item: &Value,
        count: usize,
    ) -> Result<Option<Vec<T>>, Failure> {
        let io = |error: std::io::Error| Failure::from(RunError::Internal(error.to_string()));
        let mut file = tempfile::NamedTempFile::new().map_err(io)?;
        file.write_all(item.to_string().as_bytes()).map_err(io)?;
        let modules = self.modules.iter();
        let modules = modules.map(|(path, file)| ((*path).to_owned(), file.clone()));
        let mut inputs: BTreeMap<String, PathBuf> = modules.collect();
        inputs.insert("data/item.json".to_owned(), file.path().to_owned());
        let spec = SessionSpec {
            inputs,
            limits: Limits {
                cell_seconds: self.task_seconds + self.answer_seconds * count as u64,
                memory_mib: self.memory_mib,
                output_files: 1,
                output_mib: 64,
                ..Limits::default()
            },
            ..SessionSpec::default()
        };
        let session = self.interpreter.start(spec).await;
        let mut session = session.map_err(interpreter_failure)?;
        let seen = session.execute(self.text).await;
        let collected = session.read_outputs().await;
        session.close().await.map_err(interpreter_failure)?;
        if let Some(error) = &seen.map_err(interpreter_failure)?.error {
            tracing::debug!("executing answers failed: {}", error.traceback);
        }
        let files = collected.map_err(interpreter_failure)?.files;
        let file = files
            .iter()
            .find(|file| file.path == "output/verdicts.json");
        Ok(file.and_then(|file| serde_json::from_slice(&file.bytes).ok()))
    }
}
