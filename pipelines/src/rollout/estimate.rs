//! What a run will cost, as bounds, before a call is made.

use std::collections::HashSet;
use std::fmt;

use pybench::agent;
use pybench::id::Digest;
use pybench::llm::{Price, token_bound};
use pybench::run::{
    JudgeChoice, ProposedChecks, Recipe, RunContext, RunError, TeacherChoice, UnitState,
};
use pybench::task::{Category, FileKind, Task, TaskFile};
use pybench::trajectory::{Trajectory, Usage};

use super::{STAGE, money};
use crate::eval::bare::bare_task;
use crate::eval::judge;
use crate::{embedded, grade};

/// Bytes per token, taken for the lower bound; the upper one takes a token per byte.
pub(crate) const BYTES_PER_TOKEN: u64 = 6;
/// Bytes of a file's name.
const LONGEST_NAME: usize = 255;

/// From, to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// At least, where every task is solved in one short reply.
    pub from: u64,
    /// At most, where every try takes all its turns and every message is as long as it may be.
    pub to: u64,
}

/// What is left of a run to pay.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Who would be asked.
    pub teacher: String,
    /// Tries that are left, at most.
    pub tries: u64,
    /// Tries that came to an end before.
    pub done: u64,
    /// Calls, without those that are made again after a failure.
    pub calls: Range,
    /// Tokens read.
    pub prompt_tokens: Range,
    /// Tokens written.
    pub completion_tokens: Range,
    /// Millionths of a US dollar; `None` when the price is not known.
    pub micro_usd: Option<Range>,
    /// What the recipe allows.
    pub budget: String,
    /// Who judges trajectories, and how many of the calls are its own.
    pub judge: Option<(String, Range)>,
}

/// Tries that came to an end, and those of which there is a verdict.
#[derive(Default)]
struct Ended {
    tried: HashSet<String>,
    graded: HashSet<String>,
}

/// Bounds on what is left of that run.
pub(super) fn of(context: &RunContext, tasks: &[Task]) -> Result<Estimate, RunError> {
    let journal = context.folder.journal();
    let done = |stage| -> Result<HashSet<String>, RunError> {
        let states = journal.states(stage)?.into_iter();
        let done = states.filter(|(_, state)| *state == UnitState::Done);
        Ok(done.map(|(item, _)| item).collect())
    };
    let (tried, graded) = (done(STAGE)?, done(grade::STAGE)?);
    Ok(sum(&context.recipe, tasks, &Ended { tried, graded }))
}

/// The same before models have written the tasks: as many as are asked for, with queries of up to so many
/// bytes.
pub(super) fn ahead(recipe: &Recipe, longest: usize) -> Estimate {
    let tasks = |task: Task| {
        let number = |n: usize| Digest::of_json(&n);
        let tasks = (0..recipe.query.tasks).map(|n| Task {
            id: number(n),
            ..task.clone()
        });
        tasks.collect::<Vec<_>>()
    };
    let least = sum(recipe, &tasks(unwritten(0)), &Ended::default());
    let most = sum(recipe, &tasks(unwritten(longest)), &Ended::default());
    let both = |least: Range, most: Range| Range {
        from: least.from,
        to: most.to,
    };
    Estimate {
        prompt_tokens: both(least.prompt_tokens, most.prompt_tokens),
        micro_usd: least
            .micro_usd
            .zip(most.micro_usd)
            .map(|(least, most)| both(least, most)),
        ..most
    }
}

/// A task that is not written yet: with a query of so many bytes, and files with the longest names where
/// there is one.
pub(crate) fn unwritten(bytes: usize) -> Task {
    let mut task = bare_task("", Category::Text, "");
    task.query = "x".repeat(bytes);
    let file = |n: usize| TaskFile {
        name: format!("{n}{}", "x".repeat(LONGEST_NAME)),
        id: Digest::of_bytes(b""),
        kind: FileKind::Txt,
        origin: String::new(),
        licence: None,
    };
    task.files = (0..if bytes > 0 { 2 } else { 0 }).map(file).collect();
    task
}

