//! Decisions of people on trajectories: metadata of the run's journal, one for each trajectory and reviewer.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use pybench_eval::stats::agreement;
use pybench_run::{Journal, RunError};
use pybench_types::id::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Start of the keys; the id of the trajectory and the reviewer follow. The journal counts them as work of people.
const PREFIX: &str = pybench_run::TRAJECTORY_REVIEWS;
/// Maximum number of characters of a reviewer's name and of a label.
const MAX_NAME: usize = 60;
/// Maximum number of characters of a comment.
const MAX_COMMENT: usize = 10_000;
/// Maximum number of reviewers whose agreement is computed, since each pair costs a bootstrap.
const MAX_REVIEWERS: usize = 6;

/// What a person decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Decision {
    Accept,
    Reject,
}

/// The decision of a person on a trajectory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Review {
    /// Id of the trajectory.
    pub(crate) trajectory: String,
    pub(crate) reviewer: String,
    /// `None` if it is withdrawn, or only a label or comment.
    pub(crate) decision: Option<Decision>,
    /// A word for later filters, such as `wrong file`; may be empty.
    pub(crate) label: String,
    pub(crate) comment: String,
}

/// Trajectories by their ids.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum IdFilter {
    Among(Vec<String>),
    /// All that have an id but these.
    Except(Vec<String>),
}

/// The decisions on the trajectories of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ReviewSummary {
    pub(crate) reviewers: Vec<ReviewerCounts>,
    pub(crate) agreements: Vec<PairAgreement>,
    /// Labels and how often they occur, the most frequent first.
    pub(crate) labels: Vec<(String, u64)>,
}

/// The number of decisions of a person.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct ReviewerCounts {
    pub(crate) reviewer: String,
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
    /// Labels and comments without a decision.
    pub(crate) undecided: u64,
}

/// How well two people agree on the trajectories on which both decided.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct PairAgreement {
    pub(crate) a: String,
    pub(crate) b: String,
    /// Number of trajectories.
    pub(crate) items: u64,
    /// Share of trajectories on which they agree.
    pub(crate) agree: f64,
    /// Cohen's kappa: 0 is chance, 1 is perfect; `None` if a person always decided the same.
    pub(crate) kappa: Option<f64>,
    /// 95 % bootstrap interval of kappa over tasks: lower and upper bound.
    pub(crate) interval: Option<(f64, f64)>,
}

impl Review {
    /// Writes the decision to the journal, where it replaces the reviewer's former one. It is on the disk when this returns.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if a text is too long, or the name or id cannot be used; [`RunError::Conflict`] if the journal
    /// was replaced meanwhile.
    pub(crate) fn save(&self, folder: &Path) -> Result<(), RunError> {
        if let Some(problem) = self.problem() {
            return Err(RunError::BadInput(problem));
        }
        let key = format!("{PREFIX}{}/{}", self.trajectory, self.reviewer);
        let value = serde_json::to_value(self)?;
        Journal::join_run(folder)?.set_metadata_synced(&key, &value)?;
        // A run that is started over has another journal, and one that is being moved is refused: its copy may lack the decision.
        match Journal::join_run(folder)?.metadata(&key)? {
            Some(saved) if saved == value => Ok(()),
            _ => Err(RunError::Conflict(
                "the decision was not saved: the run was started over, or the same reviewer decided in another window at \
                 this moment; reload the page and decide again"
                    .to_owned(),
            )),
        }
    }

    /// Why the decision cannot be saved.
    fn problem(&self) -> Option<String> {
        let is_id = Digest::try_from(self.trajectory.clone()).is_ok();
        let long = |text: &str, most: usize| text.chars().count() > most;
        if !is_id {
            return Some(
                "`trajectory` is no id of a trajectory (64 lowercase hexadecimal digits)"
                    .to_owned(),
            );
        }
        if let Some(problem) = name_problem("reviewer", &self.reviewer) {
            return Some(problem);
        }
        if long(&self.label, MAX_NAME) || self.label.chars().any(char::is_control) {
            return Some(format!(
                "`label` needs at most {MAX_NAME} characters on one line; longer texts are comments"
            ));
        }
        long(&self.comment, MAX_COMMENT)
            .then(|| format!("`comment` has more than {MAX_COMMENT} characters"))
    }
}

/// Why the name of a person, in this field of a request, cannot be used.
pub(crate) fn name_problem(field: &str, name: &str) -> Option<String> {
    let plain = |c: char| c.is_alphanumeric() || " .-_@+".contains(c);
    let is_good = name.trim() == name && !name.is_empty() && name.chars().all(plain);
    let is_short = name.chars().count() <= MAX_NAME;
    (!is_good || !is_short)
        .then(|| format!("`{field}` needs 1 to {MAX_NAME} letters, digits, inner spaces or .-_@+"))
}

