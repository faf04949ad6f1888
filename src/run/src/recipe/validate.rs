//! Checks that the schema cannot express: values that contradict each other. Each problem names the path.

use std::collections::HashSet;

use super::{
    AnswerCheck, Filter, Grade, Keep, LoopChoice, ModelChoice, ProposedChecks, Query, Recipe,
    Shard, SourceChoice, TaskSetChoice, TaskSetFields, WriterChoice,
};
use pybench_interpreter::Network;
use pybench_interpreter::{InterpreterChoice, Tier};
use pybench_types::held_out::Unseen;

/// Tolerance for the sum of the language shares.
const ROUNDING: f64 = 1e-6;

/// Dotted path and message of each problem.
pub(super) fn problems(recipe: &Recipe) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    let mut reject = |path: &str, message: String| problems.push((path.to_owned(), message));

    // The sum of no shares would be -0.
    let shares: f64 = recipe
        .query
        .languages
        .values()
        .fold(0.0, |sum, share| sum + share);
    if (shares - 1.0).abs() > ROUNDING {
        let message = format!("languages: the shares add up to {shares}; they must add up to 1");
        reject("query.languages", message);
    }
    let samples = recipe.query.tasks as u64 * u64::from(recipe.rollout.samples);
    let rows = samples.saturating_mul(1 + recipe.escalation.len() as u64);
    if recipe.grade.at_least as u64 > rows {
        reject(
            "grade.at_least",
            format!(
                "at_least: the run makes at most {rows} rows; lower `grade.at_least`, or raise `query.tasks` or `rollout.samples`"
            ),
        );
    }
    let detection = recipe.rollout.repetition_detection;
    if let Some(problem) = detection.and_then(|detection| detection.problem()) {
        reject("rollout.repetition_detection.min_pattern_size", problem);
    }
    let filters: HashSet<_> = recipe.grade.filters.iter().map(|f| *f as u8).collect();
    if filters.len() < recipe.grade.filters.len() {
        reject("grade.filters", "filters: a filter is listed twice".into());
    }
    if let Some(wheelhouse) = recipe.interpreter.wheelhouse.as_ref()
        && wheelhouse.as_os_str().is_empty()
    {
        reject(
            "interpreter.wheelhouse",
            "wheelhouse: the path is empty".into(),
        );
    }
    network_problems(&recipe.interpreter, &mut reject);
    for (list, sources) in [
        ("sources", &recipe.crawl.sources),
        ("fallback", &recipe.crawl.fallback),
    ] {
        for (index, source) in sources.iter().enumerate() {
            source_problems(&format!("crawl.{list}.{index}"), source, &mut reject);
        }
    }
    goal_problems(recipe, rows, &mut reject);
    judge_problems(&recipe.grade, &mut reject);
    correction_problems(recipe, &mut reject);
    if let Some(learning) = &recipe.learning {
        student_problems(recipe, &mut reject);
        preference_problems(learning, &mut reject);
        curriculum_problems(recipe, learning, &mut reject);
    }
    test_share_problems(&recipe.shard, &mut reject);
    task_set_problems(recipe, &mut reject);
    balance_problems(&recipe.query, &mut reject);
    if let Some(writer) = &recipe.query.writer {
        writer_problems(recipe, writer, &mut reject);
    }
    for (path, teacher) in recipe.models() {
        model_problems(&path, teacher, &mut reject);
    }
    problems
}

fn network_problems(choice: &InterpreterChoice, reject: &mut impl FnMut(&str, String)) {
    let mut wrong = |text: String| reject("interpreter.network", format!("network: {text}"));
    if let Err(error) = Network::allow(&choice.network) {
        wrong(error.to_string());
    }
    if !choice.network.is_empty() && !choice.tier.supports_allowlist() {
        wrong(Tier::NO_ALLOWLIST.into());
    }
}

