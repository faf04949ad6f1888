//! Whether recipe, licence and report are those of this model, as far as files say it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pybench::run::RunError;
use serde_json::Value;

use super::{TEXT, bad, json, read};

/// What a training run leaves beside its model: its results, `Null` where there are none.
pub(super) fn results(model: &Path) -> Result<Value, RunError> {
    match run_of(model) {
        Some(run) => json(&run.join("results.json"), TEXT),
        None => Ok(Value::Null),
    }
}

/// The folder of the training run that made it. Only a folder that training made is asked for what it left.
pub(super) fn run_of(model: &Path) -> Option<PathBuf> {
    let run = model.parent()?;
    let trained = model.ends_with("model") && run.join("results.json").is_file();
    trained.then(|| run.to_owned())
}

/// Where the recipe of a model is: what the run kept of it, or what the user names, which has to fit.
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
        return match read(given, TEXT)? == read(&kept, TEXT)? {
            true => Ok(Some(kept)),
            false => Err(bad(
                given,
                &format!(
                    "another recipe than {}, by which this model was made; leave --recipe out",
                    kept.display()
                ),
            )),
        };
    }
    let text = String::from_utf8(read(given, TEXT)?).map_err(|_| bad(given, "no text"))?;
    let recipe: toml::Value = toml::from_str(&text).map_err(|e| bad(given, &e.to_string()))?;
    contradiction(&recipe, results).map_or(Ok(()), |why| Err(bad(given, &why)))?;
    notes.push(match results["mixture"].is_array() {
        true => "recipe: its data and steps are those of results.json".into(),
        false => "recipe: nothing beside the model says whether it is its recipe".to_owned(),
    });
    Ok(Some(given.to_owned()))
}

/// What of a recipe is other than what came of it.
fn contradiction(recipe: &toml::Value, results: &Value) -> Option<String> {
    let steps = recipe.get("train").and_then(|train| train.get("steps"));
    let steps = steps.and_then(toml::Value::as_integer);
    if let (Some(asked), Some(made)) = (steps, results["steps"].as_i64())
        && asked != made
    {
        return Some(format!(
            "no recipe of this model: it asks for {asked} steps, results.json has {made}"
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
            "no recipe of this model: it trains on {}, results.json names {}",
            list(&asked),
            list(&made)
        )
    })
}

/// The licence as the Hub names it: as given, otherwise that of the model it was trained from, as the trainer knew it.
pub(super) fn licence(
    given: Option<&str>,
    results: &Value,
    notes: &mut Vec<String>,
) -> Result<String, RunError> {
    let source = results["licence"].as_str().map(str::to_lowercase);
    match (given, source) {
        (Some(given), Some(source)) if given.to_lowercase() != source => {
            notes.push(format!(
                "licence: {given}, although the model it was trained from is under {source}"
            ));
            Ok(given.to_owned())
        }
        (Some(given), _) => Ok(given.to_owned()),
        (None, Some(source)) => {
            notes.push(format!("licence: {source}, that of the model it was trained from"));
            Ok(source)
        }
        (None, None) => Err(RunError::BadInput(
            "whoever uses a model has to know what they may: name its licence with --licence, or with \
             --base-model the model on the Hub that it was trained from, whose card names one"
                .into(),
        )),
    }
}

/// The label of this model in a report, where the evaluation's recipe says it.
pub(super) fn label(
    model: &Path,
    report: &Path,
    notes: &mut Vec<String>,
) -> Result<Option<String>, RunError> {
    let numbers = json(&report.join("report.json"), TEXT)?;
    let agents = numbers["frozen"]["agents"].as_object();
    let recipe = report.parent().map(|run| run.join("recipe.toml"));
    let recipe = recipe.filter(|path| path.is_file());
    let (Some(agents), Some(path)) = (agents, recipe) else {
        notes.push("report: nothing beside it says which models it is of".to_owned());
        return Ok(None);
    };
    let text = String::from_utf8(read(&path, TEXT)?).map_err(|_| bad(&path, "no text"))?;
    let recipe: toml::Value = toml::from_str(&text).map_err(|e| bad(&path, &e.to_string()))?;
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
                notes.push(format!("report: this model is `{name}` in it"));
                return Ok(Some(name.clone()));
            }
            // Which weights stand behind an endpoint, nobody can tell.
            Some("openai") => {
                notes.push(format!(
                    "report: whether `{name}` in it is this model, nothing says"
                ));
                return Ok(None);
            }
            Some("checkpoint") => others.push(name.as_str()),
            _ => {}
        }
    }
    Err(bad(
        report,
        &format!(
            "no report of this model: {} evaluated {}; `just eval` it first, or leave --report out",
            path.display(),
            match others.is_empty() {
                true => "none".to_owned(),
                false => format!("others ({})", others.join(", ")),
            }
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
    fn a_recipe_has_the_steps_and_the_data_of_the_results() {
        let results = json!({"steps": 16, "mixture": [{"source": "a"}, {"source": "b"}]});
        let data = "[[data]]\npath = 'b'\n[[data]]\npath = 'a'\n";
        let right = recipe_of(&format!("{data}[train]\nsteps = 16\n"));
        assert_eq!(contradiction(&right, &results), None);
        let steps = recipe_of(&format!("{data}[train]\nsteps = 17\n"));
        assert!(
            contradiction(&steps, &results)
                .unwrap()
                .contains("17 steps")
        );
        let other = recipe_of("[[data]]\npath = 'c'\n");
        assert!(
            contradiction(&other, &results)
                .unwrap()
                .contains("names a, b")
        );
        assert_eq!(contradiction(&other, &Value::Null), None);
    }

    #[test]
    fn the_licence_is_as_given_or_that_of_the_source() {
        let known = json!({"licence": "Apache-2.0"});
        let of = |given, results: &Value| {
            let mut notes = Vec::new();
            let licence = licence(given, results, &mut notes);
            (licence.map_err(|error| error.to_string()), notes.join(" "))
        };
        assert_eq!(of(None, &known).0.as_deref(), Ok("apache-2.0"));
        assert_eq!(
            of(Some("apache-2.0"), &known),
            (Ok("apache-2.0".into()), String::new())
        );
        let (licence, notes) = of(Some("mit"), &known);
        assert_eq!(licence.as_deref(), Ok("mit"));
        assert!(notes.contains("under apache-2.0"), "{notes}");
        let error = of(None, &Value::Null).0.unwrap_err();
        assert!(
            error.contains("--licence") && error.contains("--base-model"),
            "{error}"
        );
    }
}
