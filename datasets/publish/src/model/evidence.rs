//! Checks that recipe, license and report belong to the model, as far as files state it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pybench_run::RunError;
use pybench_run::project::invocation;
use serde_json::Value;

use super::{MAX_TEXT_BYTES, bad_file, json, read};

/// The results.json of the training run; null if there is none.
pub(super) fn results(model: &Path) -> Result<Value, RunError> {
    match run_of(model) {
        Some(run) => json(&run.join("results.json"), MAX_TEXT_BYTES),
        None => Ok(Value::Null),
    }
}

/// The folder of the training run, if the model is in one.
pub(super) fn run_of(model: &Path) -> Option<PathBuf> {
    let run = model.parent()?;
    let left = model.ends_with("model") || model.ends_with("adapter");
    let trained = left && run.join("results.json").is_file();
    trained.then(|| run.to_owned())
}

/// Path of the recipe: the one in the training run, or the one given by the user, which must match the model.
pub(super) fn recipe(
    model: &Path,
    given: Option<&Path>,
    results: &Value,
    notes: &mut Vec<String>,
) -> Result<Option<PathBuf>, RunError> {
    let kept = run_of(model).map(|run| run.join("recipe.toml"));
    let kept = kept.filter(|path| path.is_file());
    let Some(given) = given else {
        return Ok(kept);
    };
    if let Some(kept) = kept {
        return match read(given, MAX_TEXT_BYTES)? == read(&kept, MAX_TEXT_BYTES)? {
            true => Ok(Some(kept)),
            false => Err(bad_file(
                given,
                &format!(
                    "the model was trained with another recipe, {}; omit --recipe",
                    kept.display()
                ),
            )),
        };
    }
    let text = String::from_utf8(read(given, MAX_TEXT_BYTES)?)
        .map_err(|_| bad_file(given, "not UTF-8 text"))?;
    let recipe: toml::Value = toml::from_str(&text).map_err(|e| bad_file(given, &e.to_string()))?;
    contradiction(&recipe, results).map_or(Ok(()), |why| Err(bad_file(given, &why)))?;
    notes.push(match results["mixture"].is_array() {
        true => "recipe: data and steps match results.json".into(),
        false => {
            "recipe: cannot be checked, because there are no training results next to the model"
                .to_owned()
        }
    });
    Ok(Some(given.to_owned()))
}

/// A contradiction between a recipe and the training results, if any.
fn contradiction(recipe: &toml::Value, results: &Value) -> Option<String> {
    let steps = recipe.get("train").and_then(|train| train.get("max_steps"));
    let steps = steps.and_then(toml::Value::as_integer);
    if let (Some(asked), Some(made)) = (steps, results["steps"].as_i64())
        && asked != made
    {
        return Some(format!(
            "not the recipe of this model: it has {asked} steps, but results.json has {made} steps"
        ));
    }
    let asked = recipe.get("data")?.as_array()?.iter();
    let asked: BTreeSet<&str> = asked
        .filter_map(|data| data.get("path")?.as_str())
        .collect();
    let made = results["mixture"].as_array()?.iter();
    let made: BTreeSet<&str> = made.filter_map(|share| share["source"].as_str()).collect();
    let list = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(", ");
    (asked != made).then(|| {
        format!(
            "not the recipe of this model: it trains on {}, but results.json lists {}",
            list(&asked),
            list(&made)
        )
    })
}

/// The license as the Hub's identifier: the given one, otherwise that of the base model from the training results.
pub(super) fn license(
    given: Option<&str>,
    results: &Value,
    notes: &mut Vec<String>,
) -> Result<String, RunError> {
    let source = results["license"].as_str().map(str::to_lowercase);
    match (given, source) {
        (Some(given), Some(source)) if given.to_lowercase() != source => {
            notes.push(format!(
                "license: {given}, although the license of the base model is {source}"
            ));
            Ok(given.to_owned())
        }
        (Some(given), _) => Ok(given.to_owned()),
        (None, Some(source)) => {
            notes.push(format!("license: {source}, from the base model"));
            Ok(source)
        }
        (None, None) => Err(RunError::BadInput(
            "the license of the model is unknown: give it with --license, or give the base model on the Hub with \
             --base-model if its card states a license"
                .into(),
        )),
    }
}

