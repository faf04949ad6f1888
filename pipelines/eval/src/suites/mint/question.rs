//! A task of MINT.

use std::sync::Arc;

use serde_json::Value;

use super::super::answers::Question;
use super::super::executed::Verdicts;
use super::super::python_literal::float_repr;
use super::compare::{
    Choice, answer, number, number_equals, numbers_agree, solutions, theorem_agrees,
};
use super::program::Program;
use super::rows::{MAX_SOLUTIONS, MAX_TURNS, Row, TaskSet};
use super::verdicts::Executed;

/// The task of `theoremqa` whose list has no order: eigenvalues.
const ANY_ORDER: [u32; 1] = [10];
/// A task with what its scores need.
pub(super) struct MintQuestion {
    set: &'static TaskSet,
    row: Row,
    kind: Kind,
    verdicts: Arc<Verdicts>,
}

enum Kind {
    /// `gsm8k` and `math`: the expected number.
    Number(String),
    /// `mmlu`.
    Choice(Choice),
    /// `theoremqa`: the authors evaluate the answer with Python.
    Theorem(String),
    /// `humaneval` and `mbpp`.
    Program(Program),
}

impl MintQuestion {
    /// A task of `set`. Verdicts of answers that are executed are looked up in `verdicts`.
    ///
    /// # Errors
    /// The row is not a task of this set.
    pub(super) fn new(
        set: &'static TaskSet,
        row: Row,
        verdicts: Arc<Verdicts>,
    ) -> Result<Self, String> {
        let kind = match set.name {
            "gsm8k" | "math" => Kind::Number(row.reference_text()?.to_owned()),
            "mmlu" => Kind::Choice(Choice::new(&row.prompt, row.reference_text()?)?),
            "theoremqa" => {
                let missing = || format!("task {}: `answer_type` is missing", row.id);
                Kind::Theorem(row.answer_type.clone().ok_or_else(missing)?)
            }
            _ => Kind::Program(Program::new(&row)?),
        };
        Ok(Self {
            set,
            row,
            kind,
            verdicts,
        })
    }

    /// What is executed to score answers; `None` if nothing is.
    pub(super) fn executed(&self) -> Option<Executed> {
        match &self.kind {
            Kind::Number(_) | Kind::Choice(_) => None,
            Kind::Theorem(_) => Some(Executed::Theorem(self.row.clone())),
            Kind::Program(program) => Some(Executed::Program(program.clone())),
        }
    }

    /// The task set.
    pub(super) fn set(&self) -> &'static TaskSet {
        self.set
    }

    /// The authors' prompt.
    pub(super) fn task_prompt(&self) -> String {
        let prompt = &self.row.prompt;
        match self.set.name {
            "theoremqa" => format!(
                "Answer the following question with a number, a list of numbers or True or False. {}",
                prompt.trim()
            ),
            "mbpp" => prompt.replace("\"\"\"", "").trim().to_owned(),
            "humaneval" => format!("Complete the following code:\n\n{prompt}"),
            "mmlu" => prompt.clone(),
            _ => prompt.trim().to_owned(),
        }
    }

    /// The correct answer, without the marks around it.
    fn solution(&self) -> String {
        match (&self.kind, &self.row.reference) {
            (Kind::Number(expected), _) => expected.clone(),
            (Kind::Choice(choice), _) => choice.correct().to_owned(),
            (Kind::Program(program), _) => program.solution.clone(),
            (Kind::Theorem(_), Value::Bool(true)) => "True".to_owned(),
            (Kind::Theorem(_), Value::Bool(false)) => "False".to_owned(),
            (Kind::Theorem(_), Value::String(option)) => option.clone(),
            (Kind::Theorem(_), Value::Number(number)) if number.is_f64() => {
                number.as_f64().map_or(String::new(), float_repr)
            }
            (Kind::Theorem(_), reference) => reference.to_string(),
        }
    }

    /// The expected answer if it is a number.
    fn expected_number(&self) -> Option<f64> {
        match &self.kind {
            Kind::Number(expected) => expected.parse().ok(),
            Kind::Theorem(_) => self.row.reference.as_f64(),
            _ => None,
        }
    }

    /// Whether one solution is correct by the strict comparison; programs are compared as a whole.
    fn accepts(&self, solution: &str) -> bool {
        match &self.kind {
            Kind::Number(expected) => {
                number(solution).is_some_and(|found| number_equals(expected, found))
            }
            Kind::Choice(choice) => choice.is_chosen(solution),
            Kind::Theorem(answer_type) => {
                let any_order = ANY_ORDER.contains(&self.row.id);
                theorem_agrees(solution, &self.row.reference, answer_type, any_order)
            }
            Kind::Program(_) => false,
        }
    }
}

fn stated(solution: &str) -> String {
    format!("<solution>\n{solution}\n</solution>")
}

impl Question for MintQuestion {
    fn name(&self) -> String {
        format!("{}/{}", self.set.name, self.row.id)
    }

    fn category(&self) -> String {
        format!("{}: {}", self.set.kind, self.set.name)
    }