fn sum(recipe: &Recipe, tasks: &[Task], ended: &Ended) -> Estimate {
    let names = recipe.teachers().into_iter();
    let names: Vec<_> = names.map(|(_, choice)| asked_name(choice)).collect();
    let mut estimate = Estimate::of(recipe, names.join(", "));
    let judge = recipe.grade.judge.as_ref();
    estimate.judge = judge.map(|judge| (teacher_name(&judge.teacher), Range::default()));
    let paid_before = trials(recipe);
    // A goal is reached at the earliest when every try is accepted.
    let mut surely = recipe.goal.accept.unwrap_or(usize::MAX);
    for task in tasks {
        for (rung, choices) in rungs(recipe).iter().enumerate() {
            for sample in 0..recipe.rollout.samples {
                let mut ids = choices.iter().map(|c| try_id(recipe, c, task, sample));
                if let Some(id) = ids.find(|id| ended.tried.contains(id.as_str())) {
                    estimate.done += 1;
                    surely = surely.saturating_sub(1);
                    if let Some(judge) = judge.filter(|_| !ended.graded.contains(id.as_str())) {
                        estimate.judged(judge, task, true);
                    }
                    continue;
                }
                let first = recipe.goal.enough == 0 || sample < recipe.goal.enough;
                let sure = rung == 0 && first && surely > 0;
                surely -= usize::from(sure);
                estimate.add(recipe, choices, task, sure && sample >= paid_before);
                if let Some(judge) = judge {
                    // Samples that do the same are one question to it.
                    estimate.judged(judge, task, sure && sample == 0);
                }
            }
        }
    }
    estimate
}

/// Samples of each task whose replies were paid for when its check was tried, and are shared.
fn trials(recipe: &Recipe) -> u32 {
    let writer = recipe.query.writer.iter();
    let proven = writer.filter(|writer| writer.checks != ProposedChecks::None);
    let trials = proven.map(|writer| writer.trials).next();
    trials.filter(|_| recipe.rollout.reuse).unwrap_or(0)
}

/// Who may be asked for a try, from the first to the strongest: one of these.
pub(crate) fn rungs(recipe: &Recipe) -> Vec<Vec<&TeacherChoice>> {
    let mixed = recipe.mix.iter().map(|mixed| &mixed.teacher);
    let first = std::iter::once(&recipe.teacher).chain(mixed).collect();
    let stronger = recipe.stronger.iter().map(|teacher| vec![teacher]);
    std::iter::once(first).chain(stronger).collect()
}

/// The name that the teacher will have in ids.
pub(crate) fn teacher_name(choice: &TeacherChoice) -> String {
    match choice {
        TeacherChoice::Expert { .. } => "expert".to_owned(),
        TeacherChoice::Openai { model, .. } => format!("openai:{model}"),
        TeacherChoice::Embedded { model, sha256, .. } => {
            embedded::name(model, sha256.as_deref()).unwrap_or_else(|| format!("gguf:{model}"))
        }
    }
}

/// The name, and how the teacher is asked.
fn asked_name(choice: &TeacherChoice) -> String {
    let name = teacher_name(choice);
    match choice {
        TeacherChoice::Openai { batch: true, .. } => format!("{name}, in batches"),
        _ => name,
    }
}

fn try_id(
    recipe: &Recipe,
    choice: &TeacherChoice,
    task: &Task,
    sample: u32,
) -> pybench::id::Digest {
    let how = &recipe.rollout;
    let format = agent::format(how.format).name();
    let teacher = teacher_name(choice);
    Trajectory::compute_id(&task.id, &teacher, &how.sampling, format, sample)
}

/// Tokens of one try, at least and at most.
pub(crate) fn bounds(recipe: &Recipe, task: &Task) -> (Usage, Usage) {
    let how = &recipe.rollout;
    let format = agent::format(how.format);
    let opening = token_bound(&format.opening(task));
    let (turns, reply) = (u64::from(how.max_turns), u64::from(how.sampling.max_tokens));
    // Output is capped in characters, each at most four bytes; notices and template come on top.
    let observation = 4 * recipe.interpreter.limits.output_chars as u64 + 1024;
    let observed = format.most_cells() as u64 * observation;
    let low = Usage {
        prompt_tokens: opening / BYTES_PER_TOKEN,
        completion_tokens: 1,
    };
    let grown = turns * turns.saturating_sub(1) / 2;
    let high = Usage {
        prompt_tokens: turns * opening + grown * (reply + observed),
        completion_tokens: turns * reply,
    };
    (low, high)
}