/// The name of this model in a report, if the evaluation's recipe states it.
pub(super) fn label(
    model: &Path,
    report: &Path,
    notes: &mut Vec<String>,
) -> Result<Option<String>, RunError> {
    let numbers = json(&report.join("report.json"), MAX_TEXT_BYTES)?;
    let agents = numbers["frozen"]["agents"].as_object();
    let recipe = report.parent().map(|run| run.join("recipe.toml"));
    let recipe = recipe.filter(|path| path.is_file());
    let (Some(agents), Some(path)) = (agents, recipe) else {
        notes.push(
            "report: cannot be checked, because there is no evaluation recipe next to it"
                .to_owned(),
        );
        return Ok(None);
    };
    let text = String::from_utf8(read(&path, MAX_TEXT_BYTES)?)
        .map_err(|_| bad_file(&path, "not UTF-8 text"))?;
    let recipe: toml::Value = toml::from_str(&text).map_err(|e| bad_file(&path, &e.to_string()))?;
    let asked = recipe.get("agents").and_then(toml::Value::as_table);
    let asked = asked.into_iter().flatten();
    let asked = asked.filter(|(name, _)| agents.contains_key(*name));
    let folder = model.canonicalize().unwrap_or_else(|_| model.to_owned());
    let mut others = Vec::new();
    for (name, agent) in asked {
        let text = |key: &str| agent.get(key).and_then(toml::Value::as_str);
        let named = text("model").map(Path::new);
        let same = named.is_some_and(|named| {
            let places = [named.to_owned(), named.join("model")];
            places
                .iter()
                .any(|p| p.canonicalize().is_ok_and(|found| found == folder))
        });
        match text("kind") {
            Some("checkpoint") if same => {
                notes.push(format!("report: this model is called `{name}`"));
                return Ok(Some(name.clone()));
            }
            // The weights behind an endpoint are unknown.
            Some("openai") => {
                notes.push(format!(
                    "report: cannot check whether `{name}` is this model, because it was evaluated behind an endpoint"
                ));
                return Ok(None);
            }
            Some("checkpoint") => others.push(name.as_str()),
            _ => {}
        }
    }
    Err(bad_file(
        report,
        &format!(
            "not a report of this model: {} evaluated {}; run `{} eval` on this model first, or omit --report",
            path.display(),
            match others.is_empty() {
                true => "no checkpoint".to_owned(),
                false => format!("other models ({})", others.join(", ")),
            },
            invocation()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn recipe_of(text: &str) -> toml::Value {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_recipe_must_match_the_training_results() {
        let results = json!({"steps": 16, "mixture": [{"source": "a"}, {"source": "b"}]});
        let data = "[[data]]\npath = 'b'\n[[data]]\npath = 'a'\n";
        let right = recipe_of(&format!("{data}[train]\nmax_steps = 16\n"));
        assert_eq!(contradiction(&right, &results), None);
        let steps = recipe_of(&format!("{data}[train]\nmax_steps = 17\n"));
        assert!(
            contradiction(&steps, &results)
                .unwrap()
                .contains("17 steps")
        );
        let other = recipe_of("[[data]]\npath = 'c'\n");
        assert!(
            contradiction(&other, &results)
                .unwrap()
                .contains("lists a, b")
        );
        assert_eq!(contradiction(&other, &Value::Null), None);
    }

    #[test]
    fn the_license_is_the_given_one_or_that_of_the_base_model() {
        let known = json!({"license": "Apache-2.0"});
        let of = |given, results: &Value| {
            let mut notes = Vec::new();
            let license = license(given, results, &mut notes);
            (license.map_err(|error| error.to_string()), notes.join(" "))
        };
        assert_eq!(of(None, &known).0.as_deref(), Ok("apache-2.0"));
        assert_eq!(
            of(Some("apache-2.0"), &known),
            (Ok("apache-2.0".into()), String::new())
        );
        let (license, notes) = of(Some("mit"), &known);
        assert_eq!(license.as_deref(), Ok("mit"));
        assert!(notes.contains("is apache-2.0"), "{notes}");
        let error = of(None, &Value::Null).0.unwrap_err();
        assert!(
            error.contains("--license") && error.contains("--base-model"),
            "{error}"
        );
    }
}
