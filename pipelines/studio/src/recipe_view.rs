//! The recipe of a run, and what it and that of another run differ in.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path as PathOf, Query, State};
use axum::routing::get;
use axum::{Json, Router};
use pybench_datasets::scrub;
use pybench_files::open_regular;
use pybench_run::{RunError, recipe_values};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::edit::routes::Studio;
use crate::handlers::{ApiError, blocking, not_found, run_folder};
use crate::sources::Sources;

/// Maximum number of bytes of a recipe.
const MAX_BYTES: u64 = 1 << 20;
/// Shown in place of values that may be secret.
const HIDDEN: &str = "[hidden]";

pub(crate) fn router() -> Router<Studio> {
    Router::new().route("/api/data/{name}/recipe", get(show))
}

/// The recipe of a run, beside that of another run if one was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct RecipeView {
    pub(crate) name: String,
    /// Name of the other run; empty if none was asked for.
    pub(crate) beside: String,
    /// All keys of both, sorted.
    pub(crate) keys: Vec<RecipeKey>,
}

/// A key of a recipe with its values as TOML. Header values, credentials and personal data are hidden.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct RecipeKey {
    /// Dotted: `rollout.samples`.
    pub(crate) key: String,
    /// `None` if the recipe does not have it.
    pub(crate) value: Option<String>,
    /// The value in the other recipe.
    pub(crate) other: Option<String>,
    /// Whether the two differ, which hidden values may also do.
    pub(crate) differs: bool,
}

/// How a recipe is asked for.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RecipeQuery {
    /// Name of the other run; empty for none.
    beside: String,
}

async fn show(
    State(sources): State<Arc<Sources>>,
    PathOf(name): PathOf<String>,
    query: Result<Query<RecipeQuery>, QueryRejection>,
) -> Result<Json<RecipeView>, ApiError> {
    let Query(query) = query?;
    blocking(move || {
        let own = read(&run_folder(&sources, &name)?, &name)?;
        let other = match &*query.beside {
            "" => None,
            other => Some(read(&run_folder(&sources, other)?, other)?),
        };
        Ok(Json(RecipeView {
            keys: beside(&own, other.as_ref()),
            beside: query.beside,
            name,
        }))
    })
    .await
}

type Values = BTreeMap<String, String>;

/// The keys and values of the recipe in a run folder.
fn read(folder: &Path, name: &str) -> Result<Values, ApiError> {
    let path = folder.join("recipe.toml");
    if !path.is_file() {
        return Err(not_found(format!("the run `{name}` has no recipe.toml")));
    }
    let mut text = String::new();
    let file = open_regular(&path).map_err(RunError::io(path.display().to_string()))?;
    let read = file.take(MAX_BYTES).read_to_string(&mut text);
    read.map_err(RunError::io(path.display().to_string()))?;
    Ok(recipe_values(&text))
}

fn beside(own: &Values, other: Option<&Values>) -> Vec<RecipeKey> {
    let others = other.into_iter().flat_map(BTreeMap::keys);
    let keys: BTreeSet<&String> = own.keys().chain(others).collect();
    let of_key = |key: &String| {
        let value = own.get(key);
        let in_other = other.and_then(|other| other.get(key));
        RecipeKey {
            key: key.clone(),
            differs: other.is_some() && value != in_other,
            value: value.map(|value| shown(key, value)),
            other: in_other.map(|value| shown(key, value)),
        }
    };
    keys.into_iter().map(of_key).collect()
}

/// A value without what may be secret: the page could be shown to others.
fn shown(key: &str, value: &str) -> String {
    match key.split('.').any(|part| part == "headers") {
        true => HIDDEN.to_owned(),
        false => scrub::text(value).text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_are_compared_by_key() {
        let own = recipe_values("seed = 1\n[rollout]\nsamples = 4\n");
        let other = recipe_values("seed = 1\nname = 'b'\n[rollout]\nsamples = 2\n");
        let differing = |keys: Vec<RecipeKey>| -> Vec<(String, Option<String>, Option<String>)> {
            let differing = keys.into_iter().filter(|key| key.differs);
            differing
                .map(|key| (key.key, key.value, key.other))
                .collect()
        };
        let text = |text: &str| Some(text.to_owned());
        let expected = [
            ("name".to_owned(), None, text("\"b\"")),
            ("rollout.samples".to_owned(), text("4"), text("2")),
        ];
        let found = beside(&own, Some(&other));
        assert_eq!(found.len(), 3);
        assert_eq!(differing(found), expected);
        assert!(differing(beside(&own, None)).is_empty());
    }

    #[test]
    fn secrets_are_hidden_and_their_differences_are_not() {
        let with = |secret: &str| {
            recipe_values(&format!(
                "[teacher.headers]\nAuthorization = 'Bearer {secret}'\n"
            ))
        };
        let keys = beside(&with("first"), Some(&with("second")));
        let key = &keys[0];
        assert_eq!(key.value.as_deref(), Some(HIDDEN));
        assert_eq!(key.other.as_deref(), Some(HIDDEN));
        assert!(key.differs);
    }
}
