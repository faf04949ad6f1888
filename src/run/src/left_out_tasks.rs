//! The tasks of a run whose rows are not in its dataset, in the metadata of its journal: rows that match benchmarks, and rows
//! that the split drops. `shard` writes them, so that planning and selection do not count these rows toward `goal.accept`.

use std::collections::{BTreeSet, HashSet};

use pybench_types::id::{CompactDigest, Digest};
use serde::{Deserialize, Serialize};

use crate::{Journal, Recipe, RunError};

const MATCHING: &str = "benchmark_tasks";
const DROPPED: &str = "split_tasks";

/// The tasks whose rows match benchmarks, as far as they were found.
///
/// # Errors
/// The journal cannot be read.
pub fn matching(journal: &Journal) -> Result<BTreeSet<Digest>, RunError> {
    match journal.metadata(MATCHING)? {
        Some(tasks) => Ok(serde_json::from_value(tasks)?),
        None => Ok(BTreeSet::new()),
    }
}

/// Adds tasks whose rows match. None is ever removed, so a run that looks for other rows comes to an end.
///
/// # Errors
/// The journal cannot be written.
pub fn add_matching(journal: &Journal, tasks: BTreeSet<Digest>) -> Result<(), RunError> {
    let mut all = matching(journal)?;
    let known = all.len();
    all.extend(tasks);
    match all.len() > known {
        true => journal.set_metadata(MATCHING, &serde_json::to_value(&all)?),
        false => Ok(()),
    }
}

/// Tasks whose rows a split dropped, and the settings of the split.
#[derive(Deserialize, Serialize)]
struct DroppedTasks {
    settings: Digest,
    tasks: BTreeSet<Digest>,
}

/// The tasks whose rows the split of this recipe has dropped because parts of them are held out.
///
/// # Errors
/// The journal cannot be read.
pub fn dropped(journal: &Journal, recipe: &Recipe) -> Result<BTreeSet<Digest>, RunError> {
    let Some(found) = journal.metadata(DROPPED)? else {
        return Ok(BTreeSet::new());
    };
    let found: DroppedTasks = serde_json::from_value(found)?;
    Ok(match found.settings == Digest::of_json(&recipe.shard) {
        true => found.tasks,
        false => BTreeSet::new(),
    })
}

/// Adds tasks whose rows the split has dropped. As [`add_matching`].
///
/// # Errors
/// The journal cannot be written.
pub fn add_dropped(
    journal: &Journal,
    recipe: &Recipe,
    tasks: BTreeSet<Digest>,
) -> Result<(), RunError> {
    let mut all = dropped(journal, recipe)?;
    all.extend(tasks);
    let entry = DroppedTasks {
        settings: Digest::of_json(&recipe.shard),
        tasks: all,
    };
    journal.set_metadata(DROPPED, &serde_json::to_value(&entry)?)
}

/// The tasks whose rows do not count toward the goal of the recipe: none if it has no goal. Rows that match benchmarks count if
/// the recipe allows them.
///
/// # Errors
/// The journal cannot be read.
pub fn uncounted(journal: &Journal, recipe: &Recipe) -> Result<HashSet<CompactDigest>, RunError> {
    if recipe.goal.accept.is_none() {
        return Ok(HashSet::new());
    }
    let mut tasks = dropped(journal, recipe)?;
    if !recipe.shard.allow_contaminated {
        tasks.extend(matching(journal)?);
    }
    Ok(tasks.iter().map(CompactDigest::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECIPE: &str = "name = 'r'\nteacher = { kind = 'expert' }\n\n[query]\ntasks = 4\n\n\
                          [[crawl.sources]]\nsource = 'local'\npath = 'files'\nlicense = 'CC0-1.0'\n";

    #[test]
    fn tasks_are_added_and_count_only_with_a_goal() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("journal.sqlite")).unwrap();
        let digest = |text: &str| Digest::of_bytes(text.as_bytes());
        assert!(matching(&journal).unwrap().is_empty());
        for names in [vec!["a"], vec![], vec!["a", "b"]] {
            let tasks = names.into_iter().map(digest).collect();
            add_matching(&journal, tasks).unwrap();
        }
        let both = BTreeSet::from([digest("a"), digest("b")]);
        assert_eq!(matching(&journal).unwrap(), both);

        let mut recipe = Recipe::parse("r.toml", RECIPE, &[]).unwrap();
        for name in ["c", "a"] {
            add_dropped(&journal, &recipe, BTreeSet::from([digest(name)])).unwrap();
        }
        assert_eq!(dropped(&journal, &recipe).unwrap().len(), 2);
        let count = |recipe: &Recipe| uncounted(&journal, recipe).unwrap().len();
        assert_eq!(count(&recipe), 0, "every row counts without a goal");
        recipe.goal.accept = Some(3);
        assert_eq!(count(&recipe), 3);
        // Another split drops other rows.
        recipe.shard.test_fraction = 0.5;
        assert_eq!(dropped(&journal, &recipe).unwrap(), BTreeSet::new());
        assert_eq!(count(&recipe), 2);
        recipe.shard.allow_contaminated = true;
        assert_eq!(count(&recipe), 0);
    }
}
