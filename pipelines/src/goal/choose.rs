//! Which of the trajectories whose checks hold become rows: no conversation twice, the best of a task's
//! samples, repairs by quota, and no more than were asked for. Everything goes by item order.

use std::collections::{BTreeMap, HashMap};

use pybench::id::Digest;
use pybench::run::{Filter, Goal, Grade, Keep};
use pybench::trajectory::{Finding, Outcome, Role, Trajectory, Verdict};

/// Filters that say of a trajectory that it is not needed, and nothing against it.
pub const CHOICES: [&str; 3] = ["duplicate", "keep", "accept"];

/// Whether nothing speaks against a trajectory, be it a row or not.
pub fn holds(verdict: &Verdict) -> bool {
    let mut failed = verdict
        .findings
        .iter()
        .filter(|finding| finding.outcome != Outcome::Pass);
    failed.all(|finding| CHOICES.contains(&&*finding.filter))
}

/// What the choice needs to know of a trajectory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traits {
    task: Digest,
    messages: Digest,
    turns: usize,
    tokens: u64,
    repaired: bool,
}

impl Traits {
    /// Of that trajectory.
    pub fn of(trajectory: &Trajectory) -> Self {
        let counted = trajectory.usage().completion_tokens;
        let replies = trajectory.messages.iter();
        let replies = replies.filter(|m| m.role == Role::Assistant);
        let bytes: usize = replies.map(|m| m.content.len()).sum();
        let mut seen = trajectory.turns.iter().flat_map(|turn| turn.observations());
        Self {
            task: trajectory.task.clone(),
            messages: Digest::of_json(&trajectory.messages),
            turns: trajectory.turns.len(),
            // Who counts no tokens is compared by length.
            tokens: if counted > 0 { counted } else { bytes as u64 },
            repaired: seen.any(|seen| seen.error.is_some()),
        }
    }

    /// Smaller is better.
    fn rank(&self, keep: Keep) -> (u64, u64) {
        match keep {
            Keep::All => (0, 0),
            Keep::Turns => (self.turns as u64, self.tokens),
            Keep::Tokens => (self.tokens, self.turns as u64),
        }
    }
}

/// Takes the acceptance from those that do not become rows, and says why. `verdicts` stand beside
/// `traits`, both in item order.
pub fn choose(grade: &Grade, goal: &Goal, traits: &[&Traits], verdicts: &mut [Verdict]) {
    if grade.filters.contains(&Filter::Duplicate) {
        without_duplicates(traits, verdicts);
    }
    if goal.keep != Keep::All {
        best_of_each_task(goal, traits, verdicts);
    }
    if let Some(asked) = goal.accept {
        let accepted = verdicts.iter_mut().filter(|verdict| verdict.accepted);
        for verdict in accepted.skip(asked) {
            let why = format!("{asked} rows were asked for, and there are as many before it");
            reject(verdict, "accept", "goal", &why);
        }
    }
}

fn without_duplicates(traits: &[&Traits], verdicts: &mut [Verdict]) {
    let mut first: HashMap<&Digest, Digest> = HashMap::new();
    for (traits, verdict) in traits.iter().zip(verdicts) {
        if !verdict.accepted {
            continue;
        }
        match first.get(&traits.messages) {
            None => {
                first.insert(&traits.messages, verdict.trajectory.clone());
                let finding = finding("duplicate", "messages", Outcome::Pass, "");
                verdict.findings.push(finding);
            }
            Some(earlier) => {
                let why = format!("the same conversation as {}", earlier.short());
                reject(verdict, "duplicate", "messages", &why);
            }
        }
    }
}

