//! What models answer: typed, bounded and checked. An answer that cannot be read is none.

use pybench::grade::CheckSpec;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Characters of a query.
pub const MOST_QUERY: usize = 4000;
/// Bytes of a reply that are looked at.
const MOST_REPLY: usize = 64 << 10;
/// Places of a reply at which an object is looked for.
const MOST_OBJECTS: usize = 200;
/// Characters of a reason.
const MOST_REASON: usize = 2000;

/// An answer of a model.
pub(super) trait Answer: DeserializeOwned + JsonSchema + PartialEq {
    /// What is wrong with it beyond its type; for the model.
    fn problem(&self) -> Option<String>;

    /// The JSON Schema that a model is shown, of the very type that reads its answer.
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

impl Answer for Draft {
    fn problem(&self) -> Option<String> {
        let characters = self.query.trim().chars().count();
        let names = self.uses.iter().chain(&self.makes);
        if !(10..=MOST_QUERY).contains(&characters) {
            return Some(format!(
                "`query` has {characters} characters: 10 to {MOST_QUERY} are expected"
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

impl Answer for KeywordOpinion {
    fn problem(&self) -> Option<String> {
        reasoned(&self.reason)
    }
}

impl Answer for ContentOpinion {
    fn problem(&self) -> Option<String> {
        match (self.supported, self.missing.is_empty()) {
            (true, false) => Some("`supported` is true, but something is missing".to_owned()),
            (false, true) => Some("`supported` is false, but nothing is missing".to_owned()),
            _ => reasoned(&self.reason),
        }
    }
}

impl Answer for Proposal {
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

fn reasoned(reason: &str) -> Option<String> {
    match reason.trim().chars().count() {
        0 => Some("`reason` is empty".to_owned()),
        count if count > MOST_REASON => {
            Some(format!("`reason` is longer than {MOST_REASON} characters"))
        }
        _ => None,
    }
}

/// The one answer in a reply, whatever stands around it.
///
/// # Errors
/// What is wrong, for the model: no object, a broken one, one of another shape, or several that differ,
/// of which none is chosen.
pub(super) fn read<T: Answer>(reply: &str) -> Result<T, String> {
    let mut found: Option<T> = None;
    let mut wrong = None;
    for object in objects(bounded(reply)) {
        let object = match object.and_then(|o| serde_json::from_str::<T>(o).map_err(told)) {
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

fn bounded(reply: &str) -> &str {
    let ends = (0..=MOST_REPLY.min(reply.len())).rev();
    let end = ends.into_iter().find(|end| reply.is_char_boundary(*end));
    &reply[..end.unwrap_or(0)]
}

fn told(error: serde_json::Error) -> String {
    format!("its JSON object cannot be read: {error}")
}

/// Every complete object that stands in no other one, and what is wrong with the first that is broken.
fn objects(text: &str) -> Vec<Result<&str, String>> {
    let mut objects = Vec::new();
    let mut broken = false;
    let mut at = 0;
    for _ in 0..MOST_OBJECTS {
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
                    objects.push(Err(told(error)));
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
