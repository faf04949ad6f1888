//! The HTML pages: an index and one page per task, or several if the task has many attempts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use minijinja::{Environment, Value, context};
use pybench_types::trajectory::Trajectory;
use serde::Serialize;

use super::leaderboard::leaderboards;
use super::markdown::cost;
use super::notebook::notebook;
use super::plots::{DuelCounts, RatePoint, duels, rates, turns};
use super::{
    ReportData, ReportError, Titles, over_suites, render, templates, training_set, value,
    write_file,
};
use crate::record::{Attempt, Duel, Outcome, Score};
use crate::stats::{AgentSummary, Comparison, Measure};
use pybench_profile::preview::{Shown, Store};
use pybench_types::text::cut;
use pybench_types::text::{count, line, percent, size, slug, visible};

/// Maximum number of attempts per page.
const PER_PAGE: usize = 6;
/// Maximum number of output files shown per attempt.
const MAX_OUTPUTS: usize = 20;
/// Maximum number of messages, and of characters per message; the notebook shows all of them.
const MAX_MESSAGES: usize = 24;
const MAX_MESSAGE: usize = 4_000;
/// Maximum size of a trajectory file, in bytes.
const MAX_TRAJECTORY: u64 = 32 << 20;
/// Maximum length of a prompt, in characters.
const MAX_PROMPT: usize = 20_000;

/// A plot on the index page.
#[derive(Serialize)]
pub(super) struct Plot {
    src: String,
    title: String,
}

/// Writes all plots.
pub(super) fn plots(data: &ReportData<'_>, out: &Path) -> Result<Vec<Plot>, ReportError> {
    let mut plots = Vec::new();
    let mut add = |name: String, title: String, svg: String| {
        let src = format!("plots/{name}.svg");
        write_file(out, &src, &svg)?;
        plots.push(Plot { src, title });
        Ok::<_, ReportError>(())
    };
    for suite in data.suites() {
        let name = slug(suite);
        for measure in Measure::ALL {
            let points: Vec<_> = data
                .suite_summaries(suite)
                .filter_map(|s| point(s, measure))
                .collect();
            if !points.is_empty() {
                let title = format!("{}: pass rate, {}", line(suite), measure.name());
                add(
                    format!("{name}-{}", measure.name()),
                    title.clone(),
                    rates(&title, &points),
                )?;
            }
        }
        let points: Vec<_> = data.suite_summaries(suite).filter_map(turn_point).collect();
        if !points.is_empty() {
            let title = format!("{}: turns", line(suite));
            add(
                format!("{name}-turns"),
                title.clone(),
                turns(&title, &points),
            )?;
        }
        let rows: Vec<_> = data.suite_summaries(suite).flat_map(shares).collect();
        if !rows.is_empty() {
            let title = format!("{}: win / tie / lose", line(suite));
            add(format!("{name}-duels"), title.clone(), duels(&title, &rows))?;
        }
    }
    Ok(plots)
}

fn point(summary: &AgentSummary, measure: Measure) -> Option<RatePoint> {
    let measured = summary.measure(measure)?;
    Some(RatePoint {
        label: summary.agent.clone(),
        value: measured.overall.rate,
        interval: Some(measured.overall.interval),
    })
}

fn turn_point(summary: &AgentSummary) -> Option<RatePoint> {
    Some(RatePoint {
        label: summary.agent.clone(),
        value: summary.turns?.plain,
        interval: None,
    })
}

fn shares(summary: &AgentSummary) -> Vec<DuelCounts> {
    let share = |(other, d): (&String, &crate::stats::Duels)| DuelCounts {
        label: format!("{} : {other}", summary.agent),
        counts: [d.win, d.tie, d.lose],
    };
    summary.duels.iter().map(share).collect()
}

/// A pass or fail mark.
#[derive(Serialize)]
struct Mark {
    class: &'static str,
    text: String,
}

