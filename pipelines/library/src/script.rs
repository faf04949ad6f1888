//! The expert's script for one task: determines the next action from the observations so far.

use std::collections::BTreeMap;

use pybench_types::task::{Task, TaskOrigin};
use regex::Regex;

use super::draft::{READERS, render};
use super::render::{self, Context, FileDetail};
use super::slots::Slots;
use super::template::{Mutant, Template, Text};
use super::{Library, reader};

pub use pybench_compose::script::Action as ExpertAction;

/// How a script deviates from the template's turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deviation {
    /// No deviation.
    Honest,
    /// The template's alternative solution.
    Alternative,
    /// The template's mutant with this index.
    Mutant(usize),
    /// The outputs are saved to a different folder.
    ForgottenSave,
    /// The expert looks at the file, then gives up with an empty answer.
    GaveUp,
    /// The expert answers immediately with made-up values.
    Claimed,
}

/// A value that never occurs in a real observation.
const MADE_UP: &str = "-86420.97531";

/// There is no script for a task, or the script cannot continue after an observation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// The library does not have the task's template.
    #[error("this library has no template `{0}`")]
    NoTemplate(String),
    /// The script of a composed task ends early.
    #[error("{0}")]
    Composed(String),
    /// A string cannot be rendered.
    #[error("template `{template}`, {part}: {reason}")]
    Render {
        template: String,
        part: String,
        reason: String,
    },
    /// A value is missing in an observation.
    #[error(
        "template `{template}`: the observation of turn {turn} has no value `{name}`: the regex `{regex}` does not match"
    )]
    NoValue {
        template: String,
        /// From 0.
        turn: usize,
        name: String,
        regex: String,
    },
    /// A mutant cannot be applied.
    #[error(
        "template `{template}`, mutant `{mutant}`: `find` occurs {count} times in the rendered cell, not exactly once"
    )]
    Mutant {
        template: String,
        mutant: String,
        count: usize,
    },
}

impl From<pybench_compose::script::ScriptError> for ScriptError {
    fn from(error: pybench_compose::script::ScriptError) -> Self {
        Self::Composed(error.to_string())
    }
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
    /// The script of a task of this library, without deviation.
    pub fn new(library: &'a Library, task: &'a Task) -> Result<Self, ScriptError> {
        let (template, slots) = match &task.origin {
            TaskOrigin::Library {
                template, slots, ..
            } => (template, slots),
            TaskOrigin::Composed { skeleton, .. } => {
                return Err(ScriptError::NoTemplate(format!(
                    "a composed task, {skeleton}"
                )));
            }
            TaskOrigin::Writer { generator, .. } => {
                return Err(ScriptError::NoTemplate(format!("a task of {generator}")));
            }
            TaskOrigin::TaskSet { set, row, .. } => {
                return Err(ScriptError::NoTemplate(format!("{set}/{row}")));
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
            cell_context: context(FileDetail::Cell),
            thought_context: context(FileDetail::Thought),
        })
    }

    /// The same script with a deviation.
    pub fn deviating(mut self, deviation: Deviation) -> Self {
        self.deviation = deviation;
        self
    }

