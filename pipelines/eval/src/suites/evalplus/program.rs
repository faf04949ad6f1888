//! Programs in replies, and the questions that ask for them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::answers::Question;
use super::super::executed::{Verdict, Verdicts};
use super::task::{FunctionTask, TaskSet};

const OPEN: &str = "<solution>";
const CLOSE: &str = "</solution>";
const FENCE: &str = "```";
/// The mutant that answers one call.
const FIRST_CALL: &str = "only the first call is right";

/// A value that equals everything, which a comparison in the process of the program does not notice.
const EQUAL_TO_ALL: &str = "class _Equal:\n    __hash__ = None\n    def __eq__(self, other): return True\n    \
                            def __abs__(self): return 0\n";

/// What functions of benchmarks return often.
const FREQUENT_VALUES: [&str; 7] = ["True", "False", "0", "1", "-1", "[]", "''"];

/// A task with the verdicts on programs.
pub(super) struct ProgramQuestion {
    pub(super) task: Arc<FunctionTask>,
    pub(super) verdicts: Arc<Verdicts>,
}

impl FunctionTask {
    /// The program that a reply states. A reply without a definition of the function continues the prompt.
    pub(super) fn program(&self, reply: &str) -> String {
        let stated = reply.rsplit_once(OPEN);
        let stated = stated.and_then(|(_, rest)| Some(rest.split_once(CLOSE)?.0));
        if let Some(stated) = stated {
            return self.defined(stated).unwrap_or(stated).to_owned();
        }
        match self.defined(reply) {
            Some(code) => code.to_owned(),
            None if self.is_defined(reply) => reply.to_owned(),
            None => format!("{}{}", self.prompt, last_block(reply).unwrap_or(reply)),
        }
    }

    /// The last code block that defines the function.
    fn defined<'a>(&self, text: &'a str) -> Option<&'a str> {
        let mut blocks = blocks(text);
        blocks.retain(|code| self.is_defined(code));
        blocks.last().copied()
    }

    fn is_defined(&self, code: &str) -> bool {
        let mut definitions = code.split("def ").skip(1);
        definitions.any(|rest| {
            let rest = rest.trim_start().strip_prefix(&*self.entry);
            rest.is_some_and(|rest| rest.trim_start().starts_with('('))
        })
    }
}

fn last_block(text: &str) -> Option<&str> {
    blocks(text).last().copied()
}

/// The code blocks of a text.
fn blocks(text: &str) -> Vec<&str> {
    text.split(FENCE).skip(1).step_by(2).map(code).collect()
}

/// A code block without the name of its language.
fn code(block: &str) -> &str {
    match block.split_once('\n') {
        Some((language, code)) if language.trim().chars().all(char::is_alphanumeric) => code,
        _ => block,
    }
}

fn stated(program: &str) -> String {
    format!("{OPEN}\n{program}\n{CLOSE}")
}

/// Programs that define all functions of a benchmark; whatever they are called with, they return one value.
pub(super) fn constants(questions: &[&dyn Question]) -> Vec<String> {
    let described = questions.iter().map(|question| question.expected());
    let names: BTreeSet<String> = described
        .filter_map(|expected| Some(expected.split('`').nth(1)?.to_owned()))
        .collect();
    let names = names.into_iter().collect::<Vec<_>>().join(" ");
    let program = |value: &&str| {
        stated(&format!(
            "def _constant(*args, **kwargs):\n    return {value}\nfor _name in \"{names}\".split():\n    globals()[_name] = _constant"
        ))
    };
    FREQUENT_VALUES.iter().map(program).collect()
}

impl ProgramQuestion {
    fn verdict(&self, reply: &str) -> Option<Verdict> {
        self.verdicts
            .get(&self.task.name, &self.task.program(reply))
    }
}

impl Question for ProgramQuestion {
    fn name(&self) -> String {
        self.task.name.clone()
    }

    fn category(&self) -> String {
        "functions".to_owned()
    }

    fn prompt(&self) -> String {
        let FunctionTask {
            set, prompt, entry, ..
        } = &*self.task;
        let what = match set {
            TaskSet::HumanEval => {
                format!("Complete the function `{entry}` of this Python program:")
            }
            TaskSet::Mbpp => format!("Write the Python function `{entry}`:"),
        };
        format!(
            "{what}\n\n{}\n\nEnd your reply with the whole program, imports included and without tests, in the form \
             {OPEN}…{CLOSE}",
            prompt.trim()
        )
    }

    fn texts(&self) -> Vec<String> {
        vec![self.task.prompt.replace("\"\"\"", "").trim().to_owned()]
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(Vec::new())
    }

    fn reference(&self) -> String {
        stated(&self.task.solution)
    }

    fn expected(&self) -> String {
        let FunctionTask { entry, .. } = &*self.task;
        let calls = self.task.calls();
        format!("`{entry}` returns in {calls} calls what the reference solution does")
    }

    fn upstream(&self, reply: &str) -> Option<bool> {
        self.verdict(reply).map(|verdict| verdict.upstream)
    }

    fn strict(&self, reply: &str) -> Result<(), String> {
        match self.verdict(reply) {
            Some(verdict) if verdict.strict => Ok(()),
            Some(_) => Err("a call fails or returns another value than the reference".to_owned()),
            None => Err("the program was not executed".to_owned()),
        }
    }

    fn mutants(&self) -> Vec<(&'static str, String)> {
        let FunctionTask {
            entry, solution, ..
        } = &*self.task;
        let define = |body: &str| format!("def {entry}(*args, **kwargs):\n    {body}\n");
        let around = |body: &str| {
            let body = define(body);
            format!("{solution}\n_right = {entry}\n_calls = []\n{body}")
        };
        let programs = [
            ("a function that returns nothing", define("return None")),
            (
                "a value that equals everything",
                EQUAL_TO_ALL.to_owned() + &define("return _Equal()"),
            ),
            (
                "the result in a list",
                around("return [_right(*args, **kwargs)]"),
            ),
            (
                FIRST_CALL,
                around(
                    "_calls.append(0)\n    if len(_calls) > 1: raise ValueError\n    return _right(*args, **kwargs)",
                ),
            ),
            (
                "an end before the calls",
                format!("{solution}\nraise SystemExit(0)"),
            ),
            (
                "an end of the process before the calls",
                format!("{solution}\nimport os\nos._exit(0)"),
            ),
            ("a syntax error", format!("{solution}\n(")),
            ("another name", format!("{solution}\ndel {entry}")),
        ];
        // With a single call, a program that gets the first one right is right.
        let wrong = |name: &str| name != FIRST_CALL || self.task.calls() > 1;
        let programs = programs.into_iter().filter(|(name, _)| wrong(name));
        programs
            .map(|(name, program)| (name, stated(&program)))
            .collect()
    }
}
