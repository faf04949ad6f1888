//! What models are asked: the prompts of `pipelines/prompts/query_*.jinja` and what stands in them.

use std::sync::LazyLock;

use minijinja::{Environment, Value, context};
use pybench::id::Digest;
use pybench::run::{Failure, FailureKind};
use pybench::task::{Category, Difficulty, Language, SourceFile};
use pybench::text::{cut, line as one_line, visible};
use serde_json::Value as Json;

use super::answer::{Answer, ContentOpinion, Draft, KeywordOpinion};
use super::idea::Idea;
use super::rules::Problem;
use crate::library::Keyword;

const WRITE: &str = include_str!("../../../prompts/query_write.jinja");
const REVISE: &str = include_str!("../../../prompts/query_revise.jinja");
const AGAIN: &str = include_str!("../../../prompts/query_again.jinja");
const KEYWORD: &str = include_str!("../../../prompts/query_keyword.jinja");
const CONTENT: &str = include_str!("../../../prompts/query_content.jinja");
const MEND: &str = include_str!("../../../prompts/query_mend.jinja");
const CHECK: &str = include_str!("../../../prompts/query_check.jinja");

/// Characters of a value of a profile.
const MOST_VALUE: usize = 500;
/// Entries of a list of a profile.
const MOST_ENTRIES: usize = 60;
/// Characters of the description of all files.
const MOST_FILES: usize = 12_000;
/// Characters of one problem that a writer is told.
const MOST_PROBLEM: usize = 300;
/// Problems that a writer is told at once.
const MOST_PROBLEMS: usize = 8;
/// Tokens of what a model is told of its answer, at most: characters of four bytes, and the words around.
pub(super) const MOST_TOLD: u64 = (4 * (MOST_PROBLEM + 16) * MOST_PROBLEMS) as u64 + 1000;

/// What the generator is asked first.
pub(super) fn write(idea: &Idea<'_>) -> Result<String, Failure> {
    let files = describe(&idea.files);
    let paths = idea
        .files
        .iter()
        .map(|file| format!("./data/{}", file.name));
    let paths: Vec<String> = paths.collect();
    let (difficulty, meaning) = difficulty(idea.difficulty);
    let about = about(idea.keyword);
    let context = context! {
        mark => mark(&[&files]), files => &*files, paths => paths.join(", "), difficulty, meaning,
        language => language(idea.language), schema => &**DRAFT, ..about
    };
    render(WRITE, context)
}

/// What the generator is told of a draft that does not hold.
pub(super) fn revise(idea: &Idea<'_>, problems: &[Problem]) -> Result<String, Failure> {
    let problems = problems.iter().take(MOST_PROBLEMS);
    let problems: Vec<String> = problems.map(|problem| told(&problem.text)).collect();
    render(
        REVISE,
        context! { problems, keyword => &*idea.keyword.name },
    )
}

/// What a model is told whose reply could not be read.
pub(super) fn again(why: &str) -> Result<String, Failure> {
    render(AGAIN, context! { why => told(why) })
}

/// What the keyword checker is asked.
pub(super) fn keyword(query: &str, keyword: &Keyword) -> Result<String, Failure> {
    let context = context! {
        mark => mark(&[query]), query, schema => &**NEEDED, ..about(keyword)
    };
    render(KEYWORD, context)
}

/// What the content checker is asked.
pub(super) fn content(query: &str, files: &[&SourceFile]) -> Result<String, Failure> {
    let files = described(files);
    let context = context! {
        mark => mark(&[query, &files]), query, files => &*files, schema => &**SUPPORTED,
    };
    render(CONTENT, context)
}

/// What the generator is asked for a check, in a conversation of its own; `schema` is that of its answer.
pub(super) fn check(
    query: &str,
    outputs: &[String],
    files: &[&SourceFile],
    schema: &Json,
) -> Result<String, Failure> {
    let files = described(files);
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

/// What the generator is told of a check that does not survive.
pub(super) fn mend(problem: &str) -> Result<String, Failure> {
    render(MEND, context! { problem => told(problem) })
}

/// A problem as a model is told of it: one line, bounded.
fn told(problem: &str) -> String {
    cut(&one_line(problem), MOST_PROBLEM)
}

fn render(prompt: &str, context: Value) -> Result<String, Failure> {
    let text = Environment::new().render_str(prompt, context);
    text.map_err(|error| Failure::new(FailureKind::Internal, format!("a prompt: {error:#}")))
}

static DRAFT: LazyLock<String> = LazyLock::new(|| Draft::schema().to_string());
static NEEDED: LazyLock<String> = LazyLock::new(|| KeywordOpinion::schema().to_string());
static SUPPORTED: LazyLock<String> = LazyLock::new(|| ContentOpinion::schema().to_string());

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

/// A mark that the material cannot contain, since it follows from all of it.
fn mark(material: &[&str]) -> String {
    format!("=={}==", Digest::of_json(&material).short())
}

fn described(files: &[&SourceFile]) -> String {
    match files {
        [] => "[none: the task needs no file]".to_owned(),
        some => describe(some),
    }
}

/// Files as their profiles show them, one line of JSON each, within bounds.
pub(super) fn describe(files: &[&SourceFile]) -> String {
    let lines = files.iter().map(|file| {
        let mut shown = serde_json::to_value(&file.profile).unwrap_or_default();
        bound(&mut shown);
        let name = visible(&file.name);
        let described = serde_json::json!({"name": name, "type": file.kind, "bytes": file.size});
        let most = MOST_FILES / files.len().max(1);
        cut(&format!("{described} {shown}"), most)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Cuts what is long; nothing is put in that a file could hold as well.
fn bound(value: &mut Json) {
    match value {
        Json::String(text) => *text = visible(&cut(text, MOST_VALUE)),
        Json::Array(items) => {
            let more = items.len().saturating_sub(MOST_ENTRIES);
            items.truncate(MOST_ENTRIES);
            items.iter_mut().for_each(bound);
            if more > 0 {
                items.push(serde_json::json!({ "more": more }));
            }
        }
        Json::Object(map) => map.values_mut().for_each(bound),
        _ => {}
    }
}
