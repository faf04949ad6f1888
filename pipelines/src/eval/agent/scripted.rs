//! Agents without a model: the reference solutions of the audit, and agents that do no work.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench::agent::Format;
use pybench::llm::{ChatRequest, Price, Reply, Teacher, TeacherError};
use pybench::task::{Task, TaskOrigin};
use pybench::trajectory::{Message, Role, Usage};
use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::eval::bench::index;
use crate::eval::bench::spec::{Solution, TaskSpec};
use crate::library::{Expert, Library, observations};

/// What a script does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Script {
    /// Solves the task by the solution of its task file; library tasks by the library's expert.
    Reference,
    /// Says that it is finished.
    DoNothing,
    /// Says the prompt.
    Echo,
    /// Saves the input under every name that is asked for, and says the prompt.
    CopyInput,
    /// Leaves empty files under every name that is asked for.
    EmptyFiles,
    /// Prints the input and says it.
    DumpFile,
}

impl Script {
    /// The five that do no work; each must score 0 on `strict`.
    pub const NULL: [Self; 5] = [
        Self::DoNothing,
        Self::Echo,
        Self::CopyInput,
        Self::EmptyFiles,
        Self::DumpFile,
    ];

    /// As recipes and records write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::DoNothing => "do-nothing",
            Self::Echo => "echo",
            Self::CopyInput => "copy-input",
            Self::EmptyFiles => "empty-files",
            Self::DumpFile => "dump-file",
        }
    }

    /// What it is, in a sentence.
    pub fn about(self) -> &'static str {
        match self {
            Self::Reference => "our own solution of each task; no model",
            Self::DoNothing => "says that it is finished, and does nothing; no model",
            Self::Echo => "says the prompt again; no model",
            Self::CopyInput => "saves the input under the names asked for; no model",
            Self::EmptyFiles => "leaves empty files under the names asked for; no model",
            Self::DumpFile => "says the content of the input; no model",
        }
    }
}

/// What is said or run next.
enum Move {
    Cell(String),
    Answer(String),
}

/// A script as a teacher: deterministic, no network, no key, no cost.
pub struct Scripted {
    script: Script,
    specs: Arc<BTreeMap<u32, TaskSpec>>,
    expert: Expert,
    format: &'static dyn Format,
}

impl Scripted {
    /// That script; solutions come from `specs`, for library tasks from `library`.
    pub fn new(
        script: Script,
        specs: Arc<BTreeMap<u32, TaskSpec>>,
        library: Arc<Library>,
        format: &'static dyn Format,
    ) -> Self {
        Self {
            script,
            specs,
            expert: Expert::new(library, format),
            format,
        }
    }

    fn next(&self, task: &Task, messages: &[Message]) -> Result<Move, String> {
        let replies = messages.iter().filter(|m| m.role == Role::Assistant);
        let done = replies.count();
        if self.script != Script::Reference {
            return Ok(null(
                self.script,
                task,
                done,
                &observations(self.format, messages),
            ));
        }
        let number = index(task).ok_or("the task is of another suite")?;
        let spec = self.specs.get(&number);
        let solution = spec.and_then(|spec| spec.solution.as_ref());
        let solution = solution.ok_or_else(|| format!("task {number} has no solution"))?;
        match solution.turns.get(done) {
            Some(turn) => Ok(Move::Cell(turn.cell.clone())),
            None => Ok(Move::Answer(answer(
                solution,
                &observations(self.format, messages),
            )?)),
        }
    }
}

/// The answer of a solution with what its turns read from what they saw.
///
/// # Errors
/// A pattern that is not there: the solution is wrong.
pub fn answer(solution: &Solution, seen: &[&str]) -> Result<String, String> {
    let mut values: BTreeMap<&str, String> = BTreeMap::new();
    for (turn, text) in solution.turns.iter().zip(seen) {
        for (name, pattern) in &turn.read {
            let regex = Regex::new(pattern).map_err(|error| error.to_string())?;
            let found = regex.captures(text.trim()).and_then(|found| found.get(1));
            let found = found.ok_or_else(|| {
                let tail: String = text.chars().rev().take(600).collect();
                let tail: String = tail.chars().rev().collect();
                format!("`{pattern}` is not in the output: {tail}")
            })?;
            values.insert(name, found.as_str().to_owned());
        }
    }
    Ok(fill(&solution.answer, |name| values.get(name).cloned()))
}

