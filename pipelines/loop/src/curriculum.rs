//! Which tasks of a round the next one plays again: those that the student passes in some of its samples only.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use pybench_run::artifacts::{TRAJECTORIES, VERDICTS};
use pybench_run::{CurriculumChoice, LoopChoice, RunContext, RunError};
use pybench_types::id::Digest;
use pybench_types::trajectory::{Outcome, Verdict};

use crate::report::Report;
use crate::round_dir;
use crate::tasks::LoopTasks;

/// Filters that look at what an attempt has achieved. Of the others, `format` and `consistent` look at how it is written,
/// and `duplicate` at what else there is.
const OF_OUTCOME: [&str; 4] = ["finished", "outputs", "check", "judge"];
/// Those of them that know what the task asks for.
const OF_TASK: [&str; 2] = ["check", "judge"];

/// Samples of a task that passed, and all of them.
type Samples = (u32, u32);

/// Applies what earlier calls of [`draw`] have journaled.
///
/// # Errors
/// The journal cannot be read.
pub(crate) fn restore(context: &RunContext, tasks: &mut LoopTasks) -> Result<(), RunError> {
    for number in 2..=tasks.rounds.len() {
        if let Some(again) = journaled(context, number)? {
            tasks.play_again(number - 1, &again);
        }
    }
    Ok(())
}

/// Lets round `number` begin with tasks of the round before it, and returns their number. The choice is journaled.
///
/// # Errors
/// The attempts of the round before it cannot be read; the journal cannot be written.
pub(crate) fn draw(
    context: &RunContext,
    number: u32,
    looped: &LoopChoice,
    (tasks, report): (&mut LoopTasks, &Report),
) -> Result<usize, RunError> {
    let before = report.rounds.last();
    let (Some(choice), Some(before)) = (&looped.curriculum, before) else {
        return Ok(0);
    };
    let at = number as usize - 1;
    if let Some(again) = journaled(context, number as usize)? {
        return Ok(again.len());
    }
    let samples = samples(&round_dir(context, number - 1), &before.played.student)?;
    let chosen = chosen(choice, &samples);
    let again = tasks.play_again(at, &chosen);
    let ids: Vec<&str> = again.iter().map(Digest::as_str).collect();
    let journal = context.folder.journal();
    journal.set_metadata_synced(&key(number as usize), &ids.into())?;
    tracing::info!(
        "round {number}: {} of its tasks were passed in some samples of the round before",
        again.len()
    );
    Ok(again.len())
}

fn key(number: usize) -> String {
    format!("again/{number}")
}

/// The tasks that round `number` plays again, if that was decided.
fn journaled(context: &RunContext, number: usize) -> Result<Option<HashSet<Digest>>, RunError> {
    let ids = context.folder.journal().metadata(&key(number))?;
    Ok(ids.map(serde_json::from_value).transpose()?)
}

/// The student's attempts in the run of a round, by task.
fn samples(round: &Path, student: &str) -> Result<BTreeMap<Digest, Samples>, RunError> {
    let mut outcomes = HashMap::new();
    for verdict in VERDICTS.read(round)? {
        let verdict = verdict?;
        if let Some(passed) = passed(&verdict) {
            outcomes.insert(verdict.trajectory, passed);
        }
    }
    let mut samples: BTreeMap<Digest, Samples> = BTreeMap::new();
    for trajectory in TRAJECTORIES.read(round)? {
        let trajectory = trajectory?;
        if trajectory.teacher != student {
            continue;
        }
        // An attempt counts once: a level of `escalation` with the student's name has the attempts of the student.
        if let Some(passed) = outcomes.remove(&trajectory.id) {
            let (passes, all) = samples.entry(trajectory.task).or_default();
            *passes += u32::from(passed);
            *all += 1;
        }
    }
    Ok(samples)
}

/// Whether an attempt passed its task, even if it makes no row; `None` if that is not known.
fn passed(verdict: &Verdict) -> Option<bool> {
    let of = |filters: &'static [&'static str]| {
        let findings = verdict.findings.iter();
        findings.filter(move |finding| filters.contains(&finding.filter.as_str()))
    };
    let failed = of(&OF_OUTCOME).any(|finding| finding.outcome != Outcome::Pass);
    let known = verdict.accepted || failed || of(&OF_TASK).next().is_some();
    known.then_some(!failed)
}

