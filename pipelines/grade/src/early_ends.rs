//! Counts the attempts that a rule of the recipe ended because they were hopeless.

use pybench_types::trajectory::End;

/// How many attempts ended early, by rule.
#[derive(Default)]
pub(crate) struct EarlyEnds {
    repetition: u64,
    no_code: u64,
}

impl EarlyEnds {
    pub(crate) fn add(&mut self, end: &End) {
        match end {
            End::Repetition => self.repetition += 1,
            End::NoCode => self.no_code += 1,
            End::Finished | End::NoAnswer | End::MaxTurns => {}
        }
    }

    /// For the log and `pybench status`; `None` if no attempt ended early.
    pub(crate) fn report(&self) -> Option<String> {
        let Self {
            repetition,
            no_code,
        } = self;
        let all = repetition + no_code;
        (all > 0).then(|| {
            format!("attempts that ended early: {all} ({repetition} repetition, {no_code} no_code)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_a_rule_ended_are_counted() {
        let mut ends = EarlyEnds::default();
        for end in [End::Finished, End::NoAnswer, End::MaxTurns] {
            ends.add(&end);
        }
        assert_eq!(ends.report(), None);
        for end in [End::NoCode, End::Repetition, End::NoCode] {
            assert!(end.is_early());
            ends.add(&end);
        }
        let report = "attempts that ended early: 3 (1 repetition, 2 no_code)";
        assert_eq!(ends.report().as_deref(), Some(report));
    }
}
