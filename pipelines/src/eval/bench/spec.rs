//! The task files of the strict score, `pipelines/pybench/tasks/NNN.toml`. Their keys are described in
//! `pipelines/pybench/README.md`.

use std::collections::BTreeMap;

use pybench::grade::CheckSpec;
use pybench::id::Digest;
use pybench::task::Category;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::library::problem::{LibraryError, Problem, Source};

/// What the crate was built with.
const EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pybench.rs"));

/// One task of the benchmark: what `strict` asks, and a solution in our own words.
#[derive(Clone, Debug)]
pub struct TaskSpec {
    /// The task's number upstream.
    pub index: u32,
    /// Category of the paper.
    pub category: Category,
    /// Whether it counts in `strict`'s headline, and why not.
    pub status: Status,
    /// What the check cannot see, or which reading of the prompt it takes.
    pub note: Option<String>,
    /// Path in the workspace → digest of the upstream file.
    pub inputs: BTreeMap<String, Digest>,
    /// Inputs that upstream itself lacks.
    pub missing: Vec<String>,
    /// Files the task asks for; names may hold wildcards.
    pub outputs: Vec<String>,
    /// Python that changes the inputs by `SEED` before anything else.
    pub perturb: Option<String>,
    /// How `--regenerate` makes other inputs; `None`: the task is about these very files.
    pub vary: Option<Vary>,
    /// Python that computes what is right.
    pub reference: String,
    /// All must hold.
    pub checks: Vec<CheckSpec>,
    /// Wrong solutions, which must fail.
    pub mutants: Vec<Variant>,
    /// Other right solutions, which must pass.
    pub rights: Vec<Variant>,
    /// Made mutants (by the end of their names) that are right answers here.
    pub equivalent: Vec<String>,
    /// A right solution.
    pub solution: Option<Solution>,
    /// Digest of the file.
    pub digest: Digest,
}

/// Whether a task counts in `strict`'s headline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// It does.
    Headline,
    /// Only a person or a vision model can tell.
    Judge(String),
    /// It asks for live pages.
    Live(String),
    /// Its inputs are nowhere to be had.
    Missing(String),
}

impl Status {
    /// Why it does not count; `None` where it does.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Headline => None,
            Self::Judge(reason) | Self::Live(reason) | Self::Missing(reason) => Some(reason),
        }
    }

    /// As task files write it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Headline => "headline",
            Self::Judge(_) => "judge",
            Self::Live(_) => "live",
            Self::Missing(_) => "missing",
        }
    }
}

/// How other inputs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vary {
    /// Rows of tables are resampled and shuffled.
    Rows,
    /// Rows of tables are left out; the others keep their order.
    Fewer,
    /// Pictures are mirrored, cropped and tinted.
    Picture,
}

impl Vary {
    /// As `vary.py` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rows => "rows",
            Self::Fewer => "fewer",
            Self::Picture => "picture",
        }
    }
}

/// A solution: cells, then an answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Solution {
    /// What is said at the end; `{{ name }}` stands for what a turn has read.
    pub answer: String,
    /// Cells in order.
    #[serde(default, rename = "turn")]
    pub turns: Vec<Turn>,
}

/// One cell of a solution.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// Python.
    pub cell: String,
    /// Name → pattern with one group, found in what the cell printed.
    #[serde(default)]
    pub read: BTreeMap<String, String>,
}

/// A solution with one thing changed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// What is different.
    pub name: String,
    /// Which turn `find` is in.
    #[serde(default)]
    pub turn: usize,
    /// Stands exactly once in that turn's cell.
    #[serde(default)]
    pub find: Option<String>,
    /// What stands there instead.
    #[serde(default)]
    pub replace: Option<String>,
    /// One more cell at the end.
    #[serde(default)]
    pub cell: Option<String>,
    /// Another answer.
    #[serde(default)]
    pub answer: Option<String>,
}

impl Variant {
    /// The solution changed so; the error says why it cannot be.
    pub fn apply(&self, solution: &Solution) -> Result<Solution, String> {
        let mut changed = solution.clone();
        if let Some(find) = &self.find {
            let (name, turn) = (&self.name, self.turn);
            let turn = changed.turns.get_mut(turn);
            let turn = turn.ok_or_else(|| format!("`{name}`: the solution has no such turn"))?;
            let times = turn.cell.matches(find.as_str()).count();
            if times != 1 {
                return Err(format!(
                    "`{name}`: `{find}` stands {times} times in the cell"
                ));
            }
            let replace = self.replace.as_deref().unwrap_or_default();
            turn.cell = turn.cell.replacen(find.as_str(), replace, 1);
        }
        if let Some(answer) = &self.answer {
            changed.answer.clone_from(answer);
        }
        changed.turns.extend(self.cell.iter().map(|cell| Turn {
            cell: cell.clone(),
            read: BTreeMap::new(),
        }));
        Ok(changed)
    }
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    index: Spanned<u32>,
    category: Category,
    status: Spanned<String>,
    reason: Option<String>,
    note: Option<String>,
    #[serde(default)]
    inputs: BTreeMap<String, Digest>,
    #[serde(default)]
    missing: Vec<String>,
    outputs: Vec<Spanned<String>>,
    perturb: Option<String>,
    vary: Option<Vary>,
    reference: Option<String>,
    #[serde(default, rename = "check")]
    checks: Vec<Spanned<toml::Table>>,
    #[serde(default, rename = "mutant")]
    mutants: Vec<Spanned<Variant>>,
    #[serde(default, rename = "right")]
    rights: Vec<Spanned<Variant>>,
    #[serde(default)]
    equivalent: Vec<String>,
    solution: Option<Spanned<Solution>>,
}

