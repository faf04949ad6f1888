//! HumanEval+ and MBPP+: Python functions that are called with EvalPlus' inputs; and HumanEval and MBPP, which are the
//! same tasks with the original inputs only.
//!
//! Programs are executed in sandbox sessions.

mod program;
mod task;
mod verdicts;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use pybench_datasets::decontaminate::BenchmarkTask;
use pybench_run::RunError;
use pybench_types::id::Digest;
use pybench_types::task::{Category, Task};

use super::Entry;
use super::answers::{AnswerSuite, Question};
use super::executed::{ExecutedAnswers, Verdicts};
use crate::suite::{
    AttemptScores, AuditOptions, Origin, Selection, Solution, Suite, SuiteAttempt, SuiteAudit,
    SuiteEnv, TaskList,
};
use task::{TaskSet, read_tasks};
use verdicts::Executor;

/// The repository of HumanEval+ 0.1.10.
pub const HUMANEVAL_ORIGIN: Origin = Origin {
    repository: "https://github.com/evalplus/humanevalplus_release.git",
    commit: "200defce9e3429d28ca215b6dd061c0f7f31c18b",
    files: &["LICENSE", "HumanEvalPlus.jsonl.gz"],
    license: "Apache-2.0 (HumanEval+), MIT (HumanEval)",
    cache: "suites/humaneval-plus",
};

/// The repository of MBPP+ 0.2.0.
pub const MBPP_ORIGIN: Origin = Origin {
    repository: "https://github.com/evalplus/mbppplus_release.git",
    commit: "dadf43da556a00f7bacd71cb154f2932757d9144",
    files: &["LICENSE", "MbppPlus.jsonl.gz"],
    license: "Apache-2.0 (MBPP+), CC BY 4.0 (MBPP)",
    cache: "suites/mbpp-plus",
};

/// HumanEval+ in the list of suites.
pub const HUMANEVAL_PLUS: Entry = Entry {
    name: "humaneval-plus",
    origin: &HUMANEVAL_ORIGIN,
    open: |place| open(&HUMANEVAL_PLUS.checkout(place)?, &HUMANEVAL_PLUS, PLUS),
};

/// HumanEval in the list of suites.
pub const HUMANEVAL: Entry = Entry {
    name: "humaneval",
    origin: &HUMANEVAL_ORIGIN,
    open: |place| open(&HUMANEVAL_PLUS.checkout(place)?, &HUMANEVAL, BASE),
};

/// MBPP+ in the list of suites.
pub const MBPP_PLUS: Entry = Entry {
    name: "mbpp-plus",
    origin: &MBPP_ORIGIN,
    open: |place| open(&MBPP_PLUS.checkout(place)?, &MBPP_PLUS, PLUS),
};

/// MBPP in the list of suites.
pub const MBPP: Entry = Entry {
    name: "mbpp",
    origin: &MBPP_ORIGIN,
    open: |place| open(&MBPP_PLUS.checkout(place)?, &MBPP, BASE),
};

/// Whether a suite has the inputs that EvalPlus added.
const PLUS: bool = true;
const BASE: bool = false;
/// Changes whenever a score of a program changes, besides the script and the tasks.
const VERSION: u32 = 1;

const NOTES: &[&str] = &[
    "The program is the text between `<solution>` and `</solution>`, else the last code block that defines the function, else the reply itself. EvalPlus also repairs replies in other ways before it scores them.",
    "`upstream` is EvalPlus' comparison with what the reference solution returns (that of its version 0.3.1, in our words). Program and expected values are in one process, so a value that equals everything passes, and so does `[[2.0]]` for `[2.0]`.",
    "`strict` runs the program in a session that holds only the inputs, and compares the plain data that it returned in another one.",
];

/// One of the benchmarks at a checkout.
struct EvalPlus {
    executed: ExecutedAnswers<Executor>,
    executor: OnceLock<Arc<Executor>>,
}

fn open(root: &Path, entry: &'static Entry, plus: bool) -> Result<Arc<dyn Suite>, RunError> {
    let suite = EvalPlus::open(root, entry, plus).map_err(RunError::BadInput)?;
    Ok(Arc::new(suite))
}

/// The file of the tasks, and what they are called.
fn set_of(entry: &Entry) -> (&'static str, TaskSet) {
    match entry.name.starts_with("humaneval") {
        true => ("HumanEvalPlus.jsonl", TaskSet::HumanEval),
        false => ("MbppPlus.jsonl", TaskSet::Mbpp),
    }
}

fn title(entry: &Entry) -> &'static str {
    match entry.name {
        "humaneval" => "HumanEval",
        "humaneval-plus" => "HumanEval+",
        "mbpp" => "MBPP",
        _ => "MBPP+",
    }
}

impl EvalPlus {
    /// Reads the tasks.
    ///
    /// # Errors
    /// The file is missing or invalid.
    fn open(root: &Path, entry: &'static Entry, plus: bool) -> Result<Self, String> {
        let (file, set) = set_of(entry);
        let verdicts = Arc::new(Verdicts::default());
        let mut questions: Vec<Arc<dyn Question>> = Vec::new();
        let mut tasks = BTreeMap::new();
        for task in read_tasks(root, file, set, plus)? {
            let task = Arc::new(task);
            tasks.insert(task.name.clone(), task.clone());
            questions.push(Arc::new(program::ProgramQuestion {
                task,
                verdicts: verdicts.clone(),
            }));
        }
        let answers = AnswerSuite {
            name: entry.name,
            title: title(entry),
            origin: entry.origin,
            notes: NOTES,
            version: VERSION,
            category: Category::Software,
            questions,
            constants: program::constants,
        };
        Ok(Self {
            executed: ExecutedAnswers {
                answers,
                tasks,
                verdicts,
            },
            executor: OnceLock::new(),
        })
    }

    fn executor(&self, env: &SuiteEnv) -> Arc<Executor> {
        let new = || Arc::new(Executor::new(env.interpreter.clone()));
        self.executor.get_or_init(new).clone()
    }
}

#[async_trait]
impl Suite for EvalPlus {
    fn name(&self) -> &'static str {
        self.executed.answers.name
    }

    fn origin(&self) -> &'static Origin {
        self.executed.answers.origin
    }

    fn notes(&self) -> Vec<String> {
        self.executed.answers.notes()
    }

    fn describe(&self, selection: &Selection) -> String {
        self.executed.answers.describe(selection)
    }

    async fn tasks(&self, env: &SuiteEnv, selection: &Selection) -> Result<TaskList, RunError> {
        self.executed.answers.tasks(env, selection).await
    }

    async fn contents(&self, env: &SuiteEnv) -> Result<Vec<BenchmarkTask>, RunError> {
        self.executed.answers.contents(env).await
    }

    async fn score(
        &self,
        env: &SuiteEnv,
        attempts: &[SuiteAttempt<'_>],
    ) -> Result<Vec<AttemptScores>, RunError> {
        let executor = self.executor(env);
        self.executed.score(env, &executor, attempts).await
    }

    fn scorer(&self) -> Digest {
        Digest::of_json(&(self.executed.answers.scorer(), verdicts::SCRIPT))
    }

    fn solution(&self, task: &Task) -> Result<Solution, String> {
        self.executed.answers.solution(task)
    }

    async fn audit(&self, env: &SuiteEnv, options: &AuditOptions) -> Result<SuiteAudit, RunError> {
        let executor = self.executor(env);
        self.executed.audit(env, &executor, options).await
    }
}

#[cfg(test)]
mod tests;
