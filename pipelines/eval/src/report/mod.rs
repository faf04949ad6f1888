//! The report: a folder of static HTML pages that load nothing from the network, and the same data as
//! JSON and Markdown.
//!
//! The report depends only on the records, the content store and the training set that is compared, so an interrupted run that continues
//! gives the same report. Wall times differ between identical runs and are therefore in separate files,
//! `timing.json` and `timing.md`.

mod leaderboard;
pub(crate) mod markdown;
mod notebook;
mod over_suites;
mod pages;
mod plots;
mod published;
pub(crate) mod text;
mod timing;
mod titles;
mod training_set;

use std::fs;
use std::path::{Path, PathBuf};

use minijinja::{AutoEscape, Environment};
use pybench_run::NewFolder;
use serde::Serialize;
use serde_json::json;

pub(crate) use titles::Titles;

pub use leaderboard::category_order;
pub use published::{Published, SOURCE, published};

use super::record::Evaluation;
use super::stats::{
    AgentSummary, Comparison, Measure, OverSuites, compare_all, over_suites, summarize,
};
use crate::contamination::TrainingSet;
use pybench_library::template_value;
use pybench_profile::preview::Store;

/// Maximum number of agents per suite that are compared pairwise.
const MAX_COMPARED: usize = 12;

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("{}: {source}", path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The output folder contains something other than a report.
    #[error("{}: the folder is not empty and contains no report.json; use another folder for --out", .0.display())]
    NotAReport(PathBuf),
    /// A template failed to render (a bug).
    #[error("the report could not be rendered: {0}")]
    Render(String),
}

impl From<minijinja::Error> for ReportError {
    fn from(error: minijinja::Error) -> Self {
        Self::Render(format!("{error:#}"))
    }
}

/// Options of a report.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Label of the base model of the others: the report warns about models that are worse than it.
    pub base: Option<String>,
    /// The training set of the models, compared with the suites.
    pub training_set: Option<TrainingSet>,
}

/// The data of the pages, the JSON and the Markdown.
pub(super) struct ReportData<'a> {
    evaluation: &'a Evaluation,
    summaries: Vec<AgentSummary>,
    over_suites: Vec<OverSuites>,
    comparisons: Vec<Comparison>,
    training_set: Option<TrainingSet>,
    warnings: Vec<String>,
    titles: Titles<'a>,
}

/// Writes the report of `evaluation` to the folder `out`, replacing an earlier report there. `stores` are
/// the content stores that the records refer to: the `files/` folders of their runs.
///
/// # Errors
/// [`ReportError::NotAReport`] if `out` contains something else; I/O errors.
pub fn write(
    evaluation: &Evaluation,
    stores: &[PathBuf],
    out: &Path,
    options: &Options,
) -> Result<(), ReportError> {
    check_replaceable(out)?;
    let new = NewFolder::new(out).map_err(io(out))?;
    let data = ReportData::new(evaluation, options);
    write_into(&data, stores, new.path())?;
    if out.exists() {
        fs::remove_dir_all(out).map_err(io(out))?;
    }
    new.finish().map_err(io(out))
}

/// Fails unless `out` is missing, empty or an earlier report.
fn check_replaceable(out: &Path) -> Result<(), ReportError> {
    match fs::read_dir(out) {
        Ok(mut entries) => match entries.next().is_none() || out.join("report.json").is_file() {
            true => Ok(()),
            false => Err(ReportError::NotAReport(out.to_owned())),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io(out)(error)),
    }
}

fn write_into(data: &ReportData<'_>, stores: &[PathBuf], out: &Path) -> Result<(), ReportError> {
    for folder in ["files", "plots", "tasks", "notebooks"] {
        let path = out.join(folder);
        fs::create_dir(&path).map_err(io(&path))?;
    }
    let store = Store::new(stores, out.join("files"));
    let plots = pages::plots(data, out)?;
    pages::PageWriter::new(data, store, out)?.write(&plots)?;
    write_file(out, "style.css", include_str!("templates/style.css"))?;
    write_file(out, "report.json", &data.json())?;
    write_file(out, "report.md", &markdown::report(data))?;
    let (json, markdown) = timing::timing(data.evaluation);
    write_file(out, "timing.json", &json)?;
    write_file(out, "timing.md", &markdown)
}

impl<'a> ReportData<'a> {
    pub(super) fn new(evaluation: &'a Evaluation, options: &Options) -> Self {
        let summaries = summarize(evaluation);
        let comparisons = comparisons(&summaries, evaluation);
        let losses = options.base.as_ref();
        let losses = losses.map(|base| losses_against(base, &comparisons));
        Self {
            evaluation,
            over_suites: over_suites(&summaries),
            training_set: options.training_set.clone(),
            summaries,
            warnings: losses.unwrap_or_default(),
            comparisons,
            titles: Titles::new(evaluation),
        }
    }

    /// The suites, sorted.
    fn suites(&self) -> Vec<&str> {
        let mut suites: Vec<_> = self.summaries.iter().map(|s| &*s.suite).collect();
        suites.dedup();
        suites
    }

    fn suite_summaries(&self, suite: &str) -> impl Iterator<Item = &AgentSummary> {
        let suite = suite.to_owned();
        self.summaries.iter().filter(move |s| s.suite == suite)
    }

    fn json(&self) -> String {
        let published: Vec<_> = published()
            .iter()
            .map(|row| json!({"as_printed": row, "computed": row.computed(), "contradicts": row.contradicts()}))
            .collect();
        let mut whole = json!({
            "frozen": self.evaluation.fingerprint,
            "warnings": self.warnings,
            "agents": self.summaries,
            "over_suites": self.over_suites,
            "comparisons": self.comparisons,
            "published": {"source": SOURCE, "rows": published},
        });
        if let Some(set) = &self.training_set {
            whole["training_set"] = json!(set);
        }
        format!("{whole:#}\n")
    }
}

/// Compares every pair of agents except baselines, by every measure that both have.
fn comparisons(summaries: &[AgentSummary], evaluation: &Evaluation) -> Vec<Comparison> {
    let mut suites: Vec<_> = summaries.iter().map(|s| &s.suite).collect();
    suites.dedup();
    let mut found = Vec::new();
    for suite in suites {
        let of_suite = summaries.iter().filter(|s| s.suite == *suite);
        let agents = of_suite.filter(|s| s.kind.competes()).take(MAX_COMPARED);
        let agents: Vec<_> = agents.map(|s| s.agent.clone()).collect();
        for measure in Measure::ALL {
            found.extend(compare_all(evaluation, suite, measure, &agents));
        }
    }
    found
}

/// One sentence for each suite and measure on which a model is significantly worse than its base model.
fn losses_against(base: &str, comparisons: &[Comparison]) -> Vec<String> {
    let lost = |c: &&Comparison| {
        !c.tied && ((c.a == base && c.difference > 0.0) || (c.b == base && c.difference < 0.0))
    };
    let say = |c: &Comparison| {
        let other = if c.a == base { &c.b } else { &c.a };
        format!(
            "{} is worse than its base model {base}: {} ({}) by {} points (p = {:.4}).",
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

fn write_file(out: &Path, name: &str, text: &str) -> Result<(), ReportError> {
    let path = out.join(name);
    fs::write(&path, text).map_err(io(&path))
}

/// The templates, with HTML escaping.
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

/// Converts a value for a template.
fn value<T: Serialize + ?Sized>(of: &T) -> minijinja::Value {
    // Serialization fails only for maps with keys that are not strings; no type here has one.
    template_value(&serde_json::to_value(of).unwrap_or_default())
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
