//! The expert solves the tasks of a library from their templates, and composed tasks from their plans: deterministic,
//! without network or API key.

use std::sync::Arc;

use pybench_agent::{Format, ScriptedSolver};
use pybench_compose::code::{Idiom, StyleChoice, Variety};
use pybench_compose::script::{self as composed, Fault};
use pybench_run::{CodeIdiom, SolutionStyle};
use pybench_types::id::Digest;
use pybench_types::task::{Task, TaskOrigin};
use pybench_types::trajectory::{Message, Role};

use super::Library;
use super::script::{Deviation, ExpertAction, Script, ScriptError};

/// The expert's name, which is part of ids and rows.
pub const EXPERT: &str = "expert";

/// Solves the tasks of a library with the solutions of its templates.
pub struct Expert {
    library: Arc<Library>,
    format: &'static dyn Format,
    fault_share: f64,
    fault_seed: u64,
    /// Share of the samples of composed tasks with a mistake that the expert repairs.
    recovery_share: f64,
    /// Idioms in which composed tasks are solved.
    idioms: Vec<Idiom>,
    /// How solutions of composed tasks look.
    variety: Variety,
}

impl Expert {
    /// An expert without deliberate faults.
    pub fn new(library: Arc<Library>, format: &'static dyn Format) -> Self {
        Self {
            library,
            format,
            fault_share: 0.0,
            fault_seed: 0,
            recovery_share: 0.0,
            idioms: Idiom::ALL.to_vec(),
            variety: Variety::Varied,
        }
    }

    /// Adds deliberate faults to a share (0 to 1) of the samples. The choice depends only on task, sample number
    /// and seed.
    pub fn with_faults(mut self, share: f64, seed: u64) -> Self {
        self.fault_share = share;
        self.fault_seed = seed;
        self
    }

    /// Adds mistakes that the expert makes first and then repairs, to a share (0 to 1) of the samples of composed tasks.
    /// The choice depends only on task and sample number.
    pub fn with_recoveries(mut self, share: f64) -> Self {
        self.recovery_share = share;
        self
    }

    /// Restricts the idioms in which composed tasks are solved; an empty list allows all.
    pub fn with_idioms(mut self, idioms: &[CodeIdiom]) -> Self {
        if !idioms.is_empty() {
            self.idioms = idioms.iter().copied().map(idiom).collect();
        }
        self
    }

    /// Sets how the solutions of composed tasks look.
    pub fn with_style(mut self, style: SolutionStyle) -> Self {
        self.variety = match style {
            SolutionStyle::Varied => Variety::Varied,
            SolutionStyle::Uniform => Variety::Uniform,
            SolutionStyle::Brief => Variety::Brief,
        };
        self
    }