fn source_problems(at: &str, source: &SourceChoice, reject: &mut impl FnMut(&str, String)) {
    match source {
        SourceChoice::Local { path, .. } if path.as_os_str().is_empty() => {
            reject(&format!("{at}.path"), "path: the path is empty".into());
        }
        SourceChoice::Http { urls, .. } if urls.is_empty() => {
            reject(&format!("{at}.urls"), "urls: name at least one URL".into());
        }
        SourceChoice::Pypi { packages } if packages.is_empty() => {
            let message = "packages: name at least one package".into();
            reject(&format!("{at}.packages"), message);
        }
        SourceChoice::Github { repositories, .. } if repositories.is_empty() => {
            let message = "repositories: name at least one repository".into();
            reject(&format!("{at}.repositories"), message);
        }
        SourceChoice::Hub { datasets, .. } if datasets.is_empty() => {
            reject(
                &format!("{at}.datasets"),
                "datasets: name at least one dataset".into(),
            );
        }
        SourceChoice::Arxiv { formats, .. } if formats.is_empty() => {
            reject(
                &format!("{at}.formats"),
                "formats: name `pdf`, `source` or both".into(),
            );
        }
        SourceChoice::Arxiv {
            papers, searches, ..
        } if papers.is_empty() && searches.is_empty() => {
            reject(at, "name at least one of `papers` or `searches`".into());
        }
        SourceChoice::Kaggle {
            datasets, searches, ..
        } if datasets.is_empty() && searches.is_empty() => {
            reject(at, "name at least one of `datasets` or `searches`".into());
        }
        SourceChoice::Zenodo {
            records, searches, ..
        } if records.is_empty() && searches.is_empty() => {
            reject(at, "name at least one of `records` or `searches`".into());
        }
        _ => {}
    }
}

fn goal_problems(recipe: &Recipe, rows: u64, reject: &mut impl FnMut(&str, String)) {
    let goal = &recipe.goal;
    if let Some(asked) = goal.accept.filter(|asked| *asked as u64 > rows) {
        let message = format!(
            "accept: {asked} rows are requested, but the run makes at most {rows} attempts"
        );
        reject("goal.accept", message);
    }
    if goal.enough > recipe.rollout.samples {
        let samples = recipe.rollout.samples;
        let message = format!("enough: must not exceed `rollout.samples` ({samples})");
        reject("goal.enough", message);
    }
    if goal.repairs > 0.0 && goal.keep == Keep::All {
        let message =
            "repairs: has no effect with `keep = \"all\"`; set `goal.keep` to `turns` or `tokens`";
        reject("goal.repairs", message.into());
    }
}

/// A correction needs an attempt that it continues.
fn correction_problems(recipe: &Recipe, reject: &mut impl FnMut(&str, String)) {
    let models = recipe.models().into_iter();
    let corrections = models.filter(|(_, choice)| matches!(choice, ModelChoice::Correction { .. }));
    for (path, _) in corrections.filter(|(path, _)| path != "escalation.0") {
        let message = format!(
            "{path}: `kind = \"correction\"` continues the attempts of `teacher`, so it can only be the first entry \
             of `escalation`"
        );
        reject(&path, message);
    }
    let first = recipe.escalation.first();
    if recipe.rollout.corrections && first.is_none_or(ModelChoice::is_script) {
        let message = "corrections: the first entry of `escalation` must be a model, which continues the attempts of \
                       `teacher`; the expert does that as `kind = \"correction\"`, without this key";
        reject("rollout.corrections", message.into());
    }
}

/// A student is one model that can be served.
fn student_problems(recipe: &Recipe, reject: &mut impl FnMut(&str, String)) {
    let student = matches!(
        recipe.teacher,
        ModelChoice::Checkpoint { .. } | ModelChoice::Openai { batch: false, .. }
    );
    if !student {
        let message = "teacher: the student of `[loop]` has `kind = \"checkpoint\"` or `kind = \"openai\"` without `batch`";
        reject("teacher", message.into());
    }
    if !recipe.teacher_mix.is_empty() {
        let message =
            "teacher_mix: a loop has one student; remove it, or put a teacher into `escalation`";
        reject("teacher_mix", message.into());
    }
}

fn preference_problems(learning: &LoopChoice, reject: &mut impl FnMut(&str, String)) {
    if learning.preference.is_some() && learning.train.is_none() {
        let message = "preference: pairs are trained after `loop.train`, a training recipe; add it, or remove `loop.preference`";
        reject("loop.preference", message.into());
    }
}

/// Tasks are between two bounds only if each has several samples.
fn curriculum_problems(
    recipe: &Recipe,
    learning: &LoopChoice,
    reject: &mut impl FnMut(&str, String),
) {
    let Some(curriculum) = &learning.curriculum else {
        return;
    };
    let (above, below) = (curriculum.above, curriculum.below);
    if above >= below {
        let message =
            format!("curriculum: no pass rate is above {above} and below {below}; lower `above`");
        reject("loop.curriculum", message);
    }
    if recipe.rollout.samples < 2 {
        let message = "curriculum: with one sample a task is passed or not, and none is between; set \
                       `rollout.samples` to 2 or more";
        reject("loop.curriculum", message.into());
    }
}

