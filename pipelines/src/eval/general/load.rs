//! The user's files: EvalPlus' `HumanEvalPlus.jsonl` and `MbppPlus.jsonl` (also as `.gz`), GSM8K's
//! `test.jsonl`, MMLU's CSV files or a folder of them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use pybench::id::Digest;
use serde::Deserialize;
use serde_json::Value;

use super::answer::plain;
use super::program::Program;
use crate::eval::report::show::records;

/// Most bytes of a file, unpacked; most items of a set; most files of a folder.
const MOST_BYTES: u64 = 1 << 30;
const MOST_ITEMS: usize = 100_000;
const MOST_FILES: usize = 1_000;

/// A set of questions.
#[derive(Clone, Debug)]
pub struct Set {
    /// `humaneval`, `mbpp`, `gsm8k` or `mmlu`.
    pub name: String,
    /// Digest of the files.
    pub digest: Digest,
    /// The questions, in the order of the files.
    pub items: Vec<Item>,
}

/// A question with what is right.
#[derive(Clone, Debug)]
pub struct Item {
    /// As the file names it.
    pub id: String,
    /// The set, or the subject.
    pub category: String,
    /// What is asked.
    text: String,
    /// What is right.
    pub question: Question,
}

/// What is right.
#[derive(Clone, Debug)]
pub enum Question {
    /// A program that returns what the file's own returns.
    Program(Program),
    /// A number.
    Number(String),
    /// One of A to D.
    Letter(String),
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// A line is wrong.
    #[error("{}, line {line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// The file's name says nothing.
    #[error("{}: expected humaneval, mbpp, gsm8k or mmlu in its name", .0.display())]
    Unknown(PathBuf),
}

impl Set {
    /// The suites that its records belong to.
    pub(super) fn suites(&self) -> Vec<String> {
        match &*self.name {
            "humaneval" | "mbpp" => vec![self.name.clone(), format!("{}+", self.name)],
            _ => vec![self.name.clone()],
        }
    }
}

impl Item {
    /// What a model is asked.
    pub fn prompt(&self) -> String {
        match &self.question {
            Question::Program(_) => format!(
                "Complete this Python program. Reply with the whole program, imports included, in one fenced code block.\n\n```python\n{}\n```",
                self.text.trim_end()
            ),
            Question::Number(_) => format!(
                "{}\n\nThink step by step. End with the answer alone on the last line, as `#### NUMBER`.",
                self.text
            ),
            Question::Letter(_) => format!(
                "{}\n\nEnd with the line `Answer: X`, where X is A, B, C or D.",
                self.text
            ),
        }
    }
}

/// The set in a file or, for MMLU, in a folder of CSV files.
pub fn load(path: &Path) -> Result<Set, LoadError> {
    let name = super::name_of(path).ok_or_else(|| LoadError::Unknown(path.to_owned()))?;
    let files = match path.is_dir() {
        true => folder(path)?,
        false => vec![path.to_owned()],
    };
    let (mut items, mut digests) = (Vec::new(), Vec::new());
    for file in files {
        let text = read(&file)?;
        digests.push(Digest::of_bytes(text.as_bytes()));
        let found = match name {
            "mmlu" => mmlu(&text, &subject(&file)),
            _ => lines(&text, name),
        };
        items.extend(found.map_err(|(line, problem)| LoadError::Line {
            path: file,
            line,
            problem,
        })?);
    }
    items.truncate(MOST_ITEMS);
    Ok(Set {
        name: name.to_owned(),
        digest: Digest::of_json(&digests),
        items,
    })
}

fn folder(path: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let io = |source| LoadError::Io {
        path: path.to_owned(),
        source,
    };
    let entries = std::fs::read_dir(path).map_err(io)?;
    let files = entries
        .take(MOST_FILES)
        .filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|e| e == "csv"))
        .collect();
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<String, LoadError> {
    let io = |source| LoadError::Io {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(io)?;
    let mut text = String::new();
    match path.extension().is_some_and(|e| e == "gz") {
        true => GzDecoder::new(file)
            .take(MOST_BYTES)
            .read_to_string(&mut text),
        false => file.take(MOST_BYTES).read_to_string(&mut text),
    }
    .map_err(io)?;
    Ok(text)
}

fn subject(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem.trim_end_matches("_test")
        .trim_end_matches("_val")
        .to_owned()
}

/// A line of EvalPlus' files.
#[derive(Deserialize)]
struct EvalPlus {
    task_id: Value,
    prompt: String,
    entry_point: String,
    canonical_solution: String,
    base_input: Vec<Vec<Value>>,
    #[serde(default)]
    plus_input: Value,
    #[serde(default)]
    atol: f64,
}

/// A line of GSM8K.
#[derive(Deserialize)]
struct Gsm8k {
    question: String,
    answer: String,
}

type Found = Result<Vec<Item>, (usize, String)>;

fn lines(text: &str, name: &str) -> Found {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let item = |(i, line): (usize, &str)| {
        let item = match name {
            "gsm8k" => gsm8k(line, i),
            _ => evalplus(line, name),
        };
        item.map_err(|problem| (i + 1, problem))
    };
    lines.take(MOST_ITEMS).map(item).collect()
}

fn evalplus(line: &str, name: &str) -> Result<Item, String> {
    let row: EvalPlus = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let identifier = |c: char| c.is_alphanumeric() || c == '_';
    if row.entry_point.is_empty() || !row.entry_point.chars().all(identifier) {
        return Err(format!("`entry_point` {:?} is no name", row.entry_point));
    }
    // Where a task has no more inputs, MBPP+ has an object instead of a list.
    let plus = serde_json::from_value(row.plus_input).unwrap_or_default();
    let text = row.prompt.clone();
    let id = row
        .task_id
        .as_str()
        .map_or_else(|| row.task_id.to_string(), str::to_owned);
    Ok(Item {
        id,
        category: name.to_owned(),
        question: Question::Program(Program {
            solution: format!("{}{}", row.prompt, row.canonical_solution),
            prompt: row.prompt,
            entry: row.entry_point,
            base: row.base_input,
            plus,
            tolerance: if row.atol.is_finite() {
                row.atol.max(0.0)
            } else {
                0.0
            },
        }),
        text,
    })
}

fn gsm8k(line: &str, i: usize) -> Result<Item, String> {
    let row: Gsm8k = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let after = row
        .answer
        .rsplit_once("####")
        .map(|(_, after)| after.trim());
    let number = after
        .and_then(plain)
        .ok_or("`answer` does not end with `#### NUMBER`")?;
    Ok(Item {
        id: i.to_string(),
        category: "gsm8k".to_owned(),
        text: row.question,
        question: Question::Number(number),
    })
}

/// Rows of question, four choices, letter; a header is known by its last column.
fn mmlu(text: &str, subject: &str) -> Found {
    let rows = records(text, ',', MOST_ITEMS).into_iter().enumerate();
    let item = |(i, row): (usize, Vec<String>)| match &row[..] {
        [.., last] if i == 0 && last.eq_ignore_ascii_case("answer") => None,
        [question, a, b, c, d, answer] if ["A", "B", "C", "D"].contains(&answer.trim()) => {
            Some(Ok(Item {
                id: format!("{subject}-{i}"),
                category: subject.to_owned(),
                text: format!("{question}\n\nA. {a}\nB. {b}\nC. {c}\nD. {d}"),
                question: Question::Letter(answer.trim().to_owned()),
            }))
        }
        _ => Some(Err((
            i + 1,
            "expected question, four choices and a letter A to D".to_owned(),
        ))),
    };
    rows.filter_map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_lines_are_named() {
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
