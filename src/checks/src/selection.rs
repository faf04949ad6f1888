//! Selects which accepted trajectories become rows: no duplicate conversations, the best sample of each
//! task, a share of repairs, and at most the requested number. Ties follow item order.

use std::collections::{BTreeMap, HashMap, HashSet};

use pybench_run::{Filter, Goal, Grade, Keep};
use pybench_types::id::{CompactDigest, Digest};
use pybench_types::trajectory::{End, Finding, Outcome, Role, Trajectory, Verdict};

/// Filters that drop trajectories which are correct but not needed.
pub const CHOICES: [&str; 3] = ["duplicate", "keep", "accept"];

/// Whether a trajectory is correct, even if it was not selected as a row.
pub fn holds(verdict: &Verdict) -> bool {
    let mut failed = verdict
        .findings
        .iter()
        .filter(|finding| finding.outcome != Outcome::Pass);
    failed.all(|finding| CHOICES.contains(&&*finding.filter))
}

/// The features of a trajectory that selection and reports use. A run holds them for all of its trajectories, so they are small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrajectoryFeatures {
    pub id: CompactDigest,
    pub task: CompactDigest,
    /// The fault that the expert planted, if any.
    pub fault: Option<Box<str>>,
    pub end: End,
    messages: CompactDigest,
    turns: u32,
    tokens: u64,
    repaired: bool,
}

impl TrajectoryFeatures {
    /// Computes the features of a trajectory.
    pub fn of(trajectory: &Trajectory) -> Self {
        let counted = trajectory.usage().completion_tokens;
        let replies = trajectory.messages.iter();
        let replies = replies.filter(|m| m.role == Role::Assistant);
        let bytes: usize = replies.map(|m| m.content.len()).sum();
        let mut seen = trajectory.turns.iter().flat_map(|turn| turn.observations());
        Self {
            id: (&trajectory.id).into(),
            task: (&trajectory.task).into(),
            fault: trajectory.fault.as_deref().map(Into::into),
            end: trajectory.end.clone(),
            messages: (&Digest::of_json(&trajectory.messages)).into(),
            turns: u32::try_from(trajectory.turns.len()).unwrap_or(u32::MAX),
            // Without a token count, compare the length of the replies.
            tokens: if counted > 0 { counted } else { bytes as u64 },
            repaired: seen.any(|seen| seen.error.is_some()),
        }
    }

    /// Sort key; smaller is better.
    fn rank(&self, keep: Keep) -> (u64, u64) {
        match keep {
            Keep::All => (0, 0),
            Keep::Turns => (self.turns.into(), self.tokens),
            Keep::Tokens => (self.tokens, self.turns.into()),
        }
    }
}

/// Why an accepted trajectory does not become a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rejection {
    /// An earlier trajectory has the same conversation.
    Duplicate(CompactDigest),
    /// Another sample of the task is kept.
    OtherSample(CompactDigest),
    /// Enough rows come before it.
    Enough(usize),
}

/// Which of the graded trajectories become rows.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Whether duplicates are rejected.
    duplicates: bool,
    /// The others are kept as they are. By position in the list of candidates.
    rejections: HashMap<usize, Rejection>,
    /// Number of rows that count toward the goal.
    pub rows: usize,
}

impl Selection {
    /// Adds the reason to the verdict of the candidate at this position, if it does not become a row.
    pub fn apply(&self, position: usize, verdict: &mut Verdict) {
        if !verdict.accepted {
            return;
        }
        let rejection = self.rejections.get(&position);
        let short = |id: &CompactDigest| Digest::from(*id).short().to_owned();
        if let Some(Rejection::Duplicate(earlier)) = rejection {
            let why = format!("the same conversation as {}", short(earlier));
            return reject(verdict, "duplicate", "messages", &why);
        }
        if self.duplicates {
            let finding = finding("duplicate", "messages", Outcome::Pass, "");
            verdict.findings.push(finding);
        }
        match rejection {
            Some(Rejection::OtherSample(kept)) => {
                let why = format!("{} is kept of the same task", short(kept));
                reject(verdict, "keep", "task", &why);
            }
            Some(Rejection::Enough(limit)) => {
                let why = format!("{limit} rows were asked for, and there are as many before it");
                reject(verdict, "accept", "goal", &why);
            }
            Some(Rejection::Duplicate(_)) | None => {}
        }
    }
}

