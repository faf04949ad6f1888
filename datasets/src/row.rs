//! One sample of a dataset: the conversation as PyInstruct has it, and where it came from.

use pybench::id::Digest;
use pybench::task::{Category, Language, Task, TaskOrigin};
use pybench::trajectory::{Finding, Message, Outcome, Role, Sampling, Trajectory, Usage, Verdict};

/// How rows name the embedded teacher, so that nobody takes its texts for a model's.
pub const EXPERT_LABEL: &str = "expert (scripted, not a language model)";

/// One sample. The field order is the column order.
#[derive(Clone, Debug, PartialEq)]
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
    /// Message format.
    pub format: String,
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
    /// Files of the task by digest and by origin, the checker's held-out rows included. Not a
    /// column: rows that share one of these never stand in different splits.
    pub shared_keys: Vec<String>,
}

/// An input file.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowOutput {
    /// `output/…`.
    pub path: String,
    /// Digest of the bytes.
    pub blake3: Digest,
    /// Bytes.
    pub size: u64,
}

/// One check and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckOutcome {
    /// For instance `table output/result.csv`.
    pub subject: String,
    /// `pass`, `fail`, `unproven`.
    pub outcome: &'static str,
}

/// Tokens of all calls of a trajectory, as they are billed: each call reads what came before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowTokens {
    /// Tokens read.
    pub prompt: u64,
    /// Tokens written.
    pub completion: u64,
    /// Who counted.
    pub counted_by: Counted,
}

/// Who counted tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

impl Row {
    /// The row of an accepted trajectory. `held_out_template` is set by the split.
    pub fn new(task: &Task, trajectory: &Trajectory, verdict: &Verdict) -> Self {
        let template = match &task.origin {
            TaskOrigin::Library { template, .. } => template.clone(),
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
            files: files(task),
            teacher: teacher_label(&trajectory.teacher).to_owned(),
            sampling: trajectory.sampling.clone(),
            sample: trajectory.sample,
            seed: trajectory.seed,
            environment: trajectory.environment.clone(),
            format: trajectory.format.clone(),
            turns: u32::try_from(trajectory.turns.len()).unwrap_or(u32::MAX),
            tokens: tokens(trajectory),
            outputs: outputs(trajectory),
            checks: checks(&verdict.findings),
            checker: verdict.checker.clone(),
            shared_keys: shared_keys(task),
        }
    }

    /// UTF-8 bytes of all messages.
    pub fn bytes(&self) -> usize {
        self.messages.iter().map(|m| m.content.len()).sum()
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

fn files(task: &Task) -> Vec<RowFile> {
    let file = |f: &pybench::task::TaskFile| RowFile {
        name: f.name.clone(),
        blake3: f.id.clone(),
        licence: f.licence.clone(),
        origin: f.origin.clone(),
        kind: f.kind.name(),
    };
    task.files.iter().map(file).collect()
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