/// Of each task one sample: a repair while they are fewer than their share, otherwise the best.
fn best_of_each_task(goal: &Goal, traits: &[&Traits], verdicts: &mut [Verdict]) {
    let mut tasks: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut place: HashMap<&Digest, usize> = HashMap::new();
    for (at, traits) in traits.iter().enumerate() {
        if verdicts[at].accepted {
            let first = *place.entry(&traits.task).or_insert(at);
            tasks.entry(first).or_default().push(at);
        }
    }
    let (mut chosen, mut repairs) = (0_usize, 0_usize);
    for samples in tasks.values() {
        let best = |of: &mut dyn Iterator<Item = usize>| {
            of.min_by_key(|at| (traits[*at].rank(goal.keep), *at))
        };
        let owed = (repairs as f64) < goal.repairs * (chosen + 1) as f64;
        let repaired = best(&mut samples.iter().copied().filter(|at| traits[*at].repaired));
        let any = best(&mut samples.iter().copied());
        let Some(kept) = repaired.filter(|_| owed).or(any) else {
            continue;
        };
        chosen += 1;
        repairs += usize::from(traits[kept].repaired);
        let keeper = verdicts[kept].trajectory.short().to_owned();
        for at in samples.iter().filter(|at| **at != kept) {
            let why = format!("{keeper} is kept of the same task");
            reject(&mut verdicts[*at], "keep", "task", &why);
        }
    }
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
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn traits(task: usize, words: usize, turns: usize, tokens: u64, repaired: bool) -> Traits {
        let digest = |n: usize| Digest::of_bytes(&n.to_le_bytes());
        Traits {
            task: digest(task),
            messages: digest(1000 + words),
            turns,
            tokens,
            repaired,
        }
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

    /// The places of those that become rows.
    fn rows(goal: &Goal, traits: &[Traits], accepted: &[bool]) -> Vec<usize> {
        let mut verdicts: Vec<_> = (accepted.iter().enumerate())
            .map(|(n, ok)| verdict(n, *ok))
            .collect();
        choose(
            &Grade::default(),
            goal,
            &traits.iter().collect::<Vec<_>>(),
            &mut verdicts,
        );
        let kept = verdicts.iter().enumerate().filter(|(_, v)| v.accepted);
        kept.map(|(at, _)| at).collect()
    }

    #[test]
    fn the_best_by_the_rule_is_kept() {
        let samples = [
            traits(0, 0, 3, 50, false),
            traits(0, 1, 2, 90, false),
            traits(0, 2, 1, 10, false),
            traits(1, 3, 9, 99, false),
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
    fn repairs_have_their_share_and_no_more() {
        // Each of ten tasks has a short sample and a longer one with an error that was fixed.
        let samples: Vec<_> = (0..20)
            .map(|n| traits(n / 2, n, 1 + n % 2, 10, n % 2 == 1))
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
    fn duplicates_go_before_the_goal_counts() {
        let samples: Vec<_> = [0, 0, 1, 2]
            .map(|words| traits(words, words, 1, 1, false))
            .into();
        let goal = Goal {
            accept: Some(2),
            ..Goal::default()
        };
        assert_eq!(rows(&goal, &samples, &[true; 4]), [0, 2]);
    }

    #[test]
    fn what_is_not_needed_holds_and_what_fails_a_check_does_not() {
        let goal = Goal {
            accept: Some(1),
            keep: Keep::Turns,
            ..Goal::default()
        };
        let samples = [(0, 0), (0, 1), (1, 2), (2, 2), (3, 3)]
            .map(|(task, words)| traits(task, words, 1, 1, false));
        let mut verdicts: Vec<_> = (0..5).map(|n| verdict(n, n < 4)).collect();
        let failed = finding("check", "table", Outcome::Fail, "no such column");
        verdicts[4].findings.push(failed);
        let traits: Vec<_> = samples.iter().collect();
        choose(&Grade::default(), &goal, &traits, &mut verdicts);
        let accepted: Vec<_> = verdicts.iter().map(|v| v.accepted).collect();
        assert_eq!(accepted, [true, false, false, false, false]);
        let left: Vec<_> = verdicts.iter().map(holds).collect();
        assert_eq!(left, [true, true, true, true, false]);
    }

    proptest! {
        #[test]
        fn never_more_than_asked_and_one_per_task(
            samples in proptest::collection::vec((0_usize..8, 0_usize..20, 1_usize..9, any::<bool>(), any::<bool>()), 0..40),
            accept in 0_usize..10, repairs in 0.0_f64..1.0,
        ) {
            let all: Vec<_> = samples.iter().map(|(task, words, turns, r, _)| traits(*task, *words, *turns, 5, *r)).collect();
            let accepted: Vec<_> = samples.iter().map(|s| s.4).collect();
            let goal = Goal { accept: Some(accept), keep: Keep::Turns, repairs, ..Goal::default() };
            let kept = rows(&goal, &all, &accepted);
            prop_assert!(kept.len() <= accept);
            let mut tasks: Vec<_> = kept.iter().map(|at| &all[*at].task).collect();
            tasks.sort();
            tasks.dedup();
            prop_assert_eq!(tasks.len(), kept.len());
            prop_assert!(kept.iter().all(|at| accepted[*at]));
        }
    }
}
