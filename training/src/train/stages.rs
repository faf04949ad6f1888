//! Recipes made of others: `extends = "other.toml"` puts this file's keys over the other's, and
//! `stages = ["cpt", "sft"]` makes several runs of one file, each what stands at the top with the keys
//! of `[stage.NAME]` over it. A stage starts with the model that the one before it left.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::recipe::{Recipe, RecipeError, read_recipe};

/// Most recipes that extend one another.
const DEPTH: usize = 8;
/// Keys whose values are files beside the recipe.
const FILES: [&str; 2] = ["shape", "chat_template"];

/// One run of a recipe file.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Its name; none where the file is one run.
    pub name: Option<String>,
    /// What is to be done.
    pub recipe: Recipe,
}

impl Stage {
    /// The stages of a recipe file, in order.
    pub fn load(path: &Path) -> Result<Vec<Self>, RecipeError> {
        let text = read_recipe(path)?;
        let table = parse(&text, path)?;
        if !table.contains_key("extends") && !table.contains_key("stages") {
            // Straight from the text, so that mistakes are told with their line.
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
            .map_err(|_| wrong("stages is no list of names".into()))?;
        let mut stages = match stages {
            Some(Value::Table(stages)) => stages,
            _ => return Err(wrong("there is no [stage.NAME]".into())),
        };
        let mut all = vec![];
        for name in names {
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            let own = match stages.remove(&name) {
                Some(Value::Table(own)) if !name.is_empty() && name.chars().all(plain) => own,
                _ => {
                    return Err(wrong(format!(
                        "there is no [stage.{name}], or it stands twice in stages"
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
            Some(left) => Err(wrong(format!("[stage.{left}] does not stand in stages"))),
            None if all.is_empty() => Err(wrong("stages is empty".into())),
            None => Ok(all),
        }
    }
}

fn parse(text: &str, path: &Path) -> Result<Table, RecipeError> {
    let mut table: Table = toml::from_str(text).map_err(|error| RecipeError::Syntax {
        path: path.into(),
        error,
    })?;
    beside(&mut table, path);
    let stages = table.get_mut("stage").and_then(Value::as_table_mut);
    let stages = stages.into_iter().flat_map(|stages| stages.iter_mut());
    let tables = stages.filter_map(|(_, stage)| stage.as_table_mut());
    tables.for_each(|stage| beside(stage, path));
    Ok(table)
}

/// Names of files become paths that hold wherever another recipe takes them over.
fn beside(table: &mut Table, path: &Path) {
    for key in FILES {
        if let Some(Value::String(file)) = table.get_mut(key) {
            *file = near(path, Path::new(file)).display().to_string();
        }
    }
}

/// A file named in a recipe, from the recipe's folder.
pub(super) fn near(recipe: &Path, file: &Path) -> PathBuf {
    recipe.parent().unwrap_or(Path::new("")).join(file)
}

/// A table over the one that it extends.
fn extended(mut table: Table, path: &Path, depth: usize) -> Result<Table, RecipeError> {
    let Some(other) = table.remove("extends") else {
        return Ok(table);
    };
    let other = other.as_str().filter(|_| depth < DEPTH);
    let other = other.ok_or_else(|| RecipeError::Stages {
        path: path.into(),
        reason: format!("extends names one other recipe, and at most {DEPTH} in a row"),
    })?;
    let other = near(path, Path::new(other));
    let below = parse(&read_recipe(&other)?, &other)?;
    let mut below = extended(below, &other, depth + 1)?;
    merge(&mut below, table);
    Ok(below)
}

/// Puts the keys of one table over another's: tables key by key, everything else whole.
fn merge(below: &mut Table, over: Table) {
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

    const TWO: &str = "name='a'\nmodel='m'\nstages=['cpt','sft']\nchat_template='t.jinja'\n[train]\ncontext=8\nsteps=1\n[stage.cpt]\ndata=[{path='n',kind='text'}]\n[stage.sft]\ndata=[{path='d'}]\n[stage.sft.train]\nsteps=7\n";

    fn load(files: &[(&str, &str)]) -> Result<Vec<Stage>, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Stage::load(&folder.path().join(files[0].0)).map_err(|error| error.to_string())
    }

    #[test]
    fn stages_share_the_top_and_have_their_own() {
        let stages = load(&[("r.toml", TWO)]).unwrap();
        let names: Vec<_> = stages.iter().map(|s| s.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["cpt", "sft"]);
        let steps: Vec<_> = stages.iter().map(|s| s.recipe.train.steps).collect();
        assert_eq!(steps, [Some(1), Some(7)]);
        assert!(stages.iter().all(|s| s.recipe.train.context == 8));
    }

    #[test]
    fn a_recipe_extends_another() {
        let over = "extends='sub/two.toml'\nmodel='tiny'\n[stage.cpt.train]\ncontext=16\n";
        let stages = load(&[("over.toml", over), ("sub/two.toml", TWO)]).unwrap();
        assert_eq!(stages[0].recipe.train.context, 16);
        assert_eq!(stages[1].recipe.train.context, 8);
        assert!(stages.iter().all(|s| s.recipe.model == "tiny"));
        let template = stages[0].recipe.chat_template.clone().unwrap();
        assert!(template.ends_with("sub/t.jinja"), "{}", template.display());
    }

    #[test]
    fn mistakes_are_told() {
        let error = |text: &str| load(&[("r.toml", text)]).unwrap_err();
        assert!(error(&TWO.replace("'sft']", "'sftt']")).contains("[stage.sftt]"));
        assert!(error(&TWO.replace(",'sft'", "")).contains("[stage.sft] does not stand"));
        assert!(error(&TWO.replace("steps=7", "stepz=7")).contains("stepz"));
        assert!(error(&TWO.replace("steps=7", "steps=7\nepochs=1")).contains("train.steps"));
        assert!(error("extends='r.toml'\n").contains("at most 8"));
        assert!(error("extends='none.toml'\n").contains("none.toml"));
    }

    #[test]
    fn recipes_of_the_repository_are_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes");
        let entries = std::fs::read_dir(folder).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        for path in paths.filter(|path| path.extension().is_some_and(|e| e == "toml")) {
            for stage in Stage::load(&path).unwrap() {
                for file in [&stage.recipe.shape, &stage.recipe.chat_template] {
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
            let _ = Stage::load(&path);
        });
    }
}
