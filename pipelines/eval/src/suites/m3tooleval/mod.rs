//! M3ToolEval: questions that are answered by calling Python functions, several and in several turns.
//!
//! The tasks are Python modules that compute the expected answers, so they are listed in the sandbox. The functions of
//! a module are a file of its tasks.

mod question;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use pybench_datasets::decontaminate::BenchmarkTask;
use pybench_interpreter::{Interpreter, Limits, SessionSpec};
use pybench_run::{Failure, FailureKind, RunError, RunFolder, Stage, interpreter_failure};
use pybench_types::id::Digest;
use pybench_types::task::{Category, Task};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Entry;
use super::answers::{AnswerSuite, Question, describe, frequent, read, scorer};
use crate::suite::{
    AttemptScores, AuditOptions, Origin, Selection, Solution, Suite, SuiteAttempt, SuiteAudit,
    SuiteEnv, TaskList,
};
use question::ToolQuestion;

/// The repository.
pub const ORIGIN: Origin = Origin {
    repository: "https://github.com/xingyaoww/code-act.git",
    commit: "d607f56c9cfe9e8632ebaf65dcaf2b4b7fe1c6f8",
    files: FILES,
    license: "MIT",
    cache: "suites/m3tooleval",
};

/// M3ToolEval in the list of suites.
pub const ENTRY: Entry = Entry {
    name: "m3tooleval",
    origin: &ORIGIN,
    open: |place| {
        Ok(Arc::new(M3ToolEval {
            root: ENTRY.checkout(place)?,
            listed: OnceLock::new(),
        }))
    },
};

const TITLE: &str = "M3ToolEval";
/// Changes whenever a score of an answer changes.
const VERSION: u32 = 1;
/// Number of tasks.
const COUNT: usize = 82;
/// Folder of the tasks in the repository.
const FOLDER: &str = "scripts/eval/m3tooleval/tasks";
/// Pages that the functions of one module read.
const PAGES: &str = "web_pages.jsonl";
/// The program that lists the tasks.
const LIST: &str = include_str!("list_tasks.py");

const FILES: &[&str] = &[
    "LICENSE",
    "scripts/eval/m3tooleval/tasks/base.py",
    "scripts/eval/m3tooleval/tasks/impl/*.py",
    "scripts/eval/m3tooleval/tasks/impl/web_browsing/__init__.py",
    "scripts/eval/m3tooleval/tasks/impl/web_browsing/metadata.json",
    "scripts/eval/m3tooleval/tasks/impl/web_browsing/web_pages.jsonl",
];

/// Files that the program reads, below [`FOLDER`].
const MODULES: [&str; 7] = [
    "impl/message_decoder.py",
    "impl/dna_sequencer.py",
    "impl/trade_calculator.py",
    "impl/travel_itinerary_planning.py",
    "impl/web_browsing/__init__.py",
    "impl/web_browsing/metadata.json",
    "impl/web_browsing/web_pages.jsonl",
];

const NOTES: &[&str] = &[
    "`upstream` is the authors' `check_answer` on the text after the first `Answer:`. It compares whole numbers only (`161` passes for 161.25), and an exception that it swallows keeps it from comparing values, so `380.42` fails where a sum of prices is 380.41999999999996.",
    "`strict` compares values: numbers within 1e-9 (to the cent where the task asks for `xx.xx`), lists item by item, texts exactly. Every answer in the reply must be correct.",
    "The authors tell an agent that its answer is wrong and let it go on for up to 10 turns. Here the reply is final, so both scores are lower than theirs.",
];

/// M3ToolEval at a checkout.
struct M3ToolEval {
    root: PathBuf,
    /// Its tasks, once they are listed.
    listed: OnceLock<AnswerSuite>,
}

/// A module of tasks, as the program lists it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Module {
    name: String,
    /// Source of its functions.
    tools: String,
    tasks: Vec<Row>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    name: String,
    /// Signature and description of each function.
    tools: Vec<(String, String)>,
    instruction: String,
    /// `repr` and `str` of the expected answer.
    expected: String,
    expected_text: String,
}

impl M3ToolEval {
    /// The tasks.
    ///
    /// # Errors
    /// As [`Self::modules`].
    async fn list(&self, env: &SuiteEnv) -> Result<&AnswerSuite, RunError> {
        if let Some(listed) = self.listed.get() {
            return Ok(listed);
        }
        let suite = suite(&self.root, self.modules(env).await?).map_err(RunError::BadInput)?;
        Ok(self.listed.get_or_init(|| suite))
    }

    /// What the program lists.
    ///
    /// # Errors
    /// The errors of the executor; [`RunError::BadInput`] if the files are missing or not what was expected.
    async fn modules(&self, env: &SuiteEnv) -> Result<Vec<Module>, RunError> {
        let stage = ListStage::new(&self.root, env)?;
        let item = stage.item.clone();
        let results = env.results(Arc::new(stage), vec![Some(item)]).await?;
        match results.into_iter().flatten().next() {
            Some(Ok(modules)) => Ok(modules),
            Some(Err(failure)) => Err(RunError::BadInput(failure.to_string())),
            None => Err(RunError::Internal("the tasks were not listed".to_owned())),
        }
    }
}

