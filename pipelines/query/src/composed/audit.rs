//! Tests a composed task with the real interpreter and the real checker.

use std::path::PathBuf;

use pybench_checks::{Candidate, Checker};
use pybench_compose::guess::guesses;
use pybench_compose::misread::{Misreading, misreadings};
use pybench_compose::script::Script;
use pybench_compose::slip::{Slip, SlipKind};
use pybench_compose::{Plan, PlanError};
use pybench_interpreter::Interpreter;
use pybench_library::ScriptError;
use pybench_library::audit::attempt::{AttemptError, AttemptResult, play};
use pybench_run::{ContentStore, RunError};
use pybench_types::task::{FileKind, Task};
use pybench_types::trajectory::{Finding, Outcome};

/// Samples of the expert, which differ in idiom and style. The last one makes a mistake first.
const SAMPLES: u32 = 3;

/// What an audit needs.
pub struct Environment<'a> {
    pub interpreter: &'a dyn Interpreter,
    pub checker: &'a Checker,
    /// Holds the files of the tasks.
    pub store: &'a ContentStore,
}

/// The result for one task.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Why a solution of the expert does not pass; empty if all do.
    pub expert: Vec<String>,
    /// The cells and the answer of the expert's first sample.
    pub solution: (Vec<String>, String),
    /// Solutions of a graph with one changed step, and those that read a file wrongly.
    pub mutants: usize,
    /// Those of them that read a file wrongly, and whether they ran without an exception.
    pub misread: Vec<(&'static str, bool)>,
    /// Those that pass, by what was changed.
    pub passed: Vec<String>,
    /// Agents without a solution that pass, by name.
    pub nulls: Vec<String>,
    /// The mistake that the expert made and repaired, and whether its cell ended with an exception.
    pub slip: Option<(SlipKind, bool)>,
}

impl Audit {
    /// Whether the expert passes and agents without a solution do not.
    pub fn holds(&self) -> bool {
        self.expert.is_empty() && self.nulls.is_empty()
    }
}

/// The path of an output, and the file of the host.
type Output = (String, PathBuf);

