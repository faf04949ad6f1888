//! One sample of a dataset: the conversation as PyInstruct has it, and where it came from.

use pybench::agent::format_named;
use pybench::grade::CheckSpec;
use pybench::id::Digest;
use pybench::interpreter::{Limits, Observation};
use pybench::run::InterpreterChoice;
use pybench::task::{Category, FileKind, Language, Task, TaskFile, TaskOrigin};
use pybench::trajectory::{
    Finding, Message, Outcome, Role, Sampling, Trajectory, Turn, Usage, Verdict,
};
use serde::{Deserialize, Serialize};

use crate::proof::Proof;

/// How rows name the embedded teacher, so that nobody takes its texts for a model's.
pub const EXPERT_LABEL: &str = "expert (scripted, not a language model)";

/// One sample. The field order is the column order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The conversation in full, system prompt included.
    pub messages: Vec<Message>,
    /// The task.
    pub task_id: Digest,
    /// The trajectory.
    pub trajectory_id: Digest,
    /// Category of the paper.
    pub category: Category,
    /// Subcategory of the keyword dictionary.
    pub subcategory: String,
    /// Keyword of the keyword dictionary.
    pub keyword: String,
    /// Template of the task library.
    pub template: String,
    /// Whether that template is held out of training altogether; set by the split.
    pub held_out_template: bool,
    /// Language of the query.
    pub language: Language,
    /// What the user asks.
    pub query: String,
    /// Input files.
    pub files: Vec<RowFile>,
    /// Who wrote the replies.
    pub teacher: String,
    /// How they were sampled.
    pub sampling: Sampling,
    /// Sample number, from 0.
    pub sample: u32,
    /// Seed of the session's random state.
    pub seed: u64,
    /// Digest of the Python environment.
    pub environment: String,
    /// How its sessions were bounded.
    pub interpreter: RowInterpreter,
    /// Message format.
    pub format: String,
    /// Samples of the task that were graded, and those that solved it.
    pub attempts: Attempts,
    /// Replies of the teacher, the answer included.
    pub turns: u32,
    /// Tokens of all calls.
    pub tokens: RowTokens,
    /// Files the code left under `./output`.
    pub outputs: Vec<RowOutput>,
    /// What the checker found.
    pub checks: Vec<CheckOutcome>,
    /// Digest of the checker.
    pub checker: String,
    /// What the checker was given to decide on.
    pub grading: Grading,
    /// Digests of the cells that were run, in order.
    pub cells: Vec<Digest>,
    /// Digests of all that each of them showed, pictures and charts included; see [`observed`].
    pub observed: Vec<Digest>,
    /// Places where the scrubber put something else.
    pub scrubbed: u32,
    /// The hashes that a shard had beside the row; `None` for a row that was not read from one.
    #[serde(skip)]
    pub stored: Option<Proof>,
    /// Files of the task by digest and by origin, the checker's held-out rows included. Not a
    /// column: rows that share one of these never stand in different splits.
    #[serde(skip)]
    pub shared_keys: Vec<String>,
}

/// How sessions were bounded, as far as it decides on what a cell shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowInterpreter {
    /// Bounds of a session.
    pub limits: Limits,
    /// Hosts that cells could reach.
    #[serde(default)]
    pub network: Vec<String>,
    /// Whether cells could install packages from a folder of wheels.
    #[serde(default)]
    pub wheelhouse: bool,
}

/// How hard a task is: how often it was tried by this teacher, and solved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Attempts {
    /// Samples that were graded.
    pub tried: u32,
    /// Samples that solved it.
    pub solved: u32,
}

/// What decides on a trajectory: the task as the checker sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grading {
    /// Paths the query asks for.
    pub outputs: Vec<String>,
    /// What only the checker sees.
    pub held_out: Vec<TaskFile>,
    /// Python source that defines what is expected.
    pub reference: String,
    /// All must hold.
    pub checks: Vec<CheckSpec>,
}

/// An input file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowFile {
    /// Name under `./data`.
    pub name: String,
    /// Digest of the bytes.
    pub blake3: Digest,
    /// As found; `None` where nothing was.
    pub licence: Option<String>,
    /// `purl#member`, URL or relative path.
    pub origin: String,
    /// Type.
    pub kind: &'static str,
}

/// A file the code left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowOutput {
    /// `output/…`.
    pub path: String,
    /// Digest of the bytes.
    pub blake3: Digest,
    /// Digest of what does not depend on when and where it was written; see
    /// [`normal::content`](crate::normal::content).
    pub content: Digest,
    /// Bytes.
    pub size: u64,
}

/// One check and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckOutcome {
    /// For instance `table output/result.csv`.
    pub subject: String,
    /// `pass`, `fail`, `unproven`.
    pub outcome: &'static str,
}

