//! The command `pybench eval export`: evaluations as logs that `inspect view` opens.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use pybench_agent::{Act, Dialogue, DialogueMessage, Format, Part, format, format_named};
use pybench_datasets::inspect_log::{
    AgentLog, LogCall, LogLimit, LogMessage, LogSample, LogScore, LogWriter,
};
use pybench_files::read_regular;
use pybench_run::{ContentStore, FormatChoice, RunError, replace_file};
use pybench_types::clock::rfc3339;
use pybench_types::id::Digest;
use pybench_types::observation::{Observation, Output};
use pybench_types::text::{shell_word, slug};
use pybench_types::trajectory::{End, Message, Role, Trajectory, Turn};
use serde_json::{Map, Value, json};

use crate::judge_and_report::{read, records_path, store_path};
use crate::record::{Attempt, Check, EvalFingerprint, Outcome, Score};
use crate::stats::Measure;

/// Maximum size of a stored trajectory, in bytes.
const MAX_TRAJECTORY: u64 = 256 << 20;
/// Image types of observations that a log carries.
const IMAGES: [&str; 3] = ["image/png", "image/jpeg", "image/gif"];

/// Write the attempts of evaluations as logs that `inspect view` opens, one for each benchmark and agent.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Run folders or files of records; files that share a suite must have the same tasks, checker,
    /// environment and limits
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Folder to write the logs (.eval) to
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Writes the logs and prints their paths.
///
/// # Errors
/// [`RunError::BadInput`] for records that cannot be read or merged; I/O errors.
pub(crate) fn run_export(args: &ExportArgs) -> Result<(), RunError> {
    let evaluation = read(&args.runs)?;
    let records: Vec<PathBuf> = args.runs.iter().map(|run| records_path(run)).collect();
    let stores = records
        .iter()
        .map(|path| store_path(path))
        .filter(|path| path.is_dir());
    let stores = stores.map(|path| ContentStore::open(&path));
    let stores = stores.collect::<Result<Vec<_>, _>>()?;
    let created = last_change(&records);
    let mut logs: BTreeMap<(&str, &str), Vec<&Attempt>> = BTreeMap::new();
    for attempt in &evaluation.attempts {
        let log = logs.entry((&*attempt.suite, &*attempt.agent)).or_default();
        log.push(attempt);
    }
    let mut names = BTreeSet::new();
    for ((suite, agent), attempts) in logs {
        let path = args.out.join(file_name(suite, agent, &mut names));
        let about = about(&evaluation.fingerprint, suite, agent, &created);
        write_log(&path, about, &attempts, &stores)
            .map_err(RunError::io(path.display().to_string()))?;
        println!("{}", path.display());
    }
    let folder = shell_word(&args.out.to_string_lossy());
    println!("look at them: inspect view --log-dir {folder}");
    Ok(())
}

/// When the newest file of records was written: when its evaluation was complete.
fn last_change(records: &[PathBuf]) -> String {
    let changed = |path: &PathBuf| std::fs::metadata(path).ok()?.modified().ok();
    let newest: Option<SystemTime> = records.iter().filter_map(changed).max();
    rfc3339(newest.unwrap_or(UNIX_EPOCH))
}

/// A file name that no other log has.
fn file_name(suite: &str, agent: &str, names: &mut BTreeSet<String>) -> String {
    let stem = format!("{}-{}", slug(suite), slug(agent));
    let (mut name, mut number) = (format!("{stem}.eval"), 2);
    while !names.insert(name.clone()) {
        name = format!("{stem}-{number}.eval");
        number += 1;
    }
    name
}