impl Mark {
    fn of(passed: Option<bool>) -> Self {
        let (class, text) = match passed {
            Some(true) => ("pass", "pass"),
            Some(false) => ("fail", "fail"),
            None => ("none", "–"),
        };
        Self {
            class,
            text: text.to_owned(),
        }
    }
}

/// Writes the pages.
pub(super) struct PageWriter<'a> {
    data: &'a ReportData<'a>,
    store: Store<'a>,
    out: &'a Path,
    environment: Environment<'static>,
    /// Attempts grouped by task, in the order of the records.
    tasks: Vec<Vec<&'a Attempt>>,
}

impl<'a> PageWriter<'a> {
    pub(super) fn new(
        data: &'a ReportData<'a>,
        store: Store<'a>,
        out: &'a Path,
    ) -> Result<Self, ReportError> {
        let attempts = &data.evaluation.attempts;
        let same = |a: &Attempt, b: &Attempt| (&a.suite, &a.task) == (&b.suite, &b.task);
        let tasks = attempts.chunk_by(same).map(|task| task.iter().collect());
        Ok(Self {
            data,
            store,
            out,
            environment: templates()?,
            tasks: tasks.collect(),
        })
    }

    pub(super) fn write(mut self, plots: &[Plot]) -> Result<(), ReportError> {
        write_file(self.out, "index.html", &self.index(plots)?)?;
        for task in std::mem::take(&mut self.tasks) {
            self.task(&task)?;
        }
        Ok(())
    }

    fn index(&self, plots: &[Plot]) -> Result<String, ReportError> {
        let fingerprint = &self.data.evaluation.fingerprint;
        let limits = fingerprint.limits.iter();
        let limits: Vec<_> = limits
            .map(|(k, v)| context! { name => line(k), value => v })
            .collect();
        let agents = fingerprint.agents.iter().map(|(label, agent)| {
            let sampling = agent.sampling.as_ref().map_or_else(String::new, |s| {
                format!(
                    " Temperature {}, top_p {}, {} tokens per reply.",
                    s.temperature, s.top_p, s.max_tokens
                )
            });
            context! { label => line(label), about => format!("{}{sampling}", line(&agent.about)) }
        });
        let benchmarks = fingerprint.suites.iter().map(|(name, source)| {
            let notes = source.notes.iter().map(|note| line(note));
            context! {
                name => line(name), repository => line(&source.repository), commit => line(&source.commit),
                license => line(&source.license), notes => notes.collect::<Vec<_>>(),
            }
        });
        let summaries = &self.data.summaries;
        let (comparisons, titles) = (self.data.comparisons.iter(), &self.data.titles);
        let context = context! {
            title => format!("pybench: {}", line(&fingerprint.task_set)),
            up => "",
            fingerprint => context! {
                task_set => line(&fingerprint.task_set), tasks => fingerprint.tasks.as_str(),
                checker => line(&fingerprint.checker), environment => line(&fingerprint.environment),
                prompts => line(&fingerprint.prompts), limits => limits,
            },
            warnings => value(&self.data.warnings),
            boards => value(&leaderboards(self.data)),
            over_suites => over_suites::for_page(self.data),
            training_set => training_set::for_page(self.data),
            agents => agents.collect::<Vec<_>>(),
            benchmarks => benchmarks.collect::<Vec<_>>(),
            counts => summaries.iter().map(|s| self.counts(s)).collect::<Vec<_>>(),
            missing => summaries.iter().flat_map(missing).collect::<Vec<_>>(),
            at_k => summaries.iter().flat_map(at_k).collect::<Vec<_>>(),
            comparisons => comparisons.map(|c| pair(c, titles)).collect::<Vec<_>>(),
            plots => value(plots),
            suites => self.suites(),
        };
        render(&self.environment, "index.html", context)
    }

    fn counts(&self, s: &AgentSummary) -> Value {
        let agent = self.data.evaluation.fingerprint.agents.get(&s.agent);
        context! {
            agent => line(&s.agent), about => agent.map(|a| line(&a.about)), suite => line(&s.suite),
            tasks => s.tasks, not_run => s.not_run, attempts => s.attempts, ran => s.ran,
            infrastructure => s.infrastructure, tokens_in => count(s.tokens_in),
            tokens_out => count(s.tokens_out), cost => cost(s),
        }
    }

