//! The task library: templates that generate tasks, solve them with a scripted expert and check solutions.
//!
//! Each TOML file under `pipelines/library/templates` is one template; `docs/task-library.md` introduces
//! the library and `docs/writing-templates.md` is the reference of the file format. [`Library::embedded`] is
//! the library that comes with the crate.

mod abilities;
pub mod audit;
pub mod command;
mod draft;
mod expert;
pub mod export;
mod fit;
#[cfg(test)]
mod fuzz;
mod keywords;
mod make;
pub mod problem;
mod reader;
mod render;
pub mod requirement;
pub mod rewards;
mod script;
mod skeleton;
mod slots;
mod split;
mod split_file;
pub mod template;
#[cfg(test)]
pub(crate) mod tests;
mod validate;

pub use render::value as template_value;

use std::collections::BTreeMap;
use std::path::Path;

use pybench_run::RunError;

pub use abilities::Ability;
pub use draft::{Draft, DraftError};
pub use expert::observations;
pub use expert::{EXPERT, Expert, faults};
pub use keywords::{Keyword, Keywords};
pub use make::{MakeError, TaskKey};
pub use problem::{LibraryError, Problem};
pub use script::{Deviation, ExpertAction, Script, ScriptError};
pub use template::Template;

use problem::TomlSource;
use pybench_types::id::Digest;

/// `(path below pipelines/library/, text)` of every TOML file of the library. `None` in a debug build, which reads the
/// files of the checkout.
static EMBEDDED: Option<&[(&str, &str)]> = include!(concat!(env!("OUT_DIR"), "/library.rs"));

const KEYWORDS: &str = "keywords.toml";
const ABILITIES: &str = "abilities.toml";
const TEMPLATES: &str = "templates/";
/// Largest TOML file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// A validated library: keywords, templates, and the abilities that they cover.
#[derive(Clone, Debug)]
pub struct Library {
    keywords: Keywords,
    templates: BTreeMap<String, Template>,
    abilities: Vec<Ability>,
}

/// Digest of the text of each template of the embedded library, by template. The record of the last full audit is
/// compared with it.
///
/// # Errors
/// As [`Library::embedded`].
pub fn digests() -> Result<BTreeMap<String, String>, LibraryError> {
    let files = embedded_files()?;
    let templates = files.iter().filter(|(name, _)| name.starts_with(TEMPLATES));
    let digest = |(name, text): &(String, String)| {
        let file = name.rsplit('/').next().unwrap_or(name);
        let digest = Digest::of_bytes(text.as_bytes());
        (
            file.trim_end_matches(".toml").to_owned(),
            digest.short().to_owned(),
        )
    };
    Ok(templates.map(digest).collect())
}

/// The embedded library's files, from the checkout in a debug build.
fn embedded_files() -> Result<Vec<(String, String)>, LibraryError> {
    if let Some(files) = EMBEDDED {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        return Ok(files.iter().map(owned).collect());
    }
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/");
    let mut files = Vec::new();
    collect(Path::new(root), &mut files).map_err(|problem| LibraryError(vec![problem]))?;
    let below = files.into_iter().filter_map(|(path, text)| {
        let name = path.strip_prefix(root)?;
        let ours = [KEYWORDS, ABILITIES].contains(&name) || name.starts_with(TEMPLATES);
        ours.then(|| (name.to_owned(), text))
    });
    Ok(below.collect())
}

impl Library {
    /// The library that comes with this crate. A debug build reads it from the checkout, so that a change of a template
    /// needs no compiler.
    ///
    /// # Errors
    /// All problems of all files.
    pub fn embedded() -> Result<Self, LibraryError> {
        let files = embedded_files()?;
        let files = files.iter();
        Self::parse(files.map(|(name, text)| (format!("pipelines/library/{name}"), text.as_str())))
    }

    /// Reads the library in a folder (`keywords.toml`, `templates/**/*.toml`, `abilities.toml`). A folder
    /// without `keywords.toml` uses the embedded dictionary; one without `abilities.toml` has no abilities.
    ///
    /// # Errors
    /// All problems of all files.
    pub fn read(folder: &Path) -> Result<Self, LibraryError> {
        let mut files = Vec::new();
        collect(folder, &mut files).map_err(|problem| LibraryError(vec![problem]))?;
        if !files.iter().any(|(name, _)| name.ends_with(KEYWORDS)) {
            let embedded = embedded_files()?.into_iter();
            files.extend(embedded.filter(|(name, _)| name == KEYWORDS));
        }
        Self::parse(
            files
                .iter()
                .map(|(name, text)| (name.clone(), text.as_str())),
        )
    }

