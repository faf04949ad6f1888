//! The folder of a site: pages from templates, files by their content.

use std::fs;
use std::path::{Path, PathBuf};

use minijinja::{AutoEscape, Environment};
use pybench_datasets::scrub::{Scrubber, SecretCounts};
use pybench_library::template_value;
use pybench_run::RunError;
use pybench_types::id::Digest;
use pybench_types::text::visible;
use serde::Serialize;
use serde_json::{Value, json};

use crate::results::leaderboard::Results;

/// The results as JSON. A folder that has this file is a site.
pub(super) const CONTENTS: &str = "results.json";
/// The keys of addresses and digests, which are no texts.
const NO_TEXTS: [&str; 5] = ["up", "href", "src", "task_href", "basis"];

/// A site that is being written.
pub(super) struct Site {
    out: PathBuf,
    templates: Environment<'static>,
    scrubber: Scrubber,
    found: SecretCounts,
    withheld: u64,
}

impl Site {
    /// A site in an empty folder.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(super) fn new(out: &Path) -> Result<Self, RunError> {
        let site = Self {
            out: out.to_owned(),
            templates: templates().map_err(|error| failed(&error))?,
            scrubber: Scrubber::of_machine(),
            found: SecretCounts::default(),
            withheld: 0,
        };
        let style = concat!(
            include_str!("../../web/src/base.css"),
            include_str!("templates/style.css")
        );
        site.write("style.css", style.as_bytes())?;
        Ok(site)
    }

    /// Writes a page at `path`, whose folders lead up by `up`. All texts of the context are scrubbed.
    ///
    /// # Errors
    /// The page cannot be written.
    pub(super) fn page(
        &mut self,
        path: &str,
        template: &str,
        context: impl Serialize,
    ) -> Result<(), RunError> {
        let mut context = serde_json::to_value(context)?;
        context["up"] = json!("../".repeat(path.matches('/').count()));
        self.scrub(&mut context);
        let template = self.templates.get_template(template);
        let page = template.and_then(|page| page.render(template_value(&context)));
        let page = page.map_err(|error| failed(&error))?;
        self.write(path, page.as_bytes())
    }

    /// Writes a file that a page shows, named by its content; returns its path. `None` if it has secrets, or cannot be searched
    /// for them.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn file(
        &mut self,
        bytes: &[u8],
        extension: &str,
    ) -> Result<Option<String>, RunError> {
        if !self.scrubber.file(bytes).is_clean() {
            self.withheld += 1;
            return Ok(None);
        }
        let path = format!("files/{}.{extension}", Digest::of_bytes(bytes));
        self.write(&path, bytes)?;
        Ok(Some(path))
    }

    /// Writes the results; returns what was scrubbed, for a sentence.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn finish(mut self, results: &Results) -> Result<String, RunError> {
        let mut json = serde_json::to_value(results)?;
        self.scrub(&mut json);
        self.write(CONTENTS, format!("{json:#}\n").as_bytes())?;
        let mut text = String::new();
        if self.found.total() > 0 {
            text += &format!("; replaced {}", self.found);
        }
        if self.withheld > 0 {
            text += &format!("; left out {} images that may have secrets", self.withheld);
        }
        Ok(text)
    }

    fn scrub(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => {
                let scrubbed = self.scrubber.text(text);
                self.found.merge(&scrubbed.found);
                *text = scrubbed.text;
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.scrub(item)),
            Value::Object(fields) => {
                let texts = fields
                    .iter_mut()
                    .filter(|(key, _)| !NO_TEXTS.contains(&key.as_str()));
                texts.for_each(|(_, value)| self.scrub(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), RunError> {
        let path = self.out.join(path);
        let io = || RunError::io(path.display().to_string());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(io())?;
        }
        fs::write(&path, bytes).map_err(io())
    }
}

/// The error of a template, which is a bug.
fn failed(error: &minijinja::Error) -> RunError {
    RunError::Internal(format!("a page of the site cannot be made: {error:#}"))
}

/// The templates, with HTML escaping.
fn templates() -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_filter("visible", |text: String| visible(&text));
    for (name, text) in [
        ("page.html", include_str!("templates/page.html")),
        ("index.html", include_str!("templates/index.html")),
        ("task.html", include_str!("templates/task.html")),
        ("trajectory.html", include_str!("templates/trajectory.html")),
    ] {
        environment.add_template(name, text)?;
    }
    Ok(environment)
}
