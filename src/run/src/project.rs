//! Locates the project, its recipes and its runs.

use std::path::{Path, PathBuf};

use pybench_types::text::shell_word;

use super::store::BucketPath;
use super::{Journal, RunError, closest, default_cache_dir, run_copy, shipped};

/// Folder of the recipes, relative to the project root.
pub const RECIPES: &str = "pipelines/recipes";

/// Folder of small files of every type, relative to the project root.
const SAMPLES: &str = "data/samples/files";

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

/// What starts this program, for commands that it recommends: `./justw` in a checkout, `pybench` where the shell finds
/// it, otherwise the path that was typed.
pub fn invocation() -> String {
    let current = std::env::current_dir().and_then(|folder| folder.canonicalize());
    let root = project_root(Path::new(".")).filter(|root| root.join("justw").is_file());
    if root.is_some_and(|root| root.canonicalize().ok() == current.ok()) {
        return "./justw".to_owned();
    }
    let typed = std::env::args_os().next().map(PathBuf::from);
    let is_path = |path: &PathBuf| path.components().count() > 1;
    // A stage's own program lies beside `pybench`; a test does not.
    let path = typed
        .filter(is_path)
        .map(|path| path.with_file_name(PROGRAM));
    let path = path.filter(|path| path.is_file() && on_path() != path.canonicalize().ok());
    let path = path.map(|path| shell_word(&path.to_string_lossy()));
    path.unwrap_or_else(|| PROGRAM.to_owned())
}

/// The program that has every command.
const PROGRAM: &str = "pybench";

/// The program that the shell starts.
fn on_path() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(PROGRAM));
    files.find(|file| file.is_file())?.canonicalize().ok()
}

/// Whether a recipe is given as a path and not as a name.
pub fn is_path(recipe: &Path) -> bool {
    recipe.extension().is_some() || recipe.components().count() != 1
}

/// The file of a recipe, which is given as a path or as a name in `folder` (such as [`RECIPES`]) of the project or
/// of the recipes that come with the program.
///
/// # Errors
/// [`RunError::BadInput`] if there is no recipe of that name; I/O errors of the machine's cache.
pub fn find_recipe(recipe: &Path, folder: &str, root: Option<&Path>) -> Result<PathBuf, RunError> {
    if is_path(recipe) {
        return Ok(recipe.to_owned());
    }
    let name = recipe.to_string_lossy();
    let shipped = find_shipped(Path::new(folder))?;
    let folders: Vec<PathBuf> = root
        .map(|root| root.join(folder))
        .into_iter()
        .chain(shipped)
        .collect();
    let file = format!("{name}.toml");
    if let Some(path) = folders
        .iter()
        .map(|folder| folder.join(&file))
        .find(|path| path.is_file())
    {
        return Ok(path);
    }
    let mut known: Vec<String> = folders
        .iter()
        .flat_map(|folder| file_stems(folder, "toml"))
        .collect();
    known.sort();
    known.dedup();
    Err(RunError::BadInput(
        unknown("recipe", &name, &known, "") + "; or give the path of a recipe file",
    ))
}

/// A file or folder that comes with the program, by its path in a checkout (`data/samples/files`), if there is one.
///
/// # Errors
/// I/O errors of the machine's cache, into which such files are unpacked.
pub fn find_shipped(path: &Path) -> Result<Option<PathBuf>, RunError> {
    let cache = default_cache_dir();
    shipped::find(path).map_err(RunError::io(format!(
        "cannot unpack recipes and samples into {}; set PYBENCH_CACHE to a writable folder",
        cache.display()
    )))
}

/// The folder of the sample files: the project's, or that of the program.
///
/// # Errors
/// [`RunError::BadInput`] if there is neither; I/O errors of the machine's cache.
pub fn samples() -> Result<PathBuf, RunError> {
    let own = project_root(Path::new(".")).map(|root| root.join(SAMPLES));
    if let Some(own) = own.filter(|folder| folder.is_dir()) {
        return Ok(own);
    }
    let missing = || RunError::BadInput("there are no sample files here: give a folder".into());
    find_shipped(Path::new(SAMPLES))?.ok_or_else(missing)
}

/// Whether a path is one in a bucket (`s3://`, `gs://`, `az://`).
pub fn is_in_bucket(path: &Path) -> bool {
    BucketPath::of(path).is_some()
}

