//! What needs no model: is a draft well-formed, does it need its keyword, is what it names there?
//!
//! Rules refuse what is surely wrong and leave the rest to the checkers: where a profile shows only a part
//! of a file (further sheets, headings beyond the first twenty), what it does not show is not refused.

use std::path::{Component, Path};
use std::sync::LazyLock;

use pybench::run::closest;
use pybench::task::{FileKind, Language, Profile, SourceFile, TableProfile};
use pybench_datasets::text::is_ideograph;
use regex::Regex;

use super::answer::Draft;
use super::named::{self, compiled};
use crate::library::Keyword;

/// Headings that a profile shows at most.
const MOST_HEADINGS: usize = 20;
/// Bytes of an output's path.
const MOST_PATH: usize = 200;

/// Which part of the checks a problem belongs to.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The draft itself: language, outputs, paths.
    Form,
    /// The keyword's packages are not needed.
    KeywordRule,
    /// Something named is not in the files.
    ContentRule,
    /// The keyword checker said so.
    KeywordChecker,
    /// The content checker said so.
    ContentChecker,
}

/// Something wrong with a draft, in words for its writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Where it belongs.
    pub(crate) part: Part,
    /// What is wrong.
    pub(crate) text: String,
}

impl Problem {
    /// A problem of that part.
    pub(crate) fn new(part: Part, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { part, text }
    }
}

/// Everything that rules find wrong with a draft.
pub(crate) fn problems(
    draft: &Draft,
    keyword: &Keyword,
    language: Language,
    files: &[&SourceFile],
) -> Vec<Problem> {
    let form = other_language(&draft.query, language).into_iter();
    let form = form.chain(outputs(&draft.query, &draft.outputs));
    let form = form.map(|text| Problem::new(Part::Form, text));
    let content = content(draft, files).into_iter();
    let content = content.map(|text| Problem::new(Part::ContentRule, text));
    let keyword = needed(&draft.sketch, keyword);
    let keyword = keyword.map(|text| Problem::new(Part::KeywordRule, text));
    form.chain(keyword).chain(content).collect()
}

/// Why a query is surely not in its language: names and paths may be of any.
fn other_language(query: &str, language: Language) -> Option<String> {
    let letters = query.chars().filter(|c| c.is_alphabetic()).count();
    let chinese = query.chars().filter(|c| is_ideograph(*c)).count();
    let (wrong, name) = match language {
        Language::En => (chinese * 2 > letters, "English"),
        Language::Zh => (chinese * 10 < letters, "Chinese"),
    };
    wrong.then(|| format!("the query is to be written in {name}"))
}

/// Whatever a query calls `output/…`.
static OUTPUT: LazyLock<Option<Regex>> =
    LazyLock::new(|| compiled(r"(?:\./)?(?-u:\b)output/[^\s`'\x22“”‘’「」，。；、)）>\],;]*"));

/// What is wrong with the files that a query asks for.
pub(crate) fn outputs(query: &str, outputs: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, path) in outputs.iter().enumerate() {
        let plain = |c: Component<'_>| matches!(c, Component::Normal(_));
        let odd = |c: char| c.is_control() || c == '\\';
        let safe = path.starts_with("output/")
            && path.len() <= MOST_PATH
            && !path.ends_with('/')
            && Path::new(path).components().all(plain)
            && !path.contains("//")
            && !path.contains("/./")
            && !path.contains(odd);
        if !safe {
            problems.push(format!(
                "the output `{path}` is no plain path below output/, such as `output/result.csv`"
            ));
        } else if !query.contains(path.as_str()) {
            problems.push(format!(
                "the query does not say that a file is saved as `./{path}`"
            ));
        } else if outputs[..at].contains(path) {
            problems.push(format!("the output `{path}` is listed twice"));
        }
    }
    for found in OUTPUT.iter().flat_map(|pattern| pattern.find_iter(query)) {
        let path = found.as_str().trim_start_matches("./");
        let path = path.trim_end_matches(['.', ':', '/', '?', '!']);
        // A folder that is spoken of is not a file that is asked for, and Chinese goes on without a space.
        let goes_on = |rest: &str| rest.starts_with(|c: char| !c.is_ascii());
        let listed = outputs.iter().any(|output| {
            output == path
                || path.strip_prefix(output.as_str()).is_some_and(goes_on)
                || output
                    .strip_prefix(path)
                    .is_some_and(|rest| rest.starts_with('/'))
        });
        if path != "output" && !listed {
            problems.push(format!(
                "the query names `{path}`, which is not among `outputs`"
            ));
        }
    }
    problems.dedup();
    problems
}

