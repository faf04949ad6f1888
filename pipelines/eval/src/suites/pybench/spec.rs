//! The task files of the strict score, `pipelines/suites/pybench/{tasks,regenerated}/NNN.toml`. Their keys are
//! described in `pipelines/suites/pybench/README.md`.

use std::collections::BTreeMap;

use pybench_types::check::CheckSpec;
use pybench_types::id::Digest;
use pybench_types::task::Category;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::suite::{Solution, SolutionTurn};
use pybench_library::problem::{LibraryError, Problem, TomlSource};

/// The task files that were embedded at build time, as (name, content).
const EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pybench.rs"));
/// Those of tasks whose inputs are missing upstream and made here.
const REGENERATED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pybench-regenerated.rs"));

/// A task file: the checks of `strict` and a reference solution.
#[derive(Clone, Debug)]
pub struct TaskSpec {
    /// Task number in PyBench.
    pub index: u32,
    /// Category in the paper.
    pub category: Category,
    /// Whether the task counts toward the headline of `strict`.
    pub status: TaskStatus,
    /// Limits of the checks, or the reading of the prompt that they assume.
    pub note: Option<String>,
    /// Digest of each upstream input file, by its path in the workspace.
    pub inputs: BTreeMap<String, Digest>,
    /// Inputs that are missing in the upstream repository.
    pub missing: Vec<String>,
    /// Python code that makes the missing inputs, seeded with `SEED`.
    pub make: Option<String>,
    /// Output files that the task asks for; names may contain wildcards.
    pub outputs: Vec<String>,
    /// Python code that perturbs the inputs, seeded with `SEED`.
    pub perturb: Option<String>,
    /// How `--regenerate` varies the inputs; empty if the task depends on its exact files.
    pub vary: Vec<Vary>,
    /// Python code that computes the expected values.
    pub reference: String,
    /// Checks, all of which must pass.
    pub checks: Vec<CheckSpec>,
    /// Incorrect solutions, which must fail.
    pub mutants: Vec<SolutionVariant>,
    /// Other correct solutions, which must pass.
    pub rights: Vec<SolutionVariant>,
    /// Suffixes of the names of generated mutants that are correct for this task.
    pub equivalent: Vec<String>,
    /// The reference solution.
    pub solution: Option<Solution>,
    /// Digest of the task file.
    pub digest: Digest,
}

impl TaskSpec {
    /// Whether other seeds give other inputs.
    pub fn has_variants(&self) -> bool {
        self.make.is_some() || !self.vary.is_empty()
    }
}

/// Whether a task counts toward the headline of `strict`, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    /// It counts.
    Headline,
    /// Only a person or a vision model can judge the result. Checks decide what is decidable; they are shown and do
    /// not count.
    Judge(String),
    /// It needs live web pages.
    Live(String),
    /// No check has been written, because its inputs were not available.
    Missing(String),
}

impl TaskStatus {
    /// Why the task does not count; `None` if it counts.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Headline => None,
            Self::Judge(reason) | Self::Live(reason) | Self::Missing(reason) => Some(reason),
        }
    }

    /// Name in task files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Headline => "headline",
            Self::Judge(_) => "judge",
            Self::Live(_) => "live",
            Self::Missing(_) => "missing",
        }
    }
}

/// A way in which `--regenerate` varies the inputs (`vary.py`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vary {
    /// Drop some rows of tables and shuffle the others.
    Rows,
    /// Drop some rows of tables and keep the order of the others.
    Fewer,
    /// Shuffle the columns of tables, with another one between them.
    Columns,
    /// Mirror, crop and tint images.
    Picture,
    /// Leave out sentences of texts.
    Sentences,
    /// Leave out a page of PDF files.
    Pages,
}

/// A variant of the solution with one change.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SolutionVariant {
    /// Description of the change.
    pub name: String,
    /// Index of the turn that contains `find`.
    #[serde(default)]
    pub turn: usize,
    /// Text to replace; must occur exactly once in the cell of that turn.
    #[serde(default)]
    pub find: Option<String>,
    /// Replacement of `find`.
    #[serde(default)]
    pub replace: Option<String>,
    /// Cell to append.
    #[serde(default)]
    pub cell: Option<String>,
    /// Different answer.
    #[serde(default)]
    pub answer: Option<String>,
}

