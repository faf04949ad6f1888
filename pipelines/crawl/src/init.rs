//! The command `pybench init`: writes a recipe for a folder of one's own files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pybench_hub::is_address;
use pybench_run::cli::{LogArgs, Process, print_beside};
use pybench_run::project::{invocation, project_root};
use pybench_run::{Recipe, RunContext, RunError, RunFolder, default_cache_dir, write_output};
use pybench_types::task::Profile;
use pybench_types::text::shell_word;

use crate::choose;
use crate::stage::Manifest;
use crate::summary::Summary;

/// What a run of the recipe makes, beside the recipe.
const GITIGNORE: &str = "# Made by pybench: runs and their caches.\n/data/runs/\n/data/cache/\n";
/// Maximum number of broken files named in the recipe.
const MAX_NAMED: usize = 10;

/// Profile a folder of your own files and write a recipe for it
#[derive(Clone, Debug, clap::Parser)]
pub struct InitArgs {
    /// Folder with the files that tasks are to use; here, in a bucket (s3://, gs://, az://) or on the Hub (hf://, at a commit)
    #[arg(long, value_name = "FOLDER")]
    pub files: PathBuf,
    /// Recipe to write [default: named after the folder, in the current directory]
    #[arg(long, value_name = "FILE")]
    pub recipe: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogArgs,
}

/// Profiles the folder, writes the recipe, and `.gitignore` beside it unless the project has its own.
///
/// # Errors
/// [`RunError::BadInput`] if the folder does not exist or has no usable file, or if the recipe exists already.
pub async fn run(args: InitArgs, process: &Process) -> Result<(), RunError> {
    let folder = folder(&args.files)?;
    let name = recipe_name(&folder);
    let default = || PathBuf::from(format!("{name}.toml"));
    let path = args.recipe.clone().unwrap_or_else(default);
    if path.exists() {
        return Err(RunError::BadInput(format!(
            "{} exists already; give another file with --recipe",
            path.display()
        )));
    }
    let root = project_root(Path::new("."));
    let beside = parent(&path)?;
    let base = root.clone().unwrap_or_else(|| beside.clone());
    let source = folder.strip_prefix(&base).unwrap_or(&folder);
    let found = profile(&recipe(&name, source, ""), &base, process).await?;
    let text = recipe(&name, source, &remarks(&folder, &found));
    write_output(&path, text.as_bytes())?;
    let mut written = path.display().to_string();
    let gitignore = beside.join(".gitignore");
    if root.is_none() && !gitignore.exists() {
        write_output(&gitignore, GITIGNORE.as_bytes())?;
        written += " and .gitignore";
    }
    let summary = Summary::of(&found);
    let pybench = invocation();
    let command = format!(
        "{pybench} synthesize {}",
        shell_word(&path.to_string_lossy())
    );
    print_beside(
        &process.progress,
        &format!(
            "{summary}wrote {written}; next:\n\
             {command} --dry-run      # what a run would cost\n\
             {command} --preview 5    # five tasks, solved and graded\n\
             {command}                # the dataset\n"
        ),
    )
}

/// The folder without links, so that the recipe names it from anywhere; an address as it is.
fn folder(files: &Path) -> Result<PathBuf, RunError> {
    if is_address(files) {
        return Ok(files.to_owned());
    }
    let folder = files.canonicalize().ok().filter(|path| path.is_dir());
    let missing = || RunError::BadInput(format!("--files {}: no such folder", files.display()));
    folder.ok_or_else(missing)
}

/// The folder of a file that may not exist yet.
fn parent(path: &Path) -> Result<PathBuf, RunError> {
    let absolute = std::path::absolute(path);
    let absolute = absolute.map_err(RunError::io(path.display().to_string()))?;
    let parent = absolute.parent().unwrap_or(Path::new("/"));
    Ok(parent.canonicalize().unwrap_or_else(|_| parent.to_owned()))
}

/// A name for recipe and run: letters, digits, `-` and `_` of the folder's name. It differs from that name, so that
/// commands that take a folder or the name of a run do not take the folder.
fn recipe_name(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let name = match is_address(folder) {
        // What follows is the revision on the Hub.
        true => name.split('@').next().unwrap_or_default(),
        false => &*name,
    };
    let plain = |c: char| match c.is_ascii_alphanumeric() || c == '_' {
        true => c.to_ascii_lowercase(),
        false => '-',
    };
    let name: String = name.chars().map(plain).take(40).collect();
    match name.trim_matches('-') {
        "" => "my-tasks".to_owned(),
        name => format!("{name}-tasks"),
    }
}

