//! What the schema cannot say: values that are impossible together. Each problem names the path.

use std::collections::HashSet;

use super::{
    Filter, Grade, InterpreterChoice, Keep, ProposedChecks, Recipe, SourceChoice, TeacherChoice,
    Tier, WriterChoice,
};
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
    let tries = recipe.query.tasks as u64 * u64::from(recipe.rollout.samples);
    let rows = tries.saturating_mul(1 + recipe.stronger.len() as u64);
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
    goal_problems(recipe, rows, &mut refuse);
    judge_problems(&recipe.grade, &mut refuse);
    if let Some(writer) = &recipe.query.writer {
        writer_problems(recipe, writer, &mut refuse);
    }
    for (path, teacher) in recipe.models() {
        teacher_problems(&path, teacher, &mut refuse);
    }
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

fn goal_problems(recipe: &Recipe, rows: u64, refuse: &mut impl FnMut(&str, String)) {
    let goal = &recipe.goal;
    if let Some(asked) = goal.accept.filter(|asked| *asked as u64 > rows) {
        let message = format!("accept: {asked} rows are asked for of at most {rows} tries");
        refuse("goal.accept", message);
    }
    if goal.enough > recipe.rollout.samples {
        let samples = recipe.rollout.samples;
        let message = format!("enough: a task has only {samples} samples (`rollout.samples`)");
        refuse("goal.enough", message);
    }
    if goal.repairs > 0.0 && goal.keep == Keep::All {
        let message = "repairs: with `keep = \"all\"` nothing is chosen; set `goal.keep`";
        refuse("goal.repairs", message.into());
    }
}

fn judge_problems(grade: &Grade, refuse: &mut impl FnMut(&str, String)) {
    if grade.filters.contains(&Filter::Judge) && grade.judge.is_none() {
        let message = "filters: `judge` needs a judge: set `grade.judge.teacher`";
        refuse("grade.filters", message.into());
    }
    if let Some(TeacherChoice::Expert { .. }) = grade.judge.as_ref().map(|judge| &judge.teacher) {
        let message = "teacher: the expert knows its own tasks only: a judge is a model";
        refuse("grade.judge.teacher", message.into());
    }
}

fn writer_problems(recipe: &Recipe, writer: &WriterChoice, refuse: &mut impl FnMut(&str, String)) {
    let expert = |choice: &TeacherChoice| matches!(choice, TeacherChoice::Expert { .. });
    for (name, _) in writer.models().filter(|(_, choice)| expert(choice)) {
        let message = format!("{name}: the expert writes nothing: it has to be a model");
        refuse(&format!("query.writer.{name}"), message);
    }
    let embeddings = writer.embeddings.as_ref().map(|e| &e.endpoint);
    if let Some(TeacherChoice::Embedded { .. }) = embeddings {
        let message = "embeddings.endpoint: an endpoint has to have `kind = \"openai\"`";
        refuse("query.writer.embeddings.endpoint", message.into());
    }
    let mut teachers = recipe.teachers().into_iter();
    if let Some((path, _)) = teachers.find(|(_, choice)| expert(choice)) {
        let message =
            "the expert solves tasks of the library only, and `query.writer` writes others";
        refuse(&path, format!("{path}: {message}"));
    }
    let judged = recipe.grade.filters.contains(&Filter::Judge);
    if writer.checks != ProposedChecks::Required && !judged {
        let message = "checks: nothing would decide on a task without a check: put `judge` among \
                       `grade.filters`, or set `checks = \"required\"`";
        refuse("query.writer.checks", message.into());
    }
    for (path, weight) in writer.balance.weights() {
        if !(weight.is_finite() && weight >= 0.0) {
            let message = format!("{path}: {weight} is no weight: it is 0 or more");
            refuse(&format!("query.writer.balance.{path}"), message);
        }
    }
}

/// A secret written into a recipe would be frozen into the run folder.
fn teacher_problems(at: &str, teacher: &TeacherChoice, refuse: &mut impl FnMut(&str, String)) {
    let TeacherChoice::Openai {
        headers,
        key_env,
        more_keys_env,
        requests_per_minute,
        tokens_per_minute,
        batch,
        ..
    } = teacher
    else {
        return;
    };
    if *batch {
        let teaches = ["grade.", "query."]
            .iter()
            .all(|part| !at.starts_with(part));
        let limited = requests_per_minute.is_some() || tokens_per_minute.is_some();
        let message = match (teaches, more_keys_env.is_empty(), limited) {
            (false, ..) => "only teachers (`teacher`, `mix`, `stronger`) can be asked in batches",
            (_, false, _) => "files and batches belong to one key: leave out `more_keys_env`",
            (.., true) => "batches have limits of their own: leave out the limits per minute",
            _ => "",
        };
        if !message.is_empty() {
            refuse(&format!("{at}.batch"), format!("batch: {message}"));
        }
    }
    let keys: HashSet<_> = key_env.iter().chain(more_keys_env).collect();
    if keys.len() <= more_keys_env.len() {
        let message = match key_env {
            None => "more_keys_env: `key_env` names the first key",
            Some(_) => "more_keys_env: a variable is named twice",
        };
        if !more_keys_env.is_empty() {
            refuse(&format!("{at}.more_keys_env"), message.into());
        }
    }
    for (name, value) in headers {
        let lower = name.to_ascii_lowercase();
        let secret = ["auth", "key", "token", "secret", "cookie"];
        if secret.iter().any(|word| lower.contains(word)) && !value.starts_with('$') {
            refuse(
                &format!("{at}.headers.{name}"),
                format!(
                    "{name}: a secret does not belong into a recipe; write `$NAME` to read the environment variable NAME"
                ),
            );
        }
    }
}
