//! Loads benchmark files: EvalPlus' `HumanEvalPlus.jsonl` and `MbppPlus.jsonl` (also `.gz`), GSM8K's
//! `test.jsonl`, MMLU's CSV files or a folder of them, and the Parquet files of the Hub.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use pybench_datasets::samples::{ReadError, parquet};
use pybench_types::id::Digest;
use serde::Deserialize;

use super::answer::normalize_number;
use super::evalplus::evalplus;
pub use super::item::{Expected, Item};
use super::program::Inputs;
use crate::file_error::FileError;
use pybench_profile::preview::records;

/// Maximum size of an unpacked file in bytes, number of questions per set, and number of files per folder.
const MAX_BYTES: u64 = 1 << 30;
const MAX_ITEMS: usize = 100_000;
const MAX_FILES: usize = 1_000;

/// All suites of general ability.
pub(super) const SUITES: [&str; 6] = ["humaneval", "humaneval+", "mbpp", "mbpp+", "gsm8k", "mmlu"];

#[derive(Clone, Debug)]
pub struct QuestionSet {
    /// `humaneval`, `mbpp`, `gsm8k` or `mmlu`.
    pub name: String,
    /// Digest of the files.
    pub digest: Digest,
    /// Questions, in the order of the files.
    pub items: Vec<Item>,
}

impl QuestionSet {
    /// The suites that the records of a question belong to.
    pub(super) fn suites(&self, item: &Item) -> Vec<String> {
        let plus = || format!("{}+", self.name);
        match &item.expected {
            Expected::Program(program) => match &program.inputs {
                Inputs::Listed { .. } => vec![self.name.clone(), plus()],
                Inputs::Source(_) => vec![plus()],
            },
            _ => vec![self.name.clone()],
        }
    }
}

impl Item {
    /// The prompt for the model.
    pub fn prompt(&self) -> String {
        match &self.expected {
            Expected::Program(_) => format!(
                "Complete this Python program. Reply with the whole program, imports included, in one fenced code block.\n\n```python\n{}\n```",
                self.text.trim_end()
            ),
            Expected::Number(_) => format!(
                "{}\n\nThink step by step. End with the answer alone on the last line, as `#### NUMBER`.",
                self.text
            ),
            Expected::Letter(_) => format!(
                "{}\n\nEnd with the line `Answer: X`, where X is A, B, C or D.",
                self.text
            ),
        }
    }
}

/// Loads a set from a file or, for MMLU, from a folder of CSV files. The name determines the benchmark.
///
/// # Errors
/// The name contains no known benchmark, or the file cannot be read.
pub fn load(path: &Path) -> Result<QuestionSet, FileError> {
    match super::name_of(&path.file_name().unwrap_or_default().to_string_lossy()) {
        Some(name) => load_as(name, path),
        None => Err(FileError::Whole {
            path: path.to_owned(),
            problem: "unknown benchmark; the name must contain humaneval, mbpp, gsm8k or mmlu"
                .to_owned(),
        }),
    }
}

/// Loads the set `name`, regardless of the name of the file.
pub(super) fn load_as(name: &str, path: &Path) -> Result<QuestionSet, FileError> {
    let files = match path.is_dir() {
        true => folder(path)?,
        false => vec![path.to_owned()],
    };
    let (mut items, mut digests) = (Vec::new(), Vec::new());
    for file in files {
        let (text, table) = read(&file)?;
        digests.push(Digest::of_bytes(text.as_bytes()));
        let found = match (name, table) {
            ("mmlu", false) => mmlu(&text, &subject(&file)),
            _ => lines(&text, name),
        };
        items.extend(found.map_err(FileError::line(&file))?);
    }
    items.truncate(MAX_ITEMS);
    Ok(QuestionSet {
        name: name.to_owned(),
        digest: Digest::of_json(&digests),
        items,
    })
}

fn folder(path: &Path) -> Result<Vec<PathBuf>, FileError> {
    let entries = std::fs::read_dir(path).map_err(FileError::io(path))?;
    let files = entries
        .take(MAX_FILES)
        .filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|e| e == "csv"))
        .collect();
    files.sort();
    Ok(files)
}

/// Reads a file as (text, whether the text is JSON Lines from a Parquet file).
fn read(path: &Path) -> Result<(String, bool), FileError> {
    let io = FileError::io(path);
    let extension = path.extension().unwrap_or_default();
    if extension == "parquet" {
        return Ok((json_lines(path)?, true));
    }
    let file = File::open(path).map_err(io)?;
    let mut text = String::new();
    match extension == "gz" {
        true => GzDecoder::new(file)
            .take(MAX_BYTES)
            .read_to_string(&mut text),
        false => file.take(MAX_BYTES).read_to_string(&mut text),
    }
    .map_err(io)?;
    Ok((text, false))
}

