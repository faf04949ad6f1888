//! The expert's script for one task: what to do next, given what was observed so far.

use std::collections::BTreeMap;

use pybench::task::{Task, TaskOrigin};
use regex::Regex;

use super::draft::{READERS, render};
use super::render::{self, Context, View};
use super::slots::Slots;
use super::template::{Mutant, Template, Text};
use super::{Library, reader};

/// What the expert does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Think and run a cell.
    Step {
        /// What it thinks.
        thought: String,
        /// What it runs.
        cell: String,
    },
    /// End the run.
    Answer(String),
}

/// How a script departs from the template's turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// Not at all.
    Honest,
    /// The template's other correct solution.
    Alternative,
    /// The template's mutant of that index.
    Mutant(usize),
    /// The outputs are saved elsewhere than asked for.
    ForgottenSave,
    /// Looks at the file, then answers without having done anything.
    GaveUp,
    /// Answers at once, with values made up.
    Claimed,
}

/// A value no honest observation shows.
const MADE_UP: &str = "-86420.97531";

/// The library has no script for a task, or the script met an observation it cannot go on from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// The task names a template this library lacks.
    #[error("this library has no template `{0}`")]
    NoTemplate(String),
    /// A string does not render.
    #[error("template `{template}`, {part}: {reason}")]
    Render {
        /// Template id.
        template: String,
        /// Which part of it.
        part: String,
        /// In words.
        reason: String,
    },
    /// An observation lacks a value.
    #[error(
        "template `{template}`: no value `{name}` in the observation of turn {turn}: the regex `{regex}` finds nothing"
    )]
    NoValue {
        /// Template id.
        template: String,
        /// Turn, from 0.
        turn: usize,
        /// Name of the value.
        name: String,
        /// The regex.
        regex: String,
    },
    /// A mutant does not apply.
    #[error(
        "template `{template}`, mutant `{mutant}`: `find` occurs {count} times in the rendered cell, not once"
    )]
    Mutant {
        /// Template id.
        template: String,
        /// Name of the mutant.
        mutant: String,
        /// How often.
        count: usize,
    },
}

/// The script of one task.
#[derive(Clone, Debug)]
pub struct Script<'a> {
    template: &'a Template,
    task: &'a Task,
    deviation: Deviation,
    cell_context: Context,
    thought_context: Context,
}

impl<'a> Script<'a> {
    /// The honest script of a task of this library.
    pub fn new(library: &'a Library, task: &'a Task) -> Result<Self, ScriptError> {
        let (template, slots) = match &task.origin {
            TaskOrigin::Library {
                template, slots, ..
            } => (template, slots),
            TaskOrigin::Writer { generator, .. } => {
                return Err(ScriptError::NoTemplate(format!("a task of {generator}")));
            }
            TaskOrigin::Benchmark { suite, index } => {
                return Err(ScriptError::NoTemplate(format!("{suite}/{index}")));
            }
        };
        let found = library.template(template);
        let template = found.ok_or_else(|| ScriptError::NoTemplate(template.clone()))?;
        let context = |view| {
            let files = render::file_variables(&task.files, &readers(slots), view);
            let mut context = render::context(slots, files, task.language);
            context.remove(READERS);
            context
        };
        Ok(Self {
            template,
            task,
            deviation: Deviation::Honest,
            cell_context: context(View::Cell),
            thought_context: context(View::Thought),
        })
    }

    /// The same script, departing so.
    pub fn deviating(mut self, deviation: Deviation) -> Self {
        self.deviation = deviation;
        self
    }

