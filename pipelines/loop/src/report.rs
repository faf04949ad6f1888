//! What a loop has done so far: a table for people and the same as JSON.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use pybench_run::{Recipe, RunContext, RunError};
use pybench_types::held_out::Unseen;
use pybench_types::text::percent;
use serde::{Deserialize, Serialize};

use crate::measure::{Measurement, PassRate};
use crate::round::Played;
use crate::run_name;
use crate::tasks::LoopTasks;

/// File name of the report.
const JSON: &str = "report.json";

/// The rounds of a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) name: String,
    /// Number of held-out tasks.
    pub(crate) held_out: usize,
    /// The student before the first round.
    pub(crate) before: Option<Measurement>,
    pub(crate) rounds: Vec<RoundReport>,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RoundReport {
    pub(crate) round: u32,
    /// Tasks that the round before it has played, too.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) again: usize,
    pub(crate) played: Played,
    /// Tokens with a loss that the round trained; `None` if nothing was trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trained_tokens: Option<u64>,
    /// Tokens that would have a loss, of rows longer than `train.max_seq_len`; `None` if nothing was trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lost_tokens: Option<u64>,
    /// The student after the round; `None` if the loop trains nothing.
    pub(crate) measured: Option<Measurement>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Report {
    pub(crate) fn new(context: &RunContext, tasks: &LoopTasks) -> Self {
        Self {
            name: run_name(context),
            held_out: tasks.held_out.len(),
            before: None,
            rounds: Vec::new(),
        }
    }

    /// Writes `report.md` and `report.json` in the run folder of the loop.
    pub(crate) fn write(&self, context: &RunContext) -> Result<(), RunError> {
        let markdown = format!("# Loop `{}`\n\n```text\n{self}```\n", self.name);
        let json = serde_json::to_string_pretty(self)? + "\n";
        context.folder.write("report.md", markdown.as_bytes())?;
        context.folder.write(JSON, json.as_bytes())?;
        Ok(())
    }
}

/// What `pybench status` says of a loop: its rounds so far. `None` if the folder is another run.
///
/// # Errors
/// The report cannot be read.
pub fn headline(folder: &Path) -> Result<Option<String>, RunError> {
    let recipe = Recipe::load(&folder.join("recipe.toml"), &[]);
    let Ok(Recipe {
        name,
        learning: Some(looped),
        ..
    }) = recipe
    else {
        return Ok(None);
    };
    let head = format!("loop {name} of {} rounds\n\n", looped.rounds);
    Ok(Some(match Report::read(folder)? {
        Some(report) => format!("{head}{report}"),
        None => head + "no round has ended yet: run the same command again to go on\n",
    }))
}

impl fmt::Display for PassRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.rate();
        let (low, high) = (percent(self.low), percent(self.high));
        let (passed, tasks) = (self.passed, self.tasks);
        write!(
            f,
            "{passed} of {tasks}, {} % [{low}, {high}]",
            percent(rate)
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "round  tasks  attempts  solved  corrected  taught  passed of the held-out tasks [95 %]"
        )?;
        let shown = |measured: &Option<Measurement>| {
            measured
                .as_ref()
                .map_or("–".to_owned(), |measured| measured.all.to_string())
        };
        writeln!(
            f,
            "before {:>5}  {:>8}  {:>6}  {:>9}  {:>6}  {}",
            "",
            "",
            "",
            "",
            "",
            shown(&self.before)
        )?;
        for RoundReport {
            round,
            played,
            measured,
            ..
        } in &self.rounds
        {
            writeln!(
                f,
                "{round:>6} {:>5}  {:>8}  {:>6}  {:>9}  {:>6}  {}",
                played.tasks,
                played.attempts,
                played.solved,
                played.corrected,
                played.taught,
                shown(measured)
            )?;
        }
        self.write_sets(f)?;
        self.write_misnamed(f)?;
        self.write_ended_early(f)?;
        self.write_tokens(f)?;
        self.write_lost(f)
    }
}

impl Report {
    /// What was measured, by the name of the round.
    fn measured(&self) -> Vec<(String, &Measurement)> {
        let before = self
            .before
            .iter()
            .map(|before| ("before".to_owned(), before));
        let rounds = self.rounds.iter().filter_map(|round| {
            let measured = round.measured.as_ref()?;
            Some((round.round.to_string(), measured))
        });
        before.chain(rounds).collect()
    }

