//! Learning curves of training runs: losses by step, beside what agents with the trained models passed.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use pybench_eval::run::{AgentChoice, EvalRecipe, RESULTS};
use pybench_eval::stats::{Measure, wilson};
use pybench_files::open_regular;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::leaderboard::{EvaluationSummary, RateView};

/// Maximum number of bytes of a file of measurements.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum number of points of a curve; more are averaged.
const MAX_POINTS: usize = 500;
/// Maximum number of entries of a folder that are looked at.
const MAX_ENTRIES: usize = 10_000;
/// What the trainer writes at each step.
const METRICS: &str = "metrics.jsonl";
/// What it writes now and then, and at its end.
const HELD_OUT_LOSSES: &str = "held_out.jsonl";
const TRAINING_RESULTS: &str = "results.json";
/// Folder of the evaluation that it makes.
const OWN_EVALUATION: &str = "agent_eval";
/// What an evaluation was made with.
const RECIPE: &str = "recipe.toml";

/// Curves of what is measured at each step: key in `metrics.jsonl`, and name.
const MEASURED: [(&str, &str); 3] = [
    ("loss", "training loss"),
    ("rewards/margins", "reward margin of pairs"),
    ("rewards/accuracies", "accuracy of pairs"),
];
/// Curves of what is measured on held-out data now and then: key in `held_out.jsonl`, and name.
const HELD_OUT: [(&str, &str); 7] = [
    ("unseen_files", "unseen files"),
    ("held_out_templates", "held-out templates"),
    ("unseen_wordings", "unseen wordings"),
    ("unseen_pairs", "unseen pairs of operations"),
    ("unseen_operations", "unseen operations"),
    ("preference_loss", "loss of held-out pairs"),
    ("rewards/accuracies", "accuracy of held-out pairs"),
];

/// A training run, or one of its stages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct TrainingRun {
    /// Folder below that of the runs, such as `mine` or `mine/sft`.
    pub(crate) name: String,
    /// The model that the training began with; empty until it has ended.
    pub(crate) model: String,
    /// The last step that was measured.
    pub(crate) steps: u64,
    pub(crate) finished: bool,
    pub(crate) curves: Vec<Curve>,
    pub(crate) held_out: Vec<Curve>,
    /// By step.
    pub(crate) evaluations: Vec<EvaluationPoint>,
}

/// A measure by step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Curve {
    pub(crate) name: String,
    /// At most 500; of a longer run, means of neighbors.
    pub(crate) points: Vec<(f64, f64)>,
}

/// What an agent passed with the model of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct EvaluationPoint {
    pub(crate) step: u64,
    pub(crate) agent: String,
    /// Empty if it is unknown.
    pub(crate) suite: String,
    /// Name of the evaluation.
    pub(crate) run: String,
    pub(crate) passed: RateView,
}

/// The training runs in a folder and their stages, by name.
pub(crate) fn training_runs(runs_dir: &Path) -> Vec<TrainingRun> {
    let trained = trained(runs_dir).into_iter();
    let mut runs: Vec<_> = trained
        .map(|(name, folder)| (read(name, &folder), folder))
        .collect();
    for (run, evaluation) in evaluations(runs_dir) {
        let Ok(recipe) = EvalRecipe::load(&evaluation.join(RECIPE)) else {
            continue;
        };
        let records = evaluation.join(RESULTS);
        for (trained, folder) in &mut runs {
            let points = points_of(&run, &recipe, &records, trained.steps, folder);
            trained.evaluations.extend(points);
        }
    }
    let runs = runs.into_iter().map(|(mut run, _)| {
        run.evaluations
            .sort_by(|a, b| (a.step, &a.run, &a.agent).cmp(&(b.step, &b.run, &b.agent)));
        run
    });
    runs.collect()
}

/// The files from which [`training_runs`] reads, as far as they are there.
pub(crate) fn files(runs_dir: &Path) -> Vec<PathBuf> {
    let trained = trained(runs_dir).into_iter();
    let of_training = trained.flat_map(|(_, folder)| {
        let own = folder.join(OWN_EVALUATION).join(RESULTS);
        let written = [METRICS, HELD_OUT_LOSSES, TRAINING_RESULTS].map(|name| folder.join(name));
        written.into_iter().chain([own])
    });
    let evaluations = evaluations(runs_dir).into_iter();
    let of_evaluations =
        evaluations.flat_map(|(_, folder)| [RESULTS, RECIPE].map(|name| folder.join(name)));
    of_training.chain(of_evaluations).collect()
}

/// The folders in which the trainer wrote, and their names.
fn trained(runs_dir: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for (name, folder) in folders(runs_dir) {
        let stages = folders(&folder).into_iter();
        let stages = stages.map(|(stage, folder)| (format!("{name}/{stage}"), folder));
        let candidates = std::iter::once((name.clone(), folder.clone())).chain(stages);
        found.extend(candidates.filter(|(_, folder)| folder.join(METRICS).is_file()));
    }
    found
}

