//! A trajectory as its page shows it: turns with code and outputs, files, and the verdict.

mod log;

use pybench_agent::{format, format_named};
use pybench_eval::record::{Attempt, Check, Outcome as AttemptOutcome, Score};
use pybench_run::{FormatChoice, Price};
use pybench_show::query;
use pybench_types::observation::{Observation, Output, Stopped};
use pybench_types::trajectory::{Message, OutputFile, Role, Trajectory, Turn, Usage, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::editable::edit_problem;
use crate::file_types::{Preview, preview};
use crate::prices::cost_of;
use crate::record::Record;
use crate::review::Review;
use crate::row::Row;
use crate::saved_edits::EditInfo;

/// Maximum number of turns of a page; longer trajectories have several.
pub(crate) const PAGE_TURNS: usize = 200;

/// The page of a trajectory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct View {
    pub(crate) row: Row,
    /// Where a row of a dataset stands, as `file:row`.
    pub(crate) location: Option<String>,
    pub(crate) system: String,
    pub(crate) query: String,
    /// Input files.
    pub(crate) files: Vec<FileView>,
    /// Code that computes the expected results.
    pub(crate) reference: String,
    /// Turns, at most [`PAGE_TURNS`] of them.
    pub(crate) turns: Vec<TurnView>,
    /// Number of the first of them, from 1.
    pub(crate) first_turn: u64,
    /// Number of all turns.
    pub(crate) turn_count: u64,
    /// Files that the code wrote.
    pub(crate) outputs: Vec<FileView>,
    pub(crate) verdict: Option<Verdict>,
    /// What an evaluation recorded of the attempt.
    pub(crate) evaluation: Option<EvaluationView>,
    /// Decisions of people.
    pub(crate) reviews: Vec<Review>,
    /// Whether people can decide on it: it is part of a run.
    pub(crate) reviewable: bool,
    /// Whether its turns can be edited.
    pub(crate) editable: bool,
    /// Why not, as a clause.
    #[serde(default)]
    pub(crate) edit_problem: String,
    /// What people made of it.
    pub(crate) edits: Vec<EditInfo>,
}

/// What an evaluation recorded of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EvaluationView {
    pub(crate) agent: String,
    pub(crate) suite: String,
    pub(crate) task: String,
    /// Number of the sample, from 0.
    pub(crate) seed: u64,
    /// Why there is no result, why the task does not count, or why the trajectory cannot be shown.
    pub(crate) notes: Vec<String>,
    pub(crate) scores: Vec<ScoreView>,
    pub(crate) checks: Vec<CheckView>,
    pub(crate) judge: Option<JudgeView>,
    pub(crate) seconds: f64,
    /// Millionths of a US dollar; `None` if the price is unknown.
    pub(crate) micro_usd: Option<u64>,
}

/// A score of an attempt that applies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ScoreView {
    pub(crate) score: String,
    pub(crate) passed: bool,
}

/// A check of an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CheckView {
    /// The score that it belongs to.
    pub(crate) score: String,
    pub(crate) name: String,
    pub(crate) passed: bool,
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// The opinion of an LLM judge on an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct JudgeView {
    pub(crate) judge: String,
    /// `None` if it abstained.
    pub(crate) passed: Option<bool>,
    pub(crate) reason: String,
}

/// A file by its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FileView {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) size: Option<u64>,
    /// How the page shows it.
    pub(crate) preview: Preview,
    /// Whether the run or dataset lacks it. Datasets carry no files without a license, and no output files.
    pub(crate) missing: bool,
}

/// A reply and what its code did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TurnView {
    /// Messages of the user before the reply, but for the query.
    pub(crate) asked: Vec<String>,
    /// The reply without its code.
    pub(crate) text: String,
    pub(crate) cells: Vec<CellView>,
    /// Tokens of the call; `None` if they are unknown.
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
    /// Cost of the call in millionths of a US dollar; `None` if tokens or price are unknown.
    pub(crate) micro_usd: Option<u64>,
    /// Whether the reply is trained.
    pub(crate) trained: bool,
}

/// A cell and its outputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CellView {
    /// `None` if the reply had no code that could be run.
    pub(crate) code: Option<String>,
    pub(crate) outputs: Vec<OutputView>,
}

/// A part of an observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum OutputView {
    Text { text: String },
    Stderr { text: String },
    Error { text: String },
    Image { mime: String, base64: String },
    Note { text: String },
}

/// Image types of outputs that the page shows.
const IMAGES: [&str; 3] = ["image/png", "image/jpeg", "image/gif"];

/// What opens the code of a reply in one of our formats.
const CODE_MARKS: [&str; 5] = [
    pybench_agent::START,
    "<execute>",
    "<tool_call>",
    "<|python_tag|>",
    "```",
];

