//! Estimates what a run will cost before any call is made: a lower and an upper bound for each quantity.

use std::collections::HashSet;
use std::fmt;

use pybench_agent as agent;
use pybench_llm::{OpenAi, token_bound};
use pybench_run::Price;
use pybench_run::{
    JudgeChoice, ModelChoice, ProposedChecks, Recipe, RunContext, RunError, UnitState,
};
use pybench_types::id::Digest;
use pybench_types::task::Task;
use pybench_types::trajectory::{Trajectory, Usage};

use pybench_run::artifacts::stage;

use crate::money;
use pybench_checks::judge;
use pybench_embedded_client as embedded;

/// Bytes per token for the lower bounds. The upper bounds assume one token per byte.
pub const BYTES_PER_TOKEN: u64 = 6;
/// Maximum length of a file name, in bytes.
const MAX_NAME: usize = 255;

/// A lower and an upper bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Lower bound: every task is solved in one short reply.
    pub from: u64,
    /// Upper bound: every attempt uses all its turns and every message has its maximum length.
    pub to: u64,
}

/// The remaining cost of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Names of the models that would be called.
    pub teacher: String,
    /// Maximum number of attempts left.
    pub attempts: u64,
    /// Attempts that are already done.
    pub done: u64,
    /// Calls, without retries after failures.
    pub calls: Range,
    pub prompt_tokens: Range,
    pub completion_tokens: Range,
    /// Cost in millionths of a US dollar; `None` if a price is unknown.
    pub micro_usd: Option<Range>,
    /// The budget of the recipe, as text.
    pub budget: String,
    /// Name of the judge, and its share of the calls.
    pub judge: Option<(String, Range)>,
}

/// What the estimate needs to know of a task.
#[derive(Clone, Copy, Debug)]
pub struct TaskSize<'a> {
    /// `None` if the task is not written yet.
    id: Option<&'a Digest>,
    /// Bytes of the query.
    query: usize,
    /// Upper bound on the tokens of the initial messages.
    initial: u64,
}

impl<'a> TaskSize<'a> {
    fn of_all(recipe: &Recipe, tasks: &'a [Task]) -> Vec<Self> {
        let format = agent::format(recipe.rollout.format);
        let of = |task: &'a Task| Self {
            id: Some(&task.id),
            query: task.query.len(),
            initial: token_bound(&format.initial_messages(task)),
        };
        tasks.iter().map(of).collect()
    }

    /// A task that is not written yet: its query has `query` bytes; unless that is 0, it has two files with
    /// names of maximum length.
    pub fn unwritten(recipe: &Recipe, query: usize) -> Self {
        let system = agent::format(recipe.rollout.format).system();
        let name = "x".repeat(MAX_NAME + 1);
        let files = [name.as_str(); 2];
        let files = if query > 0 { &files[..] } else { &[] };
        let messages = agent::initial_messages(system, &"x".repeat(query), files);
        Self {
            id: None,
            query,
            initial: token_bound(&messages),
        }
    }
}

/// Items of the attempts that are done, and of those that are graded.
#[derive(Default)]
struct Completed {
    attempted: HashSet<String>,
    graded: HashSet<String>,
}

impl Completed {
    /// The id of this sample of a task, if one of these models has made it.
    fn attempt(
        &self,
        recipe: &Recipe,
        choices: &[&ModelChoice],
        task: &TaskSize<'_>,
        sample: u32,
    ) -> Option<Digest> {
        let task = task.id?;
        let mut ids = choices.iter().map(|c| attempt_id(recipe, c, task, sample));
        ids.find(|id| self.attempted.contains(id.as_str()))
    }
}

/// Estimates the remaining cost of a run.
///
/// # Errors
/// The journal cannot be read.
pub fn remaining(context: &RunContext, tasks: &[Task]) -> Result<Estimate, RunError> {
    let journal = context.folder.journal();
    let done = |stage| -> Result<HashSet<String>, RunError> {
        let states = journal.states(stage)?.into_iter();
        let done = states.filter(|(_, state)| *state == UnitState::Done);
        Ok(done.map(|(item, _)| item).collect())
    };
    let completed = Completed {
        attempted: done(stage::ROLLOUT)?,
        graded: done(stage::GRADE)?,
    };
    let recipe = &context.recipe;
    Ok(sum(recipe, &TaskSize::of_all(recipe, tasks), &completed))
}