    /// The list of tasks with a mark for each agent.
    fn suites(&self) -> Vec<Value> {
        let mut suites: BTreeMap<&str, (BTreeSet<&str>, Vec<&Vec<&Attempt>>)> = BTreeMap::new();
        for task in &self.tasks {
            if let Some(first) = task.first() {
                let suite = suites.entry(&first.suite).or_default();
                suite.0.extend(task.iter().map(|a| &*a.agent));
                suite.1.push(task);
            }
        }
        let suite = |(name, (agents, tasks)): (&str, (BTreeSet<&str>, Vec<&Vec<&Attempt>>))| {
            let titles = &self.data.titles;
            let rows = tasks.iter();
            let rows = rows.filter_map(|task| task_row(task, &agents, titles));
            context! {
                name => line(name),
                agents => agents.iter().map(|a| line(a)).collect::<Vec<_>>(),
                tasks => rows.collect::<Vec<_>>(),
            }
        };
        suites.into_iter().map(suite).collect()
    }

    fn task(&mut self, attempts: &[&Attempt]) -> Result<(), ReportError> {
        let Some(first) = attempts.first() else {
            return Ok(());
        };
        let name = page_name(&first.suite, &first.task);
        let chunks: Vec<_> = attempts.chunks(PER_PAGE).collect();
        let file = |i: usize| match i {
            0 => format!("{name}.html"),
            i => format!("{name}-{}.html", i + 1),
        };
        let links = (0..chunks.len()).filter(|_| chunks.len() > 1);
        let link = |i| {
            let (from, to) = (i * PER_PAGE + 1, attempts.len().min((i + 1) * PER_PAGE));
            context! { src => file(i), text => format!("attempts {from}–{to}") }
        };
        let links: Vec<_> = links.map(link).collect();
        let inputs = first.inputs.iter();
        let inputs: Vec<_> = inputs
            .map(|f| context! { path => line(&f.path), size => size(f.size) })
            .collect();
        for (i, chunk) in chunks.iter().enumerate() {
            let views = chunk
                .iter()
                .map(|a| self.attempt(a))
                .collect::<Result<Vec<_>, _>>()?;
            let context = context! {
                title => format!("{}, task {}", line(&first.suite), line(&first.task)),
                keyword => first.keyword.as_deref().map(line),
                up => "../",
                pages => links.clone(),
                category => line(&first.category),
                headline => first.headline.reason.as_deref().filter(|_| !first.headline.counts).map(line),
                prompt => visible(&cut(&first.prompt, MAX_PROMPT)),
                inputs => inputs.clone(),
                attempts => views,
            };
            let page = render(&self.environment, "task.html", context)?;
            write_file(self.out, &format!("tasks/{}", file(i)), &page)?;
        }
        Ok(())
    }

    fn attempt(&mut self, attempt: &Attempt) -> Result<Value, ReportError> {
        let trajectory = self.trajectory(attempt);
        let (notebook, messages) = match &trajectory {
            Ok(Some(trajectory)) => (
                Some(self.notebook(attempt, trajectory)?),
                messages(trajectory),
            ),
            _ => (None, Vec::new()),
        };
        let outputs = attempt.outputs.iter().take(MAX_OUTPUTS);
        let outputs: Vec<_> = outputs
            .map(|f| context! { path => line(&f.path), size => size(f.size), shown => value(&clean(self.store.show(f))) })
            .collect();
        let scores = Score::ALL.iter().map(|score| {
            let mark = Mark::of(attempt.score(*score));
            context! { name => score.name(), class => mark.class, text => mark.text }
        });
        Ok(context! {
            agent => line(&attempt.agent), seed => attempt.seed,
            scores => scores.collect::<Vec<_>>(),
            problem => problem(attempt, trajectory.err()),
            judge => judge(attempt),
            checks => attempt.checks.iter().map(check).collect::<Vec<_>>(),
            turns => attempt.turns, max_turns => attempt.max_turns,
            tokens => count(attempt.tokens_in.saturating_add(attempt.tokens_out)),
            messages => messages, outputs => outputs,
            more_outputs => attempt.outputs.len().saturating_sub(MAX_OUTPUTS),
            notebook => notebook,
        })
    }