impl View {
    /// The page of a record, with all of its turns.
    pub(crate) fn new(row: Row, record: Record) -> Self {
        let problem = edit_problem(&record);
        let mut view = Self::uncounted(row, record);
        view.editable = problem.is_none();
        view.edit_problem = problem.unwrap_or_default();
        (view.first_turn, view.turn_count) = (1, view.turns.len() as u64);
        view
    }

    /// Computes what each turn cost.
    pub(crate) fn add_costs(&mut self, price: Price) {
        for turn in &mut self.turns {
            let tokens = turn.prompt_tokens.zip(turn.completion_tokens);
            turn.micro_usd = tokens.and_then(|(prompt_tokens, completion_tokens)| {
                let usage = Usage {
                    prompt_tokens,
                    completion_tokens,
                };
                cost_of(price, usage)
            });
        }
    }

    fn uncounted(row: Row, record: Record) -> Self {
        match record {
            Record::Run {
                trajectory,
                task,
                verdict,
            } => {
                let task = task.as_deref();
                let input = |file: &pybench_types::task::TaskFile| {
                    FileView::new(&file.name, file.id.as_str(), None)
                };
                Self {
                    system: system(&trajectory.messages),
                    query: task.map_or_else(String::new, |task| task.query.clone()),
                    files: task.map_or(Vec::new(), |task| task.files.iter().map(input).collect()),
                    reference: task.map_or_else(String::new, |task| task.reference.clone()),
                    turns: turns_of_run(&trajectory),
                    outputs: outputs(&trajectory),
                    verdict,
                    row,
                    ..Self::default()
                }
            }
            Record::Evaluation {
                attempt,
                trajectory,
                problem,
            } => {
                let files = |files: &[OutputFile]| -> Vec<FileView> {
                    let files = files.iter();
                    let files = files
                        .map(|file| FileView::new(&file.path, file.id.as_str(), Some(file.size)));
                    files.collect()
                };
                let trajectory = trajectory.as_deref();
                Self {
                    system: trajectory.map_or_else(String::new, |one| system(&one.messages)),
                    query: attempt.prompt.clone(),
                    files: files(&attempt.inputs),
                    turns: trajectory.map(turns_of_run).unwrap_or_default(),
                    outputs: files(&attempt.outputs),
                    evaluation: Some(EvaluationView::new(&attempt, problem)),
                    row,
                    ..Self::default()
                }
            }
            Record::Dataset {
                location,
                format,
                files,
                messages,
                ..
            } => {
                let (query, turns) = turns_of_messages(&messages, &format);
                let files = files.iter();
                Self {
                    row,
                    location: Some(location),
                    system: system(&messages),
                    query,
                    files: files
                        .map(|(name, id)| FileView::new(name, id.as_str(), None))
                        .collect(),
                    turns,
                    ..Self::default()
                }
            }
            Record::Log { head, sample } => log::view(row, &head, &sample),
        }
    }

    /// Marks the files that are not there.
    pub(crate) fn mark_missing(&mut self, is_there: impl Fn(&str) -> bool) {
        for file in self.files.iter_mut().chain(&mut self.outputs) {
            file.missing = !is_there(&file.id);
        }
    }

    /// What the full-text search looks in: texts of the user, of the model, and of the interpreter.
    pub(crate) fn texts(&self) -> [String; 3] {
        let (mut user, mut assistant, mut tool) = (vec![&*self.query], Vec::new(), Vec::new());
        for turn in &self.turns {
            user.extend(turn.asked.iter().map(String::as_str));
            assistant.push(&*turn.text);
            for cell in &turn.cells {
                assistant.extend(cell.code.as_deref());
                tool.extend(cell.outputs.iter().filter_map(OutputView::text));
            }
        }
        [user, assistant, tool].map(|texts| texts.join("\n"))
    }
}

impl EvaluationView {
    fn new(attempt: &Attempt, problem: String) -> Self {
        let why = match &attempt.outcome {
            AttemptOutcome::Ran => None,
            AttemptOutcome::NotRun { reason } => Some(format!("It was not run: {reason}")),
            AttemptOutcome::Infrastructure { failure } => {
                Some(format!("It has no result, and does not count: {failure}"))
            }
        };
        let uncounted = match (&attempt.outcome, &attempt.headline.reason) {
            (AttemptOutcome::Ran, Some(reason)) if !attempt.headline.counts => {
                Some(format!("The task does not count for `strict`: {reason}"))
            }
            _ => None,
        };
        let problem = Some(problem).filter(|problem| !problem.is_empty());
        let score = |score: Score| {
            Some(ScoreView {
                score: score.name().to_owned(),
                passed: attempt.score(score)?,
            })
        };
        let check = |check: &Check| CheckView {
            score: check.score.name().to_owned(),
            name: check.name.clone(),
            passed: check.passed,
            expected: check.expected.clone(),
            found: check.actual.clone(),
        };
        let judge = attempt.judgment.as_ref().map(|judgment| JudgeView {
            judge: judgment.judge.clone(),
            passed: judgment.passed,
            reason: judgment.reason.clone(),
        });
        Self {
            agent: attempt.agent.clone(),
            suite: attempt.suite.clone(),
            task: attempt.task.clone(),
            seed: attempt.seed,
            notes: [why, uncounted, problem].into_iter().flatten().collect(),
            scores: Score::ALL.into_iter().filter_map(score).collect(),
            checks: attempt.checks.iter().map(check).collect(),
            judge,
            seconds: attempt.seconds,
            micro_usd: attempt.micro_usd,
        }
    }
}