/// Chooses among graded trajectories in item order, each with whether its findings pass. Rows of the tasks in `uncounted` do
/// not count toward the goal, because the dataset leaves them out.
pub fn select<'a>(
    grade: &Grade,
    goal: &Goal,
    uncounted: &HashSet<CompactDigest>,
    candidates: impl Iterator<Item = (&'a TrajectoryFeatures, bool)>,
) -> Selection {
    let accepted = candidates
        .enumerate()
        .filter(|(_, (_, accepted))| *accepted);
    let mut left: Vec<(usize, &TrajectoryFeatures)> =
        accepted.map(|(at, (features, _))| (at, features)).collect();
    let duplicates = grade.filters.contains(&Filter::Duplicate);
    let mut rejections = HashMap::new();
    if duplicates {
        reject_duplicates(&mut left, &mut rejections);
    }
    if goal.keep != Keep::All {
        best_of_each_task(goal, &mut left, &mut rejections);
    }
    let counts =
        |(_, features): &&(usize, &TrajectoryFeatures)| !uncounted.contains(&features.task);
    if let Some(limit) = goal.accept {
        let kept = rows_until(limit, &left, counts);
        let beyond = left.drain(kept..);
        rejections.extend(beyond.map(|(at, _)| (at, Rejection::Enough(limit))));
    }
    Selection {
        duplicates,
        rejections,
        rows: left.iter().filter(counts).count(),
    }
}

/// How many rows come before the first one that is not needed, as `limit` rows before it count.
fn rows_until<T>(limit: usize, rows: &[T], counts: impl Fn(&&T) -> bool) -> usize {
    let mut counted = 0;
    let needed = rows.iter().take_while(|row| {
        let needed = counted < limit;
        counted += usize::from(counts(row));
        needed
    });
    needed.count()
}

fn reject_duplicates<'a>(
    left: &mut Vec<(usize, &'a TrajectoryFeatures)>,
    rejections: &mut HashMap<usize, Rejection>,
) {
    let mut first: HashMap<&'a CompactDigest, &'a TrajectoryFeatures> = HashMap::new();
    left.retain(|(at, features)| {
        let earlier = first.entry(&features.messages).or_insert(features);
        let is_first = std::ptr::eq(*earlier, *features);
        if !is_first {
            rejections.insert(*at, Rejection::Duplicate(earlier.id));
        }
        is_first
    });
}

/// Keeps one sample per task: a repaired one while repairs are below their share, otherwise the best one.
fn best_of_each_task(
    goal: &Goal,
    left: &mut Vec<(usize, &TrajectoryFeatures)>,
    rejections: &mut HashMap<usize, Rejection>,
) {
    let mut tasks: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut first_of_task: HashMap<CompactDigest, usize> = HashMap::new();
    for (at, (_, features)) in left.iter().enumerate() {
        let first = *first_of_task.entry(features.task).or_insert(at);
        tasks.entry(first).or_default().push(at);
    }
    let (mut chosen, mut repairs) = (0_usize, 0_usize);
    for samples in tasks.values() {
        let best = |of: &mut dyn Iterator<Item = usize>| {
            of.min_by_key(|at| (left[*at].1.rank(goal.keep), *at))
        };
        let repair_due = (repairs as f64) < goal.repairs * (chosen + 1) as f64;
        let repaired = best(&mut samples.iter().copied().filter(|at| left[*at].1.repaired));
        let any = best(&mut samples.iter().copied());
        let Some(kept) = repaired.filter(|_| repair_due).or(any) else {
            continue;
        };
        chosen += 1;
        repairs += usize::from(left[kept].1.repaired);
        for at in samples.iter().filter(|at| **at != kept) {
            let kept = left[kept].1.id;
            rejections.insert(left[*at].0, Rejection::OtherSample(kept));
        }
    }
    left.retain(|(at, _)| !rejections.contains_key(at));
}