/// Packages of Python itself: that one is imported says nothing.
const STANDARD: [&str; 11] = [
    "argparse",
    "ast",
    "collections",
    "csv",
    "itertools",
    "json",
    "math",
    "re",
    "sqlite3",
    "sys",
    "os",
];

/// What is imported where a package is used.
fn module(package: &str) -> &str {
    match package {
        "pillow" => "PIL",
        "opencv-python" => "cv2",
        "scikit-learn" => "sklearn",
        "beautifulsoup4" => "bs4",
        "python-docx" => "docx",
        "fpdf2" => "fpdf",
        "pyyaml" => "yaml",
        other => other,
    }
}

/// Why a solution that goes like the sketch does not need the keyword's packages.
fn needed(sketch: &str, keyword: &Keyword) -> Option<String> {
    let packages = &keyword.packages;
    if packages
        .iter()
        .all(|package| STANDARD.contains(&&**package))
    {
        return None;
    }
    let used = used_modules(sketch);
    let uses = |package: &String| used.iter().any(|name| name == module(package));
    if packages.iter().any(uses) {
        return None;
    }
    let modules: Vec<_> = packages.iter().map(|package| module(package)).collect();
    Some(format!(
        "the sketch uses none of {}, which the keyword `{}` is about: the task must need one of them",
        modules.join(", "),
        keyword.name
    ))
}

static IMPORT: LazyLock<Option<Regex>> = LazyLock::new(|| compiled(r"(?m)^\s*import\s+([^#\n]+)"));
static FROM: LazyLock<Option<Regex>> =
    LazyLock::new(|| compiled(r"(?m)^\s*from\s+([A-Za-z_]\w*)[\w.]*\s+import\s+([^#\n]+)"));

/// Modules that are imported and whose names occur again.
fn used_modules(code: &str) -> Vec<String> {
    let (Some(import), Some(from)) = (&*IMPORT, &*FROM) else {
        return Vec::new();
    };
    let other = |line: &&str| !import.is_match(line) && !from.is_match(line);
    let rest: Vec<&str> = code.lines().filter(other).collect();
    let rest = rest.join("\n");
    let occurs = |name: &str| {
        let mut words = rest.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        name == "*" || words.any(|word| word == name)
    };
    let bound = |part: &str| {
        let name = part.split_whitespace().last().unwrap_or_default();
        name.trim_matches(['(', ')']).to_owned()
    };
    let mut used = Vec::new();
    for found in import.captures_iter(code) {
        for part in found[1].split(',') {
            let whole = part.split_whitespace().next().unwrap_or_default();
            let top = whole.split('.').next().unwrap_or_default();
            let name = bound(part);
            if occurs(name.split('.').next().unwrap_or_default()) {
                used.push(top.to_owned());
            }
        }
    }
    for found in from.captures_iter(code) {
        if found[2].split(',').any(|part| occurs(&bound(part))) {
            used.push(found[1].to_owned());
        }
    }
    used
}