/// All decisions on trajectories of the run, by trajectory and reviewer.
///
/// # Errors
/// The journal cannot be read.
pub(crate) fn read_all(folder: &Path) -> Result<Vec<Review>, RunError> {
    read(folder, "")
}

/// The decisions on one trajectory, by reviewer.
///
/// # Errors
/// The journal cannot be read.
pub(crate) fn read_of(folder: &Path, trajectory: &str) -> Result<Vec<Review>, RunError> {
    match trajectory {
        "" => Ok(Vec::new()),
        id => read(folder, &format!("{id}/")),
    }
}

fn read(folder: &Path, below: &str) -> Result<Vec<Review>, RunError> {
    let reviews = Journal::read_run(folder)?.metadata_with_prefix(&format!("{PREFIX}{below}"))?;
    let reviews = reviews.into_iter();
    let reviews = reviews.map(|(_, value)| Ok(serde_json::from_value(value)?));
    reviews.collect()
}

/// The trajectories that a filter `review` of the list is about; `None` for all.
///
/// # Errors
/// [`RunError::BadInput`] for an unknown word.
pub(crate) fn filter(
    reviews: &[Review],
    review: &str,
    reviewer: &str,
) -> Result<Option<IdFilter>, RunError> {
    let of_reviewer = reviews
        .iter()
        .filter(|one| reviewer.is_empty() || one.reviewer == reviewer);
    let mut decisions = BTreeMap::<&str, Vec<Decision>>::new();
    for one in of_reviewer {
        if let Some(decision) = one.decision {
            decisions.entry(&one.trajectory).or_default().push(decision);
        }
    }
    let among = |wanted: &dyn Fn(&[Decision]) -> bool| {
        let found = decisions.iter().filter(|(_, decisions)| wanted(decisions));
        found.map(|(id, _)| (*id).to_owned()).collect::<Vec<_>>()
    };
    let (accept, reject) = (Decision::Accept, Decision::Reject);
    Ok(Some(match review {
        "" => return Ok(None),
        "undecided" => IdFilter::Except(among(&|_| true)),
        "accepted" => IdFilter::Among(among(&|all| all.contains(&accept))),
        "rejected" => IdFilter::Among(among(&|all| all.contains(&reject))),
        "disputed" => IdFilter::Among(among(&|all| all.contains(&accept) && all.contains(&reject))),
        other => {
            return Err(RunError::BadInput(format!(
                "`review` is `{other}`; expected undecided, accepted, rejected or disputed"
            )));
        }
    }))
}

/// The trajectories with this label; `None` for all.
pub(crate) fn labelled(reviews: &[Review], label: &str, reviewer: &str) -> Option<IdFilter> {
    if label.is_empty() {
        return None;
    }
    let of_reviewer = reviews
        .iter()
        .filter(|one| reviewer.is_empty() || one.reviewer == reviewer);
    let ids: BTreeSet<&String> = of_reviewer
        .filter(|one| one.label == label)
        .map(|one| &one.trajectory)
        .collect();
    Some(IdFilter::Among(ids.into_iter().cloned().collect()))
}

/// Counts decisions and computes how well people agree. `tasks` has the task of each trajectory: attempts at the same task
/// are not independent.
pub(crate) fn summary(reviews: &[Review], tasks: &HashMap<String, String>) -> ReviewSummary {
    let mut of_reviewers = BTreeMap::<&str, ReviewerCounts>::new();
    let mut decided = BTreeMap::<&str, BTreeMap<&str, bool>>::new();
    let mut labels = BTreeMap::<&str, u64>::new();
    for review in reviews {
        let counts = of_reviewers
            .entry(&review.reviewer)
            .or_insert_with(|| ReviewerCounts {
                reviewer: review.reviewer.clone(),
                accepted: 0,
                rejected: 0,
                undecided: 0,
            });
        match review.decision {
            Some(Decision::Accept) => counts.accepted += 1,
            Some(Decision::Reject) => counts.rejected += 1,
            None => counts.undecided += 1,
        }
        if let Some(decision) = review.decision {
            let of_reviewer = decided.entry(&review.reviewer).or_default();
            of_reviewer.insert(&review.trajectory, decision == Decision::Accept);
        }
        if !review.label.is_empty() {
            *labels.entry(&review.label).or_default() += 1;
        }
    }
    // Those who decided most.
    let mut reviewers: Vec<(&str, &BTreeMap<&str, bool>)> =
        decided.iter().map(|(name, of)| (*name, of)).collect();
    reviewers.sort_by_key(|(_, decisions)| std::cmp::Reverse(decisions.len()));
    reviewers.truncate(MAX_REVIEWERS);
    let mut agreements = Vec::new();
    for (at, first) in reviewers.iter().enumerate() {
        for second in &reviewers[at + 1..] {
            agreements.extend(agreement_of(*first, *second, tasks));
        }
    }
    let mut labels: Vec<_> = labels.into_iter().collect();
    labels.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    ReviewSummary {
        reviewers: of_reviewers.into_values().collect(),
        agreements,
        labels: labels
            .into_iter()
            .map(|(label, count)| (label.to_owned(), count))
            .collect(),
    }
}

