//! MINT: reasoning and programming tasks of other benchmarks that an agent solves in several turns with Python.
//!
//! Programs, and the answers that the authors evaluate, are executed in sandbox sessions.

mod compare;
mod feedback;
mod program;
mod question;
mod rows;
mod verdicts;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use pybench_agent::TurnFeedback;
use pybench_attempts::estimate::CommentSize;
use pybench_datasets::decontaminate::BenchmarkTask;
use pybench_run::RunError;
use pybench_types::id::Digest;
use pybench_types::task::{Category, Task};

use super::Entry;
use super::answers::{AnswerSuite, Question, describe, scorer};
use super::executed::{ExecutedAnswers, Verdicts};
use crate::suite::{
    AttemptScores, AuditOptions, FeedbackModel, Origin, Selection, Solution, Suite, SuiteAttempt,
    SuiteAudit, SuiteEnv, TaskList, name_in,
};
use feedback::{MintFeedback, SimulatedUser};
use question::MintQuestion;
use rows::SETS;
use verdicts::Executor;

/// The repository.
pub const ORIGIN: Origin = Origin {
    repository: "https://github.com/xingyaoww/mint-bench.git",
    commit: "3f7f12c10bf763be1e6dbdeb42feb57624121f61",
    files: FILES,
    license: LICENSE,
    cache: "suites/mint",
};

/// MINT in the list of suites.
pub const ENTRY: Entry = Entry {
    name: "mint",
    origin: &ORIGIN,
    open: |place| Ok(Arc::new(Mint::open(&ENTRY.checkout(place)?)?)),
};

const TITLE: &str = "MINT";
/// Changes whenever a score of an answer changes.
const VERSION: u32 = 1;
/// Number of tasks.
const COUNT: usize = 409;

const LICENSE: &str = "Apache-2.0 (code). The repository states none for the tasks; where they come from: MIT (GSM8K, MATH, MMLU, TheoremQA, HumanEval), CC BY 4.0 (MBPP)";

const FILES: &[&str] = &[
    "LICENSE",
    "data/processed/gsm8k/test_prompts.json",
    "data/processed/humaneval/test_prompts.json",
    "data/processed/math/test_prompts.json",
    "data/processed/mbpp/test_prompts.json",
    "data/processed/mmlu/test_prompts.json",
    "data/processed/theoremqa/test_prompts.json",
    "mint/datatypes.py",
    "mint/envs/base.py",
    "mint/envs/general_env.py",
    "mint/prompt/templates/template_feedback_agent.txt",
    "mint/tasks/base.py",
    "mint/tasks/codegen.py",
    "mint/tasks/in_context_examples/humaneval/with_tool_and_feedback.txt",
    "mint/tasks/in_context_examples/mbpp/with_tool_and_feedback.txt",
    "mint/tasks/in_context_examples/reasoning/with_tool_and_feedback.txt",
    "mint/tasks/reasoning.py",
    "mint/utils/exception.py",
    "mint/utils/exec.py",
];

const NOTES: &[&str] = &[
    "409 of the authors' 586 tasks. HotpotQA (43) needs a search in Wikipedia and ALFWorld (134, all of their decision making) an environment of its own that is not offline: both are left out, so no score here is their overall score. Their agents can also search Wikipedia in the other reasoning tasks; here they cannot, and they see no example of a conversation.",
    "An agent is told when its solution is wrong by `upstream`, and may use 5 turns and 2 solutions, as the authors have it; the last reply is scored. A table `[feedback]` in the recipe adds comments of a model in the role of a user.",
    "`upstream` is the authors' check of the text between `<solution>` and `</solution>`. Numbers may be 5 % off (GSM8K, MATH) or 4 % (TheoremQA), and a list may have another order. Where the answer is not a number, the expected text anywhere in it suffices: `not 175` passes, and in MMLU `because` passes where `c` is correct. TheoremQA evaluates the answer with Python in the scope of the task, so `self.reference` passes. Programs run in the namespace of the tests, so a value that equals everything passes.",
    "`strict` compares each solution: numbers exactly, or by the digits of an expected number with a fraction (TheoremQA: up to 2.6 % off, 0.1 % for numbers without a fraction), options by letter or content, lists in order. Programs run in a session without tests, and the tests on the plain data that they return.",
];

