//! What a student is worth: its pass rate on the held-out tasks, by an evaluation of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use pybench_checks::interval::wilson;
use pybench_eval::command::{CommonArgs, RunArgs, evaluate};
use pybench_eval::record::{Attempt, Evaluation, Outcome};
use pybench_eval::run::{AgentChoice, EvalRecipe, RESULTS, unseen_of};
use pybench_run::cli::Process;
use pybench_run::{Budget, ModelChoice, RunContext, RunError, write_output};
use pybench_types::held_out::Unseen;
use serde::{Deserialize, Serialize};

use crate::budget::SharedBudget;
use crate::{eval_dir, misnamed, round_name, runs_dir};

/// Label of the student in an evaluation.
const STUDENT: &str = "student";

/// The pass rates of a student.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    /// On all held-out tasks.
    #[serde(flatten)]
    pub(crate) all: PassRate,
    /// By what the tasks of the rounds lack of them.
    #[serde(default)]
    pub(crate) unseen: BTreeMap<Unseen, PassRate>,
    /// Attempts in which code failed at a name; `None` if they were not counted.
    #[serde(default)]
    pub(crate) misnamed: Option<usize>,
    /// Attempts that a rule against hopeless ones ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) ended_early: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A pass rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PassRate {
    /// Held-out tasks that were attempted; those where the endpoint or the sandbox failed are not among them.
    pub(crate) tasks: usize,
    pub(crate) passed: usize,
    /// Wilson's interval of the rate, 95 %.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Measures the student after round `number`; round 0 is before the first.
///
/// # Errors
/// Errors of the evaluation; [`RunError::Incomplete`] if not every task could be attempted.
pub(crate) async fn measure(
    context: &RunContext,
    process: &Process,
    number: u32,
    student: &ModelChoice,
) -> Result<Measurement, RunError> {
    let run = eval_dir(context, number);
    let name = round_name(context, number) + "-eval";
    let runs = runs_dir(context);
    let evaluation = match finished(&run.join(RESULTS))? {
        Some(evaluation) => evaluation,
        None => {
            let budget = SharedBudget::of(context, &run)?;
            if budget.time_left() == Some(Duration::ZERO) {
                return Err(budget.out_of_time());
            }
            let own = context.folder.root().join(format!("eval-{number}.toml"));
            let recipe = recipe(context, &name, (student, budget.left()))?;
            write_output(&own, recipe.as_bytes())?;
            tracing::info!("round {number}: held-out tasks, run {name}");
            let args = RunArgs {
                recipe: Some(own),
                common: CommonArgs {
                    run: Some(name.clone()),
                    runs_dir: Some(runs.to_owned()),
                    ..CommonArgs::default()
                },
                profile: context.folder.profile()?,
                ..RunArgs::default()
            };
            let evaluated = evaluate(args, process).await;
            evaluated.map_err(|error| budget.explain(error))?
        }
    };
    match failures(&evaluation) {
        0 => Ok(Measurement {
            misnamed: misnamed::count(&run, &evaluation.attempts),
            ..Measurement::of(&evaluation.attempts)
        }),
        failed => Err(RunError::Incomplete(format!(
            "{failed} held-out tasks could not be attempted; `pybench status {name}` shows why, and the same command \
             tries them again"
        ))),
    }
}

/// The recipe of an evaluation on the held-out tasks, one attempt each.
fn recipe(
    context: &RunContext,
    name: &str,
    (student, budget): (&ModelChoice, Budget),
) -> Result<String, RunError> {
    let agents = BTreeMap::from([(STUDENT.to_owned(), agent(context, student)?)]);
    let library = std::path::absolute(context.folder.root());
    let library = library.map_err(RunError::io("the run folder"))?;
    let mut recipe = EvalRecipe {
        suites: Vec::new(),
        library: Some(library),
        rollout: context.recipe.rollout.clone(),
        budget,
        interpreter: context.recipe.interpreter.clone(),
        seed: context.recipe.seed,
        ..EvalRecipe::new(name, agents)
    };
    recipe.rollout.samples = 1;
    recipe.rollout.corrections = false;
    recipe.to_toml()
}

