//! Which tasks are drawn: one draw for each task that is missing, until all are made.

use std::collections::{BTreeMap, BTreeSet};

use pybench_run::Query;
use pybench_types::task::Difficulty;

use crate::plan::{allocate, rng};

/// Draws for each task that is asked for. About a third of the draws gives a proven task.
const DRAWS: usize = 10;
/// Draws of one difficulty that give no task, one after another, until no more of it are drawn.
pub(super) const MAX_MISSES: usize = 100;

/// How the items of draws begin.
const PREFIX: &str = "composed#";

/// The draw of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Draw {
    pub(super) number: usize,
    /// The difficulty that the task has; `None` for any.
    pub(super) difficulty: Option<Difficulty>,
}

impl Draw {
    /// The item of the unit that makes the task.
    pub(super) fn item(self) -> String {
        let number = self.number;
        match self.difficulty {
            None => format!("{PREFIX}{number}"),
            Some(difficulty) => format!("{PREFIX}{number}:{}", difficulty.name()),
        }
    }

    /// The draw of an item.
    pub(super) fn parse(item: &str) -> Option<Self> {
        let draw = item.strip_prefix(PREFIX)?;
        let (number, difficulty) = match draw.split_once(':') {
            None => (draw, None),
            Some((number, name)) => {
                let mut all = Difficulty::ALL.into_iter();
                (number, Some(all.find(|one| one.name() == name)?))
            }
        };
        let number = number.parse().ok()?;
        Some(Self { number, difficulty })
    }
}

/// A difficulty of which fewer tasks were made than asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shortfall {
    pub(super) difficulty: Difficulty,
    pub(super) made: usize,
    pub(super) asked: usize,
}

/// The tasks that are asked for, and which of them were made.
pub(super) struct Draws {
    /// The difficulty of each task; `None` for any.
    tasks: Vec<Option<Difficulty>>,
    /// Indices of the tasks that are missing, in the order of their next draws.
    missing: Vec<usize>,
    /// Indices and items of the tasks that were made, in the order of their draws.
    made: Vec<(usize, String)>,
    /// Draws without a task since the last one that gave one.
    misses: BTreeMap<Option<Difficulty>, usize>,
    /// Number of the next draw.
    next: usize,
}

impl Draws {
    pub(super) fn new(query: &Query, seed: u64) -> Self {
        let count = query.composed_tasks();
        let tasks: Vec<Option<Difficulty>> = match query.balance.difficulty_weights() {
            None => vec![None; count],
            Some(weights) => {
                let mut shuffled = rng(&(seed, "composed difficulties"));
                let drawn = allocate(count, &weights, &mut shuffled);
                drawn.into_iter().map(Some).collect()
            }
        };
        Self {
            missing: (0..tasks.len()).collect(),
            tasks,
            made: Vec::new(),
            misses: BTreeMap::new(),
            next: 0,
        }
    }

    /// One draw for each missing task; none if all were made or no more are drawn.
    pub(super) fn next_round(&mut self) -> Vec<Draw> {
        if self.next >= self.tasks.len() * DRAWS {
            self.missing.clear();
        }
        let numbered = self.missing.iter().zip(self.next..);
        let draws = numbered.map(|(task, number)| Draw {
            number,
            difficulty: self.tasks[*task],
        });
        let draws: Vec<Draw> = draws.collect();
        self.next += draws.len();
        draws
    }

    /// Records which draws of the last round gave a task.
    pub(super) fn record(&mut self, round: &[(Draw, bool)]) {
        let tasks = std::mem::take(&mut self.missing);
        for (task, (draw, is_made)) in tasks.into_iter().zip(round) {
            let misses = self.misses.entry(draw.difficulty).or_default();
            match is_made {
                true => {
                    *misses = 0;
                    self.made.push((task, draw.item()));
                }
                false => {
                    *misses += 1;
                    self.missing.push(task);
                }
            }
        }
        let (tasks, misses) = (&self.tasks, &self.misses);
        let is_given_up = |difficulty: Option<Difficulty>| {
            let count = misses.get(&difficulty).copied().unwrap_or(0);
            difficulty.is_some() && count >= MAX_MISSES
        };
        self.missing.retain(|task| !is_given_up(tasks[*task]));
    }

    /// Makes the tasks of these items missing; `false` if there are none.
    pub(super) fn replace(&mut self, items: &BTreeSet<String>) -> bool {
        let made = std::mem::take(&mut self.made).into_iter();
        let (bad, made): (Vec<_>, Vec<_>) = made.partition(|(_, item)| items.contains(item));
        self.made = made;
        self.missing = bad.into_iter().map(|(task, _)| task).collect();
        !self.missing.is_empty()
    }

    /// The difficulties of which tasks are missing.
    pub(super) fn shortfalls(&self) -> Vec<Shortfall> {
        let shortfall = |difficulty: Difficulty| {
            let is_asked = |task: usize| self.tasks[task] == Some(difficulty);
            let asked = (0..self.tasks.len()).filter(|task| is_asked(*task)).count();
            let made = self.made.iter().filter(|(task, _)| is_asked(*task)).count();
            (made < asked).then_some(Shortfall {
                difficulty,
                made,
                asked,
            })
        };
        Difficulty::ALL.into_iter().filter_map(shortfall).collect()
    }

