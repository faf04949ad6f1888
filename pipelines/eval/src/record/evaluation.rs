//! The records of an evaluation, from one file or several.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use pybench_types::id::Digest;

use super::{Attempt, EvalFingerprint};

/// A header and its records.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    pub fingerprint: EvalFingerprint,
    /// Records, sorted by [`Attempt::order`].
    pub attempts: Vec<Attempt>,
}

impl EvalFingerprint {
    /// Merges another header into this one. If both files have attempts of the same suite (`shared`), the
    /// headers must define the same scores. Prompts belong to agents and may differ.
    fn merge(&mut self, other: Self, shared: bool) -> Result<(), String> {
        let parts = [
            ("task set", self.tasks == other.tasks),
            ("checker", self.checker == other.checker),
            ("environment", self.environment == other.environment),
            ("limits", self.limits == other.limits),
        ];
        match parts.iter().find(|(_, same)| !same) {
            Some((part, _)) if shared => {
                return Err(format!(
                    "the files have a different {part}, so their scores are not comparable; run one of the evaluations again with the same {part}"
                ));
            }
            Some(_) => self.merge_other_suite(&other),
            None => {}
        }
        for (name, source) in other.suites {
            self.suites.entry(name).or_insert(source);
        }
        if self.prompts != other.prompts {
            self.prompts = Digest::of_json(&(&self.prompts, &other.prompts)).to_string();
        }
        for (label, agent) in other.agents {
            match self.agents.get(&label) {
                Some(known) if shared && *known != agent => {
                    return Err(format!(
                        "the label `{label}` names different agents in the files; rename one of them"
                    ));
                }
                // The same agent may be prompted differently on another suite.
                Some(_) => {}
                None => {
                    self.agents.insert(label, agent);
                }
            }
        }
        Ok(())
    }
}

impl EvalFingerprint {
    /// Merges the header of other suites. Values that differ are kept side by side; limits that differ are
    /// qualified with the name of their task set.
    fn merge_other_suite(&mut self, other: &Self) {
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
    /// Sorts the records.
    pub fn new(fingerprint: EvalFingerprint, mut attempts: Vec<Attempt>) -> Self {
        attempts.sort_by(Attempt::order);
        Self {
            fingerprint,
            attempts,
        }
    }

    /// Merges several files.
    ///
    /// # Errors
    /// Files share a suite but define its scores differently, a label names different agents, or an attempt
    /// occurs twice.
    pub fn merge(parts: Vec<Self>) -> Result<Self, String> {
        let mut parts = parts.into_iter();
        let mut whole = parts.next().ok_or("no records given")?;
        for part in parts {
            let suites: BTreeSet<_> = whole.attempts.iter().map(|a| &a.suite).collect();
            let shared = part.attempts.iter().any(|a| suites.contains(&a.suite));
            whole.fingerprint.merge(part.fingerprint, shared)?;
            whole.attempts.extend(part.attempts);
        }
        let whole = Self::new(whole.fingerprint, whole.attempts);
        let same = |pair: &&[Attempt]| pair[0].order(&pair[1]) == Ordering::Equal;
        match whole.attempts.windows(2).find(same) {
            Some([twice, ..]) => Err(format!(
                "task {} of {} by `{}` (seed {}) occurs in two files",
                twice.task, twice.suite, twice.agent, twice.seed
            )),
            _ => Ok(whole),
        }
    }
}