impl FileView {
    fn new(name: &str, id: &str, size: Option<u64>) -> Self {
        Self {
            name: name.to_owned(),
            id: id.to_owned(),
            size,
            preview: preview(name),
            missing: false,
        }
    }
}

impl OutputView {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text { text } | Self::Stderr { text } | Self::Error { text } => Some(text),
            Self::Image { .. } | Self::Note { .. } => None,
        }
    }
}

fn system(messages: &[Message]) -> String {
    let system = messages.iter().find(|message| message.role == Role::System);
    system.map_or_else(String::new, |message| message.content.clone())
}

pub(crate) fn outputs(trajectory: &Trajectory) -> Vec<FileView> {
    let outputs = trajectory.outputs.iter();
    outputs
        .map(|file| FileView::new(&file.path, file.id.as_str(), Some(file.size)))
        .collect()
}

fn turns_of_run(trajectory: &Trajectory) -> Vec<TurnView> {
    let mut replies = trajectory
        .messages
        .iter()
        .filter(|m| m.role == Role::Assistant);
    let view = |turn| TurnView::new(turn, replies.next().is_none_or(|message| message.trained));
    trajectory.turns.iter().map(view).collect()
}

impl TurnView {
    pub(crate) fn new(turn: &Turn, trained: bool) -> Self {
        let runs = turn.cell_runs();
        let cells = runs.filter(|(cell, seen)| cell.is_some() || seen.is_some());
        let cells = cells.map(|(cell, seen)| CellView {
            code: cell.map(str::to_owned),
            outputs: seen.map(shown).unwrap_or_default(),
        });
        Self {
            asked: Vec::new(),
            text: prose(&turn.reply, turn.cell.is_some()).to_owned(),
            cells: cells.collect(),
            prompt_tokens: Some(turn.usage.prompt_tokens),
            completion_tokens: Some(turn.usage.completion_tokens),
            micro_usd: None,
            trained,
        }
    }
}

/// The reply up to its code.
pub(crate) fn prose(reply: &str, has_code: bool) -> &str {
    let marks = CODE_MARKS.iter().filter_map(|mark| reply.find(mark));
    match marks.min().filter(|_| has_code) {
        Some(at) => reply[..at].trim_end(),
        None => reply,
    }
}

fn shown(seen: &Observation) -> Vec<OutputView> {
    let mut outputs: Vec<OutputView> = seen.outputs.iter().flat_map(shown_output).collect();
    if let Some(error) = &seen.error {
        outputs.push(OutputView::Error {
            text: match error.traceback.is_empty() {
                true => format!("{}: {}", error.ename, error.evalue),
                false => error.traceback.clone(),
            },
        });
    }
    let stopped = match seen.stopped {
        None => None,
        Some(Stopped::Interrupted) => {
            Some("The cell was interrupted, by its time limit or by a person.")
        }
        Some(Stopped::Restarted) => {
            Some("The cell ignored the interrupt at its time limit; the session was restarted.")
        }
        Some(Stopped::Died) => Some("The process died; the session was restarted."),
    };
    outputs.extend(stopped.map(|text| OutputView::Note { text: text.into() }));
    outputs
}

/// An output of a cell; `None` if there is nothing to show.
pub(crate) fn shown_output(output: &Output) -> Option<OutputView> {
    match output {
        Output::Stream { name, text } if name == "stderr" => {
            Some(OutputView::Stderr { text: text.clone() })
        }
        Output::Stream { text, .. } => Some(OutputView::Text { text: text.clone() }),
        Output::Result { data } | Output::Display { data } => {
            let image = IMAGES
                .iter()
                .find_map(|mime| Some((*mime, data.get(*mime)?)));
            let text = || data.get("text/plain").cloned();
            match image {
                Some((mime, base64)) => Some(OutputView::Image {
                    mime: mime.to_owned(),
                    // IPython breaks it into lines.
                    base64: base64.split_whitespace().collect(),
                }),
                None => text().map(|text| OutputView::Text { text }),
            }
        }
        Output::Chart { path, .. } => Some(OutputView::Note {
            text: match path {
                Some(path) => {
                    format!("The data of the figure {path} were recorded; see the raw view.")
                }
                None => "The data of the figure were recorded; see the raw view.".to_owned(),
            },
        }),
    }
}

