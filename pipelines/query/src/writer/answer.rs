//! Parses the JSON answers of models into types and validates them. Prose around the JSON is ignored.

use pybench_types::check::CheckSpec;
use pybench_types::task::MAX_QUERY;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
/// Bytes of a reply that are searched.
const MAX_REPLY: usize = 64 << 10;
/// Maximum positions of a reply at which an object is parsed.
const MAX_OBJECTS: usize = 200;
/// Maximum characters of a reason.
const MAX_REASON: usize = 2000;

/// A typed answer of a model.
pub(super) trait ModelAnswer: DeserializeOwned + JsonSchema + PartialEq {
    /// What is wrong with the values; the text is sent to the model.
    fn problem(&self) -> Option<String>;

    /// The JSON Schema for the prompt. Doc comments of the type are part of it, so models read them.
    fn schema() -> serde_json::Value {
        let inline = schemars::generate::SchemaSettings::default();
        let inline = inline.with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        inline
            .into_generator()
            .into_root_schema_for::<Self>()
            .to_value()
    }
}

/// A query as the generator writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    /// What the user asks.
    pub query: String,
    /// Every file that the query asks for, such as `output/result.csv`; empty where it asks for none.
    pub outputs: Vec<String>,
    /// Names in the query that stand in the files: columns, sheets, tables, headings.
    pub uses: Vec<String>,
    /// Names in the query that it introduces itself, such as columns of a result.
    pub makes: Vec<String>,
    /// A few lines of Python that show how the task is solved.
    pub sketch: String,
}

/// The keyword checker's opinion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct KeywordOpinion {
    /// Whether the query cannot be answered without the keyword's operation.
    pub(super) needed: bool,
    /// Why, in one or two sentences.
    pub(super) reason: String,
}

/// The content checker's opinion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ContentOpinion {
    /// Whether everything that the query needs is in the files or in the query itself.
    pub(super) supported: bool,
    /// What is missing or cannot be decided; empty where it is supported.
    pub(super) missing: Vec<String>,
    /// Why, in one or two sentences.
    pub(super) reason: String,
}

/// A check as the generator proposes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Proposal {
    /// Python that computes what is expected from the files under ./data.
    pub(super) reference: String,
    /// What is compared with it; all must hold.
    pub(super) checks: Vec<CheckSpec>,
}

impl ModelAnswer for Draft {
    fn problem(&self) -> Option<String> {
        let characters = self.query.trim().chars().count();
        let names = self.uses.iter().chain(&self.makes);
        if !(10..=MAX_QUERY).contains(&characters) {
            return Some(format!(
                "`query` has {characters} characters: 10 to {MAX_QUERY} are expected"
            ));
        }
        if self.outputs.len() > 10 || self.uses.len() > 100 || self.makes.len() > 100 {
            return Some("a list is too long: at most 10 outputs and 100 names".to_owned());
        }
        if names.clone().any(|name| name.chars().count() > 500) {
            return Some("a name has more than 500 characters".to_owned());
        }
        match self.sketch.len() {
            0 => Some("`sketch` is empty".to_owned()),
            size if size > 8000 => Some("`sketch` is longer than 8000 bytes".to_owned()),
            _ => None,
        }
    }
}

impl ModelAnswer for KeywordOpinion {
    fn problem(&self) -> Option<String> {
        reason_problem(&self.reason)
    }
}

impl ModelAnswer for ContentOpinion {
    fn problem(&self) -> Option<String> {
        match (self.supported, self.missing.is_empty()) {
            (true, false) => Some("`supported` is true, but something is missing".to_owned()),
            (false, true) => Some("`supported` is false, but nothing is missing".to_owned()),
            _ => reason_problem(&self.reason),
        }
    }
}

impl ModelAnswer for Proposal {
    fn problem(&self) -> Option<String> {
        match (self.reference.len(), self.checks.len()) {
            (0, _) => Some("`reference` is empty".to_owned()),
            (20_001.., _) => Some("`reference` is longer than 20000 bytes".to_owned()),
            (_, 0) => Some("`checks` is empty".to_owned()),
            (_, 11..) => Some("`checks` has more than 10 entries".to_owned()),
            _ => None,
        }
    }
}

fn reason_problem(reason: &str) -> Option<String> {
    match reason.trim().chars().count() {
        0 => Some("`reason` is empty".to_owned()),
        count if count > MAX_REASON => {
            Some(format!("`reason` is longer than {MAX_REASON} characters"))
        }
        _ => None,
    }
}

/// Finds the answer in a reply; text around the JSON object is ignored.
///
/// # Errors
/// A text for the model: the reply has no object, a malformed one, one of another shape, or several
/// different ones.
pub(super) fn read<T: ModelAnswer>(reply: &str) -> Result<T, String> {
    let mut found: Option<T> = None;
    let mut wrong = None;
    for object in objects(truncate(reply)) {
        let object = match object.and_then(|o| serde_json::from_str::<T>(o).map_err(unreadable)) {
            Ok(object) => object,
            Err(error) => {
                wrong.get_or_insert(error);
                continue;
            }
        };
        if found.as_ref().is_some_and(|earlier| *earlier != object) {
            return Err("it holds several JSON objects that contradict each other".to_owned());
        }
        found = Some(object);
    }
    match (found, wrong) {
        (Some(answer), _) => match answer.problem() {
            None => Ok(answer),
            Some(problem) => Err(problem),
        },
        (None, Some(wrong)) => Err(wrong),
        (None, None) => Err("it holds no JSON object".to_owned()),
    }
}

fn truncate(reply: &str) -> &str {
    let ends = (0..=MAX_REPLY.min(reply.len())).rev();
    let end = ends.into_iter().find(|end| reply.is_char_boundary(*end));
    &reply[..end.unwrap_or(0)]
}

fn unreadable(error: serde_json::Error) -> String {
    format!("its JSON object cannot be read: {error}")
}

/// Every complete top-level object, and a parse error for the first malformed one.
fn objects(text: &str) -> Vec<Result<&str, String>> {
    let mut objects = Vec::new();
    let mut broken = false;
    let mut at = 0;
    for _ in 0..MAX_OBJECTS {
        let Some(begin) = text[at..].find('{').map(|offset| at + offset) else {
            break;
        };
        let rest = &text[begin..];
        let mut values =
            serde_json::Deserializer::from_str(rest).into_iter::<&serde_json::value::RawValue>();
        match values.next() {
            Some(Ok(value)) => {
                objects.push(Ok(value.get()));
                at = begin + values.byte_offset().max(1);
            }
            Some(Err(error)) => {
                if !broken {
                    objects.push(Err(unreadable(error)));
                    broken = true;
                }
                at = begin + 1;
            }
            None => break,
        }
    }
    objects
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
