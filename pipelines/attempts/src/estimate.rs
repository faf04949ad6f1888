//! Estimates what a run will cost before any call is made: what to expect of each quantity, and a lower and an upper
//! bound.

use std::collections::HashSet;
use std::fmt;

use pybench_agent::{self as agent, Format};
use pybench_interpreter::Limits;
use pybench_llm::{OpenAi, token_bound};
use pybench_run::Price;
use pybench_run::{
    Budget, JudgeChoice, ModelChoice, ProposedChecks, Recipe, Rollout, RunContext, RunError,
    UnitState,
};
use pybench_types::id::Digest;
use pybench_types::task::Task;
use pybench_types::text::{count, dollars};
use pybench_types::trajectory::{Trajectory, Usage};

use pybench_run::artifacts::stage;

use crate::money;
use pybench_checks::judge;
use pybench_embedded_client as embedded;

/// Bytes per token for the lower bounds. The upper bounds assume one token per byte.
pub const BYTES_PER_TOKEN: u64 = 6;
/// Maximum length of a file name, in bytes.
const MAX_NAME: usize = 255;

/// Expected length of a trajectory: the means of PyInstruct as published, about 4 turns and 2,017 tokens. Of these, the
/// system prompt and the query are about 400, and the rest is spread over the turns.
const EXPECTED_TURNS: u64 = 4;
const EXPECTED_REPLY: u64 = 250;
const EXPECTED_OBSERVATION: u64 = 150;
/// Bytes per token for what is expected.
pub const EXPECTED_BYTES_PER_TOKEN: u64 = 4;

/// What to expect, between a lower and an upper bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Lower bound: every task is solved in one short reply.
    pub from: u64,
    /// Every first attempt is accepted, and replies have a typical length.
    pub expected: u64,
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
        tasks.iter().map(|task| Self::of(format, task)).collect()
    }

    /// A task in this message format.
    pub fn of(format: &dyn Format, task: &'a Task) -> Self {
        Self {
            id: Some(&task.id),
            query: task.query.len(),
            initial: token_bound(&format.initial_messages(task)),
        }
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
        to: most.to,
        ..least
    };
    Estimate {
        // A query is usually much shorter than it may be.
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
    let mut estimate = Estimate::of(&recipe.budget, names.join(", "));
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
                let is_paid = sure && sample >= reused_samples;
                let usage = usage_at_level(recipe, (level, choices.as_slice()), task);
                let usage = usage.unless_sure(is_paid);
                estimate.attempts += 1;
                estimate.charge(choices, calls_of_attempt(&recipe.rollout, is_paid), usage);
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
        ModelChoice::Correction { .. } => agent::CORRECTION.to_owned(),
        ModelChoice::Openai { model, .. } => OpenAi::name_of(model),
        ModelChoice::Checkpoint {
            model,
            dtype,
            engine,
        } => ModelChoice::checkpoint_name(model, *dtype, *engine),
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

/// The token usage of calls: minimum, expected and maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageRange {
    pub low: Usage,
    pub expected: Usage,
    pub high: Usage,
}

impl UsageRange {
    /// The usage of calls that may not be made at all, and are not expected.
    pub fn unless_sure(self, sure: bool) -> Self {
        match sure {
            true => self,
            false => Self {
                high: self.high,
                ..Self::default()
            },
        }
    }

    /// The usage of these calls and others.
    pub fn plus(self, other: Self) -> Self {
        let both = |a: Usage, b: Usage| Usage {
            prompt_tokens: a.prompt_tokens + b.prompt_tokens,
            completion_tokens: a.completion_tokens + b.completion_tokens,
        };
        Self {
            low: both(self.low, other.low),
            expected: both(self.expected, other.expected),
            high: both(self.high, other.high),
        }
    }

    /// The usage of so many of these calls.
    pub fn times(self, count: u64) -> Self {
        let all = |usage: Usage| Usage {
            prompt_tokens: count * usage.prompt_tokens,
            completion_tokens: count * usage.completion_tokens,
        };
        Self {
            low: all(self.low),
            expected: all(self.expected),
            high: all(self.high),
        }
    }
}

/// Number of turns that an attempt is expected to take.
fn expected_turns(rollout: &Rollout) -> u64 {
    u64::from(rollout.max_turns).min(EXPECTED_TURNS)
}

/// Calls of one attempt; `sure` if it is made in any case.
pub fn calls_of_attempt(rollout: &Rollout, sure: bool) -> Range {
    let certain = u64::from(sure);
    Range {
        from: certain,
        expected: certain * expected_turns(rollout),
        to: rollout.max_turns.into(),
    }
}

/// Token usage of one attempt of a recipe.
pub fn usage_of_attempt(recipe: &Recipe, task: &TaskSize<'_>) -> UsageRange {
    let format = agent::format(recipe.rollout.format);
    usage_with(&recipe.rollout, format, &recipe.interpreter.limits, task)
}

