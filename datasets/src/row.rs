//! One sample of a dataset: the conversation in PyInstruct's schema, and its provenance.

use crate::observed::observed;
use crate::split::ORIGIN;
use crate::tokens::{self, CL100K};
use pybench_agent::{CORRECTION, format_named};
use pybench_interpreter::InterpreterChoice;
use pybench_interpreter::Limits;
use pybench_types::check::CheckSpec;
use pybench_types::difficulty;
use pybench_types::held_out;
use pybench_types::id::Digest;
use pybench_types::observation::Observation;
use pybench_types::task::{Category, FileFormat, FileKind, Language, Task, TaskFile, TaskOrigin};
use pybench_types::trajectory::{
    Finding, Message, Outcome, Role, Sampling, Trajectory, Turn, Usage, Verdict,
};
use serde::{Deserialize, Serialize};

/// The teacher's name in rows that were made with the scripted expert. It states that no language model was used.
pub const EXPERT_LABEL: &str = "expert (scripted, not a language model)";

/// The teacher's name in rows that the scripted expert made of another model's rejected attempt.
pub const CORRECTION_LABEL: &str = "expert correcting a student (scripted, not a language model)";

/// One sample. Field order is column order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The complete conversation, including the system prompt.
    pub messages: Vec<Message>,
    /// The tool definitions given to the model, as OpenAI's `tools` in JSON. `None` for message formats without tool
    /// calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// As in PyInstruct.
    #[serde(skip_serializing_if = "is_tool_choices")]
    pub tool_choices: String,
    pub task_id: Digest,
    pub trajectory_id: Digest,
    pub category: Category,
    /// Subcategory from the keyword dictionary.
    pub subcategory: String,
    /// Keyword from the keyword dictionary.
    pub keyword: String,
    /// Template in the task library; for tasks written by a model, [`WRITER`] and the keyword.
    pub template: String,
    /// Whether the template is excluded from the train split. Set by the split.
    pub held_out_template: bool,
    /// The operations of a composed task, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<String>,
    /// Its pairs of operations that follow each other, such as `filter_above>answer_mean`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pairs: Vec<String>,
    /// The wordings of its query, such as `filter_above/en/1`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wordings: Vec<String>,
    /// How difficult a composed task is, from 1 to 5; 0 for others.
    #[serde(skip_serializing_if = "is_zero")]
    pub difficulty: u32,
    /// Whether names and values of a composed task's files are invented.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub renamed: bool,
    /// What training rows lack of this row: a name of [`held_out::Unseen`], or empty in the train split. Set by the split.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unseen: String,
    pub language: Language,
    pub query: String,
    /// License of the question and the answer, if the task is a row of a task set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_license: Option<String>,
    /// Where that set comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_source: Option<String>,
    pub files: Vec<RowFile>,
    /// The model that wrote the replies.
    pub teacher: String,
    /// The model that wrote the replies with the weight 0, which the teacher corrects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub student: Option<String>,
    /// [`HUMAN_EDITED`](pybench_types::human_edit::HUMAN_EDITED) if a person edited the trajectory. Others have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<String>,
    pub sampling: Sampling,
    /// Sample number, from 0.
    pub sample: u32,
    /// Seed of the session's random state.
    pub seed: u64,
    /// Digest of the Python environment.
    pub environment: String,
    /// Limits of the interpreter sessions.
    pub interpreter: RowInterpreter,
    /// Name of the message format.
    pub format: String,
    /// Graded and successful attempts at the task.
    pub attempts: Attempts,
    /// Number of replies of the teacher, including the final answer.
    pub turns: u32,
    pub tokens: RowTokens,
    /// Files that the code wrote to `./output`.
    pub outputs: Vec<RowOutput>,
    pub checks: Vec<CheckOutcome>,
    /// Digest of the checker.
    pub checker: String,
    /// The checker's input.
    pub grading: Grading,
    /// Digests of the executed cells, in order.
    pub cells: Vec<Digest>,
    /// Digest of the complete observation of each cell, including images and charts. See [`observed`].
    pub observed: Vec<Digest>,
    /// Number of replacements that the scrubber made.
    pub scrubbed: u32,
    /// The hashes stored in the shard; `None` if the row was not read from a shard.
    #[serde(skip)]
    pub stored: Option<RowHashes>,
}

/// Limits of the interpreter sessions, as far as they affect what a cell shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowInterpreter {
    pub limits: Limits,
    /// Hosts that cells could connect to.
    #[serde(default)]
    pub network: Vec<String>,
    /// Whether cells could install packages from a folder of wheels.
    #[serde(default)]
    pub wheelhouse: bool,
}