/// Crawls the folder as a run of the recipe would, in a temporary run folder.
async fn profile(recipe: &str, base: &Path, process: &Process) -> Result<Manifest, RunError> {
    let recipe = Recipe::parse("the new recipe", recipe, &[])?;
    let scratch = tempfile::tempdir().map_err(RunError::io("a temporary folder"))?;
    let folder = RunFolder::open(&scratch.path().join("run"), &recipe.to_toml()?)?;
    let context = RunContext {
        progress: process.progress.clone(),
        interrupt: process.interrupt.clone(),
        project_root: base.to_owned(),
        cache_dir: default_cache_dir(),
        ..RunContext::new(Arc::new(folder), recipe)
    };
    let found = choose(&context).await?;
    let usable = |profile: &Profile| !matches!(profile, Profile::Broken { .. });
    match found.files.iter().any(|file| usable(&file.profile)) {
        true => Ok(found),
        false => Err(RunError::BadInput(format!(
            "no file of the folder can be used\n{}",
            Summary::of(&found).to_string().trim_end()
        ))),
    }
}

/// Comments about the folder.
fn remarks(folder: &Path, found: &Manifest) -> String {
    let summary = Summary::of(found);
    let mut text = format!("# Files of {}:\n", one_line(&folder.display().to_string()));
    for line in summary.to_string().lines() {
        text += &format!("# {}\n", one_line(line));
    }
    let broken = found.files.iter().filter_map(|file| match &file.profile {
        Profile::Broken { reason } => Some((&file.origin, reason)),
        _ => None,
    });
    for (origin, reason) in broken.take(MAX_NAMED) {
        text += &format!("#   {}: {}\n", one_line(origin), one_line(reason));
    }
    text
}

/// Names of files may contain line ends.
fn one_line(text: &str) -> String {
    pybench_types::text::line(text)
}

fn recipe(name: &str, source: &Path, remarks: &str) -> String {
    let source = toml::Value::String(source.display().to_string());
    format!(
        r#"# A recipe of pybench: tasks on your own files. `pybench init` wrote it; change what you like.
{remarks}
name = "{name}"
seed = 1

[crawl]
# Larger files are left out, MiB.
file_mib = 32
# At most so many files of each type; `quota = {{ csv = 200 }}` sets it for one type.
default_quota = 100

[[crawl.sources]]
source = "local"
path = {source}
# Files to skip, in the syntax of .gitignore: ["drafts/", "*.tmp"]
ignore = []
# The license that every row names for its files. Files without one are not shipped with the dataset.
# license = "CC-BY-4.0"

[query]
tasks = 20
# Only tasks that use your files; "any" also allows tasks without files, such as mathematics.
files = "required"
# At most this share of the tasks comes from one template.
template_share = 0.2
languages = {{ en = 1.0 }}

# Scripted reference solutions: no key, no cost. They show what the rows look like, but are no data to train on.
[teacher]
kind = "expert"

# A model behind an OpenAI-compatible endpoint, instead of the table above. docs/sources.md says what it sees.
# [teacher]
# kind = "openai"
# model = "MODEL"
# base_url = "https://HOST/v1"
# key_env = "OPENAI_API_KEY"                     # the variable that holds the key
# price = {{ prompt = 1.0, completion = 2.0 }}     # US dollars per million tokens
#
# [budget]
# usd = 5.0                                      # a run never spends more

[rollout]
# Attempts at each task.
samples = 1
max_turns = 10

[shard]
# Share of the rows for the test split. Rows on the same file are always in one split.
test_fraction = 0.2
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_folders_become_names_of_runs() {
        for (folder, name) in [
            ("/a/Sales 2024", "sales-2024-tasks"),
            ("/a/数据", "my-tasks"),
            ("/", "my-tasks"),
            ("/a/b_c-d", "b_c-d-tasks"),
            ("/a/b@c", "b-c-tasks"),
            ("s3://bucket/2024/Sales/", "sales-tasks"),
            ("hf://datasets/o/boats@0123abc", "boats-tasks"),
        ] {
            assert_eq!(recipe_name(Path::new(folder)), name);
        }
    }

    #[test]
    fn addresses_of_folders_stand_in_the_recipe_as_they_are() {
        for address in ["s3://bucket/a/b", "az://container/a"] {
            let source = folder(Path::new(address)).unwrap();
            let text = recipe("t", &source, "");
            assert!(text.contains(&format!("path = \"{address}\"")), "{text}");
        }
    }

    #[test]
    fn the_recipe_is_valid_with_its_alternatives_too() {
        let text = recipe("mine", Path::new("a \"b\"/c"), "# x\n");
        let plain = Recipe::parse("a", &text, &[]).unwrap();
        assert_eq!(plain.name, "mine");
        // The tables of the model and the budget are comments; the scripted teacher makes room for them.
        let (before, after) = text.split_once("[teacher]\nkind = \"expert\"\n").unwrap();
        let uncommented = |line: &str| {
            let line = line.strip_prefix("# ").filter(|rest| {
                rest.starts_with('[')
                    || rest
                        .split_once(" = ")
                        .is_some_and(|(key, _)| !key.contains(' '))
            });
            line.map(|line| format!("{line}\n"))
        };
        let model: String = after.lines().filter_map(uncommented).collect();
        assert_eq!(model.lines().count(), 8, "{model}");
        let with_model = format!("{before}{after}{model}");
        let parsed = Recipe::parse("b", &with_model, &[]).unwrap();
        assert_eq!(parsed.budget.usd, Some(5.0));
    }
}