/// MINT at a checkout.
struct Mint {
    root: PathBuf,
    questions: Vec<Arc<MintQuestion>>,
    executed: ExecutedAnswers<Executor>,
    executor: OnceLock<Arc<Executor>>,
}

impl Mint {
    /// Reads the tasks.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if files are missing or invalid.
    fn open(root: &Path) -> Result<Self, RunError> {
        let verdicts = Arc::new(Verdicts::default());
        let questions = questions(root, &verdicts).map_err(RunError::BadInput)?;
        let tasks = questions
            .iter()
            .filter_map(|question| Some((question.name(), question.executed()?)));
        let tasks = tasks.collect();
        let shared = questions.iter();
        let shared = shared.map(|question| question.clone() as Arc<dyn Question>);
        let answers = AnswerSuite {
            name: ENTRY.name,
            title: TITLE,
            origin: &ORIGIN,
            notes: NOTES,
            version: VERSION,
            category: Category::Math,
            questions: shared.collect(),
            constants,
        };
        Ok(Self {
            root: root.to_owned(),
            questions,
            executed: ExecutedAnswers {
                answers,
                tasks,
                verdicts,
            },
            executor: OnceLock::new(),
        })
    }

    fn executor(&self, env: &SuiteEnv) -> Result<Arc<Executor>, RunError> {
        if let Some(executor) = self.executor.get() {
            return Ok(executor.clone());
        }
        let executor = Arc::new(Executor::new(&self.root, env)?);
        Ok(self.executor.get_or_init(|| executor).clone())
    }
}

fn questions(root: &Path, verdicts: &Arc<Verdicts>) -> Result<Vec<Arc<MintQuestion>>, String> {
    let mut questions = Vec::new();
    for set in &SETS {
        for row in rows::read(root, set)? {
            let question = MintQuestion::new(set, row, verdicts.clone());
            let question = question.map_err(|problem| format!("{}: {problem}", set.name))?;
            questions.push(Arc::new(question));
        }
    }
    Ok(questions)
}

/// Frequent answers, and one that states every number and letter and ends with an expression whose value is the expected
/// one where the authors evaluate the answer.
fn constants(questions: &[&dyn Question]) -> Vec<String> {
    let short = questions.iter().map(|question| question.expected());
    let mut short: Vec<String> = short.filter(|expected| expected.len() < 12).collect();
    short.sort();
    short.dedup();
    let all = format!("<solution>{} = self.reference</solution>", short.join(" "));
    let frequent = super::answers::frequent(questions);
    std::iter::once(all)
        .chain(frequent.into_iter().take(15))
        .collect()
}

#[async_trait]
impl Suite for Mint {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn origin(&self) -> &'static Origin {
        &ORIGIN
    }

    fn notes(&self) -> Vec<String> {
        self.executed.answers.notes()
    }

    fn describe(&self, selection: &Selection) -> String {
        describe(TITLE, COUNT, selection)
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
        let executor = self.executor(env)?;
        self.executed.score(env, &executor, attempts).await
    }

    fn scorer(&self) -> Digest {
        scorer(ENTRY.name, &ORIGIN, VERSION)
    }

    fn solution(&self, task: &Task) -> Result<Solution, String> {
        self.executed.answers.solution(task)
    }

    fn feedback(
        &self,
        env: &SuiteEnv,
        model: Option<FeedbackModel>,
    ) -> Result<Option<Arc<dyn TurnFeedback>>, RunError> {
        let executor = self.executor(env)?;
        let user = model.map(|model| SimulatedUser::new(&self.root, model));
        let user = user.transpose().map_err(RunError::BadInput)?;
        let verdicts = self.executed.verdicts.clone();
        let feedback = MintFeedback::new(&self.questions, verdicts, executor, user);
        Ok(Some(Arc::new(feedback)))
    }

    fn comment_size(&self, task: &Task) -> Option<CommentSize> {
        let (set, _) = name_in(ENTRY.name, task)?.split_once('/')?;
        let set = SETS.iter().find(|known| known.name == set)?;
        Some(feedback::comment_size(&self.root, set))
    }

    async fn audit(&self, env: &SuiteEnv, options: &AuditOptions) -> Result<SuiteAudit, RunError> {
        let executor = self.executor(env)?;
        self.executed.audit(env, &executor, options).await
    }
}

#[cfg(test)]
mod tests;
