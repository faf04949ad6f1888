//! Verdicts on answers that must be executed, which happens in sandbox sessions only.

use std::path::Path;

use async_trait::async_trait;
use pybench_interpreter::Limits;
use pybench_run::{Failure, FailureKind, RunError};
use pybench_types::id::Digest;
use serde_json::{Value, json};

use super::super::answers::read;
use super::super::executed::{AnswerExecutor, Script, Verdict};
use super::compare::answer;
use super::program::{Program, unfenced};
use super::rows::Row;
use crate::suite::SuiteEnv;

/// The program that executes answers.
const SCRIPT: &str = concat!(
    include_str!("../executed.py"),
    "\n\n",
    include_str!("score_answers.py")
);
/// Modules of the authors that it imports.
const MODULES: [&str; 2] = ["mint/tasks/base.py", "mint/tasks/reasoning.py"];

/// What is executed to score an answer.
#[derive(Clone, Debug)]
pub(super) enum Executed {
    /// The authors' comparison, which evaluates the answer.
    Theorem(Row),
    /// A program and its tests.
    Program(Program),
}

/// Executes answers in sessions without network.
pub(super) struct Executor {
    script: Script,
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
            let bytes = read(root, path).map_err(RunError::BadInput)?;
            let id = store.put(&bytes)?;
            modules.push((path, store.checked_path(&id)?));
            ids.push(id);
        }
        Ok(Self {
            script: Script {
                text: SCRIPT,
                interpreter: env.interpreter.clone(),
                modules,
                memory_mib: Limits::default().memory_mib,
                task_seconds: 60,
                answer_seconds: 15,
            },
            modules_digest: Digest::of_json(&ids),
        })
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
        let calls: Vec<Value> = self.script.run(&item, 1).await?.ok_or_else(broken)?;
        let answers: Vec<String> = answers.iter().map(|one| unfenced(one).to_owned()).collect();
        let item = json!({"kind": "call", "calls": calls});
        let results = self.script.each::<Value>(&item, &answers).await?;
        let item = json!({"kind": "replay", "tests": program.tests, "functions": functions,
            "calls": calls, "results": results});
        let verdicts = self.script.run(&item, results.len()).await?;
        verdicts.ok_or_else(broken)
    }
}

#[async_trait]
impl AnswerExecutor for Executor {
    type Task = Executed;

    const STAGE: &'static str = "mint answers";

    fn answer(_: &Executed, reply: &str) -> Option<String> {
        answer(reply)
    }

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

    async fn verdicts(
        &self,
        executed: &Executed,
        answers: &[String],
    ) -> Result<Vec<Verdict>, Failure> {
        let (upstream, strict) = match executed {
            Executed::Theorem(row) => {
                let item = json!({"kind": "theoremqa", "row": row});
                let upstream = self.script.each::<bool>(&item, answers).await?;
                (upstream, vec![None; answers.len()])
            }
            Executed::Program(program) => {
                let item = json!({"kind": "code", "tests": program.tests});
                let upstream = self.script.each::<bool>(&item, answers).await?;
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
}
