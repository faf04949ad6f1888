//! The budget of the recipe, which all runs of a loop share.

use std::path::Path;
use std::time::Duration;

use pybench_run::{
    Budget, BudgetCap, ExecutorOptions, Journal, RunContext, RunError, Spent, time_spent,
};
use pybench_types::text::{count, dollars};

use crate::{eval_dir, looped, round_dir};

/// What the other runs of the loop have spent of the budget, seen by one of them. A run counts its own calls and its own
/// time by itself.
pub(crate) struct SharedBudget {
    whole: Budget,
    others: Spent,
    time: Duration,
}

impl SharedBudget {
    /// The budget as the run in the folder `own` sees it.
    ///
    /// # Errors
    /// The journal of a run cannot be read.
    pub(crate) fn of(context: &RunContext, own: &Path) -> Result<Self, RunError> {
        let mut shared = Self {
            whole: context.recipe.budget.clone(),
            others: Spent::default(),
            time: Duration::ZERO,
        };
        let rounds = looped(context)?.rounds;
        let played = (1..=rounds).map(|number| round_dir(context, number));
        let measured = (0..=rounds).map(|number| eval_dir(context, number));
        for run in played.chain(measured).filter(|run| run != own) {
            if let Some(journal) = Journal::of_run(&run)? {
                shared.add(&journal)?;
            }
        }
        if own != context.folder.root() {
            shared.add(context.folder.journal())?;
        }
        Ok(shared)
    }

    fn add(&mut self, journal: &Journal) -> Result<(), RunError> {
        let spent = journal.spent()?;
        self.others.micro_usd += spent.micro_usd;
        self.others.tokens += spent.tokens;
        self.time += time_spent(journal)?;
        Ok(())
    }

    /// What is left for the run.
    pub(crate) fn left(&self) -> Budget {
        let cap = self.cap();
        let minutes = self.time_left().map(|time| time.as_secs_f64() / 60.0);
        Budget {
            usd: cap.micro_usd.map(|left| left as f64 / 1e6),
            tokens: cap.tokens,
            minutes,
        }
    }

    fn cap(&self) -> BudgetCap {
        let whole = BudgetCap::of(&self.whole);
        let left = |all: Option<u64>, used| all.map(|all| all.saturating_sub(used));
        BudgetCap {
            micro_usd: left(whole.micro_usd, self.others.micro_usd),
            tokens: left(whole.tokens, self.others.tokens),
        }
    }

    /// The time that is left for the run.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        Some(self.whole.time()?.saturating_sub(self.time))
    }

    /// `options` within what is left.
    pub(crate) fn limit(&self, options: ExecutorOptions) -> ExecutorOptions {
        ExecutorOptions {
            budget: self.cap(),
            time_budget: self.time_left(),
            ..options
        }
    }

    /// The error of a run that has no time left.
    pub(crate) fn out_of_time(&self) -> RunError {
        let minutes = self.whole.minutes.unwrap_or(0.0);
        let text = format!(
            "the time budget is used up: `budget.minutes` allows {minutes} minutes; raise it to continue"
        );
        self.explain(RunError::Budget(text))
    }

    /// The error of a run: where the budget is used up, it says what the other runs have used of it.
    pub(crate) fn explain(&self, error: RunError) -> RunError {
        match error {
            RunError::Budget(text) => RunError::Budget(format!(
                "{text}. `[budget]` holds for all runs of a loop together; the others have used {}",
                self.used()
            )),
            error => error,
        }
    }

    /// What the other runs have used of each limit.
    fn used(&self) -> String {
        let money = self.whole.usd.map(|_| dollars(self.others.micro_usd));
        let tokens = self.whole.tokens;
        let tokens = tokens.map(|_| format!("{} tokens", count(self.others.tokens)));
        let minutes = self.time.as_secs_f64() / 60.0;
        let minutes = self.whole.minutes.map(|_| format!("{minutes:.1} minutes"));
        let used: Vec<String> = [money, tokens, minutes].into_iter().flatten().collect();
        used.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_others_spent_is_gone() {
        let shared = SharedBudget {
            whole: Budget {
                usd: Some(2.0),
                tokens: Some(1000),
                minutes: Some(3.0),
            },
            others: Spent {
                micro_usd: 500_000,
                tokens: 1500,
                ..Spent::default()
            },
            time: Duration::from_secs(60),
        };
        let left = shared.left();
        assert_eq!(
            (left.usd, left.tokens, left.minutes),
            (Some(1.5), Some(0), Some(2.0))
        );
        let options = shared.limit(ExecutorOptions::default());
        assert_eq!(options.budget.tokens, Some(0));
        assert_eq!(options.time_budget, Some(Duration::from_secs(120)));
        let text = shared
            .explain(RunError::Budget("used up".into()))
            .to_string();
        assert!(
            text.contains("1,500 tokens") && text.contains("1.0 minutes"),
            "{text}"
        );
        let free = SharedBudget {
            whole: Budget::default(),
            ..shared
        };
        assert_eq!(free.left(), Budget::default());
    }
}
