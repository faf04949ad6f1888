//! Which parts of composed tasks no training row has: operations, pairs of operations, wordings.
//!
//! The choice depends on a seed and the part's name only, so the stage that writes tasks and the one that splits rows
//! agree without speaking to each other.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::Digest;
use crate::task::{Task, TaskOrigin};

/// Separates operations in a skeleton, and the two of a pair.
const ARROW: char = '>';

/// A rule for the parts that are held out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeldOutRule {
    pub seed: u64,
    /// Shares of all operations, pairs and wordings, from 0 to 1.
    pub operations: f64,
    pub pairs: f64,
    pub wordings: f64,
    /// Parts that are held out besides: operations (`rank_dense`), pairs (`filter_above>answer_mean`) and wordings
    /// (`filter_above/en/1`, `style/en/3`).
    pub names: BTreeSet<String>,
}

/// Which crawled files are meant for the test split. The choice depends on a seed and the file's origin only.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EvaluationFiles {
    pub seed: u64,
    /// Share of the files, from 0 to 1.
    pub share: f64,
}

impl EvaluationFiles {
    /// Whether the file with this origin is one of them.
    pub fn contains(&self, origin: &str) -> bool {
        Digest::of_json(&(self.seed, "evaluation file", origin)).fraction() < self.share
    }
}

/// What training rows lack of a row of the test split; of several, the one that stands first here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unseen {
    /// An operation.
    Operations,
    /// Two operations that follow each other, both of which training rows have.
    Pairs,
    /// The template, or the whole chain of operations.
    Template,
    /// A way to say an operation or a request.
    Wordings,
    /// Only its files.
    Files,
}

impl Unseen {
    pub const ALL: [Self; 5] = [
        Self::Files,
        Self::Template,
        Self::Wordings,
        Self::Pairs,
        Self::Operations,
    ];

    /// The value in datasets.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operations => "operations",
            Self::Pairs => "pairs",
            Self::Template => "template",
            Self::Wordings => "wordings",
            Self::Files => "files",
        }
    }

    /// The one with this name in datasets.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// The test split's share of all rows, by what training rows lack of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TestShares {
    /// Rows of which only the files are unseen.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub files: f64,
    /// Rows of the `held_out_templates`.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub templates: f64,
    /// Rows with a wording that is held out.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub wordings: f64,
    /// Rows with a pair of operations that is held out.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub pairs: f64,
    /// Rows with an operation that is held out.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub operations: f64,
}

impl TestShares {
    /// The share of the rows that lack this.
    pub fn of(&self, unseen: Unseen) -> f64 {
        match unseen {
            Unseen::Operations => self.operations,
            Unseen::Pairs => self.pairs,
            Unseen::Template => self.templates,
            Unseen::Wordings => self.wordings,
            Unseen::Files => self.files,
        }
    }

    /// The share of the whole test split.
    pub fn sum(&self) -> f64 {
        Unseen::ALL.into_iter().map(|unseen| self.of(unseen)).sum()
    }

    /// What training rows are to lack of a composed task over a file of the test split, drawn by a number from 0 to 1 in
    /// proportion to the shares.
    pub fn pick(&self, drawn: f64) -> Unseen {
        let all = Unseen::ALL.into_iter();
        let mut composed = all.filter(|unseen| *unseen != Unseen::Template);
        let at = drawn * (self.sum() - self.templates);
        let mut below = 0.0;
        let picked = composed.find(|unseen| {
            below += self.of(*unseen);
            at < below
        });
        picked.unwrap_or(Unseen::Files)
    }
}

fn is_zero(share: &f64) -> bool {
    *share == 0.0
}

/// A task that is kept from training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOutTask {
    /// What the tasks of training lack of it.
    pub unseen: Unseen,
    pub task: Task,
}

impl HeldOutRule {
    /// Whether nothing is held out.
    pub fn is_empty(&self) -> bool {
        self.operations == 0.0 && self.pairs == 0.0 && self.wordings == 0.0 && self.names.is_empty()
    }

