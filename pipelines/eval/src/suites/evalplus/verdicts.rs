//! Verdicts on programs, which are executed in sandbox sessions only.

use std::sync::Arc;

use async_trait::async_trait;
use pybench_interpreter::Interpreter;
use pybench_run::{Failure, FailureKind};
use pybench_types::id::Digest;
use serde_json::{Value, json};

use super::super::executed::{AnswerExecutor, Script, Verdict};
use super::task::FunctionTask;

/// The program that executes and compares.
pub(super) const SCRIPT: &str = concat!(
    include_str!("../executed.py"),
    "\n\n",
    include_str!("score_programs.py")
);

/// EvalPlus' own limit of memory, 4 GiB: Mbpp/255 returns 1.1 GB.
const MEMORY_MIB: u64 = 4096;

/// Executes programs in sessions without network.
pub(super) struct Executor(Script);

impl Executor {
    pub(super) fn new(interpreter: Arc<dyn Interpreter>) -> Self {
        Self(Script {
            text: SCRIPT,
            interpreter,
            modules: Vec::new(),
            memory_mib: MEMORY_MIB,
            task_seconds: 120,
            answer_seconds: 105,
        })
    }
}

#[async_trait]
impl AnswerExecutor for Executor {
    type Task = Arc<FunctionTask>;

    const STAGE: &'static str = "evalplus programs";

    fn answer(task: &Arc<FunctionTask>, reply: &str) -> Option<String> {
        Some(task.program(reply))
    }

    fn digest(&self, task: &Arc<FunctionTask>) -> Digest {
        Digest::of_json(&(SCRIPT, task.json()))
    }

    async fn verdicts(
        &self,
        task: &Arc<FunctionTask>,
        programs: &[String],
    ) -> Result<Vec<Verdict>, Failure> {
        let item = |mode: &str| json!({"mode": mode, "task": task.json()});
        let upstream = self.0.each::<bool>(&item("upstream"), programs).await?;
        let results = self.0.each::<Value>(&item("call"), programs).await?;
        let mut compare = item("compare");
        compare["results"] = json!(results);
        let strict = self.0.run::<bool>(&compare, 1).await?;
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
}
