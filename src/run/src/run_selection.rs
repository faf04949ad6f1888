//! Commands that messages recommend, as they have to be typed: with the recipe, the changes to it and the folder of runs
//! that the user gave.

use std::path::{Path, PathBuf};

use pybench_types::text::shell_word;
use serde::{Deserialize, Serialize};

use super::project::{default_runs_dir, invocation, is_in_bucket, is_path, project_root};
use super::{Journal, RunError};

/// Key of the metadata under which a journal keeps the selection.
const KEY: &str = "command_line";

/// The arguments that select a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSelection {
    /// File or name of the recipe.
    pub recipe: Option<PathBuf>,
    /// Changes to it.
    pub set: Vec<String>,
    /// Name of the run folder.
    pub run: Option<String>,
    /// Folder of the run folders.
    pub runs_dir: Option<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct Recorded {
    /// Folder in which the command was typed.
    folder: PathBuf,
    selection: RunSelection,
}

impl RunSelection {
    /// `pybench <command>` on the selected run.
    pub fn command(&self, command: &str) -> String {
        let mut text = format!("{} {command}", invocation());
        if let Some(recipe) = &self.recipe {
            text += &format!(" {}", shell_word(&recipe.to_string_lossy()));
        }
        for set in &self.set {
            text += &format!(" --set {}", shell_word(set));
        }
        if let Some(run) = &self.run {
            text += &format!(" --run {run}");
        }
        if let Some(folder) = &self.runs_dir {
            text += &format!(" --runs-dir {}", shell_word(&folder.to_string_lossy()));
        }
        text
    }

    /// Keeps the selection in the journal of the run, for later messages about it.
    pub(crate) fn record(&self, journal: &Journal) -> Result<(), RunError> {
        let recorded = Recorded {
            folder: current_folder(),
            selection: self.clone(),
        };
        journal.set_metadata(KEY, &serde_json::to_value(recorded)?)
    }

    /// What selected the run in the folder `root` last; `None` if no command line did.
    pub fn of(root: &Path) -> Option<Self> {
        let journal = Journal::of_run(root).ok()??;
        let recorded = journal.metadata(KEY).ok()??;
        let Recorded {
            folder,
            mut selection,
        } = serde_json::from_value(recorded).ok()?;
        if folder != current_folder() {
            let recipe = selection.recipe.as_mut().filter(|recipe| is_path(recipe));
            let runs_dir = selection.runs_dir.as_mut();
            let runs_dir = runs_dir.filter(|path| !is_in_bucket(path));
            for path in recipe.into_iter().chain(runs_dir) {
                *path = folder.join(&*path);
            }
        }
        Some(selection)
    }
}

/// `pybench <command>` on the run in the folder `root`, as a stage takes it: with its recipe.
pub fn stage_command(root: &Path, command: &str) -> String {
    match RunSelection::of(root) {
        Some(selection) => selection.command(command),
        None => format!("{} {command}", invocation()),
    }
}

/// The run in the folder `root` as an argument of `show`, `status`, `verify` and others: its name, or the folder if they
/// would not find the name.
pub fn run_argument(root: &Path) -> String {
    let project = project_root(Path::new("."));
    let name = root.file_name().unwrap_or(root.as_os_str());
    let by_name = default_runs_dir(project.as_deref()).join(name);
    match (by_name.canonicalize(), root.canonicalize()) {
        (Ok(by_name), Ok(root)) if by_name == root => shell_word(&name.to_string_lossy()),
        _ => shell_word(&root.to_string_lossy()),
    }
}

/// Commands of at most this many characters have their remarks below each other.
const MAX_ALIGNED: usize = 80;

/// What one does next: commands, each with what it is for.
pub fn recommend(steps: &[(String, &str)]) -> String {
    let width = steps.iter().map(|(command, _)| command.chars().count());
    let width = width.max().unwrap_or(0).min(MAX_ALIGNED);
    let lines = steps
        .iter()
        .map(|(command, why)| format!("{command:<width$}  # {why}\n"));
    format!("next:\n{}", lines.collect::<String>())
}

fn current_folder() -> PathBuf {
    std::env::current_dir().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_repeats_what_was_typed() {
        let selection = RunSelection {
            recipe: Some("my recipes/a.toml".into()),
            set: vec![
                "rollout.samples=4".into(),
                "teacher={ kind = 'expert' }".into(),
            ],
            run: Some("b".into()),
            runs_dir: Some("/tmp/runs".into()),
        };
        let command = selection.command("crawl");
        let arguments = r"crawl 'my recipes/a.toml' --set rollout.samples=4 --set 'teacher={ kind = '\''expert'\'' }' --run b --runs-dir /tmp/runs";
        assert!(command.ends_with(arguments), "{command}");
        assert!(
            RunSelection::default()
                .command("crawl")
                .ends_with("pybench crawl")
        );
    }

    #[test]
    fn a_run_remembers_how_it_was_selected() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(RunSelection::of(root.path()), None);
        let journal = Journal::open(&root.path().join("journal.sqlite")).unwrap();
        let selection = RunSelection {
            recipe: Some("a.toml".into()),
            runs_dir: Some("runs".into()),
            ..RunSelection::default()
        };
        selection.record(&journal).unwrap();
        assert_eq!(RunSelection::of(root.path()), Some(selection.clone()));
        // Typed in another folder.
        let recorded = serde_json::json!({ "folder": "/elsewhere", "selection": selection });
        journal.set_metadata(KEY, &recorded).unwrap();
        let command = stage_command(root.path(), "query");
        let arguments = "query /elsewhere/a.toml --runs-dir /elsewhere/runs";
        assert!(command.ends_with(arguments), "{command}");
    }

    #[test]
    fn a_run_that_its_name_does_not_find_is_named_by_its_folder() {
        let runs = tempfile::tempdir().unwrap();
        let root = runs.path().join("my run");
        std::fs::create_dir(&root).unwrap();
        assert_eq!(run_argument(&root), format!("'{}'", root.display()));
    }
}