/// The folders in a folder, by name. Their number is limited.
fn folders(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let entries = entries.take(MAX_ENTRIES).map(|entry| entry.path());
    let folders = entries.filter(|path| path.is_dir());
    let mut named: Vec<(String, PathBuf)> = folders
        .filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), path)))
        .collect();
    named.sort();
    named
}

fn read(name: String, folder: &Path) -> TrainingRun {
    let metrics = read_lines(&folder.join(METRICS));
    let held_out = read_lines(&folder.join(HELD_OUT_LOSSES));
    let results: Value = read_text(&folder.join(TRAINING_RESULTS))
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let steps = metrics.iter().filter_map(|row| row["step"].as_u64()).max();
    let steps = steps.unwrap_or_default();
    TrainingRun {
        model: results["model"].as_str().unwrap_or_default().to_owned(),
        finished: results["steps"].as_u64().is_some_and(|all| all <= steps),
        curves: curves(&metrics, &MEASURED),
        held_out: curves(&held_out, &HELD_OUT),
        evaluations: own_evaluation(&name, folder, &results, steps),
        steps,
        name,
    }
}

fn curves(rows: &[Value], keys: &[(&str, &str)]) -> Vec<Curve> {
    let of_key = |(key, name): &(&str, &str)| {
        let points = rows.iter();
        let points = points.filter_map(|row| Some((row["step"].as_f64()?, row[*key].as_f64()?)));
        Curve {
            name: (*name).to_owned(),
            points: thinned(&points.collect::<Vec<_>>()),
        }
    };
    let all = keys.iter().map(of_key);
    all.filter(|curve| !curve.points.is_empty()).collect()
}

/// At most [`MAX_POINTS`] points, each the mean of neighbors.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let size = points.len().div_ceil(MAX_POINTS).max(1);
    let mean = |points: &[(f64, f64)]| {
        let count = points.len() as f64;
        let sum = points
            .iter()
            .fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / count, sum.1 / count)
    };
    points.chunks(size).map(mean).collect()
}

/// The evaluation that the trainer makes at its end: of the model before the first step, and after the last one.
fn own_evaluation(name: &str, folder: &Path, results: &Value, steps: u64) -> Vec<EvaluationPoint> {
    let step_of = |agent: &str| match agent {
        "before" => Some(0),
        "after" => Some(steps),
        _ => None,
    };
    let run = format!("{name}/{OWN_EVALUATION}");
    let records = folder.join(OWN_EVALUATION).join(RESULTS);
    if records.is_file() {
        return points(&run, &records, step_of);
    }
    // Without its records, the shares that the results have.
    let shares = results[OWN_EVALUATION].as_object().into_iter().flatten();
    let of_share = |(agent, share): (&String, &Value)| {
        let (rate, tasks) = (share["passed"].as_f64()?, share["tasks"].as_u64()?);
        let interval = wilson(rate, usize::try_from(tasks).ok()?);
        Some(EvaluationPoint {
            step: step_of(agent)?,
            agent: agent.clone(),
            run: run.clone(),
            passed: RateView {
                rate,
                interval: Some((interval.low, interval.high)),
                tasks: Some(tasks),
            },
            ..EvaluationPoint::default()
        })
    };
    shares.filter_map(of_share).collect()
}

/// The evaluations in a folder: name and folder.
fn evaluations(runs_dir: &Path) -> Vec<(String, PathBuf)> {
    let folders = folders(runs_dir).into_iter();
    folders
        .filter(|(_, folder)| folder.join(RESULTS).is_file())
        .collect()
}

/// What agents with models of the training run in `trained` passed in another evaluation.
fn points_of(
    run: &str,
    recipe: &EvalRecipe,
    records: &Path,
    steps: u64,
    trained: &Path,
) -> Vec<EvaluationPoint> {
    let step_of = |agent: &str| match recipe.agents.get(agent)? {
        AgentChoice::Checkpoint { model, .. } => step(Path::new(model), trained, steps),
        _ => None,
    };
    // Most evaluations have no model of this run.
    if !recipe.agents.keys().any(|agent| step_of(agent).is_some()) {
        return Vec::new();
    }
    points(run, records, step_of)
}

/// The step of a model in the folder of a training run: that of `checkpoints/step-200`, or the last one.
fn step(model: &Path, trained: &Path, steps: u64) -> Option<u64> {
    let (model, trained) = (model.canonicalize().ok()?, trained.canonicalize().ok()?);
    let below = model.strip_prefix(trained).ok()?;
    let mut parts = below.iter().map(|part| part.to_string_lossy());
    match &*parts.next()? {
        "checkpoints" => parts.next()?.strip_prefix("step-")?.parse().ok(),
        "model" | "adapter" => Some(steps),
        // Of a stage, which has a curve of its own.
        _ => None,
    }
}

