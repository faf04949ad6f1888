//! What the schema cannot say: values that are impossible together. Each problem names the path.

use std::collections::HashSet;

use super::{InterpreterChoice, Recipe, SourceChoice, TeacherChoice, Tier};
use crate::interpreter::Network;

/// Shares of languages may miss 1 by this.
const ROUNDING: f64 = 1e-6;

/// Dotted path and message of everything impossible.
pub(super) fn problems(recipe: &Recipe) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    let mut refuse = |path: &str, message: String| problems.push((path.to_owned(), message));

    let shares: f64 = recipe.query.languages.values().sum();
    if (shares - 1.0).abs() > ROUNDING {
        let message = format!("languages: the shares add up to {shares}; they must add up to 1");
        refuse("query.languages", message);
    }
    let rows = recipe.query.tasks as u64 * u64::from(recipe.rollout.samples);
    if recipe.grade.at_least as u64 > rows {
        refuse(
            "grade.at_least",
            format!("at_least: {rows} rows are asked for, fewer than must be accepted"),
        );
    }
    let filters: HashSet<_> = recipe.grade.filters.iter().map(|f| *f as u8).collect();
    if filters.len() < recipe.grade.filters.len() {
        refuse("grade.filters", "filters: a filter is named twice".into());
    }
    if let Some(wheelhouse) = recipe.interpreter.wheelhouse.as_ref()
        && wheelhouse.as_os_str().is_empty()
    {
        refuse(
            "interpreter.wheelhouse",
            "wheelhouse: the path is empty".into(),
        );
    }
    network_problems(&recipe.interpreter, &mut refuse);
    for (list, sources) in [
        ("sources", &recipe.crawl.sources),
        ("fallback", &recipe.crawl.fallback),
    ] {
        for (index, source) in sources.iter().enumerate() {
            source_problems(&format!("crawl.{list}.{index}"), source, &mut refuse);
        }
    }
    teacher_problems(&recipe.teacher, &mut refuse);
    problems
}

fn network_problems(choice: &InterpreterChoice, refuse: &mut impl FnMut(&str, String)) {
    let mut wrong = |text: String| refuse("interpreter.network", format!("network: {text}"));
    if let Err(error) = Network::to(&choice.network) {
        wrong(error.to_string());
    }
    if !choice.network.is_empty() && !choice.tier.holds_to_hosts() {
        wrong(Tier::NO_HOSTS.into());
    }
}

fn source_problems(at: &str, source: &SourceChoice, refuse: &mut impl FnMut(&str, String)) {
    match source {
        SourceChoice::Local { path, .. } if path.as_os_str().is_empty() => {
            refuse(&format!("{at}.path"), "path: the path is empty".into());
        }
        SourceChoice::Http { urls, .. } if urls.is_empty() => {
            refuse(&format!("{at}.urls"), "urls: name at least one URL".into());
        }
        SourceChoice::Pypi { packages } if packages.is_empty() => {
            let message = "packages: name at least one package".into();
            refuse(&format!("{at}.packages"), message);
        }
        SourceChoice::Github { repositories, .. } if repositories.is_empty() => {
            let message = "repositories: name at least one".into();
            refuse(&format!("{at}.repositories"), message);
        }
        SourceChoice::Hub { datasets, .. } if datasets.is_empty() => {
            refuse(
                &format!("{at}.datasets"),
                "datasets: name at least one".into(),
            );
        }
        SourceChoice::Arxiv { formats, .. } if formats.is_empty() => {
            refuse(
                &format!("{at}.formats"),
                "formats: name `pdf`, `source` or both".into(),
            );
        }
        SourceChoice::Arxiv {
            papers, searches, ..
        } if papers.is_empty() && searches.is_empty() => {
            refuse(at, "name at least one of `papers` or `searches`".into());
        }
        SourceChoice::Kaggle {
            datasets, searches, ..
        } if datasets.is_empty() && searches.is_empty() => {
            refuse(at, "name at least one of `datasets` or `searches`".into());
        }
        SourceChoice::Zenodo {
            records, searches, ..
        } if records.is_empty() && searches.is_empty() => {
            refuse(at, "name at least one of `records` or `searches`".into());
        }
        _ => {}
    }
}

/// A secret written into a recipe would be frozen into the run folder.
fn teacher_problems(teacher: &TeacherChoice, refuse: &mut impl FnMut(&str, String)) {
    let TeacherChoice::Openai { headers, .. } = teacher else {
        return;
    };
    for (name, value) in headers {
        let lower = name.to_ascii_lowercase();
        let secret = ["auth", "key", "token", "secret", "cookie"];
        if secret.iter().any(|word| lower.contains(word)) && !value.starts_with('$') {
            refuse(
                &format!("teacher.headers.{name}"),
                format!(
                    "{name}: a secret does not belong into a recipe; write `$NAME` to read the environment variable NAME"
                ),
            );
        }
    }
}