    fn drawn(&self, kind: &str, name: &str, share: f64) -> bool {
        let by_share = || Digest::of_json(&(self.seed, "held out", kind, name)).fraction() < share;
        self.names.contains(name) || by_share()
    }

    pub fn operation(&self, name: &str) -> bool {
        self.drawn("operation", name, self.operations)
    }

    /// Whether this operation may not follow that one.
    pub fn pair(&self, first: &str, second: &str) -> bool {
        self.drawn("pair", &pair(first, second), self.pairs)
    }

    pub fn wording(&self, name: &str) -> bool {
        self.drawn("wording", name, self.wordings)
    }

    /// The rule for tasks of which `unseen` may be held out, and nothing that counts before it.
    pub fn before(&self, unseen: Unseen) -> Self {
        let kept = |kind: Unseen, share: f64| if kind < unseen { share } else { 0.0 };
        let names = self.names.iter().filter(|name| kind(name) < unseen);
        Self {
            seed: self.seed,
            operations: kept(Unseen::Operations, self.operations),
            pairs: kept(Unseen::Pairs, self.pairs),
            wordings: kept(Unseen::Wordings, self.wordings),
            names: names.cloned().collect(),
        }
    }

    /// Whether parts of this kind may be held out.
    pub fn holds_out(&self, unseen: Unseen) -> bool {
        let share = match unseen {
            Unseen::Operations => self.operations,
            Unseen::Pairs => self.pairs,
            Unseen::Wordings => self.wordings,
            Unseen::Template | Unseen::Files => 0.0,
        };
        share > 0.0 || self.names.iter().any(|name| kind(name) == unseen)
    }

    /// What is held out of a task; `None` for one that was not composed.
    pub fn of_task(&self, task: &Task) -> Option<Unseen> {
        let (operations, wordings) = composition(task);
        self.unseen(&operations, &wordings)
    }

    /// What is held out of a composed task with these operations, in order, and wordings.
    pub fn unseen(&self, operations: &[String], wordings: &[String]) -> Option<Unseen> {
        if operations.iter().any(|name| self.operation(name)) {
            return Some(Unseen::Operations);
        }
        let follow = operations.windows(2).any(|two| self.pair(&two[0], &two[1]));
        let said = || wordings.iter().any(|name| self.wording(name));
        match follow {
            true => Some(Unseen::Pairs),
            false => said().then_some(Unseen::Wordings),
        }
    }
}

/// What the name of a part names.
fn kind(name: &str) -> Unseen {
    match (name.contains(ARROW), name.contains('/')) {
        (true, _) => Unseen::Pairs,
        (false, true) => Unseen::Wordings,
        (false, false) => Unseen::Operations,
    }
}

/// The operations and wordings of a composed task; empty for others.
pub fn composition(task: &Task) -> (Vec<String>, Vec<String>) {
    match &task.origin {
        TaskOrigin::Composed {
            skeleton, wordings, ..
        } => (operations(skeleton), wordings.clone()),
        _ => Default::default(),
    }
}

/// The name of two operations that follow each other.
pub fn pair(first: &str, second: &str) -> String {
    format!("{first}{ARROW}{second}")
}

/// How the column `template` of a dataset begins for a row of a task set. The set and the row follow.
pub const TASK_SET: &str = "task_set/";

/// Whether no other task has this value in the column `template`: each composed task and each row of a task set has its
/// own.
pub fn is_unique(template: &str) -> bool {
    is_skeleton(template) || template.starts_with(TASK_SET)
}

/// Whether a dataset's column `template` holds the skeleton of a composed task, and not the name of a template.
pub fn is_skeleton(template: &str) -> bool {
    template.contains(ARROW)
}

/// The operations of a skeleton, in order.
pub fn operations(skeleton: &str) -> Vec<String> {
    skeleton.split(ARROW).map(str::to_owned).collect()
}