fn suite(root: &Path, modules: Vec<Module>) -> Result<AnswerSuite, String> {
    let mut questions: Vec<Arc<dyn Question>> = Vec::new();
    for module in modules {
        let mut files = vec![("tools.py".to_owned(), module.tools.into_bytes())];
        if module.name == "web_browsing" {
            let pages = read(root, &format!("{FOLDER}/impl/web_browsing/{PAGES}"))?;
            files.push((PAGES.to_owned(), pages));
        }
        let files = Arc::new(files);
        for row in module.tasks {
            questions.push(Arc::new(ToolQuestion::new(row, files.clone())?));
        }
    }
    Ok(AnswerSuite {
        name: ENTRY.name,
        title: TITLE,
        origin: &ORIGIN,
        notes: NOTES,
        version: VERSION,
        category: Category::Software,
        questions,
        constants: frequent,
    })
}

/// Lists the tasks in a session that has no network and none of the agents' files.
struct ListStage {
    interpreter: Arc<dyn Interpreter>,
    folder: Arc<RunFolder>,
    /// Digest of everything that the list depends on.
    item: String,
    files: Vec<(&'static str, Digest)>,
}

impl ListStage {
    fn new(root: &Path, env: &SuiteEnv) -> Result<Self, RunError> {
        let mut files = Vec::new();
        for path in MODULES {
            let bytes = read(root, &format!("{FOLDER}/{path}")).map_err(RunError::BadInput)?;
            files.push((path, env.folder.store().put(&bytes)?));
        }
        let item = Digest::of_json(&(LIST, &files, env.interpreter.environment()));
        Ok(Self {
            interpreter: env.interpreter.clone(),
            folder: env.folder.clone(),
            item: item.to_string(),
            files,
        })
    }
}

#[async_trait]
impl Stage for ListStage {
    fn name(&self) -> &'static str {
        "m3tooleval tasks"
    }

    async fn run(&self, _: &str) -> Result<Value, Failure> {
        let store = self.folder.store();
        let path =
            |(path, id): &(&str, Digest)| Ok((format!("m3/tasks/{path}"), store.checked_path(id)?));
        let spec = SessionSpec {
            inputs: self
                .files
                .iter()
                .map(path)
                .collect::<Result<_, RunError>>()?,
            limits: Limits::default(),
            ..SessionSpec::default()
        };
        let session = self.interpreter.start(spec).await;
        let mut session = session.map_err(interpreter_failure)?;
        let seen = session.execute(LIST).await;
        let collected = session.read_outputs().await;
        session.close().await.map_err(interpreter_failure)?;
        let failed = |text: String| Failure::new(FailureKind::Item, text);
        if let Some(error) = seen.map_err(interpreter_failure)?.error {
            let error = error.traceback;
            return Err(failed(format!("listing the tasks failed: {error}")));
        }
        let files = collected.map_err(interpreter_failure)?.files;
        let list = files.iter().find(|file| file.path == "output/tasks.json");
        let list = list.ok_or_else(|| failed("the tasks were not listed".to_owned()))?;
        let modules: Vec<Module> = serde_json::from_slice(&list.bytes)
            .map_err(|error| failed(format!("the list of tasks is invalid: {error}")))?;
        Ok(serde_json::to_value(modules).map_err(RunError::from)?)
    }
}

#[async_trait]
impl Suite for M3ToolEval {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn origin(&self) -> &'static Origin {
        &ORIGIN
    }

    fn notes(&self) -> Vec<String> {
        NOTES.iter().map(|note| (*note).to_owned()).collect()
    }

    fn describe(&self, selection: &Selection) -> String {
        describe(TITLE, COUNT, selection)
    }

    async fn tasks(&self, env: &SuiteEnv, selection: &Selection) -> Result<TaskList, RunError> {
        self.list(env).await?.tasks(env, selection).await
    }

    async fn contents(&self, env: &SuiteEnv) -> Result<Vec<BenchmarkTask>, RunError> {
        self.list(env).await?.contents(env).await
    }

    async fn score(
        &self,
        env: &SuiteEnv,
        attempts: &[SuiteAttempt<'_>],
    ) -> Result<Vec<AttemptScores>, RunError> {
        self.list(env).await?.score(env, attempts).await
    }

    fn scorer(&self) -> Digest {
        scorer(ENTRY.name, &ORIGIN, VERSION)
    }

    fn solution(&self, task: &Task) -> Result<Solution, String> {
        let listed = self.listed.get().ok_or("the tasks are not listed yet")?;
        listed.solution(task)
    }

    async fn audit(&self, env: &SuiteEnv, options: &AuditOptions) -> Result<SuiteAudit, RunError> {
        self.list(env).await?.audit(env, options).await
    }
}

#[cfg(test)]
mod tests;
