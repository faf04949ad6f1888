//! Parses recipe text and `--set` options into a [`Recipe`], or reports everything that is wrong with them.

use std::fmt;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value as Json;

use super::document::{Location, Node, Problem};
use super::{Recipe, conform, validate};
use crate::RunError;

/// Recipes larger than this are rejected without reading them.
const MAX_BYTES: u64 = 1 << 20;

/// Number of problems shown.
const MAX_SHOWN: usize = 20;

/// The problems of a recipe, one line each: `file:line:column: message` or `--set key: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipeError(Vec<String>);

impl fmt::Display for RecipeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.len().min(MAX_SHOWN);
        f.write_str(&self.0[..shown].join("\n"))?;
        match self.0.len() - shown {
            0 => Ok(()),
            more => write!(f, "\n… and {more} more"),
        }
    }
}

impl std::error::Error for RecipeError {}

impl From<RecipeError> for RunError {
    fn from(error: RecipeError) -> Self {
        Self::BadInput(error.to_string())
    }
}

impl Recipe {
    /// Reads a recipe file and applies the `--set` assignments (`rollout.samples=4`) in order.
    pub fn load(path: &Path, sets: &[String]) -> Result<Self, RunError> {
        let shown = path.display().to_string();
        let text = read_bounded(path)
            .map_err(|error| RunError::BadInput(format!("{shown}: cannot be read: {error}")))?;
        Ok(Self::parse(&shown, &text, sets)?)
    }

    /// Parses a recipe; messages call it `origin`.
    pub fn parse(origin: &str, text: &str, sets: &[String]) -> Result<Self, RecipeError> {
        let render = |problem: &Problem| render(origin, text, problem);
        let mut document = Node::parse(text).map_err(|p| RecipeError(vec![render(&p)]))?;
        let rejected: Vec<Problem> = sets
            .iter()
            .filter_map(|assignment| document.set(assignment).err())
            .collect();
        let located = document.clone();
        let reject = |problems: Vec<Problem>| match problems.is_empty() {
            true => Ok(()),
            false => Err(RecipeError(problems.iter().map(render).collect())),
        };
        reject(rejected)?;
        reject(conform::problems(&Self::json_schema(), &document))?;
        // A document that conforms to the schema deserializes; any other error has no location.
        let recipe = Self::deserialize(document.into_toml())
            .map_err(|error| RecipeError(vec![format!("{origin}: {}", error.message())]))?;
        reject(
            validate::problems(&recipe)
                .into_iter()
                .map(|(path, message)| Problem::new(located.location_of(&path), message))
                .collect(),
        )?;
        Ok(recipe)
    }

    /// The resolved recipe with all defaults spelled out; equal recipes give equal text.
    pub fn to_toml(&self) -> Result<String, RunError> {
        toml::to_string_pretty(self)
            .map_err(|error| RunError::Internal(format!("cannot serialize the recipe: {error}")))
    }

    /// The JSON Schema of recipes, generated from the types.
    pub fn json_schema() -> Json {
        schemars::schema_for!(Self).to_value()
    }
}

/// Applies `--set` assignments to a TOML document of any kind, which messages call `origin`; returns the new text.
///
/// # Errors
/// The document is not TOML, or an assignment names a place that it cannot have.
pub fn apply_sets(origin: &str, text: &str, sets: &[String]) -> Result<String, RecipeError> {
    let render = |problem: &Problem| render(origin, text, problem);
    let mut document = Node::parse(text).map_err(|p| RecipeError(vec![render(&p)]))?;
    let rejected = sets.iter().filter_map(|set| document.set(set).err());
    let rejected: Vec<_> = rejected.map(|problem| render(&problem)).collect();
    if !rejected.is_empty() {
        return Err(RecipeError(rejected));
    }
    toml::to_string(&document.into_toml())
        .map_err(|error| RecipeError(vec![format!("{origin}: {error}")]))
}

fn read_bounded(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let mut file = std::fs::File::open(path)?.take(MAX_BYTES + 1);
    file.read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        let message = format!("larger than the limit of {MAX_BYTES} bytes");
        return Err(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            message,
        ));
    }
    Ok(text)
}

fn render(origin: &str, text: &str, problem: &Problem) -> String {
    match &problem.location {
        Location::Set(path) => format!("--set {path}: {}", problem.message),
        Location::File(span) => {
            let (line, column) = line_and_column(text, span.start);
            format!("{origin}:{line}:{column}: {}", problem.message)
        }
    }
}

/// Line and column, both counted from 1; columns count characters.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before: String = text
        .char_indices()
        .take_while(|(at, _)| *at < offset)
        .map(|(_, character)| character)
        .collect();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}
