//! Tasks of EvalPlus as its repositories have them.

use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::answers::{parse_json_lines, read, read_text};

/// Maximum size of an unpacked file, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// Where a task comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskSet {
    HumanEval,
    Mbpp,
}

/// A line of a file of EvalPlus.
#[derive(Debug, Deserialize)]
struct Row {
    /// `HumanEval/0`, `Mbpp/2`.
    task_id: String,
    prompt: String,
    entry_point: String,
    canonical_solution: String,
    base_input: Vec<Value>,
    /// MBPP+ has an empty object instead of a list where there are no more inputs.
    plus_input: Value,
    #[serde(default)]
    atol: f64,
}

/// A function to write.
#[derive(Debug)]
pub(super) struct FunctionTask {
    pub(super) set: TaskSet,
    /// Name in the file.
    pub(super) name: String,
    /// Number in the name.
    number: u32,
    /// Start of the program, or what it shall do.
    pub(super) prompt: String,
    /// Name of the function.
    pub(super) entry: String,
    /// The reference solution: a whole program.
    pub(super) solution: String,
    /// Arguments of the calls.
    inputs: Vec<Value>,
    /// Absolute tolerance of numbers; 0 for the default.
    tolerance: f64,
}

/// Reads the tasks of a file, with the inputs that EvalPlus added or without. `file` is its name without `.gz`; the file
/// may be packed or not.
///
/// # Errors
/// The file is missing, or a line is not a task.
pub(super) fn read_tasks(
    root: &Path,
    file: &str,
    set: TaskSet,
    plus: bool,
) -> Result<Vec<FunctionTask>, String> {
    let path = root.join(file);
    let text = match path.is_file() {
        true => read_text(root, file)?,
        false => unpack(root, &format!("{file}.gz"))?,
    };
    let text = with_tagged_numbers(&text);
    let rows = parse_json_lines::<Row>(&text, &path)?.into_iter();
    let task = |row: Row| {
        let name = row.task_id.clone();
        let task = FunctionTask::new(row, set, plus);
        task.map_err(|problem| format!("{}: {name}: {problem}", path.display()))
    };
    rows.map(task).collect()
}

/// Tags the numbers that Python writes into JSON and that do not survive here, which the script reads: `NaN` and infinities
/// become `{"$float":"NaN"}`, and integers of 16 digits or more `{"$int":"…"}`.
pub(super) fn with_tagged_numbers(text: &str) -> String {
    const WORDS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    let (mut quoted, mut escaped) = (false, false);
    while let Some(c) = rest.chars().next() {
        let word = WORDS
            .iter()
            .find(|word| !quoted && rest.starts_with(**word));
        if let Some(word) = word {
            out += &format!("{{\"$float\":\"{word}\"}}");
            rest = &rest[word.len()..];
            continue;
        }
        if !quoted && (c == '-' || c.is_ascii_digit()) {
            let length = rest.find(|c: char| !is_of_number(c)).unwrap_or(rest.len());
            let (number, after) = rest.split_at(length);
            out += &match is_large_integer(number) {
                true => format!("{{\"$int\":\"{number}\"}}"),
                false => number.to_owned(),
            };
            rest = after;
            continue;
        }
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E')
}

/// Whether a JSON number is an integer that a 64-bit float may not hold.
fn is_large_integer(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    digits.len() >= 16 && digits.chars().all(|c| c.is_ascii_digit())
}

pub(super) fn unpack(root: &Path, file: &str) -> Result<String, String> {
    let packed = read(root, file)?;
    let mut text = String::new();
    let unpacked = GzDecoder::new(&*packed)
        .take(MAX_BYTES)
        .read_to_string(&mut text);
    unpacked.map_err(|error| format!("{}: {error}", root.join(file).display()))?;
    Ok(text)
}

impl FunctionTask {
    fn new(row: Row, set: TaskSet, plus: bool) -> Result<Self, String> {
        let number = row
            .task_id
            .rsplit_once('/')
            .map(|(_, number)| number.parse());
        let Some(Ok(number)) = number else {
            return Err("`task_id` does not end with `/NUMBER`".to_owned());
        };
        let plain = |c: char| c.is_alphanumeric() || c == '_';
        if row.entry_point.is_empty() || !row.entry_point.chars().all(plain) {
            let name = row.entry_point;
            return Err(format!(
                "`entry_point`: `{name}` is not the name of a function"
            ));
        }
        let mut inputs = row.base_input;
        match row.plus_input {
            Value::Array(more) if plus => inputs.extend(more),
            Value::Array(_) | Value::Object(_) => {}
            _ => return Err("`plus_input` is not a list".to_owned()),
        }
        Ok(Self {
            set,
            name: row.task_id,
            number,
            solution: format!("{}{}", row.prompt, row.canonical_solution),
            prompt: row.prompt,
            entry: row.entry_point,
            inputs,
            tolerance: row.atol,
        })
    }

    /// What the script reads.
    pub(super) fn json(&self) -> Value {
        json!({
            "set": match self.set {
                TaskSet::HumanEval => "humaneval",
                TaskSet::Mbpp => "mbpp",
            },
            "number": self.number,
            "entry": self.entry,
            "reference": self.solution,
            "inputs": self.inputs,
            "atol": self.tolerance,
        })
    }

    /// Number of calls.
    pub(super) fn calls(&self) -> usize {
        self.inputs.len()
    }
}
