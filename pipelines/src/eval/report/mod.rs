//! The report: a folder of static pages without any outside address, and the same numbers as JSON and
//! Markdown. A function of records and content store: no clock, no chance, no order of completion,
//! so that a run that was interrupted and resumed has the same report. Wall time alone differs
//! between equal runs; it stands in `timing.json` and `timing.md`.

mod board;
pub(in crate::eval) mod markdown;
mod notebook;
mod pages;
mod plots;
mod published;
pub(in crate::eval) mod show;
pub(in crate::eval) mod text;
mod timing;

use std::fs;
use std::path::{Path, PathBuf};

use minijinja::{AutoEscape, Environment};
use serde::Serialize;
use serde_json::json;

pub use published::{Published, SOURCE, published};

use super::record::{AgentKind, Evaluation};
use super::stats::{AgentSummary, Comparison, Measure, compare_all, summarise};
use crate::library::template_value;

/// Most agents of which every pair is compared.
const MOST_COMPARED: usize = 12;

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// The folder holds something else.
    #[error("{} is not empty and holds no report of ours; name another folder", .0.display())]
    Taken(PathBuf),
    /// A bug of ours.
    #[error("the report could not be rendered: {0}")]
    Render(String),
}

impl From<minijinja::Error> for ReportError {
    fn from(error: minijinja::Error) -> Self {
        Self::Render(format!("{error:#}"))
    }
}

/// What a report says beyond the records.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Label of the model that the others were tuned from: a loss against it is flagged.
    pub base: Option<String>,
}

/// Everything that pages, JSON and Markdown are made of.
pub(super) struct Numbers<'a> {
    evaluation: &'a Evaluation,
    summaries: Vec<AgentSummary>,
    comparisons: Vec<Comparison>,
    warnings: Vec<String>,
}

/// Write the report of `evaluation` to the folder `out`, which is replaced in one step. `stores` are
/// the content stores that the records refer to: the `files/` of their run folders.
pub fn write(
    evaluation: &Evaluation,
    stores: &[PathBuf],
    out: &Path,
    options: &Options,
) -> Result<(), ReportError> {
    may_replace(out)?;
    let parent = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).map_err(io(parent))?;
    let made = tempfile::Builder::new()
        .prefix(".report-")
        .tempdir_in(parent)
        .map_err(io(parent))?;
    let numbers = Numbers::new(evaluation, options);
    write_into(&numbers, stores, made.path())?;
    open_to_readers(made.path())?;
    if out.exists() {
        fs::remove_dir_all(out).map_err(io(out))?;
    }
    fs::rename(made.keep(), out).map_err(io(out))
}

/// Only an empty folder or an earlier report is replaced.
fn may_replace(out: &Path) -> Result<(), ReportError> {
    match fs::read_dir(out) {
        Ok(mut entries) => match entries.next().is_none() || out.join("report.json").is_file() {
            true => Ok(()),
            false => Err(ReportError::Taken(out.to_owned())),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io(out)(error)),
    }
}

/// Temporary folders are closed to others; reports are not.
fn open_to_readers(folder: &Path) -> Result<(), ReportError> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(io(folder))
}

fn write_into(numbers: &Numbers<'_>, stores: &[PathBuf], out: &Path) -> Result<(), ReportError> {
    for folder in ["files", "plots", "tasks", "notebooks"] {
        let path = out.join(folder);
        fs::create_dir(&path).map_err(io(&path))?;
    }
    let store = show::Store::new(stores, out.join("files"));
    let plots = pages::plots(numbers, out)?;
    pages::Pages::new(numbers, store, out)?.write(&plots)?;
    put(out, "style.css", include_str!("templates/style.css"))?;
    put(out, "report.json", &numbers.json())?;
    put(out, "report.md", &markdown::report(numbers))?;
    let (json, markdown) = timing::timing(numbers.evaluation);
    put(out, "timing.json", &json)?;
    put(out, "timing.md", &markdown)
}