/// Attempts at a task by this teacher: a measure of its difficulty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Attempts {
    /// Graded attempts.
    pub tried: u32,
    /// Attempts that solved the task.
    pub solved: u32,
}

/// The task as the checker sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grading {
    /// Output paths that the query asks for.
    pub outputs: Vec<String>,
    /// Files that only the checker sees.
    pub held_out: Vec<TaskFile>,
    /// Python code that computes the expected results.
    pub reference: String,
    /// The checks; all must pass.
    pub checks: Vec<CheckSpec>,
    /// How the row's files are read, in their order; empty if that is not known of any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub formats: Vec<Option<FileFormat>>,
}

/// Folder of the input files in a dataset. Each file is named by its digest.
pub const FILES_DIR: &str = "files";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowFile {
    /// Name under `./data`.
    pub name: String,
    /// Digest of the file's bytes.
    pub blake3: Digest,
    /// License as found at the origin, if any.
    pub license: Option<String>,
    /// `purl#member`, URL or relative path.
    pub origin: String,
    /// File type.
    pub kind: &'static str,
    /// As in [`TaskFile::derived_from`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub derived_from: Option<Digest>,
}

/// A file that the code wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowOutput {
    /// Path, such as `output/result.csv`.
    pub path: String,
    /// Digest of the file's bytes.
    pub blake3: Digest,
    /// Digest without timestamps and random names; see
    /// [`normalize::content_digest`](crate::normalize::content_digest).
    pub content: Digest,
    /// Size in bytes.
    pub size: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckOutcome {
    /// What was checked, such as `table output/result.csv`.
    pub subject: String,
    /// `pass`, `fail`, `unproven`.
    pub outcome: &'static str,
}

/// Tokens of all calls of a trajectory, as they are billed: each call reads the whole conversation before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RowTokens {
    pub prompt: u64,
    pub completion: u64,
    pub counted_by: Counted,
}

/// How tokens were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Counted {
    /// By the endpoint, which reported its usage.
    Endpoint,
    /// With the tokenizer cl100k_base, on the content of each message.
    Cl100k,
    /// In older datasets: estimated as a quarter of the UTF-8 bytes of each message, rounded up.
    QuarterOfBytes,
}

impl Counted {
    /// The value in the column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::Cl100k => CL100K,
            Self::QuarterOfBytes => "bytes/4",
        }
    }
}

/// The value of `tool_choices` in PyInstruct.
const TOOL_CHOICES: &str = "auto";

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Rows had neither column in their hash at first; those with the usual values keep it.
fn is_tool_choices(text: &String) -> bool {
    text == TOOL_CHOICES
}

/// The value of [`Row::tools`] for a message format.
pub fn tools(format: &str) -> Option<String> {
    Some(format_named(format)?.tools()?.to_string())
}

/// Prefix of the template name of tasks that a model wrote. The keyword follows.
pub const WRITER: &str = "writer/";

impl Row {
    /// The row of an accepted trajectory. `held_out_template` and `unseen` are set by the split.
    pub fn new(task: &Task, trajectory: &Trajectory, verdict: &Verdict) -> Self {
        let (operations, wordings) = held_out::composition(task);
        let provenance = match &task.origin {
            TaskOrigin::TaskSet {
                license, source, ..
            } => Some((license, source)),
            _ => None,
        };
        Self {
            messages: trajectory.messages.clone(),
            tools: tools(&trajectory.format),
            tool_choices: TOOL_CHOICES.to_owned(),
            task_id: task.id.clone(),
            trajectory_id: trajectory.id.clone(),
            category: task.category,
            subcategory: task.subcategory.clone(),
            keyword: task.keyword.clone(),
            template: template(task),
            held_out_template: false,
            pairs: held_out::pairs(&operations),
            operations,
            wordings,
            difficulty: difficulty::level(task).unwrap_or(0),
            renamed: matches!(&task.origin, TaskOrigin::Composed { renamed: true, .. }),
            unseen: String::new(),
            language: task.language,
            query: task.query.clone(),
            task_license: provenance.map(|(license, _)| license.clone()),
            task_source: provenance.map(|(_, source)| source.clone()),
            files: files(&task.files),
            teacher: teacher_label(&trajectory.teacher).to_owned(),
            student: trajectory
                .corrects
                .as_ref()
                .map(|corrects| teacher_label(&corrects.student).to_owned()),
            provenance: None,
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
            tokens: row_tokens(trajectory),
            outputs: outputs(trajectory),
            checks: checks(&verdict.findings),
            checker: verdict.checker.clone(),
            grading: Grading {
                outputs: task.outputs.clone(),
                held_out: task.held_out.clone(),
                reference: task.reference.clone(),
                checks: task.checks.clone(),
                formats: formats(&task.files),
            },
            cells: cells(trajectory),
            observed: observations(trajectory).map(observed).collect(),
            scrubbed: 0,
            stored: None,
        }
    }