    /// The items of the tasks that were made, in the order of their draws. If difficulties are asked for, a later draw takes
    /// the place of a task that it replaces, so that they stay mixed.
    pub(super) fn into_items(mut self) -> Vec<String> {
        if self.tasks.iter().any(Option::is_some) {
            self.made.sort_by_key(|(task, _)| *task);
        }
        self.made.into_iter().map(|(_, item)| item).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(tasks: usize, balance: &str) -> Draws {
        let text = format!("tasks = {tasks}\ncomposed = 1.0\n{balance}");
        Draws::new(&toml::from_str(&text).unwrap(), 1)
    }

    /// Draws until no more are drawn. Returns the draws.
    fn run(draws: &mut Draws, is_made: impl Fn(Draw) -> bool) -> Vec<Draw> {
        let mut all = Vec::new();
        loop {
            let round = draws.next_round();
            if round.is_empty() {
                return all;
            }
            all.extend(&round);
            let round: Vec<(Draw, bool)> = round.iter().map(|one| (*one, is_made(*one))).collect();
            draws.record(&round);
        }
    }

    #[test]
    fn items_name_their_draws() {
        for difficulty in [None, Some(Difficulty::Hard)] {
            let draw = Draw {
                number: 12,
                difficulty,
            };
            assert_eq!(Draw::parse(&draw.item()), Some(draw));
        }
        for item in ["composed#", "composed#1:", "composed#1:harder", "other#1"] {
            assert_eq!(Draw::parse(item), None, "{item}");
        }
    }

    #[test]
    fn without_weights_later_draws_come_last() {
        let mut draws = draws(4, "");
        let drawn = run(&mut draws, |draw| draw.number % 3 != 1);
        let numbers: Vec<usize> = drawn.iter().map(|draw| draw.number).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
        assert!(draws.shortfalls().is_empty());
        let expected = [0, 2, 3, 5].map(|number| format!("composed#{number}"));
        assert_eq!(draws.into_items(), expected);
    }

    #[test]
    fn without_weights_draws_have_a_limit() {
        let mut draws = draws(40, "");
        assert_eq!(run(&mut draws, |_| false).len(), 40 * DRAWS);
        assert!(draws.into_items().is_empty());
    }

    #[test]
    fn missing_tasks_are_drawn_again_in_their_difficulty_and_place() {
        let weights = "balance.difficulties = { easy = 1, medium = 1, hard = 1 }";
        let mut balanced = draws(30, weights);
        let asked = balanced.tasks.clone();
        assert_eq!(asked, draws(30, weights).tasks);
        for difficulty in Difficulty::ALL {
            let of = asked.iter().filter(|one| **one == Some(difficulty));
            assert_eq!(of.count(), 10);
        }
        run(&mut balanced, |draw| {
            draw.difficulty != Some(Difficulty::Hard) || draw.number.is_multiple_of(2)
        });
        assert!(balanced.shortfalls().is_empty());
        let items = balanced.into_items();
        let made = items.iter().map(|item| Draw::parse(item).unwrap());
        assert!(made.map(|draw| draw.difficulty).eq(asked));
    }

    #[test]
    fn replaced_tasks_leave_all_other_draws() {
        let weights = "balance.difficulties = { easy = 1, medium = 1, hard = 1 }";
        let is_made = |draw: Draw| draw.number % 4 != 1;
        let mut first = draws(12, weights);
        run(&mut first, is_made);
        let mut second = draws(12, weights);
        run(&mut second, is_made);
        let wrong = BTreeSet::from([second.made[2].1.clone()]);
        assert!(second.replace(&wrong));
        run(&mut second, is_made);
        assert!(!second.replace(&wrong));
        let (first, second) = (first.into_items(), second.into_items());
        let other = first.iter().zip(&second).filter(|(one, two)| one != two);
        assert_eq!(
            other.map(|(one, _)| one).collect::<Vec<_>>(),
            Vec::from_iter(&wrong)
        );
    }

    #[test]
    fn a_difficulty_that_gives_no_task_is_given_up() {
        let weights = "balance.difficulties = { easy = 0, medium = 1, hard = 1 }";
        let mut draws = draws(60, weights);
        let hard = Some(Difficulty::Hard);
        let drawn = run(&mut draws, |draw| draw.difficulty != hard);
        let of_hard = drawn.iter().filter(|draw| draw.difficulty == hard);
        // Rounds of 30 draws each.
        assert_eq!(of_hard.count(), MAX_MISSES.next_multiple_of(30));
        let missing = Shortfall {
            difficulty: Difficulty::Hard,
            made: 0,
            asked: 30,
        };
        assert_eq!(draws.shortfalls(), [missing]);
        assert_eq!(draws.into_items().len(), 30);
    }
}