    /// The template.
    pub fn template(&self) -> &'a Template {
        self.template
    }

    /// What to do after these observations (their texts, in order).
    pub fn next(&self, observations: &[&str]) -> Result<Move, ScriptError> {
        match self.deviation {
            Deviation::Honest => self.honest(observations),
            Deviation::Alternative => self.alternative(observations),
            Deviation::Claimed => Ok(Move::Answer(self.claim()?)),
            Deviation::GaveUp if observations.len() >= self.turns_without_output()?.min(1) => {
                Ok(Move::Answer(self.resignation()))
            }
            Deviation::GaveUp => self.honest(observations),
            Deviation::ForgottenSave => self.unsure(self.forgetful(observations)),
            Deviation::Mutant(index) => match self.template.mutants.get(index) {
                Some(mutant) => self.unsure(self.mutated(mutant, observations)),
                None => self.honest(observations),
            },
        }
    }

    /// The honest script with `<name>` in place of every value to be read; for people to look at.
    pub fn outline(&self) -> Result<Vec<Move>, ScriptError> {
        let mut values: BTreeMap<String, String> = BTreeMap::new();
        let mut moves = Vec::new();
        for (turn, content) in self.template.turns.iter().enumerate() {
            let thought = content.thought.get(self.task.language);
            moves.push(Move::Step {
                thought: self.thought(thought, &values, "thought")?,
                cell: self.cell(turn, &values)?,
            });
            values.extend(
                content
                    .read
                    .keys()
                    .map(|name| (name.clone(), format!("<{name}>"))),
            );
        }
        let answer = self.template.answer.get(self.task.language);
        moves.push(Move::Answer(self.thought(answer, &values, "final")?));
        Ok(moves)
    }

    /// The cells of the outline.
    pub fn cells(&self) -> Result<Vec<String>, ScriptError> {
        let moves = self.outline()?.into_iter();
        let cell = |next| match next {
            Move::Step { cell, .. } => Some(cell),
            Move::Answer(_) => None,
        };
        Ok(moves.filter_map(cell).collect())
    }

    /// The alternative's cell.
    pub fn alternative_cell(&self) -> Result<String, ScriptError> {
        let cell = &self.template.alternative.cell;
        let cell = self.render(cell, &self.cell_context, &BTreeMap::new(), "alternative")?;
        Ok(reader::with_imports(cell))
    }

    fn honest(&self, observations: &[&str]) -> Result<Move, ScriptError> {
        let turn = observations.len();
        let values = self.values(observations)?;
        if turn >= self.template.turns.len() {
            let answer = self.template.answer.get(self.task.language);
            return Ok(Move::Answer(self.thought(answer, &values, "final")?));
        }
        let thought = self.template.turns[turn].thought.get(self.task.language);
        Ok(Move::Step {
            thought: self.thought(thought, &values, "thought")?,
            cell: self.cell(turn, &values)?,
        })
    }

    fn alternative(&self, observations: &[&str]) -> Result<Move, ScriptError> {
        let Some(observation) = observations.first() else {
            return Ok(Move::Step {
                thought: String::new(),
                cell: self.alternative_cell()?,
            });
        };
        let mut values = BTreeMap::new();
        self.read(0, &self.template.alternative.read, observation, &mut values)?;
        let answer = self.template.answer.get(self.task.language);
        Ok(Move::Answer(self.thought(answer, &values, "final")?))
    }

    fn mutated(&self, mutant: &Mutant, observations: &[&str]) -> Result<Move, ScriptError> {
        let values = self.values(observations);
        match (self.honest(observations)?, mutant.turn) {
            (Move::Step { thought, cell }, Some(turn)) if turn == observations.len() => {
                let cell = self.replace(mutant, &cell, &values?)?;
                Ok(Move::Step { thought, cell })
            }
            (Move::Answer(_), _) if mutant.answer.is_some() => {
                let values = values?;
                let answer = mutant.answer.iter();
                let answers = answer.map(|text| self.thought(text, &values, "answer"));
                Ok(Move::Answer(answers.collect::<Result<_, _>>()?))
            }
            (other, _) => Ok(other),
        }
    }

    fn replace(
        &self,
        mutant: &Mutant,
        cell: &str,
        values: &BTreeMap<String, String>,
    ) -> Result<String, ScriptError> {
        let render = |text: &Option<Text>| match text {
            Some(text) => self.render(text, &self.cell_context, values, "mutant"),
            None => Ok(String::new()),
        };
        let find = render(&mutant.find)?;
        match cell.matches(&find).count() {
            1 => Ok(cell.replacen(&find, &render(&mutant.replace)?, 1)),
            count => Err(ScriptError::Mutant {
                template: self.template.name().to_owned(),
                mutant: mutant.name.get_ref().clone(),
                count,
            }),
        }
    }

    fn forgetful(&self, observations: &[&str]) -> Result<Move, ScriptError> {
        Ok(match self.honest(observations)? {
            Move::Step { thought, cell } => Move::Step {
                thought,
                cell: self.without_saving(cell),
            },
            answer => answer,
        })
    }

    /// A cell that saves beside `output/` instead of in it.
    fn without_saving(&self, cell: String) -> String {
        let saves_elsewhere = |cell: String, path: &String| {
            let name = path.strip_prefix("output/").unwrap_or(path);
            cell.replace(path.as_str(), name)
        };
        self.task.outputs.iter().fold(cell, saves_elsewhere)
    }

    /// A departure that leaves the script's path (a value it reads is not there) ends in an answer
    /// that says nothing: it is wrong on purpose.
    fn unsure(&self, next: Result<Move, ScriptError>) -> Result<Move, ScriptError> {
        match next {
            Err(ScriptError::NoValue { .. }) => Ok(Move::Answer(self.resignation())),
            other => other,
        }
    }

    fn resignation(&self) -> String {
        match self.task.language {
            pybench::task::Language::En => {
                "I could not get any further with this task, so I stop here."
            }
            pybench::task::Language::Zh => "这个任务我做不下去了，先到这里。",
        }
        .to_owned()
    }

    /// The final text with every value made up.
    fn claim(&self) -> Result<String, ScriptError> {
        let reads = self.template.reads_before(self.template.turns.len());
        let values = reads
            .map(|(name, _)| (name.clone(), MADE_UP.to_owned()))
            .collect();
        let answer = self.template.answer.get(self.task.language);
        self.thought(answer, &values, "final")
    }

    /// Turns before the first whose cell mentions an output.
    fn turns_without_output(&self) -> Result<usize, ScriptError> {
        let cells = self.cells()?;
        let saves = |cell: &String| cell.contains("output");
        Ok(cells.iter().position(saves).unwrap_or(cells.len()))
    }

    /// Whether a departure surely makes the checks fail, whatever the file: what a run may use as
    /// a deliberate fault.
    pub fn surely_fails(&self, deviation: Deviation) -> bool {
        let outputs = &self.task.outputs;
        match deviation {
            Deviation::Honest | Deviation::Alternative => false,
            Deviation::Mutant(index) => self.template.mutants.get(index).is_some_and(|m| m.sure),
            // An answer without a label, and without the files asked for, meets no check.
            Deviation::GaveUp => true,
            Deviation::ForgottenSave => !outputs.is_empty() && self.saves_by_literal_path(),
            Deviation::Claimed => !outputs.is_empty() || self.claim_is_made_up(),
        }
    }

    /// Whether every output path stands in a cell, and nothing of `output` is left without it.
    fn saves_by_literal_path(&self) -> bool {
        let Ok(cells) = self.cells() else {
            return false;
        };
        let all_saved = |path: &String| cells.iter().any(|cell| cell.contains(path.as_str()));
        let left = |cell: String| self.without_saving(cell).contains("output");
        self.task.outputs.iter().all(all_saved) && !cells.iter().cloned().any(left)
    }

    /// Whether every label a check reads is followed by a made-up value in the claim.
    fn claim_is_made_up(&self) -> bool {
        let Ok(claim) = self.claim() else {
            return false;
        };
        let markers: Vec<_> = self.task.checks.iter().filter_map(marker).collect();
        let made_up = |marker: &&str| {
            let line = claim
                .lines()
                .rev()
                .find(|line| line.trim_start().starts_with(marker));
            line.is_some_and(|line| line.contains(MADE_UP))
        };
        !markers.is_empty() && markers.iter().all(made_up)
    }

    fn values(&self, observations: &[&str]) -> Result<BTreeMap<String, String>, ScriptError> {
        let mut values = BTreeMap::new();
        for (turn, observation) in observations.iter().enumerate() {
            if let Some(content) = self.template.turns.get(turn) {
                self.read(turn, &content.read, observation, &mut values)?;
            }
        }
        Ok(values)
    }

    fn read(
        &self,
        turn: usize,
        regexes: &BTreeMap<String, Text>,
        observation: &str,
        values: &mut BTreeMap<String, String>,
    ) -> Result<(), ScriptError> {
        // So that `^` and `$` mean where the text begins and ends.
        let observation = observation.trim_end();
        for (name, regex) in regexes {
            // Validated when the library was loaded.
            let compiled = Regex::new(regex.get_ref()).ok();
            let found =
                compiled.and_then(|r| Some(r.captures(observation)?.get(1)?.as_str().to_owned()));
            let value = found.ok_or_else(|| ScriptError::NoValue {
                template: self.template.name().to_owned(),
                turn,
                name: name.clone(),
                regex: regex.get_ref().clone(),
            })?;
            values.insert(name.clone(), value);
        }
        Ok(())
    }

    fn cell(&self, turn: usize, values: &BTreeMap<String, String>) -> Result<String, ScriptError> {
        let cell = &self.template.turns[turn].cell;
        let cell = self.render(cell, &self.cell_context, values, "cell")?;
        Ok(reader::with_imports(cell))
    }

    fn thought(
        &self,
        text: &Text,
        values: &BTreeMap<String, String>,
        part: &str,
    ) -> Result<String, ScriptError> {
        let text = self.render(text, &self.thought_context, values, part)?;
        Ok(text.trim().to_owned())
    }

    fn render(
        &self,
        text: &Text,
        context: &Context,
        values: &BTreeMap<String, String>,
        part: &str,
    ) -> Result<String, ScriptError> {
        let mut context = context.clone();
        context.extend(values.iter().map(|(k, v)| (k.clone(), v.as_str().into())));
        render(text.get_ref(), &context).map_err(|error| ScriptError::Render {
            template: self.template.name().to_owned(),
            part: part.to_owned(),
            reason: error.to_string(),
        })
    }
}

/// How each file is read, as the task's writer put it down.
fn readers(slots: &Slots) -> Vec<Option<String>> {
    let readers = slots.get(READERS).cloned().unwrap_or_default();
    serde_json::from_value(readers).unwrap_or_default()
}

/// The label a check reads its value after.
pub(crate) fn marker(check: &pybench::grade::CheckSpec) -> Option<&str> {
    use pybench::grade::CheckSpec;
    match check {
        CheckSpec::Number { marker, .. } | CheckSpec::Values { marker, .. } => Some(marker),
        _ => None,
    }
}