    fn parse<'a>(files: impl Iterator<Item = (String, &'a str)>) -> Result<Self, LibraryError> {
        let (dictionary, templates): (Vec<_>, Vec<_>) =
            files.partition(|(name, _)| name.ends_with(KEYWORDS));
        let (tables, templates): (Vec<_>, Vec<_>) = templates
            .into_iter()
            .partition(|(name, _)| name.ends_with(ABILITIES));
        let mut library = Self {
            keywords: Keywords::default(),
            templates: BTreeMap::new(),
            abilities: Vec::new(),
        };
        for (file, text) in dictionary {
            library.keywords = Keywords::parse(&file, text).map_err(LibraryError)?;
        }
        let mut problems = Vec::new();
        for (file, text) in templates
            .iter()
            .filter(|(name, _)| name.contains(TEMPLATES))
        {
            match parse_template(file, text, &library.keywords) {
                Ok(template) => {
                    let id = template.name().to_owned();
                    if library.templates.insert(id.clone(), template).is_some() {
                        let source = TomlSource { file, text };
                        problems.push(source.whole(format!("another template has the id `{id}`")));
                    }
                }
                Err(found) => problems.extend(found),
            }
        }
        // With broken templates, the table would report templates as missing that exist.
        if problems.is_empty() {
            for (file, text) in tables {
                match abilities::parse(&file, text, &library.templates) {
                    Ok(found) => library.abilities.extend(found),
                    Err(found) => problems.extend(found),
                }
            }
        }
        if problems.is_empty() {
            Ok(library)
        } else {
            Err(LibraryError(problems))
        }
    }

    pub fn keywords(&self) -> &Keywords {
        &self.keywords
    }

    /// All templates, ordered by id.
    pub fn templates(&self) -> impl ExactSizeIterator<Item = &Template> {
        self.templates.values()
    }

    /// The abilities of the PyBench benchmark that this library covers, in the order of the benchmark.
    pub fn abilities(&self) -> &[Ability] {
        &self.abilities
    }

    /// The abilities and their templates as a text table.
    pub fn coverage(&self) -> String {
        let mut text = abilities::table(&self.abilities, self.templates().map(Template::name));
        let english = self.templates().filter(|template| !template.has_chinese());
        let english: Vec<&str> = english.map(Template::name).collect();
        if !english.is_empty() {
            let (count, names) = (english.len(), english.join(", "));
            text.push_str(&format!("{count} templates are in English only: {names}\n"));
        }
        text
    }

    pub fn template(&self, id: &str) -> Option<&Template> {
        self.templates.get(id)
    }

    /// The templates with these ids; all templates if `ids` is empty.
    ///
    /// # Errors
    /// [`RunError::BadInput`] for an unknown id, with the most similar known one.
    pub fn chosen(&self, ids: &[String]) -> Result<Vec<&Template>, RunError> {
        if ids.is_empty() {
            return Ok(self.templates().collect());
        }
        let find = |id: &String| self.template(id).ok_or_else(|| self.unknown(id));
        let found = ids.iter().map(|id| find(id).map_err(RunError::BadInput));
        found.collect()
    }

    /// The error message for an unknown id.
    pub(crate) fn unknown(&self, id: &str) -> String {
        let hint = self.suggest(id).map(|s| format!("; did you mean `{s}`?"));
        format!("no template `{id}`{}", hint.unwrap_or_default())
    }

    /// The known id that is most similar to an unknown one.
    pub fn suggest(&self, wrong: &str) -> Option<&str> {
        problem::closest(wrong, self.templates.keys().map(String::as_str))
    }
}

fn parse_template(file: &str, text: &str, keywords: &Keywords) -> Result<Template, Vec<Problem>> {
    let source = TomlSource { file, text };
    let template: Template = toml::from_str(text).map_err(|error| vec![source.toml(&error)])?;
    let problems = validate::validate(source, &template, keywords);
    if problems.is_empty() {
        Ok(template)
    } else {
        Err(problems)
    }
}

/// Collects every TOML file below a folder, sorted by path.
fn collect(folder: &Path, files: &mut Vec<(String, String)>) -> Result<(), Problem> {
    let problem = |path: &Path, message: String| Problem {
        file: path.display().to_string(),
        line: 0,
        message,
    };
    let entries = std::fs::read_dir(folder).map_err(|e| problem(folder, e.to_string()))?;
    let mut paths: Vec<_> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
    paths.sort();
    for path in paths {
        // Do not follow links to folders: they could form a loop.
        if path.is_dir() && !path.is_symlink() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "toml") {
            let size = path.metadata().map(|m| m.len()).unwrap_or(0);
            if size > MAX_BYTES {
                return Err(problem(&path, format!("larger than {MAX_BYTES} bytes")));
            }
            let text = std::fs::read_to_string(&path).map_err(|e| problem(&path, e.to_string()))?;
            files.push((path.display().to_string(), text));
        }
    }
    Ok(())
}
