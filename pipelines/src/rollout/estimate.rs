//! What a run will cost, as bounds, before a call is made.

use std::collections::HashSet;
use std::fmt;

use pybench::agent;
use pybench::id::Digest;
use pybench::llm::{Price, token_bound};
use pybench::run::{Recipe, RunContext, RunError, TeacherChoice, UnitState};
use pybench::task::{Category, FileKind, Task, TaskFile};
use pybench::trajectory::{Trajectory, Usage};

use super::{STAGE, money};
use crate::embedded;
use crate::eval::bare::bare_task;

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
    /// Who judges trajectories besides, one call each, which none of these figures holds.
    pub judge: Option<String>,
}

/// Bounds on what is left of that run.
pub(super) fn of(context: &RunContext, tasks: &[Task]) -> Result<Estimate, RunError> {
    let recipe = &context.recipe;
    let states = context.folder.journal().states(STAGE)?.into_iter();
    let ended: HashSet<String> = states
        .filter(|(_, state)| *state == UnitState::Done)
        .map(|(item, _)| item)
        .collect();
    Ok(sum(recipe, tasks, |item| ended.contains(item)))
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
    let least = sum(recipe, &tasks(unwritten(0)), |_| false);
    let most = sum(recipe, &tasks(unwritten(longest)), |_| false);
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

fn sum(recipe: &Recipe, tasks: &[Task], ended: impl Fn(&str) -> bool) -> Estimate {
    let names = recipe.teachers().into_iter();
    let names: Vec<_> = names.map(|(_, choice)| teacher_name(choice)).collect();
    let mut estimate = Estimate::of(recipe, names.join(", "));
    estimate.judge = recipe
        .grade
        .judge
        .as_ref()
        .map(|j| teacher_name(&j.teacher));
    // A goal is reached at the earliest when every try is accepted.
    let mut surely = recipe.goal.accept.unwrap_or(usize::MAX);
    for task in tasks {
        for (rung, choices) in rungs(recipe).iter().enumerate() {
            for sample in 0..recipe.rollout.samples {
                let made =
                    |choice: &&TeacherChoice| ended(try_id(recipe, choice, task, sample).as_str());
                if choices.iter().any(made) {
                    estimate.done += 1;
                    surely = surely.saturating_sub(1);
                    continue;
                }
                let first = recipe.goal.enough == 0 || sample < recipe.goal.enough;
                let sure = rung == 0 && first && surely > 0;
                surely -= usize::from(sure);
                estimate.add(recipe, choices, task, sure);
            }
        }
    }
    estimate
}

/// Who may be asked for a try, from the first to the strongest: one of these.
fn rungs(recipe: &Recipe) -> Vec<Vec<&TeacherChoice>> {
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

    /// Calls of one model, with what they read and write at least and at most.
    pub(crate) fn charge(&mut self, model: &TeacherChoice, calls: Range, low: Usage, high: Usage) {
        self.calls.add(calls.from, calls.to);
        self.prompt_tokens
            .add(low.prompt_tokens, high.prompt_tokens);
        self.completion_tokens
            .add(low.completion_tokens, high.completion_tokens);
        match (&mut self.micro_usd, money::price(model)) {
            (Some(money), Some(price)) => money.add(price.micro_usd(low), price.micro_usd(high)),
            (money, _) => *money = None,
        }
    }

    /// A try by one of these; `sure` when it is made whatever comes of the others.
    fn add(&mut self, recipe: &Recipe, choices: &[&TeacherChoice], task: &Task, sure: bool) {
        let (mut low, high) = bounds(recipe, task);
        if !sure {
            low = Usage::default();
        }
        self.tries += 1;
        self.calls
            .add(u64::from(sure), recipe.rollout.max_turns.into());
        let free = |choice: &&TeacherChoice| matches!(choice, TeacherChoice::Expert { .. });
        if choices.iter().all(free) {
            return;
        }
        self.prompt_tokens
            .add(low.prompt_tokens, high.prompt_tokens);
        self.completion_tokens
            .add(low.completion_tokens, high.completion_tokens);
        let prices: Option<Vec<Price>> = choices.iter().map(|c| money::price(c)).collect();
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
            Some(judge) => {
                let calls = self.tries;
                writeln!(
                    f,
                    "judge              {judge}: at most {calls} calls more, not in these figures"
                )
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench::task::{Language, TaskOrigin};

    fn task(query: &str) -> Task {
        Task {
            id: Digest::of_bytes(query.as_bytes()),
            category: Category::Math,
            subcategory: String::new(),
            keyword: String::new(),
            language: Language::En,
            query: query.to_owned(),
            files: vec![],
            held_out: vec![],
            outputs: vec![],
            reference: String::new(),
            checks: vec![],
            origin: TaskOrigin::Library {
                template: String::new(),
                slots: Default::default(),
                phrasing: 0,
            },
        }
    }

    fn recipe(teacher: &str) -> Recipe {
        let text = format!(
            "name = \"t\"\ncrawl = {{ sources = [] }}\nquery = {{ tasks = 1 }}\nteacher = {teacher}\n\
             rollout = {{ samples = 2, max_turns = 3, sampling = {{ temperature = 0.0, top_p = 1.0, max_tokens = 100 }} }}"
        );
        toml::from_str(&text).unwrap()
    }

    const PAID: &str = "{ kind = \"openai\", model = \"m\", base_url = \"http://h\", price = { prompt = 1.0, completion = 2.0 } }";

    #[test]
    fn bounds_enclose_what_a_try_can_cost() {
        let (recipe, tasks) = (recipe(PAID), [task("q"), task("longer query")]);
        let all = sum(&recipe, &tasks, |_| false);
        assert_eq!((all.tries, all.calls), (4, Range { from: 4, to: 12 }));
        assert_eq!(all.completion_tokens, Range { from: 4, to: 1200 });
        let opening: u64 = tasks
            .iter()
            .map(|t| token_bound(&agent::format(recipe.rollout.format).opening(t)))
            .sum();
        let grown = 4 * 3 * (100 + 4 * 8000 + 1024);
        assert_eq!(all.prompt_tokens.to, 2 * 3 * opening + grown);
        let money = all.micro_usd.unwrap();
        assert_eq!(money.to, all.prompt_tokens.to + 2400);
        assert!(money.from > 0 && money.from < money.to);
    }

    #[test]
    fn what_is_done_is_not_counted_again() {
        let (recipe, tasks) = (recipe(PAID), [task("q")]);
        let first = try_id(&recipe, &recipe.teacher, &tasks[0], 0);
        let rest = sum(&recipe, &tasks, |item| item == first.as_str());
        assert_eq!((rest.done, rest.tries, rest.calls.to), (1, 1, 3));
    }

    #[test]
    fn a_goal_lowers_the_least_and_stronger_teachers_raise_the_most() {
        let mut recipe = recipe(PAID);
        let tasks = [task("q"), task("longer query")];
        let plain = sum(&recipe, &tasks, |_| false);
        recipe.goal.accept = Some(1);
        let goal = sum(&recipe, &tasks, |_| false);
        assert_eq!((goal.calls.from, goal.calls.to), (1, plain.calls.to));
        let text = PAID.replace("\"m\"", "\"n\"");
        let text = text.replace("prompt = 1.0", "prompt = 10.0");
        recipe.stronger = vec![
            toml::from_str::<toml::Table>(&format!("t = {text}")).unwrap()["t"]
                .clone()
                .try_into()
                .unwrap(),
        ];
        let both = sum(&recipe, &tasks, |_| false);
        assert_eq!(both.tries, 2 * plain.tries);
        assert!(both.micro_usd.unwrap().to > 2 * plain.micro_usd.unwrap().to);
        assert_eq!(both.teacher, "openai:m, openai:n");
    }

    #[test]
    fn tasks_that_are_not_written_yet_are_bounded_too() {
        let mut recipe = recipe(PAID);
        recipe.query.tasks = 2;
        let ahead = ahead(&recipe, 1000);
        let written = sum(&recipe, &[task("q"), task(&"long".repeat(200))], |_| false);
        assert_eq!((ahead.tries, ahead.calls), (written.tries, written.calls));
        assert!(ahead.prompt_tokens.from <= written.prompt_tokens.from);
        assert!(ahead.prompt_tokens.to > written.prompt_tokens.to);
        let (ahead, written) = (ahead.micro_usd.unwrap(), written.micro_usd.unwrap());
        assert!(ahead.from <= written.from && ahead.to > written.to);
    }

    #[test]
    fn parallel_calls_may_show_more_and_a_judge_is_named() {
        let mut recipe = recipe(PAID);
        let one = sum(&recipe, &[task("q")], |_| false);
        recipe.rollout.format = pybench::run::FormatChoice::Tools;
        let many = sum(&recipe, &[task("q")], |_| false);
        assert!(many.prompt_tokens.to > 10 * one.prompt_tokens.to);
        assert!(!many.to_string().contains("judge"));
        let text = format!("t = {}", PAID.replace("\"m\"", "\"j\""));
        let table: toml::Table = toml::from_str(&text).unwrap();
        recipe.grade.judge = Some(pybench::run::JudgeChoice {
            teacher: table["t"].clone().try_into().unwrap(),
            sees: false,
        });
        let judged = sum(&recipe, &[task("q")], |_| false).to_string();
        assert!(
            judged.contains("openai:j: at most 2 calls more"),
            "{judged}"
        );
    }

    #[test]
    fn the_expert_costs_nothing() {
        let estimate = sum(&recipe("{ kind = \"expert\" }"), &[task("q")], |_| false);
        assert_eq!(estimate.micro_usd, Some(Range::default()));
        assert!(
            estimate
                .to_string()
                .contains("US dollars         0.00 to 0.00")
        );
    }
}