/// A test split is part of the rows, and has rows of a kind only if something of that kind is held out.
fn test_share_problems(shard: &Shard, reject: &mut impl FnMut(&str, String)) {
    let Some(shares) = &shard.test_shares else {
        return;
    };
    let at = "shard.test_shares";
    let sum = shares.sum();
    if sum <= 0.0 || sum >= 1.0 {
        let message = format!(
            "test_shares: the shares add up to {sum}; their sum must be above 0 and below 1"
        );
        reject(at, message);
    }
    let rule = shard.held_out(0);
    let kinds = [
        (Unseen::Template, "templates", shard.held_out_templates > 0),
        (
            Unseen::Wordings,
            "wordings",
            rule.holds_out(Unseen::Wordings),
        ),
        (Unseen::Pairs, "pairs", rule.holds_out(Unseen::Pairs)),
        (
            Unseen::Operations,
            "operations",
            rule.holds_out(Unseen::Operations),
        ),
    ];
    for (unseen, key, held_out) in kinds {
        if shares.of(unseen) > 0.0 && !held_out {
            let message = format!(
                "{key}: no {key} are held out; set `shard.held_out_{key}`, or remove this share"
            );
            reject(&format!("{at}.{key}"), message);
        }
    }
}

fn judge_problems(grade: &Grade, reject: &mut impl FnMut(&str, String)) {
    if grade.filters.contains(&Filter::Judge) && grade.judge.is_none() {
        let message = "filters: the filter `judge` requires `grade.judge.teacher`";
        reject("grade.filters", message.into());
    }
    let judge = grade.judge.as_ref().map(|judge| &judge.teacher);
    if judge.is_some_and(ModelChoice::is_script) {
        let message =
            "teacher: the expert cannot judge; use `kind = \"openai\"` or `kind = \"embedded\"`";
        reject("grade.judge.teacher", message.into());
    }
}

fn task_set_problems(recipe: &Recipe, reject: &mut impl FnMut(&str, String)) {
    let query = &recipe.query;
    if query.task_sets.is_empty() {
        return;
    }
    let at = "query.task_sets";
    if query.writer.is_some() {
        let message =
            "task_sets: a writer makes all tasks; remove `query.writer` or `query.task_sets`";
        reject(at, message.into());
    }
    let shares = query
        .task_sets
        .iter()
        .map(TaskSetChoice::share)
        .sum::<f64>()
        + query.composed;
    if shares > 1.0 + ROUNDING {
        let message = format!(
            "task_sets: the shares add up to {shares}, with `query.composed`; they must not exceed 1, so give each set a \
             `share`"
        );
        reject(at, message);
    }
    let mut names = HashSet::new();
    for (index, set) in query.task_sets.iter().enumerate() {
        let at = format!("{at}.{index}");
        if !names.insert(set.name()) {
            let message = format!("name: two sets are called `{}`; rename one", set.name());
            reject(&at, message);
        }
        let judged = recipe.grade.filters.contains(&Filter::Judge);
        list_problems(&at, set, judged, reject);
    }
    let mut teachers = recipe.teachers().into_iter();
    if let Some((path, _)) = teachers.find(|(_, choice)| choice.is_script()) {
        let message = format!(
            "{path}: the expert has no solution for tasks of `query.task_sets`; use a model behind an endpoint \
             (`kind = \"openai\"`, which includes servers on this machine), `kind = \"checkpoint\"` or \
             `kind = \"embedded\"`"
        );
        reject(&path, message);
    }
}

fn balance_problems(query: &Query, reject: &mut impl FnMut(&str, String)) {
    let at = "query.balance.difficulties";
    let Some(weights) = query.balance.difficulty_weights() else {
        return;
    };
    for (difficulty, weight) in &query.balance.difficulties {
        if !(weight.is_finite() && *weight >= 0.0) {
            let name = difficulty.name();
            let message = format!("{name}: {weight} is not a valid weight; it must be 0 or more");
            reject(&format!("{at}.{name}"), message);
        }
    }
    let problem = if weights.values().all(|weight| *weight == 0.0) {
        "all weights are 0; give at least one difficulty a weight above 0"
    } else if query.composed == 0.0 {
        "only composed tasks have a difficulty; set `query.composed`, or remove `query.balance`"
    } else if !query.difficulties.is_empty() {
        "`query.difficulties` chooses levels as well; remove one of the two"
    } else {
        return;
    };
    reject(at, format!("difficulties: {problem}"));
}