fn reject(verdict: &mut Verdict, filter: &str, subject: &str, why: &str) {
    verdict.accepted = false;
    verdict
        .findings
        .push(finding(filter, subject, Outcome::Fail, why));
}

fn finding(filter: &str, subject: &str, outcome: Outcome, why: &str) -> Finding {
    Finding {
        filter: filter.to_owned(),
        subject: subject.to_owned(),
        outcome,
        detail: why.to_owned(),
        mismatch: None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn features(
        task: usize,
        words: usize,
        turns: usize,
        tokens: u64,
        repaired: bool,
    ) -> TrajectoryFeatures {
        let digest = |n: usize| (&Digest::of_bytes(&n.to_le_bytes())).into();
        TrajectoryFeatures {
            id: digest(words),
            fault: None,
            end: End::Finished,
            task: digest(task),
            messages: digest(1000 + words),
            turns: turns as u32,
            tokens,
            repaired,
        }
    }

    /// Selects, and applies the selection to the verdicts.
    fn choose(
        grade: &Grade,
        goal: &Goal,
        features: &[TrajectoryFeatures],
        verdicts: &mut [Verdict],
    ) {
        let accepted = verdicts.iter().map(|verdict| verdict.accepted);
        let selection = select(grade, goal, &HashSet::new(), features.iter().zip(accepted));
        for (at, verdict) in verdicts.iter_mut().enumerate() {
            selection.apply(at, verdict);
        }
        let rows = verdicts.iter().filter(|verdict| verdict.accepted).count();
        assert_eq!(selection.rows, rows);
    }

    fn verdict(n: usize, accepted: bool) -> Verdict {
        Verdict {
            trajectory: Digest::of_bytes(&[n as u8]),
            findings: vec![],
            accepted,
            opinion: None,
            checker: String::new(),
        }
    }

    /// The indices of the trajectories that become rows.
    fn rows(goal: &Goal, features: &[TrajectoryFeatures], accepted: &[bool]) -> Vec<usize> {
        let mut verdicts: Vec<_> = (accepted.iter().enumerate())
            .map(|(n, ok)| verdict(n, *ok))
            .collect();
        choose(&Grade::default(), goal, features, &mut verdicts);
        let kept = verdicts.iter().enumerate().filter(|(_, v)| v.accepted);
        kept.map(|(at, _)| at).collect()
    }

    #[test]
    fn the_best_sample_is_kept() {
        let samples = [
            features(0, 0, 3, 50, false),
            features(0, 1, 2, 90, false),
            features(0, 2, 1, 10, false),
            features(1, 3, 9, 99, false),
        ];
        let accepted = [true, true, false, true];
        let by = |keep| {
            rows(
                &Goal {
                    keep,
                    ..Goal::default()
                },
                &samples,
                &accepted,
            )
        };
        assert_eq!(by(Keep::All), [0, 1, 3]);
        assert_eq!(by(Keep::Turns), [1, 3]);
        assert_eq!(by(Keep::Tokens), [0, 3]);
    }

    #[test]
    fn repairs_get_exactly_their_share() {
        // Each of ten tasks has a short sample and a longer one with a repaired error.
        let samples: Vec<_> = (0..20)
            .map(|n| features(n / 2, n, 1 + n % 2, 10, n % 2 == 1))
            .collect();
        let goal = |repairs| Goal {
            keep: Keep::Turns,
            repairs,
            ..Goal::default()
        };
        let count = |share| {
            let rows = rows(&goal(share), &samples, &[true; 20]);
            assert_eq!(rows.len(), 10);
            rows.iter().filter(|at| *at % 2 == 1).count()
        };
        assert_eq!((count(0.0), count(0.2), count(1.0)), (0, 2, 10));
    }

    #[test]
    fn duplicates_are_dropped_before_the_goal_is_counted() {
        let samples: Vec<_> = [0, 0, 1, 2]
            .map(|words| features(words, words, 1, 1, false))
            .into();
        let goal = Goal {
            accept: Some(2),
            ..Goal::default()
        };
        assert_eq!(rows(&goal, &samples, &[true; 4]), [0, 2]);
    }

    #[test]
    fn rows_that_the_dataset_leaves_out_do_not_count_toward_the_goal() {
        let samples: Vec<_> = (0..5).map(|n| features(n, n, 1, 1, false)).collect();
        let goal = Goal {
            accept: Some(2),
            ..Goal::default()
        };
        let select = |uncounted: &[usize]| {
            let uncounted = uncounted.iter().map(|at| samples[*at].task).collect();
            let candidates = samples.iter().map(|features| (features, true));
            let selection = select(&Grade::default(), &goal, &uncounted, candidates);
            let kept = (0..5).filter(|at| !selection.rejections.contains_key(at));
            (selection.rows, kept.collect::<Vec<_>>())
        };
        assert_eq!(select(&[]), (2, vec![0, 1]));
        assert_eq!(select(&[0]), (2, vec![0, 1, 2]));
        assert_eq!(select(&[1, 2]), (2, vec![0, 1, 2, 3]));
        // What comes after the last row that is needed is not needed either.
        assert_eq!(select(&[2, 3]), (2, vec![0, 1]));
        assert_eq!(select(&[0, 1, 2, 3]), (1, vec![0, 1, 2, 3, 4]));
    }

    #[test]
    fn unneeded_trajectories_hold_and_failed_ones_do_not() {
        let goal = Goal {
            accept: Some(1),
            keep: Keep::Turns,
            ..Goal::default()
        };
        let samples = [(0, 0), (0, 1), (1, 2), (2, 2), (3, 3)]
            .map(|(task, words)| features(task, words, 1, 1, false));
        let mut verdicts: Vec<_> = (0..5).map(|n| verdict(n, n < 4)).collect();
        let failed = finding("check", "table", Outcome::Fail, "no such column");
        verdicts[4].findings.push(failed);
        choose(&Grade::default(), &goal, &samples, &mut verdicts);
        let accepted: Vec<_> = verdicts.iter().map(|v| v.accepted).collect();
        assert_eq!(accepted, [true, false, false, false, false]);
        let left: Vec<_> = verdicts.iter().map(holds).collect();
        assert_eq!(left, [true, true, true, true, false]);
    }

    proptest! {
        #[test]
        fn at_most_the_goal_and_one_row_per_task(
            samples in proptest::collection::vec((0_usize..8, 0_usize..20, 1_usize..9, any::<bool>(), any::<bool>()), 0..40),
            accept in 0_usize..10, repairs in 0.0_f64..1.0,
        ) {
            let all: Vec<_> = samples.iter().map(|(task, words, turns, r, _)| features(*task, *words, *turns, 5, *r)).collect();
            let accepted: Vec<_> = samples.iter().map(|s| s.4).collect();
            let goal = Goal { accept: Some(accept), keep: Keep::Turns, repairs, ..Goal::default() };
            let kept = rows(&goal, &all, &accepted);
            prop_assert!(kept.len() <= accept);
            let mut tasks: Vec<_> = kept.iter().map(|at| all[*at].task).collect();
            tasks.sort();
            tasks.dedup();
            prop_assert_eq!(tasks.len(), kept.len());
            prop_assert!(kept.iter().all(|at| accepted[*at]));
        }
    }
}
