//! Agents without a model: the reference solutions, and null agents that do no work.

use std::collections::BTreeMap;
use std::sync::Arc;

use pybench_agent::{Format, ScriptedSolver};
use pybench_types::task::{Task, TaskOrigin};
use pybench_types::trajectory::{Message, Role};
use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::suite::{Solution, Suite, name_in};
use pybench_library::{Expert, Library, observations};

/// A scripted agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Script {
    /// Runs the solution of the task file, or the library's expert for library tasks.
    Reference,
    /// Answers that it is finished.
    DoNothing,
    /// Answers with the prompt.
    Echo,
    /// Copies the first input to every requested output file and answers with the prompt.
    CopyInput,
    /// Creates every requested output file empty.
    EmptyFiles,
    /// Prints the first input and answers with its content.
    DumpFile,
}

impl Script {
    /// The null agents, which do no work. Each must score 0 on `strict`.
    pub const NULL: [Self; 5] = [
        Self::DoNothing,
        Self::Echo,
        Self::CopyInput,
        Self::EmptyFiles,
        Self::DumpFile,
    ];

    /// Name in recipes and records.
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

    /// Description for reports.
    pub fn about(self) -> &'static str {
        match self {
            Self::Reference => "the reference solution of each task; no model",
            Self::DoNothing => "does nothing and answers that it is finished; no model",
            Self::Echo => "answers with the prompt; no model",
            Self::CopyInput => "copies the input to the requested output files; no model",
            Self::EmptyFiles => "creates the requested output files empty; no model",
            Self::DumpFile => "answers with the content of the input; no model",
        }
    }
}

/// The next step of a script.
enum NextStep {
    Cell(String),
    Answer(String),
}

/// A script that solves the tasks of an evaluation.
pub struct ScriptedAgent {
    script: Script,
    suites: Vec<Arc<dyn Suite>>,
    expert: Expert,
    format: &'static dyn Format,
}

impl ScriptedAgent {
    /// Creates an agent. Solutions come from the `suites`, those of library tasks from `library`.
    pub fn new(
        script: Script,
        suites: Vec<Arc<dyn Suite>>,
        library: Arc<Library>,
        format: &'static dyn Format,
    ) -> Self {
        Self {
            script,
            suites,
            expert: Expert::new(library, format),
            format,
        }
    }

    fn next(&self, task: &Task, messages: &[Message]) -> Result<NextStep, String> {
        let replies = messages.iter().filter(|m| m.role == Role::Assistant);
        let done = replies.count();
        if self.script != Script::Reference {
            return Ok(null_step(
                self.script,
                task,
                done,
                &observations(self.format, messages),
            ));
        }
        let mut suites = self.suites.iter();
        let suite = suites.find(|suite| name_in(suite.name(), task).is_some());
        let suite = suite.ok_or("the task belongs to another suite")?;
        let solution = &suite.solution(task)?;
        match solution.turns.get(done) {
            Some(turn) => Ok(NextStep::Cell(turn.cell.clone())),
            None => Ok(NextStep::Answer(answer(
                solution,
                &observations(self.format, messages),
            )?)),
        }
    }
}

/// The answer of a solution, filled with the values that its turns read from their observations.
///
/// # Errors
/// A pattern that does not match: the solution is incorrect.
pub fn answer(solution: &Solution, observed: &[&str]) -> Result<String, String> {
    let mut values: BTreeMap<&str, String> = BTreeMap::new();
    for (turn, text) in solution.turns.iter().zip(observed) {
        for (name, pattern) in &turn.read {
            let regex = Regex::new(pattern).map_err(|error| error.to_string())?;
            let found = regex.captures(text.trim()).and_then(|found| found.get(1));
            let found = found.ok_or_else(|| {
                let tail: String = text.chars().rev().take(600).collect();
                let tail: String = tail.chars().rev().collect();
                format!(
                    "the pattern `{pattern}` does not match the output, which ends with: {tail}"
                )
            })?;
            values.insert(name, found.as_str().to_owned());
        }
    }
    Ok(fill(&solution.answer, |name| values.get(name).cloned()))
}

/// Like [`answer`], but values that could not be read become a question mark.
pub fn lenient_answer(solution: &Solution, observed: &[&str]) -> String {
    answer(solution, observed).unwrap_or_else(|_| {
        let mut values = BTreeMap::new();
        for (turn, text) in solution.turns.iter().zip(observed) {
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

/// Replaces `{{ name }}` by its value, or by a question mark.
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

/// The requested output files, with wildcards replaced.
fn targets(task: &Task) -> Vec<String> {
    let plain = |path: &String| path.replace(['*', '?'], "1");
    task.outputs.iter().map(plain).collect()
}

fn null_step(script: Script, task: &Task, done: usize, observed: &[&str]) -> NextStep {
    let first = task.files.first().map(|file| format!("data/{}", file.name));
    let targets = serde_json::to_string(&targets(task)).unwrap_or_default();
    let prepare = format!(
        "import os, shutil\nfor path in {targets}:\n    os.makedirs(os.path.dirname(path), exist_ok=True)\n"
    );
    let source = serde_json::to_string(&first).unwrap_or_default();
    let finished = || NextStep::Answer("I did all that was asked.".to_owned());
    match (script, first.is_some(), done) {
        (Script::EmptyFiles, _, 0) => NextStep::Cell(prepare + "    open(path, 'wb').close()\n"),
        (Script::CopyInput, true, 0) => {
            NextStep::Cell(prepare + &format!("    shutil.copyfile({source}, path)\n"))
        }
        (Script::DumpFile, true, 0) => NextStep::Cell(format!(
            "print(open({source}, encoding='utf-8', errors='replace').read(200000))\n"
        )),
        (Script::DumpFile, true, _) => {
            NextStep::Answer(observed.first().copied().unwrap_or_default().to_owned())
        }
        (Script::Echo | Script::CopyInput, _, _) => NextStep::Answer(task.query.clone()),
        _ => finished(),
    }
}

impl ScriptedSolver for ScriptedAgent {
    fn name(&self) -> &str {
        self.script.name()
    }

    fn reply(&self, task: &Task, sample: u32, messages: &[Message]) -> Result<String, String> {
        let has_expert = matches!(
            task.origin,
            TaskOrigin::Library { .. } | TaskOrigin::Composed { .. }
        );
        if self.script == Script::Reference && has_expert {
            return self.expert.reply(task, sample, messages);
        }
        Ok(match self.next(task, messages)? {
            NextStep::Cell(cell) => self
                .format
                .write_step("I run the next cell of the solution.", &cell),
            NextStep::Answer(answer) => self.format.write_answer(&answer),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_filled_with_the_values_read() {
        let turn = |name: &str, pattern: &str| crate::suite::SolutionTurn {
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
                .contains("does not match the output, which ends with: no")
        );
        assert_eq!(lenient_answer(&solution, &["no", "q"]), "a ? b q c ? d {{");
    }
}