    /// Set the limits of the sessions in which the row was made.
    #[must_use]
    pub fn in_interpreter(mut self, choice: &InterpreterChoice) -> Self {
        self.interpreter = RowInterpreter {
            limits: choice.limits.clone(),
            network: choice.network.clone(),
            wheelhouse: choice.wheelhouse.is_some(),
        };
        self
    }

    /// Sets [`RowOutput::content`] of every output, from the bytes that `read` returns.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn with_contents<E>(
        mut self,
        read: impl Fn(&Digest) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        for output in &mut self.outputs {
            let bytes = read(&output.blake3)?;
            output.content = crate::normalize::content_digest(&output.path, &bytes);
        }
        Ok(self)
    }

    /// The task of this row. Its id is computed from the row's contents, so it differs from [`Row::task_id`] if
    /// the row was changed.
    pub fn task(&self) -> Task {
        let mut task = Task {
            id: self.task_id.clone(),
            category: self.category,
            subcategory: self.subcategory.clone(),
            keyword: self.keyword.clone(),
            language: self.language,
            query: self.query.clone(),
            files: self.task_files(),
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

    fn task_files(&self) -> Vec<TaskFile> {
        let formats = self.grading.formats.iter().cloned();
        let formats = formats.chain(std::iter::repeat(None));
        let files = self.files.iter().zip(formats);
        let files = files.map(|(file, format)| TaskFile {
            format,
            ..file.as_task_file()
        });
        files.collect()
    }

    /// All files of the task: those of the model, then the checker's held-out ones.
    pub fn all_files(&self) -> impl Iterator<Item = TaskFile> {
        let shown = self.task_files().into_iter();
        shown.chain(self.grading.held_out.iter().cloned())
    }

    /// The trajectory id computed from the row's contents.
    pub fn compute_trajectory_id(&self) -> Digest {
        self.id_of_attempt(&self.teacher)
    }

    /// The seed of the session, computed from the row's contents. A correction continues in the session of the student's
    /// attempt.
    pub fn compute_seed(&self) -> u64 {
        let model = self.student.as_deref().unwrap_or(&self.teacher);
        self.id_of_attempt(model).seed()
    }

    /// The id of the attempt that the row corrects, if it corrects one.
    pub fn student_trajectory_id(&self) -> Option<Digest> {
        Some(self.id_of_attempt(self.student.as_deref()?))
    }

    /// The id of this model's attempt at the task of the row.
    fn id_of_attempt(&self, model: &str) -> Digest {
        let name = match model {
            EXPERT_LABEL => "expert",
            CORRECTION_LABEL => CORRECTION,
            other => other,
        };
        let (sampling, format) = (&self.sampling, &self.format);
        Trajectory::compute_id(&self.task_id, name, sampling, format, self.sample)
    }

    /// Source of the cells in the replies, in order. Empty if the message format is unknown.
    pub fn cell_texts(&self) -> Vec<String> {
        let Some(format) = format_named(&self.format) else {
            return Vec::new();
        };
        let replies = self.messages.iter().filter(|m| m.role == Role::Assistant);
        let cells = replies.flat_map(|m| format.parse(&m.content).cells());
        cells.filter_map(Result::ok).collect()
    }

    /// UTF-8 bytes of all messages.
    pub fn bytes(&self) -> usize {
        self.messages.iter().map(|m| m.content.len()).sum()
    }
}

impl RowFile {
    /// Convert to the type that tasks use.
    pub fn as_task_file(&self) -> TaskFile {
        TaskFile {
            name: self.name.clone(),
            id: self.blake3.clone(),
            // Every `kind` of a row is from this list.
            kind: file_kind(self.kind).unwrap_or(FileKind::Txt),
            origin: self.origin.clone(),
            license: self.license.clone(),
            derived_from: self.derived_from.clone(),
            format: None,
        }
    }
}

/// The file type with this name.
pub fn file_kind(name: &str) -> Option<FileKind> {
    FileKind::ALL.into_iter().find(|kind| kind.name() == name)
}

/// The hashes stored with a row, in the column `proof`. Values are BLAKE3 digests in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RowHashes {
    pub query: String,
    /// The messages before the first reply: system prompt, files, query.
    pub prompts: String,
    /// The teacher's name.
    pub teacher: String,
    /// The sampling parameters, the sample number and the seed.
    pub sampling: String,
    /// The environment's digest and the limits of the sessions.
    pub environment: String,
    /// Names and digests of the input files.
    pub files: String,
    /// Paths and digests of the files that the code wrote.
    pub outputs: String,
    /// Reference code, checks and held-out files.
    pub grading: String,
    /// Outcomes of the checks, and the checker's digest.
    pub checks: String,
    /// One hash for each executed cell.
    pub cells: Vec<String>,
    /// One hash for the complete observation of each cell.
    pub observations: Vec<String>,
    /// Number of replacements that the scrubber made.
    pub scrubbed: u32,
    /// All columns of the row: any changed character changes this hash.
    pub row: String,
}