    fn prompt(&self) -> String {
        let what = match &self.kind {
            Kind::Number(_) => "the number alone",
            Kind::Choice(_) => "the letter of the correct option alone",
            Kind::Theorem(_) => "the answer alone",
            Kind::Program(_) => "the complete Python code, without tests,",
        };
        format!(
            "{}\n\nWhen you are done, end your reply with {what} in the form `<solution>…</solution>`. You have {MAX_TURNS} chances \
             to run code or propose a solution, and can propose a solution only {MAX_SOLUTIONS} times.",
            self.task_prompt()
        )
    }

    fn texts(&self) -> Vec<String> {
        let prompt = self.row.prompt.replace("\"\"\"", "");
        match &self.row.text {
            Some(text) => vec![text.clone(), prompt],
            None => vec![prompt],
        }
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>, String> {
        Ok(Vec::new())
    }

    fn reference(&self) -> String {
        stated(&self.solution())
    }

    fn expected(&self) -> String {
        match &self.kind {
            Kind::Program(program) => program.tests.clone(),
            _ => self.solution(),
        }
    }

    fn upstream(&self, reply: &str) -> Option<bool> {
        let Some(answer) = answer(reply) else {
            return Some(false);
        };
        match &self.kind {
            Kind::Number(expected) => Some(numbers_agree(expected, &answer)),
            Kind::Choice(choice) => Some(choice.agrees(&answer)),
            Kind::Theorem(_) | Kind::Program(_) => {
                let verdict = self.verdicts.get(&self.name(), &answer);
                verdict.map(|verdict| verdict.upstream)
            }
        }
    }

    fn strict(&self, reply: &str) -> Result<(), String> {
        let answer = answer(reply).ok_or("the reply has no `<solution>…</solution>`")?;
        if let Kind::Program(_) = self.kind {
            let verdict = self.verdicts.get(&self.name(), &answer);
            return match verdict.ok_or("the program was not run")?.strict {
                true => Ok(()),
                false => Err("the program fails the tests".to_owned()),
            };
        }
        let solutions = solutions(reply);
        match solutions.iter().all(|solution| self.accepts(solution)) {
            true => Ok(()),
            false if solutions.len() > 1 => {
                Err("the reply has several solutions, not all of them correct".to_owned())
            }
            false => Err("the solution differs from the expected one".to_owned()),
        }
    }

    fn mutants(&self) -> Vec<(&'static str, String)> {
        let solution = self.solution();
        let mut mutants = vec![
            ("no marks", solution.clone()),
            ("an empty solution", stated("")),
        ];
        if let Kind::Program(program) = &self.kind {
            let wrong = program.mutants().into_iter();
            mutants.extend(wrong.map(|(name, program)| (name, stated(&program))));
            return mutants;
        }
        mutants.extend([
            ("a denial", stated(&format!("anything but {solution}"))),
            (
                "two candidates",
                stated(&format!("{solution} or something else")),
            ),
            (
                "another solution after the correct one",
                self.reference() + "\n" + &stated("something else"),
            ),
        ]);
        if let Some(expected) = self.expected_number() {
            let shifted = [
                ("3 % more", expected * 1.03),
                ("3 % less", expected * 0.97),
                ("one more", expected + 1.0),
                ("the other sign", -expected),
                ("ten times the number plus one", expected * 10.0 + 1.0),
            ];
            let shifted = shifted.map(|(name, number)| (name, float_repr(number)));
            let shifted = shifted.into_iter().filter(|(_, text)| !self.accepts(text));
            mutants.extend(shifted.map(|(name, text)| (name, stated(&text))));
            let longer = format!("1{solution} in all");
            mutants.push(("a longer number in a sentence", stated(&longer)));
        }
        match &self.kind {
            Kind::Choice(choice) => {
                let all: Vec<_> = choice
                    .letters_and_contents()
                    .iter()
                    .map(|one| one.0.as_str())
                    .collect();
                mutants.push(("all letters", stated(&all.join(", "))));
                mutants.push(("a word that has all letters", stated("abracadabra")));
                for (letter, content) in choice.letters_and_contents() {
                    if letter != choice.correct() {
                        mutants.push(("another letter", stated(letter)));
                        mutants.push(("another option", stated(&format!("{letter}) {content}"))));
                    }
                }
            }
            Kind::Theorem(_) => {
                mutants.push(("the expected value by its name", stated("self.reference")));
                match &self.row.reference {
                    Value::Bool(value) => {
                        let other = if *value { "False" } else { "True" };
                        mutants.push(("the other value", stated(other)));
                    }
                    Value::String(option) => {
                        let other = if option == "a" { "b" } else { "a" };
                        mutants.push(("another letter", stated(other)));
                    }
                    Value::Array(items) => {
                        let mut reversed = items.clone();
                        reversed.reverse();
                        let reversed = Value::Array(reversed).to_string();
                        if !self.accepts(&reversed) {
                            mutants.push(("another order", stated(&reversed)));
                        }
                        let shorter =
                            Value::Array(items.iter().skip(1).cloned().collect()).to_string();
                        mutants.push(("one item less", stated(&shorter)));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        mutants
    }
}