    /// Reads the trajectory, if there is one. The error is a sentence for the page.
    fn trajectory(&self, attempt: &Attempt) -> Result<Option<Trajectory>, String> {
        let Some(file) = &attempt.trajectory else {
            return Ok(None);
        };
        let bytes = self.store.read_verified(file, MAX_TRAJECTORY);
        let bytes = bytes.map_err(|reason| format!("The trajectory is not shown: {reason}."))?;
        let read = serde_json::from_slice(&bytes);
        read.map(Some)
            .map_err(|e| format!("The trajectory could not be read: {e}."))
    }

    fn notebook(&self, attempt: &Attempt, trajectory: &Trajectory) -> Result<String, ReportError> {
        let page = page_name(&attempt.suite, &attempt.task);
        let path = format!(
            "notebooks/{page}-{}-{}.ipynb",
            slug(&attempt.agent),
            attempt.seed
        );
        write_file(self.out, &path, &notebook(attempt, trajectory))?;
        Ok(path)
    }
}

fn page_name(suite: &str, task: &str) -> String {
    format!("{}-{}", slug(suite), slug(task))
}

/// The mark of one agent on one task: the first of strict, fixed and upstream that has a value.
fn mark(attempts: &[&&Attempt]) -> Mark {
    let says = |measure: Measure| {
        let values: Vec<_> = attempts.iter().filter_map(|a| measure.value(a)).collect();
        let passed = values.iter().filter(|v| **v).count();
        match (passed, values.len()) {
            (_, 0) => None,
            (passed, 1) => Some(Mark::of(Some(passed == 1))),
            (passed, of) => Some(Mark {
                class: if passed == of {
                    "pass"
                } else if passed == 0 {
                    "fail"
                } else {
                    ""
                },
                text: format!("{passed} of {of}"),
            }),
        }
    };
    let order = [Measure::Strict, Measure::Fixed, Measure::Upstream];
    let outcome = || match attempts.first().map(|a| &a.outcome) {
        Some(Outcome::NotRun { .. }) => "not run",
        Some(Outcome::Infrastructure { .. }) => "infrastructure",
        _ => "–",
    };
    let none = || Mark {
        class: "none",
        text: outcome().to_owned(),
    };
    order.into_iter().find_map(says).unwrap_or_else(none)
}

fn task_row(task: &[&Attempt], agents: &BTreeSet<&str>, titles: &Titles<'_>) -> Option<Value> {
    let first = task.first()?;
    let marks = agents.iter().map(|agent| {
        let own: Vec<_> = task.iter().filter(|a| a.agent == *agent).collect();
        mark(&own)
    });
    Some(context! {
        title => titles.of(&first.suite, &first.task), category => line(&first.category),
        page => format!("tasks/{}.html", page_name(&first.suite, &first.task)),
        marks => value(&marks.collect::<Vec<_>>()),
    })
}

fn missing(s: &AgentSummary) -> Vec<Value> {
    let some = s.measures.iter().filter(|m| m.bounds.missing > 0);
    let row = |m: &crate::stats::MeasureSummary| {
        context! {
            agent => line(&s.agent), suite => line(&s.suite), measure => m.measure.name(),
            missing => m.bounds.missing, rate => percent(m.overall.rate),
            worst => percent(m.bounds.worst), best => percent(m.bounds.best),
        }
    };
    some.map(row).collect()
}

