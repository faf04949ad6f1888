//! Renders the prompts of the query writer from the templates in `pipelines/query/prompts`.

use std::sync::LazyLock;

use minijinja::{Environment, Value, context};
use pybench_run::{Failure, FailureKind};
use pybench_types::id::Digest;
use pybench_types::task::{Category, Difficulty, Language, SourceFile};
use pybench_types::text::{cut, line as one_line, visible};
use serde_json::Value as Json;

use super::answer::{ContentOpinion, Draft, KeywordOpinion, ModelAnswer};
use super::rules::DraftProblem;
use super::task_seed::TaskSeed;
use pybench_library::Keyword;

const WRITE: &str = include_str!("../../prompts/write.jinja");
const REVISE: &str = include_str!("../../prompts/revise.jinja");
const AGAIN: &str = include_str!("../../prompts/again.jinja");
const KEYWORD: &str = include_str!("../../prompts/keyword.jinja");
const CONTENT: &str = include_str!("../../prompts/content.jinja");
const FIX: &str = include_str!("../../prompts/correct.jinja");
const CHECK: &str = include_str!("../../prompts/check.jinja");

/// Maximum characters of one profile value.
const MAX_VALUE: usize = 500;
/// Maximum entries of one profile list.
const MAX_ENTRIES: usize = 60;
/// Maximum characters of all file descriptions together.
const MAX_FILES: usize = 12_000;
/// Maximum characters of one problem in a prompt.
const MAX_PROBLEM: usize = 300;
/// Maximum problems in one prompt.
const MAX_PROBLEMS: usize = 8;
/// Maximum tokens of the feedback on one answer: four bytes per character, plus the text of the prompt.
pub(super) const MAX_FEEDBACK: u64 = (4 * (MAX_PROBLEM + 16) * MAX_PROBLEMS) as u64 + 1000;

/// The first prompt for the generator.
pub(super) fn write(seed: &TaskSeed<'_>) -> Result<String, Failure> {
    let files = describe(&seed.files);
    let paths = seed
        .files
        .iter()
        .map(|file| format!("./data/{}", file.name));
    let paths: Vec<String> = paths.collect();
    let (difficulty, meaning) = difficulty(seed.difficulty);
    let about = about(seed.keyword);
    let context = context! {
        mark => mark(&[&files]), files => &*files, paths => paths.join(", "), difficulty, meaning,
        language => language(seed.language), schema => &**DRAFT_SCHEMA, ..about
    };
    render(WRITE, context)
}

/// The prompt that asks the generator to revise a rejected draft.
pub(super) fn revise(seed: &TaskSeed<'_>, problems: &[DraftProblem]) -> Result<String, Failure> {
    let problems = problems.iter().take(MAX_PROBLEMS);
    let problems: Vec<String> = problems
        .map(|problem| feedback_line(&problem.text))
        .collect();
    render(
        REVISE,
        context! { problems, keyword => &*seed.keyword.name },
    )
}

/// The prompt after a reply that could not be parsed.
pub(super) fn again(why: &str) -> Result<String, Failure> {
    render(AGAIN, context! { why => feedback_line(why) })
}

/// The prompt for the keyword checker.
pub(super) fn keyword(query: &str, keyword: &Keyword) -> Result<String, Failure> {
    let context = context! {
        mark => mark(&[query]), query, schema => &**KEYWORD_SCHEMA, ..about(keyword)
    };
    render(KEYWORD, context)
}

/// The prompt for the content checker.
pub(super) fn content(query: &str, files: &[&SourceFile]) -> Result<String, Failure> {
    let files = describe_or_none(files);
    let context = context! {
        mark => mark(&[query, &files]), query, files => &*files, schema => &**CONTENT_SCHEMA,
    };
    render(CONTENT, context)
}