    pub fn template(&self) -> &'a Template {
        self.template
    }

    /// The next action after these observations (their texts, in order).
    pub fn next(&self, observations: &[&str]) -> Result<ExpertAction, ScriptError> {
        match self.deviation {
            Deviation::Honest => self.honest(observations),
            Deviation::Alternative => self.alternative(observations),
            Deviation::Claimed => Ok(ExpertAction::Answer(self.claim()?)),
            Deviation::GaveUp if observations.len() >= self.turns_without_output()?.min(1) => {
                Ok(ExpertAction::Answer(self.resignation()))
            }
            Deviation::GaveUp => self.honest(observations),
            Deviation::ForgottenSave => self.end_if_stuck(self.forgetful(observations)),
            Deviation::Mutant(index) => match self.template.mutants.get(index) {
                Some(mutant) => self.end_if_stuck(self.mutated(mutant, observations)),
                None => self.honest(observations),
            },
        }
    }

    /// All actions of the script, with `<name>` in place of every value that is read from an observation.
    pub fn outline(&self) -> Result<Vec<ExpertAction>, ScriptError> {
        let mut values: BTreeMap<String, String> = BTreeMap::new();
        let mut moves = Vec::new();
        for (turn, content) in self.template.turns.iter().enumerate() {
            let thought = content.thought.get(self.task.language);
            moves.push(ExpertAction::Step {
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
        moves.push(ExpertAction::Answer(
            self.thought(answer, &values, "final")?,
        ));
        Ok(moves)
    }

    /// The cells of the outline.
    pub fn cells(&self) -> Result<Vec<String>, ScriptError> {
        let moves = self.outline()?.into_iter();
        let cell = |next| match next {
            ExpertAction::Step { cell, .. } => Some(cell),
            ExpertAction::Answer(_) => None,
        };
        Ok(moves.filter_map(cell).collect())
    }

    /// The cell of the alternative solution.
    pub fn alternative_cell(&self) -> Result<String, ScriptError> {
        let cell = &self.template.alternative.cell;
        let cell = self.render(cell, &self.cell_context, &BTreeMap::new(), "alternative")?;
        Ok(reader::with_imports(cell))
    }

    fn honest(&self, observations: &[&str]) -> Result<ExpertAction, ScriptError> {
        let turn = observations.len();
        let values = self.values(observations)?;
        if turn >= self.template.turns.len() {
            let answer = self.template.answer.get(self.task.language);
            return Ok(ExpertAction::Answer(
                self.thought(answer, &values, "final")?,
            ));
        }
        let thought = self.template.turns[turn].thought.get(self.task.language);
        Ok(ExpertAction::Step {
            thought: self.thought(thought, &values, "thought")?,
            cell: self.cell(turn, &values)?,
        })
    }

    fn alternative(&self, observations: &[&str]) -> Result<ExpertAction, ScriptError> {
        let Some(observation) = observations.first() else {
            return Ok(ExpertAction::Step {
                thought: String::new(),
                cell: self.alternative_cell()?,
            });
        };
        let mut values = BTreeMap::new();
        self.read(0, &self.template.alternative.read, observation, &mut values)?;
        let answer = self.template.answer.get(self.task.language);
        Ok(ExpertAction::Answer(
            self.thought(answer, &values, "final")?,
        ))
    }

    fn mutated(&self, mutant: &Mutant, observations: &[&str]) -> Result<ExpertAction, ScriptError> {
        let values = self.values(observations);
        match (self.honest(observations)?, mutant.turn) {
            (ExpertAction::Step { thought, cell }, Some(turn)) if turn == observations.len() => {
                let cell = self.replace(mutant, &cell, &values?)?;
                Ok(ExpertAction::Step { thought, cell })
            }
            (ExpertAction::Answer(_), _) if mutant.answer.is_some() => {
                let values = values?;
                let answer = mutant.answer.iter();
                let answers = answer.map(|text| self.thought(text, &values, "answer"));
                Ok(ExpertAction::Answer(answers.collect::<Result<_, _>>()?))
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

    fn forgetful(&self, observations: &[&str]) -> Result<ExpertAction, ScriptError> {
        Ok(match self.honest(observations)? {
            ExpertAction::Step { thought, cell } => ExpertAction::Step {
                thought,
                cell: self.without_saving(cell),
            },
            answer => answer,
        })
    }

    /// Changes a cell so that it saves next to `output/` instead of in it.
    fn without_saving(&self, cell: String) -> String {
        let saves_elsewhere = |cell: String, path: &String| {
            let name = path.strip_prefix("output/").unwrap_or(path);
            cell.replace(path.as_str(), name)
        };
        self.task.outputs.iter().fold(cell, saves_elsewhere)
    }

    /// Ends a deviating script with an empty answer if a value that it reads is missing. This is intended: the
    /// solution is meant to be wrong.
    fn end_if_stuck(
        &self,
        next: Result<ExpertAction, ScriptError>,
    ) -> Result<ExpertAction, ScriptError> {
        match next {
            Err(ScriptError::NoValue { .. }) => Ok(ExpertAction::Answer(self.resignation())),
            other => other,
        }
    }

    fn resignation(&self) -> String {
        match self.task.language {
            pybench_types::task::Language::En => {
                "I could not get any further with this task, so I stop here."
            }
            pybench_types::task::Language::Zh => "这个任务我做不下去了，先到这里。",
        }
        .to_owned()
    }

    /// The final answer with made-up values.
    fn claim(&self) -> Result<String, ScriptError> {
        let reads = self.template.reads_before(self.template.turns.len());
        let values = reads
            .map(|(name, _)| (name.clone(), MADE_UP.to_owned()))
            .collect();
        let answer = self.template.answer.get(self.task.language);
        self.thought(answer, &values, "final")
    }

    /// The number of turns before the first one whose cell mentions an output.
    fn turns_without_output(&self) -> Result<usize, ScriptError> {
        let cells = self.cells()?;
        let saves = |cell: &String| cell.contains("output");
        Ok(cells.iter().position(saves).unwrap_or(cells.len()))
    }

    /// Whether a deviation makes the checks fail on every file, so that a run can use it as a deliberate fault.
    pub fn surely_fails(&self, deviation: Deviation) -> bool {
        let outputs = &self.task.outputs;
        match deviation {
            Deviation::Honest | Deviation::Alternative => false,
            Deviation::Mutant(index) => self.template.mutants.get(index).is_some_and(|m| m.sure),
            // An answer without labels and without output files passes no check.
            Deviation::GaveUp => true,
            Deviation::ForgottenSave => !outputs.is_empty() && self.saves_by_literal_path(),
            Deviation::Claimed => !outputs.is_empty() || self.claim_is_made_up(),
        }
    }

    /// Whether every output path occurs literally in a cell, and no other `output` remains once they are replaced.
    fn saves_by_literal_path(&self) -> bool {
        let Ok(cells) = self.cells() else {
            return false;
        };
        let all_saved = |path: &String| cells.iter().any(|cell| cell.contains(path.as_str()));
        let left = |cell: String| self.without_saving(cell).contains("output");
        self.task.outputs.iter().all(all_saved) && !cells.iter().cloned().any(left)
    }

    /// Whether every label that a check reads is followed by a made-up value in the claim.
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
        // Trimmed so that `$` matches the end of the text.
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

/// The expressions that read the files, as stored in the task's slots.
fn readers(slots: &Slots) -> Vec<Option<String>> {
    let readers = slots.get(READERS).cloned().unwrap_or_default();
    serde_json::from_value(readers).unwrap_or_default()
}

/// The label after which a check reads its value.
pub(crate) fn marker(check: &pybench_types::check::CheckSpec) -> Option<&str> {
    use pybench_types::check::CheckSpec;
    match check {
        CheckSpec::Number { marker, .. }
        | CheckSpec::Values { marker, .. }
        | CheckSpec::Denotation { marker, .. }
        | CheckSpec::Symbolic { marker, .. } => Some(marker),
        _ => None,
    }
}