fn about(fingerprint: &EvalFingerprint, suite: &str, agent: &str, created: &str) -> AgentLog {
    let run = Digest::of_json(fingerprint);
    let metadata = json!({
        "task_set": fingerprint.task_set,
        "agent": fingerprint.agents.get(agent),
        "suite": fingerprint.suites.get(suite),
        "limits": fingerprint.limits,
        "checker": fingerprint.checker,
        "environment": fingerprint.environment,
    });
    AgentLog {
        id: Digest::of_json(&(&run, suite, agent)).short().to_owned(),
        run: run.short().to_owned(),
        task: suite.to_owned(),
        model: agent.to_owned(),
        created: created.to_owned(),
        metadata: object(metadata),
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn write_log(
    path: &Path,
    about: AgentLog,
    attempts: &[&Attempt],
    stores: &[ContentStore],
) -> std::io::Result<()> {
    replace_file(path, |out| {
        let mut log = LogWriter::new(out, about)?;
        for attempt in attempts {
            let (trajectory, problem) = match trajectory(attempt, stores) {
                Ok(trajectory) => (trajectory, None),
                Err(problem) => (None, Some(problem)),
            };
            let metadata = metadata(attempt, trajectory.as_ref(), problem);
            log.sample(&sample(attempt, trajectory.as_ref()), &metadata)?;
        }
        log.finish()?;
        Ok(())
    })
}

/// The trajectory of an attempt; `None` if it has none.
fn trajectory(attempt: &Attempt, stores: &[ContentStore]) -> Result<Option<Trajectory>, String> {
    let Some(file) = &attempt.trajectory else {
        return Ok(None);
    };
    let paths = stores.iter().map(|store| store.path(&file.id));
    let bytes = paths
        .map(|path| read_regular(&path, MAX_TRAJECTORY))
        .find_map(Result::ok);
    let bytes = bytes.filter(|bytes| Digest::of_bytes(bytes) == file.id);
    let bytes = bytes.ok_or("its trajectory is missing, damaged or too large")?;
    let trajectory = serde_json::from_slice(&bytes);
    trajectory
        .map(Some)
        .map_err(|error| format!("its trajectory cannot be parsed: {error}"))
}

fn metadata(
    attempt: &Attempt,
    trajectory: Option<&Trajectory>,
    problem: Option<String>,
) -> Map<String, Value> {
    let paths = |files: &[pybench_types::trajectory::OutputFile]| -> Vec<String> {
        files.iter().map(|file| file.path.clone()).collect()
    };
    let mut metadata = object(json!({
        "category": attempt.category,
        "keyword": attempt.keyword,
        "end": trajectory.map(|one| json!(one.end)["end"].clone()),
        "cost_usd": attempt.micro_usd.map(|micro| micro as f64 / 1e6),
        "inputs": paths(&attempt.inputs),
        "outputs": paths(&attempt.outputs),
        "strict_does_not_count": attempt.headline.reason.as_ref().filter(|_| !attempt.headline.counts),
        "problem": problem,
    }));
    metadata.retain(|_, value| !value.is_null());
    metadata
}

fn sample(attempt: &Attempt, trajectory: Option<&Trajectory>) -> LogSample {
    let key = (&attempt.agent, &attempt.suite, &attempt.task, attempt.seed);
    LogSample {
        id: attempt.task.clone(),
        epoch: attempt.seed.saturating_add(1),
        uuid: Digest::of_json(&key).short().to_owned(),
        target: String::new(),
        messages: match trajectory {
            Some(trajectory) => messages(trajectory),
            None => vec![message(Role::User, &attempt.prompt)],
        },
        scores: scores(attempt),
        error: match &attempt.outcome {
            Outcome::Ran => String::new(),
            Outcome::NotRun { reason } => format!("not run: {reason}"),
            Outcome::Infrastructure { failure } => failure.clone(),
        },
        limit: trajectory
            .filter(|one| one.end == End::MaxTurns)
            .map(|_| LogLimit {
                kind: "turn".to_owned(),
                value: attempt.max_turns.into(),
            }),
        seconds: attempt.seconds,
        tokens_in: attempt.tokens_in,
        tokens_out: attempt.tokens_out,
    }
}

/// The scores that an attempt has. A strict score that does not count has a name of its own, so that no mean includes it.
fn scores(attempt: &Attempt) -> Vec<LogScore> {
    let of_checks = |score: Score| {
        let checks = attempt.checks.iter().filter(|check| check.score == score);
        checks.map(check_line).collect::<Vec<_>>().join("\n")
    };
    let explanation = |measure: Measure| match measure {
        Measure::Judge => {
            let judgment = attempt.judgment.as_ref();
            judgment.map(|one| one.reason.clone()).unwrap_or_default()
        }
        Measure::Upstream => of_checks(Score::Upstream),
        Measure::Fixed => of_checks(Score::Fixed),
        Measure::Strict => of_checks(Score::Strict),
    };
    let score = |name: &str, passed: bool, explanation: String| LogScore {
        name: name.to_owned(),
        value: if passed { "C" } else { "I" }.to_owned(),
        passed: Some(passed),
        answer: String::new(),
        explanation,
    };
    let measured = Measure::ALL.into_iter().filter_map(|measure| {
        let passed = measure.value(attempt)?;
        Some(score(measure.name(), passed, explanation(measure)))
    });
    let uncounted = attempt.scores.strict.filter(|_| !attempt.headline.counts);
    let uncounted =
        uncounted.map(|passed| score("strict_not_counted", passed, of_checks(Score::Strict)));
    measured.chain(uncounted).collect()
}

fn check_line(check: &Check) -> String {
    match check.passed {
        true => format!("passed: {}", check.name),
        false => format!(
            "failed: {}; expected {}, found {}",
            check.name, check.expected, check.actual
        ),
    }
}

fn message(role: Role, text: &str) -> LogMessage {
    LogMessage {
        role,
        text: text.to_owned(),
        images: Vec::new(),
        calls: Vec::new(),
        answers: String::new(),
        error: String::new(),
    }
}

/// The conversation: cells are calls of `python`, and observations are what these calls return.
fn messages(trajectory: &Trajectory) -> Vec<LogMessage> {
    let format = format_named(&trajectory.format).unwrap_or(format(FormatChoice::Pybench));
    let mut turns = trajectory.turns.iter().enumerate();
    // The calls of the last reply that have no result yet; those that could not be run have no id.
    let mut open: VecDeque<(Option<String>, &Observation)> = VecDeque::new();
    let mut written = Vec::new();
    for one in &trajectory.messages {
        if one.role == Role::Assistant {
            let turn = turns.next();
            open = turn.map(open_calls).unwrap_or_default();
            written.push(reply(one, turn, format));
            continue;
        }
        let seen = format
            .parse_observation(one)
            .and_then(|text| Some((text, open.pop_front()?)));
        written.push(match seen {
            Some((text, (Some(id), seen))) => LogMessage {
                images: images(seen),
                answers: id,
                ..message(Role::Tool, text)
            },
            _ if one.role == Role::System => message(Role::System, &one.content),
            _ => message(Role::User, &one.content),
        });
    }
    written
}

fn call_id(turn: usize, cell: usize) -> String {
    format!("turn-{}-{}", turn + 1, cell + 1)
}

fn open_calls((number, turn): (usize, &Turn)) -> VecDeque<(Option<String>, &Observation)> {
    let runs = turn.cell_runs().enumerate();
    let open =
        runs.filter_map(|(at, (cell, seen))| Some((cell.map(|_| call_id(number, at)), seen?)));
    open.collect()
}

fn reply(one: &Message, turn: Option<(usize, &Turn)>, format: &dyn Format) -> LogMessage {
    let cells = turn.into_iter().flat_map(|(number, turn)| {
        let cells = turn.cell_runs().enumerate();
        cells.filter_map(move |(at, (cell, _))| Some((call_id(number, at), cell?)))
    });
    let calls = cells.map(|(id, cell)| LogCall {
        id,
        function: "python".to_owned(),
        arguments: json!({"code": cell}).to_string(),
    });
    let calls: Vec<LogCall> = calls.collect();
    let text = match calls.is_empty() {
        true => one.content.clone(),
        false => thought(one, format),
    };
    LogMessage {
        calls,
        ..message(Role::Assistant, &text)
    }
}

/// The text of a reply before its code; the whole reply if it cannot be told apart.
fn thought(one: &Message, format: &dyn Format) -> String {
    let parts = Dialogue::read(std::slice::from_ref(one), format).map(|dialogue| dialogue.parts);
    match parts.as_deref() {
        Ok(
            [
                Part::Reply(DialogueMessage {
                    thought,
                    act: Act::Cells(_),
                }),
            ],
        ) => thought.clone(),
        _ => one.content.clone(),
    }
}

/// The images of an observation, as data URLs.
fn images(seen: &Observation) -> Vec<String> {
    let data = seen.outputs.iter().filter_map(|output| match output {
        Output::Result { data } | Output::Display { data } => Some(data),
        Output::Stream { .. } | Output::Chart { .. } => None,
    });
    let image = |data: &BTreeMap<String, String>| {
        let (mime, base64) = IMAGES
            .iter()
            .find_map(|mime| Some((mime, data.get(*mime)?)))?;
        // IPython breaks it into lines.
        let base64: String = base64.split_whitespace().collect();
        Some(format!("data:{mime};base64,{base64}"))
    };
    data.filter_map(image).collect()
}

#[cfg(test)]
mod tests {
    use pybench_datasets::inspect_log::each_sample;

    use super::*;
    use crate::record::tests::{attempt, fingerprint};
    use crate::record::{AgentKind, Evaluation, Headline};
    use crate::run::RESULTS;

    fn a_trajectory() -> Trajectory {
        let cell = |code: &str| {
            format!("I look.\n<|execute_start|>\n```python\n{code}\n```\n<|execute_end|>")
        };
        let usage = json!({"prompt_tokens": 1, "completion_tokens": 1});
        let image =
            json!({"output": "display", "data": {"image/png": "aGk\n=", "text/plain": "<Figure>"}});
        let text = json!({"output": "stream", "name": "stdout", "text": "1"});
        let id = "0".repeat(64);
        serde_json::from_value(json!({
            "id": id, "task": id, "teacher": "m", "sampling": {}, "sample": 0, "seed": 1, "environment": "e",
            "format": "pybench", "outputs": [], "end": {"end": "max_turns"},
            "messages": [
                {"role": "system", "content": "Run code."},
                {"role": "user", "content": "Print."},
                {"role": "assistant", "content": cell("print(1)")},
                {"role": "user", "content": "[INFO]This is a Code Interpreter Message:\n1"},
                {"role": "assistant", "content": "<|execute_start|> broken"},
                {"role": "user", "content": "[INFO]This is a Code Interpreter Message:\nNo code."},
                {"role": "user", "content": "Go on."},
                {"role": "assistant", "content": "Finished: 1."}],
            "turns": [
                {"reply": cell("print(1)"), "cell": "print(1)", "usage": usage,
                    "observation": {"outputs": [text, image], "error": null, "stopped": null}},
                {"reply": "<|execute_start|> broken", "cell": null, "usage": usage,
                    "observation": {"outputs": [], "error": null, "stopped": null}},
                {"reply": "Finished: 1.", "cell": null, "observation": null, "usage": usage}],
        }))
        .unwrap()
    }

    #[test]
    fn cells_become_calls_and_observations_their_results() {
        let messages = messages(&a_trajectory());
        let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
        use Role::{Assistant, System, Tool, User};
        assert_eq!(
            roles,
            [
                System, User, Assistant, Tool, Assistant, User, User, Assistant
            ]
        );
        let call = &messages[2].calls[0];
        assert_eq!(
            (&*messages[2].text, call.code().trim()),
            ("I look.", "print(1)")
        );
        assert_eq!(
            (messages[3].text.trim(), &messages[3].answers),
            ("1", &call.id)
        );
        assert_eq!(messages[3].images, ["data:image/png;base64,aGk="]);
        assert_eq!(&*messages[4].text, "<|execute_start|> broken");
        assert!(messages[5].text.contains("No code."), "{messages:?}");
    }

    #[test]
    fn each_agent_and_suite_has_a_log_with_its_scores() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let store = ContentStore::open(&run.join("files")).unwrap();
        let bytes = serde_json::to_vec(&a_trajectory()).unwrap();
        let mut first = attempt("a", "1", 0, true);
        first.trajectory = Some(pybench_types::trajectory::OutputFile {
            path: "trajectory.json".to_owned(),
            id: store.put(&bytes).unwrap(),
            size: bytes.len() as u64,
        });
        let mut uncounted = attempt("a", "2", 0, false);
        uncounted.headline = Headline {
            counts: false,
            reason: Some("judged".to_owned()),
        };
        let mut failed = attempt("a", "3", 1, true);
        failed.outcome = Outcome::Infrastructure {
            failure: "no sandbox".to_owned(),
        };
        failed.scores = Default::default();
        let attempts = vec![first, uncounted, failed, attempt("A", "1", 0, false)];
        let agents = fingerprint(&[("a", AgentKind::Model), ("A", AgentKind::Model)]);
        Evaluation::new(agents, attempts)
            .write(&run.join(RESULTS))
            .unwrap();
        let out = folder.path().join("logs");
        let args = ExportArgs {
            runs: vec![run],
            out: out.clone(),
        };
        run_export(&args).unwrap();
        let mut samples = Vec::new();
        each_sample(&out, &mut |head, sample| {
            samples.push((head.model.clone(), sample));
            Ok(())
        })
        .unwrap();
        assert_eq!(samples.len(), 4);
        let find = |model: &str, id: &str| {
            let mut found = samples
                .iter()
                .filter(|(agent, sample)| agent == model && sample.id == id);
            found.next().map(|(_, sample)| sample).unwrap()
        };
        let first = find("a", "1");
        assert_eq!(first.messages.len(), 8);
        assert_eq!(first.limit.as_ref().map(|limit| limit.value), Some(10.0));
        let named = |sample: &LogSample| -> Vec<(String, Option<bool>)> {
            sample
                .scores
                .iter()
                .map(|score| (score.name.clone(), score.passed))
                .collect()
        };
        let of = |name: &str, passed| (name.to_owned(), Some(passed));
        assert_eq!(
            named(first),
            [of("fixed", true), of("strict", true), of("upstream", true)]
        );
        let names = named(find("a", "2"));
        assert!(
            names.contains(&of("strict_not_counted", false)),
            "{names:?}"
        );
        assert!(!names.iter().any(|(name, _)| name == "strict"), "{names:?}");
        let failed = find("a", "3");
        assert_eq!(
            (&*failed.error, failed.epoch, failed.scores.len()),
            ("no sandbox", 2, 0)
        );
        assert_eq!(failed.messages[0].text, "Do it.");
        // The same evaluation gives the same bytes.
        let bytes = |out: &Path| std::fs::read(out.join("pybench-a.eval")).unwrap();
        let again = folder.path().join("again");
        run_export(&ExportArgs {
            out: again.clone(),
            ..args
        })
        .unwrap();
        assert_eq!(bytes(&out), bytes(&again));
    }
}