/// Checks the folder of runs for a command that works on this machine alone.
///
/// # Errors
/// [`RunError::BadInput`] for a folder in a bucket; the text says how a run keeps its files there.
pub fn check_runs_dir(runs_dir: &Path) -> Result<(), RunError> {
    match is_in_bucket(runs_dir) {
        false => Ok(()),
        true => Err(RunError::BadInput(format!(
            "--runs-dir {}: this command needs a folder of this machine; only `synthesize` and its stages keep a run in a bucket \
             by its address. Name the bucket in the section [store] of a profile, and give --profile FILE",
            runs_dir.display()
        ))),
    }
}

/// The folder of an existing run, which is given as a path or as a name in `runs_dir`. One of them may be in a bucket
/// (`s3://BUCKET/PREFIX/NAME`); the folder is a copy then.
///
/// # Errors
/// [`RunError::BadInput`] if there is no such run; errors of the bucket.
pub fn find_run(run: &Path, runs_dir: &Path) -> Result<PathBuf, RunError> {
    if let Some(copy) = run_copy::fetch(run, runs_dir)? {
        return Ok(copy);
    }
    let is_run = Journal::exists;
    if let Some(found) = [run.to_owned(), runs_dir.join(run)]
        .into_iter()
        .find(|folder| is_run(folder))
    {
        return Ok(found);
    }
    let mut known = subfolders(runs_dir);
    known.retain(|name| is_run(&runs_dir.join(name)));
    let place = format!(" in {}", runs_dir.display());
    let name = run.to_string_lossy();
    Err(RunError::BadInput(unknown("run", &name, &known, &place)))
}

/// The address in a bucket of a run that is given as [`find_run`] takes it; `None` for one of this machine.
pub fn bucket_address(run: &Path, runs_dir: &Path) -> Option<PathBuf> {
    let named = [run.to_owned(), runs_dir.join(run)];
    named.into_iter().find(|path| is_in_bucket(path))
}

/// The folder that contains the runs, unless `--runs-dir` gives another.
pub fn default_runs_dir(root: Option<&Path>) -> PathBuf {
    root.unwrap_or(Path::new(".")).join("data/runs")
}

fn unknown(what: &str, name: &str, known: &[String], place: &str) -> String {
    let hint = closest(name, known.iter().map(String::as_str))
        .map(|best| format!("; did you mean `{best}`?"))
        .unwrap_or_default();
    let list = match known.is_empty() {
        true => "none".to_owned(),
        false => known.join(", "),
    };
    format!("no {what} `{name}`{place}{hint} (available: {list})")
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
    fn a_run_in_a_bucket_has_an_address() {
        let of = |run: &str, runs_dir: &str| bucket_address(Path::new(run), Path::new(runs_dir));
        let address = Some(PathBuf::from("s3://b/runs/a"));
        assert_eq!(of("a", "s3://b/runs"), address);
        assert_eq!(of("s3://b/runs/a", "s3://b/other"), address);
        assert_eq!(of("s3://b/runs/a", "data/runs"), address);
        assert_eq!(of("a", "data/runs"), None);
        assert_eq!(of("/data/a", "s3://b/runs"), None);
    }

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
        let find = |name: &str| find_recipe(Path::new(name), RECIPES, Some(&found));
        assert_eq!(
            find("quickstart").unwrap(),
            found.join("pipelines/recipes/quickstart.toml")
        );
        assert_eq!(find("./mine").unwrap(), Path::new("./mine"));
        assert_eq!(find("mine.toml").unwrap(), Path::new("mine.toml"));
        let error = find("quikstart").unwrap_err().to_string();
        assert!(error.contains("did you mean `quickstart`?"), "{error}");
        // Outside a project, and where the project has none of that name, those of the program.
        let shipped = find_recipe(Path::new("quickstart"), RECIPES, None).unwrap();
        assert!(shipped.is_file() && !shipped.starts_with(&found));
        assert!(find("pyinstruct").unwrap().is_file());
    }

    #[test]
    fn a_command_that_needs_a_folder_refuses_a_bucket() {
        assert!(check_runs_dir(Path::new("data/runs")).is_ok());
        for bucket in [
            "s3://bucket/runs",
            "gs://bucket/runs",
            "az://container/runs",
        ] {
            let error = check_runs_dir(Path::new(bucket)).unwrap_err().to_string();
            assert!(error.contains(bucket) && error.contains("--profile FILE"));
        }
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
