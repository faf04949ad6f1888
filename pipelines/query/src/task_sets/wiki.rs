//! WikiTableQuestions' training split, and the tables of its test split, which no set may use.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use pybench_files::{read_regular, wiki_tables};
use pybench_net::git_origin::{Origin, own_checkout};
use pybench_run::RunError;
use pybench_types::id::Digest;

use super::row::{Answer, Row};

pub(super) const LICENSE: &str = "CC-BY-SA-4.0";
pub(super) const SOURCE: &str = "https://github.com/ppasupat/WikiTableQuestions";

/// Name of the evaluation's suite, and of a checkout that the user has.
const SUITE: &str = "wikitablequestions";
/// Questions with canonical forms of numbers and dates.
const TAGGED: &str = "tagged/data/training.tagged";
/// The same questions without them, for checkouts that lack the former.
const PLAIN: &str = "data/training.tsv";
/// The test split.
const TEST: &str = "data/pristine-unseen-tables.tsv";
/// The same as the evaluation's checkout has it.
const TEST_TAGGED: &str = "tagged/data/pristine-unseen-tables.tagged";
/// Largest file of questions, in bytes.
const MAX_QUESTIONS: u64 = 256 << 20;
/// Largest table, in bytes.
const MAX_TABLE: u64 = 16 << 20;

const ORIGIN: Origin = Origin {
    repository: wiki_tables::REPOSITORY,
    commit: wiki_tables::COMMIT,
    files: &[TAGGED, TEST, "csv/*/*.csv", "LICENSE", "README.md"],
    license: "CC BY-SA 4.0",
    cache: "task-sets/wikitablequestions",
};

/// Places of the columns of a file of questions.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    id: usize,
    question: usize,
    table: usize,
    values: usize,
    canons: Option<usize>,
}

/// The user's checkout, or a verified one in the cache, which is fetched if it is not there.
///
/// # Errors
/// Git or the network is unavailable; a file differs from its commit.
pub(super) async fn checkout(cache: &Path) -> Result<PathBuf, RunError> {
    super::checkout::checkout(&ORIGIN, SUITE, cache).await
}

/// The file of questions in a checkout, and its columns.
///
/// # Errors
/// It is not there, or lacks a column.
pub(super) fn questions(folder: &Path) -> Result<(PathBuf, Columns), RunError> {
    let paths = [TAGGED, PLAIN].map(|path| folder.join(path));
    let path = paths.iter().find(|path| path.is_file());
    let path = path.unwrap_or(&paths[0]).clone();
    let wrong = |problem: String| RunError::BadInput(format!("{}: {problem}", path.display()));
    let text = read_text(&path, MAX_QUESTIONS).map_err(wrong)?;
    let columns = columns(text.lines().next().unwrap_or_default());
    let columns = columns.map_err(|problem| wrong(format!("line 1: {problem}")))?;
    Ok((path, columns))
}

fn columns(header: &str) -> Result<Columns, String> {
    let names = ["id", "utterance", "context", "targetValue"];
    let [id, question, table, values] = wiki_tables::columns(header, names)?;
    Ok(Columns {
        id,
        question,
        table,
        values,
        canons: wiki_tables::columns(header, ["targetCanon"])
            .ok()
            .map(|[at]| at),
    })
}

/// Reads a line.
///
/// # Errors
/// What is wrong with it.
pub(super) fn row(line: &[u8], columns: &Columns) -> Result<Row, String> {
    let text = std::str::from_utf8(line).map_err(|_| "the line is not in UTF-8")?;
    let fields: Vec<&str> = text.split('\t').collect();
    let field = |at: usize| fields.get(at).copied().ok_or("there are too few columns");
    let values = wiki_tables::list(field(columns.values)?);
    let canons = match columns.canons {
        None => vec![None; values.len()],
        Some(at) => wiki_tables::list(field(at)?)
            .into_iter()
            .map(Some)
            .collect(),
    };
    if values.len() != canons.len() {
        return Err("the values and their canonical forms differ in number".into());
    }
    let question = wiki_tables::unescape(field(columns.question)?);
    let id = field(columns.id)?;
    if question.trim().is_empty() || id.is_empty() || id.len() > 100 {
        return Err("the question or the id is missing".into());
    }
    Ok(Row {
        id: Some(id.to_owned()),
        question: question.trim().to_owned(),
        answer: Answer::of_values(values.into_iter().zip(canons).collect())?,
        files: vec![super::row::relative_path(field(columns.table)?)?],
        license: None,
        source: None,
    })
}