/// Token usage of one attempt with these settings.
pub fn usage_with(
    rollout: &Rollout,
    format: &dyn Format,
    limits: &Limits,
    task: &TaskSize<'_>,
) -> UsageRange {
    let (turns, reply) = (
        u64::from(rollout.max_turns),
        u64::from(rollout.sampling.max_tokens),
    );
    let turn = tokens_of_turn(rollout, format, limits);
    let low = Usage {
        prompt_tokens: task.initial / BYTES_PER_TOKEN,
        completion_tokens: 1,
    };
    let high = Usage {
        prompt_tokens: turns * task.initial + growth(turns) * turn.to,
        completion_tokens: turns * reply,
    };
    let (turns, reply) = (expected_turns(rollout), reply.min(EXPECTED_REPLY));
    let expected = Usage {
        prompt_tokens: turns * task.initial / EXPECTED_BYTES_PER_TOKEN
            + growth(turns) * turn.expected,
        completion_tokens: turns * reply,
    };
    UsageRange {
        low,
        expected,
        high,
    }
}

/// Tokens of a reply with its observations.
fn tokens_of_turn(rollout: &Rollout, format: &dyn Format, limits: &Limits) -> Range {
    let reply = u64::from(rollout.sampling.max_tokens);
    // Output is limited in characters of at most four bytes; 1024 covers notices and the template.
    let observation = 4 * limits.output_chars as u64 + 1024;
    Range {
        from: 1,
        expected: reply.min(EXPECTED_REPLY) + EXPECTED_OBSERVATION,
        to: reply + format.max_cells() as u64 * observation,
    }
}

/// What the prompts of a correction by a model have besides those of an attempt: the note on the student's attempt, and
/// the turns of the student that are kept, which may be as many and as long as its own.
fn usage_of_context(recipe: &Recipe) -> UsageRange {
    let rollout = &recipe.rollout;
    let format = agent::format(rollout.format);
    let turn = tokens_of_turn(rollout, format, &recipe.interpreter.limits);
    let note = agent::MAX_CORRECTION_NOTE as u64;
    let prompts = |turns: u64, context: u64| Usage {
        prompt_tokens: turns * context,
        completion_tokens: 0,
    };
    let (likely, most) = (expected_turns(rollout), u64::from(rollout.max_turns));
    UsageRange {
        low: Usage::default(),
        expected: prompts(
            likely,
            likely * turn.expected + note / EXPECTED_BYTES_PER_TOKEN,
        ),
        high: prompts(most, most * turn.to + note),
    }
}

/// Token usage of one attempt by one of the models of a level.
fn usage_at_level(
    recipe: &Recipe,
    (level, models): (usize, &[&ModelChoice]),
    task: &TaskSize<'_>,
) -> UsageRange {
    if models.iter().all(|model| model.is_script()) {
        return UsageRange::default();
    }
    let attempt = usage_of_attempt(recipe, task);
    match recipe.rollout.corrections && level == 1 {
        true => attempt.plus(usage_of_context(recipe)),
        false => attempt,
    }
}

/// The length of comments that a model makes on each turn of an attempt but the last.
#[derive(Clone, Copy, Debug)]
pub struct CommentSize {
    /// Maximum number of turns of the attempt.
    pub turns: u32,
    /// Bytes that the model reads besides the conversation.
    pub prompt: u64,
    /// Maximum number of tokens of a comment.
    pub reply: u64,
}

/// What comments on one attempt add.
#[derive(Clone, Copy, Debug)]
pub struct Comments {
    /// Calls of the model that comments.
    pub calls: Range,
    /// Its usage.
    pub usage: UsageRange,
    /// What the agent reads of the comments.
    pub read: UsageRange,
}

/// Estimates comments on one attempt with these settings; there may be none.
pub fn comments_on_attempt(
    rollout: &Rollout,
    format: &dyn Format,
    limits: &Limits,
    task: &TaskSize<'_>,
    size: &CommentSize,
) -> Comments {
    let most = Rollout {
        max_turns: rollout.max_turns.min(size.turns),
        ..rollout.clone()
    };
    let (turns, likely) = (u64::from(most.max_turns), expected_turns(&most));
    // Before each turn but the first, the model reads what the agent reads then.
    let all = usage_with(&most, format, limits, task);
    let conversation = |usage: Usage, first: u64| usage.prompt_tokens.saturating_sub(first);
    let comment = size.reply.min(EXPECTED_REPLY);
    let usage = |calls: u64, prompt: u64, conversation: u64, reply: u64| Usage {
        prompt_tokens: calls * prompt + conversation,
        completion_tokens: calls * reply,
    };
    let read = |turns: u64, reply: u64| Usage {
        prompt_tokens: growth(turns) * reply,
        completion_tokens: 0,
    };
    let (calls, likely_calls) = (turns.saturating_sub(1), likely.saturating_sub(1));
    let bytes = EXPECTED_BYTES_PER_TOKEN;
    Comments {
        calls: Range {
            from: 0,
            expected: likely_calls,
            to: calls,
        },
        usage: UsageRange {
            low: Usage::default(),
            expected: usage(
                likely_calls,
                size.prompt / bytes,
                conversation(all.expected, task.initial / bytes) + growth(likely_calls) * comment,
                comment,
            ),
            high: usage(
                calls,
                size.prompt,
                conversation(all.high, task.initial) + growth(calls) * size.reply,
                size.reply,
            ),
        },
        read: UsageRange {
            low: Usage::default(),
            expected: read(likely, comment),
            high: read(turns, size.reply),
        },
    }
}

