//! The expert's way through a composed task: what it does next, given what it has seen.

use pybench_types::id::Digest;
use pybench_types::task::{FileKind, Language, Task, TaskFile};
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::argument::{Notation, fill};
use crate::code::{self, Idiom, Job, Solution, Style, StyleChoice, Variety, solution};
use crate::content::Medium;
use crate::file_typo::{self, FileTypo};
use crate::graph::{Graph, GraphError, Step};
use crate::misread::Misreading;
use crate::plan::{Plan, PlanError};
use crate::raw_look;
use crate::slip::{self, Slip, SlipKind};

/// Cells of a script with a mistake, so that it ends within the ten turns that recipes allow by default.
const MAX_CELLS: usize = 9;
/// Share of the samples that look at files as they are written though the defaults read them: a solver cannot know that
/// before it looks.
const LOOKS_ANYWAY: f64 = 0.5;

/// What the expert does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Writes a thought and runs a cell.
    Step { thought: String, cell: String },
    /// Gives the answer.
    Answer(String),
}

/// How a script departs from the solution, on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This step of the graph is left out, which was proven to change the result.
    LeftOut(usize),
    /// The expert looks at the file and ends without an answer.
    GaveUp,
}

/// Why there is no next action.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error("no observation has a line that begins with `answer:`")]
    NoAnswer,
}

/// What a cell of a script is for, mistakes aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Shows which files there are.
    Folder,
    /// Shows files as they are written.
    Raw,
    /// Loads the files.
    Load,
    /// Does the steps of this cell of the solution.
    Work(usize),
    /// Reads back what was saved.
    Check,
}

/// A solution of one task.
pub struct Script<'a> {
    task: &'a Task,
    plan: Plan,
    style: Style,
    /// The files that are shown as they are written.
    shown: Vec<&'a TaskFile>,
    /// The file whose name the task misspells.
    typo: Option<FileTypo>,
    solution: Solution,
    fault: Option<Fault>,
    slip: Option<Slip>,
    /// Whether the cell that loads the files also does the steps.
    one_cell: bool,
    rng: ChaCha8Rng,
}

impl<'a> Script<'a> {
    /// The script of a sample; samples differ in idiom and style.
    ///
    /// # Errors
    /// [`ScriptError`] for a task that was not composed, or not by this version.
    pub fn new(task: &'a Task, sample: u32, fault: Option<Fault>) -> Result<Self, ScriptError> {
        Self::in_style(task, sample, fault, StyleChoice::varied(&Idiom::ALL))
    }

    /// The script of a sample in an allowed style, or with pandas if the task has none of the allowed idioms.
    ///
    /// # Errors
    /// As [`Script::new`].
    pub fn in_style(
        task: &'a Task,
        sample: u32,
        fault: Option<Fault>,
        choice: StyleChoice<'_>,
    ) -> Result<Self, ScriptError> {
        let mut graph = Plan::of(task)?.graph;
        if let Some(Fault::LeftOut(at)) = fault
            && at < graph.0.len()
        {
            graph.0.remove(at);
        }
        Self::of_graph(task, graph, sample, fault, choice)
    }

    /// The script that solves another graph than the task's, as one who misunderstood it would.
    ///
    /// # Errors
    /// As [`Script::new`].
    pub fn mistaken(task: &'a Task, graph: Graph) -> Result<Self, ScriptError> {
        // Where its code fails, it has no answer.
        Self::of_graph(
            task,
            graph,
            0,
            Some(Fault::LeftOut(usize::MAX)),
            StyleChoice::varied(&Idiom::ALL),
        )
    }

    /// The solution in pandas that reads the files at once; with a misreading, as one would write it who reads a file so.
    ///
    /// # Errors
    /// As [`Script::new`].
    pub fn misread(task: &'a Task, misreading: Option<&Misreading>) -> Result<Self, ScriptError> {
        let fault = misreading.map(|_| Fault::LeftOut(usize::MAX));
        let graph = Plan::of(task)?.graph;
        let choice = StyleChoice::varied(&[Idiom::Pandas]);
        let mut script = Self::of_graph(task, graph, 0, fault, choice)?;
        script.solution.raw = None;
        script.solution.folder = None;
        script.typo = None;
        if let Some(Misreading { right, wrong, .. }) = misreading {
            script.solution.look = script.solution.look.replace(right, wrong);
        }
        Ok(script)
    }