/// Who a candidate is from.
enum Author {
    Expert(u32),
    Mutant(String),
    Null(&'static str),
}

/// Audits a task: the expert's first sample and agents without a solution; `with_mistakes`, also its other samples and
/// solutions with one changed step.
///
/// # Errors
/// The interpreter or the checker could not do its work.
pub async fn audit(
    env: &Environment<'_>,
    task: &Task,
    with_mistakes: bool,
) -> Result<Audit, RunError> {
    let internal = |error: &dyn std::fmt::Display| RunError::Internal(error.to_string());
    let mut audit = Audit::default();
    let mut authors = Vec::new();
    let mut candidates = Vec::new();
    let samples = if with_mistakes { SAMPLES } else { 1 };
    for sample in 0..samples {
        let mut script = Script::new(task, sample, None).map_err(|error| internal(&error))?;
        if sample + 1 == SAMPLES {
            script = script.with_slip();
        }
        match run(env, task, &script).await {
            Ok(result) => {
                let failed = |slip: &Slip| {
                    let seen = result.observations.get(slip.at);
                    (slip.kind, seen.is_some_and(|seen| seen.error.is_some()))
                };
                audit.slip = script.slip().map(failed).or(audit.slip);
                if sample == 0 {
                    audit.solution = (result.cells, result.answer);
                }
                authors.push(Author::Expert(sample));
                candidates.push(result.candidate);
            }
            Err(AttemptError::Script(error)) => {
                audit.expert.push(format!("sample {sample}: {error}"))
            }
            Err(error) => return Err(internal(&error)),
        }
    }
    if with_mistakes {
        for (what, candidate) in wrong_solutions(env, task, &mut audit).await? {
            authors.push(Author::Mutant(what));
            candidates.push(candidate);
        }
    }
    for (name, candidate) in nulls(env, task)? {
        authors.push(Author::Null(name));
        candidates.push(candidate);
    }
    let checked = env.checker.check_many(task, env.store, &candidates).await;
    let found = checked.map_err(|error| internal(&error))?;
    for (author, findings) in authors.into_iter().zip(found) {
        let failed = findings
            .iter()
            .find(|finding| finding.outcome != Outcome::Pass);
        match (author, failed) {
            (Author::Expert(sample), Some(finding)) => {
                audit
                    .expert
                    .push(format!("sample {sample}: {}", reason(finding)));
            }
            (Author::Expert(_), None) | (Author::Null(_), Some(_)) => {}
            (Author::Mutant(_), Some(_)) => audit.mutants += 1,
            (Author::Mutant(what), None) => {
                audit.mutants += 1;
                audit.passed.push(what);
            }
            (Author::Null(name), None) => audit.nulls.push(name.to_owned()),
        }
    }
    Ok(audit)
}

async fn run(
    env: &Environment<'_>,
    task: &Task,
    script: &Script<'_>,
) -> Result<AttemptResult, AttemptError> {
    let next = |observations: &[&str]| script.next(observations).map_err(ScriptError::from);
    play(env.interpreter, env.store, task, next).await
}

/// Solutions with one changed step, and those that read a file wrongly, by what is wrong with them.
async fn wrong_solutions(
    env: &Environment<'_>,
    task: &Task,
    audit: &mut Audit,
) -> Result<Vec<(String, Candidate)>, RunError> {
    let internal = |error: &dyn std::fmt::Display| RunError::Internal(error.to_string());
    let mut wrong = Vec::new();
    for mutation in mistakes(env, task)? {
        let script = Script::mistaken(task, mutation.graph).map_err(|error| internal(&error))?;
        let result = run(env, task, &script).await;
        let result = result.map_err(|error| internal(&error))?;
        wrong.push((mutation.what, result.candidate));
    }
    for (what, result) in misread(env, task).await? {
        let ran = result.observations.iter().all(|seen| seen.error.is_none());
        audit.misread.push((what, ran));
        wrong.push((format!("misread: {what}"), result.candidate));
    }
    Ok(wrong)
}

fn mistakes(
    env: &Environment<'_>,
    task: &Task,
) -> Result<Vec<pybench_compose::prove::Mutation>, RunError> {
    pybench_compose::prove::mistakes(task, &input_bytes(env, task)?)
        .map_err(|error| RunError::Internal(error.to_string()))
}

/// The bytes of the task's files.
fn input_bytes(env: &Environment<'_>, task: &Task) -> Result<Vec<Vec<u8>>, RunError> {
    let bytes = task.files.iter().map(|file| env.store.get(&file.id));
    bytes.collect()
}

/// The results of solutions that read a messy file wrongly. One that does not depend on what was misread, such as the
/// number of rows, is no mistake and is left out.
async fn misread(
    env: &Environment<'_>,
    task: &Task,
) -> Result<Vec<(&'static str, AttemptResult)>, RunError> {
    let internal = |error: &dyn std::fmt::Display| RunError::Internal(error.to_string());
    let misreadings = misreadings(task);
    if misreadings.is_empty() {
        return Ok(Vec::new());
    }
    let result = async |misreading: Option<&Misreading>| {
        let script = Script::misread(task, misreading).map_err(|error| internal(&error))?;
        let result = run(env, task, &script).await;
        result.map_err(|error| internal(&error))
    };
    let right = result(None).await?;
    let mut wrong = Vec::new();
    for misreading in &misreadings {
        let result = result(Some(misreading)).await?;
        if !is_same(&right.candidate, &result.candidate) {
            wrong.push((misreading.what, result));
        }
    }
    Ok(wrong)
}

/// Whether two results are the same. A picture of a chart is what its record says.
fn is_same(right: &Candidate, other: &Candidate) -> bool {
    let same_file = |((path, right), (other_path, other)): (&Output, &Output)| {
        let read = |path: &PathBuf| std::fs::read(path).unwrap_or_default();
        let (right, other) = (read(right), read(other));
        let table = |bytes: &[u8]| format!("{:?}", pybench_profile::profile(FileKind::Xlsx, bytes));
        path == other_path
            && match path.rsplit('.').next() {
                Some("png" | "pdf" | "svg") => true,
                // A workbook states when it was written.
                Some("xlsx") => table(&right) == table(&other),
                _ => right == other,
            }
    };
    right.answer == other.answer
        && right.claims == other.claims
        && right.outputs.len() == other.outputs.len()
        && right.outputs.iter().zip(&other.outputs).all(same_file)
}

/// Results of agents that do not solve the task.
fn nulls(env: &Environment<'_>, task: &Task) -> Result<Vec<(&'static str, Candidate)>, RunError> {
    let internal = |error: PlanError| RunError::Internal(error.to_string());
    let mut answers = vec![
        ("nothing", String::new()),
        ("the query again", task.query.clone()),
    ];
    if let Some(marker) = Plan::of(task).map_err(internal)?.marker {
        let common = [
            ("zero", "0"),
            ("one", "1"),
            ("a hundred", "100"),
            ("white", "ffffff"),
        ];
        let common = common.map(|(name, value)| (name, value.to_owned()));
        let guesses = guesses(task, &input_bytes(env, task)?).map_err(internal)?;
        let values = common.into_iter().chain(guesses);
        answers.extend(values.map(|(name, value)| (name, format!("Finished:\n{marker}: {value}"))));
    }
    let answers = answers.into_iter().map(|(name, answer)| {
        let candidate = Candidate {
            answer,
            ..Candidate::default()
        };
        (name, candidate)
    });
    Ok(answers.chain(copied_input(env, task)).collect())
}

/// The first file of the task in place of its outputs; `None` if it has none.
fn copied_input(env: &Environment<'_>, task: &Task) -> Option<(&'static str, Candidate)> {
    let file = task.files.first().filter(|_| !task.outputs.is_empty())?;
    let path = env.store.path(&file.id);
    let outputs = task.outputs.iter().map(|name| (name.clone(), path.clone()));
    let candidate = Candidate {
        outputs: outputs.collect(),
        ..Candidate::default()
    };
    Some(("a copy of the input", candidate))
}

fn reason(finding: &Finding) -> String {
    format!("{} {}: {}", finding.filter, finding.subject, finding.detail)
}