/// The answer of a solution that may have gone wrong: what could not be read is a question mark.
pub fn lenient_answer(solution: &Solution, seen: &[&str]) -> String {
    answer(solution, seen).unwrap_or_else(|_| {
        let mut values = BTreeMap::new();
        for (turn, text) in solution.turns.iter().zip(seen) {
            for (name, pattern) in &turn.read {
                let regex = Regex::new(pattern).ok();
                let found = regex.and_then(|regex| {
                    Some(regex.captures(text.trim())?.get(1)?.as_str().to_owned())
                });
                values.insert(name.clone(), found);
            }
        }
        fill(&solution.answer, |name| values.get(name).cloned().flatten())
    })
}

/// `{{ name }}` by its value, or by a question mark.
fn fill(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, after)) = after.split_once("}}") else {
            break;
        };
        out += before;
        out += &value(name.trim()).unwrap_or_else(|| "?".to_owned());
        rest = after;
    }
    out + rest
}

/// The files asked for, under names that no wildcard holds.
fn targets(task: &Task) -> Vec<String> {
    let plain = |path: &String| path.replace(['*', '?'], "1");
    task.outputs.iter().map(plain).collect()
}

fn null(script: Script, task: &Task, done: usize, seen: &[&str]) -> Move {
    let first = task.files.first().map(|file| format!("data/{}", file.name));
    let targets = serde_json::to_string(&targets(task)).unwrap_or_default();
    let prepare = format!(
        "import os, shutil\nfor path in {targets}:\n    os.makedirs(os.path.dirname(path), exist_ok=True)\n"
    );
    let source = serde_json::to_string(&first).unwrap_or_default();
    let finished = || Move::Answer("I did all that was asked.".to_owned());
    match (script, first.is_some(), done) {
        (Script::EmptyFiles, _, 0) => Move::Cell(prepare + "    open(path, 'wb').close()\n"),
        (Script::CopyInput, true, 0) => {
            Move::Cell(prepare + &format!("    shutil.copyfile({source}, path)\n"))
        }
        (Script::DumpFile, true, 0) => Move::Cell(format!(
            "print(open({source}, encoding='utf-8', errors='replace').read(200000))\n"
        )),
        (Script::DumpFile, true, _) => {
            Move::Answer(seen.first().copied().unwrap_or_default().to_owned())
        }
        (Script::Echo | Script::CopyInput, _, _) => Move::Answer(task.query.clone()),
        _ => finished(),
    }
}

#[async_trait]
impl Teacher for Scripted {
    fn name(&self) -> &str {
        self.script.name()
    }

    fn price(&self) -> Option<Price> {
        None
    }

    async fn reply(&self, request: &ChatRequest<'_>) -> Result<Reply, TeacherError> {
        let of_library = matches!(request.task.origin, TaskOrigin::Library { .. });
        if self.script == Script::Reference && of_library {
            return self.expert.reply(request).await;
        }
        let next = self.next(request.task, request.messages);
        let content = match next.map_err(TeacherError::NoScript)? {
            Move::Cell(cell) => self.format.write_step("This Step Todo: run it.", &cell),
            Move::Answer(answer) => self.format.write_answer(&answer),
        };
        Ok(Reply {
            content,
            usage: Usage::default(),
            truncated: false,
            fault: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_filled_with_what_was_read() {
        let turn = |name: &str, pattern: &str| crate::eval::bench::spec::Turn {
            cell: String::new(),
            read: BTreeMap::from([(name.to_owned(), pattern.to_owned())]),
        };
        let solution = Solution {
            answer: "a {{ x }} b {{y}} c {{ z }} d {{".to_owned(),
            turns: vec![turn("x", r"n=(\d+)"), turn("y", "(?s)^(.*)$")],
        };
        let text = answer(&solution, &["n=5\n", " two\nlines \n"]).unwrap();
        assert_eq!(text, "a 5 b two\nlines c ? d {{");
        assert!(
            answer(&solution, &["no", ""])
                .unwrap_err()
                .contains("is not in the output: no")
        );
        assert_eq!(lenient_answer(&solution, &["no", "q"]), "a ? b q c ? d {{");
    }
}