impl SolutionVariant {
    /// Applies the change to a solution.
    ///
    /// # Errors
    /// The text to replace does not occur exactly once.
    pub fn apply(&self, solution: &Solution) -> Result<Solution, String> {
        let mut changed = solution.clone();
        if let Some(find) = &self.find {
            let (name, index) = (&self.name, self.turn);
            let turn = changed.turns.get_mut(index);
            let turn = turn.ok_or_else(|| format!("`{name}`: the solution has no turn {index}"))?;
            let times = turn.cell.matches(find.as_str()).count();
            if times != 1 {
                return Err(format!(
                    "`{name}`: `{find}` occurs {times} times in the cell; expected exactly once"
                ));
            }
            let replace = self.replace.as_deref().unwrap_or_default();
            turn.cell = turn.cell.replacen(find.as_str(), replace, 1);
        }
        if let Some(answer) = &self.answer {
            changed.answer.clone_from(answer);
        }
        changed
            .turns
            .extend(self.cell.iter().map(|cell| SolutionTurn {
                cell: cell.clone(),
                read: BTreeMap::new(),
            }));
        Ok(changed)
    }
}

/// A task file before validation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTaskFile {
    index: Spanned<u32>,
    category: Category,
    status: Spanned<String>,
    reason: Option<String>,
    note: Option<String>,
    #[serde(default)]
    inputs: BTreeMap<String, Digest>,
    #[serde(default)]
    missing: Vec<String>,
    make: Option<String>,
    outputs: Vec<Spanned<String>>,
    perturb: Option<String>,
    #[serde(default)]
    vary: Vec<Vary>,
    reference: Option<String>,
    #[serde(default, rename = "check")]
    checks: Vec<Spanned<toml::Table>>,
    #[serde(default, rename = "mutant")]
    mutants: Vec<Spanned<SolutionVariant>>,
    #[serde(default, rename = "right")]
    rights: Vec<Spanned<SolutionVariant>>,
    #[serde(default)]
    equivalent: Vec<String>,
    solution: Option<Spanned<Solution>>,
}

/// The embedded task files by number.
///
/// # Errors
/// All problems, with file and line.
pub fn embedded() -> Result<BTreeMap<u32, TaskSpec>, LibraryError> {
    load(EMBEDDED.iter().copied())
}

/// The embedded task files of tasks whose missing inputs are made, by number.
///
/// # Errors
/// All problems, with file and line.
pub fn regenerated() -> Result<BTreeMap<u32, TaskSpec>, LibraryError> {
    load(REGENERATED.iter().copied())
}

/// Parses task files, given as (name, content).
///
/// # Errors
/// All problems, with file and line.
pub fn load<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<BTreeMap<u32, TaskSpec>, LibraryError> {
    let (mut specs, mut problems) = (BTreeMap::new(), Vec::new());
    for (name, text) in files {
        match parse(name, text) {
            Ok(spec) => {
                specs.insert(spec.index, spec);
            }
            Err(found) => problems.extend(found),
        }
    }
    match problems.is_empty() {
        true => Ok(specs),
        false => Err(LibraryError(problems)),
    }
}

