//! Inheritance and stages of recipes. `extends = "other.toml"` overrides keys of another recipe.
//! `stages = ["cpt", "sft"]` defines several runs in one file: each has the keys at the top, overridden by
//! those of `[stage.NAME]`, and starts from the model of the stage before it.

use std::path::Path;

use pybench_training_data::is_address;
use toml::{Table, Value};

use super::recipe::{Recipe, RecipeError, read_recipe, resolve};

/// Recipes that extend one another.
const MAX_DEPTH: usize = 8;
/// Keys for the length of a run, of which a recipe has one.
const LENGTH_KEYS: [&str; 2] = ["max_steps", "num_epochs"];
/// Keys whose values are paths relative to the recipe.
const PATH_KEYS: [&str; 2] = ["model_config", "chat_template"];

/// One training run of a recipe file.
#[derive(Clone, Debug, PartialEq)]
pub struct RecipeStage {
    /// `None` if the file has no stages.
    pub name: Option<String>,
    pub recipe: Recipe,
}

impl RecipeStage {
    /// Reads a recipe file and returns its stages in order.
    pub fn load(path: &Path) -> Result<Vec<Self>, RecipeError> {
        let text = read_recipe(path)?;
        let table = parse(&text, path)?;
        if !table.contains_key("extends") && !table.contains_key("stages") {
            // Parsed from the text, so that errors have a line number.
            let recipe = Recipe::parse(&text, path)?;
            return Ok(vec![Self { name: None, recipe }]);
        }
        let mut table = extended(table, path, 0)?;
        let (names, stages) = (table.remove("stages"), table.remove("stage"));
        let Some(names) = names else {
            let recipe = Recipe::from_table(table, path)?;
            return Ok(vec![Self { name: None, recipe }]);
        };
        let wrong = |reason: String| RecipeError::Stages {
            path: path.into(),
            reason,
        };
        let names: Vec<String> = names
            .try_into()
            .map_err(|_| wrong("stages must be a list of names".into()))?;
        let mut stages = match stages {
            Some(Value::Table(stages)) => stages,
            _ => {
                return Err(wrong(
                    "stages needs a section [stage.NAME] for each name".into(),
                ));
            }
        };
        let mut all = vec![];
        for name in names {
            let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            let own = match stages.remove(&name) {
                Some(Value::Table(own)) if !name.is_empty() && name.chars().all(allowed) => own,
                _ => {
                    return Err(wrong(format!(
                        "the section [stage.{name}] is missing, or stages contains the name twice"
                    )));
                }
            };
            let mut stage = table.clone();
            merge(&mut stage, own);
            all.push(Self {
                recipe: Recipe::from_table(stage, path)?,
                name: Some(name),
            });
        }
        match stages.keys().next() {
            Some(left) => Err(wrong(format!(
                "the section [stage.{left}] is not listed in stages"
            ))),
            None if all.is_empty() => Err(wrong("stages is empty".into())),
            None => Ok(all),
        }
    }
}

fn parse(text: &str, path: &Path) -> Result<Table, RecipeError> {
    let mut table: Table =
        toml::from_str(text).map_err(|error| RecipeError::syntax(path, error))?;
    resolve_paths(&mut table, path);
    let stages = table.get_mut("stage").and_then(Value::as_table_mut);
    let stages = stages.into_iter().flat_map(|stages| stages.iter_mut());
    let tables = stages.filter_map(|(_, stage)| stage.as_table_mut());
    tables.for_each(|stage| resolve_paths(stage, path));
    Ok(table)
}

/// Resolves relative paths, so that they stay valid in a recipe in another folder that extends this one.
fn resolve_paths(table: &mut Table, path: &Path) {
    let resolve_value = |value: Option<&mut Value>| {
        if let Some(Value::String(file)) = value {
            *file = resolve(path, Path::new(file)).display().to_string();
        }
    };
    for key in PATH_KEYS {
        resolve_value(table.get_mut(key));
    }
    let agent_eval = table.get_mut("agent_eval").and_then(Value::as_table_mut);
    resolve_value(agent_eval.and_then(|agent_eval| agent_eval.get_mut("recipe")));
}

/// Merges a table into the recipe that it extends.
fn extended(mut table: Table, path: &Path, depth: usize) -> Result<Table, RecipeError> {
    let Some(other) = table.remove("extends") else {
        return Ok(table);
    };
    let other = other.as_str().filter(|_| depth < MAX_DEPTH);
    let other = other.ok_or_else(|| RecipeError::Stages {
        path: path.into(),
        reason: format!(
            "extends must name one recipe, and at most {MAX_DEPTH} recipes may extend one another"
        ),
    })?;
    if is_address(Path::new(other)) {
        return Err(RecipeError::Stages {
            path: path.into(),
            reason: format!(
                "extends names a recipe of this machine, because paths in it are relative to its folder; \
                 `pybench run fetch {other}` downloads a copy"
            ),
        });
    }
    let other = resolve(path, Path::new(other));
    let below = parse(&read_recipe(&other)?, &other)?;
    let mut below = extended(below, &other, depth + 1)?;
    merge(&mut below, table);
    Ok(below)
}

