//! All attempts of a file, or of several.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use pybench::id::Digest;

use super::{Attempt, Frozen};

/// A file of records.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// What defines the scores.
    pub frozen: Frozen,
    /// In the order of [`Attempt::order`].
    pub attempts: Vec<Attempt>,
}

impl Frozen {
    /// Take what another header defines. Where both define the scores of a suite (`shared`) they must
    /// agree. Prompts belong to agents, so they may differ.
    fn join(&mut self, other: Self, shared: bool) -> Result<(), String> {
        let parts = [
            ("task set", self.tasks == other.tasks),
            ("checker", self.checker == other.checker),
            ("environment", self.environment == other.environment),
            ("limits", self.limits == other.limits),
        ];
        match parts.iter().find(|(_, same)| !same) {
            Some((part, _)) if shared => {
                return Err(format!(
                    "the files differ in {part}: their scores do not compare; run one of them again"
                ));
            }
            Some(_) => self.stand_beside(&other),
            None => {}
        }
        if self.prompts != other.prompts {
            self.prompts = Digest::of_json(&(&self.prompts, &other.prompts)).to_string();
        }
        for (label, agent) in other.agents {
            match self.agents.get(&label) {
                Some(known) if shared && *known != agent => {
                    return Err(format!("two agents are called `{label}`"));
                }
                // On another suite it is asked in another way.
                Some(_) => {}
                None => {
                    self.agents.insert(label, agent);
                }
            }
        }
        Ok(())
    }
}

impl Frozen {
    /// Headers of different suites: each keeps what defines its scores, named by its task set.
    fn stand_beside(&mut self, other: &Self) {
        let both = |a: &str, b: &str| {
            if a == b {
                a.to_owned()
            } else {
                format!("{a}; {b}")
            }
        };
        let limits = other
            .limits
            .iter()
            .map(|(name, limit)| match self.limits.get(name) {
                Some(own) if own != limit => (format!("{name} ({})", other.task_set), *limit),
                _ => (name.clone(), *limit),
            });
        let limits: Vec<_> = limits.collect();
        self.limits.extend(limits);
        self.task_set = both(&self.task_set, &other.task_set);
        self.checker = both(&self.checker, &other.checker);
        self.environment = both(&self.environment, &other.environment);
        self.tasks = Digest::of_json(&(&self.tasks, &other.tasks));
    }
}

impl Evaluation {
    /// Records in their order, whatever the order they were made in.
    pub fn new(frozen: Frozen, mut attempts: Vec<Attempt>) -> Self {
        attempts.sort_by(Attempt::order);
        Self { frozen, attempts }
    }

    /// Several files as one. Those that share a suite must agree in everything that defines its scores;
    /// an agent that stands in two of them must be the same, and none of its attempts may stand twice.
    pub fn merge(parts: Vec<Self>) -> Result<Self, String> {
        let mut parts = parts.into_iter();
        let mut whole = parts.next().ok_or("no records")?;
        for part in parts {
            let suites: BTreeSet<_> = whole.attempts.iter().map(|a| &a.suite).collect();
            let shared = part.attempts.iter().any(|a| suites.contains(&a.suite));
            whole.frozen.join(part.frozen, shared)?;
            whole.attempts.extend(part.attempts);
        }
        let whole = Self::new(whole.frozen, whole.attempts);
        let same = |pair: &&[Attempt]| pair[0].order(&pair[1]) == Ordering::Equal;
        match whole.attempts.windows(2).find(same) {
            Some([twice, ..]) => Err(format!(
                "task {} of {} by `{}` (seed {}) stands in two files",
                twice.task, twice.suite, twice.agent, twice.seed
            )),
            _ => Ok(whole),
        }
    }
}