fn at_k(s: &AgentSummary) -> Vec<Value> {
    let several = s.measures.iter().filter(|m| m.at_k.len() > 1);
    let rows = several.flat_map(|m| m.at_k.iter().map(move |k| (m.measure, k)));
    let row = |(measure, k): (Measure, &crate::stats::AtK)| {
        context! {
            agent => line(&s.agent), suite => line(&s.suite), measure => measure.name(),
            k => k.k, any => percent(k.any), all => percent(k.all),
        }
    };
    rows.map(row).collect()
}

fn pair(c: &Comparison, titles: &Titles<'_>) -> Value {
    let flips = c.flips.iter().map(|f| {
        let better = if f.a > f.b { &c.a } else { &c.b };
        let page = format!("tasks/{}.html", page_name(&c.suite, &f.task));
        context! { task => titles.of(&c.suite, &f.task), better => line(better), page => page }
    });
    let verdict = match (c.tied, c.difference > 0.0) {
        (true, _) => "statistically tied".to_owned(),
        (false, true) => format!("{} is better", line(&c.a)),
        (false, false) => format!("{} is better", line(&c.b)),
    };
    context! {
        a => line(&c.a), b => line(&c.b), suite => line(&c.suite), measure => c.measure.name(),
        tasks => c.tasks, a_rate => percent(c.a_rate), b_rate => percent(c.b_rate),
        difference => percent(c.difference),
        interval => format!("{} to {}", percent(c.interval.low), percent(c.interval.high)),
        a_better => c.a_better, b_better => c.b_better,
        p => format!("{:.4}", c.p), p_holm => format!("{:.4}", c.p_holm),
        verdict => verdict, flips => flips.collect::<Vec<_>>(),
    }
}

/// Explains why an attempt has no score, or why its trajectory is not shown.
fn problem(attempt: &Attempt, trajectory: Option<String>) -> Option<String> {
    match &attempt.outcome {
        Outcome::NotRun { reason } => Some(format!("Not run: {}", visible(reason))),
        Outcome::Infrastructure { failure } => {
            Some(format!("Infrastructure failure: {}", visible(failure)))
        }
        Outcome::Ran => trajectory,
    }
}

fn judge(attempt: &Attempt) -> Option<Value> {
    let judgment = attempt.judgment.as_ref()?;
    let mark = Mark::of(judgment.passed);
    let text = match judgment.passed {
        None => "abstained".to_owned(),
        Some(_) => mark.text,
    };
    let duels = judgment.duels.iter().map(|(other, duel)| {
        let text = match duel {
            Duel::Win => "win",
            Duel::Tie => "tie",
            Duel::Lose => "lose",
            Duel::Abstained => "abstained",
        };
        context! { other => line(other), text => text }
    });
    Some(context! {
        who => format!("Judge {}", line(&judgment.judge)), class => mark.class, text => text,
        reason => visible(&judgment.reason), duels => duels.collect::<Vec<_>>(),
    })
}

fn check(check: &crate::record::Check) -> Value {
    let mark = Mark::of(Some(check.passed));
    context! {
        score => check.score.name(), name => visible(&check.name), class => mark.class,
        text => mark.text, expected => visible(&check.expected), actual => visible(&check.actual),
    }
}

fn messages(trajectory: &Trajectory) -> Vec<Value> {
    let shown = trajectory.messages.iter().take(MAX_MESSAGES);
    let message = |m: &pybench_types::trajectory::Message| {
        context! { role => m.role.name(), text => visible(&cut(&m.content, MAX_MESSAGE)) }
    };
    let mut messages: Vec<_> = shown.map(message).collect();
    let more = trajectory.messages.len().saturating_sub(MAX_MESSAGES);
    if more > 0 {
        messages.push(
            context! { role => "…", text => format!("{more} more messages are in the notebook") },
        );
    }
    messages
}

/// Replaces invisible characters in texts of files. HTML is left unchanged: the template escapes it and
/// shows it in a sandboxed frame.
fn clean(shown: Shown) -> Shown {
    match shown {
        Shown::Text { text, note } => Shown::Text {
            text: visible(&text),
            note,
        },
        Shown::Nothing { reason } => Shown::Nothing {
            reason: visible(&reason),
        },
        other => other,
    }
}