fn budget(recipe: &Recipe) -> String {
    let budget = &recipe.budget;
    let parts = [
        budget.usd.map(|usd| format!("{usd} US dollars")),
        budget.tokens.map(|tokens| format!("{tokens} tokens")),
        budget.minutes.map(|minutes| format!("{minutes} minutes")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => "none".to_owned(),
        false => parts.join(", "),
    }
}

impl Range {
    fn add(&mut self, from: u64, to: u64) {
        self.from = self.from.saturating_add(from);
        self.to = self.to.saturating_add(to);
    }
}

impl Estimate {
    /// Nothing so far, of models of that name.
    pub(crate) fn of(recipe: &Recipe, teacher: String) -> Self {
        Self {
            teacher,
            tries: 0,
            done: 0,
            calls: Range::default(),
            prompt_tokens: Range::default(),
            completion_tokens: Range::default(),
            micro_usd: Some(Range::default()),
            budget: budget(recipe),
            judge: None,
        }
    }

    /// Calls of one of these models, with what they read and write at least and at most.
    pub(crate) fn charge(
        &mut self,
        models: &[&TeacherChoice],
        calls: Range,
        low: Usage,
        high: Usage,
    ) {
        self.calls.add(calls.from, calls.to);
        self.prompt_tokens
            .add(low.prompt_tokens, high.prompt_tokens);
        self.completion_tokens
            .add(low.completion_tokens, high.completion_tokens);
        let prices: Option<Vec<Price>> = models.iter().map(|model| money::price(model)).collect();
        let costs = |usage: Usage| {
            let prices = prices.iter().flatten();
            prices.map(move |price| price.micro_usd(usage))
        };
        let (from, to) = (costs(low).min(), costs(high).max());
        match (&mut self.micro_usd, from.zip(to)) {
            (Some(money), Some((from, to))) => money.add(from, to),
            (money, _) => *money = None,
        }
    }

    /// The judge's opinion of a try at that task; `sure` when it is asked for in any case.
    fn judged(&mut self, judge: &JudgeChoice, task: &Task, sure: bool) {
        let low = Usage {
            prompt_tokens: task.query.len() as u64 / BYTES_PER_TOKEN,
            completion_tokens: 1,
        };
        let low = if sure { low } else { Usage::default() };
        let calls = Range {
            from: u64::from(sure),
            to: 1,
        };
        if let Some((_, own)) = &mut self.judge {
            own.add(calls.from, calls.to);
        }
        let high = judge::most(task.query.len(), judge.sees);
        self.charge(&[&judge.teacher], calls, low, high);
    }

    /// A try by one of these; `sure` when it is made whatever comes of the others.
    fn add(&mut self, recipe: &Recipe, choices: &[&TeacherChoice], task: &Task, sure: bool) {
        let (mut low, mut high) = bounds(recipe, task);
        let free = |choice: &&TeacherChoice| matches!(choice, TeacherChoice::Expert { .. });
        if choices.iter().all(free) {
            high = Usage::default();
        }
        if !sure || high == Usage::default() {
            low = Usage::default();
        }
        self.tries += 1;
        let calls = Range {
            from: u64::from(sure),
            to: recipe.rollout.max_turns.into(),
        };
        self.charge(choices, calls, low, high);
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.from, self.to)
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "teacher            {}", self.teacher)?;
        writeln!(f, "tries left         {} ({} done)", self.tries, self.done)?;
        writeln!(f, "calls              {}", self.calls)?;
        writeln!(f, "prompt tokens      {}", self.prompt_tokens)?;
        writeln!(f, "completion tokens  {}", self.completion_tokens)?;
        match self.micro_usd {
            Some(Range { from, to }) => {
                let (from, to) = (from as f64 / 1e6, to as f64 / 1e6);
                writeln!(f, "US dollars         {from:.2} to {to:.2}")?;
            }
            None => writeln!(f, "US dollars         unknown: set `teacher.price`")?,
        }
        writeln!(f, "budget             {}", self.budget)?;
        match &self.judge {
            Some((judge, calls)) => {
                writeln!(f, "judge              {judge}: {calls} of these calls")
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;
