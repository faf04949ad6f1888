//! Tests a composed task with the real interpreter and the real checker.

use pybench_checks::{Candidate, Checker};
use pybench_compose::script::Script;
use pybench_compose::slip::{Slip, SlipKind};
use pybench_interpreter::Interpreter;
use pybench_library::ScriptError;
use pybench_library::audit::attempt::{AttemptError, AttemptResult, play};
use pybench_run::{ContentStore, RunError};
use pybench_types::task::Task;
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
    /// Solutions of a graph with one changed step.
    pub mutants: usize,
    /// Those that pass, by what was changed.
    pub passed: Vec<String>,
    /// Agents without a solution that pass, by name.
    pub nulls: Vec<String>,
    /// The mistake that the expert made and repaired, and whether its cell ended with an exception.
    pub slip: Option<(SlipKind, bool)>,
}

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
                authors.push(Author::Expert(sample));
                candidates.push(result.candidate);
            }
            Err(AttemptError::Script(error)) => {
                audit.expert.push(format!("sample {sample}: {error}"))
            }
            Err(error) => return Err(internal(&error)),
        }
    }
    let mistakes = if with_mistakes {
        mistakes(env, task)?
    } else {
        Vec::new()
    };
    for mutation in mistakes {
        let script = Script::mistaken(task, mutation.graph).map_err(|error| internal(&error))?;
        authors.push(Author::Mutant(mutation.what));
        let result = run(env, task, &script).await;
        candidates.push(result.map_err(|error| internal(&error))?.candidate);
    }
    for (name, answer) in nulls(task) {
        authors.push(Author::Null(name));
        candidates.push(Candidate {
            answer,
            ..Candidate::default()
        });
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

fn mistakes(
    env: &Environment<'_>,
    task: &Task,
) -> Result<Vec<pybench_compose::prove::Mutation>, RunError> {
    let bytes = task.files.iter().map(|file| env.store.get(&file.id));
    let bytes: Vec<Vec<u8>> = bytes.collect::<Result<_, _>>()?;
    pybench_compose::prove::mistakes(task, &bytes)
        .map_err(|error| RunError::Internal(error.to_string()))
}

/// Answers that nobody worked for.
fn nulls(task: &Task) -> Vec<(&'static str, String)> {
    let marker = pybench_compose::Plan::of(task)
        .ok()
        .and_then(|plan| plan.marker);
    let mut nulls = vec![
        ("nothing", String::new()),
        ("the query again", task.query.clone()),
    ];
    if let Some(marker) = marker {
        for (name, value) in [("zero", "0"), ("one", "1"), ("a hundred", "100")] {
            nulls.push((name, format!("Finished:\n{marker}: {value}")));
        }
    }
    nulls
}

fn reason(finding: &Finding) -> String {
    format!("{} {}: {}", finding.filter, finding.subject, finding.detail)
}