/// How often an earlier turn is read again, over all turns: each turn reads those before it.
fn growth(turns: u64) -> u64 {
    turns * turns.saturating_sub(1) / 2
}

fn show_budget(budget: &Budget) -> String {
    let parts = [
        budget.usd.map(|usd| dollars((usd * 1e6) as u64)),
        budget
            .tokens
            .map(|tokens| format!("{} tokens", count(tokens))),
        budget.minutes.map(|minutes| format!("{minutes} minutes")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => "none".to_owned(),
        false => parts.join(", "),
    }
}

impl Range {
    /// A call that is made in any case, or perhaps.
    pub fn call(sure: bool) -> Self {
        let certain = u64::from(sure);
        Self {
            from: certain,
            expected: certain,
            to: 1,
        }
    }

    /// The sum of so many of these.
    pub fn times(self, count: u64) -> Self {
        Self {
            from: count * self.from,
            expected: count * self.expected,
            to: count * self.to,
        }
    }

    fn add(&mut self, other: Self) {
        self.from = self.from.saturating_add(other.from);
        self.expected = self.expected.saturating_add(other.expected);
        self.to = self.to.saturating_add(other.to);
    }

    fn show(&self, text: fn(u64) -> String) -> String {
        let Self { from, expected, to } = *self;
        match from == to {
            true => text(to),
            false => format!("about {} ({} to {})", text(expected), text(from), text(to)),
        }
    }
}

impl Estimate {
    /// An empty estimate for the named models.
    pub fn of(budget: &Budget, teacher: String) -> Self {
        Self {
            teacher,
            attempts: 0,
            done: 0,
            calls: Range::default(),
            prompt_tokens: Range::default(),
            completion_tokens: Range::default(),
            micro_usd: Some(Range::default()),
            budget: show_budget(budget),
            judge: None,
        }
    }

    /// Adds calls to one of these models. Of models with different prices, the mean is expected.
    pub fn charge(&mut self, models: &[&ModelChoice], calls: Range, usage: UsageRange) {
        let UsageRange {
            low,
            expected,
            high,
        } = usage;
        let tokens = |of: fn(&Usage) -> u64| Range {
            from: of(&low),
            expected: of(&expected),
            to: of(&high),
        };
        self.calls.add(calls);
        self.prompt_tokens.add(tokens(|usage| usage.prompt_tokens));
        self.completion_tokens
            .add(tokens(|usage| usage.completion_tokens));
        let prices: Option<Vec<Price>> = models.iter().map(|model| money::price(model)).collect();
        let costs = |usage: Usage| {
            let prices = prices.iter().flatten();
            prices.map(move |price| price.micro_usd(usage))
        };
        let expected = costs(expected).sum::<u64>() / models.len().max(1) as u64;
        let (from, to) = (costs(low).min(), costs(high).max());
        match (&mut self.micro_usd, from.zip(to)) {
            (Some(money), Some((from, to))) => money.add(Range { from, expected, to }),
            (money, _) => *money = None,
        }
    }

    /// Adds one judgment of an attempt at the task; `sure` if it is made in any case.
    fn add_judgment(&mut self, judge: &JudgeChoice, task: &TaskSize<'_>, sure: bool) {
        let low = Usage {
            prompt_tokens: task.query as u64 / BYTES_PER_TOKEN,
            completion_tokens: 1,
        };
        // The judge reads a trajectory once and gives a reason.
        let expected = Usage {
            prompt_tokens: EXPECTED_TURNS * (EXPECTED_REPLY + EXPECTED_OBSERVATION),
            completion_tokens: EXPECTED_REPLY,
        };
        let usage = UsageRange {
            low,
            expected,
            high: judge::max_usage(task.query, judge.sees),
        };
        let calls = Range::call(sure);
        if let Some((_, own)) = &mut self.judge {
            own.add(calls);
        }
        self.charge(&[&judge.teacher], calls, usage.unless_sure(sure));
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show(count))
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "model              {}", self.teacher)?;
        writeln!(
            f,
            "attempts left      {} ({} done)",
            count(self.attempts),
            count(self.done)
        )?;
        writeln!(f, "calls              {}", self.calls)?;
        writeln!(f, "prompt tokens      {}", self.prompt_tokens)?;
        writeln!(f, "completion tokens  {}", self.completion_tokens)?;
        match self.micro_usd {
            Some(cost) => writeln!(f, "cost               {}", cost.show(dollars))?,
            None => writeln!(f, "cost               unknown: set `teacher.price`")?,
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