    fn of_graph(
        task: &'a Task,
        graph: Graph,
        sample: u32,
        fault: Option<Fault>,
        choice: StyleChoice<'_>,
    ) -> Result<Self, ScriptError> {
        let plan = Plan {
            graph,
            ..Plan::of(task)?
        };
        let mut rng =
            ChaCha8Rng::seed_from_u64(Digest::of_json(&(&task.id, sample, "style")).seed());
        let job = job(task, &plan);
        let style = Style::draw(&job, choice, &mut rng)?;
        let mut solution = solution(&job, &style, &mut rng)?;
        let shown = shown(task, sample, choice.variety);
        let brief = style.is_brief.then(|| raw_look::brief_cell(&shown));
        solution.raw = brief.flatten().or_else(|| raw_look::cell(&shown));
        let typo = FileTypo::of(task);
        solution.folder = typo.as_ref().map(|_| file_typo::LOOK.to_owned());
        Ok(Self {
            task,
            plan,
            style,
            shown,
            typo,
            solution,
            fault,
            slip: None,
            one_cell: false,
            rng,
        })
    }

    /// The script that makes a mistake first and repairs it, if there is one that the solution lends itself to and that does
    /// not make it too long.
    #[must_use]
    pub fn with_slip(mut self) -> Self {
        let mut rng = self.rng.clone();
        let job = job(self.task, &self.plan);
        let fits = self.parts().len() < MAX_CELLS;
        self.slip = slip::draw(&job, &self.style, &self.solution, &mut rng).filter(|_| fits);
        self
    }

    /// The script that loads the files and does all steps in one cell, for one who has seen the files. A program is still
    /// written in a cell of its own.
    #[must_use]
    pub fn in_one_cell(mut self) -> Self {
        if job(self.task, &self.plan).is_program() {
            return self;
        }
        self.solution.look = code::in_one_cell(&self.solution);
        self.solution.work.clear();
        self.solution.bounds.clear();
        self.one_cell = true;
        self
    }

    /// The mistake that it makes first.
    pub fn slip(&self) -> Option<&Slip> {
        self.slip.as_ref()
    }

    /// What the cells are for, in order.
    fn parts(&self) -> Vec<Part> {
        let folder = self.solution.folder.as_ref().map(|_| Part::Folder);
        let raw = self.solution.raw.as_ref().map(|_| Part::Raw);
        let work = (0..self.solution.work.len()).map(Part::Work);
        let check = self.solution.check.as_ref().map(|_| Part::Check);
        let first = folder.into_iter().chain(raw).chain([Part::Load]);
        first.chain(work).chain(check).collect()
    }

    /// The cells, in order; one with a mistake is followed by its repair.
    pub fn cells(&self) -> Vec<&str> {
        let code = |part: Part| match part {
            Part::Folder => self.solution.folder.as_deref(),
            Part::Raw => self.solution.raw.as_deref(),
            Part::Load => Some(self.solution.look.as_str()),
            Part::Work(at) => self.solution.work.get(at).map(String::as_str),
            Part::Check => self.solution.check.as_deref(),
        };
        let mut cells: Vec<&str> = self.parts().into_iter().filter_map(code).collect();
        if let Some(slip) = self.slip.as_ref().filter(|slip| slip.at < cells.len()) {
            cells[slip.at] = &slip.repaired;
            cells.insert(slip.at, &slip.wrong);
        }
        cells
    }

    /// The next action after these observations.
    ///
    /// # Errors
    /// [`ScriptError::NoAnswer`].
    pub fn next(&self, observations: &[&str]) -> Result<Action, ScriptError> {
        let at = observations.len();
        if self.fault == Some(Fault::GaveUp) && at > 0 {
            return Ok(Action::Answer(self.gave_up()));
        }
        if let Some(cell) = self.cells().get(at) {
            let thought = self.thought(at)?;
            return Ok(Action::Step {
                thought,
                cell: (*cell).to_owned(),
            });
        }
        match (self.answer(observations), self.fault) {
            (Ok(answer), _) => Ok(Action::Answer(answer)),
            // A wrong solution that cannot run has no answer.
            (Err(_), Some(_)) => Ok(Action::Answer(self.gave_up())),
            (Err(error), None) => Err(error),
        }
    }

    fn thought(&self, at: usize) -> Result<String, ScriptError> {
        let thought = self.thought_of_cell(at)?;
        let Some(typo) = self.typo.as_ref().filter(|_| at == 1) else {
            return Ok(thought);
        };
        let finding = typo.finding(self.task.language);
        Ok(match self.task.language {
            Language::En => format!("{finding} {thought}"),
            Language::Zh => finding + &thought,
        })
    }

    fn thought_of_cell(&self, at: usize) -> Result<String, ScriptError> {
        let en = self.task.language == Language::En;
        match &self.slip {
            Some(slip) if at == slip.at + 1 => Ok(if en { &slip.en } else { &slip.zh }.clone()),
            Some(slip) if at > slip.at => self.plain_thought(at - 1),
            // It loads the files although it has not seen them.
            Some(slip)
                if slip.kind == SlipKind::ReadOptions
                    && at == slip.at
                    && at < self.solution.loads_at() =>
            {
                Ok(self.opening())
            }
            _ => self.plain_thought(at),
        }
    }

