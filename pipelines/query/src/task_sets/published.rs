//! Training splits that their authors publish as JSON lines, GSM8K and MBPP: fetched with git at a pinned commit.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use pybench_datasets::decontaminate::fingerprints;
use pybench_net::git_origin::Origin;
use pybench_run::{AnswerCheck, RunError, TaskSetFields};

use super::checkout::checkout;
use super::row::Row;

/// A published training split.
#[derive(Debug)]
pub(super) struct PublishedSet {
    /// Name of a checkout that the user has.
    name: &'static str,
    origin: Origin,
    /// The list in a checkout.
    list: &'static str,
    pub check: AnswerCheck,
    /// SPDX id.
    pub license: &'static str,
    pub source: &'static str,
    pub fields: fn() -> TaskSetFields,
    /// Whether a row is one for training.
    pub is_training: fn(&Row) -> bool,
}

/// The training split of GSM8K, at the commit whose test split `eval` measures with.
pub(super) static GSM8K: PublishedSet = PublishedSet {
    name: "gsm8k",
    origin: Origin {
        repository: "https://github.com/openai/grade-school-math.git",
        commit: "3101c7d5072418e28b9008a6636bde82a006892c",
        files: &["LICENSE", "grade_school_math/data/train.jsonl"],
        license: "MIT",
        cache: "task-sets/gsm8k",
    },
    list: "grade_school_math/data/train.jsonl",
    check: AnswerCheck::Numeric,
    license: "MIT",
    source: "https://github.com/openai/grade-school-math",
    fields: TaskSetFields::default,
    is_training: |_| true,
};

/// The training split of MBPP. Its file has all splits, and MBPP+, which `eval` measures with, has tasks of each.
pub(super) static MBPP: PublishedSet = PublishedSet {
    name: "mbpp",
    origin: Origin {
        repository: "https://github.com/google-research/google-research.git",
        commit: "2251e8c67a7fe7d6348714967ee101080b28e956",
        files: &["README.md", "mbpp/README.md", "mbpp/mbpp.jsonl"],
        license: "CC BY 4.0 (data)",
        cache: "task-sets/mbpp",
    },
    list: "mbpp/mbpp.jsonl",
    check: AnswerCheck::Tests,
    license: "CC-BY-4.0",
    source: "https://github.com/google-research/google-research/tree/master/mbpp",
    fields: || TaskSetFields {
        question: "text".into(),
        answer: "test_list".into(),
        setup: Some("test_setup_code".into()),
        id: Some("task_id".into()),
        ..TaskSetFields::default()
    },
    is_training: |row| {
        let id = row.id.as_ref().and_then(|id| id.parse().ok());
        id.is_some_and(|id: u32| (601..=974).contains(&id) && !MEASURED_MBPP.contains(&id))
    },
};

/// The ids of MBPP+.
static MEASURED_MBPP: LazyLock<HashSet<u32>> = LazyLock::new(|| {
    let tasks = fingerprints::known_tasks();
    let measured = tasks.iter().filter(|task| task.suite == "mbpp");
    measured
        .filter_map(|task| task.index.strip_prefix("Mbpp/")?.parse().ok())
        .collect()
});

impl PublishedSet {
    /// The list of questions, in the user's checkout or a verified one in the cache.
    ///
    /// # Errors
    /// Git or the network is unavailable; a file is missing, or differs from its commit.
    pub(super) async fn fetch(&self, cache: &Path) -> Result<PathBuf, RunError> {
        let folder = checkout(&self.origin, self.name, cache).await?;
        let path = folder.join(self.list);
        match path.is_file() {
            true => Ok(path),
            false => Err(RunError::BadInput(format!(
                "{}: the checkout lacks the training split; add the file, or unset PYBENCH_SUITES to download it",
                path.display()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(set: &PublishedSet, line: &str) -> Row {
        Row::of_json(line.as_bytes(), &(set.fields)(), set.check).unwrap()
    }

    #[test]
    fn rows_of_gsm8k_are_read_as_they_are_published() {
        let line = r#"{"question": "A box holds 12 eggs. How many do 90 boxes hold?", "answer": "12*90 = <<12*90=1080>>1080\n#### 1,080"}"#;
        let found = row(&GSM8K, line);
        assert!((GSM8K.is_training)(&found));
        assert_eq!(
            found.answer,
            super::super::row::Answer::Number("1080.0".into())
        );
    }

    #[test]
    fn mbpp_is_its_training_split_without_what_is_measured() {
        assert_eq!(MEASURED_MBPP.len(), 378);
        let is_training = |id: u32| {
            let line = format!(
                r#"{{"text": "Write a function to double a number.", "code": "", "task_id": {id}, "test_setup_code": "", "test_list": ["assert double(2) == 4"], "challenge_test_list": []}}"#
            );
            (MBPP.is_training)(&row(&MBPP, &line))
        };
        // Of the prompts, the test and the validation split; the last one does not exist.
        assert!(![1, 11, 510, 511, 600, 975].into_iter().any(is_training));
        // Of the training split, the second and third one also of MBPP+.
        let found = [601, 602, 603, 609, 974].map(is_training);
        assert_eq!(found, [true, false, false, true, true]);
        assert_eq!((601..=974).filter(|id| is_training(*id)).count(), 266);
    }
}