fn agent(context: &RunContext, student: &ModelChoice) -> Result<AgentChoice, RunError> {
    Ok(match student.clone() {
        ModelChoice::Openai {
            model,
            base_url,
            key_env,
            headers,
            price,
            timeout_seconds,
            ..
        } => AgentChoice::Openai {
            model,
            base_url,
            key_env,
            headers,
            price,
            timeout_seconds,
            about: None,
        },
        ModelChoice::Checkpoint {
            model,
            dtype,
            engine,
        } => {
            let folder = context.project_root.join(&model);
            AgentChoice::Checkpoint {
                model: match folder.is_dir() {
                    true => folder.display().to_string(),
                    false => model,
                },
                base: false,
                dtype,
                engine,
                about: None,
            }
        }
        // The recipe was validated when it was read.
        _ => return Err(RunError::Internal("this student cannot be measured".into())),
    })
}

/// Whether the student after round `number` was measured.
///
/// # Errors
/// The results cannot be read.
pub(crate) fn is_done(context: &RunContext, number: u32) -> Result<bool, RunError> {
    let path = eval_dir(context, number).join(RESULTS);
    Ok(finished(&path)?.is_some())
}

/// The evaluation at this path, if it is done and every task was attempted.
fn finished(path: &Path) -> Result<Option<Evaluation>, RunError> {
    if !path.is_file() {
        return Ok(None);
    }
    let read = Evaluation::read(path).map_err(|error| RunError::BadInput(error.to_string()))?;
    Ok((failures(&read) == 0).then_some(read))
}

fn failures(evaluation: &Evaluation) -> usize {
    let attempts = evaluation.attempts.iter();
    attempts
        .filter(|attempt| attempt.outcome != Outcome::Ran)
        .count()
}

impl Measurement {
    fn of(attempts: &[Attempt]) -> Self {
        let mut sets: BTreeMap<Unseen, Vec<&Attempt>> = BTreeMap::new();
        for attempt in attempts {
            let unseen = unseen_of(&attempt.suite).unwrap_or(Unseen::Files);
            sets.entry(unseen).or_default().push(attempt);
        }
        let sets = sets.into_iter();
        Self {
            all: PassRate::of(attempts.iter()),
            unseen: sets
                .map(|(unseen, attempts)| (unseen, PassRate::of(attempts.into_iter())))
                .collect(),
            misnamed: None,
            ended_early: attempts.iter().filter(|one| one.ended_early).count(),
        }
    }
}

impl PassRate {
    pub(crate) fn rate(&self) -> f64 {
        self.passed as f64 / self.tasks.max(1) as f64
    }

    fn of<'a>(attempts: impl ExactSizeIterator<Item = &'a Attempt>) -> Self {
        let tasks = attempts.len();
        let passed = attempts.filter(|attempt| attempt.scores.strict == Some(true));
        let passed = passed.count();
        let interval = wilson(passed as f64 / tasks.max(1) as f64, tasks);
        Self {
            tasks,
            passed,
            low: interval.low,
            high: interval.high,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_measured_apart() {
        let attempt = |suite: &str, passed: bool| -> Attempt {
            let value = serde_json::json!({
                "agent": STUDENT, "suite": suite, "task": "t", "category": "c", "seed": 0,
                "outcome": {"outcome": "ran"}, "turns": 1,
                "scores": {"upstream": null, "fixed": null, "strict": passed}, "max_turns": 8,
            });
            serde_json::from_value(value).unwrap()
        };
        let measured = Measurement::of(&[
            attempt("library", true),
            attempt("library: unseen pairs", true),
            attempt("library: unseen pairs", false),
            attempt("library: unseen operations", false),
        ]);
        let counts = |rate: &PassRate| (rate.passed, rate.tasks);
        assert_eq!(counts(&measured.all), (2, 4));
        let sets: Vec<_> = measured
            .unseen
            .iter()
            .map(|(set, rate)| (*set, counts(rate)))
            .collect();
        let expected = [
            (Unseen::Operations, (0, 1)),
            (Unseen::Pairs, (1, 2)),
            (Unseen::Files, (1, 1)),
        ];
        assert_eq!(sets, expected);
        let json = serde_json::to_value(&measured).unwrap();
        assert_eq!(
            (&json["passed"], &json["unseen"]["pairs"]["tasks"]),
            (&2.into(), &2.into())
        );
    }
}
