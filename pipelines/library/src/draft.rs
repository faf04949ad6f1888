//! Writes a task from a template, input files and slot values.

use std::collections::BTreeMap;

use minijinja::value::Value;
use pybench_compose::note::note;
use pybench_run::{ContentStore, RunError};
use pybench_types::check::CheckSpec;
use pybench_types::id::Digest;
use pybench_types::task::{Language, SourceFile, Task, TaskFile, TaskOrigin};

use super::render::{self, Context};
use super::slots::Slots;
use super::split::Parts;
use super::split_file::split_file;
use super::template::{Template, Text};
use super::{Library, fit, reader};

/// Name of the slot that stores the expression that reads each file, for the expert.
pub(crate) const READERS: &str = "readers";

/// Everything that determines a task, before it is written.
#[derive(Clone, Debug)]
pub struct Draft<'a> {
    pub template: &'a Template,
    /// One file per input.
    pub files: Vec<&'a SourceFile>,
    pub slots: BTreeMap<String, serde_json::Value>,
    pub language: Language,
    /// Index of the phrasing.
    pub phrasing: usize,
    /// Seed for random choices in writing the task (which rows are held out).
    pub seed: u64,
}

/// Why a task cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    /// A string of the template cannot be rendered with these values.
    #[error("template `{template}`, {part}: {reason}")]
    Render {
        template: String,
        part: &'static str,
        reason: String,
    },
    /// The rows of the file cannot be split.
    #[error("template `{template}`: the rows of {file} cannot be split by lines")]
    Split { template: String, file: String },
    /// The content store failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Draft<'_> {
    /// Renders the query. Cheap, because no file is read.
    pub fn query(&self) -> Result<String, DraftError> {
        let files = self
            .files
            .iter()
            .map(|file| render::profile_variables(file));
        let context = render::context(&self.slots, files.collect(), self.language);
        self.render_query(&context)
    }

    /// Writes the task. `store` must contain the files; held-out parts are added to it.
    pub fn write(&self, library: &Library, store: &ContentStore) -> Result<Task, DraftError> {
        self.write_with(library, store, false)
    }

    /// Like [`Draft::write`]; the reference also refuses files on which a violation of some requirement would not show.
    pub(crate) fn write_probe(
        &self,
        library: &Library,
        store: &ContentStore,
    ) -> Result<Task, DraftError> {
        self.write_with(library, store, true)
    }

    fn write_with(
        &self,
        library: &Library,
        store: &ContentStore,
        audited: bool,
    ) -> Result<Task, DraftError> {
        let split = self.split(store)?;
        let (files, held_out, variables) = self.files_and_variables(split, store)?;
        let context = render::context(&self.slots, variables, self.language);
        let template = self.template;
        let outputs = template
            .outputs
            .iter()
            .map(|o| self.text(o, &context, "outputs"));
        let checks = template
            .checks
            .iter()
            .map(|c| self.check(&c.get_ref().spec, &context));
        let mut task = Task {
            id: Digest::of_bytes(b""),
            category: template.category,
            subcategory: library.keywords().subcategory(template.keyword.get_ref()),
            keyword: template.keyword.get_ref().clone(),
            language: self.language,
            query: self.render_query(&context)?,
            files,
            held_out,
            outputs: outputs.collect::<Result<_, _>>()?,
            reference: self.reference(&context, audited)?,
            checks: checks.collect::<Result<_, _>>()?,
            origin: self.origin(),
        };
        task.id = task.compute_id();
        Ok(task)
    }

    fn origin(&self) -> TaskOrigin {
        let mut slots: Slots = self.slots.clone();
        let readers: Vec<_> = self.files.iter().map(|file| reader::pandas(file)).collect();
        if readers.iter().any(Option::is_some) {
            slots.insert(READERS.into(), serde_json::json!(readers));
        }
        TaskOrigin::Library {
            template: self.template.name().to_owned(),
            slots,
            phrasing: self.phrasing,
        }
    }

    fn render_query(&self, context: &Context) -> Result<String, DraftError> {
        let phrasings = self.template.query.get(self.language);
        let Some(wording) = phrasings.get(self.phrasing) else {
            return Err(self.error("query", format!("there is no phrasing {}", self.phrasing)));
        };
        let query = self.text(&wording.text, context, "query")?;
        let notes = self.files.iter().filter_map(|file| {
            let path = format!("./data/{}", file.name);
            note(&fit::table(file)?.read, &path, self.language)
        });
        let parts = std::iter::once(query.trim().to_owned()).chain(notes);
        Ok(parts.collect::<Vec<_>>().join("\n"))
    }

    /// The reference, followed by what must hold on these files so that a violation of a requirement shows.
    fn reference(&self, context: &Context, audited: bool) -> Result<String, DraftError> {
        let mut code = self.text(&self.template.reference.code, context, "reference")?;
        for (id, requirement) in &self.template.requirements {
            for condition in requirement.get_ref().conditions(audited) {
                let holds = self.text(condition, context, "requirement")?;
                let what = reader::py_str(&format!("a violation of `{id}` gives the same result"));
                code.push_str(&format!("\nref.require(({holds}), {what})\n"));
            }
        }
        Ok(code)
    }

    fn text(
        &self,
        text: &Text,
        context: &Context,
        part: &'static str,
    ) -> Result<String, DraftError> {
        render(text.get_ref(), context).map_err(|error| self.error(part, error.to_string()))
    }

    fn error(&self, part: &'static str, reason: String) -> DraftError {
        let template = self.template.name().to_owned();
        DraftError::Render {
            template,
            part,
            reason,
        }
    }

    /// Renders the strings of a check.
    fn check(&self, check: &toml::Table, context: &Context) -> Result<CheckSpec, DraftError> {
        let mut table = check.clone();
        for (_, value) in &mut table {
            if let toml::Value::String(text) = value {
                *text = render(text, context).map_err(|e| self.error("check", e.to_string()))?;
            }
        }
        let json = serde_json::to_value(&table);
        let spec = json.and_then(serde_json::from_value);
        spec.map_err(|error| self.error("check", error.to_string()))
    }

    /// Splits the input that has a `split` rule, if there is one. Returns its index and the parts.
    fn split(&self, store: &ContentStore) -> Result<Option<(usize, Parts)>, DraftError> {
        for (index, (input, file)) in self.template.inputs.iter().zip(&self.files).enumerate() {
            if let Some(rule) = &input.split {
                let parts = split_file(file, rule, self.seed, store)?;
                return match parts {
                    Some(parts) => Ok(Some((index, parts))),
                    None => Err(DraftError::Split {
                        template: self.template.name().to_owned(),
                        file: file.name.clone(),
                    }),
                };
            }
        }
        Ok(None)
    }

    /// The files for the agent, the held-out files for the checker, and the template variables.
    #[allow(clippy::type_complexity)]
    fn files_and_variables(
        &self,
        split: Option<(usize, Parts)>,
        store: &ContentStore,
    ) -> Result<
        (
            Vec<TaskFile>,
            Vec<TaskFile>,
            Vec<BTreeMap<&'static str, Value>>,
        ),
        DraftError,
    > {
        let mut files: Vec<TaskFile> = self.files.iter().map(|file| (*file).into()).collect();
        let mut variables: Vec<_> = self
            .files
            .iter()
            .map(|f| render::profile_variables(f))
            .collect();
        let mut held_out = Vec::new();
        if let Some((index, parts)) = split {
            let derived = |bytes: &[u8]| -> Result<TaskFile, RunError> {
                let mut file = TaskFile::from(self.files[index]);
                file.derived_from = Some(std::mem::replace(&mut file.id, store.put(bytes)?));
                // The types and missing values of a part may differ.
                if let Some(format) = &mut file.format {
                    format.columns = None;
                }
                Ok(file)
            };
            held_out.push(derived(&parts.held_out)?);
            files[index] = derived(&parts.train)?;
            variables[index].insert("rows", parts.train_rows.into());
        }
        Ok((files, held_out, variables))
    }
}

/// Renders a string of the library.
pub(crate) fn render(text: &str, context: &Context) -> Result<String, minijinja::Error> {
    // Building the environment takes microseconds, and each task is rendered once.
    render::environment().render_str(text, context.clone())
}
