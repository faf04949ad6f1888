//! Tasks, and a model, a sandbox and a checker that reply at once.

use std::collections::BTreeMap;

use async_trait::async_trait;
use pybench_agent::{Format, PybenchFormat};
use pybench_grade::TrajectoryChecker;
use pybench_interpreter::{
    Collected, CollectedFile, InterpreterError, InterruptHandle, Session, SessionSpec,
};
use pybench_llm::{ChatError, ChatModel, ChatRequest, Reply};
use pybench_run::{Failure, Price};
use pybench_types::id::Digest;
use pybench_types::observation::{Observation, Output};
use pybench_types::task::{Category, FileKind, Language, Task, TaskFile, TaskOrigin};
use pybench_types::trajectory::{Finding, Outcome, Role, Trajectory, Usage};

/// Cells of each trajectory.
const CELLS: usize = 3;
/// Input files of all tasks together.
pub(crate) const FILES: usize = 320;
const CELL: &str = "import pandas as pd\ntable = pd.read_csv('./data/table.csv')\n\
    by_group = table.groupby('group')['value'].agg(['mean', 'sum', 'count']).reset_index()\n\
    by_group = by_group.sort_values('sum', ascending=False)\n\
    by_group.to_csv('./output/result.csv', index=False)\nprint(by_group.head(20).to_string())";

/// The content of an input file. No cell reads it, but a rollout checks its digest.
pub(crate) fn content(file: usize) -> String {
    format!("group,value\na,{file}\n")
}

/// A task of the usual size: a query of a few sentences, one file, a reference, no check.
pub(crate) fn task(number: usize) -> Task {
    let which = number % FILES;
    let query = format!(
        "The file `table{which}.csv` lists measurements by group. Compute the mean, the sum and the number of \
         values of each group with the settings of variant {number}, sort the groups by their sum in descending \
         order, and save the result to `./output/result.csv` with the columns `group`, `mean`, `sum`, `count`. \
         Then say which group has the largest sum."
    );
    let mut task = Task {
        id: Digest::of_bytes(b""),
        category: Category::Chart,
        subcategory: "aggregation".into(),
        keyword: "group by".into(),
        language: Language::En,
        query,
        files: vec![TaskFile {
            name: format!("table{which}.csv"),
            id: Digest::of_bytes(content(which).as_bytes()),
            kind: FileKind::Csv,
            origin: format!("pkg:pypi/tables@1.0#tables/data/table{which}.csv"),
            license: Some("BSD-3-Clause".into()),
            derived_from: None,
            format: None,
        }],
        held_out: vec![],
        outputs: vec!["output/result.csv".into()],
        reference: CELL.into(),
        checks: vec![],
        origin: TaskOrigin::Library {
            template: format!("template-{}", number % 67),
            slots: BTreeMap::new(),
            phrasing: 0,
        },
    };
    task.id = task.compute_id();
    task
}

/// Runs a cell, [`CELLS`] times, and answers.
pub(crate) struct Model;

#[async_trait]
impl ChatModel for Model {
    fn name(&self) -> &str {
        "scripted"
    }

    fn price(&self) -> Option<Price> {
        None
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, ChatError> {
        let replies = request.messages.iter();
        let replies = replies.filter(|message| message.role == Role::Assistant);
        let content = match replies.count() {
            made if made < CELLS => {
                let cell = format!("{CELL}\n# step {made}");
                PybenchFormat.write_step(
                    "Analyze: I compute the result by group and look at it.",
                    &cell,
                )
            }
            _ => PybenchFormat.write_answer("The result is in `./output/result.csv`."),
        };
        Ok(Reply {
            content,
            usage: Usage {
                prompt_tokens: 1000,
                completion_tokens: 100,
            },
            truncated: false,
            repetition: false,
        })
    }
}

/// Shows the same table for every cell.
pub(crate) struct Sandbox;

#[async_trait]
impl pybench_interpreter::Interpreter for Sandbox {
    async fn start(&self, _: SessionSpec) -> Result<Box<dyn Session>, InterpreterError> {
        Ok(Box::new(Sandbox))
    }

    fn environment(&self) -> &str {
        "scripted"
    }

    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

#[async_trait]
impl Session for Sandbox {
    async fn execute(&mut self, code: &str) -> Result<Observation, InterpreterError> {
        let lines =
            (0..20).map(|row| format!("{row:>3}  group-{row:<4} {:>9}\n", code.len() * row));
        Ok(Observation {
            outputs: vec![Output::Stream {
                name: "stdout".into(),
                text: lines.collect(),
            }],
            ..Observation::default()
        })
    }

    fn interrupt_handle(&self) -> InterruptHandle {
        InterruptHandle::new().0
    }

    async fn read_outputs(&mut self) -> Result<Collected, InterpreterError> {
        Ok(Collected {
            files: vec![CollectedFile {
                path: "output/result.csv".into(),
                bytes: b"group,mean,sum,count\na,1.5,3,2\n".to_vec(),
            }],
            refused: Vec::new(),
        })
    }

    async fn close(self: Box<Self>) -> Result<(), InterpreterError> {
        Ok(())
    }
}

/// Rejects every fifth trajectory.
pub(crate) struct Checker;

#[async_trait]
impl TrajectoryChecker for Checker {
    async fn check(&self, _: &Task, trajectory: &Trajectory) -> Result<Vec<Finding>, Failure> {
        let finding = |filter: &str, outcome| Finding {
            filter: filter.into(),
            subject: "table output/result.csv".into(),
            outcome,
            detail: "compared with the reference".into(),
            mismatch: None,
        };
        let outcome = match trajectory.id.seed() % 5 {
            0 => Outcome::Fail,
            _ => Outcome::Pass,
        };
        Ok(vec![
            finding("outputs", Outcome::Pass),
            finding("check", outcome),
        ])
    }

    fn digest(&self) -> &str {
        "scripted"
    }
}