/// Reads a Parquet file as JSON Lines.
fn json_lines(path: &Path) -> Result<String, FileError> {
    let mut text = String::new();
    let read = parquet::rows(path, &|_| true, &mut |row| {
        text += &row.to_string();
        text.push('\n');
        match text.len() as u64 > MAX_BYTES {
            true => Err(ReadError::Stopped("unpacks to more than 1 GiB".to_owned())),
            false => Ok(()),
        }
    });
    read.map_err(|error| FileError::Whole {
        path: path.to_owned(),
        problem: match error {
            ReadError::Io { source, .. } => source.to_string(),
            ReadError::Invalid { reason, .. } | ReadError::Stopped(reason) => reason,
        },
    })?;
    Ok(text)
}

fn subject(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem.trim_end_matches("_test")
        .trim_end_matches("_val")
        .to_owned()
}

/// A row of MMLU on the Hub.
#[derive(Deserialize)]
struct Mmlu {
    question: String,
    #[serde(default)]
    subject: String,
    choices: Vec<String>,
    /// Index of the correct choice.
    answer: usize,
}

/// A line of GSM8K.
#[derive(Deserialize)]
struct Gsm8k {
    question: String,
    answer: String,
}

type ParsedItems = Result<Vec<Item>, (usize, String)>;

fn lines(text: &str, name: &str) -> ParsedItems {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let item = |(i, line): (usize, &str)| {
        let item = match name {
            "gsm8k" => gsm8k(line, i),
            "mmlu" => mmlu_row(line, i),
            _ => evalplus(line, name),
        };
        item.map_err(|problem| (i + 1, problem))
    };
    lines.take(MAX_ITEMS).map(item).collect()
}

fn gsm8k(line: &str, i: usize) -> Result<Item, String> {
    let row: Gsm8k = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let after = row
        .answer
        .rsplit_once("####")
        .map(|(_, after)| after.trim());
    let number = after
        .and_then(normalize_number)
        .ok_or("`answer` does not end with `#### NUMBER`")?;
    Ok(Item {
        id: i.to_string(),
        category: "gsm8k".to_owned(),
        text: row.question,
        expected: Expected::Number(number),
    })
}

fn mmlu_row(line: &str, i: usize) -> Result<Item, String> {
    let row: Mmlu = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let [a, b, c, d] = &row.choices[..] else {
        return Err(format!(
            "found {} choices, expected four",
            row.choices.len()
        ));
    };
    let letter = ["A", "B", "C", "D"].get(row.answer);
    let letter = letter.ok_or_else(|| format!("`answer` is {}, expected 0 to 3", row.answer))?;
    Ok(multiple_choice(
        &row.subject,
        i,
        [&row.question, a, b, c, d],
        letter,
    ))
}

/// A multiple-choice question.
fn multiple_choice(
    subject: &str,
    i: usize,
    [question, a, b, c, d]: [&str; 5],
    letter: &str,
) -> Item {
    Item {
        id: format!("{subject}-{i}"),
        category: subject.to_owned(),
        text: format!("{question}\n\nA. {a}\nB. {b}\nC. {c}\nD. {d}"),
        expected: Expected::Letter(letter.to_owned()),
    }
}

/// Parses rows of question, four choices and letter. A header row is recognized by its last column.
fn mmlu(text: &str, subject: &str) -> ParsedItems {
    let rows = records(text, ',', MAX_ITEMS).into_iter().enumerate();
    let item = |(i, row): (usize, Vec<String>)| match &row[..] {
        [.., last] if i == 0 && last.eq_ignore_ascii_case("answer") => None,
        [question, a, b, c, d, answer] if ["A", "B", "C", "D"].contains(&answer.trim()) => {
            let texts = [question, a, b, c, d].map(String::as_str);
            Some(Ok(multiple_choice(subject, i, texts, answer.trim())))
        }
        _ => Some(Err((
            i + 1,
            "expected a question, four choices and a letter from A to D".to_owned(),
        ))),
    };
    rows.filter_map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_lines_are_reported_with_their_number() {
        for (text, name) in [
            ("{}\n", "gsm8k"),
            ("{\"question\": \"q\", \"answer\": \"42\"}", "gsm8k"),
            ("{\"task_id\": \"x\"}", "mbpp"),
            (
                "{\"task_id\":\"x\",\"prompt\":\"\",\"entry_point\":\"a b\",\"canonical_solution\":\"\",\"base_input\":[]}",
                "mbpp",
            ),
        ] {
            assert_eq!(lines(text, name).unwrap_err().0, 1, "{text}");
        }
        assert_eq!(mmlu("q,a,b,c,d,A\nq,a\n", "s").unwrap_err().0, 2);
        assert_eq!(
            mmlu("question,A,B,C,D,answer\n\"q, 1\",a,b,c,d,B\n", "s")
                .unwrap()
                .len(),
            1
        );
    }

    #[test]
    fn fuzz_files_never_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let _ = (
                lines(&text, "gsm8k"),
                lines(&text, "mbpp"),
                mmlu(&text, "s"),
            );
        });
    }
}