impl<'a> Numbers<'a> {
    pub(super) fn new(evaluation: &'a Evaluation, options: &Options) -> Self {
        let summaries = summarise(evaluation);
        let comparisons = comparisons(&summaries, evaluation);
        let losses = options.base.as_ref();
        let losses = losses.map(|base| losses_against(base, &comparisons));
        Self {
            evaluation,
            summaries,
            warnings: losses.unwrap_or_default(),
            comparisons,
        }
    }

    /// The benchmarks, in order.
    fn suites(&self) -> Vec<&str> {
        let mut suites: Vec<_> = self.summaries.iter().map(|s| &*s.suite).collect();
        suites.dedup();
        suites
    }

    fn of(&self, suite: &str) -> impl Iterator<Item = &AgentSummary> {
        let suite = suite.to_owned();
        self.summaries.iter().filter(move |s| s.suite == suite)
    }

    fn json(&self) -> String {
        let published: Vec<_> = published()
            .iter()
            .map(|row| json!({"as_printed": row, "computed": row.computed(), "contradicts": row.contradicts()}))
            .collect();
        let whole = json!({
            "frozen": self.evaluation.frozen,
            "warnings": self.warnings,
            "agents": self.summaries,
            "comparisons": self.comparisons,
            "published": {"source": SOURCE, "rows": published},
        });
        format!("{whole:#}\n")
    }
}

/// Every pair of those that compete, by every score that both have.
fn comparisons(summaries: &[AgentSummary], evaluation: &Evaluation) -> Vec<Comparison> {
    let mut suites: Vec<_> = summaries.iter().map(|s| &s.suite).collect();
    suites.dedup();
    let competes = |s: &&AgentSummary| !matches!(s.kind, AgentKind::Reference | AgentKind::Null);
    let mut found = Vec::new();
    for suite in suites {
        let here = summaries.iter().filter(|s| s.suite == *suite);
        let agents = here.filter(competes).take(MOST_COMPARED);
        let agents: Vec<_> = agents.map(|s| s.agent.clone()).collect();
        for measure in Measure::ALL {
            found.extend(compare_all(evaluation, suite, measure, &agents));
        }
    }
    found
}

/// Sentences on suites on which a model is worse than the one it was tuned from.
fn losses_against(base: &str, comparisons: &[Comparison]) -> Vec<String> {
    let lost = |c: &&Comparison| {
        !c.tied && ((c.a == base && c.difference > 0.0) || (c.b == base && c.difference < 0.0))
    };
    let say = |c: &Comparison| {
        let other = if c.a == base { &c.b } else { &c.a };
        format!(
            "{} lost ability against {base}: {} ({}) by {} points (p = {:.4}).",
            text::line(other),
            c.suite,
            c.measure.name(),
            text::percent(c.difference.abs()),
            c.p_holm
        )
    };
    comparisons.iter().filter(lost).map(say).collect()
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> ReportError {
    let path = path.to_owned();
    move |source| ReportError::Io { path, source }
}

fn put(out: &Path, name: &str, text: &str) -> Result<(), ReportError> {
    let path = out.join(name);
    fs::write(&path, text).map_err(io(&path))
}

/// The templates; everything is escaped.
fn templates() -> Result<Environment<'static>, ReportError> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_filter("visible", |text: String| text::visible(&text));
    environment.add_template("page.html", include_str!("templates/page.html"))?;
    environment.add_template("index.html", include_str!("templates/index.html"))?;
    environment.add_template("task.html", include_str!("templates/task.html"))?;
    Ok(environment)
}

fn render(
    environment: &Environment<'_>,
    name: &str,
    context: minijinja::Value,
) -> Result<String, ReportError> {
    Ok(environment.get_template(name)?.render(context)?)
}

/// What a template sees of a value of ours.
fn value<T: Serialize + ?Sized>(of: &T) -> minijinja::Value {
    // Only maps with keys that are not strings fail, which no view has.
    template_value(&serde_json::to_value(of).unwrap_or_default())
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
