//! Rules that check a draft without a model: is it well-formed, does it need its keyword, do the names in it
//! exist?
//!
//! Rules reject only certain mistakes and leave the rest to the checkers. If a profile shows only part of a
//! file (further sheets, headings beyond the first twenty), names that it does not show are accepted.

use std::path::{Component, Path};
use std::sync::LazyLock;

use pybench_datasets::text::is_ideograph;
use pybench_run::closest;
use pybench_types::task::{FileKind, Language, Profile, SourceFile, TableProfile};
use regex::Regex;

use super::answer::Draft;
use super::reference_check::{self, compiled};
use pybench_library::Keyword;

/// Maximum number of headings in a profile.
const MAX_HEADINGS: usize = 20;
/// Maximum bytes of an output path.
const MAX_PATH: usize = 200;

/// The step that rejected a draft.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum RejectedBy {
    /// Rule: language, outputs, paths.
    Form,
    /// Rule: the keyword's packages are not needed.
    KeywordRule,
    /// Rule: a name is not in the files.
    ContentRule,
    /// The keyword checker (a model).
    KeywordChecker,
    /// The content checker (a model).
    ContentChecker,
}

/// An objection to a draft; the text is sent to the generator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DraftProblem {
    pub(crate) rejected_by: RejectedBy,
    pub(crate) text: String,
}

impl DraftProblem {
    pub(crate) fn new(rejected_by: RejectedBy, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { rejected_by, text }
    }
}

/// Applies all rules to a draft.
pub(crate) fn problems(
    draft: &Draft,
    keyword: &Keyword,
    language: Language,
    files: &[&SourceFile],
) -> Vec<DraftProblem> {
    let form = wrong_language(&draft.query, language).into_iter();
    let form = form.chain(outputs(&draft.query, &draft.outputs));
    let form = form.map(|text| DraftProblem::new(RejectedBy::Form, text));
    let missing_names = missing_names(draft, files).into_iter();
    let missing_names = missing_names.map(|text| DraftProblem::new(RejectedBy::ContentRule, text));
    let keyword = unused_packages(&draft.sketch, keyword);
    let keyword = keyword.map(|text| DraftProblem::new(RejectedBy::KeywordRule, text));
    form.chain(keyword).chain(missing_names).collect()
}

/// Rejects a query that is certainly in another language. Names and paths may be in any language.
fn wrong_language(query: &str, language: Language) -> Option<String> {
    let letters = query.chars().filter(|c| c.is_alphabetic()).count();
    let chinese = query.chars().filter(|c| is_ideograph(*c)).count();
    let (wrong, name) = match language {
        Language::En => (chinese * 2 > letters, "English"),
        Language::Zh => (chinese * 10 < letters, "Chinese"),
    };
    wrong.then(|| format!("the query is to be written in {name}"))
}

/// Matches the paths below `output/` in a query.
static OUTPUT: LazyLock<Option<Regex>> =
    LazyLock::new(|| compiled(r"(?:\./)?(?-u:\b)output/[^\s`'\x22“”‘’「」，。；、)）>\],;]*"));

/// Problems with the outputs that a query requests.
pub(crate) fn outputs(query: &str, outputs: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    for (at, path) in outputs.iter().enumerate() {
        let plain = |c: Component<'_>| matches!(c, Component::Normal(_));
        let odd = |c: char| c.is_control() || c == '\\';
        let safe = path.starts_with("output/")
            && path.len() <= MAX_PATH
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
        // A mentioned folder is not a requested file, and Chinese text continues without a space.
        let chinese_follows = |rest: &str| rest.starts_with(|c: char| !c.is_ascii());
        let listed = outputs.iter().any(|output| {
            output == path
                || path
                    .strip_prefix(output.as_str())
                    .is_some_and(chinese_follows)
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

/// Modules of Python itself. Importing one of them proves nothing about the task.
const STANDARD_MODULES: [&str; 11] = [
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

/// The module name of a package.
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

/// Rejects a draft whose sketch uses none of the keyword's packages.
fn unused_packages(sketch: &str, keyword: &Keyword) -> Option<String> {
    let packages = &keyword.packages;
    if packages
        .iter()
        .all(|package| STANDARD_MODULES.contains(&&**package))
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

/// Modules that the code imports and then uses.
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

/// Names in the draft that do not exist.
fn missing_names(draft: &Draft, files: &[&SourceFile]) -> Vec<String> {
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

/// Columns, files, pages and frames in a query that are neither in the files nor created or requested by the
/// query.
pub(crate) fn unknown(
    query: &str,
    outputs: &[String],
    makes: &[String],
    files: &[&SourceFile],
) -> Vec<String> {
    let columns = reference_check::columns(query).into_iter();
    let columns = columns.filter(|name| !makes.iter().any(|made| made == name));
    let mut problems: Vec<_> = columns.filter_map(|name| missing(name, files)).collect();
    problems.extend(unknown_files(query, outputs, makes, files));
    problems.extend(beyond_last(query, files));
    problems
}

/// Reports a name that is in none of the files; `None` if it is in one, or if the profiles cannot tell.
fn missing(name: &str, files: &[&SourceFile]) -> Option<String> {
    let mut known: Vec<&str> = Vec::new();
    for file in files {
        match &file.profile {
            Profile::Table(table) => {
                if has_hidden_sheets(table) {
                    return None;
                }
                known.extend(table.columns.iter().map(|column| column.name.as_str()));
                known.extend(table.tables.iter().map(String::as_str));
            }
            Profile::Document(document) => {
                let whole = document.excerpt.chars().count() as u64 >= document.characters;
                if !whole
                    || document.headings.len() >= MAX_HEADINGS
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

/// Whether the table has sheets that its profile does not show.
fn has_hidden_sheets(table: &TableProfile) -> bool {
    table.tables.len() > 1
}

/// Files in a query that are neither inputs nor outputs.
fn unknown_files(
    query: &str,
    outputs: &[String],
    makes: &[String],
    files: &[&SourceFile],
) -> Vec<String> {
    // The pattern finds only the end of a name with a space, and adds the Chinese text before a name.
    let ends = |whole: &str, name: &str| whole.ends_with(name) || name.ends_with(whole);
    let known = |name: &str| {
        files.iter().any(|file| ends(&file.name, name))
            || outputs.iter().any(|path| ends(path, name))
            || makes.iter().any(|made| ends(made, name))
    };
    let named = reference_check::files(query);
    let unknown = named.into_iter().filter(|name| !known(name));
    let text = |name: &str| {
        format!("the query names the file `{name}`, which is neither given nor asked for")
    };
    unknown.map(text).collect()
}

/// Page and frame numbers beyond the last one.
fn beyond_last(query: &str, files: &[&SourceFile]) -> Vec<String> {
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
        ("page", pages.max(), reference_check::pages(query)),
        ("frame", frames.max(), reference_check::frames(query)),
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