/// The prompt that asks the generator for a check, in a separate conversation. `schema` describes the answer.
pub(super) fn check(
    query: &str,
    outputs: &[String],
    files: &[&SourceFile],
    schema: &Json,
) -> Result<String, Failure> {
    let files = describe_or_none(files);
    let outputs = match outputs {
        [] => "[none: the answer is in words]".to_owned(),
        some => some.join("\n"),
    };
    let context = context! {
        mark => mark(&[query, &files, &outputs]), query, files => &*files, outputs => &*outputs,
        schema => schema.to_string(),
    };
    render(CHECK, context)
}

/// The prompt that asks the generator to fix a check that was rejected.
pub(super) fn fix(problem: &str) -> Result<String, Failure> {
    render(FIX, context! { problem => feedback_line(problem) })
}

/// A problem as one line of limited length.
fn feedback_line(problem: &str) -> String {
    cut(&one_line(problem), MAX_PROBLEM)
}

fn render(prompt: &str, context: Value) -> Result<String, Failure> {
    let text = Environment::new().render_str(prompt, context);
    text.map_err(|error| {
        Failure::new(
            FailureKind::Internal,
            format!("cannot render a prompt: {error:#}"),
        )
    })
}

static DRAFT_SCHEMA: LazyLock<String> = LazyLock::new(|| Draft::schema().to_string());
static KEYWORD_SCHEMA: LazyLock<String> = LazyLock::new(|| KeywordOpinion::schema().to_string());
static CONTENT_SCHEMA: LazyLock<String> = LazyLock::new(|| ContentOpinion::schema().to_string());

fn about(keyword: &Keyword) -> Value {
    let category = match keyword.category {
        Category::Chart => "tables and charts",
        Category::Text => "text",
        Category::ImageAudio => "pictures and sound",
        Category::Math => "mathematics",
        Category::Software => "software",
    };
    context! {
        keyword => &*keyword.name, category, subcategory => &*keyword.subcategory,
        packages => keyword.packages.join(" or "),
    }
}

fn language(language: Language) -> &'static str {
    match language {
        Language::En => "English",
        Language::Zh => "Chinese",
    }
}

fn difficulty(difficulty: Difficulty) -> (&'static str, &'static str) {
    match difficulty {
        Difficulty::Easy => ("easy", "one step leads to the result"),
        Difficulty::Medium => ("of medium difficulty", "a few steps build on one another"),
        Difficulty::Hard => (
            "hard",
            "it takes several steps, and something has to be found out from the data first",
        ),
    }
}

/// A delimiter that the material cannot contain, because it is a digest of the material.
fn mark(material: &[&str]) -> String {
    format!("=={}==", Digest::of_json(&material).short())
}

fn describe_or_none(files: &[&SourceFile]) -> String {
    match files {
        [] => "[none: the task needs no file]".to_owned(),
        some => describe(some),
    }
}

/// Describes files by their profiles, one line of JSON each, within the limits above.
pub(super) fn describe(files: &[&SourceFile]) -> String {
    let lines = files.iter().map(|file| {
        let mut profile = serde_json::to_value(&file.profile).unwrap_or_default();
        truncate_values(&mut profile);
        let name = visible(&file.name);
        let header = serde_json::json!({"name": name, "type": file.kind, "bytes": file.size});
        let most = MAX_FILES / files.len().max(1);
        cut(&format!("{header} {profile}"), most)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Truncates long strings and lists. Inserts no text that could also come from a file.
fn truncate_values(value: &mut Json) {
    match value {
        Json::String(text) => *text = visible(&cut(text, MAX_VALUE)),
        Json::Array(items) => {
            let more = items.len().saturating_sub(MAX_ENTRIES);
            items.truncate(MAX_ENTRIES);
            items.iter_mut().for_each(truncate_values);
            if more > 0 {
                items.push(serde_json::json!({ "more": more }));
            }
        }
        Json::Object(map) => map.values_mut().for_each(truncate_values),
        _ => {}
    }
}
