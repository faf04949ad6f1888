//! The task library: templates that write tasks, solve them as an expert, and check solutions.
//!
//! One TOML file under `pipelines/library/templates` is one template; `docs/task-library.md` tells
//! how to write one. [`Library::embedded`] is what the crate was built with.

mod abilities;
pub mod audit;
pub mod command;
mod draft;
mod expert;
mod fit;
#[cfg(test)]
mod fuzz;
mod keywords;
pub(crate) mod problem;
mod reader;
mod render;
mod script;
mod skeleton;
mod slots;
mod split;
pub mod template;
#[cfg(test)]
pub(crate) mod tests;
mod validate;

pub(crate) use render::value as template_value;

use std::collections::BTreeMap;
use std::path::Path;

pub use abilities::Ability;
pub use draft::{Draft, DraftError};
pub(crate) use expert::observations;
pub use expert::{EXPERT, Expert, faults};
pub use keywords::{Keyword, Keywords};
pub use problem::{LibraryError, Problem};
pub use script::{Deviation, Move, Script, ScriptError};
pub use template::Template;

use problem::Source;

/// `(path below library/, text)` of every TOML file of the library.
static EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/library.rs"));

const KEYWORDS: &str = "keywords.toml";
const ABILITIES: &str = "abilities.toml";
const TEMPLATES: &str = "templates/";
/// Largest file of a library folder that is read.
const MOST_BYTES: u64 = 1 << 20;

/// Keywords, templates, and what they cover, validated.
#[derive(Clone, Debug)]
pub struct Library {
    keywords: Keywords,
    templates: BTreeMap<String, Template>,
    abilities: Vec<Ability>,
}

impl Library {
    /// The library this crate was built with.
    pub fn embedded() -> Result<Self, LibraryError> {
        let files = EMBEDDED.iter();
        Self::parse(files.map(|(name, text)| (format!("pipelines/library/{name}"), *text)))
    }

    /// The library in a folder (`keywords.toml`, `templates/**/*.toml`, `abilities.toml`). A folder
    /// without `keywords.toml` uses the embedded dictionary; one without `abilities.toml` claims none.
    pub fn read(folder: &Path) -> Result<Self, LibraryError> {
        let mut files = Vec::new();
        collect(folder, &mut files).map_err(|problem| LibraryError(vec![problem]))?;
        let own = files.iter().any(|(name, _)| name.ends_with(KEYWORDS));
        let embedded = EMBEDDED.iter().find(|(name, _)| !own && *name == KEYWORDS);
        let embedded = embedded.map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        files.extend(embedded);
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
                        let source = Source { file, text };
                        problems.push(source.whole(format!("another template has the id `{id}`")));
                    }
                }
                Err(found) => problems.extend(found),
            }
        }
        // Among broken templates a table would miss what is there.
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

    /// The keyword dictionary.
    pub fn keywords(&self) -> &Keywords {
        &self.keywords
    }

    /// Every template, by id.
    pub fn templates(&self) -> impl ExactSizeIterator<Item = &Template> {
        self.templates.values()
    }

    /// The abilities of PyBench that templates of this library cover, in PyBench's order.
    pub fn abilities(&self) -> &[Ability] {
        &self.abilities
    }

    /// The abilities as a table for people.
    pub fn coverage(&self) -> String {
        abilities::table(&self.abilities, self.templates().map(Template::name))
    }

    /// The template of that id.
    pub fn template(&self, id: &str) -> Option<&Template> {
        self.templates.get(id)
    }

    /// The id most like one that is none.
    pub fn suggest(&self, wrong: &str) -> Option<&str> {
        problem::closest(wrong, self.templates.keys().map(String::as_str))
    }
}

fn parse_template(file: &str, text: &str, keywords: &Keywords) -> Result<Template, Vec<Problem>> {
    let source = Source { file, text };
    let template: Template = toml::from_str(text).map_err(|error| vec![source.toml(&error)])?;
    let problems = validate::validate(source, &template, keywords);
    if problems.is_empty() {
        Ok(template)
    } else {
        Err(problems)
    }
}

/// Every TOML file below a folder, sorted by path.
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
        // Symbolic links are followed for files only: a loop of folders would never end.
        if path.is_dir() && !path.is_symlink() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "toml") {
            let size = path.metadata().map(|m| m.len()).unwrap_or(0);
            if size > MOST_BYTES {
                return Err(problem(&path, format!("larger than {MOST_BYTES} bytes")));
            }
            let text = std::fs::read_to_string(&path).map_err(|e| problem(&path, e.to_string()))?;
            files.push((path.display().to_string(), text));
        }
    }
    Ok(())
}