    /// How often the student copied a name wrongly.
    fn write_misnamed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measured = self.measured();
        let mut counts = measured
            .iter()
            .filter_map(|(round, measured)| Some((round, measured.all.tasks, measured.misnamed?)))
            .peekable();
        if counts.peek().is_some() {
            writeln!(
                f,
                "\nround   held-out attempts in which code failed at the name of a file or column"
            )?;
        }
        for (round, tasks, misnamed) in counts {
            writeln!(f, "{round:>6}  {misnamed} of {tasks}")?;
        }
        Ok(())
    }

    /// How many attempts the rules against hopeless ones ended; nothing if none.
    fn write_ended_early(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measured = self.measured();
        if measured
            .iter()
            .all(|(_, measured)| measured.ended_early == 0)
        {
            return Ok(());
        }
        writeln!(
            f,
            "\nround   held-out attempts that ended early: the student repeated itself or wrote no code"
        )?;
        for (round, measured) in measured {
            let (early, tasks) = (measured.ended_early, measured.all.tasks);
            writeln!(f, "{round:>6}  {early} of {tasks}")?;
        }
        Ok(())
    }

    /// What the trained tokens were worth: the gain in the pass rate since before the first round.
    fn write_tokens(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(before) = &self.before else {
            return Ok(());
        };
        let mut tokens: u64 = 0;
        for round in &self.rounds {
            let (Some(trained), Some(after)) = (round.trained_tokens, &round.measured) else {
                continue;
            };
            if tokens == 0 {
                writeln!(
                    f,
                    "\nround   tokens trained so far   points of the pass rate gained per million"
                )?;
            }
            tokens += trained;
            let points = 100.0 * (after.all.rate() - before.all.rate());
            let per_million = points / (tokens.max(1) as f64 / 1e6);
            writeln!(f, "{:>6}  {tokens:>22}  {per_million:.2}", round.round)?;
        }
        Ok(())
    }

    /// The tokens that rounds lost to the length of their rows; nothing if they lost none.
    fn write_lost(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = self.rounds.iter();
        let lost = rounds.filter_map(|round| Some((round.round, round.lost_tokens?)));
        let lost: Vec<(u32, u64)> = lost.filter(|(_, tokens)| *tokens > 0).collect();
        if lost.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\nround   tokens that were not trained, since their rows are longer than `train.max_seq_len`"
        )?;
        for (round, tokens) in lost {
            writeln!(f, "{round:>6}  {tokens}")?;
        }
        Ok(())
    }

    /// The held-out tasks by what the rounds lack of them; nothing if all lack the same.
    fn write_sets(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measured = self.measured();
        let sets: BTreeSet<Unseen> = measured
            .iter()
            .flat_map(|(_, measured)| measured.unseen.keys().copied())
            .collect();
        if sets.len() < 2 {
            return Ok(());
        }
        writeln!(
            f,
            "\nround   passed of the held-out tasks, by what the rounds lack of them [95 %]"
        )?;
        for (round, measured) in measured {
            for (unseen, rate) in &measured.unseen {
                writeln!(f, "{round:>6}  {:<10}  {rate}", unseen.name())?;
            }
        }
        Ok(())
    }

    /// The report in the run folder of a loop; `None` if no round has ended yet.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, RunError> {
        let path = folder.join(JSON);
        if !path.is_file() {
            return Ok(None);
        }
        let text = std::fs::read(&path).map_err(RunError::io(path.display().to_string()))?;
        Ok(Some(serde_json::from_slice(&text)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(passed: usize, misnamed: usize) -> Measurement {
        let all = PassRate {
            tasks: 20,
            passed,
            low: 0.0,
            high: 1.0,
        };
        Measurement {
            all,
            unseen: Default::default(),
            misnamed: Some(misnamed),
            ended_early: 0,
        }
    }

    fn round(round: u32, passed: usize, trained_tokens: Option<u64>) -> RoundReport {
        RoundReport {
            round,
            again: 0,
            played: Played {
                student: "m".to_owned(),
                tasks: 3,
                attempts: 3,
                solved: 1,
                corrected: 2,
                taught: 0,
                preferences: 2,
            },
            trained_tokens,
            lost_tokens: trained_tokens.map(|_| 0),
            measured: Some(measured(passed, 1)),
        }
    }

    #[test]
    fn gains_are_for_the_tokens_of_all_rounds_so_far() {
        let mut report = Report {
            name: "t".to_owned(),
            held_out: 20,
            before: Some(measured(2, 5)),
            rounds: vec![round(1, 7, Some(500_000)), round(2, 12, Some(1_500_000))],
        };
        let text = report.to_string();
        // 25 points with half a million, 50 points with two.
        for line in [
            "     1                  500000  50.00\n",
            "     2                 2000000  25.00\n",
            "before  5 of 20\n",
            "     2  1 of 20\n",
        ] {
            assert!(text.contains(line), "{line} is missing in {text}");
        }
        assert!(!text.contains("ended early") && !text.contains("not trained"));
        report.rounds[1].lost_tokens = Some(70);
        let text = report.to_string();
        assert!(
            text.ends_with("`train.max_seq_len`\n     2  70\n"),
            "{text}"
        );
        report.before.as_mut().unwrap().ended_early = 4;
        let text = report.to_string();
        let early = text.split("ended early").nth(1).unwrap();
        assert!(early.contains("before  4 of 20\n     1  0 of 20\n"));
        report.rounds = vec![round(1, 7, None)];
        assert!(!report.to_string().contains("per million"));
    }
}
