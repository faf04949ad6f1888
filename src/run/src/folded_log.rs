//! Warnings about many items that say the same: the first is logged, the others are counted.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Maximum number of reasons that are told apart; further ones are logged each time.
const MAX_REASONS: usize = 1_000;

/// Counts equal reasons; logs how often each came again when it is dropped.
#[derive(Debug)]
pub struct FoldedLog {
    /// Begins each line, for example `rollout`.
    what: String,
    /// By reason without numbers: the first reason, and how often it came.
    reasons: Mutex<BTreeMap<String, (String, u64)>>,
}

impl FoldedLog {
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            reasons: Mutex::default(),
        }
    }

    /// Counts a reason; whether it is new, so that it has to be logged. Reasons that differ in numbers alone, such as
    /// seconds or ids, are one.
    pub fn is_new(&self, reason: &str) -> bool {
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        let key = without_numbers(reason);
        if let Some((_, count)) = reasons.get_mut(&key) {
            *count += 1;
            return false;
        }
        if reasons.len() < MAX_REASONS {
            reasons.insert(key, (reason.to_owned(), 1));
        }
        true
    }

    /// One line for each reason that came more than once.
    fn repeated(&self) -> Vec<String> {
        let reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        let repeated = reasons.values().filter(|(_, count)| *count > 1);
        let line = |(reason, count): &(String, u64)| {
            format!("{}: {} more like this: {reason}", self.what, count - 1)
        };
        repeated.map(line).collect()
    }
}

impl Drop for FoldedLog {
    fn drop(&mut self) {
        for line in self.repeated() {
            tracing::warn!("{line}");
        }
    }
}

/// Runs of digits become one `#`.
fn without_numbers(text: &str) -> String {
    let mut key = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_ascii_digit() {
            true if key.ends_with('#') => {}
            true => key.push('#'),
            false => key.push(c),
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_reasons_are_logged_once_and_counted() {
        let log = FoldedLog::new("rollout");
        let news = [
            "refused after 3 s",
            "refused after 17 s",
            "other",
            "refused after 4 s",
        ];
        let news = news.map(|reason| log.is_new(reason));
        assert_eq!(news, [true, false, true, false]);
        assert_eq!(
            log.repeated(),
            ["rollout: 2 more like this: refused after 3 s"]
        );
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let log = FoldedLog::new("crawl");
        let name = |n: usize| "x".repeat(n);
        assert!((0..2 * MAX_REASONS).all(|n| log.is_new(&name(n))));
        assert!(log.is_new(&name(2 * MAX_REASONS - 1)), "not remembered");
        assert!(!log.is_new(&name(1)));
    }
}