    /// The script of a sample of a composed task.
    fn composed<'a>(
        &self,
        task: &'a Task,
        sample: u32,
    ) -> Result<composed::Script<'a>, ScriptError> {
        let fault = self.composed_fault(task, sample)?.map(|(_, fault)| fault);
        let choice = StyleChoice {
            idioms: &self.idioms,
            variety: self.variety,
        };
        let script = composed::Script::in_style(task, sample, fault, choice)?;
        let drawn = Digest::of_json(&(&task.id, sample, "recovery"));
        let recovers = fault.is_none() && drawn.fraction() < self.recovery_share;
        Ok(match recovers {
            true => script.with_slip(),
            false => script,
        })
    }

    /// The reply to a conversation about a task of this library, or a composed one. `resumes`: it goes on after turns that
    /// have shown the files of the task.
    fn write(
        &self,
        task: &Task,
        sample: u32,
        messages: &[Message],
        resumes: bool,
    ) -> Result<String, ScriptError> {
        let observations = observations(self.format, messages);
        let action = match &task.origin {
            TaskOrigin::Composed { .. } => {
                let script = self.composed(task, sample)?;
                let script = match resumes {
                    true => script.in_one_cell(),
                    false => script,
                };
                script.next(&observations)?
            }
            _ => {
                let script = Script::new(&self.library, task)?;
                let fault = self.template_fault(&script, task, sample);
                let deviation = fault.map_or(Deviation::Honest, |(_, deviation)| deviation);
                script.deviating(deviation).next(&observations)?
            }
        };
        Ok(match action {
            ExpertAction::Step { thought, cell } => self.format.write_step(&thought, &cell),
            ExpertAction::Answer(answer) => self.format.write_answer(&answer),
        })
    }

    /// The fault of this sample of a task from a template, if it has one.
    fn template_fault(
        &self,
        script: &Script<'_>,
        task: &Task,
        sample: u32,
    ) -> Option<(String, Deviation)> {
        self.draw_fault(task, sample, || faults(script))
    }

    /// The fault of this sample of a composed task, if it has one.
    fn composed_fault(
        &self,
        task: &Task,
        sample: u32,
    ) -> Result<Option<(String, Fault)>, ScriptError> {
        let faults = composed::faults(task)?;
        Ok(self.draw_fault(task, sample, || faults))
    }

    fn draw_fault<F>(
        &self,
        task: &Task,
        sample: u32,
        faults: impl FnOnce() -> Vec<(String, F)>,
    ) -> Option<(String, F)> {
        let drawn = Digest::of_json(&(&task.id, sample, self.fault_seed, "fault"));
        if drawn.fraction() >= self.fault_share {
            return None;
        }
        let mut faults = faults();
        let which = Digest::of_json(&(&task.id, sample, self.fault_seed, "which")).seed();
        let count = faults.len() as u64;
        (count > 0).then(|| faults.swap_remove((which % count) as usize))
    }
}

/// The deliberate faults, with their names, that always make the checks of a task fail.
pub fn faults(script: &Script<'_>) -> Vec<(String, Deviation)> {
    let named = [
        ("forgotten_save", Deviation::ForgottenSave),
        ("gave_up", Deviation::GaveUp),
        ("claimed", Deviation::Claimed),
    ];
    let named = named
        .into_iter()
        .map(|(name, deviation)| (name.to_owned(), deviation));
    let mutants = script
        .template()
        .mutants
        .iter()
        .enumerate()
        .map(|(index, mutant)| {
            let name = format!("mutant: {}", mutant.name.get_ref());
            (name, Deviation::Mutant(index))
        });
    named
        .chain(mutants)
        .filter(|(_, deviation)| script.surely_fails(*deviation))
        .collect()
}

/// The texts of the observations after each assistant message.
pub fn observations<'a>(format: &dyn Format, messages: &'a [Message]) -> Vec<&'a str> {
    let pairs = messages.iter().zip(messages.iter().skip(1));
    let answered = pairs.filter(|(before, _)| before.role == Role::Assistant);
    answered
        .map(|(_, after)| format.parse_observation(after).unwrap_or(&after.content))
        .collect()
}

fn idiom(choice: CodeIdiom) -> Idiom {
    match choice {
        CodeIdiom::Pandas => Idiom::Pandas,
        CodeIdiom::Plain => Idiom::Plain,
        CodeIdiom::Sqlite => Idiom::Sqlite,
    }
}

impl ScriptedSolver for Expert {
    fn name(&self) -> &str {
        EXPERT
    }

    fn reply(&self, task: &Task, sample: u32, messages: &[Message]) -> Result<String, String> {
        self.write(task, sample, messages, false)
            .map_err(|error| error.to_string())
    }

    fn resume(&self, task: &Task, sample: u32, messages: &[Message]) -> Result<String, String> {
        self.write(task, sample, messages, true)
            .map_err(|error| error.to_string())
    }

    fn fault(&self, task: &Task, sample: u32) -> Option<String> {
        match &task.origin {
            TaskOrigin::Composed { .. } => Some(self.composed_fault(task, sample).ok()??.0),
            _ => {
                let script = Script::new(&self.library, task).ok()?;
                Some(self.template_fault(&script, task, sample)?.0)
            }
        }
    }

    fn mistake(&self, task: &Task, sample: u32) -> Option<usize> {
        match &task.origin {
            TaskOrigin::Composed { .. } => {
                let script = self.composed(task, sample).ok()?;
                script.slip().map(|slip| slip.at)
            }
            _ => None,
        }
    }
}