/// Parses one task file; `name` is `NNN.toml`.
///
/// # Errors
/// All problems, with their lines.
pub fn parse(name: &str, text: &str) -> Result<TaskSpec, Vec<Problem>> {
    let source = TomlSource { file: name, text };
    let file: RawTaskFile = toml::from_str(text).map_err(|error| vec![source.toml(&error)])?;
    let mut problems = Vec::new();
    let status = status(&file, &source, &mut problems);
    let checks = checks(&file, &source, &mut problems);
    validate(&file, &source, &mut problems);
    if status == TaskStatus::Headline && file.checks.is_empty() {
        problems.push(source.whole("a headline task needs a [[check]]"));
    }
    if status == TaskStatus::Headline || !file.checks.is_empty() {
        validate_checked(&file, &source, &mut problems);
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let unwrap = |variants: Vec<Spanned<SolutionVariant>>| {
        let variants = variants.into_iter().map(Spanned::into_inner);
        variants.collect()
    };
    Ok(TaskSpec {
        index: file.index.into_inner(),
        category: file.category,
        status,
        note: file.note,
        inputs: file.inputs,
        missing: file.missing,
        make: file.make,
        outputs: file.outputs.into_iter().map(Spanned::into_inner).collect(),
        perturb: file.perturb,
        vary: file.vary,
        reference: file.reference.unwrap_or_default(),
        checks,
        mutants: unwrap(file.mutants),
        rights: unwrap(file.rights),
        equivalent: file.equivalent,
        solution: file.solution.map(Spanned::into_inner),
        digest: Digest::of_bytes(text.as_bytes()),
    })
}

fn status(file: &RawTaskFile, source: &TomlSource<'_>, problems: &mut Vec<Problem>) -> TaskStatus {
    let reason = file.reason.clone();
    let span = file.status.span();
    if reason.is_none() && file.status.get_ref() != "headline" {
        problems.push(source.at(&span, "a task outside the headline needs a `reason`"));
    }
    let reason = reason.unwrap_or_default();
    match file.status.get_ref().as_str() {
        "headline" => TaskStatus::Headline,
        "judge" => TaskStatus::Judge(reason),
        "live" => TaskStatus::Live(reason),
        "missing" => TaskStatus::Missing(reason),
        other => {
            let text =
                format!("unknown status `{other}`: expected headline, judge, live or missing");
            problems.push(source.at(&span, text));
            TaskStatus::Headline
        }
    }
}

fn checks(
    file: &RawTaskFile,
    source: &TomlSource<'_>,
    problems: &mut Vec<Problem>,
) -> Vec<CheckSpec> {
    let mut checks = Vec::new();
    for table in &file.checks {
        match table.get_ref().clone().try_into() {
            Ok(check) => checks.push(check),
            Err(error) => {
                let message = pybench_library::problem::with_suggestion(error.message());
                problems.push(source.at(&table.span(), message));
            }
        }
    }
    checks
}

/// Validates what every task file must satisfy.
fn validate(file: &RawTaskFile, source: &TomlSource<'_>, problems: &mut Vec<Problem>) {
    let stem = source.file.strip_suffix(".toml").unwrap_or(source.file);
    if stem.parse() != Ok(*file.index.get_ref()) {
        let text = format!("`index` does not match the file name {stem}");
        problems.push(source.at(&file.index.span(), text));
    }
    for path in file.inputs.keys().chain(&file.missing) {
        let name = path.strip_prefix("data/").unwrap_or_default();
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            problems.push(source.whole(format!(
                "the input `{path}` is not a file directly under data/"
            )));
        }
    }
    for path in &file.outputs {
        let text = path.get_ref();
        let components = || text.split('/');
        if !text.starts_with("output/") || components().any(|s| s.is_empty() || s == "..") {
            problems.push(source.at(&path.span(), "an output must be a file under output/"));
        }
    }
}

/// Validates what a task with checks must have.
fn validate_checked(file: &RawTaskFile, source: &TomlSource<'_>, problems: &mut Vec<Problem>) {
    if file
        .reference
        .as_deref()
        .unwrap_or_default()
        .trim()
        .is_empty()
    {
        problems.push(source.whole("a task with checks needs a `reference`"));
    }
    let Some(solution) = &file.solution else {
        return problems.push(source.whole("a task with checks needs a [solution]"));
    };
    for (name, pattern) in solution.get_ref().turns.iter().flat_map(|turn| &turn.read) {
        let groups = regex::Regex::new(pattern).map(|regex| regex.captures_len());
        if !matches!(groups, Ok(2)) {
            let text = format!("`{name}`: expected a regular expression with one group: {pattern}");
            problems.push(source.at(&solution.span(), text));
        }
    }
    for variant in file.mutants.iter().chain(&file.rights) {
        if let Err(problem) = variant.get_ref().apply(solution.get_ref()) {
            problems.push(source.at(&variant.span(), problem));
        }
    }
    if let Some(line) = shared_line(file, solution.get_ref()) {
        problems.push(source.at(&solution.span(), line));
    }
}

/// Finds a longer line that occurs in both the reference and the solution. They must be independent, because
/// a mistake in both would go unnoticed.
fn shared_line(file: &RawTaskFile, solution: &Solution) -> Option<String> {
    fn lines(code: &str) -> impl Iterator<Item = &str> {
        let imports = |line: &&str| line.starts_with("import ") || line.starts_with("from ");
        let lines = code.lines().map(str::trim);
        lines.filter(move |line| line.chars().count() > 25 && !imports(line))
    }
    let reference = file.reference.as_deref().unwrap_or_default();
    let known: std::collections::HashSet<&str> = lines(reference).collect();
    let mut cells = solution.turns.iter().flat_map(|turn| lines(&turn.cell));
    let line = cells.find(|line| known.contains(line))?;
    Some(format!(
        "reference and solution share the line `{line}`; write them independently"
    ))
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