/// Overrides keys of a table: tables are merged key by key, other values are replaced. A key that excludes another one
/// replaces it.
fn merge(below: &mut Table, over: Table) {
    for [one, other] in [LENGTH_KEYS, [LENGTH_KEYS[1], LENGTH_KEYS[0]]] {
        if over.contains_key(one) && !over.contains_key(other) {
            below.remove(other);
        }
    }
    for (key, value) in over {
        match (below.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(over)) => merge(below, over),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "name='a'\nmodel='m'\nstages=['cpt','sft']\nchat_template='t.jinja'\n[train]\nmax_seq_len=8\nmax_steps=1\n[stage.cpt]\ndata=[{path='n',kind='text'}]\n[stage.sft]\ndata=[{path='d'}]\n[stage.sft.train]\nmax_steps=7\n";

    fn load(files: &[(&str, &str)]) -> Result<Vec<RecipeStage>, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        RecipeStage::load(&folder.path().join(files[0].0)).map_err(|error| error.to_string())
    }

    #[test]
    fn stages_share_the_top_and_have_their_own() {
        let stages = load(&[("r.toml", TWO)]).unwrap();
        let names: Vec<_> = stages.iter().map(|s| s.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["cpt", "sft"]);
        let steps: Vec<_> = stages.iter().map(|s| s.recipe.train.max_steps).collect();
        assert_eq!(steps, [Some(1), Some(7)]);
        assert!(stages.iter().all(|s| s.recipe.train.max_seq_len == 8));
    }

    #[test]
    fn a_stage_may_have_the_other_key_for_its_length() {
        let text = TWO.replace("max_steps=7", "num_epochs=0.5");
        let stages = load(&[("r.toml", &text)]).unwrap();
        let length =
            |stage: &RecipeStage| (stage.recipe.train.max_steps, stage.recipe.train.num_epochs);
        assert_eq!(length(&stages[0]), (Some(1), None));
        assert_eq!(length(&stages[1]), (None, Some(0.5)));
    }

    #[test]
    fn a_stage_of_pairs_resets_an_order_that_it_inherits() {
        let text = TWO
            .replace("max_steps=1", "max_steps=1\ncurriculum='difficulty'")
            .replace("[{path='d'}]", "[{path='d',kind='preference'}]")
            + "[stage.sft.dpo]\nbeta=0.2\n";
        let error = load(&[("r.toml", &text)]).unwrap_err();
        assert!(error.contains("train.curriculum"), "{error}");
        let reset = text.replace("max_steps=7", "max_steps=7\ncurriculum='random'");
        assert_eq!(load(&[("r.toml", &reset)]).unwrap().len(), 2);
    }

    #[test]
    fn a_recipe_extends_another() {
        let over = "extends='sub/two.toml'\nmodel='tiny'\n[stage.cpt.train]\nmax_seq_len=16\n";
        let stages = load(&[("over.toml", over), ("sub/two.toml", TWO)]).unwrap();
        assert_eq!(stages[0].recipe.train.max_seq_len, 16);
        assert_eq!(stages[1].recipe.train.max_seq_len, 8);
        assert!(stages.iter().all(|s| s.recipe.model == "tiny"));
        let template = stages[0].recipe.chat_template.clone().unwrap();
        assert!(template.ends_with("sub/t.jinja"), "{}", template.display());
    }

    #[test]
    fn addresses_of_files_stay() {
        let text = TWO.replace("t.jinja", "s3://b/t.jinja");
        let stages = load(&[("r.toml", &text)]).unwrap();
        let template = stages[0].recipe.chat_template.as_deref();
        assert_eq!(template, Some(Path::new("s3://b/t.jinja")));
        let error = load(&[("r.toml", "extends='s3://b/r.toml'\n")]).unwrap_err();
        assert!(error.contains("pybench run fetch s3://b/r.toml"), "{error}");
    }

    #[test]
    fn mistakes_are_reported() {
        let error = |text: &str| load(&[("r.toml", text)]).unwrap_err();
        assert!(error(&TWO.replace("'sft']", "'sftt']")).contains("[stage.sftt]"));
        assert!(error(&TWO.replace(",'sft'", "")).contains("[stage.sft] is not listed"));
        assert!(error(&TWO.replace("max_steps=7", "stepz=7")).contains("stepz"));
        assert!(
            error(&TWO.replace("max_steps=7", "max_steps=7\nnum_epochs=1"))
                .contains("train.max_steps")
        );
        assert!(error("extends='r.toml'\n").contains("at most 8"));
        assert!(error("extends='none.toml'\n").contains("none.toml"));
    }

    #[test]
    fn recipes_of_the_repository_are_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes");
        let entries = std::fs::read_dir(folder).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        for path in paths.filter(|path| path.extension().is_some_and(|e| e == "toml")) {
            for stage in RecipeStage::load(&path).unwrap() {
                for file in [&stage.recipe.model_config, &stage.recipe.chat_template] {
                    assert!(file.iter().all(|file| file.exists()), "{}", path.display());
                }
            }
        }
    }

    #[test]
    fn fuzz_stages() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.toml");
        bolero::check!().for_each(|noise: &[u8]| {
            std::fs::write(&path, [TWO.as_bytes(), noise].concat()).unwrap();
            let _ = RecipeStage::load(&path);
        });
    }
}