/// What those agents passed that have a step, by the strictest score of each suite.
fn points(
    run: &str,
    records: &Path,
    step_of: impl Fn(&str) -> Option<u64>,
) -> Vec<EvaluationPoint> {
    let Ok(summary) = EvaluationSummary::read(records) else {
        return Vec::new();
    };
    let strictest = [Measure::Strict, Measure::Fixed, Measure::Upstream];
    let of_agent = |found: &pybench_eval::stats::AgentSummary| {
        let mut measured = strictest.iter().filter_map(|one| found.measure(*one));
        Some(EvaluationPoint {
            step: step_of(&found.agent)?,
            agent: found.agent.clone(),
            suite: found.suite.clone(),
            run: run.to_owned(),
            passed: RateView::from(&measured.next()?.overall),
        })
    };
    summary.agents().iter().filter_map(of_agent).collect()
}

/// The lines of a file that are JSON. The last one of a run that goes on may not be whole.
fn read_lines(path: &Path) -> Vec<Value> {
    let text = read_text(path).unwrap_or_default();
    let lines = text.lines().map(serde_json::from_str);
    lines.filter_map(Result::ok).collect()
}

/// The text of a file, if it is one of at most [`MAX_BYTES`].
fn read_text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = open_regular(path).ok()?;
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    // A limit may have cut a character.
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Writes the folder of a training run of these steps, which ended.
    fn write(folder: &Path, steps: u64) {
        fs::create_dir_all(folder).unwrap();
        let lines = |rows: Vec<Value>| {
            let lines = rows.iter().map(|row| format!("{row}\n"));
            lines.collect::<String>()
        };
        let steps_of = (1..=steps).map(|step| json!({"step": step, "loss": 1.0 / step as f64}));
        fs::write(folder.join(METRICS), lines(steps_of.collect())).unwrap();
        let measured = [0, steps].map(|step| json!({"step": step, "unseen_files": 2.0}));
        fs::write(folder.join("held_out.jsonl"), lines(measured.to_vec())).unwrap();
        let shares =
            json!({"before": {"tasks": 20, "passed": 0.1}, "after": {"tasks": 20, "passed": 0.6}});
        let results = json!({"model": "base", "steps": steps, "agent_eval": shares});
        fs::write(folder.join("results.json"), results.to_string()).unwrap();
    }

    #[test]
    fn curves_have_evaluations_beside_them() {
        let runs = tempfile::tempdir().unwrap();
        write(&runs.path().join("t"), 4);
        write(&runs.path().join("staged/sft"), 2);
        fs::create_dir_all(runs.path().join("other")).unwrap();
        let found = training_runs(runs.path());
        let names: Vec<&str> = found.iter().map(|run| &*run.name).collect();
        assert_eq!(names, ["staged/sft", "t"]);
        let run = &found[1];
        assert_eq!((run.steps, run.finished, &*run.model), (4, true, "base"));
        assert_eq!(run.curves.len(), 1);
        assert_eq!(run.curves[0].points.len(), 4);
        assert_eq!(run.held_out[0].points, [(0.0, 2.0), (4.0, 2.0)]);
        let steps: Vec<u64> = run.evaluations.iter().map(|point| point.step).collect();
        assert_eq!(steps, [0, 4]);
        let (low, high) = run.evaluations[1].passed.interval.unwrap();
        assert!(low < 0.6 && 0.6 < high);
    }

    #[test]
    fn a_long_curve_is_thinned_to_means() {
        let points: Vec<(f64, f64)> = (0..1200).map(|step| (f64::from(step), 1.0)).collect();
        let thin = thinned(&points);
        assert_eq!(thin.len(), 400);
        assert_eq!(thin[0], (1.0, 1.0));
        assert!(thinned(&[]).is_empty());
    }

    #[test]
    fn a_line_that_is_not_whole_is_left_out() {
        let runs = tempfile::tempdir().unwrap();
        let folder = runs.path().join("t");
        fs::create_dir_all(&folder).unwrap();
        let text = "{\"step\": 1, \"loss\": 2.5}\n{\"step\": 2, \"lo";
        fs::write(folder.join(METRICS), text).unwrap();
        let found = training_runs(runs.path());
        assert_eq!((found[0].steps, found[0].finished), (1, false));
    }

    #[test]
    fn models_of_a_training_run_have_the_step_of_their_checkpoint() {
        let runs = tempfile::tempdir().unwrap();
        let trained = runs.path().join("t");
        for folder in ["t/checkpoints/step-200", "t/model", "other/model"] {
            fs::create_dir_all(runs.path().join(folder)).unwrap();
        }
        let of = |model: &str| step(&runs.path().join(model), &trained, 500);
        assert_eq!(of("t/checkpoints/step-200"), Some(200));
        assert_eq!(of("t/model"), Some(500));
        assert_eq!(of("other/model"), None);
        assert_eq!(of("t/missing"), None);
    }
}
