//! What a recipe says of a task set, with its paths resolved.

use std::path::{Path, PathBuf};

use pybench_hub::{HubFile, fetch_input};
use pybench_run::{AnswerCheck, RunContext, RunError, TaskSetChoice, TaskSetFields};
use pybench_types::license::spdx;
use pybench_types::task::Category;

use super::published::{self, PublishedSet};
use super::row::{Answer, Row};
use super::{apart, wiki};

/// A set that can be read.
#[derive(Clone, Debug)]
pub(super) struct SetSpec {
    pub name: String,
    pub path: PathBuf,
    /// Folder of the files.
    pub folder: PathBuf,
    pub check: AnswerCheck,
    pub tolerance: f64,
    category: Option<Category>,
    license: Option<String>,
    source: Option<String>,
    pub max_bad_lines: usize,
    pub format: SetFormat,
    is_training: fn(&Row) -> bool,
}

/// Relative tolerance of numbers in published sets.
const NUMERIC_TOLERANCE: f64 = 1e-6;
/// Maximum size of a list on the Hub.
const MAX_LIST: u64 = 4 << 30;

/// The file of a set: on this machine, in a bucket, or on the Hub, pinned by its digest.
async fn fetch(context: &RunContext, path: &Path) -> Result<PathBuf, RunError> {
    let text = path.to_string_lossy();
    if !text.starts_with("hf://") {
        return fetch_input(context, path).await;
    }
    let file = HubFile::parse(&text);
    let file = file.map_err(|form| RunError::BadInput(format!("query.task_sets: {form}")))?;
    file.fetch(&context.cache_dir, MAX_LIST).await
}

/// How the lines of a set are read.
#[derive(Clone, Debug)]
pub(super) enum SetFormat {
    Json(TaskSetFields),
    WikiTableQuestions(wiki::Columns),
}

impl SetSpec {
    /// # Errors
    /// [`RunError::BadInput`] if the set is one for evaluation; errors of a download.
    pub(super) async fn new(
        context: &RunContext,
        choice: &TaskSetChoice,
    ) -> Result<Self, RunError> {
        let TaskSetChoice::Jsonl {
            name,
            path,
            folder,
            check,
            tolerance,
            category,
            license,
            source,
            max_bad_lines,
            fields,
            ..
        } = choice
        else {
            return Self::built_in(context, choice).await;
        };
        apart::refuse_evaluation(name, path, source.as_deref())?;
        let path = fetch(context, path).await?;
        let beside = || path.parent().unwrap_or(Path::new(".")).to_owned();
        let folder = match folder {
            Some(folder) => fetch_input(context, folder).await?,
            None => beside(),
        };
        Ok(Self {
            name: name.clone(),
            folder,
            path,
            check: *check,
            tolerance: *tolerance,
            category: *category,
            license: license.clone(),
            source: source.clone(),
            max_bad_lines: *max_bad_lines,
            format: SetFormat::Json(fields.clone()),
            is_training: |_| true,
        })
    }

    async fn built_in(context: &RunContext, choice: &TaskSetChoice) -> Result<Self, RunError> {
        let set = match choice {
            TaskSetChoice::Gsm8k { .. } => &published::GSM8K,
            TaskSetChoice::Mbpp { .. } => &published::MBPP,
            TaskSetChoice::WikiTableQuestions { .. } | TaskSetChoice::Jsonl { .. } => {
                return Self::wiki_table_questions(context, choice.name()).await;
            }
        };
        let path = set.fetch(&context.cache_dir).await?;
        Ok(Self::published(choice.name(), path, set))
    }

    /// A published split, whose list is at `path`.
    pub(super) fn published(name: &str, path: PathBuf, set: &PublishedSet) -> Self {
        Self {
            name: name.to_owned(),
            folder: path.parent().unwrap_or(Path::new(".")).to_owned(),
            path,
            check: set.check,
            tolerance: NUMERIC_TOLERANCE,
            category: None,
            license: Some(set.license.into()),
            source: Some(set.source.into()),
            max_bad_lines: usize::MAX,
            format: SetFormat::Json((set.fields)()),
            is_training: set.is_training,
        }
    }

    async fn wiki_table_questions(context: &RunContext, name: &str) -> Result<Self, RunError> {
        let folder = wiki::checkout(&context.cache_dir).await?;
        let (path, columns) = wiki::questions(&folder)?;
        Ok(Self {
            name: name.to_owned(),
            path,
            folder,
            check: AnswerCheck::Denotation,
            tolerance: 0.0,
            category: None,
            license: Some(wiki::LICENSE.into()),
            source: Some(wiki::SOURCE.into()),
            // The files are verified, so that a row that cannot be used is one of upstream's.
            max_bad_lines: usize::MAX,
            format: SetFormat::WikiTableQuestions(columns),
            is_training: |_| true,
        })
    }

    /// Whether a line holds names of columns.
    pub(super) fn is_header(&self, number: u64) -> bool {
        matches!(self.format, SetFormat::WikiTableQuestions(_)) && number == 1
    }

    /// # Errors
    /// Why the line is no row.
    pub(super) fn row(&self, line: &[u8]) -> Result<Row, String> {
        match &self.format {
            SetFormat::Json(fields) => Row::of_json(line, fields, self.check),
            SetFormat::WikiTableQuestions(columns) => wiki::row(line, columns),
        }
    }

    /// Whether a row belongs to the training split. A built-in set leaves out the others without counting them as unusable.
    pub(super) fn is_training(&self, row: &Row) -> bool {
        (self.is_training)(row)
    }

    /// Why no task is made of a row; files are not looked at.
    pub(super) fn problem(&self, row: &Row) -> Option<String> {
        apart::row_problem(row).or_else(|| row.length_problem())
    }

    /// The license of a row, as an SPDX id where there is one.
    pub(super) fn license(&self, row: &Row) -> String {
        let text = row.license.as_ref().or(self.license.as_ref());
        let found = text.and_then(|text| spdx(text));
        found.unwrap_or_else(|| pybench_types::license::NOT_STATED.into())
    }

    /// The bytes of a file as tasks have it: tables of WikiTableQuestions become standard CSV.
    ///
    /// # Errors
    /// It is no such table.
    pub(super) fn rewritten(&self, bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
        match self.format {
            SetFormat::Json(_) => Ok(None),
            SetFormat::WikiTableQuestions(_) => wiki::standard_csv(bytes).map(Some),
        }
    }

    pub(super) fn source<'a>(&'a self, row: &'a Row) -> &'a str {
        let source = row.source.as_ref().or(self.source.as_ref());
        source.map_or("", String::as_str)
    }

    pub(super) fn category(&self, row: &Row) -> Category {
        let by_answer = match row.answer {
            Answer::Tests(_) => Category::Software,
            _ if !row.files.is_empty() => Category::Chart,
            Answer::Number(_) | Answer::Formula(_) => Category::Math,
            _ => Category::Text,
        };
        self.category.unwrap_or(by_answer)
    }
}