/// The agreement of two people; `None` if they decided on different trajectories.
fn agreement_of(
    (a, of_a): (&str, &BTreeMap<&str, bool>),
    (b, of_b): (&str, &BTreeMap<&str, bool>),
    tasks: &HashMap<String, String>,
) -> Option<PairAgreement> {
    let both: Vec<(&str, bool, bool)> = of_a
        .iter()
        .filter_map(|(id, first)| Some((*id, *first, *of_b.get(id)?)))
        .collect();
    let task = |id: &str| tasks.get(id).map_or(id.to_owned(), String::clone);
    let names: Vec<String> = both.iter().map(|(id, ..)| task(id)).collect();
    let distinct: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let numbers: HashMap<&str, usize> = distinct.into_iter().zip(0..).collect();
    let cluster: Vec<usize> = names.iter().map(|name| numbers[name.as_str()]).collect();
    let pairs: Vec<(bool, bool)> = both.iter().map(|(_, a, b)| (*a, *b)).collect();
    let found = agreement(&pairs, &cluster)?;
    Some(PairAgreement {
        a: a.to_owned(),
        b: b.to_owned(),
        items: found.items as u64,
        agree: found.agree,
        kappa: found.kappa,
        interval: found.interval.map(|interval| (interval.low, interval.high)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(number: u8, reviewer: &str, decision: Option<Decision>) -> Review {
        Review {
            trajectory: Digest::of_bytes(&[number]).to_string(),
            reviewer: reviewer.to_owned(),
            decision,
            label: String::new(),
            comment: String::new(),
        }
    }

    const ACCEPT: Option<Decision> = Some(Decision::Accept);
    const REJECT: Option<Decision> = Some(Decision::Reject);

    #[test]
    fn decisions_survive_and_the_last_one_counts() {
        let folder = tempfile::tempdir().unwrap();
        drop(Journal::open(&folder.path().join("journal.sqlite")).unwrap());
        review(1, "ann", ACCEPT).save(folder.path()).unwrap();
        review(1, "bob", REJECT).save(folder.path()).unwrap();
        review(2, "ann", None).save(folder.path()).unwrap();
        let changed = Review {
            label: "wrong file".to_owned(),
            comment: "It reads b.csv.\n<script>".to_owned(),
            ..review(1, "ann", REJECT)
        };
        changed.save(folder.path()).unwrap();
        let id = &changed.trajectory;
        let expected = [changed.clone(), review(1, "bob", REJECT)];
        assert_eq!(read_of(folder.path(), id).unwrap(), expected);
        assert_eq!(read_all(folder.path()).unwrap().len(), 3);
        assert!(read_of(folder.path(), "").unwrap().is_empty());
    }

    #[test]
    fn decisions_are_saved_while_a_process_writes_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.sqlite");
        let journal = Journal::open(&path).unwrap();
        let item = [Digest::of_bytes(b"unit").to_string()];
        journal.enqueue("rollout", &item).unwrap();
        assert!(journal.lease("rollout", &item[0], 0, 60).unwrap());
        review(1, "ann", ACCEPT).save(folder.path()).unwrap();
        // The lease is the other process' own.
        assert_eq!(journal.leased_until("rollout", &item[0]).unwrap(), Some(60));
        let output = serde_json::json!(1);
        journal.complete("rollout", &item[0], &output).unwrap();
        assert_eq!(read_all(folder.path()).unwrap().len(), 1);
    }

    #[test]
    fn what_cannot_be_a_decision_is_refused_with_the_field() {
        let folder = tempfile::tempdir().unwrap();
        drop(Journal::open(&folder.path().join("journal.sqlite")).unwrap());
        let good = review(1, "ann", ACCEPT);
        let bad = |change: fn(&mut Review)| {
            let mut review = good.clone();
            change(&mut review);
            match review.save(folder.path()).unwrap_err() {
                RunError::BadInput(text) => text,
                error => panic!("{error}"),
            }
        };
        type Case = (fn(&mut Review), &'static str);
        let cases: [Case; 7] = [
            (|one| one.trajectory = "../x".to_owned(), "`trajectory`"),
            (|one| one.reviewer = String::new(), "`reviewer`"),
            (|one| one.reviewer = "a/b".to_owned(), "`reviewer`"),
            (|one| one.reviewer = " ann".to_owned(), "`reviewer`"),
            (|one| one.reviewer = "a".repeat(61), "`reviewer`"),
            (|one| one.label = "a\nb".to_owned(), "`label`"),
            (|one| one.comment = "a".repeat(10_001), "`comment`"),
        ];
        for (change, field) in cases {
            let text = bad(change);
            assert!(text.contains(field), "{text}");
        }
        assert!(read_all(folder.path()).unwrap().is_empty());
        let nowhere = tempfile::tempdir().unwrap();
        assert!(good.save(nowhere.path()).is_err());
        assert_eq!(nowhere.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn labels_choose_trajectories_of_a_reviewer_or_of_all() {
        let labelled_by = |name: &str| Review {
            label: "wrong file".to_owned(),
            ..review(1, name, None)
        };
        let reviews = [
            labelled_by("ann"),
            labelled_by("bob"),
            review(2, "ann", None),
        ];
        let found = |label: &str, reviewer: &str| labelled(&reviews, label, reviewer);
        let one = IdFilter::Among(vec![reviews[0].trajectory.clone()]);
        assert_eq!(found("wrong file", ""), Some(one.clone()));
        assert_eq!(found("wrong file", "bob"), Some(one));
        assert_eq!(found("wrong", ""), Some(IdFilter::Among(Vec::new())));
        assert_eq!(found("", "ann"), None);
    }

    #[test]
    fn filters_know_who_decided_what() {
        let id = |number: u8| Digest::of_bytes(&[number]).to_string();
        let reviews = [
            review(1, "ann", ACCEPT),
            review(1, "bob", REJECT),
            review(2, "ann", REJECT),
            review(3, "ann", None),
        ];
        let of = |review: &str, reviewer: &str| match filter(&reviews, review, reviewer).unwrap() {
            Some(IdFilter::Among(mut ids)) => {
                ids.sort();
                ids
            }
            other => panic!("{other:?}"),
        };
        let mut both = [id(1), id(2)];
        both.sort();
        assert_eq!(of("rejected", ""), both);
        assert_eq!(of("rejected", "ann"), [id(2)]);
        assert_eq!(of("accepted", ""), [id(1)]);
        assert_eq!(of("disputed", ""), [id(1)]);
        assert!(of("disputed", "ann").is_empty());
        let undecided = filter(&reviews, "undecided", "bob").unwrap();
        assert_eq!(undecided, Some(IdFilter::Except(vec![id(1)])));
        assert_eq!(filter(&reviews, "", "ann").unwrap(), None);
        assert!(filter(&reviews, "x", "").is_err());
    }

    #[test]
    fn agreement_is_computed_over_tasks() {
        // The textbook example: 20, 5, 10, 15.
        let mut reviews = Vec::new();
        let cells = [
            (ACCEPT, ACCEPT, 20),
            (ACCEPT, REJECT, 5),
            (REJECT, ACCEPT, 10),
            (REJECT, REJECT, 15),
        ];
        let mut number = 0;
        for (ann, bob, times) in cells {
            for _ in 0..times {
                number += 1;
                reviews.extend([review(number, "ann", ann), review(number, "bob", bob)]);
            }
        }
        reviews.push(review(200, "eve", ACCEPT));
        reviews[0].label = "good".to_owned();
        let found = summary(&reviews, &HashMap::new());
        assert_eq!(found.reviewers.len(), 3);
        let [only] = &found.agreements[..] else {
            panic!("{found:?}")
        };
        assert_eq!((&*only.a, &*only.b, only.items), ("ann", "bob", 50));
        assert!((only.kappa.unwrap() - 0.4).abs() < 1e-12 && (only.agree - 0.7).abs() < 1e-12);
        let (low, high) = only.interval.unwrap();
        assert!(low < 0.4 && 0.4 < high);
        assert_eq!(found.labels, [("good".to_owned(), 1)]);
        // All trajectories of one task: one cluster, which says nothing about the spread.
        let tasks = reviews
            .iter()
            .map(|one| (one.trajectory.clone(), "t".to_owned()));
        let one_task = summary(&reviews, &tasks.collect());
        let (low, high) = one_task.agreements[0].interval.unwrap();
        assert_eq!(low, high);
    }
}