/// The tasks whose pass rate is between the bounds.
fn chosen(choice: &CurriculumChoice, samples: &BTreeMap<Digest, Samples>) -> HashSet<Digest> {
    let between = |(passes, all): &Samples| {
        let rate = f64::from(*passes) / f64::from(*all);
        choice.above < rate && rate < choice.below
    };
    let chosen = samples.iter().filter(|task| between(task.1));
    chosen.map(|(task, _)| task.clone()).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pybench_run::{Recipe, RunFolder};
    use pybench_types::task::Task;
    use pybench_types::trajectory::{End, Finding, Sampling, Trajectory};

    use super::*;
    use crate::report::RoundReport;
    use crate::round::Played;
    use crate::tasks::tests::task;

    fn trajectory(task: &str, teacher: &str, sample: u32) -> Trajectory {
        let task = Digest::of_bytes(task.as_bytes());
        let sampling = Sampling::default();
        Trajectory {
            id: Trajectory::compute_id(&task, teacher, &sampling, "pybench", sample),
            task,
            teacher: teacher.to_owned(),
            sampling,
            sample,
            seed: 0,
            environment: String::new(),
            format: "pybench".to_owned(),
            messages: vec![],
            turns: vec![],
            outputs: vec![],
            end: End::Finished,
            fault: None,
            corrects: None,
        }
    }

    fn verdict(of: &Trajectory, findings: &[(&str, Outcome)]) -> Verdict {
        let finding = |(filter, outcome): &(&str, Outcome)| Finding {
            filter: (*filter).to_owned(),
            subject: String::new(),
            outcome: *outcome,
            detail: String::new(),
            mismatch: None,
        };
        Verdict {
            trajectory: of.id.clone(),
            accepted: findings
                .iter()
                .all(|(_, outcome)| *outcome == Outcome::Pass),
            findings: findings.iter().map(finding).collect(),
            opinion: None,
            checker: String::new(),
        }
    }

    /// Findings of a verdict, and whether the attempt passed its task.
    type Case<'a> = (&'a [(&'a str, Outcome)], Option<bool>);

    #[test]
    fn only_what_was_achieved_counts() {
        let attempt = trajectory("a", "s", 0);
        let cases: [Case<'_>; 6] = [
            (
                &[("check", Outcome::Pass), ("format", Outcome::Fail)],
                Some(true),
            ),
            (
                &[("judge", Outcome::Pass), ("duplicate", Outcome::Fail)],
                Some(true),
            ),
            (
                &[("check", Outcome::Unproven), ("format", Outcome::Pass)],
                Some(false),
            ),
            (
                &[("check", Outcome::Pass), ("finished", Outcome::Fail)],
                Some(false),
            ),
            // Without a check, nothing says whether it is right.
            (
                &[("finished", Outcome::Pass), ("consistent", Outcome::Fail)],
                None,
            ),
            (&[("finished", Outcome::Pass)], Some(true)),
        ];
        for (findings, expected) in cases {
            let verdict = verdict(&attempt, findings);
            assert_eq!(passed(&verdict), expected, "{findings:?}");
        }
    }

    fn tasks() -> LoopTasks {
        let round = |names: &str| -> Vec<Task> {
            let names = names.chars();
            names.map(|name| task(&name.to_string())).collect()
        };
        LoopTasks {
            held_out: vec![],
            rounds: ["abc", "def", "gh"].map(round).to_vec(),
        }
    }

    fn round_of(student: &str) -> RoundReport {
        RoundReport {
            round: 1,
            again: 0,
            played: Played {
                student: student.to_owned(),
                tasks: 3,
                attempts: 0,
                solved: 0,
                corrected: 0,
                taught: 0,
                preferences: 0,
            },
            trained_tokens: None,
            lost_tokens: None,
            measured: None,
        }
    }

    /// The tasks of a round are the same after a kill, even if the round before it cannot be read any more.
    #[test]
    fn what_was_drawn_is_restored() {
        let runs = tempfile::tempdir().unwrap();
        let text = "name = 't'\nteacher = { kind = 'checkpoint', model = 'm' }\n[query]\ntasks = 8\n[rollout]\n\
                    samples = 2\n[loop]\nrounds = 3\n[loop.curriculum]\n";
        let recipe = Recipe::parse("t.toml", text, &[]).unwrap();
        let open = |name: &str| RunFolder::open(&runs.path().join(name), "").unwrap();
        let context = RunContext::new(Arc::new(open("t")), recipe);
        let looped = context.recipe.learning.clone().unwrap();

        let passed_half = |task: &'static str| [(task, 0, Outcome::Pass), (task, 1, Outcome::Fail)];
        let never = |task: &'static str| [(task, 0, Outcome::Fail), (task, 1, Outcome::Fail)];
        let outcomes = [never("a"), passed_half("b"), never("c")].concat();
        let mut attempts: Vec<Trajectory> = vec![];
        let mut verdicts: Vec<Verdict> = vec![];
        for (task, sample, outcome) in outcomes {
            let attempt = trajectory(task, "s", sample);
            verdicts.push(verdict(&attempt, &[("check", outcome)]));
            attempts.push(attempt);
        }
        // A larger model solves what the student cannot.
        let taught = trajectory("a", "larger", 0);
        verdicts.push(verdict(&taught, &[("check", Outcome::Pass)]));
        attempts.push(taught);
        let round = open("t-round-1");
        TRAJECTORIES.write(&round, attempts.iter().map(Ok)).unwrap();
        VERDICTS.write(&round, verdicts.iter().map(Ok)).unwrap();
        drop(round);

        let mut drawn = tasks();
        let mut report = Report::new(&context, &drawn);
        report.rounds.push(round_of("s"));
        assert_eq!(
            draw(&context, 2, &looped, (&mut drawn, &report)).unwrap(),
            1
        );
        assert_ne!(drawn.rounds, tasks().rounds);

        std::fs::remove_dir_all(runs.path().join("t-round-1")).unwrap();
        let mut restored = tasks();
        restore(&context, &mut restored).unwrap();
        assert_eq!(restored.rounds, drawn.rounds);
        assert_eq!(
            draw(&context, 2, &looped, (&mut restored, &report)).unwrap(),
            1
        );
        assert_eq!(restored.rounds, drawn.rounds);
    }

    #[test]
    fn tasks_between_the_bounds_are_chosen() {
        let id = |name: &str| Digest::of_bytes(name.as_bytes());
        let samples = [("never", 0), ("once", 1), ("often", 3), ("always", 4)];
        let samples = samples.map(|(name, passes)| (id(name), (passes, 4)));
        let samples = BTreeMap::from(samples);
        let all = CurriculumChoice::default();
        let expected = HashSet::from([id("once"), id("often")]);
        assert_eq!(chosen(&all, &samples), expected);
        let easy = CurriculumChoice {
            above: 0.25,
            below: 1.0,
        };
        assert_eq!(chosen(&easy, &samples), HashSet::from([id("often")]));
    }
}
