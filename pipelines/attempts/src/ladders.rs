//! The possible attempts of a run, by number.

use std::ops::Range;

/// The possible attempts at the tasks of a run: for each task, one group of samples per level, from the first teacher
/// to the strongest. Attempts are numbered: tasks in order, levels within a task, samples within a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ladders {
    /// Number of tasks.
    pub tasks: usize,
    /// Number of levels of each task.
    pub levels: usize,
    /// Number of samples on each level.
    pub samples: usize,
}

impl Ladders {
    /// Number of attempts at all tasks.
    pub fn attempts(&self) -> usize {
        self.tasks * self.levels * self.samples
    }

    /// The attempts at a task on a level; none beyond the last level.
    pub fn level(&self, task: usize, level: usize) -> Range<usize> {
        if level >= self.levels {
            return 0..0;
        }
        let first = (task * self.levels + level) * self.samples;
        first..first + self.samples
    }

    /// Task, level and sample of an attempt.
    pub fn place(&self, attempt: usize) -> (usize, usize, usize) {
        let (level, sample) = (attempt / self.samples, attempt % self.samples);
        (level / self.levels, level % self.levels, sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_numbered_without_gaps() {
        let ladders = Ladders {
            tasks: 3,
            levels: 2,
            samples: 4,
        };
        let mut next = 0..;
        for task in 0..3 {
            for level in 0..2 {
                for (sample, attempt) in ladders.level(task, level).enumerate() {
                    assert_eq!(Some(attempt), next.next());
                    assert_eq!(ladders.place(attempt), (task, level, sample));
                }
            }
            assert!(ladders.level(task, 2).is_empty());
        }
        assert_eq!(next.next(), Some(ladders.attempts()));
    }
}
