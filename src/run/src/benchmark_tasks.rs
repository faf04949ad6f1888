//! The tasks of a run whose rows match benchmarks, in the metadata of its journal. `shard` writes them when it leaves out the
//! rows, so that planning and selection do not count these rows toward `goal.accept`.

use std::collections::{BTreeSet, HashSet};

use pybench_types::id::{CompactDigest, Digest};

use crate::{Journal, Recipe, RunError};

const KEY: &str = "benchmark_tasks";

/// The tasks that were found so far.
///
/// # Errors
/// The journal cannot be read.
pub fn read(journal: &Journal) -> Result<BTreeSet<Digest>, RunError> {
    match journal.metadata(KEY)? {
        Some(tasks) => Ok(serde_json::from_value(tasks)?),
        None => Ok(BTreeSet::new()),
    }
}

/// Adds tasks. None is ever removed, so a run that looks for other rows comes to an end.
///
/// # Errors
/// The journal cannot be written.
pub fn add(journal: &Journal, tasks: BTreeSet<Digest>) -> Result<(), RunError> {
    let mut all = read(journal)?;
    let known = all.len();
    all.extend(tasks);
    match all.len() > known {
        true => journal.set_metadata(KEY, &serde_json::to_value(&all)?),
        false => Ok(()),
    }
}

/// The tasks whose rows do not count toward the goal of the recipe: none if it has no goal, or allows such rows.
///
/// # Errors
/// The journal cannot be read.
pub fn uncounted(journal: &Journal, recipe: &Recipe) -> Result<HashSet<CompactDigest>, RunError> {
    if recipe.goal.accept.is_none() || recipe.shard.allow_contaminated {
        return Ok(HashSet::new());
    }
    let tasks = read(journal)?;
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
        assert!(read(&journal).unwrap().is_empty());
        for names in [vec!["a"], vec![], vec!["a", "b"]] {
            let tasks = names.into_iter().map(digest).collect();
            add(&journal, tasks).unwrap();
        }
        let both = BTreeSet::from([digest("a"), digest("b")]);
        assert_eq!(read(&journal).unwrap(), both);

        let mut recipe = Recipe::parse("r.toml", RECIPE, &[]).unwrap();
        let count = |recipe: &Recipe| uncounted(&journal, recipe).unwrap().len();
        assert_eq!(count(&recipe), 0, "every row counts without a goal");
        recipe.goal.accept = Some(3);
        assert_eq!(count(&recipe), 2);
        recipe.shard.allow_contaminated = true;
        assert_eq!(count(&recipe), 0);
    }
}