    /// What the expert thinks before a cell, mistakes aside.
    fn plain_thought(&self, at: usize) -> Result<String, ScriptError> {
        let en = self.task.language == Language::En;
        Ok(match self.parts().get(at) {
            Some(Part::Folder) => self
                .typo
                .as_ref()
                .map_or_else(String::new, |typo| typo.purpose(self.task.language)),
            Some(part) if self.style.is_brief => self.brief_thought(*part),
            Some(Part::Raw) => raw_look::purpose(&self.shown, self.task.language),
            Some(Part::Load) if self.one_cell => self.all_steps()?,
            Some(Part::Load) if !self.shown.is_empty() => {
                raw_look::findings(&self.shown, self.task.language)
            }
            Some(Part::Load) => self.opening(),
            Some(Part::Work(cell)) => self.explained(*cell)?,
            Some(Part::Check) if job(self.task, &self.plan).is_program() => match en {
                true => "I run the program on the table to see that it works.".to_owned(),
                false => "用这张表运行一遍程序，确认它能正常工作。".to_owned(),
            },
            Some(Part::Check) | None => match en {
                true => "I read the file back to see that it is as it should be.".to_owned(),
                false => "再读一遍输出文件，确认内容无误。".to_owned(),
            },
        })
    }

    /// What the expert thinks before a cell, in a few words.
    fn brief_thought(&self, part: Part) -> String {
        let en = self.task.language == Language::En;
        let findings = raw_look::brief_findings(&self.shown, self.task.language);
        match part {
            Part::Load if !self.one_cell && findings.is_some() => findings.unwrap_or_default(),
            Part::Folder | Part::Raw if en => "I look at the raw file.".to_owned(),
            Part::Load if en && self.one_cell => "I load the file and do all steps.".to_owned(),
            Part::Load if en => "I load the file.".to_owned(),
            Part::Work(_) if en => "I do all steps.".to_owned(),
            Part::Check if en => "I check the result.".to_owned(),
            Part::Folder | Part::Raw => "先看看原始文件。".to_owned(),
            Part::Load if self.one_cell => "读取文件并完成所有步骤。".to_owned(),
            Part::Load => "读取文件。".to_owned(),
            Part::Work(_) => "完成所有步骤。".to_owned(),
            Part::Check => "检查结果。".to_owned(),
        }
    }

    /// What the expert thinks before it loads files that it has not seen.
    fn opening(&self) -> String {
        let mut rng = self.rng.clone();
        let en = self.task.language == Language::En;
        let name = self.file_names();
        let table = job(self.task, &self.plan).medium() == Medium::Table;
        let said: [&str; 3] = match en {
            true if !table => [
                "First I load $name and see what is in it.",
                "Before I change anything I look at $name.",
                "I open $name and check that it is what the task describes.",
            ],
            false if !table => [
                "先打开 $name，看看内容。",
                "动手之前先看看 $name。",
                "读取 $name，确认与描述一致。",
            ],
            true => [
                "First I load $name and look at the size, the columns and some rows.",
                "Before I compute anything I check the contents of $name.",
                "I read $name and look at the columns that I need.",
            ],
            false => [
                "先读取 $name，看看有哪些列。",
                "计算之前先看看 $name 的内容。",
                "读取 $name 并检查列名和类型。",
            ],
        };
        let said = match self.style.is_uniform {
            true => said.first(),
            false => said.choose(&mut rng),
        };
        said.map_or("", |text| *text).replace("$name", &name)
    }

    /// The names of the task's files in a sentence.
    fn file_names(&self) -> String {
        let files = self.task.files.iter();
        let names: Vec<&str> = files.map(|file| file.name.as_str()).collect();
        names.join(match self.task.language {
            Language::En => " and ",
            Language::Zh => "、",
        })
    }

    /// What the expert thinks before the cell that loads the files and does all steps.
    fn all_steps(&self) -> Result<String, ScriptError> {
        let (names, steps) = (self.file_names(), self.clauses(&self.plan.graph.0)?);
        let does = match self.task.language {
            Language::En => {
                format!("I load {names} and do all steps in one cell: I {steps}.")
            }
            Language::Zh => format!("读取 {names}，在一个单元里完成所有步骤：{steps}。"),
        };
        if self.shown.is_empty() {
            return Ok(does);
        }
        let findings = raw_look::findings(&self.shown, self.task.language);
        Ok(match self.task.language {
            Language::En => format!("{findings} {does}"),
            Language::Zh => findings + &does,
        })
    }

    /// What these steps do, in a sentence.
    fn clauses(&self, steps: &[Step]) -> Result<String, ScriptError> {
        let en = self.task.language == Language::En;
        let clauses = steps.iter().map(|step| self.clause(step, en));
        let clauses: Vec<String> = clauses.collect::<Result<_, _>>()?;
        Ok(clauses.join(if en { ", then " } else { "，再" }))
    }