/// Tokens of all calls of a trajectory, as they are billed: each call reads what came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RowTokens {
    /// Tokens read.
    pub prompt: u64,
    /// Tokens written.
    pub completion: u64,
    /// Who counted.
    pub counted_by: Counted,
}

/// Who counted tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Counted {
    /// The endpoint's own usage.
    Endpoint,
    /// No tokenizer was involved: a quarter of the UTF-8 bytes of each message, rounded up.
    QuarterOfBytes,
}

impl Counted {
    /// As the column has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::QuarterOfBytes => "bytes/4",
        }
    }
}

/// Before the keyword in what stands for the template of a task that a model wrote.
pub const WRITER: &str = "writer/";

impl Row {
    /// The row of an accepted trajectory. `held_out_template` is set by the split.
    pub fn new(task: &Task, trajectory: &Trajectory, verdict: &Verdict) -> Self {
        let template = match &task.origin {
            TaskOrigin::Library { template, .. } => template.clone(),
            // What stands for a template where there is none: tasks of one keyword resemble each other.
            TaskOrigin::Writer { .. } => format!("{WRITER}{}", task.keyword),
            TaskOrigin::Benchmark { suite, index } => format!("{suite}/{index}"),
        };
        Self {
            messages: trajectory.messages.clone(),
            task_id: task.id.clone(),
            trajectory_id: trajectory.id.clone(),
            category: task.category,
            subcategory: task.subcategory.clone(),
            keyword: task.keyword.clone(),
            template,
            held_out_template: false,
            language: task.language,
            query: task.query.clone(),
            files: files(&task.files),
            teacher: teacher_label(&trajectory.teacher).to_owned(),
            sampling: trajectory.sampling.clone(),
            sample: trajectory.sample,
            seed: trajectory.seed,
            environment: trajectory.environment.clone(),
            interpreter: RowInterpreter::default(),
            format: trajectory.format.clone(),
            attempts: Attempts {
                tried: 1,
                solved: 1,
            },
            turns: u32::try_from(trajectory.turns.len()).unwrap_or(u32::MAX),
            tokens: tokens(trajectory),
            outputs: outputs(trajectory),
            checks: checks(&verdict.findings),
            checker: verdict.checker.clone(),
            grading: Grading {
                outputs: task.outputs.clone(),
                held_out: task.held_out.clone(),
                reference: task.reference.clone(),
                checks: task.checks.clone(),
            },
            cells: cells(trajectory),
            observed: observations(trajectory).map(observed).collect(),
            scrubbed: 0,
            stored: None,
            shared_keys: shared_keys(task),
        }
    }

    /// The same row, made in sessions that were bounded so.
    #[must_use]
    pub fn in_interpreter(mut self, choice: &InterpreterChoice) -> Self {
        self.interpreter = RowInterpreter {
            limits: choice.limits.clone(),
            network: choice.network.clone(),
            wheelhouse: choice.wheelhouse.is_some(),
        };
        self
    }

    /// The same row with [`RowOutput::content`] of every output whose bytes `read` gives.
    #[must_use]
    pub fn with_contents(mut self, read: impl Fn(&Digest) -> Option<Vec<u8>>) -> Self {
        for output in &mut self.outputs {
            if let Some(bytes) = read(&output.blake3) {
                output.content = crate::normal::content(&output.path, &bytes);
            }
        }
        self
    }

    /// The task that the row says it solves; its id is computed from what the row holds, so that it
    /// differs from [`Row::task_id`] where one of the two is wrong.
    pub fn task(&self) -> Task {
        let mut task = Task {
            id: self.task_id.clone(),
            category: self.category,
            subcategory: self.subcategory.clone(),
            keyword: self.keyword.clone(),
            language: self.language,
            query: self.query.clone(),
            files: self.files.iter().map(RowFile::as_task_file).collect(),
            held_out: self.grading.held_out.clone(),
            outputs: self.grading.outputs.clone(),
            reference: self.grading.reference.clone(),
            checks: self.grading.checks.clone(),
            origin: TaskOrigin::Library {
                template: self.template.clone(),
                slots: std::collections::BTreeMap::new(),
                phrasing: 0,
            },
        };
        task.id = task.compute_id();
        task
    }

    /// The id that this trajectory has by what the row says of it.
    pub fn compute_trajectory_id(&self) -> Digest {
        let teacher = match self.teacher.as_str() {
            EXPERT_LABEL => "expert",
            other => other,
        };
        Trajectory::compute_id(
            &self.task_id,
            teacher,
            &self.sampling,
            &self.format,
            self.sample,
        )
    }

    /// The cells of its replies, in order; none of a format that this version does not know.
    pub fn cell_texts(&self) -> Vec<String> {
        let Some(format) = format_named(&self.format) else {
            return Vec::new();
        };
        let replies = self.messages.iter().filter(|m| m.role == Role::Assistant);
        let asked = replies.flat_map(|m| format.parse(&m.content).asked());
        asked.filter_map(Result::ok).collect()
    }

