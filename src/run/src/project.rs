//! Locates the project, its recipes and its runs.

use std::path::{Path, PathBuf};

use super::{RunError, closest};

/// Folder of the recipes, relative to the project root.
const RECIPES: &str = "pipelines/recipes";

/// The project root: `$PYBENCH_ROOT`, or the nearest folder from `start` upward that contains
/// `pipelines/recipes`.
pub fn project_root(start: &Path) -> Option<PathBuf> {
    if let Some(root) = std::env::var_os("PYBENCH_ROOT").filter(|root| !root.is_empty()) {
        return Some(root.into());
    }
    let start = start.canonicalize().ok()?;
    let mut folders = start.ancestors();
    let root = folders.find(|folder| folder.join(RECIPES).is_dir())?;
    Some(root.to_owned())
}

/// The file of a recipe, which is given as a path or as a name in the project.
pub fn find_recipe(recipe: &Path, root: Option<&Path>) -> Result<PathBuf, RunError> {
    let is_path = recipe.extension().is_some() || recipe.components().count() != 1;
    if is_path {
        return Ok(recipe.to_owned());
    }
    let name = recipe.to_string_lossy();
    let Some(root) = root else {
        return Err(RunError::BadInput(format!(
            "no recipe `{name}`: no folder `{RECIPES}` in the current directory or its parents; give the path of a recipe file or set PYBENCH_ROOT"
        )));
    };
    let folder = root.join(RECIPES);
    let path = folder.join(format!("{name}.toml"));
    if path.is_file() {
        return Ok(path);
    }
    let known = file_stems(&folder, "toml");
    Err(RunError::BadInput(unknown(
        "recipe", &name, &known, &folder,
    )))
}

/// The folder of an existing run, which is given as a path or as a name in `runs_dir`.
pub fn find_run(run: &Path, runs_dir: &Path) -> Result<PathBuf, RunError> {
    let is_run = |folder: &Path| folder.join("journal.sqlite").is_file();
    if let Some(found) = [run.to_owned(), runs_dir.join(run)]
        .into_iter()
        .find(|f| is_run(f))
    {
        return Ok(found);
    }
    let mut known = subfolders(runs_dir);
    known.retain(|name| is_run(&runs_dir.join(name)));
    Err(RunError::BadInput(unknown(
        "run",
        &run.to_string_lossy(),
        &known,
        runs_dir,
    )))
}

/// The folder that contains the runs, unless `--runs-dir` gives another.
pub fn default_runs_dir(root: Option<&Path>) -> PathBuf {
    root.unwrap_or(Path::new(".")).join("data/runs")
}

fn unknown(what: &str, name: &str, known: &[String], folder: &Path) -> String {
    let hint = closest(name, known.iter().map(String::as_str))
        .map(|best| format!("; did you mean `{best}`?"))
        .unwrap_or_default();
    let list = match known.is_empty() {
        true => "none".to_owned(),
        false => known.join(", "),
    };
    format!(
        "no {what} `{name}` in {}{hint} (available: {list})",
        folder.display()
    )
}

fn file_stems(folder: &Path, extension: &str) -> Vec<String> {
    let mut names: Vec<String> = names(folder)
        .filter_map(|name| Some(name.strip_suffix(extension)?.strip_suffix('.')?.to_owned()))
        .collect();
    names.sort();
    names
}

fn subfolders(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = names(folder)
        .filter(|name| folder.join(name).is_dir())
        .collect();
    names.sort();
    names
}

fn names(folder: &Path) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipes_are_found_by_name_and_by_path() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(RECIPES);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("quickstart.toml"), "").unwrap();
        let below = root.path().join("a/b");
        std::fs::create_dir_all(&below).unwrap();

        let found = project_root(&below).unwrap();
        assert_eq!(found, root.path().canonicalize().unwrap());
        let find = |name: &str| find_recipe(Path::new(name), Some(&found));
        assert!(
            find("quickstart")
                .unwrap()
                .ends_with("pipelines/recipes/quickstart.toml")
        );
        assert_eq!(find("./mine").unwrap(), Path::new("./mine"));
        assert_eq!(find("mine.toml").unwrap(), Path::new("mine.toml"));
        let error = find("quikstart").unwrap_err().to_string();
        assert!(error.contains("did you mean `quickstart`?"), "{error}");
        assert!(find_recipe(Path::new("quickstart"), None).is_err());
    }

    #[test]
    fn runs_are_found_by_name_and_by_path() {
        let runs = tempfile::tempdir().unwrap();
        let run = runs.path().join("first");
        std::fs::create_dir_all(&run).unwrap();
        assert!(find_run(Path::new("first"), runs.path()).is_err());
        std::fs::write(run.join("journal.sqlite"), "").unwrap();
        assert_eq!(find_run(Path::new("first"), runs.path()).unwrap(), run);
        assert_eq!(find_run(&run, Path::new("/nowhere")).unwrap(), run);
        let error = find_run(Path::new("frist"), runs.path())
            .unwrap_err()
            .to_string();
        assert!(error.contains("did you mean `first`?"), "{error}");
    }
}