/// The teacher's name in rows and cards.
pub fn teacher_label(teacher: &str) -> &str {
    match teacher {
        "expert" => EXPERT_LABEL,
        CORRECTION => CORRECTION_LABEL,
        other => other,
    }
}

/// The name of a category in columns and tables.
pub fn category_name(category: Category) -> &'static str {
    category.name()
}

/// The ISO 639-1 code of a language.
pub fn language_code(language: Language) -> &'static str {
    match language {
        Language::En => "en",
        Language::Zh => "zh",
    }
}

fn observations(trajectory: &Trajectory) -> impl Iterator<Item = &Observation> {
    let executed = trajectory.turns.iter().flat_map(Turn::cell_runs);
    executed.filter_map(|(cell, observation)| cell.and(observation))
}

fn cells(trajectory: &Trajectory) -> Vec<Digest> {
    let cells = trajectory.turns.iter().flat_map(Turn::cells);
    cells
        .map(|cell| Digest::of_bytes(cell.as_bytes()))
        .collect()
}

fn files(files: &[TaskFile]) -> Vec<RowFile> {
    let file = |f: &pybench_types::task::TaskFile| RowFile {
        name: f.name.clone(),
        blake3: f.id.clone(),
        license: f.license.clone(),
        origin: f.origin.clone(),
        kind: f.kind.name(),
        derived_from: f.derived_from.clone(),
    };
    files.iter().map(file).collect()
}

/// The value of [`Grading::formats`].
fn formats(files: &[TaskFile]) -> Vec<Option<FileFormat>> {
    match files.iter().all(|file| file.format.is_none()) {
        true => Vec::new(),
        false => files.iter().map(|file| file.format.clone()).collect(),
    }
}

/// The value of [`Row::template`].
pub fn template(task: &Task) -> String {
    match &task.origin {
        TaskOrigin::Library { template, .. } => template.clone(),
        TaskOrigin::Composed { skeleton, .. } => skeleton.clone(),
        // Group by keyword instead of template: tasks of one keyword resemble each other.
        TaskOrigin::Writer { .. } => format!("{WRITER}{}", task.keyword),
        TaskOrigin::TaskSet { set, row, .. } => format!("{}{set}/{row}", held_out::TASK_SET),
        TaskOrigin::Benchmark { suite, index } => format!("{suite}/{index}"),
    }
}

/// What rows that share a file have in common: a digest, an origin, or the file that theirs is a part of.
pub fn shared_keys(files: impl Iterator<Item = TaskFile>) -> Vec<String> {
    let keys_of = |file: TaskFile| {
        let digests = [Some(file.id), file.derived_from].into_iter().flatten();
        // Datasets made before parts had `derived_from` mark them in the origin.
        let origin = file.origin.strip_suffix("#split").unwrap_or(&file.origin);
        let origin = format!("{ORIGIN}{origin}");
        let keys = digests.map(|digest| format!("blake3:{digest}"));
        keys.chain([origin]).collect::<Vec<_>>()
    };
    let mut keys: Vec<String> = files.flat_map(keys_of).collect();
    keys.sort();
    keys.dedup();
    keys
}

fn outputs(trajectory: &Trajectory) -> Vec<RowOutput> {
    let output = |o: &pybench_types::trajectory::OutputFile| RowOutput {
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

fn row_tokens(trajectory: &Trajectory) -> RowTokens {
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
        let size = tokens::cl100k(&message.content);
        if message.role == Role::Assistant {
            prompt += context;
            completion += size;
        }
        context += size;
    }
    RowTokens {
        prompt,
        completion,
        counted_by: Counted::Cl100k,
    }
}