fn list_problems(
    at: &str,
    set: &TaskSetChoice,
    judged: bool,
    reject: &mut impl FnMut(&str, String),
) {
    let TaskSetChoice::Jsonl {
        path,
        check,
        license,
        source,
        fields,
        ..
    } = set
    else {
        return;
    };
    let mut wrong =
        |key: &str, text: &str| reject(&format!("{at}.{key}"), format!("{key}: {text}"));
    if path.as_os_str().is_empty() {
        wrong("path", "the path is empty");
    }
    let blank = |value: &Option<String>| value.as_ref().is_none_or(|text| text.trim().is_empty());
    if blank(license) && fields.license.is_none() {
        let text = "every row states its license; set `license`, or name the field that holds it in `fields.license`";
        wrong("license", text);
    }
    if blank(source) && fields.source.is_none() {
        let text =
            "every row states where it comes from; set `source`, such as a URL, or `fields.source`";
        wrong("source", text);
    }
    if fields.conversation.is_some() && fields.question != TaskSetFields::default().question {
        let text = "the question is the first turn of `fields.conversation`; remove one of the two";
        wrong("fields", text);
    }
    if fields.setup.is_some() && *check != AnswerCheck::Tests {
        wrong(
            "fields",
            "`setup` belongs to `check = \"tests\"`; remove it",
        );
    }
    if *check == AnswerCheck::Judge && !judged {
        let text = "tasks without an executed check need a judge; set `grade.judge`, and add `judge` to `grade.filters`";
        wrong("check", text);
    }
}

fn writer_problems(recipe: &Recipe, writer: &WriterChoice, reject: &mut impl FnMut(&str, String)) {
    let expert = ModelChoice::is_script;
    for (name, _) in writer.models().filter(|(_, choice)| expert(choice)) {
        let message = format!("{name}: the expert cannot write tasks; use a model");
        reject(&format!("query.writer.{name}"), message);
    }
    let embeddings = writer.embeddings.as_ref().map(|e| &e.endpoint);
    if let Some(ModelChoice::Embedded { .. }) = embeddings {
        let message = "embeddings.endpoint: must have `kind = \"openai\"`";
        reject("query.writer.embeddings.endpoint", message.into());
    }
    let mut teachers = recipe.teachers().into_iter();
    if let Some((path, _)) = teachers.find(|(_, choice)| expert(choice)) {
        let message =
            "the expert can only solve tasks of the task library; use a model with `query.writer`";
        reject(&path, format!("{path}: {message}"));
    }
    let judged = recipe.grade.filters.contains(&Filter::Judge);
    if writer.checks != ProposedChecks::Required && !judged {
        let message = "checks: a task without a check needs a judge; add `judge` to `grade.filters`, or \
                       set `checks = \"required\"`";
        reject("query.writer.checks", message.into());
    }
    for (path, weight) in writer.balance.weights() {
        if !(weight.is_finite() && weight >= 0.0) {
            let message = format!("{path}: {weight} is not a valid weight; it must be 0 or more");
            reject(&format!("query.writer.balance.{path}"), message);
        }
    }
}

/// Checks keys, headers and batches of an endpoint. A secret in a recipe would end up in the run folder.
fn model_problems(at: &str, teacher: &ModelChoice, reject: &mut impl FnMut(&str, String)) {
    let ModelChoice::Openai {
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
        let is_teacher = ["grade.", "query."]
            .iter()
            .all(|part| !at.starts_with(part));
        let limited = requests_per_minute.is_some() || tokens_per_minute.is_some();
        let message = match (is_teacher, more_keys_env.is_empty(), limited) {
            (false, ..) => {
                "only teachers (`teacher`, `teacher_mix`, `escalation`) can use the Batch API"
            }
            (_, false, _) => "a batch belongs to one API key; remove `more_keys_env`",
            (.., true) => {
                "the Batch API has its own limits; remove `requests_per_minute` and `tokens_per_minute`"
            }
            _ => "",
        };
        if !message.is_empty() {
            reject(&format!("{at}.batch"), format!("batch: {message}"));
        }
    }
    let keys: HashSet<_> = key_env.iter().chain(more_keys_env).collect();
    if keys.len() <= more_keys_env.len() {
        let message = match key_env {
            None => "more_keys_env: set `key_env` to the variable of the first key",
            Some(_) => "more_keys_env: a variable is listed twice",
        };
        if !more_keys_env.is_empty() {
            reject(&format!("{at}.more_keys_env"), message.into());
        }
    }
    for (name, value) in headers {
        let lower = name.to_ascii_lowercase();
        let secret = ["auth", "key", "token", "secret", "cookie"];
        if secret.iter().any(|word| lower.contains(word)) && !value.starts_with('$') {
            reject(
                &format!("{at}.headers.{name}"),
                format!(
                    "{name}: a secret does not belong in a recipe; write `$NAME` to read the environment variable NAME"
                ),
            );
        }
    }
}