    /// What the steps of one cell do.
    fn explained(&self, cell: usize) -> Result<String, ScriptError> {
        let en = self.task.language == Language::En;
        let joined = self.clauses(self.steps_of(cell))?;
        let table = job(self.task, &self.plan).medium() == Medium::Table;
        Ok(match (en, cell) {
            (true, 0) if !table => format!("The file is as described. Now I {joined}."),
            (true, 0) => format!("The columns are as the task says. Now I {joined}."),
            (true, _) => format!("Next I {joined}."),
            (false, 0) => format!("数据与任务描述一致。接下来{joined}。"),
            (false, _) => format!("然后{joined}。"),
        })
    }

    /// The steps that a work cell has; its code says so by their number, which the style fixes.
    fn steps_of(&self, cell: usize) -> &[Step] {
        let steps = &self.plan.graph.0;
        let bounds = &self.solution.bounds;
        let from = bounds.get(cell).copied().unwrap_or(0);
        let to = bounds.get(cell + 1).copied().unwrap_or(steps.len());
        steps.get(from..to).unwrap_or_default()
    }

    fn clause(&self, step: &Step, en: bool) -> Result<String, ScriptError> {
        let operation = step.operation()?;
        let (wordings, notation) = match en {
            true => (&operation.en, Notation::English),
            false => (&operation.zh, Notation::Chinese),
        };
        let wording = wordings.first().map_or("", String::as_str);
        let title = format!("\"{}\"", self.plan.title);
        Ok(fill(
            wording,
            &step.arguments,
            notation,
            &[("title", &title)],
        ))
    }

    /// The final answer, with the value as the last work cell showed it.
    fn answer(&self, observations: &[&str]) -> Result<String, ScriptError> {
        let en = self.task.language == Language::En;
        let Some(marker) = &self.plan.marker else {
            let path = self.task.outputs.first().map_or("", String::as_str);
            let is_program = job(self.task, &self.plan).is_program();
            return Ok(match en {
                true if is_program => format!("The program is saved as ./{path}."),
                true => format!("The result is saved as ./{path}."),
                false if is_program => format!("程序已保存到 ./{path}。"),
                false => format!("结果已保存到 ./{path}。"),
            });
        };
        let lines = observations
            .iter()
            .rev()
            .flat_map(|text| text.lines().rev());
        let mut answers = lines.filter_map(|line| line.strip_prefix("answer:"));
        let value = answers.next().ok_or(ScriptError::NoAnswer)?.trim();
        Ok(match en {
            _ if self.style.is_brief => format!("{marker}: {value}"),
            true => format!("I followed the steps on the data as loaded.\n{marker}: {value}"),
            false => format!("已按步骤完成计算。\n{marker}: {value}"),
        })
    }

    fn gave_up(&self) -> String {
        match self.task.language {
            Language::En => "I could not get any further with this task, so I stop here.",
            Language::Zh => "这个任务我做不下去了，先到这里。",
        }
        .to_owned()
    }
}

/// The files of a task that a sample looks at before it reads them: all whose notation is open, or in a share of the
/// samples only. In brief, it looks at each csv file, which costs little.
fn shown(task: &Task, sample: u32, variety: Variety) -> Vec<&TaskFile> {
    let drawn = Digest::of_json(&(&task.id, sample, "raw look")).fraction() < LOOKS_ANYWAY;
    let is_csv = |file: &TaskFile| file.kind == FileKind::Csv;
    let anyway = match variety {
        Variety::Varied => drawn,
        Variety::Uniform => true,
        Variety::Brief => task.files.iter().all(is_csv),
    };
    let is_shown =
        |file: &&TaskFile| raw_look::is_needed(file) || anyway && raw_look::is_worthwhile(file);
    task.files.iter().filter(is_shown).collect()
}

fn job<'a>(task: &'a Task, plan: &'a Plan) -> Job<'a> {
    Job {
        graph: &plan.graph,
        files: &task.files,
        numbers: &plan.numbers,
        output: task.outputs.first().map(String::as_str),
        title: &plan.title,
        decimals: plan.decimals,
    }
}

/// The faults that surely make a task fail, with their names.
///
/// # Errors
/// As [`Script::new`].
pub fn faults(task: &Task) -> Result<Vec<(String, Fault)>, ScriptError> {
    let Graph(steps) = Plan::of(task)?.graph;
    let without = steps.iter().enumerate().rev().skip(1);
    let without =
        without.map(|(at, step)| (format!("left out: {}", step.operation), Fault::LeftOut(at)));
    Ok(without
        .chain([("gave_up".to_owned(), Fault::GaveUp)])
        .collect())
}