/// Like [`remaining`], before models have written the tasks: assumes as many tasks as the recipe requests,
/// with queries of at most `max_query` bytes.
pub fn before_writing(recipe: &Recipe, max_query: usize) -> Estimate {
    let of = |query: usize| {
        let tasks = vec![TaskSize::unwritten(recipe, query); recipe.query.tasks];
        sum(recipe, &tasks, &Completed::default())
    };
    let (least, most) = (of(0), of(max_query));
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

fn sum(recipe: &Recipe, tasks: &[TaskSize<'_>], completed: &Completed) -> Estimate {
    let names = recipe.teachers().into_iter();
    let names: Vec<_> = names.map(|(_, choice)| display_name(choice)).collect();
    let mut estimate = Estimate::of(recipe, names.join(", "));
    let judge = recipe.grade.judge.as_ref();
    estimate.judge = judge.map(|judge| (teacher_name(&judge.teacher), Range::default()));
    let reused_samples = reused_trials(recipe);
    // The goal is reached with the fewest attempts if every attempt is accepted.
    let mut needed = recipe.goal.accept.unwrap_or(usize::MAX);
    for task in tasks {
        for (level, choices) in levels(recipe).iter().enumerate() {
            for sample in 0..recipe.rollout.samples {
                if let Some(id) = completed.attempt(recipe, choices, task, sample) {
                    estimate.done += 1;
                    needed = needed.saturating_sub(1);
                    if let Some(judge) = judge.filter(|_| !completed.graded.contains(id.as_str())) {
                        estimate.add_judgment(judge, task, true);
                    }
                    continue;
                }
                let first = recipe.goal.enough == 0 || sample < recipe.goal.enough;
                let sure = level == 0 && first && needed > 0;
                needed -= usize::from(sure);
                estimate.add(recipe, choices, task, sure && sample >= reused_samples);
                if let Some(judge) = judge {
                    // Identical samples are one question to the judge, so only the first is certain.
                    estimate.add_judgment(judge, task, sure && sample == 0);
                }
            }
        }
    }
    estimate
}

/// Samples per task whose replies were already paid for while its check was validated, and are reused.
fn reused_trials(recipe: &Recipe) -> u32 {
    let writer = recipe.query.writer.iter();
    let with_checks = writer.filter(|writer| writer.checks != ProposedChecks::None);
    let trials = with_checks.map(|writer| writer.trials).next();
    trials.filter(|_| recipe.rollout.reuse).unwrap_or(0)
}

/// The models of each level, from the first to the strongest. One model of a level makes an attempt.
pub fn levels(recipe: &Recipe) -> Vec<Vec<&ModelChoice>> {
    let mixed = recipe.teacher_mix.iter().map(|mixed| &mixed.teacher);
    let first = std::iter::once(&recipe.teacher).chain(mixed).collect();
    let stronger = recipe.escalation.iter().map(|teacher| vec![teacher]);
    std::iter::once(first).chain(stronger).collect()
}

/// The name of a model in trajectory ids.
pub fn teacher_name(choice: &ModelChoice) -> String {
    match choice {
        ModelChoice::Expert { .. } => "expert".to_owned(),
        ModelChoice::Openai { model, .. } => OpenAi::name_of(model),
        ModelChoice::Embedded { model, sha256, .. } => {
            embedded::name(model, sha256.as_deref()).unwrap_or_else(|| format!("gguf:{model}"))
        }
    }
}

/// The name for the estimate, with a note on batch requests.
fn display_name(choice: &ModelChoice) -> String {
    let name = teacher_name(choice);
    match choice {
        ModelChoice::Openai { batch: true, .. } => format!("{name}, in batches"),
        _ => name,
    }
}

fn attempt_id(recipe: &Recipe, choice: &ModelChoice, task: &Digest, sample: u32) -> Digest {
    let rollout = &recipe.rollout;
    let format = agent::format(rollout.format).name();
    let teacher = teacher_name(choice);
    Trajectory::compute_id(task, &teacher, &rollout.sampling, format, sample)
}

/// Minimum and maximum token usage of one attempt.
pub fn bounds(recipe: &Recipe, task: &TaskSize<'_>) -> (Usage, Usage) {
    let rollout = &recipe.rollout;
    let format = agent::format(rollout.format);
    let (turns, reply) = (
        u64::from(rollout.max_turns),
        u64::from(rollout.sampling.max_tokens),
    );
    // Output is limited in characters of at most four bytes; 1024 covers notices and the template.
    let observation = 4 * recipe.interpreter.limits.output_chars as u64 + 1024;
    let observed = format.max_cells() as u64 * observation;
    let low = Usage {
        prompt_tokens: task.initial / BYTES_PER_TOKEN,
        completion_tokens: 1,
    };
    let grown = turns * turns.saturating_sub(1) / 2;
    let high = Usage {
        prompt_tokens: turns * task.initial + grown * (reply + observed),
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
    /// An empty estimate for the named models.
    pub fn of(recipe: &Recipe, teacher: String) -> Self {
        Self {
            teacher,
            attempts: 0,
            done: 0,
            calls: Range::default(),
            prompt_tokens: Range::default(),
            completion_tokens: Range::default(),
            micro_usd: Some(Range::default()),
            budget: budget(recipe),
            judge: None,
        }
    }

    /// Adds calls to one of these models, with their minimum and maximum token usage.
    pub fn charge(&mut self, models: &[&ModelChoice], calls: Range, low: Usage, high: Usage) {
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

    /// Adds one judgment of an attempt at the task; `sure` if it is made in any case.
    fn add_judgment(&mut self, judge: &JudgeChoice, task: &TaskSize<'_>, sure: bool) {
        let low = Usage {
            prompt_tokens: task.query as u64 / BYTES_PER_TOKEN,
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
        let high = judge::max_usage(task.query, judge.sees);
        self.charge(&[&judge.teacher], calls, low, high);
    }

    /// Adds an attempt by one of these models; `sure` if it is made regardless of other outcomes.
    fn add(&mut self, recipe: &Recipe, choices: &[&ModelChoice], task: &TaskSize<'_>, sure: bool) {
        let (mut low, mut high) = bounds(recipe, task);
        let free = |choice: &&ModelChoice| matches!(choice, ModelChoice::Expert { .. });
        if choices.iter().all(free) {
            high = Usage::default();
        }
        if !sure || high == Usage::default() {
            low = Usage::default();
        }
        self.attempts += 1;
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
        writeln!(
            f,
            "attempts left      {} ({} done)",
            self.attempts, self.done
        )?;
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