/// The pairs of operations that follow each other.
pub fn pairs(operations: &[String]) -> Vec<String> {
    let two = operations.windows(2);
    two.map(|two| pair(&two[0], &two[1])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_strongest_reason_is_stated() {
        let names = ["rank", "a>b", "a/en/1"];
        let rule = HeldOutRule {
            names: names.map(str::to_owned).into(),
            ..HeldOutRule::default()
        };
        let unseen = |operations: &[&str], wordings: &[&str]| {
            rule.unseen(&texts(operations), &texts(wordings))
        };
        assert_eq!(unseen(&["a", "b", "rank"], &[]), Some(Unseen::Operations));
        assert_eq!(unseen(&["a", "b", "c"], &["a/en/1"]), Some(Unseen::Pairs));
        assert_eq!(
            unseen(&["a", "c", "b"], &["a/en/1"]),
            Some(Unseen::Wordings)
        );
        assert_eq!(unseen(&["a", "c", "b"], &["a/en/0"]), None);
    }

    #[test]
    fn what_is_unseen_has_one_name() {
        for unseen in Unseen::ALL {
            assert_eq!(serde_json::to_value(unseen).unwrap(), unseen.name());
        }
    }

    #[test]
    fn about_the_asked_share_of_files_is_for_evaluation() {
        let chosen = |seed, share| {
            let files = EvaluationFiles { seed, share };
            let origins = (0..1000).map(|number| format!("origin {number}"));
            origins
                .filter(|origin| files.contains(origin))
                .collect::<Vec<_>>()
        };
        assert!((150..250).contains(&chosen(1, 0.2).len()));
        assert_ne!(chosen(1, 0.2), chosen(2, 0.2));
        assert!(chosen(1, 0.0).is_empty());
        assert_eq!(chosen(1, 1.0).len(), 1000);
    }

    #[test]
    fn a_rule_is_limited_to_what_counts_before() {
        let names = ["rank", "a>b", "a/en/1"];
        let rule = HeldOutRule {
            seed: 3,
            operations: 0.1,
            pairs: 0.2,
            wordings: 0.3,
            names: names.map(str::to_owned).into(),
        };
        let pairs = rule.before(Unseen::Pairs);
        assert_eq!(
            (pairs.operations, pairs.pairs, pairs.wordings),
            (0.1, 0.0, 0.0)
        );
        assert_eq!(pairs.names, BTreeSet::from(["rank".to_owned()]));
        assert_eq!(rule.before(Unseen::Files), rule);
        assert!(rule.before(Unseen::Operations).is_empty());
        assert!(pairs.holds_out(Unseen::Operations) && !pairs.holds_out(Unseen::Pairs));
    }

    #[test]
    fn kinds_are_picked_in_proportion_to_their_shares() {
        let shares = TestShares {
            files: 0.1,
            templates: 0.5,
            pairs: 0.2,
            operations: 0.1,
            ..TestShares::default()
        };
        let picked = |unseen: Unseen| {
            let drawn = (0..100).map(|at| shares.pick(f64::from(at) / 100.0 + 0.005));
            drawn.filter(|one| *one == unseen).count()
        };
        let counts = Unseen::ALL.map(picked);
        assert_eq!(counts, [25, 0, 0, 50, 25]);
        assert_eq!(TestShares::default().pick(0.5), Unseen::Files);
    }

    #[test]
    fn a_share_is_about_that_share_and_depends_on_the_seed() {
        let rule = |seed| HeldOutRule {
            seed,
            pairs: 0.1,
            ..HeldOutRule::default()
        };
        let held = |seed| {
            let name = |n: u32| n.to_string();
            let all = (0..40).flat_map(|a| (0..40).map(move |b| (a, b)));
            all.filter(|(a, b)| rule(seed).pair(&name(*a), &name(*b)))
                .collect::<Vec<_>>()
        };
        assert!((120..200).contains(&held(1).len()), "{}", held(1).len());
        assert_ne!(held(1), held(2));
        assert!(!rule(1).operation("a") && !rule(1).wording("a/en/1"));
    }
}
