//! Tasks by key. The same template, language, seed and files give the same task on every machine. Exports
//! refer to tasks by key, and the reward service regenerates them.

use std::fmt;

use pybench_run::{ContentStore, RunError};
use pybench_types::task::{Language, SourceFile, Task};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{Draft, DraftError, Library};

/// Maximum number of file combinations that are tried.
const MAX_COMBINATIONS: usize = 100;

/// Identifies a task, given the library and the files.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskKey {
    /// Template id.
    pub template: String,
    pub language: Language,
    /// Seed for choosing files, values and phrasing.
    pub seed: u64,
}

/// Why a task cannot be generated.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// The library has no such template. The text suggests a similar one.
    #[error("{0}")]
    Unknown(String),
    /// None of the files fits the template.
    #[error(
        "no file given fits template `{0}`; `pybench library list` shows the file types of its inputs"
    )]
    Unfit(String),
    /// The template has no text in the language.
    #[error("template `{0}` has no Chinese text; ask for it in English (`en`)")]
    Language(String),
    #[error(transparent)]
    Draft(#[from] DraftError),
    /// A file could not be read.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl From<MakeError> for RunError {
    fn from(error: MakeError) -> Self {
        match error {
            MakeError::Run(error) => error,
            other => Self::BadInput(other.to_string()),
        }
    }
}

impl fmt::Display for TaskKey {
    /// A name that is safe in paths, such as `csv-group-mean-en-7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let language = match self.language {
            Language::En => "en",
            Language::Zh => "zh",
        };
        write!(f, "{}-{language}-{}", self.template, self.seed)
    }
}

impl TaskKey {
    /// Generates the task from some of these files. `store` must contain the files; held-out parts are added.
    pub fn task(
        &self,
        library: &Library,
        files: &[SourceFile],
        store: &ContentStore,
    ) -> Result<Task, MakeError> {
        let template = library.template(&self.template);
        let template =
            template.ok_or_else(|| MakeError::Unknown(library.unknown(&self.template)))?;
        if !template.languages().contains(&self.language) {
            return Err(MakeError::Language(self.template.clone()));
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let combinations = template.combinations(files, MAX_COMBINATIONS, store, &mut rng)?;
        let unfit = || MakeError::Unfit(self.template.clone());
        let combination = combinations.first().ok_or_else(unfit)?;
        let files: Vec<_> = combination.iter().map(|index| &files[*index]).collect();
        let slots = template.draw(&files, &mut rng).ok_or_else(unfit)?;
        let phrasings = template.query.get(self.language).len();
        let draft = Draft {
            template,
            files,
            slots,
            language: self.language,
            phrasing: rng.random_range(0..phrasings),
            seed: self.seed,
        };
        Ok(draft.write(library, store)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::fixtures::Fixtures;

    fn key(template: &str, seed: u64) -> TaskKey {
        TaskKey {
            template: template.to_owned(),
            language: Language::En,
            seed,
        }
    }

    #[test]
    fn a_key_gives_one_task_and_other_seeds_give_others() {
        let library = Library::embedded().unwrap();
        let none = Fixtures::empty().unwrap();
        let make = |key: TaskKey| key.task(&library, &none.files, &none.store).unwrap();
        let one = make(key("math-derivative", 1));
        assert_eq!(make(key("math-derivative", 1)), one);
        let others = (2..12).map(|seed| make(key("math-derivative", seed)).id);
        assert!(others.into_iter().any(|id| id != one.id));
        assert_eq!(
            key("math-derivative", 1).to_string(),
            "math-derivative-en-1"
        );
    }

    #[test]
    fn errors_say_why_a_task_cannot_be_generated() {
        let library = Library::embedded().unwrap();
        let none = Fixtures::empty().unwrap();
        let error = |key: TaskKey| key.task(&library, &none.files, &none.store).unwrap_err();
        let unknown = error(key("math-derivativ", 1));
        assert!(
            unknown
                .to_string()
                .contains("did you mean `math-derivative`?")
        );
        let unfit = error(key("csv-group-mean", 1));
        assert!(matches!(unfit, MakeError::Unfit(_)), "{unfit}");
    }

    /// Files that one task adds to a scratch store do not reach the next task.
    #[test]
    fn a_scratch_store_has_the_files_and_is_temporary() {
        let mut fixtures = Fixtures::empty().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "a,b\n1,2\n3,4\n").unwrap();
        assert!(fixtures.add(&path).unwrap());
        let (store, kept) = fixtures.scratch().unwrap();
        let id = &fixtures.files[0].id;
        assert_eq!(store.get(id).unwrap(), fixtures.store.get(id).unwrap());
        let made = store.put(b"held out").unwrap();
        assert!(fixtures.store.get(&made).is_err());
        drop(kept);
        assert!(store.get(&made).is_err() && fixtures.store.get(id).is_ok());
    }
}
