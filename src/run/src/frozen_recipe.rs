//! The recipe that is frozen into a run folder, and what happens when another one comes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use pybench_types::text::{count, dollars};

use super::artifact_names::{
    CALLS, FILES, HELD_OUT, INCOMING, JOURNAL, MOVE, POINTER, TASKS, TRAJECTORIES, VERDICTS,
};
use super::journal::JournalPlace;
use super::replace::write_atomically;
use super::{RunError, RunQueue};

/// What to do with a run folder whose recipe has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhenChanged {
    /// Refuse, and offer this command, which starts over.
    Refuse(Option<String>),
    /// Start over if nothing was paid for; otherwise refuse and offer `--start-over`.
    StartOverIfFree,
    /// Start over.
    StartOver,
}

impl Default for WhenChanged {
    fn default() -> Self {
        Self::Refuse(None)
    }
}

/// File of the frozen recipe.
const RECIPE: &str = "recipe.toml";

/// What commands write into a run folder, in the order in which a run that starts over deletes it: whatever a kill leaves
/// is still a run of the old recipe, to which the same happens again.
const CONTENTS: [&str; 26] = [
    "dataset",
    "contaminated.jsonl",
    "report.md",
    "report.json",
    "report",
    "upstream",
    "results.jsonl",
    "preferences.jsonl",
    "preferences.parquet",
    "human-preferences.jsonl",
    "human-preferences.parquet",
    VERDICTS,
    TRAJECTORIES,
    HELD_OUT,
    TASKS,
    "tasks.written.jsonl",
    FILES,
    "crawl-report.jsonl",
    "files",
    "journal.sqlite-shm",
    "journal.sqlite-wal",
    JOURNAL,
    INCOMING,
    MOVE,
    CALLS,
    POINTER,
];

/// Keys that affect how a run is executed, or which of its rows are written, but nothing that was paid for. They may
/// differ from the frozen recipe, so that a budget can be raised.
const MUTABLE_KEYS: [&str; 5] = [
    "budget.",
    "rollout.concurrency",
    "rollout.attempts",
    "rollout.unit_minutes",
    "shard.allow_contaminated",
];

/// Freezes `recipe` into the folder `root`, which this process has locked. Returns the queue of a run that was deleted, as
/// it starts over.
///
/// # Errors
/// [`RunError::Conflict`] if the folder belongs to a different recipe and may not start over; I/O errors.
pub(crate) fn freeze(
    root: &Path,
    recipe: &str,
    changed: &WhenChanged,
) -> Result<Option<RunQueue>, RunError> {
    let frozen = read(root)?;
    if frozen == recipe {
        return Ok(None);
    }
    let mut left = None;
    let changes = changes(root, recipe)?;
    if !changes.is_empty() {
        let place = JournalPlace::of(root)?;
        let paid = paid(&place)?;
        match (changed, paid.is_empty()) {
            (WhenChanged::StartOver, _) | (WhenChanged::StartOverIfFree, true) => {
                left = place.queue()?;
                start_over(root, &place, &changes, &paid)?;
            }
            _ => return Err(conflict(root, &changes, &paid, changed)),
        }
    }
    write_atomically(&root.join(RECIPE), recipe.as_bytes())?;
    Ok(left)
}

/// What the frozen recipe of `root` and `recipe` differ in, one line each; nothing if none is frozen yet.
///
/// # Errors
/// I/O errors.
pub(crate) fn changes(root: &Path, recipe: &str) -> Result<String, RunError> {
    let frozen = read(root)?;
    Ok(match frozen.is_empty() {
        true => String::new(),
        false => difference(&frozen, recipe),
    })
}

/// The frozen recipe; empty if none is frozen yet.
pub(crate) fn read(root: &Path) -> Result<String, RunError> {
    let path = root.join(RECIPE);
    match fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(RunError::io(path.display().to_string())),
    }
}

/// What a run has that nothing but money or a person can make again, for a sentence; empty if there is nothing.
fn paid(place: &JournalPlace) -> Result<String, RunError> {
    if place.is_blank()? {
        return Ok(String::new());
    }
    let Some(journal) = place.read()? else {
        return Ok(String::new());
    };
    let spent = journal.spent()?;
    let calls = match spent.calls {
        0 => String::new(),
        calls => format!(
            "replies that cost {} (calls: {})",
            dollars(spent.micro_usd),
            count(calls)
        ),
    };
    let by_hand = match journal.work_by_hand()? {
        0 => String::new(),
        work => format!("work of people (reviews and answers: {})", count(work)),
    };
    let parts = [calls, by_hand];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    Ok(parts.join(" and "))
}