/// A table as CSV readers expect it: the published files escape quotes with backslashes.
///
/// # Errors
/// It is no such table.
pub(super) fn standard_csv(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the table is not in UTF-8")?;
    Ok(wiki_tables::write(&wiki_tables::parse(text)?).into_bytes())
}

/// Digests of the tables of the test split, as they are published and as standard CSV, as far as a checkout is on this
/// machine: the user's, the evaluation's or the training set's.
pub(super) fn test_tables(cache: &Path) -> HashSet<Digest> {
    let evaluation = cache.join("suites").join(SUITE).join(wiki_tables::COMMIT);
    let folders = [
        Some(ORIGIN.checkout_dir(cache)),
        Some(evaluation),
        own_checkout(SUITE),
    ];
    folders
        .into_iter()
        .flatten()
        .flat_map(|folder| tables_in(&folder))
        .collect()
}

fn tables_in(folder: &Path) -> HashSet<Digest> {
    let lists = [TEST, TEST_TAGGED].map(|list| folder.join(list));
    let text = lists
        .iter()
        .find_map(|list| read_text(list, MAX_QUESTIONS).ok());
    let text = text.unwrap_or_default();
    let mut lines = text.lines();
    let Ok([table]) = wiki_tables::columns(lines.next().unwrap_or_default(), ["context"]) else {
        return HashSet::new();
    };
    let paths: HashSet<&str> = lines
        .filter_map(|line| line.split('\t').nth(table))
        .collect();
    let mut digests = HashSet::new();
    for path in paths {
        let Ok(path) = super::row::relative_path(path) else {
            continue;
        };
        let Ok(bytes) = read_regular(&folder.join(path), MAX_TABLE) else {
            continue;
        };
        digests.insert(Digest::of_bytes(&bytes));
        digests.extend(
            standard_csv(&bytes)
                .ok()
                .map(|bytes| Digest::of_bytes(&bytes)),
        );
    }
    digests
}

fn read_text(path: &Path, max_bytes: u64) -> Result<String, String> {
    let bytes = read_regular(path, max_bytes).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "the file is not in UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "id\tutterance\tcontext\ttargetValue\ttargetCanon";

    #[test]
    fn rows_are_read_as_upstream_writes_them() {
        let columns = columns(HEADER).unwrap();
        let line = "nt-3\twhich boats? \tcsv/1-csv/2.csv\tthe Gull\\ntwo|7 knots\tthe Gull|7.0";
        let error = row(line.as_bytes(), &columns).unwrap_err();
        assert!(error.contains("an answer is one line"), "{error}");
        let line = line.replace("\\ntwo", "");
        let found = row(line.as_bytes(), &columns).unwrap();
        assert_eq!(found.id.as_deref(), Some("nt-3"));
        assert_eq!(found.question, "which boats?");
        assert_eq!(found.files, [PathBuf::from("csv/1-csv/2.csv")]);
        let pair = |text: &str, canon: &str| (text.to_owned(), Some(canon.to_owned()));
        let values = vec![pair("the Gull", "the Gull"), pair("7 knots", "7.0")];
        assert_eq!(found.answer, Answer::Values(values));
        for (line, part) in [
            ("nt-3\tq", "too few columns"),
            ("nt-3\tq\t../x.csv\ta\ta", "leaves the folder"),
            ("nt-3\tq\tx.csv\ta|b\ta", "differ in number"),
            ("nt-3\t \tx.csv\ta\ta", "the question or the id is missing"),
            ("nt-3\tq\tx.csv\ta\\pb\ta\\pb", "which separates values"),
        ] {
            let error = row(line.as_bytes(), &columns).unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn files_without_canonical_forms_are_read_too() {
        let columns = columns("id\tutterance\tcontext\ttargetValue").unwrap();
        let found = row(b"nt-0\twho?\tx.csv\tAda", &columns).unwrap();
        assert_eq!(found.answer, Answer::Values(vec![("Ada".into(), None)]));
    }

    #[test]
    fn fuzz_rows_of_wiki_table_questions() {
        let columns = columns(HEADER).unwrap();
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = row(bytes, &columns);
            let _ = standard_csv(bytes);
        });
    }
}