/// Every task file that the crate was built with, by number.
///
/// # Errors
/// All problems, each with its file and line.
pub fn embedded() -> Result<BTreeMap<u32, TaskSpec>, LibraryError> {
    load(EMBEDDED.iter().copied())
}

/// Task files: (name, content).
///
/// # Errors
/// All problems, each with its file and line.
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

/// One task file; `name` is `NNN.toml`.
///
/// # Errors
/// Everything that is wrong with it, each with its line.
pub fn parse(name: &str, text: &str) -> Result<TaskSpec, Vec<Problem>> {
    let source = Source { file: name, text };
    let file: File = toml::from_str(text).map_err(|error| vec![source.toml(&error)])?;
    let mut problems = Vec::new();
    let status = status(&file, &source, &mut problems);
    let checks = checks(&file, &source, &mut problems);
    validate(&file, &source, &mut problems);
    if status == Status::Headline {
        complete(&file, &source, &mut problems);
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let plain = |variants: Vec<Spanned<Variant>>| {
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
        outputs: file.outputs.into_iter().map(Spanned::into_inner).collect(),
        perturb: file.perturb,
        vary: file.vary,
        reference: file.reference.unwrap_or_default(),
        checks,
        mutants: plain(file.mutants),
        rights: plain(file.rights),
        equivalent: file.equivalent,
        solution: file.solution.map(Spanned::into_inner),
        digest: Digest::of_bytes(text.as_bytes()),
    })
}

fn status(file: &File, source: &Source<'_>, problems: &mut Vec<Problem>) -> Status {
    let reason = file.reason.clone();
    let span = file.status.span();
    if reason.is_none() && file.status.get_ref() != "headline" {
        problems.push(source.at(&span, "a task outside the headline needs a `reason`"));
    }
    let reason = reason.unwrap_or_default();
    match file.status.get_ref().as_str() {
        "headline" => Status::Headline,
        "judge" => Status::Judge(reason),
        "live" => Status::Live(reason),
        "missing" => Status::Missing(reason),
        other => {
            let text = format!("unknown status `{other}`: headline, judge, live or missing");
            problems.push(source.at(&span, text));
            Status::Headline
        }
    }
}

fn checks(file: &File, source: &Source<'_>, problems: &mut Vec<Problem>) -> Vec<CheckSpec> {
    let mut checks = Vec::new();
    for table in &file.checks {
        match table.get_ref().clone().try_into() {
            Ok(check) => checks.push(check),
            Err(error) => {
                let message = crate::library::problem::with_suggestion(error.message());
                problems.push(source.at(&table.span(), message));
            }
        }
    }
    checks
}

/// What holds of every task file.
fn validate(file: &File, source: &Source<'_>, problems: &mut Vec<Problem>) {
    let stem = source.file.strip_suffix(".toml").unwrap_or(source.file);
    if stem.parse() != Ok(*file.index.get_ref()) {
        let text = format!("the index is not the file's name, {stem}");
        problems.push(source.at(&file.index.span(), text));
    }
    for path in file.inputs.keys().chain(&file.missing) {
        let name = path.strip_prefix("data/").unwrap_or_default();
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            problems.push(source.whole(format!("the input `{path}` is no file under data/")));
        }
    }
    for path in &file.outputs {
        let text = path.get_ref();
        let steps = || text.split('/');
        if !text.starts_with("output/") || steps().any(|s| s.is_empty() || s == "..") {
            problems.push(source.at(&path.span(), "an output is a file under output/"));
        }
    }
}

/// What a task of the headline must have.
fn complete(file: &File, source: &Source<'_>, problems: &mut Vec<Problem>) {
    if file
        .reference
        .as_deref()
        .unwrap_or_default()
        .trim()
        .is_empty()
    {
        problems.push(source.whole("a task of the headline needs a `reference`"));
    }
    if file.checks.is_empty() {
        problems.push(source.whole("a task of the headline needs a [[check]]"));
    }
    let Some(solution) = &file.solution else {
        return problems.push(source.whole("a task of the headline needs a [solution]"));
    };
    for (name, pattern) in solution.get_ref().turns.iter().flat_map(|turn| &turn.read) {
        let groups = regex::Regex::new(pattern).map(|regex| regex.captures_len());
        if !matches!(groups, Ok(2)) {
            let text = format!("`{name}`: a pattern with one group is needed: {pattern}");
            problems.push(source.at(&solution.span(), text));
        }
    }
    for variant in file.mutants.iter().chain(&file.rights) {
        if let Err(problem) = variant.get_ref().apply(solution.get_ref()) {
            problems.push(source.at(&variant.span(), problem));
        }
    }
    if let Some(line) = shared(file, solution.get_ref()) {
        problems.push(source.at(&solution.span(), line));
    }
}

/// A longer line that stands in the reference and in the solution: two equal mistakes would agree.
fn shared(file: &File, solution: &Solution) -> Option<String> {
    fn lines(code: &str) -> impl Iterator<Item = &str> {
        let imports = |line: &&str| line.starts_with("import ") || line.starts_with("from ");
        let lines = code.lines().map(str::trim);
        lines.filter(move |line| line.chars().count() > 25 && !imports(line))
    }
    let reference = file.reference.as_deref().unwrap_or_default();
    let known: std::collections::HashSet<&str> = lines(reference).collect();
    let mut cells = solution.turns.iter().flat_map(|turn| lines(&turn.cell));
    let line = cells.find(|line| known.contains(line))?;
    Some(format!("reference and solution share the line `{line}`"))
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