fn conflict(root: &Path, changes: &str, paid: &str, changed: &WhenChanged) -> RunError {
    let loses = match paid {
        "" => String::new(),
        paid => format!(" and loses {paid}"),
    };
    let offer = match changed {
        WhenChanged::Refuse(None) => String::new(),
        WhenChanged::Refuse(Some(command)) => {
            format!(", or run `{command}`, which starts over{loses}")
        }
        _ => format!(", or add --start-over, which deletes this run{loses}"),
    };
    RunError::Conflict(format!(
        "run folder {} was created with a different recipe:\n{changes}use the original recipe, or choose another run \
         folder with --run NAME{offer}",
        root.display(),
    ))
}

fn start_over(
    root: &Path,
    place: &JournalPlace,
    changes: &str,
    paid: &str,
) -> Result<(), RunError> {
    let changes: Vec<&str> = changes.lines().map(str::trim).collect();
    let why = match paid {
        "" => "nothing was paid for".to_owned(),
        paid => format!("{paid} are given up"),
    };
    tracing::warn!(
        "the recipe has changed ({}) and {why}: {} starts over",
        changes.join("; "),
        root.display()
    );
    for name in CONTENTS {
        if name == POINTER {
            place.delete_remote()?;
        }
        let path = root.join(name);
        let removed = match path.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(RunError::io(path.display().to_string())(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// One line for each immutable key that differs: `  rollout.samples: 1 in the folder, 4 in this recipe`.
fn difference(frozen: &str, now: &str) -> String {
    let (frozen, now) = (recipe_values(frozen), recipe_values(now));
    let keys: BTreeSet<&String> = frozen.keys().chain(now.keys()).collect();
    let shown = |value: Option<&String>| value.map_or("not set", String::as_str).to_owned();
    keys.into_iter()
        .filter(|key| frozen.get(*key) != now.get(*key))
        .filter(|key| !MUTABLE_KEYS.iter().any(|prefix| key.starts_with(prefix)))
        .map(|key| {
            let (old, new) = (shown(frozen.get(key)), shown(now.get(key)));
            format!("  {key}: {old} in the folder, {new} in this recipe\n")
        })
        .collect()
}

/// Maps the dotted key of every leaf of a recipe to its value as TOML. Text that cannot be parsed counts as one value.
pub fn recipe_values(recipe: &str) -> BTreeMap<String, String> {
    let mut flat = BTreeMap::new();
    match toml::from_str::<toml::Value>(recipe) {
        Ok(value) => flatten_into(&value, String::new(), &mut flat),
        Err(_) => flat.extend([(
            "recipe".to_owned(),
            "a file that cannot be parsed".to_owned(),
        )]),
    }
    flat
}

fn flatten_into(value: &toml::Value, path: String, flat: &mut BTreeMap<String, String>) {
    let below = |key: &str| match path.is_empty() {
        true => key.to_owned(),
        false => format!("{path}.{key}"),
    };
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                flatten_into(value, below(key), flat);
            }
        }
        toml::Value::Array(items) if items.iter().any(toml::Value::is_table) => {
            for (index, value) in items.iter().enumerate() {
                flatten_into(value, below(&index.to_string()), flat);
            }
        }
        single => {
            flat.insert(path, single.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BudgetCap, ExitCode, Reservation, RunFolder};

    const BEFORE: &str = "seed = 1\n[rollout]\nsamples = 1\n";
    const NOW: &str = "seed = 1\n[rollout]\nsamples = 4\n";

    fn begin(root: &Path) -> RunFolder {
        let folder = RunFolder::open(root, BEFORE).unwrap();
        folder.write(TASKS, b"old").unwrap();
        folder.write(HELD_OUT, b"old").unwrap();
        folder.store().put(b"old").unwrap();
        folder
    }

    fn pay(folder: &RunFolder) {
        let (most, journal) = (Reservation::default(), folder.journal());
        journal.reserve("a/0", most, BudgetCap::default()).unwrap();
        journal.settle("a/0", most, &"reply".into()).unwrap();
    }

    #[test]
    fn a_different_recipe_is_a_conflict_that_shows_the_difference() {
        let root = tempfile::tempdir().unwrap();
        drop(RunFolder::open(root.path(), "seed = 1\n[rollout]\nsamples = 1\n").unwrap());
        let now = "seed = 1\nname = 'b'\n[rollout]\nsamples = 4\n";
        let error = RunFolder::open(root.path(), now).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::Conflict);
        let text = error.to_string();
        assert!(
            text.contains("  rollout.samples: 1 in the folder, 4 in this recipe\n"),
            "{text}"
        );
        assert!(
            text.contains("  name: not set in the folder, \"b\" in this recipe\n"),
            "{text}"
        );
        assert!(!text.contains("seed"), "{text}");
    }

    #[test]
    fn with_nothing_paid_a_changed_recipe_starts_over() {
        let root = tempfile::tempdir().unwrap();
        drop(begin(root.path()));
        let changed = WhenChanged::StartOverIfFree;
        let same = RunFolder::open_or_start_over(root.path(), BEFORE, &changed).unwrap();
        assert!(root.path().join("tasks.jsonl").exists());
        drop(same);
        let folder = RunFolder::open_or_start_over(root.path(), NOW, &changed).unwrap();
        assert!(!root.path().join("tasks.jsonl").exists());
        assert!(!root.path().join(HELD_OUT).exists());
        assert_eq!(
            fs::read_dir(folder.root().join("files")).unwrap().count(),
            0
        );
        assert_eq!(fs::read_to_string(root.path().join(RECIPE)).unwrap(), NOW);
    }

    #[test]
    fn what_was_paid_for_is_kept_until_it_is_given_up() {
        let root = tempfile::tempdir().unwrap();
        let folder = begin(root.path());
        pay(&folder);
        drop(folder);
        let open = |changed| RunFolder::open_or_start_over(root.path(), NOW, &changed);
        let error = open(WhenChanged::StartOverIfFree).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::Conflict);
        let text = error.to_string();
        assert!(
            text.contains(
                "--start-over, which deletes this run and loses replies that cost $0 (calls: 1)"
            ),
            "{text}"
        );
        assert!(root.path().join("tasks.jsonl").exists());
        let command = "pybench synthesize a.toml --start-over";
        let error = open(WhenChanged::Refuse(Some(command.to_owned()))).unwrap_err();
        assert!(error.to_string().contains(command), "{error}");
        let folder = open(WhenChanged::StartOver).unwrap();
        assert_eq!(folder.journal().spent().unwrap().calls, 0);
        assert!(!root.path().join("tasks.jsonl").exists());
    }

    #[test]
    fn work_of_people_counts_as_paid() {
        let root = tempfile::tempdir().unwrap();
        let folder = begin(root.path());
        folder
            .journal()
            .set_metadata("review/abc", &"accept".into())
            .unwrap();
        let key = format!("{}abc/ann", crate::TRAJECTORY_REVIEWS);
        folder
            .journal()
            .set_metadata(&key, &"accept".into())
            .unwrap();
        let key = format!("{}abc/def", crate::human_edits::PREFIX);
        folder.journal().set_metadata(&key, &"edit".into()).unwrap();
        drop(folder);
        let changed = WhenChanged::StartOverIfFree;
        let error = RunFolder::open_or_start_over(root.path(), NOW, &changed).unwrap_err();
        assert!(error.to_string().contains("answers: 3"), "{error}");
    }

    #[test]
    fn a_dry_run_of_a_changed_recipe_leaves_the_run_alone() {
        let runs = tempfile::tempdir().unwrap();
        let root = runs.path().join("a");
        let folder = begin(&root);
        pay(&folder);
        drop(folder);
        let scratch = RunFolder::open_for_dry_run(&root, NOW).unwrap();
        assert_ne!(scratch.root(), root);
        assert!(!scratch.root().join("tasks.jsonl").exists());
        drop(scratch);
        assert_eq!(
            fs::read_dir(runs.path()).unwrap().count(),
            1,
            "nothing is left"
        );
        let own = RunFolder::open_for_dry_run(&root, BEFORE).unwrap();
        assert_eq!(
            (own.root(), own.journal().spent().unwrap().calls),
            (&*root, 1)
        );
    }

    #[test]
    fn a_budget_can_be_raised() {
        let root = tempfile::tempdir().unwrap();
        drop(RunFolder::open(root.path(), "seed = 1\n[budget]\nusd = 1.0\n").unwrap());
        let raised = "seed = 1\n[budget]\nusd = 2.0\n";
        drop(RunFolder::open(root.path(), raised).unwrap());
        let frozen = fs::read_to_string(root.path().join("recipe.toml")).unwrap();
        assert_eq!(frozen, raised);
    }
}