/// The query, and the turns of a conversation whose replies have this message format.
fn turns_of_messages(messages: &[Message], format_name: &str) -> (String, Vec<TurnView>) {
    let format = format_named(format_name).unwrap_or(format(FormatChoice::Pybench));
    let (mut asked, mut turns) = (Vec::new(), Vec::<TurnView>::new());
    let mut first = String::new();
    for message in messages {
        match message.role {
            Role::System => {}
            Role::Assistant => {
                let cells = format.parse(&message.content).cells();
                let cell = |cell: Result<String, &str>| match cell {
                    Ok(code) => CellView {
                        code: Some(code),
                        outputs: Vec::new(),
                    },
                    Err(why) => CellView {
                        code: None,
                        outputs: vec![OutputView::Note { text: why.into() }],
                    },
                };
                turns.push(TurnView {
                    asked: std::mem::take(&mut asked),
                    text: prose(&message.content, !cells.is_empty()).to_owned(),
                    cells: cells.into_iter().map(cell).collect(),
                    trained: message.trained,
                    ..TurnView::default()
                });
            }
            Role::User | Role::Tool => {
                let waiting = |turn: &mut TurnView| {
                    let mut cells = std::mem::take(&mut turn.cells);
                    let empty = cells.iter_mut().find(|cell| cell.outputs.is_empty());
                    let found = empty.map(|cell| {
                        let text = format.parse_observation(message);
                        let text = text.unwrap_or(&message.content).to_owned();
                        cell.outputs.push(OutputView::Text { text });
                    });
                    turn.cells = cells;
                    found
                };
                if turns.last_mut().and_then(waiting).is_some() {
                    continue;
                }
                match turns.is_empty() {
                    true => match query(message) {
                        Some(query) if first.is_empty() => first = query.to_owned(),
                        _ => asked.push(message.content.clone()),
                    },
                    false => asked.push(message.content.clone()),
                }
            }
        }
    }
    (first, turns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_becomes_turns_with_their_observations() {
        let message = |role, text: &str| Message::new(role, text);
        let cell = "Look.\n<|execute_start|>\n```python\nprint(1)\n```\n<|execute_end|>";
        let messages = [
            message(Role::System, "You run code."),
            message(Role::User, "[INFO]The data is uploaded to ./data/a.csv"),
            message(Role::User, "Count."),
            message(Role::Assistant, cell),
            message(Role::User, "[INFO]This is a Code Interpreter Message:\n1"),
            message(Role::Assistant, "One.").as_context(),
            message(Role::User, "And now?"),
            message(Role::Assistant, "Finished: one."),
        ];
        let (query, turns) = turns_of_messages(&messages, "pybench");
        assert_eq!(query, "Count.");
        assert_eq!(turns.len(), 3);
        assert_eq!(turns[0].text, "Look.");
        assert_eq!(
            turns[0].cells[0].code.as_deref().map(str::trim),
            Some("print(1)")
        );
        let OutputView::Text { text } = &turns[0].cells[0].outputs[0] else {
            panic!("{turns:?}");
        };
        assert_eq!(text.trim(), "1");
        assert!(turns[0].trained && !turns[1].trained);
        assert_eq!(turns[2].asked, ["And now?"]);
    }

    #[test]
    fn outputs_show_images_texts_and_why_a_cell_stopped() {
        let seen: Observation = serde_json::from_value(serde_json::json!({
            "outputs": [
                {"output": "stream", "name": "stderr", "text": "careful"},
                {"output": "display", "data": {"image/png": "aGk\n=", "text/plain": "<Figure>"}},
                {"output": "result", "data": {"text/html": "<script>", "text/plain": "2"}},
                {"output": "result", "data": {"text/html": "<script>"}},
            ],
            "error": {"ename": "NameError", "evalue": "x", "traceback": ""},
            "stopped": "died",
        }))
        .unwrap();
        let text = |text: &str| text.to_owned();
        assert_eq!(
            shown(&seen),
            [
                OutputView::Stderr {
                    text: text("careful")
                },
                OutputView::Image {
                    mime: text("image/png"),
                    base64: text("aGk=")
                },
                OutputView::Text { text: text("2") },
                OutputView::Error {
                    text: text("NameError: x")
                },
                OutputView::Note {
                    text: text("The process died; the session was restarted.")
                },
            ]
        );
    }
}
