//! Keeps evaluation data out of training sets, as far as names and ids tell. What they do not tell is found by
//! decontamination.

use std::path::Path;

use pybench_run::RunError;

use super::row::Row;

/// Words of benchmarks that have no training split.
const BENCHMARKS: [&str; 17] = [
    "pybench",
    "pybenchregenerated",
    "dabench",
    "dadev",
    "dadevverified",
    "qrdata",
    "m3tooleval",
    "mint",
    "mintbench",
    "theoremqa",
    "humaneval",
    "humanevalplus",
    "openaihumaneval",
    "math500",
    "mbppplus",
    "evalplus",
    "ifeval",
];
/// Words of benchmarks that have one.
const WITH_TRAINING: [&str; 7] = [
    "wikitablequestions",
    "wtq",
    "gsm8k",
    "math",
    "mbpp",
    "apps",
    "mmlu",
];
/// Words of splits that are not for training.
const SPLITS: [&str; 7] = [
    "test",
    "dev",
    "val",
    "valid",
    "validation",
    "eval",
    "pristine",
];

/// Refuses a set that, by its name, file, dataset or source, is one for evaluation.
///
/// # Errors
/// [`RunError::BadInput`].
pub(super) fn refuse_evaluation(
    name: &str,
    path: &Path,
    source: Option<&str>,
) -> Result<(), RunError> {
    let file = path.file_stem().unwrap_or_default().to_string_lossy();
    let dataset = dataset_on_hub(path).unwrap_or_default();
    let all = [
        ("name", name),
        ("path", &file),
        ("path", &dataset),
        ("source", source.unwrap_or_default()),
    ];
    let words = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphanumeric());
        words.map(str::to_lowercase).collect()
    };
    let benchmark = all.iter().find(|(key, text)| {
        // A source is a sentence or a URL, which may name a benchmark for other reasons.
        let joined = words(text).concat();
        *key != "source" && BENCHMARKS.iter().any(|known| joined == *known)
    });
    let has = |known: &[&str]| {
        all.iter().any(|(_, text)| {
            words(text)
                .iter()
                .any(|word| known.contains(&word.as_str()))
        })
    };
    let split = has(&WITH_TRAINING) && {
        let named = all[..3].iter();
        named
            .flat_map(|(_, text)| words(text))
            .any(|word| SPLITS.contains(&word.as_str()))
    };
    let reason = match (benchmark, split) {
        (Some((key, text)), _) => {
            format!("`{key}` names `{text}`, a benchmark without a training split")
        }
        (None, true) => "`name` or `path` names a split for evaluation of a benchmark".to_owned(),
        (None, false) => return Ok(()),
    };
    Err(RunError::BadInput(format!(
        "query.task_sets, `{name}`: {reason}; a model must not be trained on what it is measured with: use the training \
         split, or rename the set if it is one"
    )))
}

/// The name of a dataset on the Hub: `NAME` of `hf://datasets/OWNER/NAME@REVISION/PATH`.
fn dataset_on_hub(path: &Path) -> Option<String> {
    let address = path.to_str()?.strip_prefix("hf://")?;
    let (repository, _) = address.split_once('@')?;
    let (_, name) = repository.rsplit_once('/')?;
    Some(name.to_owned())
}

/// Why a row is one for evaluation: test questions of WikiTableQuestions and MATH have ids of their own.
pub(super) fn row_problem(row: &Row) -> Option<String> {
    let id = row.id.as_ref()?;
    let (set, training) = measured_by(id)?;
    Some(format!(
        "the id `{id}` is that of a test question of {set}; use its training split (`{training}`)"
    ))
}

/// The set whose test questions have such ids, and what those of its training split look like.
fn measured_by(id: &str) -> Option<(&'static str, &'static str)> {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let question = id.strip_prefix("nu-").or_else(|| id.strip_prefix("ns-"));
    if question.is_some_and(is_number) {
        return Some(("WikiTableQuestions", "nt-…"));
    }
    let (_, file) = id.strip_prefix("test/")?.split_once('/')?;
    is_number(file.strip_suffix(".json")?).then_some(("MATH", "train/…"))
}

#[cfg(test)]
mod tests {
    use pybench_datasets::decontaminate::fingerprints::KNOWN_SUITES;

    use super::*;

    #[test]
    fn every_known_benchmark_has_a_rule() {
        for suite in &KNOWN_SUITES {
            let name = suite.name.replace('-', "");
            let lists = [&BENCHMARKS[..], &WITH_TRAINING[..]];
            let is_listed = lists.iter().any(|list| list.contains(&name.as_str()));
            assert!(is_listed, "{}", suite.name);
        }
    }

    #[test]
    fn evaluation_splits_are_refused() {
        let refused = |name: &str, path: &str, source: &str| {
            refuse_evaluation(name, Path::new(path), Some(source)).is_err()
        };
        for (name, path, source) in [
            ("pybench", "x.jsonl", ""),
            ("a", "data/PyBench.jsonl", ""),
            ("a", "human-eval.jsonl", ""),
            ("gsm8k-test", "x.jsonl", ""),
            (
                "a",
                "test.jsonl",
                "https://github.com/openai/grade-school-math, GSM8K",
            ),
            ("wtq", "pristine-unseen-tables.jsonl", ""),
            ("da-dev-verified", "x.jsonl", ""),
            ("a", "MbppPlus.jsonl", ""),
            ("mmlu", "val.jsonl", ""),
            ("a", "hf://datasets/o/MATH-500@main/a.jsonl#sha256=0", ""),
            (
                "a",
                "hf://datasets/o/openai_humaneval@main/a.jsonl#sha256=0",
                "",
            ),
            ("a", "hf://datasets/o/apps@main/test.jsonl#sha256=0", ""),
        ] {
            assert!(refused(name, path, source), "{name} {path} {source}");
        }
        for (name, path, source) in [
            ("gsm8k-train", "train.jsonl", "gsm8k"),
            ("mine", "test.jsonl", "our own questions"),
            ("mmlu", "auxiliary_train.jsonl", ""),
            ("mine", "questions.jsonl", "made with pybench"),
            ("wikitablequestions-train", "training.tsv", ""),
            ("a", "hf://datasets/o/apps@main/train.jsonl#sha256=0", ""),
            ("a", "hf://datasets/o/mine@main/test.jsonl#sha256=0", ""),
        ] {
            assert!(!refused(name, path, source), "{name} {path} {source}");
        }
    }

    #[test]
    fn ids_of_test_questions_are_known() {
        for (id, expected) in [
            ("nu-12", Some("WikiTableQuestions")),
            ("ns-0", Some("WikiTableQuestions")),
            ("test/algebra/24.json", Some("MATH")),
            ("nt-12", None),
            ("nu-a", None),
            ("train/algebra/24.json", None),
            ("test/algebra", None),
            ("test/a/b.json", None),
        ] {
            assert_eq!(measured_by(id).map(|(set, _)| set), expected, "{id}");
        }
    }
}