    /// UTF-8 bytes of all messages.
    pub fn bytes(&self) -> usize {
        self.messages.iter().map(|m| m.content.len()).sum()
    }
}

impl RowFile {
    /// As tasks have it.
    pub fn as_task_file(&self) -> TaskFile {
        TaskFile {
            name: self.name.clone(),
            id: self.blake3.clone(),
            // Every `kind` of a row comes from this list.
            kind: file_kind(self.kind).unwrap_or(FileKind::Txt),
            origin: self.origin.clone(),
            licence: self.licence.clone(),
        }
    }
}

/// The type of that name.
pub fn file_kind(name: &str) -> Option<FileKind> {
    FileKind::ALL.into_iter().find(|kind| kind.name() == name)
}

/// Digest of all that a cell showed, with what differs between two runs of equal work taken out of its
/// texts ([`normal::text`](crate::normal::text)) and secrets taken out as the scrubber does.
pub fn observed(observation: &Observation) -> Digest {
    let mut value = serde_json::to_value(observation).unwrap_or_default();
    settle(&mut value, false);
    Digest::of_json(&value)
}

/// Every text normalised; what stands under an image type is left as it is.
fn settle(value: &mut serde_json::Value, picture: bool) {
    use serde_json::Value;
    match value {
        Value::String(text) if !picture => {
            *text = crate::normal::text(&crate::scrub::text(text).text);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| settle(item, picture)),
        Value::Object(map) => {
            for (key, item) in map {
                let picture = key.starts_with("image/") && key != "image/svg+xml";
                settle(item, picture);
            }
        }
        _ => {}
    }
}

/// What rows and cards call a teacher.
pub fn teacher_label(teacher: &str) -> &str {
    match teacher {
        "expert" => EXPERT_LABEL,
        other => other,
    }
}

/// The name of a category as columns and tables have it.
pub fn category_name(category: Category) -> &'static str {
    match category {
        Category::Chart => "chart",
        Category::Text => "text",
        Category::ImageAudio => "image_audio",
        Category::Math => "math",
        Category::Software => "software",
    }
}

/// The ISO 639-1 code of a language.
pub fn language_code(language: Language) -> &'static str {
    match language {
        Language::En => "en",
        Language::Zh => "zh",
    }
}

fn observations(trajectory: &Trajectory) -> impl Iterator<Item = &Observation> {
    let ran = trajectory.turns.iter().flat_map(Turn::ran);
    ran.filter_map(|(cell, seen)| cell.and(seen))
}

fn cells(trajectory: &Trajectory) -> Vec<Digest> {
    let cells = trajectory.turns.iter().flat_map(Turn::cells);
    cells
        .map(|cell| Digest::of_bytes(cell.as_bytes()))
        .collect()
}

fn files(files: &[TaskFile]) -> Vec<RowFile> {
    let file = |f: &pybench::task::TaskFile| RowFile {
        name: f.name.clone(),
        blake3: f.id.clone(),
        licence: f.licence.clone(),
        origin: f.origin.clone(),
        kind: f.kind.name(),
    };
    files.iter().map(file).collect()
}

fn shared_keys(task: &Task) -> Vec<String> {
    // A file that was divided into shown and held-out rows has new digests but its old origin.
    let all = task.files.iter().chain(&task.held_out);
    let mut keys: Vec<String> = all
        .flat_map(|f| [format!("blake3:{}", f.id), format!("origin:{}", f.origin)])
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

fn outputs(trajectory: &Trajectory) -> Vec<RowOutput> {
    let output = |o: &pybench::trajectory::OutputFile| RowOutput {
        path: o.path.clone(),
        blake3: o.id.clone(),
        content: o.id.clone(),
        size: o.size,
    };
    trajectory.outputs.iter().map(output).collect()
}

fn checks(findings: &[Finding]) -> Vec<CheckOutcome> {
    let of_checker = findings.iter().filter(|f| f.filter == "check");
    let check = |f: &Finding| CheckOutcome {
        subject: f.subject.clone(),
        outcome: match f.outcome {
            Outcome::Pass => "pass",
            Outcome::Fail => "fail",
            Outcome::Unproven => "unproven",
        },
    };
    of_checker.map(check).collect()
}

fn tokens(trajectory: &Trajectory) -> RowTokens {
    let usage = trajectory.usage();
    if usage != Usage::default() {
        return RowTokens {
            prompt: usage.prompt_tokens,
            completion: usage.completion_tokens,
            counted_by: Counted::Endpoint,
        };
    }
    let (mut context, mut prompt, mut completion) = (0, 0, 0);
    for message in &trajectory.messages {
        let size = (message.content.len() as u64).div_ceil(4);
        if message.role == Role::Assistant {
            prompt += context;
            completion += size;
        }
        context += size;
    }
    RowTokens {
        prompt,
        completion,
        counted_by: Counted::QuarterOfBytes,
    }
}