/// What is named and not there.
fn content(draft: &Draft, files: &[&SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    if !files.is_empty() && !files.iter().any(|file| draft.sketch.contains(&file.name)) {
        problems.push(format!(
            "the sketch opens none of the files: the task must rest on ./data/{}",
            files[0].name
        ));
    }
    let used = draft.uses.iter();
    problems.extend(used.filter_map(|name| missing(name, files)));
    problems.extend(unknown(&draft.query, &draft.outputs, &draft.makes, files));
    problems.sort();
    problems.dedup();
    problems
}

/// What a query names and what is neither in the files nor made or asked for by it: columns, files, pages
/// and frames.
pub(crate) fn unknown(
    query: &str,
    outputs: &[String],
    makes: &[String],
    files: &[&SourceFile],
) -> Vec<String> {
    let columns = named::columns(query).into_iter();
    let columns = columns.filter(|name| !makes.iter().any(|made| made == name));
    let mut problems: Vec<_> = columns.filter_map(|name| missing(name, files)).collect();
    problems.extend(unknown_files(query, outputs, makes, files));
    problems.extend(beyond(query, files));
    problems
}

/// Why a name is in none of the files; `None` where it is, or where it cannot be told.
fn missing(name: &str, files: &[&SourceFile]) -> Option<String> {
    let mut known: Vec<&str> = Vec::new();
    for file in files {
        match &file.profile {
            Profile::Table(table) => {
                if shown_in_part(table) {
                    return None;
                }
                known.extend(table.columns.iter().map(|column| column.name.as_str()));
                known.extend(table.tables.iter().map(String::as_str));
            }
            Profile::Document(document) => {
                let whole = document.excerpt.chars().count() as u64 >= document.characters;
                if !whole
                    || document.headings.len() >= MOST_HEADINGS
                    || document.excerpt.contains(name)
                {
                    return None;
                }
                known.extend(document.headings.iter().map(String::as_str));
            }
            Profile::Image(_) | Profile::Audio(_) | Profile::Broken { .. } => {}
        }
        known.push(&file.name);
    }
    if known.contains(&name) || known.contains(&name.trim_start_matches("./data/")) {
        return None;
    }
    let hint = closest(name, known.iter().copied());
    let hint = hint.map(|known| format!("; did you mean `{known}`?"));
    let hint = hint.unwrap_or_default();
    Some(format!("`{name}` is not in the files{hint}"))
}

/// Whether a table has sheets that its profile does not show.
fn shown_in_part(table: &TableProfile) -> bool {
    table.tables.len() > 1
}

/// Files that a query names and that are neither given nor asked for.
fn unknown_files(
    query: &str,
    outputs: &[String],
    makes: &[String],
    files: &[&SourceFile],
) -> Vec<String> {
    // A name with a space is found by its end, one after Chinese with what stands before it.
    let ends = |whole: &str, name: &str| whole.ends_with(name) || name.ends_with(whole);
    let known = |name: &str| {
        files.iter().any(|file| ends(&file.name, name))
            || outputs.iter().any(|path| ends(path, name))
            || makes.iter().any(|made| ends(made, name))
    };
    let named = named::files(query);
    let unknown = named.into_iter().filter(|name| !known(name));
    let text = |name: &str| {
        format!("the query names the file `{name}`, which is neither given nor asked for")
    };
    unknown.map(text).collect()
}

/// Pages and frames beyond the last one.
fn beyond(query: &str, files: &[&SourceFile]) -> Vec<String> {
    let pages = files.iter().filter_map(|file| match &file.profile {
        Profile::Document(document) if file.kind == FileKind::Pdf => document.pages,
        _ => None,
    });
    let frames = files.iter().filter_map(|file| match &file.profile {
        Profile::Image(image) => Some(u64::from(image.frames)),
        _ => None,
    });
    let mut problems = Vec::new();
    let things = [
        ("page", pages.max(), named::pages(query)),
        ("frame", frames.max(), named::frames(query)),
    ];
    for (what, last, named) in things {
        if let (Some(last), Some(most)) = (last, named.into_iter().max())
            && most > last
        {
            problems.push(format!(
                "the query names {what} {most}, but there are only {last}"
            ));
        }
    }
    problems
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
